"""Models that are trained to know the majority, on document E's strings or D's, exact on the law of the test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from verify.frame.experiment import DecidedModel, GridSize, Result, Setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constructions.count01 import Count01Transformer
    from constructions.training import Recipe

LAW = "e-lengths"  # E's test set: a length in [151, 200], every digit uniform
LABELS = "thesis"  # 4 iff n0 >= n1
EXAMPLES = 7000  # of a training set
RATES = {GridSize.LAPTOP: 3e-3, GridSize.PAPER: 1e-3}  # E's, and one for few epochs
EPOCHS = {GridSize.LAPTOP: 40, GridSize.PAPER: 900}
RECIPES = {
    GridSize.LAPTOP: "E's decay and batch, 40 epochs with a falling rate instead of 900, and no dropout",
    GridSize.PAPER: "E's rate, decay, batch and 900 epochs (Sec. 5.2); without its dropout and its warm-up",
}


@dataclass(frozen=True)
class DocumentStrings:
    """The strings of a document: the law of its test set, its labels, and how its three sets of counts are drawn.

    `draw` takes the limits of a set, how many strings it has, and a generator.
    """

    law: str
    labels: str
    draw: Callable[..., Tensor]
    training: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]

    def sets(self, g: torch.Generator) -> list[Tensor]:
        """Counts of 0, 1 and 2 in the strings for training, validation and test."""
        sizes = (self.training, EXAMPLES), (self.validation, 1500), (self.test, 1500)
        return [self.draw(*limits, strings, g) for limits, strings in sizes]


def drawn(shortest: int, longest: int, n: int, g: torch.Generator) -> Tensor:
    """Counts of 0, 1 and 2 in random strings of a uniform length: (n, 3)."""
    import torch

    lengths = torch.randint(shortest, longest + 1, (n, 1), generator=g)
    digits = torch.randint(0, 3, (n, longest), generator=g).masked_fill(torch.arange(longest) >= lengths, 3)
    return (digits[:, :, None] == torch.arange(3)).sum(1)


def counted(low: int, high: int, noise: int, n: int, g: torch.Generator) -> Tensor:
    """Counts of 0 and 1 that are uniform in [low, high], and of 2 in [0, noise], all independent: (n, 3)."""
    import torch

    digits = torch.randint(low, high + 1, (n, 2), generator=g)
    return torch.cat([digits, torch.randint(0, noise + 1, (n, 1), generator=g)], dim=1)


E_STRINGS = DocumentStrings(LAW, LABELS, drawn, (0, 100), (101, 150), (151, 200))
D_STRINGS = DocumentStrings("d-test", "majority-ones", counted, (0, 100, 100), (101, 150, 150), (151, 200, 200))


@dataclass(frozen=True)
class NoisyMajorityTrial:
    """One attention-only model on strings of 0, 1 and 2."""

    grid: GridSize
    d: int
    heads: int
    lr: float
    seed: int

    @property
    def name(self) -> str:
        return f"d{self.d}_a{self.heads}_lr{self.lr:g}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(recipe(self.grid, self.lr))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"d": self.d, "heads": self.heads, "learning rate": self.lr, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        module, sets = prepared(self.d, self.heads, torch.Generator().manual_seed(self.seed))
        record = trained(module, sets, recipe(self.grid, self.lr), self.seed)
        return decided(module, sets[-1], self.settings, record)


def prepared(
    d: int,
    heads: int,
    g: torch.Generator,
    of: DocumentStrings = E_STRINGS,
    *,
    d_h: int | None = None,
    norm: bool = False,
) -> tuple[Count01Transformer, list[Tensor]]:
    """A model before its training, and the strings of the three sets, E's unless others are given."""
    import torch

    from constructions.count01 import Count01Transformer

    module = Count01Transformer(d=d, heads=heads, d_h=d_h or d // heads, norm=norm, dtype=torch.float32)
    initialise(module, g)
    return module, of.sets(g)


def decided(
    module: Count01Transformer,
    test: Tensor,
    settings: Mapping[str, Setting],
    training: Mapping[str, object],
    of: DocumentStrings = E_STRINGS,
) -> DecidedModel:
    """The exact share of right strings, beside the sampled one; of E's law unless other strings are given."""
    from constructions.count01 import as_bytes
    from verify.arithmetic.exact_reals import Undecided
    from verify.frame.certificate import Verdict
    from verify.tasks.count01.layer_norm.counting import wrong_after_equals
    from verify.tasks.count01.layer_norm.laws import law_named
    from verify.tasks.count01.layer_norm.numbers import model_numbers

    sampled = round(share(module, test, of.labels) * len(test)), len(test)
    try:
        wrong, right = wrong_after_equals(model_numbers(module), law_named(of.law), of.labels)
    except Undecided:  # a triple too close to a tie
        return DecidedModel(Result(settings, sampled, Verdict.UNKNOWN), as_bytes(module), training)
    case = wrong_string(module, wrong[0].tolist(), of.labels) if len(wrong) else None
    verdict = Verdict.REFUTED if case else Verdict.PROVED
    result = Result(settings, sampled, verdict, {of.law: (right, right)}, case)
    return DecidedModel(result, as_bytes(module), training)


def wrong_string(module: Count01Transformer, counts: list[int], labels: str = LABELS) -> dict[str, str]:
    """A wrong string by how often each digit stands in it, in any order, and what a run in float64 answers.

    Where that run gives the due answer, the string is wrong by less than the run can tell.
    """
    import torch

    from constructions.count01 import EQUALS, TOKENS

    n = torch.tensor([counts])
    with torch.no_grad():
        said = int(deepcopy(module).double().logits_at_counts(counts_of(n, EQUALS), EQUALS).argmax())
    due = int(due_of(n, labels))
    answered = TOKENS[said] if said != due else "a tie, as near as float64 tells"
    n0, n1, n2 = counts
    return {"input": f"with n0 = {n0}, n1 = {n1}, n2 = {n2}", "expected": TOKENS[due], "predicted": answered}


def trained(
    module: Count01Transformer, sets: Sequence[Tensor], how: Recipe, seed: int, labels: str = LABELS
) -> dict[str, object]:
    """The record of a training that keeps the weights of the best validation score."""
    from constructions.training import train

    def score() -> float:
        return share(module, sets[1], labels)

    return train(module, lambda g: loss(module, sets[0], how.batch, g, labels), how, seed, score=score).to_dict()


def recipe(grid: GridSize, lr: float, epochs: int | None = None) -> Recipe:
    """E's rate, decay, batch and epochs; fewer epochs, with a falling rate, on a laptop. Dropout is left out."""
    from constructions.training import CONSTANT, COSINE, Recipe

    schedule = CONSTANT if grid is GridSize.PAPER else COSINE
    steps = (epochs or EPOCHS[grid]) * -(-EXAMPLES // 128)
    return Recipe("AdamW", lr=lr, steps=steps, batch=128, weight_decay=0.01, schedule=schedule)


def initialise(module: Count01Transformer, g: torch.Generator) -> None:
    """Normal entries of scale 1 for embeddings, 1 / sqrt(inputs) for matrices; the documents do not say their own."""
    import torch

    with torch.no_grad():
        for name, W in module.named_parameters():
            inputs = (
                W.shape[0] * W.shape[1] if name == "W_O" and W.ndim == 3 else W.shape[0 if name == "W_out" else -2 :][0]
            )
            scale = 0.0 if name in ("b_out", "norm_bias") else 1.0 if name == "E" else float(inputs) ** -0.5
            W.fill_(1) if name == "norm_weight" else W.copy_(torch.randn(W.shape, generator=g) * scale)
            W.requires_grad_(True)


def due_of(n: Tensor, labels: str = LABELS) -> Tensor:
    """4 where there are at least as many 0 as 1, else 5 (E, Sec. 5.1); with D's labels the other way round."""
    import torch

    from constructions.count01 import FIVE, FOUR

    more, rest = (FOUR, FIVE) if labels == D_STRINGS.labels else (FIVE, FOUR)
    return torch.where(n[:, 1] > n[:, 0], more, rest)


def counts_of(n: Tensor, last: int) -> Tensor:
    """Token counts (k, 8) of the strings with these digits up to `last`."""
    import torch

    from constructions.count01 import EQUALS

    counts = torch.zeros(len(n), 8)
    counts[:, 0], counts[:, 1:4], counts[:, EQUALS] = 1, n.float(), 1
    counts[:, last] = 1
    return counts


def loss(module: Count01Transformer, strings: Tensor, batch: int, g: torch.Generator, labels: str = LABELS) -> Tensor:
    """Cross-entropy of the answer after "=" and of EOS after it, on strings of the training set."""
    import torch

    from constructions.count01 import EOS, EQUALS, FIVE, FOUR

    n = strings[torch.randint(0, len(strings), (batch,), generator=g)]
    due = due_of(n, labels)
    total = torch.nn.functional.cross_entropy(module.logits_at_counts(counts_of(n, EQUALS), EQUALS), due)
    for last in (FOUR, FIVE):
        rows = n[due == last]
        if len(rows):
            end = torch.full((len(rows),), EOS)
            after = torch.nn.functional.cross_entropy(module.logits_at_counts(counts_of(rows, last), last), end)
            total = total + after * len(rows) / len(n)
    return total


def share(module: Count01Transformer, n: Tensor, labels: str = LABELS) -> float:
    """The share of strings whose answer after "=" has the largest logit, as the module runs."""
    import torch

    from constructions.count01 import EQUALS

    with torch.no_grad():
        said = module.logits_at_counts(counts_of(n, EQUALS), EQUALS).argmax(-1)
    return float((said == due_of(n, labels)).double().mean())
