"""A fault planted in a function, for tests that must catch it."""

from __future__ import annotations

import inspect
import sys
import textwrap
from functools import cached_property
from unittest import mock


def planted(owner, name, right, wrong):
    """A function whose source says something wrong in one place."""
    found = inspect.getattr_static(owner, name)
    function = getattr(found, "func", getattr(found, "__func__", found))  # of a cached property, or a class method
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{name} no longer says {right!r} once: plant this fault anew"
    if source.startswith("@rule("):  # it is registered already
        source = source[source.index("\ndef ") + 1 :]
    names = {}
    exec(source.replace(right, wrong), vars(sys.modules[function.__module__]), names)
    if isinstance(names[name], cached_property):
        names[name].__set_name__(owner, name)
    return mock.patch.object(owner, name, names[name])
