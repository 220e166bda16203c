"""The operations of captured graphs, each as the function of real numbers that torch's documentation says it is.

An operation takes and returns arrays. What is not in EVERY is not followed, and then nothing is accepted.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeVar

from flint import arb

from verify.checker.arrays import (
    FLOAT,
    KINDS,
    TRUTH,
    WHOLE,
    Array,
    Axes,
    Number,
    along,
    array,
    axis_of,
    each,
    joined,
    moved,
    permuted,
    product_of,
    refuse,
    reshaped,
    sure,
)
from verify.checker.ball_rows import most_of
from verify.checker.moves import MOVES, PARTS, transposed
from verify.checker.reading import NOT_CHECKABLE, require

T = TypeVar("T")
OfArrays = Callable[..., Array]
ZERO, ONE = arb(0), arb(1)


def kind_of(*given: object) -> str:
    """The kind of what comes of several: floats where one has them, then whole numbers, then truth values."""
    kinds = [array(x).kind for x in given]
    return next(kind for kind in KINDS if kind in kinds)


def arithmetic(function: Callable[..., Number]) -> OfArrays:
    """An operation on single numbers, exact on whole ones."""

    def of_arrays(*given: object) -> Array:
        kind = kind_of(*given)
        if kind == TRUTH:
            return each(lambda *numbers: bool(function(*map(int, numbers))), *given, kind=TRUTH)
        return each(function, *given, kind=kind)

    return of_arrays


def floats(function: Callable[..., Number]) -> OfArrays:
    return lambda *given: each(function, *given)


def periodic(function: Callable[[arb], arb]) -> OfArrays:
    """Sine or cosine, which of infinity is no number."""
    return floats(lambda v: function(v) if v.is_finite() else arb("nan"))


def plus(x: object, y: object, *, alpha: object = 1) -> Array:
    require(alpha == 1 or kind_of(x, y) != TRUTH, "graph: a multiple of truth values")
    return ADDED(x, y if alpha == 1 else TIMES(y, alpha))


def minus(x: object, y: object, *, alpha: float = 1) -> Array:
    require(kind_of(x, y) != TRUTH, "graph: truth values have no difference")
    return ADDED(x, TIMES(y, -alpha))


def compared(name: str, x: object, y: object) -> Array:
    """A comparison: of balls, it must be the same for all their numbers."""
    holds, opposite = getattr(operator, name), getattr(operator, OPPOSITE[name])
    if kind_of(x, y) != FLOAT:
        return each(holds, x, y, kind=TRUTH)
    found = each(lambda a, b: sure(a, bool(holds(a, b)), bool(opposite(a, b))), x, y)
    return Array(TRUTH, found.shape, found.rows)


OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def truths(x: object) -> Array:
    x = array(x)
    return x if x.kind == TRUTH else compared("ne", x, 0)


def logical(function: Callable[..., bool]) -> OfArrays:
    return lambda *given: each(function, *map(truths, given), kind=TRUTH)


def bitwise(function: Callable[..., int]) -> OfArrays:
    def of_arrays(*given: object) -> Array:
        kind = kind_of(*given)
        if kind == FLOAT:
            refuse("an operation on whole numbers, of floats")
        return each(function if kind == WHOLE else lambda *xs: bool(function(*xs) & 1), *given, kind=kind)

    return of_arrays


def where(condition: object, x: object = None, y: object = None) -> Array:
    kind = kind_of(x, y)
    x, y = (array(v).as_floats() if kind == FLOAT else array(v) for v in (x, y))
    found = each(lambda c, a, b: a if c else b, truths(condition), x, y, kind=TRUTH)  # the numbers as they are
    return Array(kind, found.shape, found.rows)


# ---- functions of one number


def raised(v: arb, n: int) -> arb | int:
    """v^n. As a product, since ** of python-flint gives no number for a ball whose middle is 0."""
    return math.prod([v] * n) if n else v**0


def power(x: object, n: object) -> Array:
    if not isinstance(n, int | float):
        refuse("a power by a tensor")
    if float(n).is_integer():
        require(abs(n) <= 64, "graph: a power is too high", NOT_CHECKABLE)
        of_one = partial(raised, n=abs(int(n)))
        return arithmetic(of_one)(x) if n >= 0 else floats(lambda v: operator.truediv(1, of_one(v)))(x)
    roots = {0.5: lambda v: v.sqrt(), -0.5: lambda v: 1 / v.sqrt(), 1.5: lambda v: v * v.sqrt()}
    return floats(roots[n])(x) if n in roots else refuse(f"the power {n}")


def logistic(v: arb) -> arb:
    """1 / (1 + e^-v), from the exponential of a number that is not above zero where that is known."""
    if v > 0:
        return 1 / (1 + (-v).exp())
    e = v.exp()
    return e / (1 + e)


def gelu(x: object, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return floats(lambda v: v * (1 + ((2 / arb.pi()).sqrt() * (v + arb("0.044715") * v * v * v)).tanh()) / 2)(x)
    require(approximate == "none", "graph: GELU is of no known kind")
    return floats(lambda v: v * (1 + (v / arb(2).sqrt()).erf()) / 2)(x)


def softplus(x: object, beta: float = 1, threshold: float = 20) -> Array:
    """log(1 + e^(beta x)) / beta, and x itself where beta x is above the threshold, as torch says."""

    def one(v: arb) -> arb:
        z = v * arb(beta)
        return v if sure(z, z > arb(threshold), z <= arb(threshold)) else z.exp().log1p() / arb(beta)

    return floats(one)(x)


def by_sign(right: Callable[[arb], arb], left: Callable[[arb], arb]) -> OfArrays:
    """One continuous function above 0 and another below: their hull where the sign is open."""

    def one(v: arb) -> arb:
        if v >= 0 or v <= 0:
            return right(v) if v >= 0 else left(v)
        return right(v.max(ZERO)).union(left(v.min(ZERO)))

    return floats(one)


def elu(x: object, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    a, s, i = arb(alpha), arb(scale), arb(input_scale)
    return by_sign(lambda v: s * v, lambda v: s * a * (v * i).expm1())(x)


def clamp(x: Array, least: object = None, most: object = None) -> Array:
    x = x if least is None else LARGER(x, least)
    return x if most is None else SMALLER(x, most)


def hardtanh(x: Array, least: object = -1, most: object = 1) -> Array:
    return clamp(x, least, most) if x.kind == FLOAT else refuse("hardtanh of whole numbers")


# ---- sums, extremes and norms over axes


def total(numbers: Sequence[T]) -> T:
    return reduce(operator.add, numbers)


def over(function: Callable[..., Number], x: Array, dims: Axes, keepdim: bool, kind: str) -> Array:
    """A function of the numbers along axes, all of them where none is named."""
    rank = len(x.shape)
    axes = [*range(rank)] if dims is None or dims == [] else [dims] if isinstance(dims, int) else [*dims]
    axes = sorted(axis_of(dim, rank) for dim in axes)
    require(len({*axes}) == len(axes), "graph: an axis occurs twice")
    if len(axes) == rank:
        shape = (1,) * rank if keepdim else ()
        return Array(kind, shape, [[function(row)] for row in x.rows])
    order = [i for i in range(rank) if i not in axes] + axes
    left = [x.shape[i] for i in order[: rank - len(axes)]]
    lines = reshaped(permuted(x, order), [*left, -1])
    out = along(lambda numbers: [function(numbers)], lines, -1, kind)
    return Array(
        kind, tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes), out.rows
    )


def summed(x: Array, dims: Axes = None, keepdim: bool = False) -> Array:
    kind = WHOLE if x.kind == TRUTH else x.kind
    return over(total, x, dims, keepdim, kind)


def holding(function: Callable[[Sequence[bool]], bool]) -> OfArrays:
    """Whether any or all numbers along axes are not 0; along none of them, unlike a sum, each by itself."""

    def of_array(x: Array, dims: Axes = None, keepdim: bool = False) -> Array:
        return truths(x) if dims == [] else over(function, truths(x), dims, keepdim, TRUTH)

    return of_array


def mean(x: Array, dims: Axes = None, keepdim: bool = False) -> Array:
    return over(lambda row: total(row) / len(row), x.as_floats(), dims, keepdim, FLOAT)


def deviations(row: Sequence[arb]) -> list[arb]:
    middle = total(row) / len(row)
    return [v - middle for v in row]


def variance(x: Array, dims: Axes = None, correction: float | None = 1, keepdim: bool = False) -> Array:
    off = 1 if correction is None else correction

    def one(row: Sequence[arb]) -> arb:
        require(len(row) > off, "graph: a variance of too few numbers", NOT_CHECKABLE)
        return total([v * v for v in deviations(row)]) / arb(len(row) - off)

    return over(one, x.as_floats(), dims, keepdim, FLOAT)


def extreme(pick: str) -> OfArrays:
    def of_array(x: Array, dims: Axes = None, keepdim: bool = False) -> Array:
        function = (lambda a, b: getattr(a, pick)(b)) if x.kind == FLOAT else {"max": max, "min": min}[pick]
        return over(lambda row: reduce(function, row), x, dims, keepdim, x.kind)

    return of_array


def cumulated(x: Array, dim: int) -> Array:
    def one(row: Sequence[arb]) -> list[arb]:
        out = [row[0]]
        for v in row[1:]:
            out.append(out[-1] + v)
        return out

    return along(one, x, dim, WHOLE if x.kind == TRUTH else x.kind)


def weights_of(scores: Sequence[arb]) -> list[arb]:
    """Softmax: e^(s - largest) over their sum; a score of exactly -inf has the weight 0."""
    top = most_of(scores)
    powers = [(s - top).exp() for s in scores]
    whole = total(powers)
    return [p / whole for p in powers]


def softmax(x: Array, dim: int, _: object = None) -> Array:
    return along(weights_of, x.as_floats(), dim)


def safe_weights(scores: Sequence[arb]) -> list[arb]:
    """Softmax, but 0 throughout where all scores are exactly -inf."""
    if all(s == MINUS_INFINITY for s in scores):
        return [ZERO] * len(scores)
    return weights_of(scores)


MINUS_INFINITY = arb(-math.inf)


def log_weights(scores: Sequence[arb]) -> list[arb]:
    top = most_of(scores)
    whole = total([(s - top).exp() for s in scores]).log()
    return [s - top - whole for s in scores]


def scaled(x: Array, weight: object, bias: object) -> Array:
    x = x if weight is None else TIMES(x, weight)
    return x if bias is None else ADDED(x, bias)


def layer_norm(x: Array, sizes: list[int], weight: object, bias: object, eps: float) -> tuple[Array]:
    if [*x.shape[-1:]] != sizes:
        refuse("a norm over several axes")

    def one(row: Sequence[arb]) -> list[arb]:
        off = deviations(row)
        root = (total([v * v for v in off]) / len(row) + arb(eps)).sqrt()
        return [v / root for v in off]

    return (scaled(along(one, x.as_floats(), -1), weight, bias),)


def rms_norm(x: Array, sizes: list[int], weight: object = None, eps: float | None = None) -> tuple[Array]:
    if [*x.shape[-1:]] != sizes or eps is None:
        refuse("a norm over several axes, or without eps")

    def one(row: Sequence[arb]) -> list[arb]:
        root = (total([v * v for v in row]) / len(row) + arb(eps)).sqrt()
        return [v / root for v in row]

    return (scaled(along(one, x.as_floats(), -1), weight, None),)


# ---- linear maps and attention


def linear(x: Array, W: Array, bias: Array | None = None) -> Array:
    out = matmul(x, transposed(W, 0, 1))
    return out if bias is None else ADDED(out, bias)


def matmul(x: Array, y: Array) -> Array:
    """torch's: a vector is a row on the left, a column on the right, and that axis goes afterwards."""
    left, right = len(x.shape) == 1, len(y.shape) == 1
    a = reshaped(x, (1, *x.shape)) if left else x
    b = reshaped(y, (*y.shape, 1)) if right else y
    if len(b.shape) == 2 and len(a.shape) > 2:
        flat = product_of(reshaped(a, (-1, a.shape[-1])), b)
        out = reshaped(flat, (*a.shape[:-1], b.shape[-1]))
    else:
        out = product_of(a, b)
    shape = [*out.shape]
    if right:
        del shape[-1]
    if left:
        del shape[-2 if not right else -1]
    return reshaped(out, shape)


def addmm(bias: Array, x: Array, y: Array, *, beta: object = 1, alpha: object = 1) -> Array:
    return ADDED(TIMES(bias, beta), TIMES(product_of(x, y), alpha))


def shared(x: Array, heads: int) -> Array:
    """Each of the heads as often as makes so many, one after the other."""
    own = x.shape[-3]
    require(heads % own == 0, "graph: heads cannot be shared")
    return moved(x, (*x.shape[:-3], heads, *x.shape[-2:]), lambda i: (*i[:-3], i[-3] * own // heads, *i[-2:]))


def scores_and_values(
    q: Array, k: Array, v: Array, mask: object = None, dropout: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """What attention takes the softmax of, q k^T scale + mask, and what it then mixes. A causal mask is tril."""
    if float(dropout) != 0:
        refuse("attention with dropout")
    k, v = (shared(x, q.shape[-3]) if enable_gqa else x for x in (k, v))
    if is_causal and (mask is not None or scale is not None and not scale >= 2.0**-126):
        refuse("attention with two masks, or a causal one, whose -inf torch multiplies by a scale that is not above 0")
    factor = 1 / arb(q.shape[-1]).sqrt() if scale is None else arb(scale)
    scores = product_of(q, transposed(k, -2, -1))
    scores = each(lambda s: s * factor, scores)
    if is_causal:
        m, n = scores.shape[-2:]
        mask = Array(TRUTH, (m, n), [[j <= i for i in range(m) for j in range(n)]])
    if mask is not None:
        added = where(array(mask), 0.0, -math.inf) if array(mask).kind == TRUTH else mask
        scores = ADDED(scores, added)
    return scores, v


def attended(scores: Array, v: Array) -> Array:
    """softmax(q k^T scale + mask) v; a row that is masked everywhere is 0."""
    return product_of(along(safe_weights, scores, -1), v)


LARGER = arithmetic(lambda a, b: a.max(b) if isinstance(a, arb) else max(a, b))
SMALLER = arithmetic(lambda a, b: a.min(b) if isinstance(a, arb) else min(a, b))
ADDED, TIMES = arithmetic(operator.add), arithmetic(operator.mul)
QUOTIENT = floats(operator.truediv)
OPERATIONS: dict[str, OfArrays] = MOVES | {
    "add": plus, "sub": minus, "rsub": lambda x, y, *, alpha=1: minus(y, x, alpha=alpha), "mul": TIMES, "div": QUOTIENT,
    "neg": arithmetic(operator.neg), "abs": arithmetic(abs), "reciprocal": floats(lambda v: 1 / v),
    "maximum": LARGER, "minimum": SMALLER, "clamp": clamp, "clamp_min": clamp, "pow": power,
    "hardtanh": hardtanh, "relu": lambda x: LARGER(x, 0),
    "floor_divide": bitwise(operator.floordiv), "remainder": bitwise(operator.mod),
    "exp": floats(arb.exp), "expm1": floats(arb.expm1), "log": floats(arb.log), "log1p": floats(arb.log1p),
    "sqrt": floats(arb.sqrt), "rsqrt": floats(lambda v: 1 / v.sqrt()), "tanh": floats(arb.tanh),
    "erf": floats(arb.erf), "sin": periodic(arb.sin), "cos": periodic(arb.cos), "sigmoid": floats(logistic),
    "silu": floats(lambda v: v * logistic(v)), "gelu": gelu, "softplus": softplus, "elu": elu,
    "leaky_relu": lambda x, slope=0.01: by_sign(lambda v: v, lambda v: v * arb(slope))(x),
    **{name: lambda x, y, name=name: compared(name, x, y) for name in OPPOSITE},
    "logical_and": logical(lambda a, b: a and b), "logical_or": logical(lambda a, b: a or b),
    "logical_xor": logical(operator.xor), "logical_not": logical(operator.not_),
    "bitwise_and": bitwise(operator.and_), "bitwise_or": bitwise(operator.or_), "bitwise_xor": bitwise(operator.xor),
    "bitwise_not": bitwise(lambda a: not a if isinstance(a, bool) else ~a),
    "where": where, "sum": summed, "mean": mean, "var": variance, "cumsum": cumulated,
    "amax": extreme("max"), "amin": extreme("min"),
    "any": holding(any), "all": holding(all),
    "_softmax": softmax, "softmax": softmax, "_safe_softmax": lambda x, dim: along(safe_weights, x.as_floats(), dim),
    "_log_softmax": lambda x, dim, _=None: along(log_weights, x.as_floats(), dim),
    "linear": linear, "mm": matmul, "bmm": product_of, "matmul": matmul, "mv": matmul, "dot": matmul,
    "addmm": addmm, "baddbmm": addmm,
    "scaled_dot_product_attention": lambda *given, **options: attended(*scores_and_values(*given, **options)),
    "cat": lambda arrays, dim=0: joined(arrays, dim),
}  # fmt: skip
EVERY: dict[str, Callable[..., Array | tuple[Array, ...]]] = {
    **OPERATIONS, **PARTS, "native_layer_norm": layer_norm, "_fused_rms_norm": rms_norm,
}  # fmt: skip
