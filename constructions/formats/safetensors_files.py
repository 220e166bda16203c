"""Files of safetensors: a header of JSON, and the numbers, or whole numbers with scales (see whole_numbers)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from constructions import plain_json
from constructions.errors import BadInput
from constructions.formats.kinds import Start
from constructions.whole_numbers import multiplied, scaled_names


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Raises: BadInput for a file that is none, or whose metadata under `key` are no JSON object."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            header = plain_json.loads((file.metadata() or {}).get(key, "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise BadInput(f"{what}: not a readable safetensors file ({reason}). Save it again.") from None
    if not isinstance(header, dict):
        raise BadInput(f"{what}: the metadata under {key!r} is not a JSON object. Save it again.")
    return multiplied(tensors, what), header


def names_of_whole_numbers(path: Path) -> tuple[str, ...]:
    """Which tensors of a file stand for scales times whole numbers; none for a file of another format."""
    start = Start.of(path, "weights")
    if not (start.ends(".safetensors") or start.is_safetensors):
        return ()
    try:
        with safe_open(path, framework="pt") as file:
            return scaled_names({name: file.get_slice(name).get_dtype() for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, MemoryError):
        return ()


def rewritten(path: str) -> bytes:
    """A file in any format that is read as one of this format, with its metadata where it was of this one already.

    Raises: BadInput for a file that is not read.
    """
    from constructions.files import read_tensors

    tensors = read_tensors(path, "")[0]
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
    except (SafetensorError, OSError):
        metadata = None
    return save({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, metadata)
