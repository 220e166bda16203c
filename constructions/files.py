"""Weights on disk, whichever model they belong to, read without running code."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from constructions import plain_json, regular_files
from constructions.errors import BadInput, shown
from constructions.names import WeightsFile, flattened, under_root

StrPath = str | os.PathLike[str]
MOST_BYTES = 2 << 30  # of a weights file
MOST_NUMBERS = 1 << 28  # in it: 2 GiB in float64
UNUSABLE = (
    (lambda tensor: tensor.is_meta, "is on the device meta, without numbers"),
    (lambda tensor: tensor.is_nested, "is nested"),
    (lambda tensor: tensor.is_quantized, "is quantised"),
    (lambda tensor: tensor.layout is not torch.strided, "is sparse"),
    (lambda tensor: tensor.is_complex(), "is complex"),
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # in messages of torch
ENTRIES = ("model", "state_dict", "model_state_dict")  # where training loops put the state dict


def read_tensors(path: StrPath, key: str, marks: Iterable[str] = ()) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a .safetensors file or .pt checkpoint, and the JSON object in its metadata under `key`.

    A state dict may lie in dicts of a checkpoint, as Lightning's do. `marks` are names one of which every model of the
    kind has: a wrapper's prefix in front of it (module., _orig_mod., model.) is taken off all names. A path that is a
    `WeightsFile` brings its own names.
    Raises: BadInput, in one line, for whatever is not such a file; the object is empty where there is none.
    """
    what, file = f"weights={shown(os.fspath(path), 200)}", regular_files.checked(path, "weights", MOST_BYTES)
    tensors, header = (
        _read_safetensors(file, what, key) if file.suffix == ".safetensors" else _read_state_dict(file, what)
    )
    check_tensors(tensors, what)
    if isinstance(path, WeightsFile):
        tensors = path.renamed(tensors, what)
    return under_root(tensors, marks, what), header


def check_stated(header: Mapping[str, Any], found: Mapping[str, Any], what: str) -> None:
    """Refuses metadata that say anything else than what was found in the file, where they say it.

    Raises: BadInput, naming the first such entry; true is not 1, and 1.0 is not either.

    >>> check_stated({"T": 99}, {"T": 4}, "weights='m.safetensors'")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='m.safetensors': the metadata say T=99, and the tensors T=4. Save it again.
    """
    for name, value in found.items():
        said = header.get(name)
        if said is not None and (type(said) is not type(value) or said != value):
            raise BadInput(
                f"{what}: the metadata say {name}={shown(said)}, and the tensors {name}={value}. Save it again."
            )


def stated_length(header: Mapping[str, Any], what: str) -> int | None:
    """The sequence length L that the metadata state, None where they do not.

    Raises: BadInput for anything but a whole number, at least 1.
    """
    L = header.get("L")
    if L is None or (type(L) is int and L >= 1):
        return L
    raise BadInput(f"{what}: the metadata say L={shown(L)}, which must be a whole number, at least 1. Save it again.")


def state_bytes(model: torch.nn.Module, key: str, header: Mapping[str, Any]) -> bytes:
    """The state dict as a safetensors file, with the JSON object `header` in its metadata under `key`."""
    from safetensors.torch import save

    tensors = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    return save(tensors, metadata={key: json.dumps(header)})


def check_tensors(tensors: Mapping[str, Tensor], what: str) -> None:
    """Refuses tensors that are not all there as plain numbers, or too many of them together.

    Raises: BadInput, naming the first such tensor.

    >>> check_tensors({"E": torch.zeros(2, 2, device="meta")}, "weights='m.pt'")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='m.pt': E is on the device meta, without numbers. Save dense tensors.
    """
    for name, tensor in tensors.items():
        kind = next((kind for is_kind, kind in UNUSABLE if is_kind(tensor)), None)
        if kind is not None:
            raise BadInput(f"{what}: {shown_name(name)} {kind}. Save dense tensors.")
    numbers = sum(tensor.numel() for tensor in tensors.values())  # an expanded one has more than are stored
    if numbers > MOST_NUMBERS:
        raise BadInput(f"{what}: holds {numbers} numbers, and at most {MOST_NUMBERS} are read. Save a smaller model.")


def shown_name(name: str) -> str:
    """The name of a tensor, cut where it is long."""
    return name if len(name) <= 60 else f"{name[:40]}... ({len(name)} characters)"


def _read_state_dict(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says all there is to say
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle make the unpickler fail anyhow
        said = COLOUR.sub("", str(error)).strip()
        reason = said.splitlines()[0] if said else type(error).__name__
        raise BadInput(
            f"{what}: not a state dict that can be read safely ({reason[:120]}). "
            "Save it with torch.save(module.state_dict(), path) or as .safetensors."
        ) from None
    for entry in ENTRIES:  # a checkpoint with more in it than the weights
        if isinstance(state, dict) and isinstance(state.get(entry), dict):
            state = state[entry]
    tensors = flattened(state, Tensor) if isinstance(state, dict) else {}
    if not tensors:
        raise BadInput(f"{what}: holds no state dict (a non-empty dict of tensors). Save module.state_dict().")
    return tensors, {}


def _read_safetensors(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
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
