"""Many checkpoints at once: what each file's own command says, the worst exit code, JUnit and annotations."""

import pickle
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from command import as_json, run

from constructions import parity, relation_counting
from verify.commands import batch

UNKNOWN = ("--precision", "p3")
MODEL = ("--model", "dot", "--L", "2")


@pytest.fixture
def folder(tmp_path):
    """One file of each verdict: proved, refuted, unknown (in 3 bits), unreadable, and one that is no weights file."""
    right, wrong = relation_counting.dot(T=3, L=2), relation_counting.dot(T=3, L=2)
    wrong.W_1.data.neg_()
    (tmp_path / "more").mkdir()
    torch.save({"state_dict": {f"model.{k}": v for k, v in right.state_dict().items()}}, tmp_path / "a.pt")
    torch.save(wrong.state_dict(), tmp_path / "more" / "b.ckpt")
    (tmp_path / "c.pt").write_bytes(b"no weights")
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    return tmp_path


def test_every_file_gets_what_its_own_command_says(capsys, folder):
    code, found = as_json(capsys, "batch", str(folder), *MODEL)
    files = {line["file"].removeprefix(f"{folder}/"): line for line in found["files"]}
    assert list(files) == ["a.pt", "c.pt", "more/b.ckpt"]
    assert code == found["exit_code"] == 2 and found["summary"] == {"PROVED": 1, "BAD INPUT": 1, "REFUTED": 1}
    for name in ("a.pt", "more/b.ckpt"):
        alone, said = as_json(capsys, "histogram", "--weights", str(folder / name), *MODEL)
        assert files[name]["exit_code"] == alone
        assert said | {"seconds": 0} == files[name]["certificate"] | {"seconds": 0}
    assert "not a state dict" in files["c.pt"]["error"]


def test_people_read_one_line_for_each_file(capsys, folder):
    code, out, err = run(capsys, "batch", f"{folder}/**/*.*t", *MODEL)
    assert code == 2 and err == "" and len(out.splitlines()) == 5  # a, b, c, notes.txt, and the summary
    assert out.splitlines()[0].startswith("PROVED") and "2 BAD INPUT" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        (["a.pt"], (), 0),
        (["a.pt", "more/b.ckpt"], (), 1),
        (["a.pt"], UNKNOWN, 3),
        (["more/b.ckpt", "a.pt"], UNKNOWN, 1),  # REFUTED is worse than UNKNOWN
    ],
)
def test_the_exit_code_is_the_worst(capsys, folder, names, options, expected):
    paths = [str(folder / name) for name in names]
    assert run(capsys, "batch", *paths, *MODEL, *options)[0] == expected


def test_a_bug_in_one_file_is_the_worst_and_does_not_stop_the_others(capsys, folder, monkeypatch):
    from constructions import checkpoint

    load = checkpoint.load

    def broken(path, **options):
        if str(path).endswith("a.pt"):
            raise IndexError("planted")
        return load(path, **options)

    monkeypatch.setattr(checkpoint, "load", broken)
    code, found = as_json(capsys, "batch", str(folder), *MODEL)
    assert code == 70 and [line["exit_code"] for line in found["files"]] == [70, 2, 1]


def test_a_line_can_be_sent_from_one_process_to_another(capsys, folder, monkeypatch):
    judged = []
    monkeypatch.setattr(batch, "print_line", judged.append)
    assert run(capsys, "batch", str(folder), *MODEL)[0] == 2
    for line in judged:
        assert pickle.loads(pickle.dumps(line)) == line
    assert len(judged) == 3


def test_junit_counts_failures_and_errors(capsys, folder):
    run(capsys, "batch", str(folder), *MODEL, "--junit", str(folder / "junit.xml"))
    suite = ElementTree.parse(folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure.get("type") == "REFUTED" and "expected" in failure.text


def test_annotations_under_github(capsys, folder, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    _, _, err = run(capsys, "batch", str(folder), *MODEL)
    assert [line.split(" ")[0] for line in err.splitlines()] == ["::error", "::error"]
    assert f"file={folder}/more/b.ckpt,title=REFUTED%3A" in err


def test_another_task(capsys, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(parity.as_bytes(parity.sawtooth(T=2, L=3)))
    assert run(capsys, "batch", str(tmp_path), "--task", "parity")[0] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("nowhere", *MODEL), "nowhere"),
        (("{folder}", *MODEL, "--save", "out"), "--save"),
        (("{folder}", *MODEL, "--frobnicate"), "frobnicate"),
        (("{folder}", "--model", "dot", "--L", "many"), "many"),
        (("{folder}", *MODEL, "--workers", "0"), "workers"),
        (("{folder}", *MODEL, "--workers", "65"), "workers"),
        (("{folder}", *MODEL, "--junit", "nowhere/j.xml"), "nowhere"),
    ],
)
def test_bad_calls_are_one_line(capsys, folder, options, said):
    code, out, err = run(capsys, "batch", *(option.format(folder=folder) for option in options))
    assert code == 2 and out == "" and err.count("\n") == 1 and said in err


@pytest.mark.parametrize("command", [("batch", "folder"), ("quantise", "model.safetensors")])
def test_a_task_that_has_its_own_is_asked_for_it(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for place in ("folder/a.safetensors", "model.safetensors"):
        Path(place).touch()
    code, out, error = run(capsys, *command, "--task", "inductive")
    assert code == 2 and not out and error.count("\n") == 1 and "Give a second one" in error
