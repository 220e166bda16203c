"""Codes that took long to find, kept beside the code that finds them; each is one small safetensors file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from safetensors.torch import load_file, save_file

from constructions.codes.even import search_even
from constructions.codes.search import Code, Progress, search
from constructions.errors import BadInput

FOLDER = Path(__file__).parent
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
    sizes = [size for size, dimensions in _kept(model, T, L) if dimensions == d]
    if sizes:
        tensors = load_file(_path(FOLDER, model, min(sizes), L, d))
        return Code(model, tensors["E"][:T], tensors["X"], tensors["W_1"][:, :T], float(tensors["gap"]))
    return _searched(model, T, L, d, seed, steps, progress)


def smallest_kept(model: str, T: int, L: int) -> int | None:
    """The smallest d of a code that is kept for T tokens, or for more where the first T of them are one for T.

    >>> smallest_kept("dot", 15, 10), smallest_kept("dot", 33, 10)
    (8, None)
    """
    return min((d for size, d in _kept(model, T, L)), default=None)


def _kept(model: str, T: int, L: int) -> list[tuple[int, int]]:
    """The number of tokens and d of every kept code for T tokens; in dot+sftm its scales are those of all."""
    names = (path.stem.split("_") for path in FOLDER.glob(f"{model}_T*_L{L}_d*.safetensors"))
    sizes = ((int(name[1][1:]), int(name[3][1:])) for name in names)
    return [(size, d) for size, d in sizes if size == T or (size > T and model != "dot+sftm")]


@lru_cache(maxsize=64)
def _searched(model: str, T: int, L: int, d: int, seed: int, steps: int, progress: Progress | None) -> Code:
    """Two models that share a carrier share the search; for few tokens dot+sftm has one of its own (W-20)."""
    if model == "dot+sftm" and T <= FEW_TOKENS and 2 * d > T:
        found = search_even(T, L, d, seed=seed, progress=progress)
        if found.gap > 0:
            return found
    return search(model, T, L, d, seed=seed, steps=steps, progress=progress, restarts=4 if T * T * L < 50000 else 2)


def keep(code: Code, L: int, folder: Path = FOLDER) -> None:
    """Writes a code into the library.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keep(find("dot", 15, 10, 8), L=10, folder=Path(folder))
    ...     [path.name for path in Path(folder).iterdir()]
    ['dot_T15_L10_d8.safetensors']
    """
    T, d = code.E.shape
    tensors = {"E": code.E, "X": code.X, "W_1": code.W_1, "gap": code.E.new_tensor(code.gap)}
    save_file({name: x.contiguous() for name, x in tensors.items()}, _path(folder, code.model, T, L, d))


def _path(folder: Path, model: str, T: int, L: int, d: int) -> Path:
    return folder / f"{model}_T{T}_L{L}_d{d}.safetensors"
