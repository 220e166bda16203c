"""Document E's halving of heads (Sec. 5.5): half are masked whenever the model has learnt, until one is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.frame.experiment import DecidedModel, GridSize, Setting
from verify.tasks.count01 import noisy_majority as task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constructions.count01 import Count01Transformer
    from constructions.training import Recipe

NORMAL, MASKED, SVC = STRATEGIES = ("normal", "masked", "svc")  # E's names in Table 1: all heads, one head, halving
SIZES = {GridSize.LAPTOP: ((8, 4),), GridSize.PAPER: ((8, 4), (32, 16))}  # d, heads
LEARNT = 0.95  # validation accuracy at which E drops half of the heads
ROUNDS = 40  # cutting planes of a fit that only ranks heads
EVERY = 25  # steps between two validations


@dataclass(frozen=True)
class HalvingTrial:
    """One model that ends with one head, or keeps all of them, by one of E's strategies."""

    grid: GridSize
    strategy: str
    d: int
    heads: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.strategy}_d{self.d}_a{self.heads}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(task.recipe(self.grid, task.RATES[self.grid]))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"heads kept by": self.strategy, "d": self.d, "heads": self.heads, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        g = torch.Generator().manual_seed(self.seed)
        module, (training, validation, test) = task.prepared(self.d, self.heads, g)
        how = task.recipe(self.grid, task.RATES[self.grid])
        record = Masks(module, validation, self.strategy).trained(training, how, self.seed)
        return task.decided(module, test, self.settings, record)


@dataclass(frozen=True)
class Halving:
    """A model before half of its heads are masked, and what is masked then: `heads` act before it, `kept` after it."""

    validation: int
    heads: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass
class Masks:
    """The heads of a model that still act; the output matrices of the others are zero.

    `course` has every validation: its accuracy, and how many heads act. `at_halving` sees each halving before it is
    made.
    """

    module: Count01Transformer
    validation: Tensor
    strategy: str
    at_halving: Callable[[Halving], None] | None = None
    course: list[tuple[float, int]] = field(init=False, default_factory=list)
    kept: list[int] = field(init=False)
    halvings: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.kept = [0] if self.strategy == MASKED else list(range(self.module.heads))

    def apply(self) -> None:
        """Sets the masked heads' outputs to zero, which Adam's momentum may have moved."""
        import torch

        dropped = [h for h in range(self.module.heads) if h not in self.kept]
        with torch.no_grad():
            self.module.W_O[dropped] = 0.0

    def applied(self, loss: Callable[[torch.Generator], Tensor], g: torch.Generator) -> Tensor:
        """The loss of the masked model."""
        self.apply()
        return loss(g)

    def trained(self, training: Tensor, how: Recipe, seed: int) -> dict[str, object]:
        """Trains the masked model; the record says how many heads are left."""
        from constructions.training import train

        loss = partial(task.loss, self.module, training, how.batch)
        record = train(self.module, lambda g: self.applied(loss, g), how, seed, score=self.score, every=EVERY)
        return {**record.to_dict(), "heads left": sum(bool(of_head.any()) for of_head in self.module.W_O)}

    def score(self) -> float:
        """Validation accuracy, plus 2 for every halving before it, so that the fewest heads are kept.

        Where the model has learnt, half of the heads are masked from the next step on.
        """
        self.apply()
        reached = task.share(self.module, self.validation)
        found = 2 * self.halvings + reached
        self.course.append((reached, len(self.kept)))
        if self.strategy == SVC and reached > LEARNT and len(self.kept) > 1:
            of = separations(self.module, self.kept, self.validation)
            best = sorted(sorted(self.kept, key=lambda h: -of[h])[: len(self.kept) // 2])
            if self.at_halving is not None:
                self.at_halving(Halving(len(self.course), tuple(self.kept), tuple(best)))
            self.kept, self.halvings = best, self.halvings + 1
        return found


def separations(module: Count01Transformer, heads: Sequence[int], strings: Tensor) -> dict[int, float]:
    """How well each head's output alone separates the two answers: the share that E's classifier gets right, in floats.

    It only ranks heads; no verdict rests on it.
    """
    import numpy as np
    import torch

    from constructions.count01 import EQUALS, FOUR
    from verify.tasks.count01.heads.svc import fit

    with torch.no_grad():
        outputs = module.mixed_at_counts(task.counts_of(strings, EQUALS), EQUALS).double().numpy()
    y = np.where(task.due_of(strings).numpy() == FOUR, 1.0, -1.0)
    found = {}
    for h in heads:
        seen = outputs[:, h] - outputs[:, h].mean(axis=0)
        w, b, _ = fit(seen, y, ROUNDS)
        found[h] = float(np.mean((seen @ w + b) * y > 0))
    return found


RECIPES = {
    grid: f"{usual}; learning rate {task.RATES[grid]:g}. Every {EVERY} steps (ours) the model is validated, and with "
    f"svc half of its heads are masked where more than {LEARNT:.0%} are right, as E does; of the states with the "
    "fewest heads the best one is kept"
    for grid, usual in task.RECIPES.items()
}


def trials(grid: GridSize, seeds: int) -> list[HalvingTrial]:
    """Every strategy at every size."""
    combined = product(SIZES[grid], STRATEGIES, range(seeds))
    return [HalvingTrial(grid, strategy, d, heads, seed) for (d, heads), strategy, seed in combined]
