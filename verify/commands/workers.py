"""Independent jobs in this process or in several: results as soon as they are there, and how long the rest may take."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

from constructions.errors import BadInput
from verify.commands.options import check_least
from verify.commands.process import keep_freed_memory
from verify.commands.resumed import KeptResults
from verify.commands.vocabulary import options

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from verify.frame.clock import Deadline
    from verify.frame.decide import Effort

MOST = 64
SECONDS_TO_ANSWER = 10
SECONDS_WITHOUT = 30  # workers, before it is said
SECONDS_TO_LOOK = 1  # between two looks at whether there are any
AGAIN = "What a folder keeps (--save, --resume) stays, and the same command goes on from there."
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
    loads: tuple[
        str, ...
    ] = ()  # modules that all jobs need and that take long to load: done once, before processes split

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
    effort: Effort,
    function: Callable[[Timed], Result],
    jobs: Sequence[Timed],
    workers: Workers,
    kept: KeptResults[Timed, Result] | None = None,
) -> Iterator[tuple[Timed, Result]]:
    """Each job that begins before the seconds are over, with what the function returns for it.

    One process shares what is left among the jobs that are; of several each job has a part. Steps are those of each.
    """
    if effort.limit.steps:
        yield from results(function, jobs, workers, kept, says_left=False)
        return
    until = effort.end()
    if workers.is_alone(len(jobs)):
        shares = effort.shares(len(jobs))

        def timed(job: Timed) -> Result:
            return function(replace(job, seconds=next(shares).seconds))

        yield from results(timed, jobs, workers, kept, says_left=False, until=until)
    else:
        part = effort.seconds * min(1.0, workers.number / len(jobs))
        parts = [replace(job, seconds=part) for job in jobs]
        yield from results(function, parts, workers, kept, says_left=False, until=until)


def results(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: Workers,
    kept: KeptResults[Job, Result] | None = None,
    *,
    says_left: bool = True,
    until: Deadline | None = None,
) -> Iterator[tuple[Job, Result]]:
    """Each job with what the function returns for it: in order from one process, as they end from several.

    What is kept comes first, and the rest is kept as it ends.
    Jobs that have not begun at the deadline are left out.
    Where a process is ended from outside, the jobs that it takes with it are given to half as many.
    Raises: BadInput where the last process is ended, or a scheduler does not answer, goes away, or loses a job.
    """
    left = []
    for job in jobs:
        found = [] if kept is None else kept.read(job)
        if found:
            yield job, found[0]
        else:
            left.append(job)
    started = time.perf_counter()
    is_alone = workers.is_alone(len(left))
    ways = _alone(function, left, until) if is_alone else _by_several(function, left, workers, until)
    try:
        for done, (job, result) in enumerate(ways, 1):
            if kept is not None:
                kept.write(job, result)
            yield job, result
            _say_left(done, len(left) if says_left else 0, started)
    except KeyboardInterrupt:
        there = 0 if kept is None else sum(kept.place(job).exists() for job in jobs)
        if kept is None or not there:
            raise
        said = f"{there} of {len(jobs)} parts kept in {kept.folder}; the same command goes on"
        raise KeyboardInterrupt(said) from None


def in_order(jobs: Sequence[Job], found: Iterable[tuple[Job, Result]]) -> Iterator[Result]:
    """The results in the order of their jobs, each as soon as those before it are there.

    >>> list(in_order("abc", [("b", 2), ("a", 1), ("c", 3)]))
    [1, 2, 3]
    """
    there: dict[Job, Result] = {}
    said = 0
    for job, result in found:
        there[job] = result
        while said < len(jobs) and jobs[said] in there:
            yield there[jobs[said]]
            said += 1


def _alone(
    function: Callable[[Job], Result], jobs: Sequence[Job], until: Deadline | None
) -> Iterator[tuple[Job, Result]]:
    for job in jobs:
        if until is not None and until.is_up():
            return
        yield job, function(job)


def _by_several(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: Workers, until: Deadline | None
) -> Iterator[tuple[Job, Result]]:
    left, number = list(jobs), min(workers.number, len(jobs))
    while left and not (until is not None and until.is_up()):
        with _ended_as_interrupted(), _pool(workers, number) as pool:
            for job, result in pool.ran(function, left, until):
                left.remove(job)
                yield job, result
        if left and not (until is not None and until.is_up()):  # a process was ended from outside
            if number == 1:
                advice = f"perhaps for memory, and one alone, too. Use fewer. {AGAIN}"
                raise BadInput(f"--workers {workers.number}: one was ended from outside, {advice}")
            number //= 2
            told = f"one of the workers was ended from outside, perhaps for memory; {number} go on with what is left"
            print(told, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Pool:
    """Processes that run jobs, and what is looked at while none of them ends one."""

    executor: Executor
    look: Callable[[], None] = lambda: None

    def ran(
        self, function: Callable[[Job], Result], jobs: Iterable[Job], until: Deadline | None = None
    ) -> Iterator[tuple[Job, Result]]:
        """Each job with its result, as they end; it ends before the last one where a process is ended from outside.

        Jobs that have not begun at the deadline are left out.
        """
        from concurrent.futures import FIRST_COMPLETED, wait
        from concurrent.futures.process import BrokenProcessPool

        try:
            running = {self.executor.submit(function, job): job for job in jobs}
            left = set(running)
            while left:
                ended, left = wait(left, SECONDS_TO_LOOK, FIRST_COMPLETED)
                if not ended:
                    self.look()
                if until is not None and until.is_up():
                    left = {future for future in left if not future.cancel()}
                for future in sorted(ended, key=_is_lost):  # what is there is not lost with the others
                    yield running[future], future.result()
        except BrokenProcessPool as error:
            if error.__cause__ is not None:  # what a worker sent could not be read, which is a bug of ours
                raise


def _is_lost(future: Future[Result]) -> bool:
    return future.cancelled() or future.exception() is not None


def _pool(workers: Workers, number: int) -> AbstractContextManager[Pool]:
    return _cluster(workers.scheduler) if workers.scheduler else _here(number, *workers.loads)


@contextmanager
def _here(number: int, *loads: str) -> Iterator[Pool]:
    """Processes of one thread each, which end with this one."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_all_start_methods, get_context

    is_shared = loads and "forkserver" in get_all_start_methods()
    context = get_context("forkserver" if is_shared else "spawn")
    if is_shared:
        context.set_forkserver_preload(list(loads))
    processes = ProcessPoolExecutor(number, context, initializer=_start)
    try:
        yield Pool(processes)
    except BaseException:
        for child in active_children():  # which would go on with their jobs
            child.terminate()
        raise
    finally:
        processes.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _cluster(address: str) -> Iterator[Pool]:
    """The workers of a scheduler."""
    from concurrent.futures import CancelledError

    try:
        distributed = import_module("distributed")
    except ImportError:
        raise BadInput(f"--scheduler {address}: needs dask.distributed. Install weightproof[cluster].") from None
    with _unlogged():
        client = _client(distributed, address)
        executor = client.get_executor(pure=False)
        try:
            yield Pool(executor, Drought(client).look)
        except distributed.KilledWorker:
            raise BadInput(
                f"--scheduler {address}: a job ended several workers. Give them more memory. {AGAIN}"
            ) from None
        except (CancelledError, distributed.comm.CommClosedError):
            raise BadInput(f"--scheduler {address}: went away before all was done. Start it again. {AGAIN}") from None
        finally:
            executor.shutdown(wait=False)
            client.close(timeout=SECONDS_TO_ANSWER)


class Client(Protocol):
    """What is asked of a client of dask's."""

    def scheduler_info(self, n_workers: int) -> Mapping[str, Mapping[str, Mapping[str, int]]]: ...

    def get_executor(self, pure: bool) -> Executor: ...

    def close(self, timeout: float) -> None: ...


@dataclass
class Drought:
    """Says it once where a scheduler is without workers for a while; they may come back, so that nothing ends."""

    client: Client
    began: float | None = None
    is_said: bool = False

    def look(self) -> None:
        """Looks at the workers that are there."""
        if _threads(self.client):
            self.began, self.is_said = None, False
        elif self.began is None:
            self.began = time.monotonic()
        elif not self.is_said and time.monotonic() - self.began >= SECONDS_WITHOUT:
            self.is_said = True
            print(f"no worker for {SECONDS_WITHOUT} s; waiting for one", file=sys.stderr, flush=True)


def _client(distributed: ModuleType, address: str) -> Client:
    """Raises: BadInput where no scheduler answers, or its workers have more than one thread."""
    try:
        client: Client = distributed.Client(address, timeout=SECONDS_TO_ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        start = "Start `dask scheduler`, and name the address that it prints."
        raise BadInput(f"--scheduler {address}: no scheduler answers ({type(error).__name__}). {start}") from None
    until = time.monotonic() + SECONDS_WITHOUT  # those of a cluster's queue come later
    while not (threads := _threads(client)) and time.monotonic() < until:
        time.sleep(SECONDS_TO_LOOK)
    if not threads or max(threads) > 1:
        client.close(timeout=SECONDS_TO_ANSWER)
        found = f"no workers for {SECONDS_WITHOUT} s" if not threads else f"a worker of {max(threads)} threads"
        start = f"Start them with `dask worker {address} --nthreads 1`, one for each core."
        raise BadInput(f"--scheduler {address}: has {found}. {start}")
    return client


def _threads(client: Client) -> list[int]:
    """How many threads each worker of the scheduler has."""
    return [worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]


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

    keep_freed_memory()
    os.environ["OMP_NUM_THREADS"] = "1"  # of torch where a job loads it, which takes longer than many a job
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)
    parent = parent_process()
    if parent is not None:

        def leave() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=leave, daemon=True).start()
