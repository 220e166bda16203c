"""Decoders that count inductively, built by hand: one module for each idea, all in GPT-2's block."""

from constructions.inductive.files import as_bytes, load
from constructions.inductive.first import alike, beside_bos, unmixed
from constructions.inductive.one_layer import positioned
from constructions.inductive.positional import ape, spe, with_layernorm
from constructions.inductive.proportions import selective, started
from constructions.inductive.sinusoidal import sine
from constructions.inductive.successors import succession
from constructions.inductive.two_layers import unmarked

__all__ = [
    "alike",
    "ape",
    "as_bytes",
    "beside_bos",
    "load",
    "positioned",
    "selective",
    "sine",
    "spe",
    "started",
    "succession",
    "unmarked",
    "unmixed",
    "with_layernorm",
]
