"""`verify frontier` goes on from what an interrupted run left, and several workers find what one finds."""

import json

import pytest
from command import run

from verify.tasks.histogram.frontier import search

ARGV = ("frontier", "histogram", "--L", "3", "--steps", "20", "--format", "csv")


@pytest.fixture
def searched(monkeypatch):
    """The (model, T) whose d is searched; the third one interrupts the run."""
    found = []

    def counted(model, T, L, **options):
        if len(found) == 2:
            found.append("interrupted")
            raise KeyboardInterrupt
        found.append((model, T))
        return smallest_d(model, T, L, **options)

    smallest_d = search.smallest_d
    monkeypatch.setattr(search, "smallest_d", counted)
    return found


def test_an_interrupted_run_is_gone_on_with(tmp_path, capsys, searched):
    argv = (*ARGV, "--model", "bos+sftm", "--T", "4,5,6", "--save", str(tmp_path))
    assert run(capsys, *argv)[0] == 130
    code, out, err = run(capsys, *argv)
    assert code == 0 and searched == [("bos+sftm", 4), ("bos+sftm", 5), "interrupted", ("bos+sftm", 6)]
    assert err.count("kept, PROVED again") == 2
    assert run(capsys, *ARGV, "--model", "bos+sftm", "--T", "4,5,6")[1] == out
    (tmp_path / "bos+sftm_T5_L3_d3.safetensors").write_bytes(b"damaged")
    del searched[:]
    searched.extend(["not", "interrupted", "again"])
    assert run(capsys, *argv)[1] == out and searched[3:] == [("bos+sftm", 5)]


def test_another_search_starts_anew(tmp_path, capsys, searched):
    argv = (*ARGV, "--model", "bos+sftm", "--T", "4", "--save", str(tmp_path))
    run(capsys, *argv)
    run(capsys, *argv, "--seed", "1")
    assert searched == [("bos+sftm", 4)] * 2


def test_weights_of_another_model_are_not_taken(tmp_path, capsys, searched):
    argv = (*ARGV, "--model", "bos+sftm", "--T", "4", "--save", str(tmp_path))
    run(capsys, *argv)
    place = tmp_path / "frontier.json"
    rows = json.loads(place.read_text())
    rows["rows"][0]["p"] = 2
    place.write_text(json.dumps(rows))
    run(capsys, *argv)
    assert len(searched) == 2


@pytest.mark.deep
def test_two_workers_find_what_one_finds(tmp_path, capsys):
    argv = (*ARGV, "--model", "all", "--T", "4,5")
    found = [run(capsys, *argv, "--save", str(tmp_path / n), "--workers", n) for n in ("1", "2")]
    assert found[0][:2] == found[1][:2] and found[0][0] == 0
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "2").iterdir()) and len(names) == 2 * 12 + 1
    for name in names:
        if name.endswith(".safetensors"):
            assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize("number", ["0", "65"])
def test_a_number_of_workers_that_makes_no_sense(capsys, number):
    code, out, err = run(capsys, *ARGV, "--T", "4", "--workers", number)
    assert code == 2 and "workers" in err and err.count("\n") == 1
