"""An experiment: the models that a figure or table of a document is about, and what is found of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from verify.frame.certificate import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Setting = str | int | float


class GridSize(StrEnum):
    """How much of an experiment is done: what a laptop does in minutes, or all that the document did."""

    LAPTOP = "laptop"
    PAPER = "paper"


@dataclass(frozen=True)
class Result:
    """What was found of one model.

    `sampled` is right answers of how many, drawn as the document draws them and run in the model's dtype; `exact` is
    the share of right answers in real arithmetic, at least and at most, by the name of a law; `wrong` is an input with
    a wrong answer; `inputs` says how many answers a law has, where they are counted. `shown` holds plain values that
    only the figure and the remarks need.
    """

    settings: Mapping[str, Setting]
    sampled: tuple[int, int]
    verdict: Verdict
    exact: Mapping[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    wrong: Mapping[str, object] | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_proved(self) -> bool:
        return self.verdict is Verdict.PROVED

    @property
    def is_news(self) -> bool:
        """Whether all sampled answers are right, and the model is wrong nevertheless."""
        return self.sampled[0] == self.sampled[1] and self.verdict is Verdict.REFUTED

    def wrong_of(self, law: str) -> tuple[int, int] | None:
        """How many of a law's answers are wrong, None where they are not counted or some are open.

        >>> share = Fraction(2, 3)
        >>> Result({}, (1, 1), Verdict.REFUTED, {"all": (share, share)}, None, {"all": 6}).wrong_of("all")
        (2, 6)
        """
        if law not in self.exact or law not in self.inputs or self.exact[law][0] != self.exact[law][1]:
            return None
        found = (1 - self.exact[law][0]) * self.inputs[law]
        assert found.denominator == 1, (law, self.exact[law], self.inputs[law])
        return int(found), self.inputs[law]

    def to_dict(self) -> dict[str, object]:
        """Plain values; fractions are strings."""
        more = {"shown": dict(self.shown)} if self.shown else {}
        return {
            "settings": dict(self.settings),
            "sampled": list(self.sampled),
            "verdict": self.verdict.value,
            "exact": {law: [str(low), str(high)] for law, (low, high) in self.exact.items()},
            "wrong": None if self.wrong is None else dict(self.wrong),
            **({"inputs": {law: str(number) for law, number in self.inputs.items()}} if self.inputs else {}),
            **more,
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Result:
        """Raises: ValueError, KeyError or TypeError for what `to_dict` does not write.

        >>> exact = {"uniform": (Fraction(1, 3), Fraction(1, 2))}
        >>> found = Result({"d": 4}, (9, 10), Verdict.REFUTED, exact, {"input": [0]})
        >>> Result.from_dict(found.to_dict()) == found
        True
        """
        right, of = map(int, said["sampled"])
        exact = {law: (Fraction(low), Fraction(high)) for law, (low, high) in said["exact"].items()}
        inputs = {law: int(number) for law, number in said.get("inputs", {}).items()}
        verdict, shown = Verdict(said["verdict"]), said.get("shown", {})
        return cls(dict(said["settings"]), (right, of), verdict, exact, said["wrong"], inputs, shown)


@dataclass(frozen=True)
class DecidedModel:
    """A decided model: the result, the weights as a file, the record of its training, and the CPU seconds of both."""

    result: Result
    weights: bytes
    training: Mapping[str, object]
    seconds: float = 0.0


class Trial(Protocol):
    """One model of an experiment, before it is trained; a frozen dataclass of plain values, so that it can be sent."""

    @property
    def name(self) -> str:
        """Of its file, without an ending."""

    @property
    def described(self) -> Mapping[str, object]:
        """All that the result depends on, as plain values: a kept result of other ones is not taken."""

    def run(self) -> DecidedModel:
        """Trains the model, and decides it."""


@dataclass(frozen=True)
class Summary:
    """A second table of an experiment, of groups of its models."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Setting | None, ...], ...]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a document.

    `recipes` says with what each grid's models are trained, and what of that the document says; `printed` what the
    document prints, `sampling` how the sampled answers are drawn, and `laws`, by name, which inputs an exact share is a
    share of; a share of something else has a sentence there, with {} for its number. `seconds` is what one trial took
    on one core when that was measured, by grid. `remarks` says of all results together what no row of the table says.
    `also` are figures that show nothing but these models, too: their names name this experiment.
    """

    id: str
    source: str
    question: str
    printed: str
    sampling: str
    laws: Mapping[str, str]
    recipes: Mapping[GridSize, str]
    seconds: Mapping[GridSize, float]
    trials: Callable[[GridSize, int], Sequence[Trial]]
    draw: Callable[[Sequence[Result]], Figure] | None = None
    remarks: Callable[[Sequence[Result]], Sequence[str]] | None = None
    summary: Callable[[Sequence[Result]], Summary] | None = None
    also: tuple[str, ...] = ()
