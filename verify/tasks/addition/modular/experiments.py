"""Addition modulo P to grokking, as document E tells of it: how many of all pairs are right, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.experiments.experiment import DecidedModel, Experiment, GridSize, Result, Setting

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from torch import Tensor

    from constructions.decoder import Decoder
    from constructions.training import Recipe

PAIRS = "all pairs"
P = {GridSize.LAPTOP: 23, GridSize.PAPER: 113}
WIDTH = {GridSize.LAPTOP: (32, 64), GridSize.PAPER: (128, 512)}  # d, neurons
SHARES = {GridSize.LAPTOP: (40, 60, 80), GridSize.PAPER: (30,)}  # per cent of the pairs that are trained on
BUDGET = 60.0  # seconds for a verdict


@dataclass(frozen=True)
class ModularTrial:
    """One model trained on a share of the pairs, all of them in every step."""

    grid: GridSize
    share: int
    seed: int

    @property
    def name(self) -> str:
        return f"P{P[self.grid]}_share{self.share}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "P": P[self.grid], "width": list(WIDTH[self.grid]), "recipe": str(recipe(self))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"P": P[self.grid], "trained on %": self.share, "seed": self.seed}

    def run(self) -> DecidedModel:
        from safetensors.torch import save

        from constructions.decoder import to_progress_measures
        from constructions.training import train
        from verify.arithmetic.readings import Real
        from verify.frame.certificate import CERTIFIED
        from verify.frame.decide import Effort, decide
        from verify.tasks.addition.modular.grokking import about_pairs, findings, problem_of

        module, (tokens, due, order) = initialised(self), pairs(self)
        seen, held_out = order[: recipe(self).batch], order[recipe(self).batch :]
        loss = partial(loss_of, module, tokens[seen], due[seen])
        training = train(module, loss, recipe(self), self.seed)
        weights = to_progress_measures(module)
        problem, decoder = problem_of(weights, P[self.grid])
        found = decide(problem, Real(), CERTIFIED, Effort(BUDGET))
        found = about_pairs(found, findings(problem, decoder, P[self.grid]), P[self.grid])
        right, wrong = (int(found.extra["counts"][name]) for name in ("right", "wrong"))
        exact = {PAIRS: (Fraction(right, len(due)), 1 - Fraction(wrong, len(due)))}
        sampled = right_of(module, tokens[held_out], due[held_out]), len(held_out)
        result = Result(self.settings, sampled, found.verdict, exact, found.counterexample)
        return DecidedModel(result, save(weights), training.to_dict())


def recipe(trial: ModularTrial) -> Recipe:
    """Nanda et al.'s for P = 113, and one of ours that groks in seconds for P = 23."""
    from constructions.training import Recipe

    batch = P[trial.grid] ** 2 * trial.share // 100
    if trial.grid is GridSize.PAPER:
        return Recipe("AdamW", lr=1e-3, steps=40_000, batch=batch, weight_decay=1.0, betas=(0.9, 0.98))
    return Recipe("AdamW", lr=1e-2, steps=3000, batch=batch, weight_decay=0.5, betas=(0.9, 0.98))


def initialised(trial: ModularTrial) -> Decoder:
    return decoder(P[trial.grid], WIDTH[trial.grid], trial.seed)


def decoder(modulus: int, width: tuple[int, int], seed: int) -> Decoder:
    """One layer, four heads, ReLU, no LayerNorm, as Nanda et al. have it; normal entries of scale 1 / sqrt(d)."""
    import torch

    from constructions.decoder import Decoder

    d, neurons = width
    torch.manual_seed(seed)
    module = Decoder(
        vocabulary=modulus + 1,
        d=d,
        n_heads=4,
        n_layers=1,
        d_mlp=neurons,
        classes=modulus,
        positions=3,
        activation="relu",
        layernorm=False,
        attention_bias=False,
        dtype=torch.float32,
    )
    for W in module.parameters():
        torch.nn.init.normal_(W, std=d**-0.5) if W.ndim > 1 else torch.nn.init.zeros_(W)
        W.requires_grad_(True)
    return module


def pairs(trial: ModularTrial) -> tuple[Tensor, Tensor, Tensor]:
    """All tokens a b =, their sums modulo P, and the order in which pairs are taken for training."""
    import torch

    modulus = P[trial.grid]
    both = torch.cartesian_prod(torch.arange(modulus), torch.arange(modulus))
    tokens = torch.cat([both, torch.full((len(both), 1), modulus)], dim=1)
    order = torch.randperm(len(both), generator=torch.Generator().manual_seed(trial.seed))
    return tokens, both.sum(1) % modulus, order


def loss_of(module: Decoder, tokens: Tensor, due: Tensor, g: torch.Generator) -> Tensor:
    """Cross-entropy after "=", over all pairs that are trained on."""
    import torch

    return torch.nn.functional.cross_entropy(module(tokens)[:, -1], due)


def right_of(module: Decoder, tokens: Tensor, due: Tensor) -> int:
    """How many answers are right, as the module runs."""
    import torch

    with torch.no_grad():
        return int((module(tokens)[:, -1].argmax(-1) == due).sum())


def trials(grid: GridSize, seeds: int) -> list[ModularTrial]:
    return [ModularTrial(grid, share, seed) for share, seed in product(SHARES[grid], range(seeds))]


def drawing(results: Sequence[Result]) -> Figure:
    from verify.experiments.figures import dots

    return dots(results, by=("P", "trained on %"), law=PAIRS)


def experiments() -> tuple[Experiment, ...]:
    """Sec. 4's modular addition."""
    example = {grid: ModularTrial(grid, SHARES[grid][0], 0) for grid in GridSize}
    return (
        Experiment(
            "E-Sec-4",
            "E, Sec. 4, Nanda et al.'s modular addition",
            "After grokking, how many of all P^2 pairs are right, and by how much?",
            "E prints no accuracy; it says that the validation set is learnt suddenly, long after the training set.",
            "the pairs that were not trained on, all of them",
            {PAIRS: "all P^2 pairs"},
            {
                GridSize.LAPTOP: f"ours, for P = 23: {recipe(example[GridSize.LAPTOP])}",
                GridSize.PAPER: f"Nanda et al.'s, for P = 113: {recipe(example[GridSize.PAPER])}",
            },
            {GridSize.LAPTOP: 10.0, GridSize.PAPER: 9000.0},
            trials,
            drawing,
        ),
    )
