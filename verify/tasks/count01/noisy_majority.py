"""Document E's noisy majority: models trained as it trains them, exact on all strings of its test's lengths."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from verify.experiments.experiment import DecidedModel, GridSize, Result, Setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constructions.count01 import Count01Transformer
    from constructions.training import Recipe

LAW = "e-lengths"  # E's test set: a length in [151, 200], every digit uniform
LABELS = "thesis"  # 4 iff n0 >= n1
TRAINING, VALIDATION, TEST = (0, 100, 7000), (101, 150, 1500), (151, 200, 1500)  # lengths, and how many strings
EPOCHS = {GridSize.LAPTOP: 40, GridSize.PAPER: 900}
RECIPES = {
    GridSize.LAPTOP: "E's decay and batch, 40 epochs with a falling rate instead of 900, and no dropout",
    GridSize.PAPER: "E's rate, decay, batch and 900 epochs (Sec. 5.2); without its dropout and its warm-up",
}


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
    def described(self) -> Mapping[str, Any]:
        return {**asdict(self), "recipe": str(recipe(self.grid, self.lr))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"d": self.d, "heads": self.heads, "learning rate": self.lr, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        from constructions.training import train

        g = torch.Generator().manual_seed(self.seed)
        module, (training, validation, test) = prepared(self.d, self.heads, g)
        how = recipe(self.grid, self.lr)
        record = train(
            module, partial(loss, module, training, how.batch), how, self.seed, score=lambda: share(module, validation)
        )
        return decided(module, test, self.settings, record.to_dict())


def prepared(d: int, heads: int, g: torch.Generator) -> tuple[Count01Transformer, list[Tensor]]:
    """A model before its training, and the strings of the three sets."""
    import torch

    from constructions.count01 import Count01Transformer

    module = Count01Transformer(d=d, heads=heads, d_h=d // heads, dtype=torch.float32)
    initialise(module, g)
    return module, [drawn(*law, g) for law in (TRAINING, VALIDATION, TEST)]


def decided(
    module: Count01Transformer, test: Tensor, settings: Mapping[str, Setting], training: Mapping[str, Any]
) -> DecidedModel:
    """The exact share of right strings, beside the sampled one."""
    from constructions.count01 import as_bytes
    from verify.arithmetic.exact_reals import Undecided
    from verify.frame.certificate import Verdict
    from verify.tasks.count01.layer_norm.counting import wrong_after_equals
    from verify.tasks.count01.layer_norm.laws import law_named
    from verify.tasks.count01.layer_norm.numbers import model_numbers

    sampled = round(share(module, test) * len(test)), len(test)
    try:
        wrong, right = wrong_after_equals(model_numbers(module), law_named(LAW), LABELS)
    except Undecided:  # a triple too close to a tie
        return DecidedModel(Result(settings, sampled, Verdict.UNKNOWN), as_bytes(module), training)
    case = wrong_string(module, wrong[0].tolist()) if len(wrong) else None
    verdict = Verdict.REFUTED if case else Verdict.PROVED
    result = Result(settings, sampled, verdict, {LAW: (right, right)}, case)
    return DecidedModel(result, as_bytes(module), training)


def wrong_string(module: Count01Transformer, counts: list[int]) -> dict[str, str]:
    """A wrong string by how often each digit stands in it, in any order, and what a run in float64 answers.

    Where that run gives the due answer, the string is wrong by less than the run can tell.
    """
    import torch

    from constructions.count01 import EQUALS, TOKENS

    n = torch.tensor([counts])
    with torch.no_grad():
        said = int(deepcopy(module).double().logits_at_counts(counts_of(n, EQUALS), EQUALS).argmax())
    due = int(due_of(n))
    answered = TOKENS[said] if said != due else "a tie, as near as float64 tells"
    n0, n1, n2 = counts
    return {"input": f"with n0 = {n0}, n1 = {n1}, n2 = {n2}", "expected": TOKENS[due], "predicted": answered}


def recipe(grid: GridSize, lr: float) -> Recipe:
    """E's rate, decay and batch; fewer epochs, with a falling rate, on a laptop. Dropout is left out."""
    from constructions.training import CONSTANT, COSINE, Recipe

    schedule = CONSTANT if grid is GridSize.PAPER else COSINE
    steps = EPOCHS[grid] * -(-TRAINING[2] // 128)
    return Recipe("AdamW", lr=lr, steps=steps, batch=128, weight_decay=0.01, schedule=schedule)


def initialise(module: Count01Transformer, g: torch.Generator) -> None:
    """Normal entries of scale 1 for embeddings, 1 / sqrt(inputs) for matrices; E does not say its own."""
    import torch

    with torch.no_grad():
        for name, W in module.named_parameters():
            inputs = (
                W.shape[0] * W.shape[1] if name == "W_O" and W.ndim == 3 else W.shape[0 if name == "W_out" else -2 :][0]
            )
            scale = 0.0 if name == "b_out" else 1.0 if name == "E" else float(inputs) ** -0.5
            W.copy_(torch.randn(W.shape, generator=g) * scale)
            W.requires_grad_(True)


def drawn(shortest: int, longest: int, n: int, g: torch.Generator) -> Tensor:
    """Counts of 0, 1 and 2 in random strings of a uniform length: (n, 3)."""
    import torch

    lengths = torch.randint(shortest, longest + 1, (n, 1), generator=g)
    digits = torch.randint(0, 3, (n, longest), generator=g).masked_fill(torch.arange(longest) >= lengths, 3)
    return (digits[:, :, None] == torch.arange(3)).sum(1)


def due_of(n: Tensor) -> Tensor:
    """4 where there are at least as many 0 as 1, else 5 (E, Sec. 5.1)."""
    import torch

    from constructions.count01 import FIVE, FOUR

    return torch.where(n[:, 0] >= n[:, 1], FOUR, FIVE)


def counts_of(n: Tensor, last: int) -> Tensor:
    """Token counts (k, 8) of the strings with these digits up to `last`."""
    import torch

    from constructions.count01 import EQUALS

    counts = torch.zeros(len(n), 8)
    counts[:, 0], counts[:, 1:4], counts[:, EQUALS] = 1, n.float(), 1
    counts[:, last] = 1
    return counts


def loss(module: Count01Transformer, strings: Tensor, batch: int, g: torch.Generator) -> Tensor:
    """Cross-entropy of the answer after "=" and of EOS after it, on strings of the training set."""
    import torch

    from constructions.count01 import EOS, EQUALS, FIVE, FOUR

    n = strings[torch.randint(0, len(strings), (batch,), generator=g)]
    due = due_of(n)
    total = torch.nn.functional.cross_entropy(module.logits_at_counts(counts_of(n, EQUALS), EQUALS), due)
    for last in (FOUR, FIVE):
        rows = n[due == last]
        if len(rows):
            end = torch.full((len(rows),), EOS)
            after = torch.nn.functional.cross_entropy(module.logits_at_counts(counts_of(rows, last), last), end)
            total = total + after * len(rows) / len(n)
    return total


def share(module: Count01Transformer, n: Tensor) -> float:
    """The share of strings whose answer after "=" has the largest logit, as the module runs."""
    import torch

    from constructions.count01 import EQUALS

    with torch.no_grad():
        said = module.logits_at_counts(counts_of(n, EQUALS), EQUALS).argmax(-1)
    return float((said == due_of(n)).double().mean())
