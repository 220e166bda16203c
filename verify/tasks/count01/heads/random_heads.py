"""Heads before any training: weights drawn at random, and how well each head's output separates the two answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.slack import Array
from verify.report.style import BLUE, new_figure, style
from verify.tasks.count01.heads.fitted import drawn_triples, separation_accuracies
from verify.tasks.count01.heads.many import HeadForms, exact_heads, separating
from verify.tasks.count01.heads.svc import C
from verify.tasks.count01.layer_norm.laws import Law, law_named
from verify.tasks.count01.layer_norm.numbers import SEEN
from verify.tasks.count01.task import EQUALS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAW = Callable[[np.random.Generator, int, tuple[int, ...]], Array]
EMBEDDINGS: Mapping[str, DRAW] = {
    "torch": lambda rng, d, shape: rng.normal(0, 1, shape),
    "thesis": lambda rng, d, shape: rng.normal(0, d**-0.5, shape),
    "gpt2": lambda rng, d, shape: rng.normal(0, 0.02, shape),
}
MATRICES: Mapping[str, DRAW] = {
    "torch": lambda rng, d, shape: rng.uniform(-(d**-0.5), d**-0.5, shape),
    "thesis": lambda rng, d, shape: rng.normal(0, (2 / (3 * d)) ** 0.5, shape),
    "gpt2": lambda rng, d, shape: rng.normal(0, 0.02, shape),
}
NORM_EPS = 1e-5
PRINTED = 0.013  # D, App. F: the share of perfect heads
MOST = 100_000
BINS = 50


@dataclass(frozen=True)
class Initialisation:
    """How weights are drawn: `torch` as its layers do by default, `thesis` as E (Sec. 2.7), `gpt2` as GPT-2.

    D does not say how its own are. Models have `heads` heads of dimension d / heads, with unscaled scores, as in D.
    Raises: BadInput for a name that is none of these, or heads that do not divide d.
    """

    name: str = "torch"
    d: int = 32
    heads: int = 16
    has_norm: bool = False

    def __post_init__(self) -> None:
        if self.name not in MATRICES:
            raise BadInput(f"init={self.name!r}: must be one of {', '.join(MATRICES)}")
        if not 1 <= self.d <= 1024 or self.heads < 1 or self.d % self.heads:
            raise BadInput(f"d={self.d}, heads={self.heads}: d must be from 1 to 1024, and heads must divide it")
        if self.has_norm and self.d == 1:
            raise BadInput("d=1: with LayerNorm all tokens are the same; take more dimensions, or leave --norm out")

    def __str__(self) -> str:
        norm = ", LayerNorm" if self.has_norm else ""
        return f"{self.name}, d = {self.d}, {self.heads} heads a model{norm}"

    def draw(self, count: int, seed: int) -> tuple[Array, Array]:
        """The scores (count, 5) and values (count, 5, d_h) of BOS, 0, 1, 2 and "=" after "=", in float64.

        >>> scores, values = Initialisation().draw(20, seed=0)
        >>> scores.shape, values.shape
        ((20, 5), (20, 5, 2))
        """
        rng, scores, values = np.random.default_rng(seed), [], []
        d, a = self.d, self.heads
        for _ in range(-(-count // a)):
            x = EMBEDDINGS[self.name](rng, d, (len(SEEN), d))
            W_Q, W_K, W_V = MATRICES[self.name](rng, d, (3, a, d, d // a))
            if self.has_norm:
                x = x - x.mean(axis=1, keepdims=True)
                x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + NORM_EPS)
            scores.append(((x @ W_K) @ (x[EQUALS] @ W_Q)[..., None])[..., 0])
            values.append(x @ W_V)
        return np.concatenate(scores)[:count], np.concatenate(values)[:count]


@dataclass(frozen=True)
class RandomHeads:
    """What drawn heads do on a law: the fitted separators' exact accuracies, and which heads some separator suits.

    `separable` speaks of the law, `both` of the training law as well.
    """

    accuracies: tuple[Fraction, ...]
    separable: tuple[bool | None, ...]
    both: tuple[bool | None, ...]

    @classmethod
    def of(cls, scores: Array, values: Array, law: Law, seed: int, strength: float = C) -> RandomHeads:
        """Judges heads whose classifier is fitted on 7,000 drawn triples of D's training law.

        Raises: BadInput for a law that is no box, or a triple too close to a tie.
        """
        training = law_named("d-train")
        forms = HeadForms.of(exact_heads(scores, values))
        accuracies = separation_accuracies(forms, drawn_triples(training, seed), law, strength)
        here, there = separating(forms, law), separating(forms, training)
        both = [None if None in pair else all(pair) for pair in zip(here, there, strict=True)]
        return cls(tuple(accuracies), tuple(here), tuple(both))

    @property
    def perfect(self) -> float:
        """The share of heads whose fitted separator is right on every triple of the law."""
        return sum(share == 1 for share in self.accuracies) / len(self.accuracies)

    def share_of(self, known: tuple[bool | None, ...]) -> float:
        """The share of the heads that are known to have it."""
        return sum(found is True for found in known) / len(known)


def random_heads(how: Initialisation, count: int, named: str, seed: int, strength: float = C) -> Figure:
    """Draws the distribution of the separation accuracies of random heads, every share exact under the law.

    Claim: D, Fig. 14, left (Sec. 5.5, App. F): 10,000 heads, 1.3 % of them perfect.
    Raises: BadInput for a number of heads or a strength out of range, or a law that is no box.
    """
    if not 1 <= count <= MOST:
        raise BadInput(f"count={count}: must be from 1 to {MOST} heads")
    if not 0 < strength <= 1e9:
        raise BadInput(f"C={strength:g}: must be above 0 and at most 1e9")
    law = law_named(named)
    found = RandomHeads.of(*how.draw(count, seed), law, seed, strength)
    with style():
        figure, axes = new_figure(5.6, 3.4)
        shares = [float(share) for share in found.accuracies]
        axes.hist(shares, bins=BINS, range=(min(0.45, *shares), 1.0), color=BLUE)
        said = (
            f"perfect: {found.perfect:.1%} (D: {PRINTED:.1%})\n"
            f"some separator is perfect: {found.share_of(found.separable):.1%},\n"
            f"and on D's training law too: {found.share_of(found.both):.1%}"
        )
        axes.text(0.03, 0.97, said, transform=axes.transAxes, va="top", fontsize=8)
        axes.set(xlabel=f"separation accuracy, {law.name}", ylabel="heads", ymargin=0.35)
        axes.set_title(f"{count} random heads: {how}")
    return figure
