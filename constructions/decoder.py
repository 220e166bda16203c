"""The reference decoder: one readable GPT-2-like module, and loaders for the layouts that checkpoints come in."""

from constructions.decoder_loaders import (
    from_checkpoint,
    from_hf_gpt2,
    from_nanogpt,
    from_progress_measures,
    from_transformer_lens,
    to_progress_measures,
)
from constructions.decoder_model import Decoder, initialised

__all__ = [
    "Decoder",
    "from_checkpoint",
    "from_hf_gpt2",
    "from_nanogpt",
    "from_progress_measures",
    "from_transformer_lens",
    "initialised",
    "to_progress_measures",
]
