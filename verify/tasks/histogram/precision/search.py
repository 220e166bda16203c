"""How many bits a histogram model needs: proved enough, proved too few, and the open ones between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from constructions.errors import NotKnown
from constructions.histogram_arrays import HistogramArrays
from verify.arithmetic.formats import FORMATS, Format, format_of_bits
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import Budget, Deadline, TimeIsUp
from verify.frame.decide import silent
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

    def weights(self, fmt: Format, until: Deadline | None = None) -> HistogramArrays:
        """The weights made for a format; where the builder finds none that would work, those of float32.

        Raises: NotKnown when there are no weights in float32 either; TimeIsUp where a builder still searches.
        """
        sizes = SizesAsked(self.model, self.T, self.L, self.d, self.p)
        told = (until or Deadline.never()).ending(silent)
        try:
            return built(sizes, self.construction, storage(fmt.name), progress=told)
        except NotKnown:
            return built(sizes, self.construction, "float32", progress=told)


def judge(
    construction: Construction,
    fmt: Format,
    accumulate: Format | None,
    budget: float | Budget,
    until: Deadline | None = None,
) -> Certificate:
    """Certifies a construction's weights in a format. The accumulation counts where it is wider than the format.

    `until` ends the builder's own search, whose code serves other formats too; `budget` is that of the proof.
    Raises: NotKnown where no weights are known; TimeIsUp where it is over before there are any.
    """
    until = until or Deadline.never()
    until.check()
    if accumulate is not None and (fmt.name == "tf32" or fmt.p >= accumulate.p):
        accumulate = None
    weights = construction.weights(fmt, until)
    return certify(weights, fmt=fmt, accumulate=accumulate, claim=construction.claim, budget=budget)


@dataclass(frozen=True)
class BitsFrontier:
    """The certificates by number of bits, from the most down to the largest number that is too small.

    `next_bits` is the number that was not reached, where the time was up before.
    """

    by_bits: dict[int, Certificate]
    next_bits: int | None = None

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
    def is_fewest(self) -> bool:
        """Whether one bit less than enough is shown to be too few."""
        return self.enough is not None and self.enough - 1 == self.too_small

    @property
    def too_small(self) -> int | None:
        """The largest number of bits with an input that fails."""
        return max((bits for bits, c in self.by_bits.items() if c.verdict is Verdict.REFUTED), default=None)


def frontier(
    construction: Construction,
    accumulate: Format | None,
    limit: Callable[[], float | Budget],
    until: Deadline | None = None,
) -> BitsFrontier:
    """Goes down from the significand of float32 to the first that fails, or up from it until one is enough.

    The exponents are those of float32, so that nothing but the significand is asked about.
    `limit` gives what ends the search at each number of bits, `until` is when all of them end.

    >>> found = frontier(Construction("bos", "relation", 4, 3), None, lambda: 5.0)
    >>> found.enough, found.too_small
    (4, 2)
    """
    by_bits: dict[int, Certificate] = {}
    for bits in _to_try(by_bits):
        try:
            by_bits[bits] = judge(construction, format_of_bits(bits), accumulate, limit(), until)
        except TimeIsUp:
            return BitsFrontier(by_bits, bits)
    return BitsFrontier(by_bits)


def _to_try(by_bits: dict[int, Certificate]) -> Iterator[int]:
    """The next number of bits, while what was found of those before asks for one."""
    start = FORMATS["float32"].p
    for bits in range(start, FEWEST_BITS - 1, -1):
        yield bits
        if by_bits[bits].verdict is Verdict.REFUTED:
            break
    for bits in range(start + 1, MOST_BITS + 1):
        if by_bits[bits - 1].verdict is Verdict.PROVED:
            break
        yield bits


def constructions(T: int, L: int) -> Iterator[Construction]:
    """The histogram constructions but for exact laws, at the d that the proposition or the frontier table gives."""
    from verify.tasks.histogram.frontier_table import kept_table

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
