"""Nothing is lost: every experiment that is cut goes on to the same tables; full disks and Ctrl-C."""

import errno
import os
import signal
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest
from command import run

from constructions import training
from verify.commands import reproduce
from verify.frame.certificate import Verdict
from verify.frame.experiment import DecidedModel, Experiment, GridSize, Result
from verify.tasks.recurrent import experiments as recurrent

ROOT = Path(__file__).parents[2]
TABLES = ("table.json", "table.md", "table.csv")
QUICK = (("rnn", 0), ("lstm", 0), ("rnn", 1))


@pytest.fixture
def trained_for_a_moment(monkeypatch):
    """Every model is trained for five steps, whatever its recipe."""
    train = training.train

    def shorter(module, loss, recipe, seed, **more):
        return train(module, loss, replace(recipe, steps=min(recipe.steps, 5)), seed, **more)

    monkeypatch.setattr(training, "train", shorter)


def tables(place):
    return {path.name: path.read_bytes() for path in place.iterdir() if path.stem in ("table", "summary", "figure")}


@pytest.mark.deep
@pytest.mark.parametrize("name", [experiment.id for experiment in reproduce.every()])
def test_every_experiment_goes_on_to_the_same_tables(tmp_path, capsys, monkeypatch, trained_for_a_moment, name):
    """Two of its models: cut after the first one, then resumed; and both at once."""
    (experiment,) = [each for each in reproduce.every() if each.id == name]
    of_two = replace(experiment, trials=lambda grid, seeds: experiment.trials(grid, seeds)[:2])
    monkeypatch.setattr(reproduce, "every", lambda: [of_two])
    trial_run, calls = reproduce.trial_run, []

    def cut(trial):
        calls.append(trial.name)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
        return trial_run(trial)

    monkeypatch.setattr(reproduce, "trial_run", cut)
    argv = ("reproduce", name, "--seeds", "2", "--format", "csv", "--out")
    code, out, err = run(capsys, *argv, str(tmp_path / "cut"))
    assert (code, out) == (130, "") and "1 of 2 models kept in" in err and "Traceback" not in err
    assert tables(tmp_path / "cut" / f"{name}-laptop") == {}
    code, resumed, _ = run(capsys, *argv, str(tmp_path / "cut"), "--resume")
    assert code == 0 and len(calls) == 3 and calls[1] == calls[2] != calls[0], "the first one is not trained again"
    assert run(capsys, *argv, str(tmp_path / "whole"))[:2] == (0, resumed)
    found = [tables(tmp_path / folder / f"{name}-laptop") for folder in ("cut", "whole")]
    assert found[0] == found[1] and set(TABLES) < set(found[0])


@dataclass(frozen=True)
class PlainTrial:
    """A model that costs nothing."""

    seed: int

    @property
    def name(self):
        return f"plain_s{self.seed}"

    @property
    def described(self):
        return {"seed": self.seed}

    @property
    def settings(self):
        return {"seed": self.seed}

    def run(self):
        half = Fraction(1, self.seed + 2)
        result = Result(self.settings, (1, 2), Verdict.REFUTED, {"all": (half, half)}, {"input": [self.seed]})
        return DecidedModel(result, bytes([self.seed]) * 8, {"steps": 1})


def plain(models=3):
    of = {grid: 1.0 for grid in GridSize}
    recipes = {grid: "none" for grid in GridSize}
    trials = [PlainTrial(seed) for seed in range(models)]
    return Experiment("X", "none", "?", "", "", {"all": "all"}, recipes, of, lambda grid, seeds: trials)


def quick(monkeypatch):
    """C-Table-A1, of its three quickest networks."""
    trials = [recurrent.CounterTrial(GridSize.LAPTOP, kind, 8, 0.5, seed) for kind, seed in QUICK]
    monkeypatch.setattr(recurrent, "trials", lambda grid, seeds: trials)
    return "C-Table-A1"


def command(capsys, folder, *more, name="X"):
    return run(capsys, "reproduce", name, "--format", "csv", "--out", str(folder), *more)


@pytest.mark.parametrize("whole", range(3))
def test_an_interruption_says_what_is_kept_and_loses_nothing(tmp_path, capsys, monkeypatch, whole):
    monkeypatch.setattr(reproduce, "every", lambda: [plain()])
    due = command(capsys, tmp_path / "whole")
    trial_run, trained = reproduce.trial_run, []

    def cut(trial):
        trained.append(trial.seed)
        if len(trained) == whole + 1:
            raise KeyboardInterrupt
        return trial_run(trial)

    monkeypatch.setattr(reproduce, "trial_run", cut)
    code, out, err = command(capsys, tmp_path / "cut")
    assert (code, out) == (130, "") and f"{whole} of 3 models kept in" in err.splitlines()[-1]
    assert command(capsys, tmp_path / "cut", "--resume")[:2] == due[:2] and trained[whole + 1 :] == list(
        range(whole, 3)
    )


WRITES = 3 * 2 + len(TABLES)  # weights and record of each model, then the tables


@pytest.mark.parametrize("full_at", range(1, WRITES + 1))
def test_a_disk_that_is_full_at_any_write_is_one_line_and_loses_nothing(tmp_path, capsys, monkeypatch, full_at):
    monkeypatch.setattr(reproduce, "every", lambda: [plain()])
    goes_on_after_a_full_disk(tmp_path, capsys, monkeypatch, full_at, "X")


@pytest.mark.deep
def test_a_full_disk_loses_no_network_of_document_c(tmp_path, capsys, monkeypatch, trained_for_a_moment):
    goes_on_after_a_full_disk(tmp_path, capsys, monkeypatch, 4, quick(monkeypatch))


def goes_on_after_a_full_disk(tmp_path, capsys, monkeypatch, full_at, name):
    """The disk takes half of the write of that number: one line, no half file, and a resumed run to the same tables."""
    due = command(capsys, tmp_path / "whole", name=name)
    write, written, trained, trial_run = Path.write_bytes, [], [], reproduce.trial_run

    def until_full(path, data):
        written.append(path)
        if len(written) == full_at:
            write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    def noted(trial):
        trained.append(trial.name)
        return trial_run(trial)

    monkeypatch.setattr(reproduce, "trial_run", noted)
    monkeypatch.setattr(Path, "write_bytes", until_full)
    code, out, err = command(capsys, tmp_path / "cut", name=name)
    assert (code, out) == (2, "") and "No space left on device" in err and "Traceback" not in err
    assert [line for line in err.splitlines() if "No space" in line] == err.splitlines()[-1:]
    kept = list((tmp_path / "cut" / f"{name}-laptop").iterdir())
    assert [path for path in kept if path.name.endswith(".tmp")] == [], "half a file is not left"
    whole = (full_at - 1) // 2  # models whose two files are there
    before = len(trained)
    assert command(capsys, tmp_path / "cut", "--resume", name=name)[:2] == due[:2]
    assert len(set(trained)) == 3 and len(trained) - before == 3 - min(whole, 3)
    assert len({str(sorted(tables(tmp_path / at / f"{name}-laptop").items())) for at in ("cut", "whole")}) == 1


@pytest.mark.deep
def test_workers_and_a_scheduler_find_the_same_tables(tmp_path, capsys, monkeypatch):
    """One process, two of this machine, and the two workers of a dask scheduler, on C's three quickest networks."""
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    argv = ("reproduce", quick(monkeypatch), "--format", "csv", "--out")
    found = [run(capsys, *argv, str(tmp_path / "1")), run(capsys, *argv, str(tmp_path / "2"), "--workers", "2")]
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options, host="127.0.0.1") as cluster:
        found.append(run(capsys, *argv, str(tmp_path / "3"), "--scheduler", cluster.scheduler_address))
    assert {code for code, *_ in found} == {0} and len({out for _, out, _ in found}) == 1
    places = [tmp_path / folder / "C-Table-A1-laptop" for folder in "123"]
    assert len({str(sorted(tables(place).items())) for place in places}) == 1
    weights = [{path.name: path.read_bytes() for path in place.glob("*.safetensors")} for place in places]
    assert weights[0] == weights[1] == weights[2] and len(weights[0]) == 3
