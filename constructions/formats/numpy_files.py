"""NumPy's files: one array, or a zip archive of arrays; objects, which are pickles, are refused."""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from constructions.errors import BadInput
from constructions.formats.arrays import tensor_of
from constructions.formats.kinds import unique
from constructions.regular_files import MOST_BYTES

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The one array, under the file's name without its ending.

    Raises: BadInput for anything else.
    """
    return {path.stem: _array(path.read_bytes(), path.stem, what)}, {}


def read_npz(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arrays of an archive, unpacked only where they are small enough together.

    Raises: BadInput for anything else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            if sum(info.file_size for info in members) > MOST_BYTES:
                raise BadInput(f"{what}: unpacks to more than {MOST_BYTES} bytes. Save a smaller model.")
            arrays = ((info.filename.removesuffix(".npy"), archive.read(info)) for info in members)
            return unique(((name, _array(data, name, what)) for name, data in arrays), what), {}
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError) as error:  # RuntimeError: encrypted
        raise BadInput(f"{what}: not a readable npz file ({str(error)[:120]}). Save it again.") from None


def _array(data: bytes, name: str, what: str) -> Tensor:
    file = BytesIO(data)
    try:
        shape, is_fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    except (ValueError, KeyError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        said = (str(error).splitlines() or [""])[0][:80]
        raise BadInput(f"{what}: {name} is no array of numbers ({said}). Save it with numpy.save.") from None
    if dtype.hasobject:
        raise BadInput(
            f"{what}: {name} is a pickle of Python objects, and loading it runs code. Convert it where you trust it: "
            'found = numpy.load(FILE, allow_pickle=True).item(); numpy.savez("state.npz", **found)'
        )
    numbers = data[file.tell() :]
    if prod(shape) * dtype.itemsize != len(numbers) or min(shape, default=1) < 0:
        wanted = f"{dtype} of shape {shape}"
        raise BadInput(f"{what}: {name} has {len(numbers)} bytes, which are no {wanted}. Save it again.")
    flat = np.frombuffer(numbers, dtype=dtype) if dtype.itemsize else np.zeros(0, dtype=dtype)
    return tensor_of(flat.reshape(shape, order="F" if is_fortran else "C"), name, what)
