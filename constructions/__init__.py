"""Weights: one module per proposition, each a builder that returns a torch module."""

__version__ = "1.0.0"

__all__ = [
    "checkpoint",
    "circuit_simulation",
    "circuits",
    "coded_inventory",
    "coded_relation",
    "codes",
    "constant_bits",
    "contextual",
    "contextual_counting",
    "contextual_fewest_neurons",
    "count01",
    "drawing",
    "errors",
    "fewer_dimensions",
    "files",
    "frames",
    "histogram",
    "inventory_counting",
    "orthonormal",
    "partition_sampler",
    "planar_relation",
    "readout_arrays",
    "regular_language",
    "relation_counting",
    "__version__",
]
