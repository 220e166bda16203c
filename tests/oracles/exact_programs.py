"""Small modules as lists of steps in balls; tests/models/programs.py runs the same steps by torch."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb
from oracles.exact_sizes import (
    ZERO,
    Differences,
    Row,
    attend,
    dot,
    gelu,
    layer_norm,
    plus,
    relu,
    sigmoid,
    softmax,
    tanh,
    times,
)


def program(steps: Sequence[tuple], tokens: Sequence[int], right: int) -> Differences:
    """The last step's row as logits."""
    x: Row = []
    for name, *given in steps:
        x = STEPS[name](x, *given) if name != "embed" else plus(given[0][tokens[0]], given[1][tokens[1]])
    return {c: x[right] - x[c] for c in range(len(x)) if c != right}


def _norm(x: Row) -> arb:
    return dot(x, x).sqrt()


STEPS = {
    "linear": lambda x, W, b: plus(times(x, W), b),
    "layer_norm": lambda x, w, b, eps: layer_norm(x, w, b, eps),
    "group_norm": lambda x, w, b, eps: [
        y for i in range(0, len(x), 2) for y in layer_norm(x[i : i + 2], w[i : i + 2], b[i : i + 2], eps)
    ],
    "rms_norm": lambda x, w, eps: [a / (dot(x, x) / len(x) + eps).sqrt() * k for a, k in zip(x, w, strict=True)],
    "relu": relu,
    "gelu": gelu,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: [a * s for a, s in zip(x, sigmoid(x), strict=True)],
    "softmax": softmax,
    "log_softmax": lambda x: (lambda t: [a - t for a in x])(_log_sum(x)),
    "divide": lambda x, c: [a / c for a in x],
    "scale": lambda x, c: [a * c for a in x],
    "shift": lambda x, c: [a + c for a in x],
    "divide_by": lambda x, W, b: [a / d for a, d in zip(x, plus(times(x, W), b), strict=True)],
    "gate": lambda x, W, b: [a * d for a, d in zip(x, plus(times(x, W), b), strict=True)],
    "unit": lambda x: [a / _norm(x) for a in x],
    "squares": lambda x: [a * a for a in x],
    "root": lambda x: [abs(a).sqrt() for a in x],
    "rsqrt": lambda x, c: [1 / (a * a + c).sqrt() for a in x],
    "reciprocal": lambda x: [1 / a for a in x],
    "standard": lambda x: (lambda m: [(a - m) / (sum((b - m) ** 2 for b in x) / len(x)).sqrt() for a in x])(
        sum(x, ZERO) / len(x)
    ),
    "cube": lambda x: [a * a * a for a in x],
    "exp": lambda x: [a.exp() for a in x],
    "add_own": lambda x, W, b: plus(x, plus(times(x, W), b)),
    "attend": lambda x, K, V: attend(x, K, V, arb(len(x) ** 0.5)),
    "clamp": lambda x, low, high: [a.max(low).min(high) for a in x],
    "minus_max": lambda x: (lambda t: [a - t for a in x])(_largest(x)),
    "log": lambda x, c: [(a * a + c).log() for a in x],
}


def _largest(x: Row) -> arb:
    top = x[0]
    for a in x[1:]:
        top = top.max(a)
    return top


def _log_sum(x: Row) -> arb:
    top = max(x, key=lambda a: a.mid())
    return top + sum(((a - top).exp() for a in x), ZERO).log()
