"""Decoders that count inductively, built by hand: one module for each idea, all in GPT-2's block."""

from constructions.inductive.files import as_bytes, load
from constructions.inductive.one_layer import positioned
from constructions.inductive.positional import ape, spe, with_layernorm
from constructions.inductive.proportions import selective, started
from constructions.inductive.sinusoidal import sine
from constructions.inductive.successors import succession
from constructions.inductive.two_layers import unmarked

__all__ = [
    "ape",
    "as_bytes",
    "load",
    "positioned",
    "selective",
    "sine",
    "spe",
    "started",
    "succession",
    "unmarked",
    "with_layernorm",
]
