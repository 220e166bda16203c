"""What each ATen operation does to balls; `RULES` has them all by name."""

from verify.engine.rules import linear, movement, normalisation, pointwise  # registers
from verify.engine.rules.registry import RULES, as_ball, statement

__all__ = ["RULES", "as_ball", "linear", "movement", "normalisation", "pointwise", "statement"]
