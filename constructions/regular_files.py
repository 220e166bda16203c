"""Files that are read whole: regular ones, of a size that fits, looked at before they are opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from constructions.errors import BadInput, shown

MOST_BYTES = 2 << 30  # of a weights file, and of what it unpacks to
KINDS = (
    (stat.S_ISDIR, "is a folder. Name the file in it"),
    (stat.S_ISFIFO, "is a pipe, and may wait for ever. Write it to a file first"),
    (stat.S_ISSOCK, "is a socket. Name a file"),
    (stat.S_ISCHR, "is a device, and may have no end. Name a file"),
    (stat.S_ISBLK, "is a device. Name a file"),
)


def checked(path: str | os.PathLike[str], name: str, most: int) -> Path:
    """The path of a regular file of at most `most` bytes; `name` is the argument that messages name.

    A fifo would be waited for, and a device never ends: nothing is opened before this.
    Raises: BadInput for anything else.

    >>> import tempfile
    >>> checked(tempfile.gettempdir(), "weights", 10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='...': is a folder. Name the file in it.
    """
    text = os.fspath(path)
    what = f"{name}={shown(text, 200)}"
    if not text:
        raise BadInput(f"{what}: is empty. Name a file.")
    try:
        about = os.stat(text)
    except FileNotFoundError:
        raise BadInput(f"{what}: no such file. Check the path.") from None
    except (OSError, ValueError) as error:  # ValueError for a zero byte in the name
        raise BadInput(
            f"{what}: cannot be read ({getattr(error, 'strerror', None) or error}). Check the path."
        ) from None
    for is_kind, said in KINDS:
        if is_kind(about.st_mode):
            raise BadInput(f"{what}: {said}.")
    if about.st_size > most:
        raise BadInput(f"{what}: has {about.st_size} bytes, and at most {most} are read. Name a smaller file.")
    return Path(text)


def read(path: str | os.PathLike[str], name: str, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes.

    Raises: BadInput for anything else.
    """
    place = checked(path, name, most)
    try:
        with place.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise BadInput(f"{name}={shown(str(place), 200)}: cannot be read ({error.strerror}). Check the path.") from None
    if len(data) > most:
        raise BadInput(f"{name}={shown(str(place), 200)}: has more than {most} bytes. Name a smaller file.")
    return data
