"""Flax's files: msgpack, in which an extension type holds shape, dtype and numbers of an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from constructions.errors import BadInput
from constructions.formats.arrays import from_bytes
from constructions.formats.kinds import library, unique
from constructions.names import flattened

ARRAY, COMPLEX, SCALAR = 1, 2, 3  # flax.serialization's extension types


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arrays of a tree of dicts, their names joined by dots.

    Raises: BadInput for anything else, and for arrays in chunks.
    """
    msgpack = library("msgpack", what, "msgpack")

    def extension(code: int, data: bytes) -> Any:
        if code not in (ARRAY, SCALAR):
            return None  # complex numbers and others' types are no weights
        shape, dtype, numbers = msgpack.unpackb(data)
        return from_bytes(numbers, dtype, shape, "an array", what)

    try:
        tree = msgpack.unpackb(path.read_bytes(), ext_hook=extension, strict_map_key=False)
        tensors = flattened(tree, Tensor) if isinstance(tree, dict) else {}
    except BadInput:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError, MemoryError, msgpack.UnpackException) as error:
        raise BadInput(f"{what}: not a msgpack file that Flax writes ({str(error)[:120]}). Save it again.") from None
    if any("__msgpack_chunked_array__" in name for name in tensors):
        raise BadInput(f"{what}: holds arrays in chunks, of more than 1 GiB each. Save a smaller model.")
    return unique(tensors.items(), what), {}
