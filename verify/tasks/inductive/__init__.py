"""Inductive counting (document C): ten tasks, and models that are decided on every input of theirs, at every length."""

SUMMARY = "prove that a transformer or a recurrent network counts inductively, at every length that is asked for"
COUNTS = ("transformer",)
IMPOSSIBLE = tuple(f"C-I{i}" for i in range(1, 9))
