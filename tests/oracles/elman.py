"""A tanh cell on strings in plain Python, with sixty digits."""

from __future__ import annotations

from mpmath import mp, mpf, tanh


def logits(numbers, string):
    """The logits after each token of a string: h' = tanh(W h + U[token]), V h + b, all lists of floats."""
    W, U, V, b = (numbers[name] for name in ("W", "U", "V", "b"))
    found = []
    with mp.workdps(60):
        h = [mpf(0)] * len(W)
        for token in string:
            h = [tanh(sum(mpf(w) * x for w, x in zip(row, h, strict=True)) + mpf(u))
                 for row, u in zip(W, U[token], strict=True)]  # fmt: skip
            found.append([sum(mpf(v) * x for v, x in zip(row, h, strict=True)) + mpf(c)
                          for row, c in zip(V, b, strict=True)])  # fmt: skip
    return found


def answers(numbers, string):
    """The class with the largest logit after each token, and how far it is ahead."""
    found = []
    for row in logits(numbers, string):
        best = max(range(len(row)), key=row.__getitem__)
        found.append((best, float(row[best] - max(x for i, x in enumerate(row) if i != best))))
    return found
