"""Files of safetensors: a header of JSON, and the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from constructions import plain_json
from constructions.errors import BadInput


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
    return tensors, header
