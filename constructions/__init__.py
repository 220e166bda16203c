"""Weights: one module per proposition, each a builder that returns a torch module."""
