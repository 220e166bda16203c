"""What each ATen operation does to balls; `RULES` has them all by name."""

from verify.engine.rules import activations, linear, movement, normalisation, order, pointwise, whole  # registers
from verify.engine.rules.registry import COVERS, RULES, Cover, as_ball, cover_of, statement

__all__ = [
    "COVERS",
    "Cover",
    "RULES",
    "activations",
    "as_ball",
    "cover_of",
    "linear",
    "movement",
    "normalisation",
    "order",
    "pointwise",
    "statement",
    "whole",
]
