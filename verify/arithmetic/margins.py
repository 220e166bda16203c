"""By how much an answer is right: the right logit less the largest other, of floats, tensors and exact numbers.

And the one rule by which a run contradicts what is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast, overload

import numpy as np

from verify.arithmetic.intervals import next_above, next_below
from verify.arithmetic.slack import Array

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparisonT as Entry
    from torch import Tensor


@overload
def own_and_rival(logits: Tensor, right: Tensor, *, overwrites: bool = False) -> tuple[Tensor, Tensor]: ...
@overload
def own_and_rival(logits: Array, right: np.ndarray | int, *, overwrites: bool = False) -> tuple[Array, Array]: ...
@overload
def own_and_rival(logits: Sequence[Entry], right: int) -> tuple[Entry, Entry]: ...
def own_and_rival(
    logits: Tensor | Array | Sequence[Entry], right: Tensor | np.ndarray | int, *, overwrites: bool = False
) -> tuple[object, object]:
    """The right logit, and the largest other, over the last axis: NaN where one of those is, -inf where there is none.

    Of a sequence, it is of numbers without NaN, two or more. What `overwrites` names may lose its right logits.
    Shapes: `logits` (..., classes), `right` (...).

    >>> own_and_rival([1, 4, 3], 1)
    (4, 3)
    """
    if isinstance(logits, np.ndarray):
        place, others = np.asarray(right)[..., None], logits if overwrites else logits.copy()
        own = np.take_along_axis(logits, place, -1)[..., 0]
        np.put_along_axis(others, place, -math.inf, -1)
        return own, others.max(-1)  # max propagates NaN, as amax does
    if isinstance(logits, Sequence):
        return logits[int(right)], max(x for j, x in enumerate(logits) if j != right)
    index = cast("Tensor", right).unsqueeze(-1)
    put = logits.scatter_ if overwrites else logits.scatter
    return logits.gather(-1, index).squeeze(-1), put(-1, index, -math.inf).amax(-1)


@overload
def margins_of(logits: Tensor, right: Tensor) -> Tensor: ...
@overload
def margins_of(logits: Array, right: np.ndarray | int) -> Array: ...
def margins_of(logits: Tensor | Array, right: Tensor | np.ndarray | int) -> Tensor | Array:
    """(logit of the right class) - (largest other logit) over the last axis: NaN where a logit is.

    Infinite where there is no other class. Shapes: as of `own_and_rival`.

    >>> float(margins_of(np.array([1.0, 4.0, 3.0]), 1))
    1.0
    >>> margins_of(np.array([[0.0, np.nan], [0.0, 2.0]]), np.array([0, 0]))
    array([nan, -2.])
    """
    own, rival = own_and_rival(cast("Tensor", logits), cast("Tensor", right))
    return own - rival if logits.shape[-1] > 1 else abs(own) + math.inf


def margins_between(low: Array, high: Array, right: np.ndarray | int) -> tuple[Array, Array]:
    """Bounds on `margins_of` all logits between two ends; infinite where an end is no number, or both are one infinity.

    A difference of floats that is computed as 0 is 0, and else lies between the neighbours of what is computed.

    >>> margins_between(np.array([1.0, 0.0, 0.0]), np.array([2.0, 1.0, 0.5]), 0)
    (array(0.), array(2.))
    """
    low, high = np.where(low < math.inf, low, math.nan), np.where(high > -math.inf, high, math.nan)
    (own_low, rival_low), (own_high, rival_high) = (own_and_rival(end, right) for end in (low, high))
    least, most = own_low - rival_high, own_high - rival_low
    least, most = next_below(least, (least == 0) | (rival_high == -math.inf)), next_above(most, most == 0)
    return np.where(np.isnan(least), -math.inf, least), np.where(np.isnan(most), math.inf, most)


class OneRun(NamedTuple):
    """One answer beside a proof: the margin of the module's run, between what every such run lies, and what no proof
    of the reading may exceed.

    A task leaves out what it cannot tell at the price of a run. There is no tolerance: what a run may be off by is
    between `low` and `high`.
    """

    margin: float | None = None
    low: float = -math.inf
    high: float = math.inf
    at_most: float = math.inf

    def contradicts(self, proved: float | None, most: float = math.inf) -> str | None:
        """What disagrees, if anything, with a margin of at least `proved` and at most `most`.

        A run may give NaN where nothing bounds it from below: a rival that may overflow leaves the upper end finite.

        >>> OneRun(math.nan, high=1.0).contradicts(None)
        >>> OneRun(math.nan, 0.5, 1.0).contradicts(None)
        "the module's margin is nan, where it must be from 0.5 to 1.0"
        """
        if proved is not None and proved > self.at_most:
            return f"a margin of {proved} is proved, and it is at most {self.at_most}"
        if most < self.low:
            return f"a margin of at most {most} is proved, and it is at least {self.low}"
        if (
            self.margin is None
            or self.low <= self.margin <= self.high
            or (math.isnan(self.margin) and self.low == -math.inf)
        ):
            return None
        return f"the module's margin is {self.margin}, where it must be from {self.low} to {self.high}"
