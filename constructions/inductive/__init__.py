"""Decoders that count inductively, built by hand: one file for each idea, all in GPT-2's block.

The builders of these files write arrays; by the names below they are modules, for which torch is loaded when the first
of them is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constructions.inductive.files import as_bytes as as_bytes
    from constructions.inductive.files import load as load
    from constructions.inductive.modules import alike as alike
    from constructions.inductive.modules import ape as ape
    from constructions.inductive.modules import beside_bos as beside_bos
    from constructions.inductive.modules import positioned as positioned
    from constructions.inductive.modules import selective as selective
    from constructions.inductive.modules import sine as sine
    from constructions.inductive.modules import spe as spe
    from constructions.inductive.modules import started as started
    from constructions.inductive.modules import succession as succession
    from constructions.inductive.modules import unmarked as unmarked
    from constructions.inductive.modules import unmixed as unmixed
    from constructions.inductive.modules import with_layernorm as with_layernorm

_HOME = {"as_bytes": "files", "load": "files"}

__all__ = [
    "alike",
    "ape",
    "as_bytes",
    "beside_bos",
    "load",
    "positioned",
    "selective",
    "sine",
    "spe",
    "started",
    "succession",
    "unmarked",
    "unmixed",
    "with_layernorm",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"constructions.inductive.{_HOME.get(name, 'modules')}"), name)
