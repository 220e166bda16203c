"""What the heads of a model are found to do, as JSON has it: every share is an exact fraction in a string."""

from __future__ import annotations

from typing import Literal, TypedDict

Measure = Literal["learned_accuracy", "auc", "separable"]


class DrawnSeparator(TypedDict):
    """A separator in floats."""

    w: list[float]
    b: float


class Measures(TypedDict, total=False):
    """What is measured of one head (`head`, and its own keys), or of several together (`heads`)."""

    head: int
    heads: list[int]
    learned_accuracy: str | None
    auc: str | None
    separable: bool | None
    certificate: dict[str, object] | None
    separator: DrawnSeparator | None
    w01: float | None
    w02: float | None
    values: dict[str, list[float | None]]
    separable_unbounded: bool | None
    certificate_unbounded: dict[str, object] | None
    kappa: float | None
    syntactic_accuracy: str | None
    svc: dict[str, str] | str | None


class KeptHeads(TypedDict, total=False):
    """Heads that a step of halving keeps."""

    heads: list[int]
    learned_accuracy: str
    separable: bool


class SubsetsAnswer(TypedDict):
    """All subsets of the heads; `shapley` is by learned accuracy and by separability."""

    count: str
    accuracy_of_none: str
    accuracy_of_all: str
    by_size: list[dict[str, str]]
    smallest_perfect: list[int] | None
    additions_that_hurt: str
    separating: str | None
    separability_decided_one_by_one: int
    smallest_separating: list[int] | None
    shapley: dict[str, list[str] | None]
    halving: dict[str, list[KeptHeads]]


class HeadsAnswer(TypedDict, total=False):
    """The whole model under the law, its heads, pairs of them, and the subsets that are asked for."""

    law: str
    law_text: str
    labels: str
    inputs: str
    counts: dict[str, str] | None
    accuracy: str | None
    empty_prompt: str
    wrong_inputs: list[list[int]]
    heads: list[Measures]
    pairs: list[Measures] | None
    subsets: list[Measures]
    all_subsets: SubsetsAnswer | None
    complete: bool
    open: list[str]
