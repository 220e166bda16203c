"""Trained heads: document D's models by size (Fig. 2) and heads of dimension 1 (Table 1), and E's 64 heads (Fig. 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

from verify.frame.certificate import Verdict
from verify.frame.experiment import DecidedModel, GridSize, Result, Setting
from verify.tasks.count01 import noisy_majority as task
from verify.tasks.count01.heads.classified import (
    SUCCESSFUL,
    FittedHead,
    fitted_heads,
    mean_share,
    separable_share,
    share_from,
)

if TYPE_CHECKING:
    from constructions.training import Recipe

NORM, PLAIN = READS = ("LayerNorm(x)", "x")  # what the attention reads
WIDTHS = {GridSize.LAPTOP: (4, 8, 32), GridSize.PAPER: (4, 8, 16, 32, 64)}  # d; D's axes are a picture
HEADS = {GridSize.LAPTOP: (1, 4, 16), GridSize.PAPER: (1, 2, 4, 8, 16, 32)}
ALONE = tuple((d, 1) for d in (32, 16, 8, 4, 2, 1))  # Table 1's rows of one head: d, heads
TOGETHER = ((2, 64), (1, 64))
EPOCHS = {GridSize.LAPTOP: 40, GridSize.PAPER: 100}
RECIPES = {
    GridSize.LAPTOP: "E's decay and batch, since D prints none, 40 epochs with a falling rate from 0.003, no dropout",
    GridSize.PAPER: "E's rate, decay and batch, since D prints none, and 100 epochs, the last that D draws; no dropout",
}


def recipe(grid: GridSize) -> Recipe:
    """E's rate, decay and batch, for as many epochs as D draws, or fewer with a falling rate on a laptop."""
    return task.recipe(grid, task.RATES[grid], EPOCHS[grid])


@dataclass(frozen=True)
class SizeTrial:
    """One of D's models; its heads have dimension d / heads, and at least 1."""

    grid: GridSize
    reads: str
    d: int
    heads: int
    seed: int

    @property
    def name(self) -> str:
        return f"{'norm' if self.reads == NORM else 'plain'}_d{self.d}_a{self.heads}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(recipe(self.grid))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"attention reads": self.reads, "d": self.d, "heads": self.heads, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        g, of = torch.Generator().manual_seed(self.seed), task.D_STRINGS
        d_h = max(1, self.d // self.heads)
        module, sets = task.prepared(self.d, self.heads, g, of, d_h=d_h, norm=self.reads == NORM)
        record = task.trained(module, sets, recipe(self.grid), self.seed, of.labels)
        return task.decided(module, sets[-1], self.settings, record, of)


@dataclass(frozen=True)
class MinimalHeadTrial:
    """Heads of dimension 1 that are trained together, without layer norm, each judged by a classifier of its own."""

    grid: GridSize
    d: int
    heads: int
    seed: int

    @property
    def name(self) -> str:
        return f"d{self.d}_a{self.heads}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(recipe(self.grid))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"d": self.d, "heads": self.heads, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        from constructions.count01 import as_bytes

        of = task.D_STRINGS
        module, sets = task.prepared(self.d, self.heads, torch.Generator().manual_seed(self.seed), of, d_h=1)
        record = task.trained(module, sets, recipe(self.grid), self.seed, of.labels)
        found = of_heads(fitted_heads(module, sets, of), self.settings, len(sets[-1]))
        return DecidedModel(found, as_bytes(module), record)


def of_heads(heads: list[FittedHead], settings: Mapping[str, Setting], samples: int) -> Result:
    """The result of heads that answer one by one: PROVED where each one's classifier is right on all strings."""
    exact = {
        task.D_STRINGS.law: mean_share(heads),
        "successful": share_from(SUCCESSFUL, heads),
        "perfect": share_from(Fraction(1), heads),
        "separable": separable_share(heads),
    }
    case = next(({"head": h, **each.wrong} for h, each in enumerate(heads) if each.wrong is not None), None)
    are_known = all(each.share is not None for each in heads)
    verdict = Verdict.REFUTED if case else Verdict.PROVED if are_known else Verdict.UNKNOWN
    return Result(settings, (sum(each.right for each in heads), samples * len(heads)), verdict, exact, case)


@dataclass(frozen=True)
class ManyHeadsTrial:
    """A model of d = 2 with heads of dimension 2: one whose output is added as it is, or many and an output matrix."""

    grid: GridSize
    heads: int
    seed: int

    @property
    def name(self) -> str:
        return f"a{self.heads}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(task.recipe(self.grid, task.RATES[self.grid]))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"d": 2, "heads": self.heads, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        module, sets = task.prepared(2, self.heads, torch.Generator().manual_seed(self.seed), d_h=2)
        if self.heads == 1:  # E, Sec. 5.2: no output matrix unless it is named
            with torch.no_grad():
                module.W_O.copy_(torch.eye(2)).requires_grad_(False)
        record = task.trained(module, sets, task.recipe(self.grid, task.RATES[self.grid]), self.seed)
        found = task.decided(module, sets[-1], self.settings, record)
        heads = fitted_heads(module, sets, task.E_STRINGS)
        exact = {**found.result.exact, "classifiers": mean_share(heads), "separable": separable_share(heads)}
        return replace(found, result=replace(found.result, exact=exact))


def by_size(grid: GridSize, seeds: int) -> list[SizeTrial]:
    """D's Figure 2, with layer norm and without: the text has it as an option."""
    combined = product(READS, WIDTHS[grid], HEADS[grid], range(seeds))
    return [SizeTrial(grid, *settings) for settings in combined]


def minimal(grid: GridSize, seeds: int) -> list[MinimalHeadTrial]:
    """D's Table 1; on a laptop the rows of one head."""
    sizes = ALONE + TOGETHER if grid is GridSize.PAPER else ALONE
    return [MinimalHeadTrial(grid, d, heads, seed) for (d, heads), seed in product(sizes, range(seeds))]


def counted(results: Sequence[Result]) -> list[str]:
    """Table 1's rows: how many models of one size have heads that are successful or perfect, of those with one head."""
    rows: dict[Setting, list[Result]] = {}
    for found in results:
        if found.settings["heads"] == 1:
            rows.setdefault(found.settings["d"], []).append(found)
    lines = []
    for d, row in rows.items():
        seen = sum(Fraction(*found.sampled) >= SUCCESSFUL for found in row)
        by = {name: sum(found.exact[name][0] == 1 for found in row) for name in ("successful", "perfect", "separable")}
        lines.append(
            f"d = {d}, {len(row)} heads that were trained alone: the classifiers of {by['successful']} are right on at "
            f"least 98 % of all triples (the samples say this of {seen}), and those of {by['perfect']} on all of them. "
            f"The outputs of {by['separable']} can be separated on all triples by some line, which training the "
            "classifier need not find"
        )
    return lines


def many(grid: GridSize, seeds: int) -> list[ManyHeadsTrial]:
    """E's Figure 9: one head beside 64."""
    return [ManyHeadsTrial(grid, heads, seed) for heads, seed in product((1, 64), range(seeds))]
