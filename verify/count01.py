"""The Count01 task, decided on all counts of a domain."""

from importlib import import_module

_HOME = {"certify": "verdict"}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"verify.tasks.count01.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
