"""Contextual counting, decided on every valid string of a domain."""

SUMMARY = "prove a causal transformer without positions counts the ones of each region"
MODEL = "constructions.contextual.transformer:ContextualCountingTransformer"
