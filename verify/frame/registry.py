"""Finds the tasks: each is a folder of verify.tasks, whose card, its `__init__.py`, says what others had to list.

| on a card | what it says |
|---|---|
| SUMMARY | what the command of the folder's name does; its options are in the folder's `command.py` |
| MODEL | "module:class" of the models that `verify.certify` decides by the folder's `door.py` |
| IS_DEFAULT | the task that is meant where none is named |
| COUNTS, IMPOSSIBLE | the kinds of models, and the arguments, that the folder brings to `verify inductive` |

A folder may lie in another one, as language does in circuit. A card imports nothing: the command reads all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

TASKS = "verify.tasks"
HOUSE = {  # commands that are no task's: modules of verify.commands
    "check": "re-check saved weights and certificates by a small independent checker",
    "kernel": "state a saved histogram, parity or Count01 proof as a theorem about its words, and have Coq's kernel "
    "check it",
    "figure": "draw attention, hidden activations, margins, phase diagrams and tapes, exactly",
    "batch": "judge many checkpoints of one task in one process, one line each",
    "repair": "change a readout as little as it takes to be proved, or show that no readout can be",
    "radius": "bound how far the stored numbers of a proved model may move, from both sides",
    "quantise": "round a model to fewer bits, and decide it as it is then stored",
    "train": "train a model until it is proved: closest calls are practised, a readout nearly right is repaired",
    "reproduce": "train the models of a document's figure or table again, and decide each of them exactly",
    "export": "write a benchmark for other verifiers: ONNX, VNN-LIB, and the proved answers",
    "claims": "list the claims, or run them: statement, kind, source, and a command that ends as the kind promises",
}


class Command(NamedTuple):
    """What a command does, and the module that has add_arguments(parser) and run(args) -> exit code."""

    summary: str
    place: str

    def module(self) -> ModuleType:
        return import_module(self.place)


def cards() -> Mapping[str, ModuleType]:
    """Every folder's card by the folder's name in Python, the default task's first.

    >>> next(iter(cards())), "verify.tasks.circuit.language" in cards()
    ('verify.tasks.histogram', True)
    """
    return _cards(tuple(import_module(TASKS).__path__))


@cache
def _cards(roots: tuple[str, ...]) -> Mapping[str, ModuleType]:
    """The cards below some folders, looked for once in a process."""
    found = {place: import_module(place) for root in roots for place in sorted(_folders(root))}
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: not hasattr(item[1], "IS_DEFAULT"))))


def _folders(root: str) -> Iterator[str]:
    """The packages below a folder by their names in Python; what pkgutil finds too, in five times as long."""
    for folder, _, files in os.walk(root):
        if "__init__.py" in files and folder != root:
            yield ".".join((TASKS, *os.path.relpath(folder, root).split(os.sep)))


def holders(name: str) -> dict[str, Any]:
    """What the cards say under a name, by folder.

    >>> holders("COUNTS")["verify.tasks.inductive"]
    ('transformer',)
    """
    return {place: getattr(card, name) for place, card in cards().items() if hasattr(card, name)}


def commands() -> dict[str, Command]:
    """Every command by its name, tasks first."""
    own = {place.rpartition(".")[2]: Command(does, f"{place}.command") for place, does in holders("SUMMARY").items()}
    return own | {name: Command(does, f"verify.commands.{name}") for name, does in HOUSE.items()}


def parts(name: str) -> Iterator[ModuleType]:
    """Loads the modules of a name, such as `claims`, from all folders that have one.

    >>> [part.__name__ for part in parts("claims")][0]
    'verify.tasks.histogram.claims'
    """
    for place in cards():
        if find_spec(f"{place}.{name}") is not None:
            yield import_module(f"{place}.{name}")
