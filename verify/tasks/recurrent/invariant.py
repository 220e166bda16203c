"""The ellipsoids of a proof as a certificate saves them: exact numbers, few of their digits."""

from __future__ import annotations

from typing import TypedDict

from verify.tasks.recurrent.chain import Ellipsoids
from verify.tasks.recurrent.proof import Invariant

MOST_SAVED = 1_000_000  # entries of the matrices


class WrittenEllipsoids(TypedDict):
    """Ellipsoids as a certificate saves them."""

    centres: list[list[float]]
    exponents: list[int]
    shapes: list[list[list[float]]]


class WrittenInvariant(WrittenEllipsoids):
    """A ring of ellipsoids as a certificate saves it."""

    entry: int
    place: int
    rate: float
    margin: float


def as_json(invariant: Invariant) -> WrittenInvariant:
    """Centres and matrices as the floats that they are: E_i = {centres[i] + 2^exponents[i] shapes[i] e : |e| <= 1}.

    After `entry` tokens the state is in E_place; one step leads from each E_i into the next, from the last into the
    first, and a computed step uses at most `rate` of the room there.
    """
    ring = invariant.ellipsoids
    return {
        "entry": invariant.entry,
        "place": invariant.place,
        "rate": invariant.rate,
        "margin": invariant.margin,
        **of_ellipsoids(ring),
    }


def of_ellipsoids(found: Ellipsoids) -> WrittenEllipsoids:
    """Centres, exponents, and the lower halves of triangular matrices. A sum with 0.0 has no signed zeros."""
    return {
        "centres": (found.centres + 0.0).tolist(),
        "exponents": [int(x) for x in found.exponents],
        "shapes": [[row[: i + 1] for i, row in enumerate(shape)] for shape in (found.shapes + 0.0).tolist()],
    }


def of_graph(found: Ellipsoids, judged: list[int], then: list[list[int]]) -> list[dict[str, object]]:
    """Ellipsoids round all states that strings lead to, the start first, as a certificate saves them; none where they
    are many.

    `judged` are the types whose answers they show, and `then` which one each token leads to from each, -1 for none.
    """
    if found.shapes.size > MOST_SAVED:
        return []
    return [{"judged": judged, "then": then, **of_ellipsoids(found)}]
