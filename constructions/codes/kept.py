"""Which codes are kept beside the code that finds them, told from their files' names; nothing here loads torch."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def smallest_kept(model: str, T: int, L: int) -> int | None:
    """The smallest d of a code that is kept for T tokens, or for more where the first T of them are one for T.

    >>> smallest_kept("dot", 15, 10), smallest_kept("dot", 33, 10)
    (8, None)
    """
    return min((d for size, d in kept_sizes(model, T, L)), default=None)


def kept_sizes(model: str, T: int, L: int) -> list[tuple[int, int]]:
    """The number of tokens and d of every kept code for T tokens; in dot+sftm its scales are those of all.

    >>> kept_sizes("dot+sftm", 33, 10)
    []
    """
    names = (path.stem.split("_") for path in FOLDER.glob(f"{model}_T*_L{L}_d*.safetensors"))
    sizes = ((int(name[1][1:]), int(name[3][1:])) for name in names)
    return [(size, d) for size, d in sizes if size == T or (size > T and model != "dot+sftm")]


def path_of(folder: Path, model: str, T: int, L: int, d: int) -> Path:
    """The file of a code in a folder.

    >>> path_of(FOLDER, "dot", 16, 10, 8).name
    'dot_T16_L10_d8.safetensors'
    """
    return folder / f"{model}_T{T}_L{L}_d{d}.safetensors"
