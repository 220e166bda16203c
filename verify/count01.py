"""The Count01 task, decided on all counts of a domain."""

from importlib import import_module
from typing import Any

_HOME = {"certify": "verdict"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"verify.tasks.count01.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
