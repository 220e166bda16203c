"""Any task's certificate for people: its facts in two columns that fold, and the verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, prod
from typing import TYPE_CHECKING

from verify.arithmetic.outward import about, below, decimal, value
from verify.frame import registry
from verify.frame.certificate import RUN_AS, Certificate, Verdict
from verify.report.console import folded, screen
from verify.report.meaning import sentence

if TYPE_CHECKING:
    from rich.text import Text
    from torch import nn

    from constructions.model_arrays import ModelArrays

Fact = tuple[str, str]
STYLES = {Verdict.PROVED: "bold green", Verdict.REFUTED: "bold red", Verdict.UNKNOWN: "bold yellow"}
# The order in which facts are read; a task's own, under other names, come where the dots stand.
ORDER = ("claim", "source", "task", "model", "weights", "reading", "method", "assumes", "inputs covered", "inputs",
         "...", "tightest", "counterexample", "reason", "wrote", "time")  # fmt: skip
SHOWN = ("tree", "counts", "accuracy", "wrong_pairs")  # by reports themselves, or not for people
WIDEST_BAR = 44  # columns of a table with bars, which is left out where it would be torn
NARROWEST = 24  # columns that values need beside their names; below, they stand under them


def print_report(
    certificate: Certificate, facts: Iterable[Fact] = (), *, covers: str | None = None, below_facts: str = ""
) -> None:
    """The verdict and everything it rests on.

    `facts` are the task's own lines, and replace the general one of the same name; `covers` is the number of inputs in
    the task's words, and `below_facts` lines that stand as they are above the verdict.
    """
    from rich.text import Text

    console = screen()
    covers = covers or covered(certificate)
    own = list(facts)
    named = {name for name, _ in own}
    rows = [fact for fact in _facts(certificate, covers) if fact[0] not in named] + own
    places = {name: place for place, name in enumerate(ORDER)}
    rows.sort(key=lambda fact: places.get(fact[0], places["..."]))
    for part in folded(sentence(certificate), console.width):
        console.print(part, soft_wrap=True, markup=False)
    for line in _lines(rows, console.width):
        console.print(line, soft_wrap=True)
    if below_facts and console.width >= WIDEST_BAR:
        console.print(below_facts, soft_wrap=True, markup=False, end="")
    head, tail = certificate.verdict.value, summary(certificate, covers)
    first, *rest = folded(head + tail, console.width)
    console.print(Text.assemble((first[: len(head)], STYLES[certificate.verdict]), first[len(head) :]), soft_wrap=True)
    for more in rest:
        console.print(more, soft_wrap=True, markup=False)


def summary(certificate: Certificate, covers: str) -> str:
    """Returns the rest of the last line, after the verdict."""
    if certificate.verdict is Verdict.PROVED:
        is_bounded = certificate.margin is not None and 0 < certificate.margin < inf
        return f" on all {covers}{f', margin at least {below(certificate.margin or 0)}' if is_bounded else ''}"
    if certificate.verdict is Verdict.REFUTED:
        return " by the counterexample above"
    return f": {certificate.reason}"


def covered(certificate: Certificate) -> str:
    """How many inputs, in words.

    >>> covered(Certificate(Verdict.PROVED, None, "t", {}, "real", "certified", None))
    'inputs, infinitely many'
    """
    if certificate.inputs_covered is None:
        return "inputs, infinitely many"
    return f"{decimal(certificate.inputs_covered)} inputs"


def claim_facts(certificate: Certificate) -> Iterator[Fact]:
    """The certificate's claim and its source, where it has one."""
    claims = (claim for part in registry.parts("claims") for claim in part.CLAIMS)
    claim = next((claim for claim in claims if claim.id == certificate.claim), None)
    if claim is not None:
        yield "claim", f"{claim.id}: {claim.statement}"
        yield "source", claim.source


def weights_fact(module: nn.Module | ModelArrays) -> Fact:
    """The shapes of a module's weights."""
    return shapes_fact((name, tuple(p.shape)) for name, p in module.named_parameters())


def shapes_fact(weights: Iterable[tuple[str, tuple[int, ...]]]) -> Fact:
    """Names and shapes of weights, and how many numbers they are."""
    shapes = dict(weights)
    listed = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
    return "weights", f"{listed}: {sum(prod(shape) for shape in shapes.values())} parameters"


def _facts(certificate: Certificate, covers: str) -> Iterator[Fact]:
    yield from claim_facts(certificate)
    yield "task", f"{certificate.task}, " + _pairs(certificate.parameters)
    yield "reading", certificate.read_as
    yield "method", certificate.method
    for assumption in certificate.assumptions:
        yield "assumes", assumption
    yield "inputs covered", covers.removesuffix(" inputs").removeprefix("inputs, ")
    if "counts" in certificate.extra:
        yield "inputs", _pairs(certificate.extra["counts"])
    if certificate.tightest is not None:
        yield "tightest", _pairs(_with_its_margin_in_words(certificate.tightest, certificate.margin_exact))
    if certificate.counterexample is not None:
        yield "counterexample", _pairs(certificate.counterexample)
    accuracy = certificate.extra.get("accuracy")
    if isinstance(accuracy, Mapping) and certificate.verdict is not Verdict.PROVED:  # others' are lines of their own
        yield "accuracy", _accuracy(accuracy)
    if certificate.reason is not None:
        yield "reason", certificate.reason
    yield "time", f"{_duration(certificate.seconds)} to decide, start-up and building not included"


def further(certificate: Certificate) -> list[Fact]:
    """Every other field that the certificate has in JSON, for --verbose; data for `verify check` are not shown."""
    said = {**certificate.extra, "argument": certificate.argument, "margin exactly": certificate.margin_exact}
    for name in SHOWN:
        said.pop(name, None)
    return [(name.replace("_", " "), _worded(value)) for name, value in said.items() if value is not None]


def _accuracy(shares: Mapping[str, list[str]]) -> str:
    """The share of right inputs for each range of lengths, every input alike.

    >>> _accuracy({"1..50": ["1/1", "1/1"], "51..100": ["1/2", "3/5"]})
    'lengths 1..50: 1/1, lengths 51..100: from 1/2 to 3/5'
    """
    return ", ".join(
        f"lengths {part}: {low if low == high else f'from {low} to {high}'}" for part, (low, high) in shares.items()
    )


def _lines(rows: list[Fact], width: int) -> Iterator[Text]:
    """Names beside their values; above them where the screen is narrow."""
    from rich.text import Text

    column = max(len(name) for name, _ in rows) + 2
    is_narrow = width - column < NARROWEST
    for name, text in rows:
        parts = folded(text, width - (2 if is_narrow else column))
        if is_narrow:
            yield Text(name, style="dim")
            yield from (Text(f"  {part}") for part in parts)
            continue
        for i, part in enumerate(parts):
            yield Text.assemble(((name if i == 0 else "").ljust(column), "dim"), part)


def _with_its_margin_in_words(tightest: dict[str, object], exact: str | None) -> dict[str, object]:
    """The tightest input's facts; its margin is a computed value, so "about" unless it is known exactly."""
    margin = tightest.get("margin")
    return tightest | {"margin": value(margin, exact)} if isinstance(margin, float) else tightest


def _pairs(values: dict[str, object]) -> str:
    return ", ".join(
        f"{name}={_worded(entry)}" for name, entry in values.items() if entry is not None and name != RUN_AS
    )


def _worded(entry: object) -> str:
    return about(entry) if isinstance(entry, float) else str(entry)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
