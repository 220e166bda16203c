"""Certificates for people: rich text that fits any width, and a progress bar for what takes a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from torch import nn

from verify.certificate import Certificate, Verdict
from verify.claims import CLAIMS

STYLES = {Verdict.PROVED: "bold green", Verdict.REFUTED: "bold red", Verdict.UNKNOWN: "bold yellow"}
SHOW_PROGRESS_AFTER = 2.0


class Advance(Protocol):
    """Reports the finished share, between 0 and 1, and optionally what is being done."""

    def __call__(self, share: float, doing: str = ...) -> None: ...


@contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Advance]:
    """Yields a callback for the finished share; the bar appears on a terminal's stderr after two seconds."""
    console = Console(stderr=True)
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=1.0)
    is_shown = False

    def advance(share: float, doing: str = what) -> None:
        nonlocal is_shown
        if quiet or not console.is_terminal or time.perf_counter() - started < SHOW_PROGRESS_AFTER:
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


def print_certificate(certificate: Certificate, module: nn.Module, console: Console | None = None) -> None:
    """The verdict and everything it rests on."""
    console = console or Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(certificate, module):
        facts.add_row(name, value)
    console.print(facts)
    if certificate.margin_per_count is not None and certificate.verdict is Verdict.PROVED:
        console.print(_margin_table(certificate.margin_per_count))
    line = Text(str(certificate.verdict.value), style=STYLES[certificate.verdict])
    console.print(line.append(_summary(certificate), style="default"))


def _facts(certificate: Certificate, module: nn.Module) -> Iterator[tuple[str, str]]:
    yield from claim_facts(certificate)
    yield "task", f"{certificate.task}, " + ", ".join(f"{k}={v}" for k, v in certificate.parameters.items())
    yield weights_fact(module)
    yield "reading", certificate.reading
    yield "method", certificate.method
    for assumption in certificate.assumptions:
        yield "assumes", assumption
    yield "inputs covered", str(certificate.inputs_covered)
    if certificate.error_share is not None:
        yield "wrong pairs", _share(certificate)
    if certificate.tightest is not None:
        yield "tightest", _tightest(certificate)
    if certificate.counterexample is not None:
        yield "counterexample", _counterexample(certificate)
    if certificate.reason is not None:
        yield "reason", certificate.reason
    yield "time", f"{_duration(certificate.seconds)} to decide, start-up and building not included"


def claim_facts(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """The certificate's claim and its source, where it has one."""
    claim = next((claim for claim in CLAIMS if claim.id == certificate.claim), None)
    if claim is not None:
        yield "claim", f"{claim.id}: {claim.statement}"
        yield "source", claim.source


def weights_fact(module: nn.Module) -> tuple[str, str]:
    """The shapes of a module's weights."""
    shapes = [f"{name} {'x'.join(map(str, p.shape))}" for name, p in module.named_parameters()]
    return "weights", f"{', '.join(shapes)}: {sum(p.numel() for p in module.parameters())} parameters"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _share(certificate: Certificate) -> str:
    assert certificate.error_share is not None
    low, high = certificate.error_share
    if low == high:
        pairs = int(certificate.parameters["T"]) ** int(certificate.parameters["L"]) * int(certificate.parameters["L"])
        return f"exactly {certificate.extra.get('wrong_pairs')} of {pairs} (sequence, position) pairs"
    return f"share between {float(low):.6g} and {float(high):.6g} (budget ended)"


def _tightest(certificate: Certificate) -> str:
    tightest = certificate.tightest
    assert tightest is not None
    return (
        f"{_sequence(tightest['tokens'])} at position {tightest['position']}, count {tightest['expected']}, "
        f"margin {tightest['margin']:.6g}"
    )


def _counterexample(certificate: Certificate) -> str:
    found = certificate.counterexample
    assert found is not None
    verb = "ties with" if found["is_tie"] else "loses to"
    smallest = ", the smallest one" if found["is_smallest"] else ""
    if "order" in found:
        return f"{_sequence(found['tokens'])} at position {found['position']}: {_rounded_failure(found)}"
    answer = f"the module answers {found['module_predicts']}"
    if found["module_predicts"] == found["expected"]:
        answer += ", right only by the rounding of this run"
    return (
        f"{_sequence(found['tokens'])} at position {found['position']}: {found['expected']} {verb} "
        f"{found['predicted']}{smallest}; {answer}"
    )


def _rounded_failure(found: dict[str, Any]) -> str:
    """A failure in the reading "dtype, any order"."""
    verb = "ties with" if found["is_tie"] else "loses to"
    outcome = "a logit is NaN" if found["predicted"] is None else f"{found['expected']} {verb} {found['predicted']}"
    torch_says = "torch has no such kernel"
    if found["module_predicts"] is not None:
        torch_says = f"torch on this machine answers {found['module_predicts']}"
    return f"{outcome} in {found['fails_in']} ({found['order']}); {torch_says}"


def _sequence(tokens: list[int]) -> str:
    """Long runs of one token are written token^n."""
    runs: list[list[int]] = []
    for token in tokens:
        if runs and runs[-1][0] == token:
            runs[-1][1] += 1
        else:
            runs.append([token, 1])
    return " ".join(str(token) if n == 1 else f"{token}^{n}" for token, n in runs)


def _margin_table(margins: tuple[float | None, ...]) -> Table:
    """Certified margin per count as bars; at most twelve counts, always with the smallest margin."""
    known = [(k, m) for k, m in enumerate(margins, 1) if m is not None]
    if len(known) > 12:
        smallest = min(known, key=lambda item: item[1])
        step = len(known) / 11
        known = sorted({known[int(i * step)] for i in range(11)} | {smallest})
    largest = max((m for _, m in known if m != float("inf")), default=1.0)
    table = Table.grid(padding=(0, 2))
    table.add_row("count", "margin", "")
    for k, margin in known:
        share = min(1.0, margin / largest) if largest > 0 else 0.0
        table.add_row(str(k), f"{margin:.6g}", "█" * max(1, round(20 * share)))
    return table


def _summary(certificate: Certificate) -> str:
    if certificate.verdict is Verdict.PROVED:
        return f" on all {certificate.inputs_covered} inputs, margin at least {certificate.margin:.6g}"
    if certificate.verdict is Verdict.REFUTED:
        return " by the counterexample above"
    return f": {certificate.reason}"
