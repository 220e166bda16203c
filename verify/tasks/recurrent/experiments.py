"""Document C's recurrent networks: trained to count modulo 10 up to 50, and decided for all lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.experiments.experiment import DecidedModel, Experiment, GridSize, Result, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from constructions.recurrent.model import RecurrentModel
    from constructions.training import Recipe

MODULUS = 10
IND, OOD = 50, 100  # C's lengths: of training, and of its test
KINDS = ("rnn", "lstm", "gru")
HIDDEN = {GridSize.LAPTOP: (8, 16), GridSize.PAPER: (32, 128)}
STOPS = (0.5, 0.1, 0.003)  # losses at which training ends: the later, the longer a network counts
BUDGET = 20.0  # seconds for a verdict
SHORT = f"lengths 1 to {OOD}"


@dataclass(frozen=True)
class CounterTrial:
    """One network of one kind and size, trained until its loss is below a number."""

    grid: GridSize
    kind: str
    hidden: int
    stop: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind}_h{self.hidden}_loss{self.stop:g}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(recipe(self.grid, self.stop))}

    @property
    def settings(self) -> dict[str, Setting]:
        return {"network": self.kind, "units": self.hidden, "loss below": self.stop, "seed": self.seed}

    def run(self) -> DecidedModel:
        import torch

        from constructions.recurrent.model import RecurrentModel, as_bytes
        from constructions.training import train
        from verify.counting.tasks import Task
        from verify.frame.decide import Effort, certify
        from verify.tasks.recurrent.task import Homogeneous

        torch.manual_seed(self.seed)
        network = RecurrentModel(self.kind, hidden=self.hidden, classes=MODULUS).requires_grad_(True)
        how, best = recipe(self.grid, self.stop), partial(score, network)
        training = train(network, lambda g: loss(network), how, self.seed, score=best, every=50)
        network.requires_grad_(False)
        task, effort = Task.of("modular", modulus=MODULUS), Effort(BUDGET)
        found = certify(Homogeneous(network, task, None), effort=effort)
        is_short_right = bool(found) or bool(certify(Homogeneous(network, task, OOD), effort=effort))
        exact = {SHORT: (Fraction(1), Fraction(1))} if is_short_right else {}
        right = int(answers(network, OOD).sum())
        result = Result(self.settings, (right, OOD), found.verdict, exact, found.counterexample)
        return DecidedModel(result, as_bytes(network), training.to_dict())


def recipe(grid: GridSize, stop: float) -> Recipe:
    """C's rate, decay and batch (footnote 3), or ours, which learns in seconds; when to stop is ours."""
    from constructions.training import Recipe

    if grid is GridSize.PAPER:
        return Recipe("AdamW", lr=3e-4, steps=30_000, batch=32, weight_decay=0.01, stop=stop)
    return Recipe("Adam", lr=1e-2, steps=1500, batch=1, clip=1.0, stop=stop)


def loss(network: RecurrentModel) -> Tensor:
    """Cross-entropy of the answers after each of 50 equal tokens, the one string there is."""
    import torch

    due = torch.arange(IND) % MODULUS
    return torch.nn.functional.cross_entropy(network(torch.zeros(1, IND, dtype=torch.long))[0], due)


def answers(network: RecurrentModel, length: int) -> Tensor:
    """Which lengths are answered rightly, as the network runs in torch."""
    import torch

    with torch.no_grad():
        said = network(torch.zeros(1, length, dtype=torch.long))[0].argmax(-1)
    right: Tensor = said == torch.arange(length) % MODULUS
    return right


def score(network: RecurrentModel) -> float:
    """C keeps the best checkpoint, by its accuracy out of distribution."""
    return float(answers(network, OOD).double().mean())


def trials(grid: GridSize, seeds: int) -> list[CounterTrial]:
    """Every kind and size, stopped early and late."""
    combined = product(KINDS, HIDDEN[grid], STOPS, range(seeds))
    return [CounterTrial(grid, kind, hidden, stop, seed) for kind, hidden, stop, seed in combined]


def drawing(results: Sequence[Result]) -> Figure:
    from verify.experiments.figures import dots

    return dots(results, by=("network", "units", "loss below"), law=None)


def experiments() -> tuple[Experiment, ...]:
    """The row "modular (mod 10)" of Table A1, and what it says of longer strings."""
    kept = f"or {', '.join(map(str, STOPS[1:]))}; of every 50 steps the best at length {OOD} is kept, as C does"
    recipes = {
        GridSize.LAPTOP: f"ours: {recipe(GridSize.LAPTOP, STOPS[0])}, {kept}",
        GridSize.PAPER: f"a rate, a decay and sizes of C's (footnote 3): {recipe(GridSize.PAPER, STOPS[0])}, {kept}",
    }
    return (
        Experiment(
            "C-Table-A1",
            "C, Table A1, row modular (mod 10)",
            "Does a network that is right to length 100 count for ever?",
            "RNN and LSTM: 100 % in distribution and 100 % out of it, at length 100.",
            f"every length up to {OOD} once, all that there is",
            {SHORT: f"all {SHORT}"},
            recipes,
            {GridSize.LAPTOP: 2.0, GridSize.PAPER: 60.0},
            trials,
            drawing,
        ),
    )
