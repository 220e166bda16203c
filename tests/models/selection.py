"""Which cases of a long family of tests run by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def first(keep: int, cases: Iterable[Any]) -> list[Any]:
    """All cases, of which the first `keep` run by default and the others under -m deep."""
    return _deep_but(lambda i: i < keep, cases)


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """All cases, of which the first of each `step` in a row runs by default and the others under -m deep."""
    return _deep_but(lambda i: i % step == 0, cases)


def _deep_but(is_default: Callable[[int], bool], cases: Iterable[Any]) -> list[Any]:
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=() if is_default(i) else pytest.mark.deep) for i, case in enumerate(listed)]
