"""A recurrent network on all strings over K types: what is judged, how it is proved, run and replayed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import Kernel, Reading, Real, Rounded
from verify.counting.lengths import Counts
from verify.frame.clock import Budget, Deadline
from verify.frame.decide import (
    Batch,
    Effort,
    Failure,
    Finding,
    Item,
    check_not_accumulated,
    first_in_order,
    is_wrong_in_its_ball,
)
from verify.tasks.recurrent import gated, held, shares
from verify.tasks.recurrent.assumed import assumptions, blocks
from verify.tasks.recurrent.blocks import BlockProof, Rings
from verify.tasks.recurrent.kinds import has_cells, is_gated, is_residual, module_of
from verify.tasks.recurrent.looked import one_run
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.problem import RecurrentTask

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel
    from verify.tasks.recurrent.sets import Trained

ARGUMENT_HELD = "each unit adds at its type's tokens and holds at others: what it is lies between two known numbers"
ARGUMENT_EXACT = "all states of the units of each type, in exact integers"
ARGUMENT_SEPARATE = "block invariants: sets of states of the units of each type, that each token maps into each other"
ARGUMENT_SETS = "sets of states, one for all counts and the last tokens, that each token maps into each other"
ARGUMENT_MERGED = "ellipsoids round states, one for all that lie close together, that each token maps into each other"
ARGUMENT_LINES = "ellipsoids along lines of one type's tokens, until they are mapped into ellipsoids round a cycle"
ARGUMENT_COUNTED = "each state lies between two numbers, which the count of the last token's type and the length fix"
ARGUMENT_STRINGS = "boxes round the states after each string"
ARGUMENT_STRING = "one string, run in balls"
RIGHT = "right means: after every token that is judged, the class of the right answer has strictly the largest logit"
LONGEST_DRAWN, BATCH, LONGEST_SHOWN = 60, 1024, 10_000


@dataclass
class Selective(RecurrentTask):
    """An RNN with one-hot tokens on `selective` or `selective-modular`, at a length or at every length (None).

    An input is a string of that length; it is right where every judged position is.
    """

    counts_answers = False

    def check_sizes(self) -> None:
        if self.which.has_distinct_start:
            raise BadInput("distinct_start=True: is decided for transformers; leave it out for recurrent networks")
        if self.model.vocabulary != self.which.K or self.model.classes != self.which.classes:
            raise BadInput(
                f"model: has {self.model.vocabulary} tokens and {self.model.classes} classes, and {self.which.name} "
                f"{self.which.K} and {self.which.classes}. Give the sizes of the task."
            )

    @property
    def K(self) -> int:
        """How many types there are."""
        assert self.which.K is not None
        return self.which.K

    def size(self) -> int | None:
        return None if self.length is None else self.K**self.length

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        check_not_accumulated(reading, "selective counting by recurrent networks")
        kind = self.model.kind.upper()
        network = f"torch's {kind} from the state 0, tokens are one-hot; logits = W h + b of the last layer"
        network = gated.formula(self.model) if is_gated(self.model) else network
        network = blocks(self.model) if is_residual(self.model) else network
        if is_residual(self.model):
            assert isinstance(reading, Kernel) or self.step  # captured before the search
        for_ever = ("one token at a time; tanh is at most 1; the readout's sums in any order",)
        more = for_ever if self.length is None else ()
        return assumptions(reading, self.model, network, run="CPU", more=more, right=RIGHT)

    def found(self, reading: Reading, effort: Effort) -> Finding:
        return self._with_counts(reading, effort) if self.by_length else self._decided(reading, effort)

    def due(self, item: Item) -> Sequence[int | None]:
        return self.which.answers(item)

    def _decided(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Kernel):
            return self._bit_by_bit()
        if is_residual(self.model):
            return (
                self._followed_in_format(reading, effort)
                if isinstance(reading, Rounded)
                else self._followed_whole(effort)
            )
        if isinstance(reading, Real) and held.fits(self.model) and self.which.m is None:
            found = self._held()
            return self._trained(reading, effort) if found is None else found
        if is_gated(self.model) and self.length is not None:
            return self._counted(self.model, self.length, reading, effort)
        argument, proof = self._proof(reading, effort)
        if proof.reason is not None:
            return self._trained(reading, effort)
        fact = "sets_found" if argument is ARGUMENT_SEPARATE else "invariant_found"
        return Finding.proved(argument, proof.margin, extra={fact: proof.facts})

    def _with_counts(self, reading: Reading, effort: Effort) -> Finding:
        """What is decided, and how many strings of each length are answered right after their last token.

        All are up to what is proved; longer ones are followed one by one as far as time reaches.
        """
        shares.check(self.length, reading)
        assert self.length is not None
        until = effort.deadline()
        found = self._decided(reading, effort.share(1 / 2))
        known = self._counts(self.length, Budget.of(effort.left(until).budget).deadline())
        return replace(found, extra=found.extra | shares.of_strings(self.which, self.length, found, known))

    def _counts(self, length: int, until: Deadline) -> list[Counts]:
        """How many strings are right, wrong and undecided, of the lengths of which all strings are followed."""
        if is_residual(self.model):
            from verify.tasks.recurrent import residual  # loads torch's tracer

            return residual.counts(self.step, self.which, length, until)
        from verify.tasks.recurrent import sets

        return sets.counts(sets.Trained(self._network(None), self.which, None), length, until)

    def _followed_whole(self, effort: Effort) -> Finding:
        """Whole blocks, by their captured step."""
        from verify.tasks.recurrent import residual  # loads torch's tracer

        found = residual.finding(self.step, self.which, self.length, effort)
        if found.failure is not None:
            return replace(found, argument=ARGUMENT_STRING)
        return found if self.length is None else replace(found, argument=ARGUMENT_STRINGS)

    def _followed_in_format(self, reading: Rounded, effort: Effort) -> Finding:
        """Whole blocks in a format."""
        from verify.tasks.recurrent import residual  # loads torch's tracer

        known = residual.of_strings(self.step, self.which, self.length, reading, effort)
        argument = known.argument(ARGUMENT_STRINGS)
        right_to: dict[str, object] = {"right_to": known.right_to}
        if known.wrong is not None:
            case = self.case(known.wrong, known.rival) | {"evaluation": known.evaluation}
            case |= {"is_first": True} if known.is_first else {}
            return Finding.refuted(argument, Failure(case, known.wrong_by), extra=right_to)
        if known.right_to == self.length:
            return Finding.proved(argument, known.margin if known.tightest else None)
        return Finding.open(argument, f"right up to length {known.right_to}; {known.stuck}", extra=right_to)

    def _counted(self, model: AnyModel, length: int, reading: Reading, effort: Effort) -> Finding:
        """Gated decays up to a length, by counts; where that stays open as any network."""
        from verify.tasks.recurrent.counted import CountedStrings

        counted = CountedStrings.of(model, self.which, self._at(reading))
        proof = counted.prove(length, effort.deadline(1 / 4))
        if proof.reason is None:
            return Finding.proved(ARGUMENT_COUNTED, proof.margin, extra={"sets_found": proof.facts})
        right_to = counted.longest(length, effort.deadline(1 / 4))
        found = self._trained(reading, replace(effort, budget=replace(effort.limit, seconds=effort.seconds / 2)))
        if found.reason is None or right_to <= int(str(found.extra["right_to"])):
            return found
        return Finding.open(
            ARGUMENT_COUNTED, f"right up to length {right_to}; {proof.reason}", extra={"right_to": right_to}
        )

    def _at(self, reading: Reading) -> RoundedArithmetic | None:
        """How numbers are computed; None for real arithmetic."""
        return RoundedArithmetic.of(reading.format) if isinstance(reading, Rounded) else None

    def _network(self, at: RoundedArithmetic | None) -> Network:
        if has_cells(self.model):
            return Network.of(self.model) if at is None else Network.of(self.model).rounded(at.stored)
        return gated.network(self.model, at)

    def _trained(self, reading: Reading, effort: Effort) -> Finding:
        """A network of any shape: a wrong string, sets of states that close, or all strings up to a length."""
        from verify.tasks.recurrent import lines, sets

        at = self._at(reading)
        third, half, most, nearly, all_of_it = (effort.deadline(share) for share in (1 / 3, 1 / 2, 2 / 3, 5 / 6, 1))
        trained = sets.Trained(self._network(at), self.which, at)
        refuted = self._wrong(trained, sets.wrong_string(trained, self.length, third), third) if at is None else None
        if refuted is not None:
            return refuted
        if self.length is not None:
            right_to, margin = sets.up_to(trained, self.length, half)
            if right_to >= self.length:
                return Finding.proved(ARGUMENT_STRINGS, margin)
        is_lines = lines.fits(trained)
        boxes_until = effort.deadline(1 / 10) if is_lines else most
        proof = sets.closed(replace(trained, is_periodic=self.which.m is not None), boxes_until)
        if proof.reason is None:
            return Finding.proved(ARGUMENT_SETS, proof.margin, extra={"sets_found": proof.facts})
        if is_lines:
            proof = lines.closed(trained, most)
            if proof.reason is None:
                return Finding.proved(ARGUMENT_LINES, proof.margin, extra={"sets_found": proof.facts})
        merged_found = self._merged(trained, nearly)
        if isinstance(merged_found, BlockProof):
            proof = merged_found
            if proof.reason is None:
                return Finding.proved(ARGUMENT_MERGED, proof.margin, extra={"sets_found": proof.facts})
        elif at is None and len(merged_found) <= (self.length or len(merged_found)):
            refuted = self._wrong(trained, merged_found, all_of_it)
            if refuted is not None:
                return refuted
        if self.length is None:
            least = effort.limit.of_seconds(effort.seconds / 20).deadline()  # where a search took longer than it may
            right_to, _ = sets.up_to(trained, None, max(all_of_it, least, key=Deadline.left))
        reason = f"right up to length {right_to}; {proof.reason}"
        return Finding.open(ARGUMENT_STRINGS, reason, extra={"right_to": right_to})

    def _merged(self, trained: Trained, until: Deadline) -> BlockProof | tuple[int, ...]:
        """Ellipsoids on a graph of all counts modulo m; of those up to C where a count beyond, not judged, is wrong."""
        from verify.tasks.recurrent import merged

        found = merged.closed(replace(trained, is_periodic=self.which.m is not None), until)
        is_beyond = not isinstance(found, BlockProof) and self.which.answers(found)[-1] is None
        return merged.closed(trained, until) if is_beyond else found

    def _wrong(self, trained: Trained, string: tuple[int, ...] | None, until: Deadline) -> Finding | None:
        """A string that is wrong in floats, if it is in real arithmetic."""
        if string is None:
            return None
        from verify.tasks.recurrent import sets

        right = self.which.answers(string)[-1]
        assert right is not None
        margin, predicted = sets.gap(trained.net, string, right)
        if not margin <= 0:
            return None
        right_to, _ = sets.up_to(trained, len(string) - 1, until)
        case = self.case(string, predicted)
        if right_to >= len(string) - 1:
            case["is_first"] = True
        return Finding.refuted(ARGUMENT_STRING, Failure(case, margin), extra={"right_to": right_to})

    def _bit_by_bit(self) -> Finding:
        """All lengths at once, where what a unit holds is held bit by bit."""
        from constructions.recurrent.residual import ResidualModel  # loads torch, which runs

        C = self.which.C
        if not held.fits(self.model) or self.which.m is not None or C is None:
            raise BadInput("length=all: infinitely many inputs cannot all be run. Give a length.")
        module = module_of(self.model)
        assert not isinstance(module, ResidualModel), "whole blocks hold nothing"
        margin, reason = held.BitByBit(module, C).prove()
        if margin is None:
            return Finding.open(ARGUMENT_HELD, str(reason))
        return Finding.proved(ARGUMENT_HELD, margin)

    def _held(self) -> Finding | None:
        """In real arithmetic, where holding loses a little at each token; None for units that do not count so."""
        assert self.which.C is not None
        try:
            margin, right_to, wrong = held.decide_real(self.model, self.which.C, self.length)
        except ValueError:
            return None
        if margin is not None:
            return Finding.proved(ARGUMENT_HELD, margin)
        if wrong is None:
            reason = f"right up to length {right_to}; no longer string is shown to be wrong"
            return Finding.open(ARGUMENT_HELD, reason, extra={"right_to": right_to})
        parts = ((wrong.own, wrong.n - 1), (wrong.other, wrong.others), (wrong.own, 1))
        shown: object = (
            [token for token, times in parts for _ in range(times)] if wrong.length <= LONGEST_SHOWN else None
        )
        case = {
            "input": shown or ", ".join(f"token {token} {times} times" for token, times in parts),
            "length": wrong.length,
            "expected": wrong.n,
            "predicted": self.which.said(wrong.predicted),
        }
        return Finding.refuted(ARGUMENT_HELD, Failure(case, wrong.margin), extra={"right_to": right_to})

    def _proof(self, reading: Reading, effort: Effort) -> tuple[str, BlockProof]:
        """The proof that goes with the network's shape; it is of all lengths, whatever length is asked for."""
        if is_gated(self.model):
            return ARGUMENT_SEPARATE, BlockProof(None, "no proof is known for a network of this shape")
        net, at, p = Network.of(self.model), None, 53
        if isinstance(reading, Rounded):
            at, p = RoundedArithmetic.of(reading.format), reading.format.p
            net = net.rounded(at.stored)
            p = min(p, at.operand.p, int(np.floor(np.log2(reading.format.largest))))
        assert isinstance(reading, Real | Rounded)
        is_plain = net.kind == "rnn" and len(net.layers) == 1 and self.model.types is None and self.K > 1
        if is_plain and net.activation == "relu":
            length = None if self.which.m is not None else self.length
            return ARGUMENT_EXACT, Rings(net, self.K, self.which.m, p, self.which.C, length).prove()
        from verify.tasks.recurrent import separate

        return ARGUMENT_SEPARATE, separate.prove(net, self.which, at, effort.deadline(1 / 3))

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        tokens = item[: answer + 1]
        right = self.which.answers(tokens)[-1]
        return OneRun() if right is None else one_run(self.model, tokens, right, reading)

    def batches(self) -> Iterator[Batch]:
        if self.length is None:
            raise BadInput("length=all: infinitely many inputs cannot all be run. Give a length.")
        batch: list[Item] = []
        for item in product(range(self.K), repeat=self.length):
            batch.append(item)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def draw(self, rng: random.Random) -> Item:
        length = rng.randrange(1, LONGEST_DRAWN) if self.length is None else self.length
        return tuple(rng.randrange(self.K) for _ in range(length))

    def smaller(self, item: Item) -> Iterator[Item]:
        if self.length is None:
            for k in range(len(item)):
                if len(item) > 1:
                    yield item[:k] + item[k + 1 :]

    def first(self, batch: Batch, is_wrong: np.ndarray) -> tuple[int, Item, int]:
        return first_in_order(batch, is_wrong)

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        right = self.which.answers(item[: answer + 1])[-1]
        assert right is not None
        return is_wrong_in_its_ball(module_of(self.model), item[: answer + 1], right)

    def case(self, tokens: Item, predicted: int | None) -> dict[str, object]:
        right = self.which.answers(tokens)[-1]
        assert right is not None
        said = None if predicted is None else self.which.said(predicted)
        return {"input": list(tokens), "length": len(tokens), "expected": self.which.said(right), "predicted": said}
