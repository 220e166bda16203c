"""Theorems about stored weights in the kernel of the proof assistant Coq (docs/kernel.md)."""
