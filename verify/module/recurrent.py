"""A recurrent cell and its task as a problem that the house decides: all strings up to a length, or of every length."""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from constructions.errors import BadInput
from verify.arithmetic import torch_settings
from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.contract import TRACED, rounding
from verify.arithmetic.formats import format_of
from verify.arithmetic.margins import OneRun, margins_between, margins_of
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.engine.balls import Arithmetic
from verify.frame.arguments import check_whole_number
from verify.frame.certificate import Certificate
from verify.frame.clock import Budget, Deadline
from verify.frame.decide import BUG, Batch, Effort, Failure, Finding, Ran, Run, first_in_order, no_reading
from verify.frame.over_time import OverTime
from verify.module import followed
from verify.module.closed import Closed, closed
from verify.module.followed import Known, Tokens
from verify.module.problem import CONTRACT
from verify.module.recurrence import Recurrence, State, StepGraph, flat

FEW, SHORT = 1 << 12, 200  # strings of one length, and tokens of a line, that are followed before anything else
LONGEST_SHOWN = 10_000  # tokens that a counterexample spells out
LONGEST_DRAWN, LOOKED_AT, MOST_KEPT, AT_ONCE = 64, 8, 1 << 16, 256
ARGUMENT_ORBIT = "balls of {} bits round the state after every token"
ARGUMENT_STRINGS = "boxes round the states of all strings, length by length"
ARGUMENT_CLOSED = "sets of states that every token maps into each other"
ARGUMENT_REPEATED = "the run until no new state comes"
RIGHT = "right means: after every token that is judged, the right class has strictly the largest logit"

Besides = Callable[[StepGraph, Finding, Deadline], dict[str, object]]


class RecurrentProblem:
    """One cell on all strings of up to `length` tokens, or of every length (None): a `Decidable`.

    An input is a string of one token or more, and the answer is that after its last token. Where another task poses the
    cell, it names itself, and says what the certificate's parameters are, what is assumed besides, and what is found
    `besides` a verdict in real arithmetic, in half of the time. A step that is `captured` is not captured again.
    """

    claim: str | None = None
    counts_answers = False
    runs_for_ever = True

    def __init__(
        self,
        module: nn.Module,
        given: Recurrence,
        length: int | None = None,
        *,
        task: str = "module",
        said: Mapping[str, object] | None = None,
        assumed: tuple[str, ...] = (),
        besides: Besides | None = None,
        captured: StepGraph | None = None,
    ) -> None:
        if length is not None:
            check_whole_number("length", length)
            if length < 1:
                raise BadInput(f"length={length}: must be 1 or more tokens, or all")
        self.module, self.given, self.length = module, given, length
        self.task, self.said, self.assumed, self.besides, self.captured = task, said, assumed, besides, captured
        self.name, self.so_far = type(module).__name__, "deciding"
        self.over_time = OverTime()
        self._kept: dict[Tokens, State] = {}

    @cached_property
    def graph(self) -> StepGraph:
        """One step of the cell, captured."""
        if self.captured is not None:
            return self.captured.read_in(Real(), self.given)
        return StepGraph(self.module, self.given)

    def capture(self) -> None:
        """Traces the cell now, and not when it is first asked for."""
        assert self.graph

    @property
    def alphabet(self) -> tuple[int, ...]:
        """The tokens."""
        return self.given.vocabulary

    def parameters(self, reading: Reading) -> dict[str, object]:
        if self.said is not None:
            return {**self.said, "length": self._said_length}
        stored = self.graph.graph.stored
        return {
            "module": self.name,
            "length": self._said_length,
            "tokens": len(self.alphabet),
            "state": self.graph.size,
            "classes": self.graph.classes,
            "stored_numbers": sum(x.numel() for name, x in stored.items() if name not in self.graph.parts),
        }

    @property
    def _said_length(self) -> int | str:
        return "all" if self.length is None else self.length

    def size(self) -> int | None:
        if self.length is None:
            return None
        K = len(self.alphabet)
        return self.length if K == 1 else (K ** (self.length + 1) - K) // (K - 1)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, Kernel):
            return ("the cell runs as torch runs it here, one token at a time", *self.assumed, RIGHT)
        if isinstance(reading, ConstantBits) or (isinstance(reading, Rounded) and reading.once):
            raise no_reading(reading, "a recurrent cell", "real, a format, or --method exhaustive")
        assert self.graph  # a cell that cannot be judged is refused before the clock starts
        if isinstance(reading, Real):
            return (*TRACED, *self.assumed, RIGHT)
        assert self.graph.read_in(reading)  # a first state that is not of the format is refused
        settings = torch_settings.assumed(reading.format)
        return (
            TRACED[0], rounding(reading.format, reading.accumulate), *settings, *CONTRACT, *self.assumed, RIGHT,
        )  # fmt: skip

    def facts(self) -> dict[str, object]:
        graph = self.graph.graph
        said = {"sha256": [graph.digest], "operations": graph.operations, "torch": torch.__version__}
        return {"length": self._said_length, "graph": said}

    def report(self, certificate: Certificate) -> Iterator[tuple[str, str]]:
        """What a report says besides."""
        operations = self.graph.graph.operations
        yield "graph", f"{sum(operations.values())} operations of {len(operations)} kinds, torch {torch.__version__}"

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Kernel):
            return self._run_for_ever(effort)
        found = self._in_format(reading, effort) if isinstance(reading, Rounded) else self._with_more(effort)
        disagrees = self._disagrees()
        return found if disagrees is None else Finding.open(found.argument, f"{disagrees}: {BUG}")

    def _in_format(self, reading: Rounded, effort: Effort) -> Finding:
        """Every order of evaluation in boxes, and one evaluation as a point."""
        known = followed.in_format(self.graph.read_in(reading), self.length, effort.deadline())
        found = self._finding(known)
        if found.failure is not None:
            found.failure.counterexample["evaluation"] = known.evaluation
        return replace(found, argument=known.argument(found.argument))

    def _with_more(self, effort: Effort) -> Finding:
        if self.besides is None:
            return self._real(effort)
        until = effort.deadline()
        found = self._real(effort.share(1 / 2))
        left = Budget.of(effort.left(until).budget).deadline()
        return replace(found, extra=found.extra | self.besides(self.graph, found, left))

    def _real(self, effort: Effort) -> Finding:
        """Short strings first, then sets for all lengths, and longer strings while there is time."""
        is_line, whole = len(self.alphabet) == 1, effort.deadline()
        least = SHORT if is_line else FEW
        first = self._followed(least, effort.deadline(0.3))
        if first.wrong is not None or first.right_to == self.length:
            return self._finding(first)
        effort.progress(0.5)
        proof = closed(self.graph, effort.deadline(0.4))
        if isinstance(proof, Closed):
            return self._closed(proof)
        if not is_line:
            wrong = followed.wrong_string(self.graph, self.length, effort.deadline(0.2))
            if wrong is not None:
                return self._finding(wrong)
        further = self._followed(followed.LONGEST if is_line else followed.MOST_STRINGS, whole)
        best = further if further.wrong is not None or further.right_to >= first.right_to else first
        return self._finding(best, proof)

    def _followed(self, most: int, until: Deadline) -> Known:
        if len(self.alphabet) > 1:
            return followed.all_strings(self.graph, self.length, most, until)
        return followed.one_token(self.graph, min(most, self.length or most), until)

    def _closed(self, proof: Closed) -> Finding:
        return _proved(ARGUMENT_CLOSED, proof, {"sets": proof.sets, "steps": proof.steps})

    def _finding(self, found: Known, why_open: str | None = None) -> Finding:
        argument = ARGUMENT_STRINGS if found.bits is None else ARGUMENT_ORBIT.format(found.bits)
        if found.wrong is not None:
            right_to = len(found.wrong) - 1 if found.is_first else found.right_to if found.is_one_run else None
            extra = {} if right_to is None else {"right_to": right_to}
            return Finding.refuted(argument, self._failure(found), extra=extra)
        if found.right_to == self.length:
            return _proved(argument, found, {})
        reason = "; ".join(part for part in (found.stuck, why_open) if part) or "it is right as far as it was followed"
        said = f"right up to length {found.right_to}; {reason}"
        return Finding.open(argument, said, extra={"right_to": found.right_to})

    def _run_for_ever(self, effort: Effort) -> Finding:
        """Runs every string until no state, bit by bit, comes that was not there before with what is due the same."""
        until, start = effort.deadline(), (self.given.start, self.given.expected.start)
        seen, least = {self._key(*start)}, float("inf")
        queue: deque[tuple[Tokens, State, Hashable]] = deque([((), *start)])
        tightest: Tokens = ()
        while queue:
            string, state, place = queue.popleft()
            if until.is_up():
                return Finding.open(
                    ARGUMENT_REPEATED,
                    f"right up to length {len(string)}; time is up with {len(seen)} states",
                    extra={"right_to": len(string)},
                )
            for token in self.alphabet:
                after, logits = self.graph.run(state, token)
                now, longer = self.given.expected.after(place, token), (*string, token)
                margin = self._margin(logits, now)
                if not margin > 0:
                    failure = self.replay(longer, 0, Kernel())
                    failure.counterexample["is_first"] = True
                    return Finding.refuted(ARGUMENT_REPEATED, failure, extra={"right_to": len(string)})
                least, tightest = min((least, tightest), (margin, longer), key=lambda pair: pair[0])
                key = self._key(after, now)
                if key not in seen:
                    seen.add(key)
                    queue.append((longer, after, now))
        shown = {"length": len(tightest), "margin": least}
        finite = least if math.isfinite(least) else None
        return Finding.proved(ARGUMENT_REPEATED, finite, tightest=shown, extra={"reached": len(seen)})

    def _key(self, state: State, place: object) -> tuple[bytes, object]:
        """A state's bits: two zeros of different sign are two states, and so are two NaN of different bits."""
        return b"".join(part.contiguous().view(torch.uint8).numpy().tobytes() for part in state), place

    def _margin(self, logits: torch.Tensor, place: object) -> float:
        """The margin of a run, infinite where nothing is judged, NaN where a logit is."""
        due = self.given.due(place, self.graph.classes)
        if due is None:
            return float("inf")
        return float(margins_of(logits.double(), torch.tensor(due)))

    def _place(self, item: Tokens) -> object:
        place = self.given.expected.start
        for token in item:
            place = self.given.expected.after(place, token)
        return place

    def _state(self, item: Tokens) -> State:
        """The state of a run before the last token of an item; those of recent items are kept."""
        begun = len(item) - 1 if item[:-1] in self._kept else 0
        state = self._kept[item[:-1]] if begun else self.given.start
        for token in item[begun:-1]:
            state, _ = self.graph.run(state, token)
        return state

    def _run(self, item: Tokens) -> tuple[float, torch.Tensor]:
        before = self._state(item)
        after, logits = self.graph.run(before, item[-1])
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[item] = after
        return self._margin(logits, self._place(item)), logits

    def _disagrees(self) -> str | None:
        """Steps of the cell's own run that lie outside what the graph allows in its dtype, if any."""
        rng, at = random.Random(0), Arithmetic(format_of(self.dtype), has_norms=True)
        state = self.given.start
        for _ in range(LOOKED_AT):
            token = rng.choice(self.alphabet)
            now = flat(state)
            if not np.isfinite(now).all():  # its dtype overflowed: no number to step from
                return None
            after, logits = self.graph.run(state, token)
            mid, rad = self.graph.enclosed(now[None], np.zeros((1, len(now))), [token], at)
            ran = flat((*after, logits))
            with np.errstate(invalid="ignore"):
                is_out = ~(np.abs(ran - mid[0]) <= rad[0] * (1 + 2.0**-40)) & np.isfinite(rad[0])
            if is_out.any():
                return f"a step from {now.tolist()} under the token {token} gives other numbers than its graph"
            state = after
        return None

    def look(self, item: Tokens, answer: int, reading: Reading) -> OneRun:
        """The last step of a run must lie where the cell's own dtype can bring it from the state before."""
        state, due = flat(self._state(item)), self.given.due(self._place(item), self.graph.classes)
        margin = self._run(item)[0]
        if due is None:
            return OneRun(margin)
        at = Arithmetic(format_of(self.dtype), has_norms=True)
        mid, rad = self.graph.enclosed(state[None], np.zeros((1, len(state))), [item[-1]], at)
        low, high = margins_between(*ends(Ball(mid, rad)[0, self.graph.size :]), due)
        return OneRun(margin, float(low), float(high))

    def _failure(self, found: Known) -> Failure:
        """A string that is wrong in real arithmetic, run beside it."""
        assert found.wrong is not None
        due = self.given.due(self._place(found.wrong), self.graph.classes)
        assert due is not None, "what is not judged is not wrong"
        case, said = self._case(found.wrong, due, found.rival), self._said(found.wrong)
        if found.rival != said:
            case["module_answers"] = said
        if found.is_first:
            case["is_first"] = True
        return Failure(case, found.wrong_by)

    def _said(self, item: Tokens) -> int | None:
        """What a run of the cell answers; None where a logit is no number."""
        logits = self._run(item)[1]
        return None if bool(logits.isnan().any()) else int(logits.argmax())

    def _case(self, item: Tokens, due: int, predicted: int | None) -> dict[str, object]:
        shown: object = list(item) if len(item) <= LONGEST_SHOWN else f"token {item[-1]}, {len(item)} times"
        return {"input": shown, "length": len(item), "expected": due, "predicted": predicted}

    def replay(self, item: Tokens, answer: int, reading: Reading) -> Failure:
        """Runs one wrong string."""
        due = self.given.due(self._place(item), self.graph.classes)
        assert due is not None, "what is not judged is not wrong"
        margin = self._run(item)[0]
        return Failure(self._case(item, due, self._said(item)), margin if margin == margin else None)

    @property
    def dtype(self) -> torch.dtype:
        """The coarsest that a number of the cell is stored or computed in."""
        return self.graph.graph.coarsest

    def length_of(self, item: Tokens) -> int:
        return 1

    def is_surely_wrong(self, item: Tokens, answer: int) -> bool:
        due = self.given.due(self._place(item), self.graph.classes)
        if due is None:
            return True
        if not self.graph.has_digits:
            raise BadInput("module: no digits beyond float64 are known of one of its operations")
        return followed.precisely(self.graph, item, due).high <= 0

    def batches(self) -> Iterator[list[Tokens]]:
        if self.length is None:
            raise BadInput("length=all: infinitely many strings cannot all be run")
        for n in range(1, self.length + 1):
            items = itertools.product(self.alphabet, repeat=n)
            while batch := list(itertools.islice(items, AT_ONCE)):
                yield batch

    def draw(self, rng: random.Random) -> Tokens:
        n = rng.randint(1, min(self.length or LONGEST_DRAWN, LONGEST_DRAWN))
        return tuple(rng.choices(self.alphabet, k=n))

    def smaller(self, item: Tokens) -> Iterator[Tokens]:
        """One token left out."""
        yield from dict.fromkeys(item[:i] + item[i + 1 :] for i in range(len(item)) if len(item) > 1)

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(np.array([[self._run(tuple(item))[0]] for item in batch]))

    def first(self, batch: Batch, is_wrong: NDArray[np.bool_]) -> tuple[int, Tokens, int]:
        return first_in_order(batch, is_wrong)


def _proved(argument: str, by: Closed | Known, extra: dict[str, object]) -> Finding:
    """Right, with the string of the least margin, which is run where it is short enough to be spelled out."""
    tightest = {"length": len(by.tightest), "margin": by.margin}
    telling = ((by.tightest, 0),) if 0 < len(by.tightest) <= LONGEST_SHOWN else ()
    least = by.margin if math.isfinite(by.margin) else None
    return Finding.proved(argument, least, tightest=tightest, telling=telling, extra=extra)
