"""Weights on disk, whichever model they belong to: read without running code, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from constructions import regular_files
from constructions.errors import BadInput, shown
from constructions.names import WeightsFile, flattened, under_root

StrPath = str | os.PathLike[str]
MOST_BYTES = 2 << 30  # of a weights file
MOST_NUMBERS = 1 << 28  # in it: 2 GiB in float64
LONGEST_NAME = 255 - len(".4194304.tmp") - 1  # of a file: what is written beside it first has a longer one
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
    what, target = f"{name}={shown(text, 200)}", Path(text)
    example = "model.safetensors" if name == "save" else "figure.svg"
    if not text:
        raise BadInput(f"{what}: is empty. Name a file, such as {example!r}.")
    if len(os.fsencode(target.name)) > LONGEST_NAME:
        raise BadInput(f"{what}: the name is longer than {LONGEST_NAME} bytes. Choose a shorter one.")
    if os.path.exists(text) and not os.path.isfile(text) and not os.path.isdir(text):
        raise BadInput(f"{what}: is no regular file, and would be replaced by one. Name another.")
    if text.endswith(os.sep) or os.path.isdir(text):
        raise BadInput(f"{what}: is a folder. Name a file, such as {str(target / example)!r}.")
    if not os.path.isdir(target.parent):
        raise BadInput(f"{what}: there is no folder {str(target.parent)!r}. Create it first.")


def check_target_folder(path: StrPath, names: Iterable[str], name: str = "save") -> None:
    """Refuses a place where no folder of these files can be written, before anything is computed for it.

    Raises: BadInput for an empty name, a file, a folder that holds anything else, or one whose parent is not there.
    """
    what, target = f"{name}={shown(os.fspath(path), 200)}", Path(path)
    if not os.fspath(path):
        raise BadInput(f"{what}: is empty. Name a new folder.")
    if len(os.fsencode(target.name)) > LONGEST_NAME:
        raise BadInput(f"{what}: the name is longer than {LONGEST_NAME} bytes. Choose a shorter one.")
    if not os.path.isdir(target.resolve().parent):
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
