"""Files and folders written whole or not at all; nothing here loads torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from constructions.errors import BadInput, shown

StrPath = str | os.PathLike[str]
LONGEST_NAME = 255 - len(".4194304.tmp") - 1  # of a file: what is written beside it first has a longer one


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


def made_folder(path: StrPath, name: str = "save") -> Path:
    """The folder that files are written to one by one, made where it is not there.

    Raises: BadInput for an empty name, and where no folder can be made.
    """
    text, place = os.fspath(path), Path(path)
    if not text:
        raise BadInput(f"{name}='': is empty. Name a folder.")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{name}={shown(text, 200)}: no folder can be made there ({reason}). Name another.") from None
    return place


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
