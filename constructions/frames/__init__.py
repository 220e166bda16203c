"""Vectors of low coherence: exact families and an optimiser."""
