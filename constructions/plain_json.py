"""JSON that every reader reads alike: no key twice, no NaN or infinity, no number too long or nested too deep."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DIGITS = 1000  # of an integer


def loads(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises: ValueError, in one line, for text that is no JSON, or that two readers may read differently.

    >>> loads('{"T": 4}'), loads("[1.5, null]")
    ({'T': 4}, [1.5, None])
    >>> loads('{"T": 4, "T": 5}')
    Traceback (most recent call last):
    ValueError: the key 'T' occurs twice
    """
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(
            plain, object_pairs_hook=_unique, parse_int=_whole, parse_float=_finite, parse_constant=_no_number
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} occurs twice")
        found[key] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is beyond every float")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
