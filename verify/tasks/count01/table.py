"""The documents' construction against uniform attention: how long a prompt is proved, per N and dtype."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from constructions.count01 import DTYPES, Count01Transformer, documents, uniform
from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import rounded_model
from verify.arithmetic.formats import Format, format_of, format_of_bits
from verify.tasks.count01.boxes import decide_boxes
from verify.tasks.count01.dtype import largest_domain
from verify.tasks.count01.task import PromptDomain

DOCUMENTS_RANGE = PromptDomain(max_digits=200, max_noise=200)
LABELS = "majority-ones"


@dataclass(frozen=True)
class TableRow:
    """The largest proven length of one construction in each dtype; -1 where not even the empty prompt is."""

    construction: str
    lengths: dict[str, int]


def table(sizes: tuple[int, ...] = (5, 8, 10, 12, 15)) -> list[TableRow]:
    """One row per N with eps = 0, one with the best power of two for eps, and one for uniform attention."""
    rows = []
    for N in sizes:
        rows.append(TableRow(f"N={N}", {name: proven_length(N, 0.0, name) for name in DTYPES}))
        rows.append(TableRow(f"N={N}, best eps", {name: best_eps(N, name) for name in DTYPES}))
    lengths = {name: longest(uniform(dtype=dtype), format_of(dtype)) for name, dtype in DTYPES.items()}
    return [*rows, TableRow("uniform", lengths)]


def longest(model: Count01Transformer, fmt: Format) -> int:
    """The largest length for which the proof closes; -1 where it closes for none."""
    domain = largest_domain(lambda k: PromptDomain(max_length=k), model, LABELS, RoundedArithmetic.of(fmt))
    assert domain.max_length is not None
    closes = domain.max_length > 0 or decide_boxes(model, LABELS, domain, RoundedArithmetic.of(fmt)).is_proved
    return domain.max_length if closes else -1


def proven_length(N: int, eps: float, name: str) -> int:
    """The same for the documents' construction; -1 also where its numbers do not fit the dtype."""
    try:
        return longest(documents(N, eps=eps, dtype=DTYPES[name]), format_of(DTYPES[name]))
    except BadInput:
        return -1


def best_eps(N: int, name: str) -> int:
    """The largest proven length over eps = 2^-1 .. 2^-16."""
    best = -1
    for k in range(1, 17):
        length = proven_length(N, 2.0**-k, name)
        if length < best // 2:
            break
        best = max(best, length)
    return best


def smallest_bits(model_at: Count01Transformer, domain: PromptDomain = DOCUMENTS_RANGE) -> int | None:
    """The smallest significand for which the proof closes on a domain; None where 53 bits do not suffice.

    The exponent range is float32's; weights are rounded to the same number of bits.
    """

    def holds(p: int) -> bool:
        fmt = format_of_bits(p)
        return decide_boxes(rounded_model(model_at, fmt), LABELS, domain, RoundedArithmetic.of(fmt)).is_proved

    if not holds(53):
        return None
    return 3 + bisect_left(range(3, 53), True, key=holds)
