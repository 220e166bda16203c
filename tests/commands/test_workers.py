"""Sweeps by several processes or a scheduler say what one process says, and end with the process that started them."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from command import run

from verify.commands import workers

ROOT = Path(__file__).parents[2]
FRONTIER = ("frontier", "histogram", "--model", "bos+sftm", "--T", "4,5,6", "--L", "3")
SWEEP = ("precision", "histogram", "--model", "dot", "--T", "4", "--L", "3", "--sweep", "d=3:4", "--bits", "4,8,24")


def as_json(capsys, *argv):
    code, out, _ = run(capsys, *argv, "--json")
    return code, json.loads(out)


@pytest.mark.parametrize(
    "argv",
    [
        (*SWEEP, "--workers", "0"),
        ("bounds", "--T", "4", "--L", "3", "--workers", "65"),
        (*FRONTIER, "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"),
        ("precision", "histogram", "--model", "dot", "--T", "4", "--L", "3", "--workers", "2"),
    ],
)
def test_workers_that_make_no_sense(capsys, argv):
    code, out, err = run(capsys, *argv)
    assert code == 2 and not out and "workers" in err and err.count("\n") == 1


def start(*argv):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.Popen(
        [sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


@pytest.mark.deep
def test_a_request_to_end_ends_the_workers_and_keeps_what_is_there(tmp_path):
    place = tmp_path / "found"
    argv = ["-m", "verify", *FRONTIER, "--save", str(place), "--steps", "20000"]
    running = start(*argv, "--workers", "2")
    until = time.monotonic() + 120
    while not list(place.glob("*.safetensors")) and running.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode in (0, 130), err
    assert "semaphore" not in err and "Traceback" not in err and len(err.strip().splitlines()) <= 3
    kept = {path.name: path.stat().st_mtime_ns for path in place.glob("*.safetensors")}
    assert kept
    again = start(*argv, "--json")
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0 and len(json.loads(out)) == 3 and "kept, PROVED again" in err
    assert kept == {name: (place / name).stat().st_mtime_ns for name in kept}


# ---- a scheduler


def test_a_scheduler_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr("verify.commands.workers.SECONDS_TO_ANSWER", 1)
    code, out, err = run(capsys, *FRONTIER, "--scheduler", "tcp://127.0.0.1:9")
    assert code == 2 and not out and "scheduler" in err and err.count("\n") == 1


@pytest.fixture
def scheduler():
    """The address of a local scheduler with two workers of one thread each, and their process ids."""
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options, host="127.0.0.1") as cluster:
        yield cluster


@pytest.mark.deep
def test_a_scheduler_with_two_workers_writes_the_same_files(capsys, tmp_path, scheduler):
    alone, spread = (tmp_path / name for name in ("alone", "spread"))
    first = run(capsys, *FRONTIER, "--json", "--save", str(alone))
    second = run(capsys, *FRONTIER, "--json", "--save", str(spread), "--scheduler", scheduler.scheduler_address)
    assert first[:2] == second[:2] and first[0] == 0
    names = sorted(path.name for path in alone.iterdir())
    assert names == sorted(path.name for path in spread.iterdir()) and len(names) == 7
    for name in names:
        if name.endswith(".safetensors"):
            assert (alone / name).read_bytes() == (spread / name).read_bytes()
    assert as_json(capsys, *SWEEP) == as_json(capsys, *SWEEP, "--scheduler", scheduler.scheduler_address)


@pytest.mark.deep
def test_a_worker_of_a_scheduler_that_is_killed_loses_nothing(tmp_path, scheduler):
    argv = ["-m", "verify", *FRONTIER, "--save", str(tmp_path), "--json"]
    running = start(*argv, "--scheduler", scheduler.scheduler_address)
    time.sleep(3)
    first = next(iter(scheduler.workers.values()))
    os.kill(first.pid, signal.SIGKILL)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert len(json.loads(out)) == 3 and len(list(tmp_path.glob("*.safetensors"))) == 3


class Unreadable(int):
    """A number that can be sent and not be read again."""

    def __new__(cls, number, word):
        return super().__new__(cls, number)


def unreadable(job):
    return Unreadable(job, "")


@pytest.mark.deep
def test_a_result_that_cannot_be_read_is_a_bug_of_ours_and_no_killed_worker():
    with pytest.raises(BrokenProcessPool):
        list(workers.results(unreadable, [1, 2], workers.Workers(2)))
