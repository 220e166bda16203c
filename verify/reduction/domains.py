"""Domains of bags: counts of kinds with a total, and the hull of a few bags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from verify.arithmetic.slack import Array
from verify.reduction.leaf import Mask, N, chosen, each


@dataclass(frozen=True)
class Forms(Generic[N]):
    """Forms in counts: constant + sum over kinds s of c_s slopes_s.

    Shapes: `constant` (..., f), `slopes` (..., kinds, f).
    """

    constant: N
    slopes: N


@dataclass(frozen=True)
class Counts:
    """How many there are of each of some kinds: numbers c_s >= 0 that sum to `total`, or to at most that.

    Counts are integers, and what holds for all real numbers holds for them. Many domains at once differ in their total
    alone: its shape is that of the forms' constants less the last axis. An infinite total is no bound.

    >>> from verify.arithmetic.balls import Ball
    >>> forms = Forms(Ball.exact(np.array([1.0])), Ball.exact(np.array([[2.0], [-3.0]])))
    >>> [Counts(np.array(4.0), is_full=full).range(forms).mid.tolist() for full in (True, False)]
    [[-1.0], [-1.0]]
    >>> [Counts(np.array(4.0), is_full=full).range(forms).rad.round(9).tolist() for full in (True, False)]
    [[10.0], [10.0]]
    """

    total: Array
    is_full: bool = False

    def range(self, forms: Forms[N]) -> N:
        """A form is extreme where all things are of one kind, or where there are none if the total may be less.

        Proof. sum of c_s slopes_s is `total` times a mean of the slopes, and 0 is one of them where c may sum to less.
        """
        steepest = forms.slopes.hull(-2)
        if not self.is_full:
            steepest = type(steepest).between(np.minimum(steepest.lower, 0.0), np.maximum(steepest.upper, 0.0))
        total = np.where(np.isinf(self.total), 0.0, self.total)[..., None]
        moved = type(steepest).between(total, total) * steepest
        if np.isinf(self.total).any():
            low, high = np.where(steepest.lower >= 0, 0.0, -np.inf), np.where(steepest.upper <= 0, 0.0, np.inf)
            moved = chosen(np.isinf(self.total)[..., None], type(steepest).between(low, high), moved)
        return forms.constant + moved

    def readout(self, forms: Forms[N], is_on: Mask, box: N, gains: N) -> Forms[N]:
        """What is on keeps its slopes, by the gains that are not 0 for it; a box belongs to the constant."""
        used = (is_on | (box.upper != 0)).reshape(-1, is_on.shape[-1]).any(0)
        on, by = is_on[..., used], gains[used]
        slopes = forms.slopes[:, used] @ each(by, lambda a: np.where(on[..., None], a, 0.0))
        return Forms(chosen(on, forms.constant[..., used], box[..., used]) @ by, slopes)

    def plus(self, forms: Forms[N], more: Forms[N]) -> Forms[N]:
        return Forms(forms.constant + more.constant, forms.slopes + more.slopes)


class Hull(Generic[N]):
    """The hull of a few bags, forms being known at each: (..., bags, f).

    What is linear in the counts, or a quotient of two such with a positive divisor, maps the hull of bags onto the hull
    of their images, so that forms are extreme at a bag.
    """

    def range(self, forms: N) -> N:
        return forms.hull(-2)

    def readout(self, forms: N, is_on: Mask, box: N, gains: N) -> N:
        return chosen(is_on[..., None, :], forms, box[..., None, :]) @ gains

    def plus(self, forms: N, more: N) -> N:
        return forms + more
