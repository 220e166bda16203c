"""Everything about the heads of one model under one law, as one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from flint import arb, ctx

from constructions.count01_arrays import TOKENS, check_labels
from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Undecided
from verify.tasks.count01.heads.answers import HeadsAnswer, KeptHeads, Measures, SubsetsAnswer
from verify.tasks.count01.heads.auc import Auc
from verify.tasks.count01.heads.joint import Joint
from verify.tasks.count01.heads.separability import Separability, kappa, separability
from verify.tasks.count01.heads.shapley import halved, restricted, separating_subsets, shapley
from verify.tasks.count01.heads.subsets import MOST_HEADS, SubsetTable, all_subsets, mask
from verify.tasks.count01.heads.svc import svc
from verify.tasks.count01.judged import judged
from verify.tasks.count01.layer_norm.accuracy import Learned
from verify.tasks.count01.layer_norm.counting import wrong_after_equals
from verify.tasks.count01.layer_norm.laws import Law, law_named
from verify.tasks.count01.layer_norm.numbers import SEEN, ModelNumbers, model_numbers
from verify.tasks.count01.layer_norm.syntax import Syntax
from verify.tasks.count01.task import ONE, TWO

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

UNBOUNDED = law_named("unbounded")
MOST_PAIRED = 24  # heads: beyond it, pairs are looked at where asked
T = TypeVar("T")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class HeadsQuestion:
    """The questions to answer: the law, the label convention, further subsets, and which longer computations."""

    law: Law
    labels: str = "majority-ones"
    subsets: tuple[tuple[int, ...], ...] = ()
    is_paired: bool = True
    all_subsets: bool = False
    svc: bool = False


@dataclass
class HeadFindings:
    """The findings, ready for JSON, and whether anything stayed open."""

    data: HeadsAnswer
    open: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.open


def silent(stage: str, share: float) -> None:
    """Shows no progress."""


def dissect(model: Count01Model, question: HeadsQuestion, progress: Progress = silent) -> HeadFindings:
    """Measures the heads of a model: every share exact, separability with a certificate either way.

    Claim: D, Sec. 5; E, Sec. 5.4 and 5.5. Heads outside a subset are zeroed; biases and the residual stay.
    Raises: BadInput for unknown labels, a subset of heads that are not there, or a law with too many triples.
    """
    check_labels(question.labels)
    for subset in question.subsets:
        check_subset("--subset", subset, model.heads)
    with np.errstate(all="ignore"):  # overflow and NaN decide nothing: every test is false for them
        return Dissection(model_numbers(judged(model)), question, progress).answer()


def check_subset(option: str, subset: Sequence[int], heads: int) -> None:
    """Raises BadInput unless these are different heads of the model."""
    named = f"{option} {','.join(map(str, subset))}"
    for h in subset:
        if not 0 <= h < heads:
            raise BadInput(f"{named}: the model has heads 0 to {heads - 1}; drop {h}")
    if len(set(subset)) != len(subset) or not subset:
        raise BadInput(f"{named}: must name at least one head, and each only once")


class Dissection:
    """One model under one law: its metrics by subset, and the cells that stayed open."""

    def __init__(self, model: ModelNumbers, question: HeadsQuestion, progress: Progress) -> None:
        self.model, self.question, self.progress = model, question, progress
        self.law, self.open = question.law, list[str]()
        self.has_law = not self.law.is_unbounded
        progress("separability", 0.0)
        self.single = [separability(head, self.law) for head in model.heads]
        self.joint = Joint(model, self.law, self.single)
        if self.has_law:
            self.learned = Learned(model, self.law, question.labels)
            self.auc = Auc(model, self.law, question.labels)
            self.syntax = Syntax(model, self.law, question.labels)

    def answer(self) -> HeadFindings:
        heads = range(len(self.model.heads))
        data = self._whole()
        data["heads"] = [self._head(h) for h in self._shown(heads, "heads")]
        pairs = list(combinations(heads, 2))
        is_paired = self.question.is_paired and len(heads) <= MOST_PAIRED
        data["pairs"] = [self._group(p) for p in self._shown(pairs, "pairs")] if is_paired else None
        data["subsets"] = [self._group(s) for s in self.question.subsets]
        if self.question.all_subsets:
            data["all_subsets"] = self._all()
        data["complete"], data["open"] = not self.open, self.open
        return HeadFindings(data, self.open)

    def _shown(self, items: Iterable[T], stage: str) -> Iterable[T]:
        listed = list(items)
        for i, item in enumerate(listed):
            self.progress(stage, i / len(listed))
            yield item

    def _whole(self) -> HeadsAnswer:
        """The whole model after "=": right where the due answer has strictly the largest of all logits."""
        data: HeadsAnswer = {"law": self.law.name, "law_text": str(self.law), "labels": self.question.labels}
        data |= {"inputs": "infinite", "counts": None, "accuracy": None, "empty_prompt": "counts as n1 <= n0"}
        if not self.has_law:
            return data
        data["inputs"] = str(self.law.size)
        try:
            wrong, accuracy = wrong_after_equals(self.model, self.law, self.question.labels)
        except Undecided as error:
            self.open.append(f"whole model: {error}")
            return data
        data |= {
            "counts": {"right": str(self.law.size - len(wrong)), "wrong": str(len(wrong))},
            "accuracy": str(accuracy),
            "wrong_inputs": wrong[:1000].tolist(),
        }
        return data

    def _head(self, h: int) -> Measures:
        head = self.model.heads[h]
        found: Measures = {"head": h, **self._measures((h,), self.single[h], f"head {h}")}
        everywhere = self.single[h] if not self.has_law else separability(head, UNBOUNDED)
        self._note(everywhere, f"head {h} on N^3")
        offset = kappa(head)
        return found | {
            "w01": _number(head.ratio(ONE)),
            "w02": _number(head.ratio(TWO)),
            "values": {TOKENS[t]: [_number(x.ball(128)) for x in head.values[t]] for t in SEEN},
            "separable_unbounded": everywhere.is_separable,
            "certificate_unbounded": everywhere.certificate,
            "kappa": None if offset is None else _number(offset),
            "syntactic_accuracy": self._syntactic((h,), f"head {h}"),
            "svc": self._svc(h),
        }

    def _group(self, heads: tuple[int, ...]) -> Measures:
        name = f"heads {','.join(map(str, heads))}"
        found = self.joint.decide(heads)
        return {
            "heads": list(heads),
            **self._measures(heads, found, name),
            "syntactic_accuracy": self._syntactic(heads, name),
        }

    def _measures(self, heads: tuple[int, ...], found: Separability, name: str) -> Measures:
        self._note(found, name)
        return {
            "learned_accuracy": self._accuracy(heads, name),
            "auc": self._auc(heads, name),
            "separable": found.is_separable,
            "certificate": found.certificate,
            "separator": None if found.w is None or found.b is None else {"w": list(found.w), "b": found.b},
        }

    def _note(self, found: Separability, name: str) -> None:
        if found.is_separable is None:
            self.open.append(f"{name}: separability ({found.reason})")

    def _accuracy(self, heads: tuple[int, ...], name: str) -> str | None:
        if not self.has_law:
            return None
        low, high = self.learned.answers(heads).accuracy(self.law)
        if low != high:
            self.open.append(f"{name}: learned accuracy between {low} and {high}")
            return None
        return str(low)

    def _auc(self, heads: tuple[int, ...], name: str) -> str | None:
        return self._share(f"{name}: AUC", lambda: self.auc.of(heads))

    def _syntactic(self, heads: tuple[int, ...], name: str) -> str | None:
        return self._share(f"{name}: syntactic accuracy", lambda: self.syntax.accuracy(heads, self.law))

    def _share(self, name: str, of: Callable[[], Fraction | None]) -> str | None:
        """A share under the law; null where there is none, or where it stays open."""
        try:
            found = of() if self.has_law else None
        except Undecided as error:
            self.open.append(f"{name} ({error})")
            return None
        return None if found is None else str(found)

    def _svc(self, h: int) -> dict[str, str] | str | None:
        """The bracket, or UNKNOWN where the fit did not come close enough; null where it was not asked for."""
        if not (self.question.svc and self.has_law):
            return None
        found = svc(self.model.heads[h], law_named("d-train"), self.law)
        if found.low is None or found.high is None:
            return "UNKNOWN"
        return {"low": str(found.low), "high": str(found.high), "trained_on": "d-train"}

    def _all(self) -> SubsetsAnswer | None:
        a = len(self.model.heads)
        if a > MOST_HEADS or not self.has_law:
            raise BadInput(f"--all-subsets: needs a law of finitely many triples and at most {MOST_HEADS} heads")
        try:
            table = all_subsets(
                self.model, self.law, self.question.labels, lambda share: self.progress("subsets", share)
            )
        except Undecided as error:
            self.open.append(f"subsets: {error}")
            return None
        separating, asked = separating_subsets(a, self.joint.decide)
        if None in separating:
            self.open.append(f"subsets: separability of {separating.count(None)}")
        return subsets_report(table, separating, asked)


def subsets_report(table: SubsetTable, separating: Sequence[int | None], asked: int) -> SubsetsAnswer:
    """Accuracies of all subsets, Shapley values, and halving by each criterion."""
    a = table.a
    values = shapley(table.right, table.total)
    is_known = None not in separating
    game = [x or 0 for x in separating]
    separation = shapley(game) if is_known else None
    hurt, pairs = table.harmful_additions
    smallest = min((S for S, x in enumerate(separating) if x == 1), key=lambda S: (S.bit_count(), S), default=None)
    return {
        "count": str(1 << a),
        "accuracy_of_none": str(table.accuracy(0)),
        "accuracy_of_all": str(table.accuracy((1 << a) - 1)),
        "by_size": table.by_size(),
        "smallest_perfect": None if table.smallest_perfect is None else list(table.smallest_perfect),
        "additions_that_hurt": f"{hurt}/{pairs}",
        "separating": str(sum(game)) if is_known else None,
        "separability_decided_one_by_one": asked,
        "smallest_separating": None if smallest is None else [i for i in range(a) if smallest >> i & 1],
        "shapley": {
            "learned_accuracy": [str(x) for x in values],
            "separability": None if separation is None else [str(x) for x in separation],
        },
        "halving": halving(table, game if is_known else None),
    }


def halving(table: SubsetTable, game: Sequence[int] | None) -> dict[str, list[KeptHeads]]:
    """Returns the heads that E's halving keeps by each criterion, and the best subsets of the same sizes."""

    def of_game(values: Sequence[int], scale: int) -> Callable[[tuple[int, ...]], list[Fraction]]:
        return lambda heads: shapley(restricted(values, heads), scale)

    def alone(values: Sequence[int]) -> Callable[[tuple[int, ...]], list[Fraction]]:
        return lambda heads: [Fraction(values[1 << h]) for h in heads]

    criteria = {
        "learned accuracy": alone(table.right),
        "shapley of learned accuracy": of_game(table.right, table.total),
    }
    if game is not None:
        criteria |= {"separability": alone(game), "shapley of separability": of_game(game, 1)}
    routes = {name: halved(table.a, worth) for name, worth in criteria.items()}
    sizes = sorted({len(heads) for route in routes.values() for heads in route}, reverse=True)
    best = {k: table.best_of_size(k) for k in sizes}

    def described(heads: tuple[int, ...]) -> KeptHeads:
        found: KeptHeads = {"heads": list(heads), "learned_accuracy": str(table.accuracy(mask(heads)))}
        return found if game is None else found | {"separable": bool(game[mask(heads)])}

    return {
        **{name: [described(heads) for heads in route] for name, route in routes.items()},
        "best of each size": [described(best[k]) for k in sizes],
    }


def _number(x: arb) -> float | None:
    """The nearest float; null beyond the largest one."""
    with ctx.workprec(64):
        value = float(x.mid())
    return value if abs(value) < float("inf") else None
