"""Constant-bit arithmetic, and modules run in it."""
