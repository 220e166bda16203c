"""Contextual counting, decided on every valid string of a domain."""
