"""Tensors as matrices of fractions, whose shapes fit the sizes that they name (docs/checker.md)."""

from collections.abc import Sequence

from flint import fmpq, fmpq_mat

from verify.checker.reading import UNREADABLE, WORDS, read_tiles, require, rows_of


def read_shapes(
    data: bytes, shapes: dict[str, str], flags: Sequence[str] = ()
) -> tuple[dict[str, fmpq_mat], dict[str, int], str]:
    """Each tensor as a matrix of fractions, the sizes that its shapes name, the flags among them, and the dtype."""
    tensors, _ = read_tiles(data, {"BOOL": 1})
    require({*tensors} == {*shapes, *flags}, "the file holds no such model", UNREADABLE)
    (stored, *_), *_ = (tensors[name] for name in shapes)
    sizes: dict[str, int] = {}
    for name in flags:
        found = tensors.pop(name)
        require(found[:2] == ("BOOL", []) and found[2] in (b"\0", b"\1"), f"{name} is no flag", UNREADABLE)
        sizes[name] = found[2] == b"\1"
    matrices = {}
    for name, (dtype, shape, raw) in tensors.items():
        named = shapes[name].split()
        is_right = dtype == stored and dtype in WORDS and len(shape) == len(named) and min([1, *shape]) > 0
        is_right = is_right and all(sizes.setdefault(x, n) == n for x, n in zip(named, shape, strict=True))
        require(is_right, f"{name} of shape {shape} does not fit {named}", UNREADABLE)
        rows, columns = ([1, 1, *shape])[-2:]
        (row,) = rows_of(name, dtype, [rows * columns], raw)
        matrices[name] = fmpq_mat(rows, columns, [fmpq(*x.as_integer_ratio()) for x in row])
    return matrices, sizes, WORDS[stored][0]
