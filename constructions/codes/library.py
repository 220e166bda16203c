"""Codes that took long to find, kept beside the code that finds them; each is one small safetensors file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from safetensors.torch import load_file, save_file

from constructions.codes.search import Code, Progress, search
from constructions.errors import BadInput

FOLDER = Path(__file__).parent


def find(
    model: str, T: int, L: int, d: int, *, seed: int = 0, steps: int = 3000, progress: Progress | None = None
) -> Code:
    """The kept code of these sizes, or the result of a search.

    Claim: W-2.
    Shapes: see Code.
    Raises: BadInput for sequences of one token, whose counts are all 1.

    >>> find("dot+sftm", 32, 10, 6).gap > 0
    True
    """
    if L < 2:
        raise BadInput(f"L={L}: a code tells counts apart, and there is only one. Use --construction inventory.")
    kept = _path(FOLDER, model, T, L, d)
    if kept.exists():
        tensors = load_file(kept)
        return Code(model, tensors["E"], tensors["X"], tensors["W_1"], float(tensors["gap"]))
    return _searched(model, T, L, d, seed, steps, progress)


@lru_cache(maxsize=64)
def _searched(model: str, T: int, L: int, d: int, seed: int, steps: int, progress: Progress | None) -> Code:
    """Two models that share a carrier share the search."""
    return search(model, T, L, d, seed=seed, steps=steps, progress=progress, restarts=4 if T * T * L < 50000 else 2)


def keep(code: Code, L: int, folder: Path = FOLDER) -> None:
    """Writes a code into the library."""
    T, d = code.E.shape
    tensors = {"E": code.E, "X": code.X, "W_1": code.W_1, "gap": code.E.new_tensor(code.gap)}
    save_file({name: x.contiguous() for name, x in tensors.items()}, _path(folder, code.model, T, L, d))


def _path(folder: Path, model: str, T: int, L: int, d: int) -> Path:
    return folder / f"{model}_T{T}_L{L}_d{d}.safetensors"
