"""From what was asked to a decoder and the problem that the house decides."""

from __future__ import annotations

from constructions.errors import NotKnown
from verify.inductive.asked import Asked, Judged


def judged(asked: Asked) -> Judged:
    """The decoder that was asked for, built or loaded, with its task.

    Raises: ProvedImpossible where no weights can do it, NotKnown where no construction is known, BadInput otherwise.
    """
    raise NotKnown(f"task={asked.task.name}: no construction is known for pe={asked.pe}")
