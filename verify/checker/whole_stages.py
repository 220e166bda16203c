"""What follows an attention in whole numbers of units of 2^-K, each off by up to two units, for one own token.

A head's tables have units of their own, and are off by up to two and 2^-256 of the weight.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flint import fmpz_mat

from verify.checker.lines import Pair, near
from verify.checker.one_layer import of_each
from verify.checker.stages import AffineNumbers, StagesAfterAttention

WEIGHT_BITS = 128  # of a head's smallest weight, or more
Rows = list[list[int]]  # coefficients, for each function


class WeighedRows(NamedTuple):
    """A head's weights for each token at its place, and those times the head's numbers, over one power of two."""

    weights: dict[Pair, int]
    weighed: dict[Pair, list[int]]


class StageRows(NamedTuple):
    """A function of so many elements; for each argument their rows: 1, the heads' numbers, the results before."""

    function: str
    size: int
    arguments: list[Rows]


def flat(rows: Sequence[Sequence[int]]) -> fmpz_mat:
    return fmpz_mat(len(rows), len(rows[0]), [x for row in rows for x in row])


class RelaxedLayer:
    """The stages that some elements of the output depend on, in whole numbers, for one own token."""

    def __init__(
        self, after: StagesAfterAttention, classes: Mapping[int, int], needed: set[int], heads: list[int]
    ) -> None:
        width = after.graph.width
        self.width, self.after = width, after
        self.sources = [h * width + c for h in heads for c in range(width)]
        self.kept = list[tuple[str, list[tuple[AffineNumbers, list[int], Rows]]]]()
        for stage in after.stages:
            elements = [e for e in range(stage.size) if stage.start + e in needed]
            if elements:
                given = [(x, elements, self._coefficients(x, elements)) for x in stage.arguments]
                self.kept.append((stage.function, given))
                self.sources += [stage.start + e for e in elements]
        self.classes = [*classes]
        self.output = after.output, [*classes.values()], self._coefficients(after.output, [*classes.values()])

    def _coefficients(self, x: AffineNumbers, elements: Sequence[int]) -> Rows:
        rows = x.linear.balls
        return [[near(rows[s][e]) if s < len(rows) else 0 for s in self.sources] for e in elements]

    def of_own_token(self, i: int, heads: list[WeighedRows], largest: int) -> "OwnLayer":
        stages = []
        for function, given in self.kept:
            rows = [_with_constants(*argument, i) for argument in given]
            stages.append(StageRows(function, len(rows[0]), rows))
        logits = dict(zip(self.classes, _with_constants(*self.output, i), strict=True))
        return OwnLayer(stages, logits, heads, self.width, largest)


def _with_constants(x: AffineNumbers, elements: Sequence[int], rows: Rows, i: int) -> Rows:
    own = of_each(x.constant.balls, i)
    return [[near(own[e]), *row] for e, row in zip(elements, rows, strict=True)]


class OwnLayer(NamedTuple):
    """What bounds need: the stages, the logits' rows, each head's tables, and a bound on the heads' numbers."""

    stages: list[StageRows]
    logits: dict[int, list[int]]
    heads: list[WeighedRows]
    width: int
    largest: int
