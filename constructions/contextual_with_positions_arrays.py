"""Weights that count regions with one causal head that is given positions: absolute, by rotation, or by distance.

Absolute positions. The code of place i stands in a lane that no query, key or value reads: what counts is NoPE's model.

Rotations. Digits have the key -kappa in the pair of coordinates that turns slowest, and all other keys are zero. So BOS
and delimiters have score 0 whatever their distance, and digits -kappa cos(theta N) or less.

Distances. What is n places away weighs e^(-m n) with slope m, so delimiters do not cancel as they do in NoPE. Times
e^(m i) at place i, BOS weighs 1 and a delimiter at place p e^(m p), between 1 and e^(m N). Later ones weigh more: "["
with the value +1, "]" with -1 and BOS with -1/2 sum to at least 1/2 inside a region, and to at most -1/2 outside. And
after n delimiters BOS's share lies between 1/(1 + n e^(m N)) and 1/(1 + n). For n = 2r - 1 and 2r + 1, regions r and
r + 1, these ranges are apart while e^(m N) < (2r + 1)/(2r - 1): lines between them take the place of NoPE's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from constructions import contextual_counting_arrays as contextual_counting
from constructions.contextual_counting_arrays import BOS, CLOSE, ONE, OPEN, TOKENS, ZERO
from constructions.errors import BadInput
from constructions.model_arrays import UNITS, ModelArrays
from constructions.readout_arrays import staircase_at

PE = ("nope", "ape", "rope", "alibi")
PAIRS, BASE = 8, 10000.0  # frequencies BASE^(-i / PAIRS), as in RoPE
WIDEST = math.pi / 3  # at which the slowest rotation leaves half of a score
INSIDE, SHARE = 5, 6  # ALiBi's lanes after those of the tokens: inside or outside, and BOS's share
KEY = 7
SHAPES: dict[str, tuple[str, ...]] = {  # of the parameters, by the sizes of the model
    "E": ("tokens", "d"), "positions": ("places", "d"), "cosines": ("places", "pairs"), "sines": ("places", "pairs"),
    "slope": (), "W_Q": ("d", "e"), "W_K": ("d", "e"), "W_V": ("d", "h"), "W_O": ("h", "d"), "W_1": ("d", "p"),
    "b_1": ("p",), "W_2": ("p", "d"), "b_2": ("d",), "P": ("R", "d"), "U_Q": ("d", "f"), "U_K": ("d", "f"),
    "U_V": ("d", "g"), "W_3": ("g", "q"), "b_3": ("q",), "W_4": ("q", "g"), "b_4": ("g",), "W_out": ("g", "classes"),
    "b_out": ("classes",),
}  # fmt: skip


def build(
    N: int,
    R: int,
    pe: str,
    *,
    slope: float | None = None,
    has_mlp: bool = False,
    dtype: str = "float64",
    u: float | None = None,
) -> ModelArrays:
    """Builds the causal transformer that counts the ones of each of R regions and knows positions in the way `pe` says.

    Claim: B-3.5 (Sec. 3.5, App. D.1 to D.4). Departures: without layer norm, and the feed-forward layer selects the
        region (W-11); B's models are trained, and no weights are printed.
    Shapes: d = 6 + R, one more for absolute positions and for ALiBi; p = 2R - 1; pairs = 8 for RoPE, else 1; q = 1, or
        about log2(N) + 1 neurons where the decoder has an MLP.
    Units: `slope` is ALiBi's, for a distance of one place (default: half of the largest that these weights allow).
    Raises: BadInput for sizes that do not fit, an unknown `pe`, or a slope or length beyond what is built.

    >>> build(16, 3, "alibi").W_V[:, 0].tolist()[:5]
    [0.0, 0.0, 1.0, -1.0, -0.5]
    """
    if pe not in PE:
        raise BadInput(f"pe={pe!r}: must be one of {', '.join(PE)}")
    if slope is not None and pe != "alibi":
        raise BadInput(f"slope={slope}: goes with ALiBi. Leave it out, or use --pe alibi.")
    base = contextual_counting.build(N, R, dtype=dtype, u=u)
    is_alibi, nodes = pe == "alibi", steps(N) if has_mlp else []
    d, pairs = base.E.shape[1] + (pe in ("ape", "alibi")), PAIRS if pe == "rope" else 1
    sizes = {"tokens": len(TOKENS), "places": N + 1, "pairs": pairs, "d": d, "e": 2 * pairs, "h": 1 + is_alibi}
    sizes |= {"p": base.W_1.shape[1], "R": R, "f": base.U_K.shape[1], "g": 1 + has_mlp, "q": max(1, len(nodes) - 1)}
    model = zero(sizes | {"classes": N + 1}, dtype)
    kappa = contextual_counting.temperature(N, UNITS[dtype] if u is None else u)
    model.cosines[:] = 1
    if is_alibi:
        m = largest_slope(N, R) / 2 if slope is None else slope
        check_slope(N, R, m)
        _fill_decoder(base, model, KEY - contextual_counting.KEY)
        _fill_alibi(model, m, kappa)
    else:
        _fill_decoder(base, model, 0)
        copy_leading(base, model, ("W_V", "W_O", "W_1", "b_1", "W_2", "b_2"))
        _fill_digits(model, kappa / (math.cos(WIDEST) if pe == "rope" else 1))
    if pe == "rope":
        _fill_rotations(model)
    if pe == "ape":
        model.positions[:, -1] = np.arange(N + 1) / 2 ** math.ceil(math.log2(N + 1))
    if has_mlp:
        _fill_mlp(model, nodes)
    model = model.rounded()
    for name, weight in model.named_parameters():
        if not np.isfinite(weight).all():
            raise BadInput(f"N={N}, R={R}: {name} exceeds the largest torch.{dtype}; choose a wider dtype")
    return model


def zero(sizes: dict[str, int], dtype: str) -> ModelArrays:
    """A zero PositionalContextualTransformer before it is made.

    >>> sizes = dict(tokens=5, places=5, pairs=1, d=8, e=2, h=1, p=3, R=2, f=2, g=1, q=1, classes=4)
    >>> zero(sizes, "float64").longest == zero(sizes, "float64").module.longest
    True
    """
    shapes = {name: tuple(sizes[size] for size in shape) for name, shape in SHAPES.items()}
    made_by = "constructions.contextual.positional:PositionalContextualTransformer"
    return ModelArrays.zeros(made_by, dtype, sizes, shapes, longest=sizes["places"] - 1, has_bos=True)


def copy_leading(source: ModelArrays, target: ModelArrays, names: Iterable[str]) -> None:
    """Writes weights into the leading rows and columns of larger ones.

    >>> sizes = dict(tokens=5, places=5, pairs=1, d=8, e=2, h=1, p=3, R=2, f=2, g=1, q=1, classes=4)
    >>> small, large = zero(sizes, "float64"), zero(sizes | {"p": 4}, "float64")
    >>> small.b_1[:] = 7
    >>> copy_leading(small, large, ["b_1"])
    >>> large.b_1.tolist()
    [7.0, 7.0, 7.0, 0.0]
    """
    for name in names:
        found = getattr(source, name)
        getattr(target, name)[tuple(slice(n) for n in found.shape)] = found


def largest_slope(N: int, R: int) -> float:
    """The slope below which BOS's share tells R regions apart at every length up to N: ln((2R - 1)/(2R - 3))/N.

    A single region needs no share, but its line grows like e^(m N): these weights stop at e^8.

    >>> round(largest_slope(512, 4), 6), round(largest_slope(512, 2), 6), largest_slope(64, 1)
    (0.000657, 0.002146, 0.125)
    """
    return (math.log((2 * R - 1) / (2 * R - 3)) if R > 1 else 8.0) / N


def check_slope(N: int, R: int, m: float) -> None:
    """Raises BadInput unless the slope is one for which weights are known.

    >>> check_slope(512, 4, 1.0)
    Traceback (most recent call last):
    constructions.errors.BadInput: slope=1.0: must lie between 0 and 0.0006572 for N=512, R=4: beyond, regions overlap
    in BOS's share. Use a smaller slope.
    """
    if not 0 < m < largest_slope(N, R):
        longest = int(largest_slope(1, R) / m) if m > 0 else 0
        way = f"Use a smaller slope, or strings of up to {longest} tokens." if longest else "Use a smaller slope."
        raise BadInput(
            f"slope={m}: must lie between 0 and {largest_slope(N, R):.4g} for N={N}, R={R}: beyond, regions overlap in "
            f"BOS's share. {way}"
        )


def steps(N: int) -> list[int]:
    """The counts at which the decoder's MLP has a kink: 0, 1, 3, 7, ... and N.

    >>> steps(12)
    [0, 1, 3, 7, 12]
    """
    powers = [2**j - 1 for j in range(N.bit_length()) if 2**j - 1 < N]
    return [*powers, N]


def _fill_decoder(base: ModelArrays, model: ModelArrays, lanes: int) -> None:
    """Embeddings, prompts, keys and readout of the model without positions, its key lanes moved up by so many."""
    own = contextual_counting.KEY
    for name in ("E", "P", "U_Q", "U_K", "U_V"):
        source, target = getattr(base, name), getattr(model, name)
        if name in ("E", "P"):
            target[:, :own], target[:, own + lanes : source.shape[1] + lanes] = source[:, :own], source[:, own:]
        else:
            columns = source.shape[1]
            target[:own, :columns] = source[:own]
            target[own + lanes : len(source) + lanes, :columns] = source[own:]
    model.W_out[0], model.b_out[:] = base.W_out[0], base.b_out


def _fill_digits(model: ModelArrays, kappa: float) -> None:
    """Keys that keep every query away from the digits, in the pair that turns slowest."""
    model.W_Q[: len(TOKENS), -2] = 1
    model.W_K[[ZERO, ONE], -2] = -float(math.ceil(kappa))


def _fill_rotations(model: ModelArrays) -> None:
    """The cosine and sine of the angle of every place at RoPE's frequencies.

    Raises: BadInput for strings in which the slowest rotation turns a score round.
    """
    frequencies = np.array([BASE ** (-i / PAIRS) for i in range(PAIRS)])
    longest = int(WIDEST / float(frequencies[-1]))
    if model.longest > longest:
        raise BadInput(
            f"N={model.longest}: the slowest rotation keeps scores apart up to N={longest}. Use that or less."
        )
    angles = np.arange(model.longest + 1)[:, None] * frequencies
    model.cosines[:], model.sines[:] = np.cos(angles), np.sin(angles)


def _fill_alibi(model: ModelArrays, m: float, kappa: int) -> None:
    """Two lanes, inside or outside and BOS's share, the lines between neighbouring regions, and who is penalised."""
    R, N = model.R, model.longest
    grown = math.exp(m * N)
    model.slope[()] = m
    _fill_digits(model, kappa + m * N)
    model.W_V[OPEN, 0], model.W_V[CLOSE, 0], model.W_V[BOS, 0], model.W_V[BOS, 1] = 1, -1, -0.5, 1
    model.W_O[0, INSIDE], model.W_O[1, SHARE] = 1, 1
    # outside, the lane is at most -1/2 of BOS's share, and that is at least 1 / (1 + 2 R grown)
    outside = 2 * R - 2
    model.W_1[INSIDE, outside] = -(2.0 ** math.ceil(math.log2(4 * (1 + 2 * R * grown))))
    model.W_2[outside, KEY : KEY + R] = 1
    largest = float(-model.W_1[INSIDE, outside])
    for j in range(1, R):
        least, most = 1 / (1 + (2 * j - 1) * grown), 1 / (2 * j + 2)  # of region j, and of the next one
        A = 2.0 ** math.ceil(math.log2(4 / (least - most)))
        model.W_1[SHARE, [j - 1, R + j - 2]] = [-A, A]
        model.b_1[[j - 1, R + j - 2]] = np.array([A, -A]) * (least + most) / 2
        model.W_2[j - 1, KEY + j - 1] = 1  # too far on for prompt j
        model.W_2[R + j - 2, KEY + j] = 1  # too early for prompt j + 1
        largest = max(largest, A)
    model.W_1[BOS] = -largest  # BOS is what the ones are counted against


def _fill_mlp(model: ModelArrays, nodes: list[int]) -> None:
    """A second lane of the decoder, the count itself and 1 more, by a line between any two of the nodes.

    At count k the share is 1/(k + 1). The lines are convex, so the lane rises by 1/2 to 2 from one count to the next,
    where the share falls by 1/N^2: the margin no longer shrinks as N grows.
    """
    N, shares = model.longest, [1 / (n + 1) for n in nodes]
    slopes = [(b - a) / (s - t) for a, b, s, t in zip(nodes, nodes[1:], shares, shares[1:], strict=False)]
    model.W_3[0] = -1
    model.b_3[:] = shares[:-1]
    model.W_4[:, 1] = [b - a for a, b in zip([0.0, *slopes], slopes, strict=False)]
    model.b_4[1] = 1
    reached = [1 + sum(_lane(1 / (k + 1), nodes, shares, slopes)) for k in range(N + 1)]
    thresholds = [(a + b) / 2 for a, b in zip(reached, reached[1:], strict=False)]
    model.W_out[0] = 0
    model.W_out[1], model.b_out[:] = staircase_at(thresholds, False, model.dtype)


def _lane(share: float, nodes: list[int], shares: list[float], slopes: list[float]) -> list[float]:
    """What each line between two nodes adds at a share."""
    pieces = zip(slopes, shares, shares[1:], strict=False)
    return [slope * max(0.0, high - max(share, low)) for slope, high, low in pieces]
