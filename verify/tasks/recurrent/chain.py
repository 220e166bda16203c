"""A chain of ellipsoids, each of which one step of the network maps into the next: the rigorous half of every proof.

E_t = {P_t + L_t e : |e| <= 1}. Centres P_t and matrices L_t are found in floats, by whatever means; what is checked
here is that computing one step from any state of E_t ends in E_(t+1), and by how much the right class wins on E_t.

Lemma. Let J hold the derivatives of the step f over the box around E_t, M be any matrix with |I - M L_(t+1)| <= beta
< 1, and let every computed step be within delta of f. If

    |M (f(P_t) - P_(t+1))| + |M J L_t| + |M| delta <= 1 - beta     (l2 norms)

then all computed steps from E_t end in E_(t+1). Proof: by the mean value theorem, row by row, f(P_t + L_t e) - f(P_t)
= J' L_t e for a matrix J' with each row within J. So y = computed - P_(t+1) has |M y| <= 1 - beta. As M L_(t+1) is
within beta of I, it is invertible, and L_(t+1)^-1 y = (M L_(t+1))^-1 M y has norm at most |M y| / (1 - beta) <= 1.

The second and the third term together may be replaced by the norm of [sqrt(1 + q) G, sqrt(1 + 1/q) K] for any q > 0,
where J L_t = A + R, G = M A, K = M diag(D_j / sqrt(w_j)), D_j = delta_j + |row j of R| and the w_j > 0 sum to at most
1: (J' L_t e)_j differs from (A e)_j by at most |row j of R|, and all x with |x_j| <= D_j are diag(D_j / sqrt(w_j)) d
with |d| <= 1. For a unit vector v, v (G e + K d) <= |G^T v| + |K^T v|, which is at most
sqrt((1 + q) |G^T v|^2 + (1 + 1/q) |K^T v|^2) by Cauchy and Schwarz. The first term may join
them, as one more column M (f(P_t) - P_(t+1)) / sqrt(w_0) of K times sqrt(w_0): all w_j and w_0 sum to at most 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, joined
from verify.arithmetic.norms import LOST, frobenius, length, spectral_norm
from verify.arithmetic.slack import ENLARGE, OF_MANY, Array, gamma
from verify.tasks.recurrent.enclosures import Balls, Dual, Duals, Roundings
from verify.tasks.recurrent.network import Network, nonzeros, step


@dataclass(frozen=True)
class Ellipsoids:
    """Centres (T, N), and matrices (T, N, N) that are the `shapes` times 2^exponents (T,)."""

    centres: Array
    shapes: Array
    exponents: Array

    def __len__(self) -> int:
        return len(self.centres)

    def __getitem__(self, where: slice | np.ndarray) -> Ellipsoids:
        """Those at the places, which may come in any order and several times."""
        return Ellipsoids(self.centres[where], self.shapes[where], self.exponents[where])

    @classmethod
    def of(cls, centres: Array, matrices: Array) -> Ellipsoids:
        """Scales matrices by powers of two, so that their largest entries are about 1."""
        with np.errstate(all="ignore"):
            size = np.abs(matrices).max(axis=(1, 2))
            exponents = np.where(size > 0, np.frexp(size)[1], 0)
            return cls(centres, matrices * np.ldexp(1.0, -exponents)[:, None, None], exponents)

    @classmethod
    def joined(cls, *parts: Ellipsoids) -> Ellipsoids:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__))

    @property
    def scales(self) -> Array:
        return np.ldexp(1.0, self.exponents)

    def widths(self) -> Array:
        """Upper bounds on half the sides of the boxes around them: the lengths of the rows."""
        n = self.shapes.shape[-1]
        lengths: Array = np.sqrt((self.shapes**2).sum(-1)) * (1 + gamma(n + 8)) + LOST  # squares underflow
        return np.asarray(lengths * self.scales[:, None] * ENLARGE + LOST)


@dataclass(frozen=True)
class Rules:
    """What a step may compute: exactly the real one, or anything that rounding in any order gives."""

    at: RoundedArithmetic | None = None


def excess(
    net: Network,
    token: int,
    chain: Ellipsoids,
    after: Ellipsoids,
    rules: Rules,
    *,
    is_joint: bool = False,
    image: Ball | None = None,
) -> Array:
    """For each t, an upper bound on the left-hand side of the lemma over 1 - beta: at most 1 proves the step (T,).

    Where it `is_joint`, all three terms are bounded together if that is sharper; saved rings are checked without it.
    The `image` is the chain's `derivative`, where it is known.
    """
    with np.errstate(all="ignore"):
        inverse = _inverses(after.shapes)
        identity = Ball.exact(np.eye(net.size)) - Ball.exact(inverse) @ Ball.exact(after.shapes)
        beta = frobenius(identity)
        moved = _residual(net, token, chain, after, inverse)
        image = derivative(net, token, chain) if image is None else image
        delta = _rounding(net, token, chain, rules)
        total = (length(moved) + _widened(image, delta, chain, after, inverse)) * ENLARGE
        unsure = np.flatnonzero(is_joint & (beta < 0.5) & (total > 1 - beta) & np.isfinite(length(moved)))
        if len(unsure):
            off = None if delta is None else delta[unsure]
            there = chain[unsure], after[unsure], inverse[unsure]
            total[unsure] = np.minimum(total[unsure], _together(image[unsure], moved[unsure], off, *there))
        return np.where(beta < 0.5, total / (1 - beta) * ENLARGE, np.inf)


def _inverses(shapes: Array) -> Array:
    """Approximate inverses; zeros, which prove nothing, where there is none."""
    out = np.zeros_like(shapes)
    for t, shape in enumerate(shapes):
        try:
            out[t] = np.linalg.inv(shape)
        except np.linalg.LinAlgError:
            continue
    return np.where(np.isfinite(out), out, 0.0)


def _residual(net: Network, token: int, chain: Ellipsoids, after: Ellipsoids, inverse: Array) -> Ball:
    """M (f(P_t) - P_(t+1))."""
    point = Ball.exact(chain.centres)
    image = joined(*step(net, cut(net, point), token, Balls()))
    off = (image - Ball.exact(after.centres)) * Ball.exact(1 / after.scales)[:, None]
    return (Ball.exact(inverse) @ off[..., None])[..., 0]


def _widened(image: Ball, delta: Array | None, chain: Ellipsoids, after: Ellipsoids, inverse: Array) -> Array:
    """The largest |M J L e + M d| over |e| <= 1 and all |d_j| <= delta_j; `image` is J L, without its scale."""
    ratio = np.ldexp(1.0, chain.exponents - after.exponents)
    G = _scaled(Ball.exact(inverse) @ image, ratio)
    alone = spectral_norm(G)
    if delta is None:
        return alone
    scaled = delta / after.scales[:, None]
    moved = (np.abs(inverse) @ scaled[..., None])[..., 0]
    by_size = np.sqrt((moved**2).sum(-1)) * (1 + gamma(2 * moved.shape[-1] + 12)) + LOST
    A, varied = _parted(image, ratio, inverse)
    found, D = (alone + by_size) * ENLARGE, (scaled + varied + LOST) * ENLARGE
    for weights in (D, D * np.sqrt((inverse**2).sum(-2))):
        K = _columns(inverse, D, weights)
        found = np.minimum(found, spectral_norm(_beside(A, K, _best_q(A.mid, K.mid))))
    return np.where(np.isfinite(delta).all(-1), found, np.inf)


def _together(
    image: Ball, moved: Ball, delta: Array | None, chain: Ellipsoids, after: Ellipsoids, inverse: Array
) -> Array:
    """The largest |M (f(P_t) - P_(t+1)) + M J L e + M d|, all three bounded together."""
    A, varied = _parted(image, np.ldexp(1.0, chain.exponents - after.exponents), inverse)
    D = ((0.0 if delta is None else delta / after.scales[:, None]) + varied + LOST) * ENLARGE
    found, columns = np.full(len(inverse), np.inf), np.sqrt((inverse**2).sum(-2))
    far = length(moved)
    for weights in (columns, np.broadcast_to(np.median(columns, axis=-1, keepdims=True), columns.shape)):
        w = _shares(np.concatenate([D * weights, far[:, None]], axis=-1))
        K = Ball.exact(inverse) * Ball.exact(D / np.sqrt(w[:, :-1]) * ENLARGE)[:, None, :]
        k = (moved * Ball.exact(ENLARGE / np.sqrt(w[:, -1]) * ENLARGE)[:, None])[..., None]
        whole = joined(K, k)
        found = np.minimum(found, spectral_norm(_beside(A, whole, _best_q(A.mid, whole.mid))))
    return np.where(np.isfinite(D).all(-1), found, np.inf)


def _parted(image: Ball, ratio: Array, inverse: Array) -> tuple[Ball, Array]:
    """M A, and the lengths of the rows of R, where J L = A + R and `image` is J L, both times the ratio of the scales.

    The rows are scaled before they are squared, so that what underflows there is far below LOST in the result.
    """
    lengths = np.sqrt(((image.rad * ratio[:, None, None]) ** 2).sum(-1)) * (1 + gamma(inverse.shape[-1] + 8))
    return _scaled(Ball.exact(inverse) @ Ball(image.mid, np.zeros_like(image.rad)), ratio), lengths


def _scaled(x: Ball, factor: Array) -> Ball:
    """Times a power of two."""
    return Ball(x.mid * factor[:, None, None], x.rad * factor[:, None, None] + LOST)


def _columns(inverse: Array, D: Array, weights: Array) -> Ball:
    """M diag(D_j / sqrt(w_j)), w proportional to the weights."""
    return Ball.exact(inverse) * Ball(D / np.sqrt(_shares(weights)) * ENLARGE, np.zeros_like(D))[:, None, :]


def _shares(weights: Array) -> Array:
    """Positive numbers w_j about proportional to the weights that sum to at most 1."""
    size = np.where(np.isfinite(weights), weights, 1.0) + LOST
    shares: Array = size / size.sum(-1, keepdims=True) * (1 - OF_MANY) + 2.0**-60
    return shares


def _best_q(G: Array, K: Array) -> Array:
    """The q, of some, for which the norm of both together is least, in floats."""
    A, B = (np.where(np.isfinite(x), x, 0.0) @ np.swapaxes(np.where(np.isfinite(x), x, 0.0), -1, -2) for x in (G, K))
    ratio = np.sqrt(np.trace(B, axis1=-2, axis2=-1) / (np.trace(A, axis1=-2, axis2=-1) + LOST))
    q = np.clip(ratio * 2.0 ** np.arange(-3, 3.25, 0.25)[:, None], 2.0**-20, 2.0**20)
    weighted = (1 + q)[..., None, None] * A + (1 + 1 / q)[..., None, None] * B
    size = np.linalg.eigvalsh(np.where(np.isfinite(weighted), weighted, 0.0))[..., -1]
    best: Array = np.take_along_axis(q, size.argmin(0)[None], 0)[0]
    return best


def _beside(G: Ball, K: Ball, q: Array) -> Ball:
    """The transpose of [sqrt(1 + q) G, sqrt(1 + 1/q) K]."""
    parts = []
    for x, square in ((G, 1 + q), (K, 1 + 1 / q)):
        weighted = x * Ball.exact(np.sqrt(square) * ENLARGE)[:, None, None]
        parts.append(Ball(np.swapaxes(weighted.mid, -1, -2), np.swapaxes(weighted.rad, -1, -2)))
    return joined(*parts, axis=-2)


def _rounding(net: Network, token: int, chain: Ellipsoids, rules: Rules) -> Array | None:
    """By how much each number of a computed state may be off; None where nothing is rounded."""
    if rules.at is None:
        return None
    box = Ball(chain.centres, chain.widths())
    on = Roundings(rules.at)
    state = [on.held(part) for part in cut(net, box)]
    delta: Array = np.concatenate([off.error for off in step(net, state, token, on)], axis=-1)
    return delta


def derivative(net: Network, token: int, chain: Ellipsoids) -> Ball:
    """J L_t 2^-exponent, J the derivatives of one step by the state over each ellipsoid: shape (T, N, N)."""
    N = net.size
    box, slope, centre = Ball(chain.centres, chain.widths()), Ball.exact(chain.shapes), Ball.exact(chain.centres)
    parts = zip(cut(net, box), rows(net, slope), cut(net, centre), strict=True)
    after = step(net, [Dual(*part) for part in parts], token, Duals(chain.scales, N))
    return joined(*(part.slope for part in after), axis=-2)


def cut(net: Network, x: Ball) -> list[Ball]:
    H = net.hidden
    return [x[..., k * H : (k + 1) * H] for k in range(net.size // H)]


def rows(net: Network, x: Ball) -> list[Ball]:
    """The rows of matrices (T, N, N) that belong to each vector of the state."""
    H = net.hidden
    return [x[:, k * H : (k + 1) * H] for k in range(net.size // H)]


@dataclass(frozen=True)
class EllipsoidMargins:
    """Over each ellipsoid: a lower bound on (right logit) - (largest other), and an upper bound on it (T,)."""

    low: Array
    high: Array
    best_other: np.ndarray


def margins(net: Network, chain: Ellipsoids, expected: Sequence[int], rules: Rules) -> EllipsoidMargins:
    """How far the right class wins on each ellipsoid, and at most.

    A difference of two logits is v x + b. On E_t it is within |L_t^T v| of its value at P_t.
    """
    T, C = len(chain), len(net.b)
    right = np.asarray(expected, dtype=int)
    places, rows = chain.centres[:, net.read], chain.shapes[:, net.read]
    v = Ball.exact(net.V[right])[:, None, :] - Ball.exact(net.V)[None]  # (T, C, H)
    b = Ball.exact(net.b[right])[:, None] - Ball.exact(net.b)[None]
    value = (v @ Ball.exact(places)[..., None])[..., 0] + b
    reach = length(v @ Ball.exact(rows)) * chain.scales[:, None] * ENLARGE + LOST
    if rules.at is not None:
        box = Ball(places, chain.widths()[:, net.read])
        on = Roundings(rules.at)
        off = on.linear(net.V, on.held(box), net.b, nonzeros(net.V, net.b)).error
        reach = (reach + off + np.take_along_axis(off, right[:, None], 1)) * ENLARGE
    low, high = value.lower - reach, value.upper + reach
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    own = np.arange(C)[None] == right[:, None]
    low, high = np.where(own, np.inf, low), np.where(own, np.inf, high)
    low = np.where(np.isnan(low), -np.inf, low)
    high = np.where(np.isnan(high), np.inf, high)
    if T == 0:
        return EllipsoidMargins(np.zeros(0), np.zeros(0), np.zeros(0, dtype=int))
    return EllipsoidMargins(low.min(1), high.min(1), high.argmin(1))
