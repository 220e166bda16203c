"""How many bits a histogram model needs: proved enough, proved too few, and the open ones between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from constructions.errors import NotKnown
from constructions.histogram_arrays import HistogramArrays
from verify.arithmetic.formats import FORMATS, Format, format_of_bits
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import Budget
from verify.tasks.histogram.catalogue import CONSTRUCTIONS, SizesAsked, built, storage
from verify.tasks.histogram.rounded.verdict import certify

FEWEST_BITS, MOST_BITS = 2, FORMATS["float64"].p
MOST_SEARCHES = MOST_BITS - FEWEST_BITS + 1  # of a frontier, each at another number of bits


@dataclass(frozen=True)
class Construction:
    """A histogram construction and its sizes; `d` and `p` are the builder's own choice where they are None."""

    model: str
    construction: str
    T: int
    L: int
    d: int | None = None
    p: int | None = None

    @property
    def claim(self) -> str:
        return CONSTRUCTIONS[self.model, self.construction][1]

    def weights(self, fmt: Format) -> HistogramArrays:
        """The weights made for a format; where the builder finds none that would work, those of float32.

        Raises: NotKnown when there are no weights in float32 either.
        """
        sizes = SizesAsked(self.model, self.T, self.L, self.d, self.p)
        try:
            return built(sizes, self.construction, storage(fmt.name))
        except NotKnown:
            return built(sizes, self.construction, "float32")


def judge(construction: Construction, fmt: Format, accumulate: Format | None, budget: float | Budget) -> Certificate:
    """Certifies a construction's weights in a format. The accumulation counts where it is wider than the format."""
    if accumulate is not None and (fmt.name == "tf32" or fmt.p >= accumulate.p):
        accumulate = None
    return certify(construction.weights(fmt), fmt=fmt, accumulate=accumulate, claim=construction.claim, budget=budget)


@dataclass(frozen=True)
class BitsFrontier:
    """The certificates by number of bits, from the most down to the largest number that is too small."""

    by_bits: dict[int, Certificate]

    @property
    def enough(self) -> int | None:
        """The smallest number of bits such that it and all larger ones tried are proved enough."""
        proved = None
        for bits in sorted(self.by_bits, reverse=True):
            if self.by_bits[bits].verdict is not Verdict.PROVED:
                break
            proved = bits
        return proved

    @property
    def too_small(self) -> int | None:
        """The largest number of bits with an input that fails."""
        return max((bits for bits, c in self.by_bits.items() if c.verdict is Verdict.REFUTED), default=None)


def frontier(
    construction: Construction, accumulate: Format | None, limit: Callable[[], float | Budget]
) -> BitsFrontier:
    """Goes down from the significand of float32 to the first that fails, or up from it until one is enough.

    The exponents are those of float32, so that nothing but the significand is asked about.
    `limit` gives what ends the search at each number of bits.

    >>> found = frontier(Construction("bos", "relation", 4, 3), None, lambda: 5.0)
    >>> found.enough, found.too_small
    (4, 2)
    """
    by_bits: dict[int, Certificate] = {}
    start = FORMATS["float32"].p
    for bits in range(start, FEWEST_BITS - 1, -1):
        by_bits[bits] = judge(construction, format_of_bits(bits), accumulate, limit())
        if by_bits[bits].verdict is Verdict.REFUTED:
            break
    for bits in range(start + 1, MOST_BITS + 1):
        if by_bits[bits - 1].verdict is Verdict.PROVED:
            break
        by_bits[bits] = judge(construction, format_of_bits(bits), accumulate, limit())
    return BitsFrontier(by_bits)


def constructions(T: int, L: int) -> Iterator[Construction]:
    """The histogram constructions but for exact laws, at the d that the proposition or the frontier table gives."""
    from verify.tasks.histogram.frontier.kept import kept_table

    frontier_d = {(row["model"], row["T"], row["L"]): row["d"] for row in kept_table()}
    for (model, name), (builder, _) in CONSTRUCTIONS.items():
        if builder.startswith("exact_laws"):
            continue  # the smallest sizes at which real arithmetic counts at all
        if name == "plane" and T > 3 and L > 2:
            continue  # none are known there (W-8)
        d = {
            "plane": 2,
            "simplex": T - 1,
            "coherent": T,
            "sphere": min(3, T),
            "code": frontier_d.get((model, T, L), T),
        }.get(name)
        yield Construction(model, name, T, L, d)
