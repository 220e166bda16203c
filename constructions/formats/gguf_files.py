"""GGUF: metadata, a table of tensors, and the numbers. Tensors in blocks of a few bits are refused by name."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from constructions.errors import BadInput
from constructions.formats.arrays import from_bytes
from constructions.formats.kinds import unique

DTYPES = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
BYTES = {"float32": 4, "float16": 2, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float64": 8, "bfloat16": 2}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
ALIGNMENT = "general.alignment"
DEEPEST = 4  # array of array


@dataclass
class Cursor:
    """A place in the bytes of a file, which moves on as values are read."""

    data: memoryview
    place: int = 0

    def take(self, size: int) -> memoryview:
        if size < 0 or self.place + size > len(self.data):
            raise ValueError("it ends early")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        return bytes(self.take(self.number("Q"))).decode("utf-8")

    def value(self, kind: int, depth: int = 0) -> Any:
        """One value of the metadata; an array is passed over."""
        if kind == TEXT:
            return self.text()
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind != ARRAY or depth == DEEPEST:
            raise ValueError(f"its metadata hold a value of the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            self.take(count * struct.calcsize(f"<{SCALARS[inner]}"))
        else:
            for _ in range(count):
                self.value(inner, depth + 1)
        return None


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file of version 2 or 3; the first of its sizes is the fastest, so shapes are turned round.

    Raises: BadInput for anything else.
    """
    try:
        return unique(_tensors(Cursor(memoryview(path.read_bytes())), what), what), {}
    except (ValueError, struct.error, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{what}: not a readable GGUF file ({str(error)[:120]}). Save it again.") from None


def _tensors(at: Cursor, what: str) -> Iterator[tuple[str, Tensor]]:
    at.take(4)
    version, tensors, entries = at.number("I"), at.number("Q"), at.number("Q")
    if version not in (2, 3):
        raise ValueError(f"version {version}, where 2 and 3 are read")
    alignment = 32
    for _ in range(entries):
        name, kind = at.text(), at.number("I")
        value = at.value(kind)
        alignment = value if name == ALIGNMENT else alignment
    if type(alignment) is not int or alignment < 1:
        raise ValueError(f"its alignment is {alignment!r}")
    table = [_entry(at, what) for _ in range(tensors)]
    begin = -(-at.place // alignment) * alignment
    for name, dtype, shape, offset in table:
        at.place = begin + offset
        yield name, from_bytes(at.take(prod(shape) * BYTES[dtype]), dtype, shape, name, what)


def _entry(at: Cursor, what: str) -> tuple[str, str, list[int], int]:
    name, dimensions = at.text(), at.number("I")
    if dimensions > 4:
        raise ValueError(f"{name[:40]} has {dimensions} dimensions")
    shape = [at.number("Q") for _ in range(dimensions)][::-1]
    kind, offset = at.number("I"), at.number("Q")
    if kind not in DTYPES:
        raise BadInput(
            f"{what}: {name[:60]} is quantised (type {kind} of GGML), and only float and integer tensors are read. "
            "Convert the model without quantising: python convert_hf_to_gguf.py FOLDER --outtype f32"
        )
    return name, DTYPES[kind], shape, offset
