"""The proof: the logit difference is linear in the counts, so it is extreme where all other tokens are equal."""

from collections.abc import Iterator
from fractions import Fraction

from torch import Tensor
from verify.tasks.twice.model import TwiceTransformer


def fractions(weight: Tensor) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in weight.reshape(-1, weight.shape[-1]).tolist()]


def vertices(T: int, L: int) -> Iterator[tuple[int, ...]]:
    """The sequences of a token, first, k times, with one other token in all other places."""
    for t in range(T):
        yield (t,) * L
        yield from ((t,) * k + (s,) * (L - k) for k in range(1, L) for s in range(T) if s != t)


def margin(module: TwiceTransformer, tokens: tuple[int, ...], position: int) -> Fraction:
    """(logit of the right class) - (the other) at one position, in rational arithmetic."""
    (w, b), E = (fractions(weight)[0] for weight in (module.w, module.b)), fractions(module.E)
    own = E[tokens[position]]
    total = sum((x * y for token in tokens for x, y in zip(own, E[token], strict=True)), Fraction(0))
    difference = (w[1] - w[0]) * total + b[1] - b[0]
    return difference if tokens.count(tokens[position]) >= 2 else -difference
