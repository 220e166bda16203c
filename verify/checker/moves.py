"""Operations that move numbers, choose among them or make constants, on arrays: no number is computed."""

import math
import struct
from collections.abc import Callable, Sequence

from flint import arb

from verify.checker.arrays import (
    FLOAT,
    KINDS,
    TRUTH,
    WHOLE,
    Array,
    Axes,
    Number,
    array,
    axis_of,
    check_size,
    common,
    expanded,
    flat,
    indices,
    joined,
    moved,
    permuted,
    refuse,
    reshaped,
    together,
)
from verify.checker.reading import NOT_CHECKABLE, require

RANGES = {"int64": (-(2**63), 2**63 - 1), "int32": (-(2**31), 2**31 - 1), "int16": (-(2**15), 2**15 - 1)}
RANGES |= {"int8": (-128, 127), "uint8": (0, 255)}
SIGNIFICANT = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}  # bits


def kind_in(dtype: str) -> str:
    require(dtype in (*RANGES, *SIGNIFICANT, "bool"), f"graph: the dtype {dtype[:20]} is not known", NOT_CHECKABLE)
    return TRUTH if dtype == "bool" else WHOLE if dtype in RANGES else FLOAT


def created(number: float, dtype: str) -> bool | int | arb:
    """A number as torch makes it in a dtype: rounded to float32, exact in the others or not followed."""
    kind = kind_in(dtype)
    if kind == TRUTH:
        return bool(number)
    if kind == WHOLE:
        require(int(number) == number, "graph: a whole number is none", NOT_CHECKABLE)
        return int(number)
    value = float(number)
    if not math.isfinite(value) or value == 0:
        return arb(value)
    if dtype == "float32":
        value == number or refuse("a whole number of more than 53 bits, which is rounded once,")
        require(abs(value) < 2.0**127 and abs(value) > 2.0**-126, "graph: a constant is out of range", NOT_CHECKABLE)
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    elif dtype != "float64":
        m, _ = math.frexp(value)
        is_exact = float(m * 2 ** SIGNIFICANT[dtype]).is_integer() and 2.0**-14 <= abs(value) < 2.0**15
        is_exact or refuse(f"a constant in {dtype} that is rounded")
    return arb(value)


def full(shape: Sequence[int], number: float, dtype: str) -> Array:
    sizes = tuple(shape)
    check_size(sizes)
    return Array(kind_in(dtype), sizes, [[created(number, dtype)] * math.prod(sizes)])


def arange(*ends: float, dtype: str) -> Array:
    start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
    require(
        all(float(x).is_integer() for x in (start, stop, step)) and step != 0,
        "graph: a range is not whole",
        NOT_CHECKABLE,
    )
    numbers = range(int(start), int(stop), int(step))
    check_size([len(numbers)])
    return Array(kind_in(dtype), (len(numbers),), [[created(i, dtype) for i in numbers]])


def eye(n: int, m: int | None = None, *, dtype: str) -> Array:
    return Array(kind_in(dtype), (n, m or n), [[created(i == j, dtype) for i, j in indices((n, m or n))]])


CREATING: dict[str, Callable[..., Array]] = {
    "full": full, "full_like": lambda x, number, dtype: full(x.shape, number, dtype),
    "new_full": lambda x, shape, number, dtype: full(shape, number, dtype),
    "zeros": lambda shape, dtype: full(shape, 0, dtype), "ones": lambda shape, dtype: full(shape, 1, dtype),
    "zeros_like": lambda x, dtype: full(x.shape, 0, dtype), "ones_like": lambda x, dtype: full(x.shape, 1, dtype),
    "new_zeros": lambda x, shape, dtype: full(shape, 0, dtype),
    "new_ones": lambda x, shape, dtype: full(shape, 1, dtype),
    "scalar_tensor": lambda number, dtype: full((), number, dtype), "arange": arange, "eye": eye,
}  # fmt: skip


def made_kind(base: str, args: Sequence[object]) -> str:
    """The kind that torch makes where no dtype is asked for."""
    if base.endswith("_like") or base.startswith("new_"):
        return array(args[0]).kind
    if base in ("full", "arange"):
        kinds = [array(x).kind for x in (args[1:2] if base == "full" else args)]
        return next(kind for kind in KINDS if kind in kinds)
    return FLOAT


def as_dtype(x: Array, dtype: str) -> Array:
    """Numbers in another dtype: floats stay the real numbers that they are; none may leave its range."""
    kind = kind_in(dtype)
    if kind == FLOAT:
        return x.as_floats()
    if x.kind == FLOAT:
        refuse("a computed float cast to whole numbers")
    if kind == TRUTH:
        return Array(TRUTH, x.shape, [[v != 0 for v in row] for row in x.rows])
    return Array(WHOLE, x.shape, [[*map(int, row)] for row in x.whole])


def transposed(x: Array, a: int, b: int) -> Array:
    order = [*range(len(x.shape))]
    a, b = axis_of(a, len(order)), axis_of(b, len(order))
    order[a], order[b] = order[b], order[a]
    return permuted(x, order)


def sliced(x: Array, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Array:
    axis = axis_of(dim, len(x.shape))
    chosen = range(x.shape[axis])[slice(start, stop, step)]
    return taken(x, axis, chosen)


def taken(x: Array, axis: int, chosen: Sequence[int]) -> Array:
    shape = (*x.shape[:axis], len(chosen), *x.shape[axis + 1 :])
    return moved(x, shape, lambda i: (*i[:axis], chosen[i[axis]], *i[axis + 1 :]))


def selected(x: Array, dim: int, place: int) -> Array:
    axis = axis_of(dim, len(x.shape))
    found = taken(x, axis, [axis_of(place, x.shape[axis])])
    return Array(x.kind, x.shape[:axis] + x.shape[axis + 1 :], found.rows)


def split(x: Array, sizes: int | Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    n, start, parts = x.shape[axis_of(dim, len(x.shape))], 0, []
    if isinstance(sizes, int):
        require(sizes > 0, "graph: parts of no size")
        sizes = [min(sizes, n - i) for i in range(0, n, sizes)]
    require(sum(sizes) == n, "graph: parts do not add up")
    for size in sizes:
        parts.append(sliced(x, dim, start, start + size))
        start += size
    return tuple(parts)


def unbound(x: Array, dim: int = 0) -> tuple[Array, ...]:
    return tuple(selected(x, dim, i) for i in range(x.shape[axis_of(dim, len(x.shape))]))


def unsqueezed(x: Array, dim: int) -> Array:
    axis = axis_of(dim, len(x.shape) + 1)
    return Array(x.kind, (*x.shape[:axis], 1, *x.shape[axis:]), x.rows)


def squeezed(x: Array, dims: Axes = None) -> Array:
    axes = range(len(x.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {axis_of(dim, len(x.shape)) for dim in axes}
    return Array(x.kind, tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in gone), x.rows)


def expand(x: Array, sizes: Sequence[int]) -> Array:
    more = len(sizes) - len(x.shape)
    require(more >= 0, "graph: fewer axes than before")
    return expanded(x, tuple(x.shape[i - more] if n == -1 else n for i, n in enumerate(sizes)))


def repeated(x: Array, times: Sequence[int]) -> Array:
    more = len(times) - len(x.shape)
    require(more >= 0, "graph: fewer axes than before")
    own = (*[1] * more, *x.shape)
    x = Array(x.kind, own, x.rows)
    shape = tuple(n * k for n, k in zip(own, times, strict=True))
    return moved(x, shape, lambda i: [j % n for j, n in zip(i, own, strict=True)])


def flipped(x: Array, dims: Sequence[int]) -> Array:
    axes = {axis_of(dim, len(x.shape)) for dim in dims}
    return moved(x, x.shape, lambda i: [x.shape[a] - 1 - j if a in axes else j for a, j in enumerate(i)])


def triangle(keeps: Callable[[int, int, int], bool]) -> Callable[..., Array]:
    def of_array(x: Array, diagonal: int = 0) -> Array:
        zeros: dict[str, Number] = {FLOAT: arb(0), WHOLE: 0, TRUTH: False}
        zero = zeros[x.kind]
        kept = [keeps(i[-2], i[-1], diagonal) for i in indices(x.shape)]
        return Array(x.kind, x.shape, [[v if k else zero for v, k in zip(r, kept, strict=True)] for r in x.rows])

    return of_array


def embedded(W: Array, places: Array, *_: object) -> Array:
    """The rows of a table that whole numbers choose: none below 0, as torch fails there."""
    require(len(W.shape) == 2 and places.kind == WHOLE, "graph: no embedding")
    return chosen_by(W, [places], negative=False)


def chosen_by(x: Array, places: Sequence[Array | None], negative: bool = True) -> Array:
    """x[places]: tensors of places for the first axes, which broadcast; None for an axis that stays."""
    named = [i for i, p in enumerate(places) if p is not None]
    together_ = bool(named) and named == [*range(named[0], named[0] + len(named))]
    require(together_ and len(places) <= len(x.shape), "graph: places that are not side by side", NOT_CHECKABLE)
    tensors = [p for p in places if p is not None]
    require(all(p.kind == WHOLE for p in tensors), "graph: places that are no whole numbers", NOT_CHECKABLE)
    shape, first = common(p.shape for p in tensors), named[0]
    sizes, after = x.shape[first : first + len(named)], x.shape[first + len(named) :]
    block, stride = math.prod(after), math.prod(x.shape[first:])
    rows = []
    for numbers, *at in zip(*together(x, *(expanded(p, shape) for p in tensors)), strict=True):
        row: list[Number] = []
        for outer in range(math.prod(x.shape[:first])):
            for index in zip(*at, strict=True):
                require(negative or min(index) >= 0, "graph: a token is below 0")
                place = [axis_of(i, n) for i, n in zip(index, sizes, strict=True)]
                start = outer * stride + flat(place, sizes) * block
                row.extend(numbers[start : start + block])
        rows.append(row)
    return Array(x.kind, (*x.shape[:first], *shape, *after), rows)


def gathered(x: Array, dim: int, places: Array, *_: object) -> Array:
    axis, rows = axis_of(dim, len(x.shape)), []
    require(places.kind == WHOLE and len(places.shape) == len(x.shape), "graph: places of another shape")
    for numbers, at in zip(*together(x, places), strict=True):
        row = []
        for index, place in zip(indices(places.shape), at, strict=True):
            row.append(numbers[flat((*index[:axis], place, *index[axis + 1 :]), x.shape)])
        rows.append(row)
    return Array(x.kind, places.shape, rows)


def padded(x: Array, pad: Sequence[int], value: object = 0.0) -> Array:
    """Numbers before and after the last axes; axis by axis from the last."""
    require(
        len(pad) % 2 == 0 and len(pad) // 2 <= len(x.shape) and min(pad, default=0) >= 0,
        "graph: such padding",
        NOT_CHECKABLE,
    )
    for k in range(len(pad) // 2):
        axis = len(x.shape) - 1 - k
        ends = [Array(x.kind, (*x.shape[:axis], n, *x.shape[axis + 1 :]), []) for n in pad[2 * k : 2 * k + 2]]
        number = array({FLOAT: float, WHOLE: int, TRUTH: bool}[x.kind](value))
        before, after = (expanded(number, e.shape) for e in ends)
        x = joined([before, x, after], axis)
    return x


def stacked(arrays: Sequence[Array], dim: int = 0) -> Array:
    return joined([unsqueezed(x, axis_of(dim, len(x.shape) + 1)) for x in arrays], dim)


def same(x: Array, *_: object) -> Array:
    return x


PARTS: dict[str, Callable[..., tuple[Array, ...]]] = {"split": split, "split_with_sizes": split, "unbind": unbound}
MOVES: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "lift_fresh", "lift_fresh_copy"), same),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), reshaped),
    "permute": lambda x, dims: permuted(x, [axis_of(dim, len(x.shape)) for dim in dims]), "transpose": transposed,
    "t": lambda x: transposed(x, 0, 1) if len(x.shape) == 2 else x,
    "unsqueeze": unsqueezed, "squeeze": squeezed, "expand": expand, "repeat": repeated, "flip": flipped,
    "slice": sliced, "select": selected,
    "tril": triangle(lambda i, j, d: j - i <= d), "triu": triangle(lambda i, j, d: j - i >= d),
    "embedding": embedded, "index": chosen_by, "gather": gathered, "constant_pad_nd": padded, "stack": stacked,
    "index_select": lambda x, dim, places: chosen_by(x, [None] * axis_of(dim, len(x.shape)) + [places]),
}  # fmt: skip
