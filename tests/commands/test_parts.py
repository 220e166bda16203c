"""Commands made of parts: the same JSON by any workers and by a scheduler, whatever is killed meanwhile."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from command import run
from models.selection import first

from constructions.errors import BadInput
from verify.claims.running import CommandRun
from verify.commands import batch, workers
from verify.commands.resumed import KeptResults
from verify.tasks.histogram.bounds import command as bounds
from verify.tasks.histogram.bounds.command import BoundsJob
from verify.tasks.inductive import table
from verify.tasks.recurrent import experiments as recurrent

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
PARTS = {  # every kind of job that is made of parts
    "bounds": "bounds --T 4,5 --L 3,4",
    "coherence": "bounds --T 4,5 --L 3 --coherence",
    "sweep": "precision histogram --model dot --T 4 --L 3 --sweep d=3:4 --bits 4,24",
    "batch": f"batch {DATA}/trained_bos_T4_L3_d4_p8.safetensors {DATA}/frontier/bos+sftm_T16_L5_d3.safetensors "
    f"{DATA}/mistyped.txt {DATA}/frontier/bos+sftm_T16_L10_d3.safetensors --effort 20",
    "claims": "claims --run W-7 W-5",
    "table": "inductive --table",
    "frontier": "frontier histogram --model bos+sftm --T 4,5 --L 3 --steps 20",
    "regime": "bounds --T 6 --L 3,4 --regime",
    "gaussian": "bounds --T 6,8 --L 3 --gaussian 10",
    "reproduce": "reproduce C-Table-A1",
    "module": f"module {DATA}/largest_of_six.py --budget 600",
}
ONE_FILE = ("frontier", "module")  # where all parts are kept in one
KEPT = {"frontier": "--save", "reproduce": "--out"}  # where parts are kept; elsewhere --resume


@pytest.fixture(autouse=True)
def of_few_parts(monkeypatch):
    """Four proofs of document C's table, and three networks of its last one, of a moment."""
    few = [table.reported()[at] for at in (0, 30, 60, 100)]
    monkeypatch.setattr(table, "reported", lambda: few)
    trials = [recurrent.CounterTrial(recurrent.GridSize.LAPTOP, kind, 8, 0.5, seed) for kind, seed in
              (("rnn", 0), ("lstm", 0), ("rnn", 1))]  # fmt: skip
    monkeypatch.setattr(recurrent, "trials", lambda grid, seeds: trials)


def said(capsys, name, *more):
    """Exit code and JSON, but seconds."""
    code, out, err = run(capsys, *PARTS[name].split(), *more, "--json")
    return code, timeless(json.loads(out), name) if out else err


def timeless(found, name=""):
    if name == "module":  # examples of many wrong inputs, and who decided, are others by one process
        return {key: found[key] for key in ("verdict", "counts", "inputs_covered")}
    if isinstance(found, dict):
        return {key: timeless(value) for key, value in found.items() if key != "seconds"}
    return [timeless(each) for each in found] if isinstance(found, list) else found


class Elsewhere(Executor):
    """Runs jobs as another process would: what goes there and comes back is copied, and the last ends first."""

    def __init__(self):
        self.waiting = []

    def submit(self, function, job):
        self.waiting.append((future := Future(), pickle.dumps((function, job))))
        return future

    def run_one(self, of=None, *more):
        future, sent = self.waiting.pop()
        function, job = pickle.loads(sent)
        try:
            future.set_result(pickle.loads(pickle.dumps(function(job))))
        except Exception as error:
            future.set_exception(pickle.loads(pickle.dumps(error)))
        return {future}, set(of) - {future}


@pytest.fixture
def elsewhere(monkeypatch):
    """Several workers, without the seconds in which processes start: those that were started."""
    started = []

    @contextmanager
    def here(number):
        started.append(executor := Elsewhere())
        monkeypatch.setattr("concurrent.futures.wait", executor.run_one)
        yield workers.Pool(executor)

    monkeypatch.setattr(workers, "_here", here)
    return started


def ended_as_promised(claim, command):
    return CommandRun(claim, command, claim.promise_of(command), 0.0, "as promised")


@pytest.mark.parametrize("name", first(6, [name for name in PARTS if name not in ("reproduce", "module")]))
def test_jobs_that_end_in_another_order_elsewhere_say_the_same(capsys, elsewhere, tmp_path, name, monkeypatch):
    """Kept or not; the second time all is read."""
    monkeypatch.setattr("verify.claims.running.run", ended_as_promised)  # starts no process
    alone = said(capsys, name)
    assert isinstance(alone[1], list | dict)
    assert said(capsys, name, "--workers", "2") == alone and len(elsewhere) == 1
    if name != "frontier":
        kept = ("--resume", str(tmp_path / "kept"), "--workers", "2")
        assert said(capsys, name, *kept) == alone and list((tmp_path / "kept").iterdir())
        places = sorted(path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir())
        assert said(capsys, name, *kept) == alone
        assert places == sorted(path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir())


@pytest.mark.deep
@pytest.mark.parametrize("name", PARTS)
def test_processes_and_a_scheduler_say_the_same(capsys, tmp_path, name):
    """One process, two, eight, and the two workers of a scheduler."""
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    found = [said(capsys, name, *to(name, tmp_path / number), "--workers", number) for number in ("1", "2", "8")]
    with distributed.LocalCluster(**options, host="127.0.0.1") as cluster:
        found.append(said(capsys, name, *to(name, tmp_path / "there"), "--scheduler", cluster.scheduler_address))
    assert found[0] == found[1] == found[2] == found[3] and isinstance(found[0][1], list | dict)


def to(name, place):
    """Where a command that always keeps its parts keeps them."""
    return ("--out", str(place)) if name == "reproduce" else ()


# ---- what is killed

KILLED = ("bounds", "sweep", "batch", "claims", "table", "frontier", "reproduce", "module")


@dataclass(frozen=True)
class Killing:
    """Runs jobs, and kills a process: with `target` 0 its own. Once, or each time but the first."""

    function: Callable[[object], object]
    place: str
    target: int = 0
    is_once: bool = False

    def __call__(self, job):
        begun, ended = Path(self.place), Path(f"{self.place}-ended")
        is_first = True
        try:
            begun.touch(exist_ok=False)
        except FileExistsError:
            is_first = False
        if is_first != self.is_once:
            result = self.function(job)
            ended.touch()
            return result
        while not (self.is_once or ended.exists()):
            time.sleep(0.1)
        time.sleep(1)  # what ended before is kept
        with suppress(ProcessLookupError):
            os.kill(self.target or os.getpid(), signal.SIGKILL)
        return self.function(job)


@pytest.fixture
def killing(monkeypatch, tmp_path):
    """Has the jobs of several workers kill."""
    several = workers._by_several

    def begin(target=0, *, is_once=False):
        kill = partial(Killing, place=str(tmp_path / "begun"), target=target, is_once=is_once)
        monkeypatch.setattr(workers, "_by_several", lambda function, *more: several(kill(function), *more))

    return begin


@pytest.mark.deep
@pytest.mark.parametrize("name", KILLED)
def test_a_killed_process_loses_nothing(capsys, tmp_path, name, killing):
    alone = said(capsys, name, *to(name, tmp_path / "alone"))
    killing(is_once=True)
    argv = (*PARTS[name].split(), *to(name, tmp_path / "kept"), "--workers", "2", "--json")
    code, out, err = run(capsys, *argv)
    assert (code, timeless(json.loads(out), name)) == alone
    assert [line for line in err.splitlines() if "ended from outside" in line and "1 go on" in line]


@pytest.mark.deep
@pytest.mark.parametrize("name", KILLED)
def test_processes_killed_to_the_last_are_one_line_and_the_same_command_goes_on(capsys, tmp_path, name, killing):
    alone = said(capsys, name, *to(name, tmp_path / "alone"))
    killing()
    goes_on(capsys, tmp_path, name, alone, "ended from outside", "--workers", "2")


def goes_on(capsys, tmp_path, name, alone, reason, *more):
    """The command ends with 2 and one line that says why; it goes on from what was kept to the same JSON."""
    kept = (KEPT.get(name, "--resume"), str(tmp_path / "kept"))
    code, out, err = run(capsys, *PARTS[name].split(), *kept, *more, "--json")
    assert (code, out) == (2, "") and "Traceback" not in err
    assert reason in err.splitlines()[-1] and "the same command goes on" in err.splitlines()[-1]
    files = {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert files and not [path for path in files if path.suffix == ".tmp"]
    assert said(capsys, name, *kept) == alone
    if name not in ONE_FILE:
        assert {path: path.read_bytes() for path in files} == files


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler with one worker, processes of their own: its address, its process and the worker's."""
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    at = tmp_path / "scheduler.json"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}

    def start(what, *argv):
        line = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", at, "--no-dashboard", *argv]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)

    run = [start("scheduler", "--port", "0"), start("worker", "--nthreads", "1", "--no-nanny")]
    until = time.monotonic() + 60
    while not at.exists() and time.monotonic() < until:
        time.sleep(0.1)
    yield json.loads(at.read_text())["address"], *run, partial(start, "worker", "--nthreads", "1", "--no-nanny")
    for process in run:
        process.kill()
        process.wait()


@pytest.mark.deep
@pytest.mark.parametrize("name", KILLED)
def test_a_killed_scheduler_is_one_line_and_the_same_command_goes_on(capsys, tmp_path, name, killing, scheduler):
    alone = said(capsys, name, *to(name, tmp_path / "alone"))
    address, process, *_ = scheduler
    killing(process.pid)
    goes_on(capsys, tmp_path, name, alone, "went away", "--scheduler", address)


@pytest.mark.deep
def test_no_worker_for_a_while_is_said_and_the_next_one_goes_on(capsys, tmp_path, killing, scheduler, monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_WITHOUT", 2)
    alone = said(capsys, "bounds")
    address, _, worker, more = scheduler
    killing(is_once=True)
    started = []

    def told(line, **how):
        if "no worker" in line:
            started.append(more())
        print(line, **how)

    monkeypatch.setattr(workers, "print", told, False)
    code, out, err = run(capsys, *PARTS["bounds"].split(), "--scheduler", address, "--json")
    for process in started:
        process.kill()
        process.wait()
    assert (code, timeless(json.loads(out))) == alone and len(started) == 1
    assert [line for line in err.splitlines() if "left" not in line] == ["no worker for 2 s; waiting for one"]


@pytest.mark.deep
def test_a_scheduler_without_workers_is_one_line(capsys, scheduler, monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_WITHOUT", 2)
    address, _, worker, _ = scheduler
    worker.kill()
    worker.wait()
    code, out, err = run(capsys, *PARTS["bounds"].split(), "--scheduler", address)
    assert (code, out) == (2, "") and err.count("\n") == 1 and "no workers for 2 s" in err


# ---- what is kept


def test_a_line_is_kept_for_these_bytes_and_options_alone(capsys, tmp_path, monkeypatch):
    """Another file under the same name, other options and a damaged line are seen; what is wrong is not kept."""
    model, other = (tmp_path / name for name in ("a.safetensors", "b.safetensors"))
    model.write_bytes((DATA / "trained_bos_T4_L3_d4_p8.safetensors").read_bytes())
    other.write_bytes(b"no weights")
    argv = ["batch", str(model), str(other), "--effort", "20", "--json", "--resume", str(tmp_path / "kept")]
    judged = []
    judge = batch.Job.judge
    monkeypatch.setattr(batch.Job, "judge", lambda job, path: judged.append(Path(path).name) or judge(job, path))
    code, out, _ = run(capsys, *argv)
    (line,) = (tmp_path / "kept").iterdir()
    assert code == 2 and judged == ["a.safetensors", "b.safetensors"]
    assert run(capsys, *argv)[0] == 2 and judged[2:] == ["b.safetensors"]
    run(capsys, *argv, "--precision", "float32")
    assert judged[3:] == ["a.safetensors", "b.safetensors"]
    model.write_bytes((DATA / "frontier/bos+sftm_T16_L5_d3.safetensors").read_bytes())
    assert '"T": 16' in run(capsys, *argv)[1] and judged[5:] == ["a.safetensors", "b.safetensors"]
    model.write_bytes((DATA / "trained_bos_T4_L3_d4_p8.safetensors").read_bytes())
    line.write_text(line.read_text()[:-9])
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and err.count("\n") == 1 and line.name in err and "delete it" in err


@pytest.mark.parametrize("done", [0, 1, 3])
def test_an_interruption_says_what_is_kept(capsys, tmp_path, monkeypatch, done):
    """And the same command goes on from there to the same JSON."""
    alone = said(capsys, "bounds")
    begun = []
    rows = BoundsJob.run

    def cut(job):
        if len(begun) == done:
            raise KeyboardInterrupt
        begun.append(job)
        return rows(job)

    monkeypatch.setattr(BoundsJob, "run", cut)
    kept = ("--resume", str(tmp_path))
    code, out, err = run(capsys, *PARTS["bounds"].split(), *kept)
    assert (code, out) == (130, "") and (f"{done} of 4 parts kept in {tmp_path}; the same" in err) is (done > 0)
    monkeypatch.setattr(BoundsJob, "run", lambda job: begun.append(job) or rows(job))
    assert said(capsys, "bounds", *kept) == alone and len(begun) == len(set(begun)) == 4


@pytest.mark.parametrize(
    "line", ["claims W-7 --resume kept", "precision histogram --model dot --T 4 --L 3 --resume kept"]
)
def test_a_folder_for_nothing_is_one_line(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "") and "--resume" in err and err.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [5, "abc", [1], [[1, 2]]])
def test_what_is_no_table_is_damaged(rows, tmp_path):
    kept = KeptResults.of(str(tmp_path), repr, list, bounds._rows_read)
    job = bounds.BoundsJob("sizes", 3, 4, 0)
    kept.place(job).write_text(json.dumps({"job": repr(job), "result": rows}))
    with pytest.raises(BadInput, match="damaged"):
        kept.read(job)
