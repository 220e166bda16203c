"""Weights for contextual counting: place every 1 in its region, attend to one region, read the bias token's share.

Encoder. Every token attends equally to BOS and to the delimiters so far, with values +1 for "[" and -1 for "]": its
position lane is y = 1/(2r) inside region r (1/(2r-1) without BOS) and 0 outside. Half-way between regions j and j+1
the line A_j y - c_j crosses zero, and it is +1 in region j and -1 in region j+1; A_j and c_j are integers. The
feed-forward layer is made of these lines, so every penalty below is exactly zero at its region and at least one at
all others, whatever the small error of y.

Decoder. The score of prompt r is minus kappa times the penalties, so the 1s of region r and the bias tokens have
score 0 and everything else at most -kappa. With k ones and B bias tokens the bias has the share B/(k+B), which a
staircase of lines turns into k.
"""

from __future__ import annotations

import math

import numpy as np

from constructions.errors import BadInput, shown
from constructions.model_arrays import LARGEST, UNITS, Array, ModelArrays
from constructions.readout_arrays import staircase_at

TOKENS = ("0", "1", "[", "]", "BOS")
ZERO, ONE, OPEN, CLOSE, BOS = range(5)
WEIGHTS = ("E", "W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2", "P", "U_Q", "U_K", "U_V", "W_out", "b_out")

BIASES = {"BOS": BOS, "]": CLOSE, "0": ZERO}
KEYS = ("onehot", "convex")
MOST_PARAMETERS = 1 << 28  # 2 GiB in float64
POSITION, KEY = 5, 6  # the stream's lanes after the five token lanes
PLACE, HEIGHT = KEY, KEY + 1  # of the convex keys


def build(
    N: int,
    R: int,
    *,
    bias: str = "BOS",
    keys: str = "onehot",
    zeros: int | None = None,
    dtype: str = "float32",
    u: float | None = None,
) -> ModelArrays:
    """The transformer that counts the ones of each of R regions in strings of length up to N.

    Claim: B-2.1, B-2.2 and their composition, B-3.4 (Prop. 2.1, 2.2, Sec. 3.4). Departures: "]" has the value -1 and
        BOS is attended to, so the outside is at 0; the feed-forward layer selects the region, since no score linear in
        y can (W-11); the count is read from the bias token's share alone, which is a sum of few terms.
    Shapes: d = 6 + R and p = 2R - 1 (onehot: a lane per region), or d = 8 and p = R + 1 (convex: the points
        (y, height(y)) on a convex polygon with an edge per region).
    Units: `zeros` is the number of 0 tokens that bias "0" is calibrated for (default: half of the N - 2R digits); u the
        unit round-off of the arithmetic to build for (default: the dtype's).
    Raises: BadInput for N < 1, R < 1, an unknown bias or keys, or sizes beyond the dtype.

    >>> build(16, 3).W_out.shape
    (1, 17)
    """
    check(N, R, bias, keys, zeros)
    is_onehot = keys == "onehot"
    d, p, e = (KEY + R, 2 * R - 1, R + 1) if is_onehot else (KEY + 2, R + 1, 4)
    model = zero(d=d, p=p, R=R, classes=N + 1, e=e, bos=bias == "BOS", dtype=dtype)
    u = UNITS[dtype] if u is None else u
    kappa = temperature(N, u) if is_onehot else real_temperature(N)
    fill_positions(model, temperature(N, u))
    model.P[:, ONE] = 1  # a lane that is 1 for every prompt
    fill = fill_onehot if is_onehot else fill_convex
    fill(model, BIASES[bias], kappa)
    model.W_1[BIASES[bias]] -= gate(R)
    model.U_V[BIASES[bias], 0] = 1
    model.W_out[0], model.b_out[:] = readout(N, bias_count(N, R, bias, zeros), dtype, u)
    model = model.rounded()
    for name, weight in model.named_parameters():
        if not np.isfinite(weight).all():
            raise BadInput(f"N={N}, R={R}: {name} exceeds the largest {dtype} {LARGEST[dtype]:g}; choose a wider dtype")
    return model


def check(N: int, R: int, bias: str, keys: str, zeros: int | None) -> None:
    """Raises BadInput unless the sizes and names are known."""
    if N < 1:
        raise BadInput(f"N={N}: must be at least 1 (a string has at least one token)")
    if R < 1:
        raise BadInput(f"R={R}: must be at least 1 (each prompt asks for one region)")
    if R * (R + N) > MOST_PARAMETERS:
        raise BadInput(f"N={shown(N)}, R={shown(R)}: mean more than {MOST_PARAMETERS} parameters. Choose smaller ones.")
    if bias not in BIASES:
        raise BadInput(f"bias={bias!r}: must be one of {', '.join(BIASES)}")
    if keys not in KEYS:
        raise BadInput(f"keys={keys!r}: must be one of {', '.join(KEYS)}")
    if zeros is not None and (bias != "0" or zeros < 1):
        raise BadInput(f"zeros={zeros}: must be at least 1, and only bias 0 counts zeros")


def bias_count(N: int, R: int, bias: str, zeros: int | None = None) -> int:
    """How many bias tokens the readout expects.

    >>> [bias_count(512, 4, bias) for bias in ("BOS", "]", "0")]
    [1, 4, 252]
    """
    return {"BOS": 1, "]": R, "0": zeros or max(1, (N - 2 * R) // 2)}[bias]


def temperature(N: int, u: float) -> int:
    """An integer kappa at which N leaking tokens leave a sum of up to N + 1 ones exact, in every order.

    Their weights can double at most 2 log2(N + 1) + 4 times on the way up a summation tree (docs/contextual.md), so
    16 (N+1)^2 N e^-kappa <= u/4 is enough. It costs nothing where the scores of what is attended to are exactly 0.

    >>> temperature(512, 2.0**-24), temperature(512, 2.0**-53)
    (40, 60)
    """
    return math.ceil(math.log(64 * N * (N + 1) ** 2 / u))


def real_temperature(N: int) -> int:
    """An integer kappa with N e^-kappa <= 1/8: of the half count that the readout allows, leaks take a quarter.

    Convex keys cancel numbers of size kappa R^2 to reach their zero, so a larger kappa would cost precision.

    >>> real_temperature(512)
    9
    """
    return math.ceil(math.log(8 * N))


def line(j: int, has_bos: bool) -> tuple[int, int]:
    """Integers A, c with A y - c = 1 at region j and -1 at region j + 1.

    Claim: B-2.2: y = 1/(2j) with BOS, 1/(2j-1) without.

    >>> line(1, True), line(2, False)
    ((8, 3), (15, 4))
    """
    return (4 * j * (j + 1), 2 * j + 1) if has_bos else (4 * j * j - 1, 2 * j)


def gate(R: int) -> int:
    """More than any neuron can reach at R regions: subtracted where the token is a bias token.

    The largest is line R at region 1, 2R^2 - 1 with BOS and 4R^2 - 2R - 1 without.

    >>> gate(4)
    64
    """
    return 4 * R * R


def fill_positions(model: ModelArrays, kappa: int) -> None:
    """Attention to BOS and the delimiters: y = (open - closed) / (BOS + open + closed)."""
    model.E[:, :POSITION] = np.eye(POSITION)
    model.W_Q[:POSITION] = 1
    model.W_K[[OPEN, CLOSE, BOS], 0] = kappa
    model.W_V[OPEN, 0], model.W_V[CLOSE, 0] = 1, -1
    model.W_O[0, POSITION] = 1


def fill_onehot(model: ModelArrays, bias: int, kappa: int) -> None:
    """Lane r is 0 in region r and at least 1 elsewhere: too far down by line r, or too far up by line r - 1."""
    R = model.R
    for j in range(1, R + 1):
        A, c = line(j, model.has_bos)
        model.W_1[POSITION, j - 1], model.b_1[j - 1] = -A, c
        model.W_2[j - 1, KEY + j - 1] = 1
        if j < R:
            model.W_1[POSITION, R + j - 1], model.b_1[R + j - 1] = A, -c
            model.W_2[R + j - 1, KEY + j] = 1
        model.P[j - 1, KEY + j - 1] = 1
        model.U_Q[KEY + j - 1, j - 1], model.U_K[KEY + j - 1, j - 1] = 1, -kappa
    fill_penalty(model, bias, R, kappa)


def fill_convex(model: ModelArrays, bias: int, kappa: int) -> None:
    """Keys (y, height) on a convex polygon: prompt r is the normal of the edge at region r.

    height = sum over j of ReLU(A_j y - c_j), so (sum over j >= r of A_j y - c_j) - height is 0 in region r only.
    """
    R = model.R
    model.W_1[POSITION, R], model.W_2[R, PLACE] = 1, 1
    for j in range(1, R + 1):
        A, c = line(j, model.has_bos)
        model.W_1[POSITION, j - 1], model.b_1[j - 1] = A, -c
        model.W_2[j - 1, HEIGHT] = 1
        steeper = [line(i, model.has_bos) for i in range(j, R + 1)]
        model.P[j - 1, PLACE], model.P[j - 1, POSITION] = sum(A for A, _ in steeper), sum(c for _, c in steeper)
    model.P[:, HEIGHT] = 1
    for i, (lane, sign) in enumerate(((PLACE, 1), (HEIGHT, -1))):
        model.U_Q[lane, i], model.U_K[lane, i] = 1, sign * kappa
    model.U_Q[POSITION, 2] = 1
    others = [t for t in range(POSITION) if t != bias]
    model.U_K[others, 2] = -kappa
    fill_penalty(model, bias, 3, kappa)


def fill_penalty(model: ModelArrays, bias: int, i: int, kappa: int) -> None:
    """Coordinate i of the keys keeps every prompt away from what is neither a 1 nor a bias token."""
    model.U_Q[ONE, i] = 1
    model.U_K[[t for t in range(POSITION) if t not in (ONE, bias)], i] = -kappa


def readout(N: int, B: int, dtype: str, u: float) -> tuple[Array, Array]:
    """Lines of which line k is the highest where the bias share is B/(k+B).

    It meets line k+1 at the geometric mean of both shares: as far, relatively, from either, and irrational, so that no
    other number of bias tokens leads to a tie.
    """
    powers = min(64.0, math.log2(LARGEST[dtype]) / 2)
    growth = readout_growth(N, B, powers, u)
    thresholds = [B / math.sqrt((k + B) * (k + B + 1)) for k in range(N)]
    return staircase_at(thresholds, True, dtype, growth=growth)


def readout_growth(N: int, B: int, powers: float, u: float) -> float:
    """The factor from one step of the slopes to the next: 1 where that leaves room for rounding.

    With steps 1 the margin of count N over N - 1 is B/(2 (N+B)^2), and both logits, sums of a product of at most B
    and an intercept of at most B (1 + ln(N+B)), are rounded: steps 1 must leave half of it. With geometric steps, here
    over `powers` powers of two, margins and logits grow alike and the margin is about log(growth)/N of the logit.

    >>> readout_growth(256, 1, 64, 2.0**-24), readout_growth(64, 1, 64, 2.0**-8)
    (1.0, 2.0)
    """
    if 4 * u * (2 + math.log(N + B)) * (N + B) ** 2 <= 0.5:
        return 1.0
    return float(2.0 ** (powers / N))


def zero(*, d: int, p: int, R: int, classes: int, e: int, bos: bool, dtype: str) -> ModelArrays:
    """A zero ContextualCountingTransformer with d_h = g = 1 before it is made.

    >>> model = zero(d=6, p=3, R=2, classes=9, e=1, bos=True, dtype="float32")
    >>> dict(model.named_parameters()).keys() == dict(model.module.named_parameters()).keys()
    True
    """
    shapes: dict[str, tuple[int, ...]] = {"E": (len(TOKENS), d), "W_Q": (d, 1), "W_K": (d, 1), "W_V": (d, 1)}
    shapes |= {"W_O": (1, d), "W_1": (d, p), "b_1": (p,), "W_2": (p, d), "b_2": (d,), "P": (R, d)}
    shapes |= {"U_Q": (d, e), "U_K": (d, e), "U_V": (d, 1), "W_out": (1, classes), "b_out": (classes,)}
    arguments = {"d": d, "p": p, "R": R, "classes": classes, "e": e, "bos": bos}
    said = f"d={d}, p={p}, R={R}, classes={classes}, bos={bos}, dtype=torch.{dtype}"
    made_by = "constructions.contextual.transformer:ContextualCountingTransformer"
    return ModelArrays.zeros(made_by, dtype, arguments, shapes, has_bos=bos, extra_repr=lambda: said)
