"""Contextual counting by a causal encoder that knows positions: AbsPE, RoPE or ALiBi, and a decoder with an MLP."""

MODEL = "constructions.contextual.positional:PositionalContextualTransformer"
