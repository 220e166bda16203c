"""Contextual counting by a bidirectional encoder with absolute positions: what is proved on every valid string."""
