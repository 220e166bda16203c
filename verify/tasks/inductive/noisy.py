"""Rows of numbers whose errors are partly one error: a weight of BOS, a LayerNorm's divisor, moves a whole row at once.

A row is mid + sum_q e_q shared[q] + r with |e_q| <= 1 and |r_i| <= own_i. What is read from a row by a matrix keeps the
shared errors apart, so that lines j (K x) - (j^2 / 2) x that are all read from one x are compared under one error of x.
Besides, sums of whole numbers that a format holds are exact in any order, and nearly so where the numbers nearly are.

Every product, quotient and root here may underflow in float64, by LEAST / 2 each, whatever the size of the numbers:
what is computed from numbers that are not exactly 0 is off by `underflow` of so many operations besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from typing import TypeAlias

import numpy as np

from constructions.decoder_arrays import NormArrays
from verify.arithmetic.layer_norm import inverse_deviation
from verify.arithmetic.norms import total
from verify.arithmetic.operations import ULPS, Operations
from verify.arithmetic.polynomials import decay, erf, erf_error, exp_error
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import INFLATION, LEAST, LOST, OF_FEW, OF_MANY, U, gamma, underflow

GRID = range(-8, 5)  # 2^-a, of which numbers may be multiples
Lanes: TypeAlias = np.ndarray | slice  # places in rows
SMALLEST = 2.0**-1000  # of products of two numbers that are not 0, so that none underflows
ALIKE = 4  # kinds of columns that a matrix has several times, whose errors are kept apart
SPARSE = 0.75  # of the sum of |G_i - mean(G)|: where that of |G_i| is less, few numbers make it up
ROOT_2_OVER_PI, CUBE = 0.7978845608028654, 0.044715  # of GELU's tanh form


@dataclass(frozen=True)
class Allowed(Operations):
    """What a reading allows operations on rows of arrays to be off by.

    >>> Allowed().tensor(np.ones((1, 1))).own
    array([[0.]])
    """

    @classmethod
    def of(cls, reading: Real | Rounded) -> Allowed:
        """That of a reading."""
        return cls() if isinstance(reading, Real) else cls(reading.format, reading.accumulate)

    def checked(self, size: np.ndarray, rad: np.ndarray) -> np.ndarray:
        """The radius, NaN where a number of that size may overflow in the dtype: inf - inf is no number."""
        return rad if self.stored is None else np.where(size <= self.stored.largest, rad, np.nan)

    def tensor(self, x: np.ndarray) -> Noisy:
        """Stored numbers: rounded to the dtype once; what is subnormal there may be flushed."""
        if self.stored is None:
            return Noisy.exact(x)
        if self.stored.name == "tf32":  # factors are rounded, or not
            rad = np.abs(x) * self.stored.u * (1 + 2.0**-10) + self.stored.tiny
            return Noisy(x, np.where((np.abs(x) > self.stored.largest) & np.isfinite(x), np.nan, rad))
        near = rounded(x, self.stored)
        is_flushed = np.abs(near) < self.stored.tiny
        rad = np.where(is_flushed, np.abs(near), 0.0)
        beyond = np.isinf(near) & np.isfinite(x)  # which becomes infinite, and no mask means that
        return Noisy(near, np.where(beyond, np.nan, rad))


@dataclass(frozen=True)
class Noisy:
    """Rows (..., d) with errors of their own and shared ones, each of the shape of `mid`.

    >>> x = Noisy(np.ones((1, 2)), np.zeros((1, 2)), {"q": np.full((1, 2), 0.5)})
    >>> x.noise.tolist()[0][0] >= 0.5
    True
    """

    mid: np.ndarray
    own: np.ndarray
    shared: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def exact(cls, mid: np.ndarray) -> Noisy:
        return cls(mid, np.zeros_like(mid))

    @cached_property
    def noise(self) -> np.ndarray:
        """A bound on the distance from `mid`."""
        return reduce(np.add, (np.abs(G) for G in self.shared.values()), self.own) * ENLARGE

    @cached_property
    def size(self) -> np.ndarray:
        return np.asarray((np.abs(self.mid) + self.noise) * ENLARGE)

    @property
    def is_zero(self) -> np.ndarray:
        """Where the number is exactly 0."""
        return np.asarray(self.size == 0)

    def __getitem__(self, rows: np.ndarray) -> Noisy:
        return self.each(lambda x: x[rows])

    def each(self, view: Callable[[np.ndarray], np.ndarray]) -> Noisy:
        """The same view of all parts."""
        return Noisy(view(self.mid), view(self.own), {q: view(G) for q, G in self.shared.items()})

    def with_lanes(self, lanes: Lanes, y: Noisy) -> Noisy:
        """The rows with those of y (..., lanes) in these places, all of whose shared errors y has."""
        shape = (*y.mid.shape[:-1], self.mid.shape[-1])

        def of(old: np.ndarray | float, new: np.ndarray) -> np.ndarray:
            rows = np.empty(shape)
            rows[...], rows[..., lanes] = old, new
            return rows

        shared = {q: of(self.shared.get(q, 0.0), G) for q, G in y.shared.items()}
        return Noisy(of(self.mid, y.mid), of(self.own, y.own), shared)

    def without_zeros(self) -> Noisy:
        """The rows without shared errors that move no number."""
        return Noisy(self.mid, self.own, {q: G for q, G in self.shared.items() if bool(G.any())})

    def boxed(self, names: Iterable[str] | None = None) -> Noisy:
        """These shared errors, or all of them, as errors of each number's own."""
        names = tuple(self.shared if names is None else (q for q in names if q in self.shared))
        own = reduce(np.add, (np.abs(self.shared[q]) for q in names), self.own) * ENLARGE
        return Noisy(self.mid, own, {q: G for q, G in self.shared.items() if q not in names})


def joined(parts: Sequence[Noisy], axis: int) -> Noisy:
    """Rows one after the other along an axis; a shared error that a part has not is 0 there."""
    names = sorted({q for x in parts for q in x.shared})
    shared = {q: np.concatenate([x.shared.get(q, np.zeros_like(x.mid)) for x in parts], axis) for q in names}
    mid, own = (np.concatenate(rows, axis) for rows in zip(*((x.mid, x.own) for x in parts), strict=True))
    return Noisy(mid, own, shared)


def box(low: np.ndarray, high: np.ndarray) -> Noisy:
    """A box that holds all numbers between two ends.

    Its midpoint may be any number. Half of a number may lose LEAST / 2, and so may 2^-50 of it.
    """
    mid = (low + high) / 2
    rad = (high - low) / 2 + OF_FEW * (np.abs(low) + np.abs(high)) + underflow((low != 0) | (high != 0), 2)
    return Noisy(mid, rad * ENLARGE)


def sum_error(at: Allowed, most: int) -> np.ndarray:
    """What a dtype's sum of 0, 1, .., `most` products, in any order, fused or not, may be off by, relatively."""
    return np.array([0.0, *(at.sums(k - 2) for k in range(1, most + 1))])


def is_power(x: np.ndarray) -> np.ndarray:
    """Where a number is 0 or a power of two up to its sign: a product with it is exact."""
    return np.asarray((x == 0) | (np.frexp(np.abs(x))[0] == 0.5))


def multiples(x: np.ndarray, axis: int) -> np.ndarray:
    """The least a in GRID such that all numbers along an axis are multiples of 2^-a, else infinity."""
    found = np.full_like(x.max(axis, keepdims=True), np.inf)
    for a in reversed(GRID):
        scaled = x * 2.0**a
        found = np.where((scaled == np.round(scaled)).all(axis, keepdims=True), float(a), found)
    return np.asarray(found)


def product(at: Allowed, x: Noisy, W: Noisy, *, is_carried: bool = True) -> Noisy:
    """x @ W of stored matrices W (..., d, f); without what x's own errors make of it unless `is_carried`.

    A sum of k terms that are not exactly 0 has k products, exact where all are powers of two, and k - 1 additions in
    some order, each rounded relative to a partial sum: the last to the sum itself, the others to no more than the sum
    of the positive or of the negative terms, that is (sum of absolute values + |sum|) / 2. Where the terms' midpoints
    are multiples of one power of two and all their sums are held, rounding moves a sum no further than it is from its
    midpoint: each step doubles that distance at most.

    What float64 loses to underflow is counted for each of the d products of a sum: twice in what moves the sum, in its
    midpoint and in each shared error, and in the bounds on them.
    """
    other, d = np.abs(W.mid), W.mid.shape[-2]
    whole = other + W.own
    reach = x.size @ whole * ENLARGE**2
    of_weights = (x.size @ W.own) * ENLARGE**2 if W.own.any() else 0.0
    if at.is_real:
        is_some, rounded_by = has_terms(x.size, whole, reach), 2 * gamma(d + 8) * reach
    else:
        counted = terms(x.size, whole).astype(np.int64)
        is_some, rounded_by = counted > 0, _rounded_by(at, x, W, reach, counted)
    own = of_weights + rounded_by * ENLARGE
    if is_carried:
        own = own + (x.own @ other) * ENLARGE**2
    own = own + underflow(is_some, (8 + 2 * len(x.shared)) * d)
    return Noisy(x.mid @ W.mid, own * ENLARGE, {q: G @ W.mid for q, G in x.shared.items()})


def terms(size: np.ndarray, W: np.ndarray) -> np.ndarray:
    """How many terms of each sum of size @ W are not exactly 0."""
    return np.asarray((size > 0).astype(np.float64) @ (W > 0).astype(np.float64))


def has_terms(size: np.ndarray, W: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Whether any is, where `reach` is size @ W: where that is positive, if no product of two of them underflows.

    Where it is no number this is False, and all that is known of the sum is that it is off by that.
    """
    return reach > 0 if least_positive(size) * least_positive(W) >= SMALLEST else terms(size, W) > 0


def least_positive(x: np.ndarray) -> float:
    """The least of the numbers that are positive, else infinity."""
    return float(np.where(x > 0, x, np.inf).min(initial=np.inf))


def _rounded_by(at: Allowed, x: Noisy, W: Noisy, reach: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """What a dtype's and float64's rounding move sums of so many terms by, which reach so far: `product` says why."""
    assert at.stored is not None
    other, d = np.abs(W.mid), W.mid.shape[-2]
    moved = (x.noise @ other + x.size @ W.own) * ENLARGE**2 + underflow(counted > 0, 4 * d)
    error = sum_error(at, max(int(counted.max()) if counted.size else 0, 1))
    are_powers = (is_power(W.mid) & (W.own == 0)).all(-2, keepdims=True)
    in_products = np.where(are_powers, 0.0, error[1])
    result = (np.abs(x.mid @ W.mid) + moved + in_products * reach) * ENLARGE
    partial = (reach * (1 + in_products) + result) / 2 * ENLARGE
    rounding = error[np.maximum(counted - 2, 0)] * partial * (1 + error[1])
    local = in_products * reach + rounding + np.where(counted > 1, error[1], 0.0) * result
    bits = min(at.stored.p, at.accumulate.p if at.accumulate else at.stored.p)
    grid = multiples(x.mid, -1) + multiples(W.mid, -2)
    held = (np.abs(x.mid) @ other) * np.exp2(np.minimum(grid, 64)) <= 2.0**bits
    held &= np.isfinite(grid) & (counted <= 40)
    local = np.where(held, np.minimum(local, moved * np.exp2(counted + 1.0)), local)
    float64 = 2 * gamma(d + 8) * np.where(held, moved, reach)
    lost = at.lost_in_sums(1) * np.where(counted == 0, 0, counted + 2).astype(np.float64)
    grown = np.where(held, reach + moved * np.exp2(counted + 1.0), reach * (1 + error[counted]) ** 2)
    return np.asarray(at.checked(grown, local + lost) + float64)


@lru_cache(maxsize=4)
def kinds(numbers: bytes, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different columns of a matrix, which of them each column is, and how often each occurs."""
    W = np.frombuffer(numbers).reshape(shape)
    return np.unique(W, axis=-1, return_inverse=True, return_counts=True)


def product_of_alike(at: Allowed, x: Noisy, W: Noisy, name: str) -> Noisy:
    """x @ W where equal columns are one: in real arithmetic they bring one number, whose error they share."""
    if not at.is_real or W.own.any():
        return product(at, x, W)
    columns, place, times = kinds(W.mid.tobytes(), W.mid.shape)
    several = np.flatnonzero(times > 1).tolist()
    if not 0 < len(several) <= ALIKE:
        return product(at, x, W)
    found = product(at, x, Noisy.exact(columns)).each(lambda a: a[..., place])
    shared = {f"{name}.{i}": np.where(place == i, found.own, 0.0) for i in several}
    return Noisy(found.mid, np.where(times[place] > 1, 0.0, found.own), {**found.shared, **shared})


def plus(at: Allowed, x: Noisy, y: Noisy) -> Noisy:
    """x + y, exact where one of them is exactly 0."""
    mid = x.mid + y.mid
    noise, size = (x.noise + y.noise) * ENLARGE, (x.size + y.size) * ENLARGE
    local = 2 * U * size
    if not at.is_real:
        assert at.stored is not None
        relative = at.u * size
        holds = rounded(mid, at.stored) == mid
        exact = (np.abs(x.mid) + np.abs(y.mid) <= 2.0**20) & (multiples(mid[..., None], -1)[..., 0] < np.inf)
        relative = np.where(holds & exact, np.minimum(relative, noise), relative)
        local = at.checked(size, local + relative + at.tiny)
    is_exact = x.is_zero | y.is_zero
    local = np.where(is_exact, 0.0, local) if bool(is_exact.any()) else local
    both = {q: x.shared[q] + y.shared[q] for q in x.shared.keys() & y.shared.keys()}
    shared = {q: np.broadcast_to(G, mid.shape) for q, G in {**x.shared, **y.shared, **both}.items()}
    return Noisy(mid, (x.own + y.own + local) * ENLARGE, shared)


def some(are: np.ndarray) -> np.ndarray:
    """The places of those that are true; the first where none is, so that what is no number there is met."""
    return np.flatnonzero(are) if bool(are.any()) else np.zeros(1, int)


def lanes_read(at: Allowed, layer: NormArrays | None, W: np.ndarray) -> Lanes:
    """The numbers of a normalised row that W (d, f) reads: all, but in real arithmetic those that it multiplies by 0.

    A row that is no number somewhere is so everywhere once it is normalised, and a layer's numbers are looked at here.
    """
    if layer is None or not at.is_real:
        return slice(None)
    return some((W != 0).any(1) | ~np.isfinite(layer.weight) | ~np.isfinite(layer.bias))


def layer_norm(at: Allowed, x: Noisy, layer: NormArrays | None, name: str, lanes: Lanes = slice(None)) -> Noisy:
    """(x - mean) / s, times the weight, plus the bias, of these numbers of rows; nothing where the layer is none.

    One mean m and one s serve a row: they are the shared errors `name`.m and `name`.s. |s - s(mid)| is at most the root
    mean square of the noise, as the standard deviation is a seminorm. In a dtype m is off by what sums over d numbers
    are, s by what sums of squares are, and each number of the row by its own roundings, relative to |x_i| + |m|: of
    x_i - m and of its quotient by s, or of the products with 1/s and their difference; more with a weight or a bias.
    A shared error G moves x_i - m by G_i - mean(G), times what 1/s is off by relatively: an error of x_i's own, or
    where few numbers of G are large, G_i its own and mean(G), as the mean is, one for the row.

    eps may be any number: s is found without squares of numbers that are not scaled, and where it may be 0, or is no
    number, nothing is known of the row. What float64 loses to underflow before 1/s is multiplied by it, and what it
    loses of the gain, 1/s times a weight, by x_i - m.
    """
    if layer is None:
        return x.each(lambda a: a[..., lanes])
    d = x.mid.shape[-1]
    weight, bias = at.tensor(layer.weight[lanes]), at.tensor(layer.bias[lanes])
    centre = total(x.mid) / d
    size, noise = x.size, x.noise
    sizes = total(size)
    is_some = sizes > 0
    mean_noise = total(noise) / d * ENLARGE
    mean_size = sizes / d * (1 + gamma(d + 4))
    m_error = (total(x.own) / d + (gamma(d + 8) + at.off_in_mean(d)) * mean_size) * ENLARGE
    m_error = m_error + underflow(is_some, 8) + (0.0 if at.is_real else at.lost_in_sums(d))
    c = x.mid - centre
    r, r_error = inverse_deviation(at, c, noise, size, layer.eps)
    each = 4 * U
    if not at.is_real:
        is_plain = bool((weight.mid == 1).all() and (bias.mid == 0).all())
        each += (2 if is_plain else 5) * at.u
    gain = r * weight.mid
    mid = c[..., lanes] * gain
    means = {q: total(G) / d for q, G in x.shared.items()}
    centred = {q: G - means[q] for q, G in x.shared.items()}
    own, spread, common = x.own[..., lanes], x.own[..., lanes], np.zeros_like(centre)
    for q, G in x.shared.items():
        largest, moved = np.abs(G), np.abs(centred[q])
        is_sparse = total(largest) <= SPARSE * total(moved)
        largest, moved = largest[..., lanes], moved[..., lanes]
        if bool(is_sparse.any()):
            moved = np.where(is_sparse, largest, moved)
            common = common + np.abs(np.where(is_sparse, means[q], 0.0))
        spread = spread + moved
    lost = underflow(is_some, 8 + 4 * len(x.shared))
    spread, common = spread * ENLARGE, common * ENLARGE + lost
    reach = size[..., lanes] + np.abs(centre) + mean_noise + m_error + lost
    local = each * reach + r_error * spread + gamma(d + 8) * (noise[..., lanes] + mean_noise) + lost
    own = ((own + local) * (1 + r_error) * np.abs(gain) + each * np.abs(bias.mid)) * ENLARGE
    if weight.own.any() or bias.own.any():
        own = own + (reach * r * (1 + r_error) * weight.own + bias.own) * 2
    own = own + (weight.mid != 0) * (2 * reach * (1 + r_error) * LEAST + lost)
    if not at.is_real:
        is_flushed = np.abs(gain) <= 2 * at.tiny  # the gain itself, where it is computed first
        own = own + 4 * at.tiny * (1 + weight.size + np.abs(gain) * (1 + r_error))
        own = own + np.where(is_flushed, np.abs(gain) * reach, 0.0)
        squares = np.square(size).mean(-1, keepdims=True) * (1 + gamma(d + 4)) * 2 * d
        steep = np.broadcast_to(2 * r * (1 + r_error), own.shape)
        own = at.checked(np.maximum(squares, loudest(reach, steep, weight.size, bias.size)), own)
    shared = {q: G[..., lanes] * gain for q, G in centred.items()}
    shared[f"{name}.m"] = np.broadcast_to((m_error * (1 + r_error) + r_error * common) * gain, mid.shape) * ENLARGE
    shared[f"{name}.s"] = r_error * mid
    return Noisy(mid + bias.mid, own * ENLARGE, shared)


def loudest(reach: np.ndarray, steep: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A bound on all numbers on a dtype's way from rows to w (x - m) / s + b, where numbers and means are of the size
    `reach` and 1/s is computed as `steep` at most: w/s, x w/s and (x - m) / s among them."""
    return np.asarray((2 * np.maximum(weight, 1) * (reach + 1) * steep + 2 * bias) * ENLARGE)


def activate(at: Allowed, x: Noisy, activation: str) -> Noisy:
    """ReLU; GELU by its tangent, |f''| < 0.8 so that it is within 0.4 (x - mid)^2 of that, or by ReLU far from 0."""
    noise = x.noise
    if activation == "relu":
        is_on, is_off = x.mid - noise > 0, x.mid + noise <= 0
        half = box(np.zeros_like(x.mid), np.maximum(x.mid + noise, 0) * ENLARGE)
        is_narrow = noise < 2.0**-16  # a whole number stays one: ReLU moves no further than its argument
        mid = np.where(is_on, x.mid, np.where(is_off, 0.0, np.where(is_narrow, np.maximum(x.mid, 0), half.mid)))
        own = np.where(is_on, x.own, np.where(is_off, 0.0, np.where(is_narrow, noise, half.own)))
        return Noisy(mid, own, {q: np.where(is_on, G, 0.0) for q, G in x.shared.items()})
    value, error, slope = gelu(at, x.mid, activation)
    # the tanh form's slope is within 0.01 of this one; functions are within 2^-40 here
    off = 0.01 if activation == "gelu_tanh" else OF_MANY
    rest = np.minimum(0.4 * np.square(noise) + off * noise, 2.5 * noise)
    wider = 0.0 if at.is_real else ULPS * at.u * noise  # the dtype's GELU is off relative to |x|
    near = error + np.abs(slope) * x.own + rest + wider + underflow(x.size > 0, 8 + 2 * len(x.shared))
    rest = saturation(np.abs(x.mid) * (1 - OF_FEW) - noise, activation)
    far = np.where(x.mid > 0, x.own, 0.0) + rest + (0.0 if at.is_real else ULPS * at.u * x.size + 4 * at.tiny)
    is_far = far < near
    slope = np.where(is_far, (x.mid > 0).astype(np.float64), slope)
    mid = np.where(is_far, np.maximum(x.mid, 0), value)
    return Noisy(mid, np.where(is_far, far, near) * ENLARGE, {q: G * slope for q, G in x.shared.items()})


def gelu(at: Allowed, x: np.ndarray, activation: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """GELU of numbers, what it may be off by, and its slope, up to 2^-40: by the engine's rule, of arrays.

    It is x (1 + erf(x / sqrt 2)) / 2, where x / sqrt 2 is off by 2 u of itself, which moves erf by less than u; or
    x / (1 + e^-2y), where 2y is off by 8 u of itself, which moves the quotient by at most 0.28 of that. Some kernels
    halve last.
    """
    size, square = np.abs(x), np.square(x)
    below = (1 + erf(x * 0.5**0.5)) / 2
    if activation == "gelu":
        share, off = below, erf_error() / 2 + 4 * U
    else:
        inner = ROOT_2_OVER_PI * (x + CUBE * x * x * x)
        e = decay(np.abs(2 * inner))
        low = e / (1 + e)
        share, off = np.where(inner >= 0, 1 - low, low), (exp_error() / 4 + 4 * U) * ENLARGE + LOST + 16 * U
    error = at.checked(2 * size, size * off + LOST) + ULPS * size * at.u + (0.0 if at.is_real else at.tiny)
    slope = below + x * decay(square / 2) * 0.3989422804014327
    return x * share, error * ENLARGE, slope


def saturation(least: np.ndarray, activation: str) -> np.ndarray:
    """An upper bound on |GELU(x) - ReLU(x)| where |x| is at least `least`; infinite below 2.

    It is |x| Phi(-|x|), which is less than the normal density at x and falls from 2 on; in the tanh form it is
    |x| / (1 + e^(2 y)) with y at least 0.795 (|x| + 0.0447 |x|^3), which falls there too.
    """
    if activation == "gelu":
        found = 0.39895 * np.exp(-np.square(least) / 2)
    else:
        found = least * np.exp(-1.59 * (least + 0.0447 * least**3))
    return np.where(least >= 2, found * INFLATION + LOST, np.inf)


def carried(x: Noisy, W: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What rows' own errors move the differences of x @ W to its right column by: (rows, columns of W)."""
    out = np.empty((len(right), W.shape[1]))
    for answer in sorted(set(right.tolist())):
        rows = right == answer
        out[rows] = (x.own[rows] @ np.abs(W - W[:, answer : answer + 1])) * ENLARGE**2 + len(W) * LEAST
    return out


def margins(x: Noisy, right: np.ndarray, more: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on (logit of the right class) - (largest other) of rows of logits.

    `more` (rows, classes) is what each difference to the right class may be off by besides. All are sums, and what
    float64 rounds of sums is relative to their terms, 0 where 4 U of them underflows.
    """
    rows = np.arange(len(right))
    gap = x.mid[rows, right][:, None] - x.mid
    noise = x.own[rows, right][:, None] + x.own + (0.0 if more is None else more)
    for G in x.shared.values():
        noise = noise + np.abs(G[rows, right][:, None] - G)
    noise = noise * ENLARGE + 4 * U * (x.size[rows, right][:, None] + x.size)
    low = np.where(np.isnan(gap - noise), -np.inf, gap - noise)
    high = np.where(np.isnan(gap + noise), np.inf, gap + noise)
    low[rows, right] = high[rows, right] = np.inf
    return low.min(1), high.min(1)
