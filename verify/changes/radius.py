"""How far the stored numbers of a model may move: a radius within which every model is right, and one that is wrong."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor, nn

from verify.arithmetic.outward import float_at_least
from verify.arithmetic.readings import Real
from verify.changes.boxes import ModelBox, RivalQuestions
from verify.changes.changeable import Changeable, Questions, one_decision
from verify.changes.hurting import AT_ONCE, WIDEST, hurt, slopes
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import Deadline, TimeIsUp
from verify.frame.decide import Effort

CLOSEST = 2048  # questions of the least margin, of which the pairs that a small change turns are looked for
HARD = 64  # pairs that are tried before all others
HURT = 24  # pairs whose gap is turned, for the upper bound
HALVINGS = 14
CLOSE = 1.02  # times the lower bound: an upper one that is no larger is close
FINEST = 2.0**-40  # of the first guess, below which nothing is shown
A_LITTLE = (0.0, 1e-12, 1e-9, 1e-6, 1e-4)  # by which a radius grows until rounding does not hide what is wrong


@dataclass(frozen=True)
class Radius:
    """What is known of the largest radius: every model within `at_least` is right, and `wrong`, at `at_most`, is not.

    Both are None where nothing is shown. `certificate` is the verifier's word on the wrong model, or on the model
    itself where there is none.
    """

    is_relative: bool
    tensors: tuple[str, ...]
    at_least: float | None
    at_most: float | None
    certificate: Certificate
    wrong: nn.Module | None = None
    reason: str | None = None

    def __bool__(self) -> bool:
        """True where a positive radius is proved."""
        return bool(self.at_least)

    @property
    def gap(self) -> float | None:
        """The upper bound over the lower one, rounded up."""
        if not self.at_least or self.at_most is None:
            return None
        return float_at_least(Fraction(self.at_most) / Fraction(self.at_least))

    @property
    def verdict(self) -> Verdict:
        """PROVED where both bounds are shown; REFUTED where the model itself is wrong."""
        if self.at_least and self.at_most is not None:
            return Verdict.PROVED
        is_wrong = self.wrong is None and self.certificate.verdict is Verdict.REFUTED
        return Verdict.REFUTED if is_wrong else Verdict.UNKNOWN

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values; both bounds are rounded outwards."""
        return {
            "verdict": self.verdict.value,
            "distance": "relative" if self.is_relative else "absolute",
            "tensors": list(self.tensors),
            "at_least": self.at_least,
            "at_most": self.at_most,
            "gap": self.gap,
            "reason": self.reason,
            "certificate": self.certificate.to_dict(),
        }


def radius(
    changeable: Changeable,
    effort: Effort | None = None,
    *,
    tensors: Collection[str] | None = None,
    is_relative: bool = True,
) -> Radius:
    """The largest r such that every model is right whose stored numbers w' have |w' - w| <= r |w|, or r if absolute.

    In real arithmetic; w' are any real numbers. By relative distance a number that is 0 stays 0. `tensors` names those
    that move, all by default.
    Raises: BadInput for a name that is no tensor of the model, or a domain of too many questions to be listed.
    """
    effort = effort or Effort()
    chosen, deadline = changeable.chosen(tensors), effort.deadline()
    return ModelWithVerdict.of(changeable, effort).radius(chosen, is_relative, effort, deadline)


@dataclass(frozen=True)
class ModelWithVerdict:
    """A model and the verifier's word on it, which serve the radius of all its tensors together and of each."""

    changeable: Changeable
    certificate: Certificate

    @classmethod
    def of(cls, changeable: Changeable, effort: Effort) -> ModelWithVerdict:
        """The model, decided."""
        return cls(changeable, changeable.decide(changeable.module, Real(), effort))

    @cached_property
    def questions(self) -> Questions:
        """Those of the model, listed."""
        return self.changeable.questions()

    def radius(self, tensors: tuple[str, ...], is_relative: bool, effort: Effort, deadline: Deadline) -> Radius:
        """What is found of the largest radius of these tensors until the deadline of the effort.

        Raises: BadInput for a proved model of too many questions to be listed.
        """

        def nothing(reason: str) -> Radius:
            return Radius(is_relative, tensors, None, None, self.certificate, reason=reason)

        if self.certificate.verdict is not Verdict.PROVED:
            return nothing("the model itself is not proved right, so that it has no radius")
        try:
            deadline.check()
            questions = self.questions  # before a box is made of a model that has too many
            box = ModelBox.of(self.changeable, tensors, is_relative, deadline)
            if box.is_empty:
                return nothing(f"all numbers of {', '.join(tensors)} are 0, and stay so by relative distance")
            search = RadiusSearch.of(self.changeable, questions, box, effort, deadline)
        except TimeIsUp:
            return nothing(ended(effort))
        at_most, wrong, refuted = search.wrong_model()
        at_least, why = search.right_within(at_most)
        if wrong is None:
            why = why or f"no wrong model was found up to the radius {WIDEST:g}"
        word = self.certificate if refuted is None else refuted
        return Radius(is_relative, tensors, at_least, at_most, word, wrong, why)


@dataclass(frozen=True)
class RadiusSearch:
    """The questions of a model, the box around it, and the pairs of a question and a rival that look closest.

    `first` (HARD,) is the radius at which each of these pairs ties, to the first order.
    """

    changeable: Changeable
    box: ModelBox
    questions: Questions
    hard: RivalQuestions
    first: Tensor
    effort: Effort
    deadline: Deadline

    @classmethod
    def of(
        cls, changeable: Changeable, questions: Questions, box: ModelBox, effort: Effort, deadline: Deadline
    ) -> RadiusSearch:
        """Raises: TimeIsUp."""
        logits = torch.from_numpy(changeable.hidden(questions, deadline)) @ box.X
        gap = logits.gather(1, questions.right[:, None]) - logits
        closest = gap.scatter(1, questions.right[:, None], torch.inf).amin(1).argsort()[:CLOSEST]
        every = with_every_rival(questions[closest], box.classes)
        gap, slope = slopes(box, every, deadline)
        ratio = torch.where(slope > 0, gap / slope, torch.inf)
        order = ratio.argsort()[:HARD]
        return cls(changeable, box, questions, every[order], ratio[order], effort, deadline)

    def right_within(self, at_most: float | None) -> tuple[float | None, str | None]:
        """A radius within which every model is right on every question, or why none is shown."""
        found, why = self._right_within(at_most, None)
        if found is None or at_most is None or at_most <= CLOSE * found:
            return found, why
        return self._right_within(at_most, found)[0] or found, why

    def _right_within(self, at_most: float | None, known: float | None) -> tuple[float | None, str | None]:
        """The same by bounds over whole boxes; or by halves of boxes, above a radius that is known to be one."""
        pairs, r = self.hard, min(WIDEST, at_most or WIDEST)
        while not self.deadline.is_up():
            found = self._largest(pairs, r) if known is None else self._between(pairs, known, r)
            if found is None:
                return None, "bounds over boxes as small as float64 allows do not show that all models in one are right"
            if found == known:
                return found, None
            left = self._left(found, known is not None)
            if left is None:
                break
            if not len(left):
                return found, None
            pairs, r = left[slice(0, HARD)], found
        return None, ended(self.effort)

    def _largest(self, pairs: RivalQuestions, top: float) -> float | None:
        """The largest radius up to `top`, by halving it, at which all these pairs are right in the whole box."""

        def are_right(r: float) -> bool:
            return bool((self.box.within(r).low(pairs) > 0).all())

        if are_right(top):
            return top
        low = top / 4
        while not are_right(low):
            low /= 4
            if low < top * FINEST or self.deadline.is_up():
                return None
        high = min(top, 4 * low)
        for _ in range(HALVINGS):
            if self.deadline.is_up():
                break
            middle = math.sqrt(low * high)
            low, high = (middle, high) if are_right(middle) else (low, middle)
        return low

    def _between(self, pairs: RivalQuestions, low: float, high: float) -> float:
        """A radius at which all these pairs are right, where that is known of the lower one, by halves of boxes."""
        while high > CLOSE * low and not self.deadline.is_up():
            middle = math.sqrt(low * high)
            is_right = self.box.within(middle).are_right(pairs, self.deadline.is_up)
            low, high = (middle, high) if is_right else (low, middle)
        return low

    def _left(self, r: float, in_halves: bool) -> RivalQuestions | None:
        """Questions that are not shown to be right at a radius, the first that are met; None where the time is up."""
        within, found, step = self.box.within(r), [], self.changeable.at_once
        for start in range(0, len(self.questions), step):
            row, rival, low = within.left_by_running(self.questions[slice(start, start + step)])
            found.append((start + row, rival, low))
            if self.deadline.is_up():
                return None
            self.effort.progress(start / len(self.questions))
        row, rival, low = (torch.cat(column) for column in zip(*found, strict=True))
        order = low.nan_to_num(-torch.inf).argsort()
        for start in range(0, len(order), step := min(step, AT_ONCE)):
            if self.deadline.is_up():
                return None
            left = order[start : start + step]
            some = RivalQuestions(self.questions[row[left]], rival[left])
            some = some[~(within.low(some) > 0)]
            if len(some) and not (in_halves and within.are_right(some, self.deadline.is_up)):
                return some
            self.effort.progress(start / len(order))
        return self.hard[slice(0, 0)]

    def wrong_model(self) -> tuple[float | None, nn.Module | None, Certificate | None]:
        """The smallest radius at which a wrong model is found, that model, and the verifier's word on it."""
        if self.deadline.is_up():
            return None, None, None
        r, directions = hurt(self.box, self.hard[slice(0, HURT)], self.first[:HURT], self.deadline)
        best = int(r.argmin())
        if not float(r[best]) <= WIDEST:
            return None, None, None
        direction = {name: d[best] for name, d in directions.items()}
        for more in A_LITTLE:
            if self.deadline.is_up():
                break
            module, distance = moved(self.box, direction, float(r[best]) * (1 + more))
            certificate = self.changeable.decide(module, Real(), one_decision(self.effort, self.deadline))
            if certificate.verdict is Verdict.REFUTED:
                return distance, module, certificate
        return None, None, None


def ended(effort: Effort) -> str:
    """What is said where the clock ends a search."""
    return f"the {effort.limit} ended before all questions were looked at"


def moved(box: ModelBox, direction: Mapping[str, Tensor], r: float) -> tuple[nn.Module, float]:
    """The model at a radius in a direction (-1, 0 or 1 for each number), and its distance, rounded up."""
    module, distance = deepcopy(box.module), Fraction(0)
    with torch.no_grad():
        for name, w in module.named_parameters():
            reach = box.reach[name]
            new = w + r * reach * direction[name]
            is_moved = new != w
            for a, b, far in zip(*(x[is_moved].tolist() for x in (new, w, reach)), strict=True):
                distance = max(distance, abs(Fraction(a) - Fraction(b)) / Fraction(far))
            w.copy_(new)
    return module, float_at_least(distance)


def with_every_rival(questions: Questions, classes: int) -> RivalQuestions:
    """Every question with every class but its own."""
    row = torch.arange(len(questions)).repeat_interleave(classes)
    rival = torch.arange(classes).repeat(len(questions))
    kept = rival != questions.right[row]
    return RivalQuestions(questions[row[kept]], rival[kept])
