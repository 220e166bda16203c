"""Which cases of a long family of tests run by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(keep: int, cases: Iterable[Any]) -> list[Any]:
    """All cases, of which the first `keep` run by default and the others under -m deep."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=() if i < keep else pytest.mark.deep) for i, case in enumerate(listed)]
