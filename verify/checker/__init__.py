"""A small checker of saved certificates that shares no code with the prover: docs/checker.md says why it suffices.

Nothing here imports torch, numpy or the rest of the project; `tests/checker/test_checker.py` holds that.
"""
