"""The ellipsoids of a proof as a certificate saves them: exact numbers, few of their digits."""

from __future__ import annotations

from verify.tasks.recurrent.proof import Invariant


def as_json(invariant: Invariant) -> dict[str, object]:
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
        "centres": ring.centres.tolist(),
        "exponents": [int(x) for x in ring.exponents],
        "shapes": [[row[: i + 1] for i, row in enumerate(shape)] for shape in ring.shapes.tolist()],
    }
