"""Checkpoints as they are: wrappers' prefixes, dicts in dicts, and tensors that go by other names."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput, shown

if TYPE_CHECKING:
    from torch import Tensor

DEEPEST = 8  # dict in dict
CLOSE = 0.6  # difflib's ratio from which a name counts as near
MOST_NAMED = 6
TRANSPOSED = ".T"


class LeftOut(UserWarning):
    """A file holds more tensors than the model that is judged."""


@dataclass(frozen=True)
class WeightsFile(os.PathLike[str]):
    """A file of weights, and which of its names stand for ours, as `--map mine=theirs` says.

    `theirs` may end in .T for the transpose; an empty `mine` takes what lies under the prefix `theirs`.
    """

    path: str
    names: tuple[tuple[str, str], ...] = ()

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    @classmethod
    def of(cls, path: str, pairs: Iterable[str]) -> WeightsFile:
        """Parses "mine=theirs", one or more with commas between.

        Raises: BadInput for anything else, and for a name that is given twice.

        >>> WeightsFile.of("m.pt", ["E=embed.weight,W_1=fc1.weight.T"]).names
        (('E', 'embed.weight'), ('W_1', 'fc1.weight.T'))
        """
        names: dict[str, str] = {}
        for pair in (part.strip() for text in pairs for part in text.split(",")):
            mine, equals, theirs = pair.partition("=")
            if not equals or not theirs:
                raise BadInput(f"--map {shown(pair)}: must be mine=theirs, as in --map E=embed.weight")
            if mine in names:
                raise BadInput(f"--map {shown(pair)}: {mine or 'the prefix'} is given twice. Keep one.")
            names[mine] = theirs
        return cls(path, tuple(names.items()))

    def renamed(self, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
        """The tensors under our names; those that are not mapped keep their own.

        Raises: BadInput where the file has no such tensor, or mapping would hide one.
        """
        found = dict(tensors)
        for mine, theirs in self.names:
            if not mine:
                found = _below(found, theirs.rstrip(".") + ".", what)
        for mine, theirs in (pair for pair in self.names if pair[0]):
            if mine in tensors and theirs.removesuffix(TRANSPOSED) != mine:
                raise BadInput(f"--map {mine}={theirs}: {what} holds a tensor {mine} of its own. Leave the pair out.")
            found[mine] = _taken(found, theirs, what)
        return found


def _taken(found: dict[str, Tensor], theirs: str, what: str) -> Tensor:
    """The tensor of this name, transposed for a name that ends in .T; it leaves the dict."""
    if theirs in found:
        return found.pop(theirs)
    plain = theirs.removesuffix(TRANSPOSED)
    if plain != theirs and plain in found and found[plain].dim() == 2:
        return found.pop(plain).T
    raise BadInput(f"--map: {what} holds no {'matrix ' if plain != theirs else ''}{plain}.{near([plain], found)}")


def _below(tensors: Mapping[str, Tensor], prefix: str, what: str) -> dict[str, Tensor]:
    """What lies under a prefix, without it."""
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not found:
        raise BadInput(f"--map ={prefix}: {what} holds nothing under {prefix}{_listed(tensors)}")
    return found


def flattened(state: Mapping[Any, Any], tensor: type[Tensor], depth: int = 0) -> dict[str, Tensor]:
    """The tensors of a dict of dicts, their names joined by dots; what is no tensor is no weight.

    Raises: BadInput where two tensors would get one name.

    >>> import torch
    >>> sorted(flattened({"epoch": 3, "net": {"E": torch.zeros(1), "mlp": {"b": torch.zeros(1)}}}, torch.Tensor))
    ['net.E', 'net.mlp.b']
    """
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if isinstance(value, tensor):
            found[str(name)] = value
        elif isinstance(value, Mapping) and depth < DEEPEST:
            inner = {f"{name}.{key}": each for key, each in flattened(value, tensor, depth + 1).items()}
            if twice := inner.keys() & found.keys():
                raise BadInput(f"weights: the file holds two tensors {min(twice)}. Save one state dict.")
            found |= inner
    return found


def under_root(tensors: dict[str, Tensor], marks: Iterable[str], what: str) -> dict[str, Tensor]:
    """The model's tensors without the prefix of their wrapper, found by a name that every such model has.

    What lies beside the model is left out, with a warning: a metric's buffer, an optimiser's state.
    Raises: BadInput where two models lie in the file.

    >>> list(under_root({"model.E": 1, "model.b_1": 2}, ["E"], "weights='m.pt'"))
    ['E', 'b_1']
    """
    roots = {name.removesuffix(mark) for name in tensors for mark in marks if name == mark or name.endswith(f".{mark}")}
    if not roots or "" in roots:
        return tensors
    if len(roots) > 1:
        named = ", ".join(sorted(root.rstrip(".") for root in roots))
        raise BadInput(f"{what}: holds more than one model ({named}). Choose one, as in --map ={min(roots)}")
    root = roots.pop()
    rest = [name for name in tensors if not name.startswith(root)]
    if rest:
        warnings.warn(f"{what}: the model is what lies under {root}; left out{_listed(rest)}", LeftOut, stacklevel=2)
    return {name.removeprefix(root): tensor for name, tensor in tensors.items() if name.startswith(root)}


def near(missing: Iterable[str], present: Iterable[str]) -> str:
    """What a file may hold under another name, as the end of an error: near matches, else what there is.

    >>> near(["W_1"], ["w1", "b_2"])
    ' Is W_1 its w1? Then add --map W_1=w1.'
    >>> near(["E"], ["tok.table"])
    ' It holds tok.table: say which is which, as in --map E=tok.table.'
    """
    unused, missing = sorted(present), sorted(missing)
    if not unused or not missing:
        return ""
    plain = {_plain(name): name for name in unused} | {_plain(name.rpartition(".")[2]): name for name in unused}
    pairs = []
    for name in sorted(missing):
        close = difflib.get_close_matches(_plain(name), plain, 1, CLOSE)
        if close:
            pairs.append((name, plain[close[0]]))
    if not pairs:
        return f" It holds{_listed(unused, '')}: say which is which, as in --map {min(missing)}={unused[0]}."
    asked = ", ".join(f"{mine} its {theirs}" for mine, theirs in pairs[:MOST_NAMED])
    return f" Is {asked}? Then add --map {','.join(f'{mine}={theirs}' for mine, theirs in pairs[:MOST_NAMED])}."


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _listed(names: Iterable[str], end: str = ".") -> str:
    every = sorted(names)
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return f" {', '.join(shown(name, 60)[1:-1] for name in every[:MOST_NAMED])}{more}{end}"
