"""Codes that took long to find, kept beside the code that finds them; each is one small safetensors file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from constructions.codes.code import Code
from constructions.codes.kept import FOLDER, kept_sizes, path_of
from constructions.errors import BadInput
from constructions.progress import Progress

FEW_TOKENS = 9  # up to which the equations of even shares are tried first


def find(
    model: str, T: int, L: int, d: int, *, seed: int = 0, steps: int = 3000, progress: Progress | None = None
) -> Code:
    """The kept code of these sizes or of a larger alphabet, whose first T tokens it is; else the result of a search.

    Claim: W-2.
    Shapes: see Code.
    Raises: BadInput for sequences of one token, whose counts are all 1.

    >>> find("dot+sftm", 32, 10, 6).gap > 0
    True
    """
    if L < 2:
        raise BadInput(f"L={L}: a code tells counts apart, and there is only one. Use --construction inventory.")
    sizes = [size for size, dimensions in kept_sizes(model, T, L) if dimensions == d]
    if sizes:
        tensors = load_file(path_of(FOLDER, model, min(sizes), L, d))
        return Code(model, tensors["E"][:T], tensors["X"], tensors["W_1"][:, :T], float(tensors["gap"]))
    return _searched(_Search(model, T, L, d, seed, steps, progress))


@dataclass(frozen=True)
class _Search:
    """What is searched, and who is told of its progress, which says nothing about the code that is found."""

    model: str
    T: int
    L: int
    d: int
    seed: int
    steps: int
    progress: Progress | None = field(compare=False)


@lru_cache(maxsize=64)
def _searched(asked: _Search) -> Code:
    """Two models that share a carrier share the search; for few tokens dot+sftm has one of its own (W-20).

    A search that is ended from outside leaves nothing, and the next one begins anew.
    """
    from constructions.codes.even import search_even
    from constructions.codes.search import search

    model, T, L, d = asked.model, asked.T, asked.L, asked.d
    if model == "dot+sftm" and T <= FEW_TOKENS and 2 * d > T:
        found = search_even(T, L, d, seed=asked.seed, progress=asked.progress)
        if found.gap > 0:
            return found
    restarts = 4 if T * T * L < 50000 else 2
    return search(model, T, L, d, seed=asked.seed, steps=asked.steps, progress=asked.progress, restarts=restarts)


def keep(code: Code, L: int, folder: Path = FOLDER) -> None:
    """Writes a code into the library.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keep(find("dot", 15, 10, 8), L=10, folder=Path(folder))
    ...     [path.name for path in Path(folder).iterdir()]
    ['dot_T15_L10_d8.safetensors']
    """
    T, d = code.E.shape
    tensors = {"E": code.E, "X": code.X, "W_1": code.W_1, "gap": np.array(code.gap)}
    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, path_of(folder, code.model, T, L, d))
