"""What the program is that decides, so that results kept by an older one are not read as its own."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

import numpy as np
import torch

PACKAGES = ("constructions", "bounds", "verify")


@cache
def code() -> str:
    """A digest of this program and of the libraries that it computes with."""
    import flint

    versions = (platform.python_version(), platform.machine(), torch.__version__, np.__version__, flint.__version__)
    found = hashlib.sha256(repr(versions).encode())
    root = Path(__file__).parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            found.update(f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return found.hexdigest()
