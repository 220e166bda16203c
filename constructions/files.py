"""Weights on disk, whichever model they belong to: read without running code, written whole or not at all."""

from __future__ import annotations

import json
import os
import pickle
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from constructions.errors import BadInput

StrPath = str | os.PathLike[str]


def read_tensors(path: StrPath, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a .safetensors file or .pt state dict, and the JSON object in its metadata under `key`.

    Raises: BadInput, in one line, for whatever is not such a file; the object is empty where there is none.
    """
    what = f"weights={os.fspath(path)!r}"
    if not os.fspath(path):
        raise BadInput(f"{what}: is empty. Name a .safetensors or .pt file.")
    path = Path(path)
    try:
        if path.is_dir():
            raise BadInput(f"{what}: is a folder. Name the file in it.")
        path.stat()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise BadInput(f"{what}: {reason}. Check the path.") from None
    if path.suffix == ".safetensors":
        return _read_safetensors(path, what, key)
    return _read_state_dict(path, what), {}


def _read_state_dict(path: Path, what: str) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says all there is to say
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError,
        EOFError,
        RuntimeError,
        zipfile.BadZipFile,
        ValueError,
        KeyError,
        OSError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(
            f"{what}: not a state dict that can be read safely ({reason[:120]}). "
            "Save it with torch.save(module.state_dict(), path) or as .safetensors."
        ) from None
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()) or not state:
        raise BadInput(f"{what}: holds no state dict (a non-empty dict of tensors). Save module.state_dict().")
    return {str(name): value for name, value in state.items()}


def _read_safetensors(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            header = json.loads((file.metadata() or {}).get(key, "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise BadInput(f"{what}: not a readable safetensors file ({reason}). Save it again.") from None
    if not isinstance(header, dict):
        raise BadInput(f"{what}: the metadata under {key!r} is not a JSON object. Save it again.")
    return tensors, header


def check_target(path: StrPath) -> None:
    """Refuses a place that no file can be written to, before anything is computed for it.

    Raises: BadInput for an empty name, a folder, or a folder that is not there.
    """
    text = os.fspath(path)
    what, target = f"save={text!r}", Path(text)
    if not text:
        raise BadInput(f"{what}: is empty. Name a file, such as 'model.safetensors'.")
    if text.endswith(os.sep) or os.path.isdir(text):
        raise BadInput(f"{what}: is a folder. Name a file, such as {str(target / 'model.safetensors')!r}.")
    if not os.path.isdir(target.parent):
        raise BadInput(f"{what}: there is no folder {str(target.parent)!r}. Create it first.")


def write_whole(path: StrPath, data: bytes) -> None:
    """Writes beside the file, then renames, so that no half-written file is ever seen.

    Raises: BadInput when the place cannot be written to.
    """
    check_target(path)
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        os.replace(beside, target)
    except OSError as error:
        raise BadInput(f"save={os.fspath(path)!r}: cannot write there ({error.strerror}). Name another.") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
