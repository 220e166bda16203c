"""D's separation accuracy of many heads: a classifier is fitted on drawn triples, and judged on every triple."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Undecided
from verify.arithmetic.slack import Array
from verify.tasks.count01.heads.many import HeadForms, check_box, right_triples
from verify.tasks.count01.heads.svc import C
from verify.tasks.count01.layer_norm.laws import Law

SAMPLE = 7000  # sentences of D's training set
ITERATIONS, HALVINGS = 60, 30
HEADS_AT_ONCE = 20  # whose outputs on the sample fit a processor's cache
SMALL_STEP = 1e-8


def separation_accuracies(forms: HeadForms, sample: Array, law: Law, strength: float = C) -> list[Fraction]:
    """The share of a box's triples that each head's fitted separator tells rightly, exactly.

    Claim: D, Sec. 5.1 and App. C (s-acc): fitted on the training set, judged on the test set; here on all of its law.
    Raises: BadInput for a law that is no box, or a triple too close to a tie.
    """
    check_box(law)
    try:
        found = right_triples(forms, fitted(forms, sample, strength), law)
    except Undecided as error:
        raise BadInput(f"weights: {error}. Another --seed fits another separator.") from None
    return [Fraction(right, law.size) for right in found]


def drawn_triples(law: Law, seed: int, size: int = SAMPLE) -> Array:
    """Triples of a box that are drawn as D draws its sentences (size, 3).

    >>> drawn_triples(Law("box:0:9:4", 0, 9, 4), 0, 2).tolist()
    [[8.0, 6.0, 2.0], [2.0, 3.0, 0.0]]
    """
    rng = np.random.default_rng(seed)
    ends = [law.high, law.high, law.noise]
    return rng.integers([law.low, law.low, 0], np.array(ends) + 1, size=(size, 3)).astype(float)


def fitted(forms: HeadForms, sample: Array, strength: float = C) -> Array:
    """The separators (heads, d_h + 1), w and then b, that nearly minimise |w|^2 + C mean(max(0, 1 - y (w . r + b))^2).

    Claim: D, App. C: "squared hinge loss", C = 1000; its formula has no square. Newton's method with halved steps: the
        function is convex, and piecewise quadratic. What is found is a separator whatever it minimises.
    """
    y = np.where(sample[:, 1] > sample[:, 0], 1.0, -1.0)
    counts = np.concatenate([np.ones((len(sample), 1)), sample], axis=1)
    found = []
    for start in range(0, len(forms.lines), HEADS_AT_ONCE):
        sums = counts @ forms.lines[start : start + HEADS_AT_ONCE]
        with np.errstate(all="ignore"):
            outputs = sums / sums[..., -1:]  # of r and 1
        found.append(_minimised(np.nan_to_num(outputs) * y[:, None], strength))
    return np.concatenate(found)


def _minimised(signed: Array, strength: float) -> Array:
    """Where |w|^2 + C mean(max(0, 1 - signed . x)^2) is about least, x = (w, b), for each of the heads."""
    heads, n, size = signed.shape
    x, penalty = np.zeros((heads, size)), np.append(np.ones(size - 1), 0.0)
    scale, turned = strength / n, signed.transpose(0, 2, 1)

    def value(x: Array) -> tuple[Array, Array]:
        short = np.maximum(1 - (signed @ x[..., None])[..., 0], 0)
        return (penalty * x * x).sum(axis=1) + scale * (short * short).sum(axis=1), short

    least, short = value(x)
    for _ in range(ITERATIONS):
        gradient = 2 * penalty * x - 2 * scale * (turned @ short[..., None])[..., 0]
        curvature = 2 * scale * ((turned * (short > 0)[:, None]) @ signed) + np.diag(2 * penalty)
        ridge = 1e-12 * np.trace(curvature, axis1=1, axis2=2)[:, None, None] + 1e-12
        step = -np.linalg.solve(curvature + ridge * np.eye(size), gradient[..., None])[..., 0]
        t, slope = np.ones(heads), (gradient * step).sum(axis=1)
        for _ in range(HALVINGS):
            reached, short = value(x + t[:, None] * step)
            is_high = reached > least + 1e-4 * t * slope
            if not is_high.any():
                break
            t = np.where(is_high, t / 2, t)
        t = np.where(reached > least, 0.0, t)
        x = x + t[:, None] * step
        least, short = value(x)
        if (np.abs(t[:, None] * step) <= SMALL_STEP * (1 + np.abs(x))).all():
            break
    return x
