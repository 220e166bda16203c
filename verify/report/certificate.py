"""Any task's certificate on a terminal: its facts in a table that folds, and the verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verify.certificate import Certificate, Verdict, decimal
from verify.report.numbers import below
from verify.report.render import STYLES, claim_facts

Fact = tuple[str, str]


def print_report(certificate: Certificate, facts: Iterable[Fact] = (), console: Console | None = None) -> None:
    """The verdict and everything it rests on; `facts` are lines of the task's own."""
    console = console or Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (*_facts(certificate), *facts):
        table.add_row(name, value)
    console.print(table)
    line = Text(str(certificate.verdict.value), style=STYLES[certificate.verdict])
    console.print(line.append(summary(certificate), style="default"))


def summary(certificate: Certificate) -> str:
    """What follows the verdict on the last line."""
    if certificate.verdict is Verdict.PROVED:
        margin = "" if certificate.margin is None else f", margin at least {below(certificate.margin)}"
        return f" on {covered(certificate)}{margin}"
    if certificate.verdict is Verdict.REFUTED:
        return " by the counterexample above"
    return f": {certificate.reason}"


def covered(certificate: Certificate) -> str:
    """How many inputs, in words.

    >>> covered(Certificate(Verdict.PROVED, None, "t", {}, "real", "certified", None))
    'all inputs, infinitely many'
    """
    if certificate.inputs_covered is None:
        return "all inputs, infinitely many"
    return f"all {decimal(certificate.inputs_covered)} inputs"


def _facts(certificate: Certificate) -> Iterator[Fact]:
    yield from claim_facts(certificate)
    yield "task", f"{certificate.task}, " + _pairs(certificate.parameters)
    yield "reading", certificate.reading
    yield "method", certificate.method
    for assumption in certificate.assumptions:
        yield "assumes", assumption
    if "counts" in certificate.extra:
        yield "inputs", _pairs(certificate.extra["counts"])
    if certificate.tightest is not None:
        yield "tightest", _pairs(certificate.tightest)
    if certificate.counterexample is not None:
        yield "counterexample", _pairs(certificate.counterexample)
    if certificate.reason is not None:
        yield "reason", certificate.reason
    yield "time", f"{_duration(certificate.seconds)} to decide, start-up and building not included"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
