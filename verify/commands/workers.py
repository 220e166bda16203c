"""Independent jobs in this process or in several: results as soon as they are there, and how long the rest may take."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from constructions.errors import BadInput
from verify.commands.options import check_least
from verify.commands.vocabulary import options

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from verify.frame.clock import Deadline
    from verify.frame.decide import Effort

MOST = 64
SECONDS_TO_ANSWER = 10
LONG = 2.0  # seconds, from which on what is left is said

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TimedJob:
    """A job that may take so many seconds; None where something else ends it."""

    seconds: float | None


Timed = TypeVar("Timed", bound=TimedJob)


@dataclass(frozen=True)
class Workers:
    """Who runs independent jobs: this process alone, some processes here, or the workers of a dask scheduler."""

    number: int = 1
    scheduler: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Workers:
        """Raises: BadInput for a number of processes that makes no sense, or that is given beside a scheduler."""
        check_least(args, 1, "workers")
        if args.workers > MOST:
            raise BadInput(f"--workers {args.workers}: at most {MOST}. Choose fewer.")
        if args.scheduler is not None and args.workers > 1:
            raise BadInput(f"--workers {args.workers}: the scheduler has workers of its own. Leave one of both out.")
        return cls(args.workers, args.scheduler)

    def is_alone(self, jobs: int) -> bool:
        """Whether this process runs that many jobs itself."""
        return self.scheduler is None and min(self.number, jobs) <= 1

    @property
    def share_codes(self) -> bool:
        """Whether jobs that need the same searched code are better one job: processes keep none for each other."""
        return self.scheduler is not None or self.number > 1


def add_argument(parser: argparse.ArgumentParser) -> None:
    """--workers and --scheduler."""
    options(parser, "workers", "scheduler")


def results_within(
    effort: Effort, function: Callable[[Timed], Result], jobs: Sequence[Timed], workers: Workers
) -> Iterator[tuple[Timed, Result]]:
    """Each job that begins before the seconds are over, with what the function returns for it.

    One process shares what is left among the jobs that are; of several each job has a part. Steps are those of each.
    """
    if effort.limit.steps:
        yield from results(function, jobs, workers, says_left=False)
        return
    until = effort.end()
    if not workers.is_alone(len(jobs)):
        part = effort.seconds * min(1.0, workers.number / len(jobs))
        yield from results(
            function, [replace(job, seconds=part) for job in jobs], workers, says_left=False, until=until
        )
        return
    for job, of in zip(jobs, effort.shares(len(jobs)), strict=True):
        if until.is_up():
            return
        timed = replace(job, seconds=of.seconds)
        yield timed, function(timed)


def results(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: Workers,
    *,
    says_left: bool = True,
    until: Deadline | None = None,
) -> Iterator[tuple[Job, Result]]:
    """Each job with what the function returns for it: in order from one process, as they end from several.

    Jobs that have not begun at the deadline are left out.
    """
    started = time.perf_counter()
    if workers.is_alone(len(jobs)):
        for number, job in enumerate(jobs, 1):
            if until is not None and until.is_up():
                return
            yield job, function(job)
            _say_left(number, len(jobs) if says_left else 0, started)
        return
    from concurrent.futures import as_completed

    with pool(workers, len(jobs)) as processes:
        running = {processes.submit(function, job): job for job in jobs}
        for number, future in enumerate(as_completed(running), 1):
            if until is not None and until.is_up():
                for waiting in running:
                    waiting.cancel()
            if not future.cancelled():
                yield running[future], future.result()
                _say_left(number, len(jobs) if says_left else 0, started)


@contextmanager
def pool(workers: Workers, jobs: int) -> Iterator[Executor]:
    """Processes of one thread each, which end with this one, or the workers of a scheduler.

    Raises: BadInput where one of them is ended from outside, or no scheduler answers.
    """
    with (
        _ended_as_interrupted(),
        _cluster(workers.scheduler) if workers.scheduler else _here(workers, jobs) as executor,
    ):
        yield executor


@contextmanager
def _here(workers: Workers, jobs: int) -> Iterator[Executor]:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    processes = ProcessPoolExecutor(min(workers.number, jobs), get_context("spawn"), initializer=_start)
    try:
        yield processes
    except BrokenProcessPool as error:
        if error.__cause__ is not None:  # what a worker sent could not be read, which is a bug of ours
            raise
        advice = "perhaps for memory. Use fewer; what was saved is kept, and the same command goes on from there."
        raise BadInput(f"--workers {workers.number}: one was ended from outside, {advice}") from None
    except BaseException:
        for child in active_children():  # which would go on with their jobs
            child.terminate()
        raise
    finally:
        processes.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    from concurrent.futures import CancelledError

    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise BadInput(f"--scheduler {address}: needs dask.distributed. Install weightproof[cluster].") from None
    with _unlogged():
        client = _client(distributed, address)
        executor = client.get_executor(pure=False)
        try:
            yield executor
        except distributed.KilledWorker:
            raise BadInput(f"--scheduler {address}: a job ended several workers. Give them more memory.") from None
        except (CancelledError, distributed.comm.CommClosedError):
            advice = "Start it again; what was saved is kept, and the same command goes on from there."
            raise BadInput(f"--scheduler {address}: went away before all was done. {advice}") from None
        finally:
            executor.shutdown(wait=False)
            client.close(timeout=SECONDS_TO_ANSWER)


def _client(distributed: Any, address: str) -> Any:
    """Raises: BadInput where no scheduler answers, or its workers have more than one thread."""
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        start = "Start `dask scheduler`, and name the address that it prints."
        raise BadInput(f"--scheduler {address}: no scheduler answers ({type(error).__name__}). {start}") from None
    threads = [worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    if not threads or max(threads) > 1:
        client.close(timeout=SECONDS_TO_ANSWER)
        found = "no workers" if not threads else f"a worker of {max(threads)} threads"
        start = f"Start them with `dask worker {address} --nthreads 1`, one for each core."
        raise BadInput(f"--scheduler {address}: has {found}. {start}")
    return client


@contextmanager
def _unlogged() -> Iterator[None]:
    """Meanwhile nothing is logged: what libraries would log of a lost connection is told in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """Meanwhile a request to end (SIGTERM) is an interruption like Ctrl-C, so that the workers end with it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_left(done: int, of: int, started: float) -> None:
    passed = time.perf_counter() - started
    if done < of and passed > LONG:
        from verify.frame.decide import readable_time  # loads numpy

        left = readable_time(passed / done * (of - done))
        print(f"{done} of {of} done, about {left} left", file=sys.stderr, flush=True)


def _start() -> None:
    """Gives a worker one thread, as workers share the cores, and ends it with the process that started it."""
    from multiprocessing import parent_process

    import torch

    torch.set_num_threads(1)
    parent = parent_process()
    if parent is not None:

        def leave() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=leave, daemon=True).start()
