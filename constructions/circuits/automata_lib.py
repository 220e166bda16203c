"""automata-lib without the load of networkx, which it imports for what no regular expression needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class OnDemand(ModuleType):
    """A module that is loaded where one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


@contextmanager
def on_demand(name: str) -> Iterator[None]:
    """While it lasts, what is imported is given a module that is loaded on demand, unless it is loaded already.

    >>> with on_demand("this"):
    ...     import this
    >>> "this" in sys.modules
    False
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = OnDemand(name)
    try:
        yield
    finally:
        del sys.modules[name]


with on_demand("networkx"):
    from automata.base.exceptions import AutomatonException as AutomatonException
    from automata.base.exceptions import RegexException as RegexException
    from automata.fa.dfa import DFA as DFA
    from automata.fa.nfa import NFA as NFA
