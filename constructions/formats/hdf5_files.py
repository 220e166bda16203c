"""HDF5, as Keras writes it: groups of datasets. Only what lies in the file itself is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from constructions.errors import BadInput
from constructions.formats.arrays import tensor_of
from constructions.formats.kinds import library, unique
from constructions.regular_files import MOST_BYTES

NUMBERS = "fiub"  # numpy's kinds


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The datasets of numbers, each under its path; links out of the file are not followed.

    Raises: BadInput for anything else, and for a dataset whose numbers lie in another file.
    """
    h5py = library("h5py", what, "HDF5")
    found: dict[str, Any] = {}
    try:
        with h5py.File(path, "r") as file:
            file.visititems(found.__setitem__)
            numbers = {n: e for n, e in found.items() if isinstance(e, h5py.Dataset) and e.dtype.kind in NUMBERS}
            for name, entry in numbers.items():
                if entry.is_virtual or entry.external:
                    raise BadInput(f"{what}: {name} lies in another file. Save all in one.")
            if sum(entry.nbytes for entry in numbers.values()) > MOST_BYTES:
                raise BadInput(f"{what}: unpacks to more than {MOST_BYTES} bytes. Save a smaller model.")
            return unique(((name, tensor_of(entry[()], name, what)) for name, entry in numbers.items()), what), {}
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{what}: not a readable HDF5 file ({str(error)[:120]}). Save it again.") from None
