"""Weights that count regions without a mask: attention to what comes before, up to a tolerance, by absolute positions.

The score of position i for position j has the part -delta q^(j - i) = (-delta q^-i)(q^j), of rank one: within
[-delta, 0) for j <= i, and at most -delta q after i, where a weight is below e^(-delta q). So every position attends
to BOS and to the delimiters before it almost alike, as with a causal mask, and the encoder's scalar is 1/(2r) in region
r up to about delta/q: the hidden neurons, which are sure by a margin of 1, restore exact zeros. The price is exponent
range, log2(q) for each position. Longer strings are cut into blocks with a coordinate each: a query leaves blocks
before its own alone, and its coordinates for later blocks are a large negative number.
"""

from __future__ import annotations

import math

from constructions import contextual_counting_arrays as contextual_counting
from constructions.contextual_counting_arrays import ONE, TOKENS, ZERO
from constructions.contextual_with_positions_arrays import copy_leading
from constructions.errors import BadInput
from constructions.model_arrays import LARGEST, UNITS, ModelArrays

SHAPES = {  # of the parameters, by the sizes of the model
    "E": ("tokens", "d"), "positions": ("places", "d"), "W_Q": ("d", "e"), "W_K": ("d", "e"), "W_V": ("d", "h"),
    "W_O": ("h", "d"), "W_1": ("d", "p"), "b_1": ("p",), "W_2": ("p", "d"), "b_2": ("d",), "P": ("R", "d"),
    "U_Q": ("d", "f"), "U_K": ("d", "f"), "U_V": ("d", "g"), "W_out": ("g", "classes"), "b_out": ("classes",),
}  # fmt: skip
LOG_Q, LOG_DELTA = 8, -4  # delta q = 16, and delta/q = 2^-12
NORMAL = {"float64": 1022, "float32": 126, "bfloat16": 126, "float16": 14}  # 2^-this is the smallest normal number
LOG_AWAY = 6  # a later block's score is at most -2^6
MOST_REGIONS = 64  # a line of the feed-forward layer moves by about 4 (R + 1) delta/q, and less than 1/8 is wanted


def build(
    N: int,
    R: int,
    *,
    coordinates: int | None = None,
    dtype: str = "float64",
    u: float | None = None,
) -> ModelArrays:
    """Builds the bidirectional transformer with absolute positions that counts the ones of each of R regions.

    Claim: W-19 (ours); B, Prop. 2.4 says that such attention needs as many dimensions as positions, which holds for
        exact profiles only. The feed-forward layer and the decoder are those of B-2.1+2.2 with one-hot keys.
    Shapes: scores of rank 1 + `coordinates`; by default the fewest coordinates that the dtype's exponents allow, one
        for each block of 128 positions in float64, of 16 in float32 and bfloat16.
    Raises: BadInput for sizes below one, R beyond 64, or too few coordinates.

    >>> build(16, 3).positions[:2, -2].tolist()
    [-0.0625, -0.000244140625]
    """
    causal = contextual_counting.build(N, R, dtype=dtype, u=u)
    if R > MOST_REGIONS:
        raise BadInput(f"R={R}: positions up to a tolerance select at most {MOST_REGIONS} regions here. Use fewer.")
    block, places = block_length(dtype), N + 1
    fewest = -(-places // block)
    D = fewest if coordinates is None else coordinates
    if fewest > D:
        raise BadInput(
            f"coordinates={D}: torch.{dtype} has room for {block} positions in each, and N={N} needs {places}. "
            f"Use {fewest} or more, or a wider dtype."
        )
    d, p = causal.W_1.shape
    sizes = {"tokens": len(TOKENS), "places": places, "d": d + 2 * D, "e": 1 + D, "h": 1, "p": p, "R": R}
    model = zero(sizes | {"f": causal.U_K.shape[1], "g": 1, "classes": N + 1}, dtype)
    copy_leading(causal, model, (name for name in SHAPES if name not in ("positions", "W_Q", "W_K")))  # but the scores
    kappa = contextual_counting.temperature(N, UNITS[dtype] if u is None else u)
    model.W_Q[: len(TOKENS), 0] = 1
    model.W_K[[ZERO, ONE], 0] = -float(kappa)
    model.U_K[:] *= 2  # a penalty is at least 7/8 where it was at least 1
    _fill_positions(model, d, D, -(-places // D))
    return model.rounded()


def zero(sizes: dict[str, int], dtype: str) -> ModelArrays:
    """A zero BidirectionalContextualTransformer before it is made.

    >>> sizes = dict(tokens=5, places=5, d=8, e=2, h=1, p=3, R=2, f=2, g=1, classes=4)
    >>> zero(sizes, "float64").longest == zero(sizes, "float64").module.longest
    True
    """
    shapes = {name: tuple(sizes[size] for size in shape) for name, shape in SHAPES.items()}
    made_by = "constructions.contextual.bidirectional:BidirectionalContextualTransformer"
    return ModelArrays.zeros(made_by, dtype, sizes, shapes, longest=sizes["places"] - 1, has_bos=True)


def block_length(dtype: str) -> int:
    """How many positions one coordinate holds: all powers of q among them, and their products, are normal numbers.

    >>> [block_length(dtype) for dtype in ("float64", "float32", "bfloat16", "float16")]
    [128, 16, 16, 2]
    """
    most, least = int(math.log2(LARGEST[dtype])), NORMAL[dtype]
    return 1 + min(most - LOG_AWAY - 1, least + LOG_DELTA) // LOG_Q


def _fill_positions(model: ModelArrays, d: int, D: int, block: int) -> None:
    """Lane d + c is what a position asks of block c, lane d + D + c what it offers there."""
    for i in range(model.longest + 1):
        own, place = divmod(i, block)
        model.positions[i, d + own] = -(2.0 ** (LOG_DELTA - LOG_Q * place))
        model.positions[i, d + own + 1 : d + D] = -(2.0**LOG_AWAY)
        model.positions[i, d + D + own] = 2.0 ** (LOG_Q * place)
    for c in range(D):
        model.W_Q[d + c, 1 + c], model.W_K[d + D + c, 1 + c] = 1, 1
