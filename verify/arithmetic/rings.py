"""What numbers can do that a lemma is written for once: rationals, balls of many bits, combinations of exponentials."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar


class Ring(Protocol):
    """Numbers that are added and multiplied, by each other and by integers."""

    def __add__(self, other: Self, /) -> Self: ...

    def __mul__(self, other: Self | int, /) -> Self: ...


class RationalAlgebra(Ring, Protocol):
    """Numbers that are subtracted as well, and divided by integers."""

    def __sub__(self, other: Self, /) -> Self: ...

    def __truediv__(self, other: int, /) -> Self: ...


R = TypeVar("R", bound=Ring)
F = TypeVar("F", bound=RationalAlgebra)
