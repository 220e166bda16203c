"""Repairs that change more than the readout: hidden numbers are looked for by descent, and the readout by programmes.

With other tensors free, right is no longer linear, and no least change is known. Descent on how far the closest inputs
are from right proposes numbers within a box around the stored ones; they are rounded, and the readout is then repaired
for them as in `verify.changes.repair`, by the least change from the stored readout. The box is made smaller as long as
that ends PROVED. Only the verifier's word on the numbers as they are stored counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from verify.arithmetic.margins import margins_of
from verify.arithmetic.readings import Reading, Real
from verify.changes.changeable import Changeable, Questions, with_numbers
from verify.changes.repair import Repair, RepairOutcome, RepairSearch, begun
from verify.frame.clock import Budget, Deadline, TimeIsUp
from verify.frame.decide import Effort

ROUNDS, STEPS, BATCH = 90, 20, 1024  # of a descent
CLOSEST, KEPT = 1024, 2048  # questions that a round practises: the closest ones, and some of the rounds before
RATE = 1e-3  # of the largest number that moves, for each step
AHEAD = 0.05  # of the median gap: how far ahead a right answer is to be
SOFT = (0.0, 0.05, 0.1)  # of a typical hidden number: how far a ReLU is bent at first; neurons that are off learn
HARD_AFTER = 0.6  # of the rounds
PATIENCE = 15  # rounds without fewer wrong questions, once ReLUs are what they are
ATTEMPTS = 4  # of each way; all but the first start elsewhere
NUDGED = 0.01  # of the largest number that moves: how far from the stored numbers these start
SMALLER, FINEST = 0.5, 0.9  # of the last change: the next box, and one that is not tried
ONE_READOUT = 0.3  # of the time that is left, for the readout of some hidden numbers

Numbers = dict[str, Tensor]


def repair_layers(
    changeable: Changeable, layers: Collection[str] | None, reading: Reading | None = None, effort: Effort | None = None
) -> Repair:
    """Changes these tensors (None: all) and the readout so that the model is proved, by as little as is found.

    No lower bound on the change is known. Where the readout alone can be repaired, nothing larger is returned.
    Raises: BadInput for a name that is no tensor of the model, or as `repair`.
    """
    reading, effort = reading or Real(), effort or Effort()
    readout = changeable.readout.names
    names = (*(name for name in changeable.chosen(layers) if name not in readout), *readout)
    base = begun(changeable, reading, effort)
    if isinstance(base, Repair):
        return replace(base, tensors=names)
    alone = base.repaired()
    if len(names) == len(readout) or alone.change == 0:
        return alone
    search = LayersSearch.of(base, names)
    best = search.smallest(alone if alone else None)
    norm = f"largest change of a number of {', '.join(names)}"
    about: dict[str, Any] = {"at_least": None, "tensors": names, "norm": norm, "wrong": alone.wrong}
    about |= {"questions": alone.questions, "is_listed": alone.is_listed, "largest_number": search.largest_number}
    if best is not None:
        return replace(best, **about)
    reason = f"{search.reason}; the readout alone: {alone.reason}"
    return replace(alone, outcome=RepairOutcome.UNKNOWN, combination=None, reason=reason, **about)


@dataclass
class LayersSearch:
    """The questions of a model, the tensors that move, and the numbers that are stored in them."""

    changeable: Changeable
    names: tuple[str, ...]
    reading: Reading
    effort: Effort
    deadline: Deadline
    base: RepairSearch
    practice: Practice
    stored: Numbers
    reason: str = "no numbers were found with which the model is right"

    @classmethod
    def of(cls, base: RepairSearch, names: tuple[str, ...]) -> LayersSearch:
        """The search that goes on where the readout alone did not do, with its questions and its clock."""
        stored = {name: base.changeable.module.get_parameter(name).detach().double().clone() for name in names}
        hidden = torch.from_numpy(base.H)
        typical = float(hidden[hidden > 0].median()) if bool((hidden > 0).any()) else 1.0
        practice = Practice.of(base.questions, typical)
        return cls(base.changeable, names, base.reading, base.effort, base.deadline, base, practice, stored)

    @property
    def largest_number(self) -> float:
        return max(float(w.abs().max()) for w in self.stored.values())

    def smallest(self, best: Repair | None) -> Repair | None:
        """The proved model of the smallest change that is found, None where there is none."""
        best, part = best or self._first(), SMALLER
        while best is not None and part < FINEST and not self.deadline.is_up():
            assert best.change is not None and best.module is not None
            found = self._nearer(float(best.change) * part, best.module)
            if found is not None and found.change is not None and found.change < best.change:
                best = found
            else:
                part = part**0.5
            self.effort.progress(part)
        return best

    def _first(self) -> Repair | None:
        """A proved model at any distance, by one way after the other."""
        for seed in range(ATTEMPTS):
            for soft in SOFT:
                found = self._proved(self._descent(inf, soft, seed).followed(self._nudged(seed)))
                if found is not None:
                    return found
                if self.deadline.is_up():
                    self.reason = f"the {self.effort.limit} ended before numbers were found that are right"
                    return None
        return None

    def _nudged(self, seed: int) -> nn.Module:
        """The module as it is, or with these tensors a little elsewhere, so that equals part."""
        if not seed:
            return self.changeable.module
        generator, size = torch.Generator().manual_seed(self.effort.seed + seed), NUDGED * self.largest_number
        noise = {n: torch.randn(w.shape, generator=generator, dtype=w.dtype) for n, w in self.stored.items()}
        return with_numbers(self.changeable.module, {n: w + size * noise[n] for n, w in self.stored.items()})

    def _nearer(self, box: float, start: nn.Module) -> Repair | None:
        """A proved model whose hidden numbers come from tensors that moved by no more than the box."""
        for soft in SOFT:
            if self.deadline.is_up():
                return None
            found = self._proved(self._descent(box, soft, 0).followed(start))
            if found is not None:
                return found
        return None

    def _descent(self, box: float, soft: float, seed: int) -> Descent:
        return Descent(self.practice, self.stored, box, soft, self.effort.seed + seed, self.deadline)

    def _proved(self, numbers: Numbers | None) -> Repair | None:
        """The model with these numbers but for the readout, which is repaired for them; None where that fails."""
        if numbers is None or self.deadline.is_up():
            return None
        readout = (self.changeable.readout.weight, self.changeable.readout.bias)
        moved = with_numbers(self.changeable.module, {n: w for n, w in numbers.items() if n not in readout})
        effort = replace(self.effort, budget=Budget(max(0.0, self.deadline.left() * ONE_READOUT), self.effort.clock))
        try:
            found = RepairSearch.of(self.changeable.posed(moved), self.reading, effort, self.base).mended()
        except TimeIsUp:
            return None
        if not found or found.module is None:
            self.reason = f"of numbers that look right: {found.reason}"
            return None
        return replace(found, change=self._change(found.module))

    def _change(self, module: nn.Module) -> Fraction:
        """The largest difference of a stored number to the old one, exactly."""
        largest = Fraction(0)
        for name, old in self.stored.items():
            new = module.get_parameter(name).detach().double()
            is_moved = new != old
            for a, b in zip(new[is_moved].tolist(), old[is_moved].tolist(), strict=True):
                largest = max(largest, abs(Fraction(a) - Fraction(b)))
        return largest


@dataclass(frozen=True)
class Practice:
    """Questions, with each sequence of tokens once. Shapes: tokens (m, length), row (n,), position (n,), right (n,)."""

    tokens: Tensor
    row: Tensor
    position: Tensor
    right: Tensor
    typical: float

    @classmethod
    def of(cls, questions: Questions, typical: float) -> Practice:
        """`typical` is the size of a hidden number."""
        tokens, row = torch.unique(questions.tokens, dim=0, return_inverse=True)
        return cls(tokens, row, questions.position, questions.right, typical)

    def gaps(self, run: Callable[[Tensor], Tensor], chosen: Tensor | None = None) -> Tensor:
        """The right logit over the largest other one (n,), of these questions, by default of all."""
        if chosen is None:
            found = torch.cat([run(part) for part in torch.split(self.tokens, 1 << 14)])
            place, position, right = self.row, self.position, self.right
        else:
            found = run(self.tokens[self.row[chosen]])
            place, position, right = torch.arange(len(chosen)), self.position[chosen], self.right[chosen]
        logits = found.reshape(len(found), -1, found.shape[-1])[place, position]
        return margins_of(logits, right)


class SoftReLU(TorchFunctionMode):
    """While it is on, ReLU is softplus with a bend of this width, so that neurons that are off have slopes."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.width = width

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: Sequence[Tensor] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if self.width > 0 and function in (torch.relu, torch.Tensor.relu, nn.functional.relu):
            return nn.functional.softplus(args[0], 1 / self.width)
        return function(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Descent:
    """Descent on how far the closest questions are from right, with every number within `box` of the stored one."""

    practice: Practice
    stored: Numbers
    box: float
    soft: float
    seed: int
    deadline: Deadline

    def followed(self, start: nn.Module) -> Numbers | None:
        """Numbers with which every question is right in float64, None where none are found."""
        module = deepcopy(start).double().eval().requires_grad_(False)
        numbers = {name: module.get_parameter(name).detach().clone() for name in self.stored}
        self._kept_in(numbers)
        moving = [w.requires_grad_(True) for w in numbers.values()]
        optimizer = torch.optim.Adam(moving, lr=RATE * max(float(w.detach().abs().max()) for w in moving))
        generator = torch.Generator().manual_seed(self.seed)
        pool = torch.zeros(0, dtype=torch.long)

        def run(tokens: Tensor) -> Tensor:
            logits: Tensor = functional_call(module, numbers, (tokens,))
            return logits

        with torch.no_grad():
            ahead = AHEAD * float(self.practice.gaps(run).abs().median())
        fewest, since = inf, 0
        for done in range(ROUNDS):
            with torch.no_grad():
                gaps = self.practice.gaps(run)
            wrong = int((gaps <= 0).sum())
            if not wrong:
                return {name: w.detach() for name, w in numbers.items()}
            bent = SoftReLU(self.soft * self.practice.typical * max(0.0, 1 - done / (HARD_AFTER * ROUNDS)))
            since = since + 1 if wrong >= fewest and not bent.width else 0
            fewest = min(fewest, wrong) if not bent.width else inf
            if since > PATIENCE or self.deadline.is_up():
                return None
            if bent.width > 0:
                with torch.no_grad(), bent:
                    gaps = self.practice.gaps(run)
            before = pool[torch.randperm(len(pool), generator=generator)[:KEPT]]
            pool = torch.unique(torch.cat([before, gaps.argsort()[:CLOSEST]]))
            with bent:
                for _ in range(STEPS):
                    some = pool
                    if len(pool) > BATCH:
                        some = pool[torch.randint(len(pool), (BATCH,), generator=generator)]
                    loss = torch.relu(ahead - self.practice.gaps(run, some)).mean()
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    self._kept_in(numbers)
        return None

    def _kept_in(self, numbers: Numbers) -> None:
        """Puts what left the box back on its edge."""
        if self.box < inf:
            with torch.no_grad():
                for name, w in numbers.items():
                    w.copy_(w.clamp(self.stored[name] - self.box, self.stored[name] + self.box))
