"""What the command does to its own process: closed streams, signals to end, and output that cannot be written."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from verify.commands.interruption import leave

RETRY_SECONDS = 0.05  # after which a Ctrl-C that a callback dropped comes again
TRIM, MMAP = (-1, 1 << 26), (-3, 1 << 25)  # glibc's mallopt: bytes kept when freed, and what is mapped by itself beyond


def keep_freed_memory() -> None:
    """Lets glibc keep what arrays free, up to 64 MiB: else the kernel clears the pages of each new array once more.

    Arrays beyond 32 MiB are mapped by themselves. That is the largest size that glibc comes to by itself; with 4 MiB,
    batches of tensors were mapped anew each time, and enumeration took 2.7 times as long.
    Nothing is done where the library has no `mallopt`. No number depends on it.
    """
    if os.name == "posix" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        for parameter, size in (TRIM, MMAP):
            library.mallopt(parameter, size)


def one_thread_of_numpy() -> None:
    """Has numpy's products computed by one thread, unless the user says otherwise: OpenBLAS's others wait busily.

    They take five times the CPU seconds of small products. Sums are then added up in one order, whatever the number of
    cores. It is heard only before numpy is loaded.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class Interrupts:
    """Whether Ctrl-C was pressed or the command asked to end, whatever became of the KeyboardInterrupt."""

    happened = False


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Raises KeyboardInterrupt at Ctrl-C and SIGTERM, again where a callback drops it; leaves at once as modules load.

    After it, both are ignored: what is left is to end with the exit code of a verdict that has been printed.
    """
    state = Interrupts()
    ignored = (signal.SIG_IGN, None)  # as Ctrl-C is in the background
    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) not in ignored]

    def on_signal(number: int, frame: FrameType | None) -> None:
        state.happened = True
        if is_importing(frame):
            leave(number, frame)
        raise KeyboardInterrupt

    def on_dropped(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        else:
            sys.__unraisablehook__(dropped)

    for number in (*heard, signal.SIGALRM):
        signal.signal(number, on_signal)
    sys.unraisablehook = on_dropped
    try:
        yield state
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in heard:
            signal.signal(number, signal.SIG_IGN)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded under this frame."""
    while frame is not None:
        if frame.f_globals.get("__name__") in ("importlib._bootstrap", "_frozen_importlib"):
            return True
        frame = frame.f_back
    return False


def open_missing_streams() -> None:
    """Gives the null device to the closed ones of the descriptors 0, 1 and 2, else a file would get their number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def abandon_unwritten() -> None:
    """Sends what a stream still holds and cannot write to the null device: else Python complains at its end."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
