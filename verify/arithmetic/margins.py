"""By how much a computed answer is right: the one function of logits that every run is judged by.

And the one rule by which a run contradicts what is proved.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from verify.arithmetic.intervals import next_above, next_below
from verify.arithmetic.slack import Array

if TYPE_CHECKING:
    from torch import Tensor


def margins(logits: Tensor, right: Tensor) -> Tensor:
    """(logit of the right class) - (largest other logit) over the last axis: NaN where a logit is.

    Infinite where there is no other class. Shapes: `logits` (..., classes), `right` (...).
    """
    right = right.unsqueeze(-1)
    own = logits.gather(-1, right).squeeze(-1)
    if logits.shape[-1] == 1:
        return own.masked_fill(~own.isnan(), math.inf)
    return own - logits.scatter(-1, right, -math.inf).amax(-1)  # amax propagates NaN


def margins_of(logits: Array, right: np.ndarray | int) -> Array:
    """As `margins`, of arrays of floats, without torch.

    >>> float(margins_of(np.array([1.0, 4.0, 3.0]), 1))
    1.0
    >>> margins_of(np.array([[0.0, np.nan], [0.0, 2.0]]), np.array([0, 0]))
    array([nan, -2.])
    """
    own, rival = _own_and_rival(logits, right)
    if logits.shape[-1] == 1:
        return np.where(np.isnan(own), own, math.inf)
    return np.asarray(own - rival)


def margins_between(low: Array, high: Array, right: np.ndarray | int) -> tuple[Array, Array]:
    """Bounds on `margins_of` all logits between two ends; infinite where an end is no number, or both are one infinity.

    A difference of floats that is computed as 0 is 0, and else lies between the neighbours of what is computed.

    >>> margins_between(np.array([1.0, 0.0, 0.0]), np.array([2.0, 1.0, 0.5]), 0)
    (array(0.), array(2.))
    """
    low, high = np.where(low < math.inf, low, math.nan), np.where(high > -math.inf, high, math.nan)
    (own_low, rival_low), (own_high, rival_high) = (_own_and_rival(end, right) for end in (low, high))
    least, most = own_low - rival_high, own_high - rival_low
    least, most = next_below(least, (least == 0) | (rival_high == -math.inf)), next_above(most, most == 0)
    return np.where(np.isnan(least), -math.inf, least), np.where(np.isnan(most), math.inf, most)


def _own_and_rival(logits: Array, right: np.ndarray | int) -> tuple[Array, Array]:
    """The right logit, and the largest other: NaN where one is, and -inf where there is none."""
    place, others = np.asarray(right)[..., None], logits.copy()
    np.put_along_axis(others, place, -math.inf, -1)
    return np.take_along_axis(logits, place, -1)[..., 0], others.max(-1)  # max propagates NaN


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
