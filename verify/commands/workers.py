"""Independent jobs in this process or in several: results as soon as they are there, and how long the rest may take."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from constructions.errors import BadInput
from verify.commands.options import check_least

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

MOST = 64
LONG = 2.0  # seconds, from which on what is left is said

Job = TypeVar("Job")
Result = TypeVar("Result")


def add_argument(parser: argparse.ArgumentParser) -> None:
    """--workers."""
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes; each takes seconds to start (default: 1)"
    )


def check(args: argparse.Namespace) -> None:
    """Raises: BadInput for a number of processes that makes no sense."""
    check_least(args, 1, "workers")
    if args.workers > MOST:
        raise BadInput(f"--workers {args.workers}: at most {MOST}. Choose fewer.")


def results(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Each job with what the function returns for it: in order from one process, as they end from several."""
    started = time.perf_counter()
    if min(workers, len(jobs)) <= 1:
        for number, job in enumerate(jobs, 1):
            yield job, function(job)
            _say_left(number, len(jobs), started)
        return
    from concurrent.futures import as_completed

    with pool(min(workers, len(jobs)), workers) as processes:
        running = {processes.submit(function, job): job for job in jobs}
        for number, future in enumerate(as_completed(running), 1):
            yield running[future], future.result()
            _say_left(number, len(jobs), started)


@contextmanager
def pool(number: int, asked: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each, which end with this one.

    Raises: BadInput where one of them is ended from outside.
    """
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    processes = ProcessPoolExecutor(number, get_context("spawn"), initializer=_start)
    try:
        yield processes
    except BrokenProcessPool:
        raise BadInput(f"--workers {asked}: one was ended from outside, perhaps for memory. Use fewer.") from None
    finally:
        processes.shutdown(wait=True, cancel_futures=True)


def _say_left(done: int, of: int, started: float) -> None:
    passed = time.perf_counter() - started
    if done < of and passed > LONG:
        from verify.decide import readable_time  # loads numpy

        left = readable_time(passed / done * (of - done))
        print(f"{done} of {of} done, about {left} left", file=sys.stderr, flush=True)


def _start() -> None:
    """Gives a worker one thread, as workers share the cores, and ends it with the process that started it."""
    import threading
    from multiprocessing import parent_process

    import torch

    torch.set_num_threads(1)
    parent = parent_process()
    if parent is not None:

        def leave() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=leave, daemon=True).start()
