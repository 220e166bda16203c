"""Transformers that count inductively: what is built or loaded, and how it is decided."""
