"""Contextual counting by a bidirectional encoder with absolute positions: what is proved on every valid string."""

SUMMARY = "prove that a bidirectional transformer with absolute positions counts the ones of each region"
MODEL = "constructions.contextual.bidirectional:BidirectionalContextualTransformer"
