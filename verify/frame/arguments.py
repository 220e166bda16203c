"""Checks of arguments that every task shares; they load no torch."""

from __future__ import annotations

from constructions.errors import BadInput


def check_whole_number(name: str, value: object) -> None:
    """Raises BadInput for a size that is no whole number; True is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{name}={value!r}: must be a whole number, such as {name}=3.")


def check_seconds(name: str, value: object) -> None:
    """Raises BadInput for a budget that is no number of seconds, or below zero."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0:  # type: ignore[operator]  # NaN is refused, too
        raise BadInput(f"{name}={value!r}: must be a number of seconds, zero or more.")
