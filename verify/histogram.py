"""The histogram task, decided on all T^L sequences."""

from importlib import import_module

_HOME = {"certify": "proof", "histogram": "task"}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"verify.tasks.histogram.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
