"""Models with LayerNorm: their stored numbers exactly, tables over all inputs, and what is right by them."""
