"""`verify reproduce`: what is kept is taken up again, whoever computes finds the same, and bad calls are one line."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command import run

from constructions import written_files
from verify.commands import kept_results as kept
from verify.commands import reproduce
from verify.frame.experiment import Experiment, GridSize, Result, Verdict
from verify.tasks.recurrent import experiments as recurrent

ID = "C-Table-A1"
TABLES = ("table.json", "table.md", "table.csv")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def three(monkeypatch):
    """The experiment with its three quickest networks, and the names of those that were trained."""
    found = []
    trials = [recurrent.CounterTrial(GridSize.LAPTOP, kind, 16, 0.5, 0) for kind in ("rnn", "lstm")]
    trials += [recurrent.CounterTrial(GridSize.LAPTOP, "rnn", 16, 0.1, 0)]
    monkeypatch.setattr(recurrent, "trials", lambda grid, seeds: trials)

    def counted(trial):
        found.append(trial.name)
        if len(found) == 2:
            raise KeyboardInterrupt
        return trial_run(trial)

    trial_run = reproduce.trial_run
    monkeypatch.setattr(reproduce, "trial_run", counted)
    return found


def tables(folder):
    return {name: (folder / f"{ID}-laptop" / name).read_bytes() for name in TABLES}


@pytest.mark.deep
def test_an_interrupted_run_goes_on(tmp_path, capsys, three):
    argv = ("reproduce", ID, "--out", str(tmp_path / "a"), "--format", "csv")
    code, _, err = run(capsys, *argv)
    assert code == 130 and "1 of 3 models kept" in err
    assert not (tmp_path / "a" / f"{ID}-laptop" / "table.json").exists()
    code, out, _ = run(capsys, *argv, "--resume", "--report", str(tmp_path / "page.html"))
    assert code == 0 and len(three) == 4, "one was kept, one cut, two trained after it"
    page = (tmp_path / "page.html").read_text()
    assert page.count("<tr>") == 1 + 3 and ID in page
    assert run(capsys, "reproduce", ID, "--out", str(tmp_path / "b"), "--format", "csv")[1] == out
    assert tables(tmp_path / "a") == tables(tmp_path / "b")


@pytest.mark.deep
@pytest.mark.parametrize(
    "fault",
    [
        "damaged weights",
        *(pytest.param(each, marks=pytest.mark.deep) for each in ("another's record", "no record", "half a record")),
    ],
)
def test_only_what_is_whole_and_its_own_is_taken(tmp_path, capsys, three, fault):
    three.extend(["not", "interrupted"])
    argv = ("reproduce", ID, "--out", str(tmp_path), "--json")
    code, out, _ = run(capsys, *argv)
    names = three[2:]
    weights, record = (tmp_path / f"{ID}-laptop" / f"{names[1]}.{ending}" for ending in ("safetensors", "json"))
    if fault == "damaged weights":
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    elif fault == "another's record":
        shutil.copy(record.with_name(f"{names[0]}.json"), record)
    elif fault == "no record":
        record.unlink()
    else:
        record.write_bytes(record.read_bytes()[:100])
    again = run(capsys, *argv)
    assert code == again[0] == 0 and again[1] == out and three[5:] == [names[1]]


@pytest.mark.deep
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, capsys, three, monkeypatch):
    three.extend(["not", "interrupted"])
    argv = ("reproduce", ID, "--out", str(tmp_path))
    write, written = kept.write_whole, []

    def until_full(place, data, name="save"):
        written.append(place)
        if len(written) == 4:
            raise written_files.BadInput(f"{name}={str(place)!r}: cannot be written (No space left on device).")
        write(place, data, name)

    monkeypatch.setattr(kept, "write_whole", until_full)
    code, _, err = run(capsys, *argv)
    assert code == 2 and "No space left" in err and "Traceback" not in err
    monkeypatch.setattr(kept, "write_whole", write)
    assert run(capsys, *argv)[0] == 0 and len(three) == 2 + 2 + 2


def test_the_list_names_every_experiment_and_what_it_takes(capsys):
    code, out, _ = run(capsys, "reproduce", "--json")
    found = json.loads(out)
    assert code == 0 and [row["experiment"] for row in found] == [each.id for each in reproduce.every()]
    assert all(row["models"] > 0 and row["about, on one core"] for row in found)
    code, out, _ = run(capsys, "reproduce", "list", "--grid", "paper", "--format", "csv")
    assert code == 0 and 'A-Fig-1,"A, Fig. 1' in out and "5880" in out  # 6 models, 14 x 14 sizes, 5 seeds
    assert run(capsys, "reproduce", "LIST", "--json") == run(capsys, "reproduce", "--json")


def test_a_figure_of_the_same_models_names_the_experiment(tmp_path, capsys, monkeypatch):
    known = {each.id: each for each in reproduce.every()}
    also = [name for each in known.values() for name in each.also]
    assert len(set(also)) == len(also) and not set(also) & set(known) and "A-Fig-10" in known["A-Fig-1"].also
    reproduced = []
    monkeypatch.setattr(reproduce, "reproduced", lambda asked, experiment: reproduced.append(experiment.id) or [])
    for names in (("A-Fig-10",), ("A-Fig-1", "A-Fig-10", "A-Fig-2")):
        assert run(capsys, "reproduce", *names, "--out", str(tmp_path), "--json")[0] == 0
    assert reproduced == ["A-Fig-1", "A-Fig-1"]


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("Fig-1",), "Fig-1: no experiment"),
        ((ID, "--seeds", "0"), "--seeds 0"),
        ((ID, "--workers", "0"), "--workers 0"),
        ((ID, "--resume", "nowhere"), "--resume nowhere"),
        ((ID, "--resume", "a", "--out", "b"), "--resume a"),
        ((ID, "--out", "pyproject.toml"), "out='pyproject.toml"),
        ((ID, "--grid", "desk"), "laptop"),
    ],
)
def test_a_bad_call_is_one_line(capsys, monkeypatch, argv, named):
    monkeypatch.chdir(ROOT)
    code, out, err = run(capsys, "reproduce", *argv)
    assert (code, out) == (2, "") and named in err and len(err.strip().splitlines()) == 1


def test_each_experiment_says_what_it_needs_to():
    for experiment in reproduce.every():
        for grid in GridSize:
            trials = experiment.trials(grid, 2)
            names = {trial.name for trial in trials}
            assert len(names) == len(trials) > 0 and experiment.recipes[grid] and experiment.seconds[grid] > 0
            assert all(json.loads(json.dumps(trial.described)) for trial in trials)
            assert len(experiment.trials(grid, 1)) * 2 == len(trials)
        assert experiment.laws and experiment.printed and experiment.question.endswith("?")


def test_news_is_what_samples_miss():
    from fractions import Fraction

    from verify.report.experiment_table import columns, news, rows

    experiment = Experiment("X", "", "?", "", "", {"all": "all inputs"}, {}, {}, lambda grid, seeds: [])
    seen = Result({"d": 1}, (9, 10), Verdict.REFUTED, {"all": (Fraction(1, 2), Fraction(1, 2))}, {"input": [1]})
    proved = Result({"d": 2}, (10, 10), Verdict.PROVED, {"all": (Fraction(1), Fraction(1))})
    unknown = Result({"d": 3}, (10, 10), Verdict.UNKNOWN)
    missed = Result({"d": 4}, (10, 10), Verdict.REFUTED, {"all": (1 - Fraction(1, 10**12),) * 2}, {"input": [3]})
    assert news(experiment, [seen, proved, unknown]) == [
        "Of 3 models, none has all its samples right and is wrong elsewhere."
    ]
    (line,) = news(experiment, [seen, proved, unknown, missed])
    assert line.startswith("d 4: all 10 samples right; right on 100 - 1.0e-10 % of all inputs; input [3]")
    (line,) = news(experiment, [replace(missed, inputs={"all": 10**13})])
    assert "% of all inputs; wrong on 10 of 10000000000000 (all); input [3]" in line
    parts = replace(experiment, laws={"all": "all inputs", "separable": "{} % of its heads separate"})
    (line,) = news(
        parts, [replace(missed, exact=missed.exact | {"separable": (Fraction(1, 4),) * 2, "no law": (1, 1)})]
    )
    assert "of all inputs; 25 % of its heads separate; input [3]" in line
    shown = [dict(zip(columns(experiment, [seen]), row, strict=True)) for row in rows(experiment, [seen, unknown])]
    assert [row["exact, all"] for row in shown] == ["50", None] and shown[0]["sampled"] == "90"


def shortest():
    """The two experiments of least estimated time among those with three models, so that they can be cut twice."""
    models = {each.id: len(each.trials(GridSize.LAPTOP, 1)) for each in reproduce.every()}
    seconds = {each.id: each.seconds[GridSize.LAPTOP] * models[each.id] for each in reproduce.every()}
    seconds = {name: about for name, about in seconds.items() if models[name] > 2}
    return sorted(seconds, key=lambda name: seconds[name])[:2]


@pytest.mark.deep
@pytest.mark.parametrize("name", shortest())
def test_the_shortest_are_the_same_whoever_computes_and_however_often_cut(tmp_path, name):
    """One process; two; and one that is interrupted twice: the same tables."""

    def command(folder, *more):
        return [sys.executable, "-m", "verify", "reproduce", name, "--out", str(tmp_path / folder), *more]

    for folder, more in (("one", ()), ("two", ("--workers", "2"))):
        assert subprocess.run(command(folder, *more), cwd=ROOT, capture_output=True).returncode == 0
    for _ in range(2):
        place = tmp_path / "cut" / f"{name}-laptop"
        before = len(list(place.glob("*.safetensors")))
        with subprocess.Popen(command("cut"), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            while len(list(place.glob("*.safetensors"))) <= before and process.poll() is None:
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
        assert process.returncode == 130 and b"models kept in" in said
    assert subprocess.run(command("cut"), cwd=ROOT, capture_output=True).returncode == 0
    folders = [tmp_path / folder / f"{name}-laptop" for folder in ("one", "two", "cut")]
    for file in (*TABLES, "figure.svg"):
        assert len({(folder / file).read_bytes() for folder in folders}) == 1, file
