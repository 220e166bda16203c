"""Training in plain PyTorch: one loop for all models, and a record that says how a checkpoint came to be."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.threads import one_thread

OPTIMIZERS = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
CONSTANT, ONE_CYCLE, COSINE = SCHEDULES = ("constant", "one-cycle", "cosine")


@dataclass(frozen=True)
class Recipe:
    """How a module is trained: everything but the data and the seed.

    `stop` ends the training as soon as the loss of a step is below it, `clip` bounds the norm of a gradient, and over
    the first `warmup` steps of a constant schedule the rate grows linearly.
    """

    optimizer: str
    lr: float
    steps: int
    batch: int
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: str = CONSTANT
    clip: float | None = None
    stop: float | None = None
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS or self.schedule not in SCHEDULES:
            known = f"{', '.join(OPTIMIZERS)}; {', '.join(SCHEDULES)}"
            raise BadInput(f"optimizer={self.optimizer!r}, schedule={self.schedule!r}: must be of {known}")
        if self.steps < 1 or self.batch < 1:
            raise BadInput(f"steps={self.steps}, batch={self.batch}: must be at least 1")
        if self.warmup < 0 or (self.warmup and self.schedule != CONSTANT):
            raise BadInput(f"warmup={self.warmup}: must be at least 0, and 0 with a {self.schedule} schedule")

    def started(self, module: nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler | None]:
        """The optimizer of a module's parameters that learn, and what changes its rate."""
        options = {"lr": self.lr, "weight_decay": self.weight_decay, "betas": self.betas}
        learning = [W for W in module.parameters() if W.requires_grad]
        optimizer: torch.optim.Optimizer = OPTIMIZERS[self.optimizer](learning, **options)
        if self.schedule == ONE_CYCLE:
            return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.lr, total_steps=self.steps)
        if self.schedule == COSINE:
            return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        if self.warmup:
            return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / self.warmup))
        return optimizer, None

    def slower(self, times: float) -> Recipe:
        """The same with a rate that many times smaller."""
        return replace(self, lr=self.lr / times)

    def __str__(self) -> str:
        """The recipe in words.

        >>> print(Recipe("Adam", 1e-3, 100, 32))
        Adam, learning rate 0.001, 100 steps of 32
        """
        words = [self.optimizer, f"learning rate {self.lr:g}", f"{self.steps} steps of {self.batch}"]
        words += [f"weight decay {self.weight_decay:g}"] if self.weight_decay else []
        words += [f"{self.schedule} schedule"] if self.schedule != CONSTANT else []
        words += [f"linear warmup of {self.warmup} steps"] if self.warmup else []
        words += [f"gradients clipped at {self.clip:g}"] if self.clip is not None else []
        return ", ".join(words + ([f"until the loss is below {self.stop:g}"] if self.stop is not None else []))


@dataclass(frozen=True)
class Training:
    """The record of a training: the recipe, the seed, the steps that were made, and the last loss.

    `best_step` is the step whose weights were kept, where a score chose them.
    """

    recipe: Recipe
    seed: int
    steps: int
    loss: float
    best_step: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values, with the versions that computed them."""
        versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
        return {**asdict(self), "versions": versions}


@cache
def load_optimizers() -> None:
    """Loads what torch's optimizers run with, a second or two, by making one: start-up, and no part of a training.

    >>> load_optimizers()
    """
    Recipe(next(iter(OPTIMIZERS)), 1.0, 1, 1).started(nn.Linear(1, 1))


@one_thread()
def train(
    module: nn.Module,
    loss: Callable[[torch.Generator], Tensor],
    recipe: Recipe,
    seed: int,
    *,
    score: Callable[[], float] | None = None,
    every: int = 100,
    is_over: Callable[[], bool] | None = None,
) -> Training:
    """Trains a module in place by a loss that draws its batches from the generator, in one thread's order of sums.

    With a score, taken after every so many steps and the last one, the weights of the best one are kept at the end; of
    equal ones the latest. `is_over` ends the training early.

    >>> line = nn.Linear(1, 1, bias=False)
    >>> off = lambda g: (line(torch.ones(1, 1)) - 3).square().sum()
    >>> train(line, off, Recipe("Adam", 0.1, 200, 1), 0).steps, round(float(line.weight.detach()), 1)
    (200, 3.0)
    """
    g = torch.Generator().manual_seed(seed)
    optimizer, schedule = recipe.started(module)
    best, kept, state, step, value = -float("inf"), None, None, 0, float("nan")
    for step in range(1, recipe.steps + 1):
        optimizer.zero_grad()
        found = loss(g)
        found.backward()  # type: ignore[no-untyped-call]
        if recipe.clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), recipe.clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        value = float(found.detach())
        is_last = step == recipe.steps or (recipe.stop is not None and value < recipe.stop)
        is_last |= is_over is not None and is_over()
        if score is not None and (is_last or step % every == 0):
            with torch.no_grad():
                reached = score()
            if reached >= best:
                best, kept = reached, step
                state = {name: W.clone() for name, W in module.state_dict().items()}
        if is_last:
            break
    if state is not None:
        module.load_state_dict(state)
    return Training(recipe, seed, step, value, kept)
