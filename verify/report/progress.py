"""A progress bar for what takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from verify.report.console import screen

SHOW_PROGRESS_AFTER = 2.0


class Advance(Protocol):
    """Reports the finished share, between 0 and 1, and optionally what is being done."""

    def __call__(self, share: float, doing: str = ...) -> None: ...


@contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Advance]:
    """Yields a callback for the finished share; the bar appears on a terminal's stderr after two seconds."""
    if quiet or not sys.stderr.isatty():
        yield lambda share, doing=what: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = screen(is_error=True)
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=1.0)
    is_shown = False

    def advance(share: float, doing: str = what) -> None:
        nonlocal is_shown
        if not console.is_terminal or time.perf_counter() - started < SHOW_PROGRESS_AFTER:
            return
        if not is_shown:
            bar.start()
            is_shown = True
        bar.update(task, completed=share, description=doing)

    try:
        yield advance
    finally:
        if is_shown:
            bar.stop()
