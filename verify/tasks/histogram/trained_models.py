"""Document A's trained histogram models (Figs. 1, 2, 10 and 12): over the sizes d and p, with exact accuracies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.frame.experiment import DecidedModel, GridSize, Result, Setting
from verify.tasks.histogram.catalogue import MODELS

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance
    from torch import Tensor

    from constructions.histogram import HistogramTransformer
    from constructions.training import Recipe
    from constructions.two_layers import TwoLayerTransformer
    from verify.tasks.histogram.confusion import Confusion

EMBEDDINGS = ("E", "e_BOS")
UNIFORM, OWN = "uniform", "document's"
SIZE = ("model", "d", "p")  # settings that tell sizes apart
SAMPLES = 3000  # sequences that A takes an accuracy from
SIZES = {GridSize.LAPTOP: (1, 2, 4, 8, 12), GridSize.PAPER: (1, 2, 3, 4, 6, 8, 12, 16, 23, 32, 45, 64, 91, 128)}
ALPHABET = {GridSize.LAPTOP: (8, 5), GridSize.PAPER: (32, 10)}  # T, L
BUDGET = {GridSize.LAPTOP: 20.0, GridSize.PAPER: 60.0}  # seconds for a verdict


@dataclass(frozen=True)
class HistogramTrial:
    """One model of one size; with `is_frozen` its embeddings stay as they are drawn (A, Fig. 12)."""

    grid: GridSize
    model: str
    d: int
    p: int
    seed: int
    is_frozen: bool = False

    @property
    def name(self) -> str:
        embeddings = "_frozen" if self.is_frozen else ""
        return f"{self.model}_d{self.d}_p{self.p}{embeddings}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return described(self, ALPHABET[self.grid], recipe(self.grid))

    @property
    def settings(self) -> dict[str, Setting]:
        embeddings = {"embeddings": "frozen" if self.is_frozen else "learned"}
        return {"model": self.model, "d": self.d, "p": self.p, **embeddings, "seed": self.seed}

    def run(self) -> DecidedModel:
        return trained(self)[0]


def described(trial: DataclassInstance, alphabet: tuple[int, int], how: Recipe) -> dict[str, object]:
    """All that the result of a trial depends on: its own settings, T and L, and the recipe."""
    T, L = alphabet
    return {**asdict(trial), "T": T, "L": L, "recipe": str(how)}


def trained(trial: HistogramTrial) -> tuple[DecidedModel, HistogramTransformer, Confusion | None]:
    """A trial's model with what is found of it: its verdict, and where it has no positions its confusion matrix."""
    from constructions import checkpoint
    from constructions.training import train
    from verify.frame.decide import Effort
    from verify.tasks.histogram.confusion import confusion
    from verify.tasks.histogram.proof import certify
    from verify.tasks.histogram.stored import StoredModel

    module, of = initialised(trial), None
    how = recipe(trial.grid)
    training = train(module, partial(loss, module, how.batch), how, trial.seed)
    found = certify(module, budget=BUDGET[trial.grid])
    wrong = (Fraction(0), Fraction(0)) if found else found.error_share or (Fraction(0), Fraction(1))
    exact = {UNIFORM: (1 - wrong[1], 1 - wrong[0])}
    if not module.is_linear:
        of = confusion(StoredModel.of(module), "partitions", Effort(BUDGET[trial.grid]))
        exact[OWN] = of.accuracy
    result = Result(trial.settings, sampled(module, trial.seed), found.verdict, exact, found.counterexample)
    construction = f"trained, {training.steps} steps, seed {trial.seed}"
    weights = checkpoint.as_bytes(module, claim=None, construction=construction)
    return DecidedModel(result, weights, training.to_dict()), module, of


def recipe(grid: GridSize) -> Recipe:
    """A's own where it is affordable, and one of ours, which learns in fewer steps, where it is not."""
    from constructions.training import ONE_CYCLE, Recipe

    if grid is GridSize.PAPER:
        return Recipe("Adam", lr=1e-3, steps=500 * 10_000 // 32, batch=32)
    return Recipe("Adam", lr=5e-3, steps=3000, batch=256, schedule=ONE_CYCLE)


def initialised(trial: HistogramTrial) -> HistogramTransformer:
    """The model before its training."""
    from constructions.histogram import HistogramTransformer

    T, L = ALPHABET[trial.grid]
    module = HistogramTransformer(trial.model, T=T, L=L, d=trial.d, p=trial.p)
    initialise(module, trial.seed)
    for name, W in module.named_parameters():
        W.requires_grad_(not (name in EMBEDDINGS and trial.is_frozen))
    return module


def initialise(module: HistogramTransformer | TwoLayerTransformer, seed: int) -> None:
    """Normal entries of scale 1 for embeddings, 1 / sqrt(inputs) for all else; A does not say its own."""
    import torch

    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, W in module.named_parameters():
            scale = 1.0 if name in EMBEDDINGS else float(W.shape[0]) ** -0.5
            W.copy_(torch.randn(W.shape, generator=g) * scale)


def drawn(T: int, L: int, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences of A's law (App. D), and the class of every position."""
    from constructions.partition_sampler import sample

    x = sample(T, L, n, g)
    return x, (x[:, :, None] == x[:, None, :]).sum(-1) - 1


def loss(module: HistogramTransformer | TwoLayerTransformer, batch: int, g: torch.Generator) -> Tensor:
    """Cross-entropy on fresh sequences."""
    import torch

    x, due = drawn(module.T, module.L, batch, g)
    return torch.nn.functional.cross_entropy(module(x).flatten(0, 1), due.flatten())


def sampled(module: HistogramTransformer | TwoLayerTransformer, seed: int) -> tuple[int, int]:
    """Right positions of A's 3,000 sequences, as the module runs."""
    import torch

    x, due = drawn(module.T, module.L, SAMPLES, torch.Generator().manual_seed(seed + 10**6))
    with torch.no_grad():
        return int((module(x).argmax(-1) == due).sum()), due.numel()


def trials(grid: GridSize, seeds: int, models: Sequence[str] = MODELS, is_frozen: bool = False) -> list[HistogramTrial]:
    """Every model at every pair of sizes."""
    combined = product(models, SIZES[grid], SIZES[grid], range(seeds))
    return [HistogramTrial(grid, model, d, p, seed, is_frozen) for model, d, p, seed in combined]


def sizes(results: Sequence[Result]) -> dict[tuple[Setting, ...], list[Result]]:
    """The results by model, d and p."""
    found: dict[tuple[Setting, ...], list[Result]] = {}
    for result in results:
        found.setdefault(tuple(result.settings[name] for name in SIZE), []).append(result)
    return found


def mean(results: Sequence[Result]) -> tuple[Fraction, Fraction]:
    """Of the shares of right pairs, at least and at most."""
    ends = [found.exact[UNIFORM] for found in results]
    low, high = (sum(of, Fraction(0)) / len(ends) for of in zip(*ends, strict=True))
    return low, high
