"""Decoders that count inductively, built by hand: one module for each idea, all in GPT-2's block."""

from constructions.inductive.files import as_bytes, load
from constructions.inductive.proportions import selective, started

__all__ = ["as_bytes", "load", "selective", "started"]
