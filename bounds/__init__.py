"""Formulas: one module per proposition, as sympy expressions, printed and corrected."""

__version__ = "1.0.0"

__all__ = [
    "circuit_simulation",
    "coherence",
    "coherent_counting",
    "contextual_counting",
    "count01",
    "counting",
    "equiangular_tight_frames",
    "inventory_counting",
    "readout",
    "relation_counting",
    "__version__",
]
