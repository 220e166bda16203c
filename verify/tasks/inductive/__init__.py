"""Inductive counting (document C): ten tasks, and models that are decided on every input of theirs, at every length."""
