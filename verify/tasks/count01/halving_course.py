"""Document E's Figure 10: validation accuracy while heads are halved, and the exact share at each halving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from verify.experiments.experiment import DecidedModel, GridSize, Result, Setting
from verify.tasks.count01 import noisy_majority as task
from verify.tasks.count01.halving import EVERY, SVC, Halving, Masks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from constructions.count01 import Count01Transformer

SIZE = (32, 16)  # E's d and heads


@dataclass(frozen=True)
class CourseTrial:
    """One model whose heads are halved by their separation accuracy, watched while it is trained."""

    grid: GridSize
    seed: int

    @property
    def name(self) -> str:
        return f"course_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "size": list(SIZE), "recipe": str(task.recipe(self.grid, task.RATES[self.grid]))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"d": SIZE[0], "heads": SIZE[1], "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        d, heads = SIZE
        module, (training, validation, test) = task.prepared(d, heads, torch.Generator().manual_seed(self.seed))
        how, halvings = task.recipe(self.grid, task.RATES[self.grid]), list[dict[str, object]]()

        def noted(halving: Halving) -> None:
            after = only(module, halving.kept)
            step = min(EVERY * halving.validation, how.steps)
            heads = [len(halving.heads), len(halving.kept)]
            halvings.append({"step": step, "heads": heads, "before": exact(module), "after": exact(after)})

        masks = Masks(module, validation, SVC, noted)
        record = masks.trained(training, how, self.seed)
        found = task.decided(module, test, self.settings, record)
        course = [
            [min(EVERY * n, how.steps), round(share * len(validation)), acting]
            for n, (share, acting) in enumerate(masks.course, 1)
        ]
        shown = {"course": course, "of": len(validation), "halvings": halvings, "heads left": record["heads left"]}
        return replace(found, result=replace(found.result, shown=shown))


def only(module: Count01Transformer, kept: Sequence[int]) -> Count01Transformer:
    """A copy in which only these heads act."""
    from copy import deepcopy

    import torch

    found = deepcopy(module)
    with torch.no_grad():
        found.W_O[[h for h in range(module.heads) if h not in kept]] = 0.0
    return found


def exact(module: Count01Transformer) -> str | None:
    """The share of all strings of E's law that are answered rightly, None where a triple is too close to a tie."""
    from verify.arithmetic.exact_reals import Undecided
    from verify.tasks.count01.layer_norm.counting import wrong_after_equals
    from verify.tasks.count01.layer_norm.laws import law_named
    from verify.tasks.count01.layer_norm.numbers import model_numbers

    try:
        return str(wrong_after_equals(model_numbers(module), law_named(task.LAW), task.LABELS)[1])
    except Undecided:
        return None


def trials(grid: GridSize, seeds: int) -> list[CourseTrial]:
    """One model for each seed."""
    return [CourseTrial(grid, seed) for seed in range(seeds)]


def described(results: Sequence[Result]) -> list[str]:
    """Each halving of each model, with the exact share of right strings on both sides of it."""
    from verify.experiments.table import share

    lines = []
    for found in results:
        for each in found.shown["halvings"]:
            ends = [Fraction(each[side]) if each[side] is not None else None for side in ("before", "after")]
            before, after = ("an unknown share" if of is None else f"{share(of, of)} %" for of in ends)
            fewer, than = each["heads"][1], each["heads"][0]
            lines.append(
                f"seed {found.settings['seed']}, step {each['step']}: with {than} heads the model is right on {before} "
                f"of all strings of the test's law, and with {fewer} of them on {after}"
            )
        end = found.exact.get(task.LAW)
        lines.append(
            f"seed {found.settings['seed']}, the model that is kept: {found.shown['heads left']} of its heads act, and "
            f"it is right on {'an unknown share' if end is None else share(*end) + ' %'} of these strings"
        )
    return lines


def drawing(results: Sequence[Result]) -> Figure:
    """One panel for each model: sampled validation accuracy by step, dashed halvings, exact shares as marks."""
    from verify.experiments.figures import courses

    return courses([(f"seed {found.settings['seed']}", found.shown) for found in results])
