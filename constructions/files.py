"""Weights on disk, whichever model they belong to: read without running code, written whole or not at all."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from constructions.errors import BadInput

StrPath = str | os.PathLike[str]
ENTRIES = ("model", "state_dict", "model_state_dict")  # where training loops put the state dict


def read_tensors(path: StrPath, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a .safetensors file or .pt state dict, and the JSON object in its metadata under `key`.

    A state dict may lie under "model", "state_dict" or "model_state_dict".
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
    for entry in ENTRIES:  # a checkpoint with more in it than the weights
        if isinstance(state, dict) and isinstance(state.get(entry), dict):
            state = state[entry]
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


def check_target(path: StrPath, name: str = "save") -> None:
    """Refuses a place that no file can be written to, before anything is computed for it.

    Raises: BadInput for an empty name, a folder, or a folder that is not there.
    """
    text = os.fspath(path)
    what, target = f"{name}={text!r}", Path(text)
    example = "model.safetensors" if name == "save" else "figure.svg"
    if not text:
        raise BadInput(f"{what}: is empty. Name a file, such as {example!r}.")
    if text.endswith(os.sep) or os.path.isdir(text):
        raise BadInput(f"{what}: is a folder. Name a file, such as {str(target / example)!r}.")
    if not os.path.isdir(target.parent):
        raise BadInput(f"{what}: there is no folder {str(target.parent)!r}. Create it first.")


def check_target_folder(path: StrPath, names: Iterable[str]) -> None:
    """Refuses a place where no folder of these files can be written, before anything is computed for it.

    Raises: BadInput for a file, a folder that holds anything else, or a folder whose parent is not there.
    """
    what, target = f"save={os.fspath(path)!r}", Path(path)
    if not target.resolve().parent.is_dir():
        raise BadInput(f"{what}: there is no folder {str(target.parent)!r}. Create it first.")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BadInput(f"{what}: is no folder. Name a new one, or a file that ends in .safetensors.")
    if target.is_dir() and (others := sorted(set(os.listdir(target)) - set(names))):
        raise BadInput(f"{what}: holds {others[0]!r}, which would be lost. Name a new folder.")


def write_whole_folder(path: StrPath, files: Mapping[str, bytes]) -> None:
    """Writes a folder of these files beside the place, then renames it, so that files of two runs never mix.

    Raises: BadInput when the place cannot be written to, or holds anything but files of these names.
    """
    check_target_folder(path, files)
    target = Path(path).resolve()
    beside, before = (target.with_name(f".{target.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        beside.mkdir()
        for name, data in files.items():
            (beside / name).write_bytes(data)
        if target.exists():
            target.rename(before)  # a folder that is not empty cannot be renamed onto
        beside.rename(target)
    except OSError as error:
        raise BadInput(f"save={os.fspath(path)!r}: cannot write there ({error.strerror}). Name another.") from None
    finally:
        if before.exists() and not target.exists():
            before.rename(target)
        for folder in (beside, before):
            shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: StrPath, data: bytes, name: str = "save") -> None:
    """Writes beside the file, then renames, so that no half-written file is ever seen.

    Raises: BadInput when the place cannot be written to.
    """
    check_target(path, name)
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        os.replace(beside, target)
    except OSError as error:
        raise BadInput(f"{name}={os.fspath(path)!r}: cannot write there ({error.strerror}). Name another.") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
