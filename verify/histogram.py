"""The histogram task, decided on all T^L sequences."""

from importlib import import_module
from typing import Any

_HOME = {"certify": "proof", "histogram": "task"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"verify.tasks.histogram.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
