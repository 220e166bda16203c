"""A decoder with its task as a problem that the house decides, on lines or on all strings."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from constructions.decoder_arrays import MADE_BY, DecoderArrays, has_bos
from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays, module_of
from verify.arithmetic.contract import TRACED
from verify.arithmetic.margins import OneRun, margins_of
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.arithmetic.slack import OF_FEW, Array
from verify.counting.tasks import Line, Task
from verify.frame.certificate import Verdict
from verify.frame.clock import Deadline, TimeIsUp
from verify.frame.decide import Effort, Failure, Finding, Item, Ran, Run, first_in_order, is_wrong_in_its_ball
from verify.frame.unmade import check_judged
from verify.tasks.inductive import boxes, cells, first_token, marked, placed, sharp, uniform
from verify.tasks.inductive.document_c import lengths
from verify.tasks.inductive.noisy import Allowed
from verify.tasks.inductive.runs import UNBOUNDED, MarginBounds, Runs
from verify.tasks.inductive.share import InputRange, Share

if TYPE_CHECKING:
    import torch

    from constructions.decoder import Decoder

BATCH = 512
DRAWN_LENGTH = 100  # of a string where there is no longest
MOST = 20_000  # strings of one length that are run where no proof over all strings closes
SHORT = "every short string, in balls"
ENGINE = "every shift and line in one run of balls"
CONTRACT = (
    "each operation is rounded to nearest, or kept with 2p + 2 bits; sums in any order, products fused or not",
    "exp and erf within 8 u of their value, GELU within 8 u of |x|, exp(0) = 1",
    "LayerNorm in one pass, two passes or by Welford",
)


@dataclass(frozen=True)
class Counting:
    """A decoder that is to count: a `Decidable`. An item is (shift, token, token, ...).

    `length` bounds the number of tokens after BOS and a leading number word, None for all that there are. With
    positions, shift + tokens + BOS is at most the size of their table.
    Raises: BadInput for a model with another vocabulary or other classes, or a task without an end and no length.

    >>> from constructions.inductive import started
    >>> from verify.frame.decide import certify
    >>> task = Task.of("shifted", vocabulary=5)
    >>> certify(Counting(started(task="shifted", M=5), task)).verdict.value
    'PROVED'
    """

    module: Decoder | ModelArrays
    wanted: Task
    length: int | None = None
    claim: str | None = None
    shared: Callable[[], Share] | None = None
    task = "inductive"
    counts_answers = False
    runs_for_ever = False

    def __post_init__(self) -> None:
        check_judged(self.module, MADE_BY)
        for name, own, due in (
            ("tokens", self.module.vocabulary, self.wanted.vocabulary),
            ("classes", int(self.module.W_U.shape[1]), self.wanted.classes),
        ):
            if own != due:
                raise BadInput(
                    f"weights: {own} {name}, and {self.wanted.name} has {due}; name the sizes it was made for"
                )
        if self.room is not None and self.room <= self.bos:
            raise BadInput(f"positions={self.room}: leave no room for a token; give more")

    @property
    def bos(self) -> bool:
        """Whether a token of the model's own comes first."""
        return has_bos(self.module)

    @property
    def room(self) -> int | None:
        """The size of the table of positions, None for a model without one."""
        return None if self.module.pe == "nope" else self.module.positions

    @property
    def longest(self) -> int | None:
        """The length of the longest input, None where there is none."""
        room = None if self.room is None else self.room - self.bos - self._leading
        longest = self.wanted.longest(self.length)
        return longest if room is None else room if longest is None else min(room, longest)

    @property
    def _leading(self) -> int:
        return int(self.wanted.name in ("shifted", "helper", "helper-shifted"))

    @cached_property
    def has_lines(self) -> bool:
        """Whether all inputs of one length, shift and start are answered alike: where tokens have one embedding, the
        stream of every string is that of a^n, bit by bit, and what is due at a position does not depend on them."""
        task, types = self.wanted, DecoderArrays.of(self.module).W_E[: self.module.vocabulary]
        is_alike = task.name == "first-heterogeneous" and not task.has_distinct_start and self.longest is not None
        return task.is_homogeneous or (is_alike and bool((types == types[0]).all()))

    @cached_property
    def runs(self) -> Runs:
        is_one = self.has_lines and not self.wanted.is_homogeneous
        return Runs(self.module, Task.of("first-homogeneous") if is_one else self.wanted, self.length, self.room)

    @property
    def proved_lengths(self) -> dict[str, object]:
        """What a proof reports: `length` is "all" where no longer input exists, the number where number words end it.
        Where a table of positions ends it, `longest` is the number that "all" stands for."""
        if self.longest is None:
            return {"length": "all"}
        is_all = self.wanted.M is None and self.room is not None and self.longest == self.room - self.bos
        return {"length": "all", "longest": self.longest} if is_all else {"length": self.longest}

    def parameters(self, reading: Reading) -> dict[str, object]:
        m = DecoderArrays.of(self.module)
        block = m.blocks[0]
        neurons = sum(0 if b.mlp is None else len(b.mlp.b_in) for b in m.blocks)
        return {
            "name": self.wanted.name,
            "model": "transformer",
            "pe": m.pe,
            "bos": m.has_bos,
            **self.wanted.parameters(),
            **({} if self.room is None else {"positions": self.room}),
            "layers": len(m.blocks),
            "n_heads": block.attention.n_heads,
            "d": m.W_U.shape[0],
            "neurons": neurons,
            "layernorm": m.norm is not None,
            "activation": None if block.mlp is None else block.mlp.activation,
            "dtype": m.dtype,
        }

    def size(self) -> int | None:
        if self.wanted.is_homogeneous:
            return self.runs.inputs()
        if self.longest is None:
            return None
        if self.room is None:
            return self.wanted.number_up_to(self.longest)
        return self.wanted.number_at_shifts(self.longest, self.room - self.bos)

    def _shifts(self, n: int) -> range:
        """Every shift at which strings of n tokens fit; without positions there is one."""
        return range(1 if self.room is None else self.room - self.bos - n + 1)

    def _inputs_of(self, n: int) -> int:
        """How many inputs of n tokens there are, at all shifts."""
        return self.wanted.number(n) * len(self._shifts(n))

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            raise BadInput("precision=sN: inductive has no constant-bit reading; use real, or a float format")
        right = "right means: at every judged position the right class has strictly the largest logit"
        if isinstance(reading, Kernel):
            import torch

            return f"torch {torch.__version__} on CPU, one kernel and batch shape", right
        return (*TRACED, *(() if isinstance(reading, Real) else CONTRACT), right)

    def facts(self) -> dict[str, object]:
        return {}

    @property
    def made_tables(self) -> dict[str, object]:
        """The table of positions that the module makes and its file has not, as a certificate keeps it."""
        if self.module.pe not in ("sine", "rope"):
            return {}
        from constructions.decoder_model import block_of

        made = module_of(self.module)
        if made.pe == "sine":
            return {"tables": {"W_pos": made.W_pos.double().tolist()}}
        rotation = block_of(made, 0).attention.rotation
        assert rotation is not None
        return {"tables": {"cos": rotation.cos.double().tolist(), "sin": rotation.sin.double().tolist()}}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        assert isinstance(reading, Real | Rounded)
        if not self.has_lines:
            return self._strings(reading, effort)
        first, deadline, model = None, effort.deadline(), DecoderArrays.of(self.module)
        if sharp.applies(model):
            bounds = self._until(deadline, sharp.bounds(self.runs, reading))
            first = self._lines(bounds, sharp.ARGUMENT, reading, effort)
            if first.verdict is Verdict.PROVED or _is_decided(first):
                return first
        if uniform.applies(model):
            found, argument = uniform.bounds(self.runs, reading), uniform.ARGUMENT
        else:
            from verify.tasks.inductive import engine_runs

            found, argument = engine_runs.bounds(self.runs, reading, deadline), ENGINE
        second = self._lines(self._until(deadline, found), argument, reading, effort)
        is_lost = second.verdict is Verdict.UNKNOWN and first is not None and first.failure is not None
        return first if first is not None and is_lost else second

    def _until(self, deadline: Deadline, bounds: Iterator[MarginBounds]) -> Iterator[MarginBounds]:
        """The bounds as long as there is time, and of all shifts after that one bound that says nothing."""
        first, last = self.runs.shifts.start, self.runs.shifts.stop
        try:
            for found in bounds:
                yield found
                first = found.shifts.stop
                if first < last:
                    deadline.check()
        except TimeIsUp:
            yield self.runs.unbounded(range(first, last))

    def _lines(self, bounds: Iterator[MarginBounds], argument: str, reading: Real | Rounded, effort: Effort) -> Finding:
        """The verdict from bounds on all positions: the shortest wrong input, at the least shift, refutes."""
        least, tightest = float("inf"), None
        by: dict[str, int] = {}
        telling: dict[str, tuple[float, Item, int]] = {}
        share = self.share()
        wrong: tuple[int, int, int, Line, int] | None = None
        opened: tuple[int, int, int] | None = None  # length, shift, start
        ended = None  # the shift at which the time was up
        for found in bounds:
            shift = found.shifts.start
            effort.progress(found.shifts.stop / len(self.runs.shifts))
            times = self.runs.times(found.shifts, found.low.shape[1])
            if found.decided_by == UNBOUNDED:
                ended = shift
            else:
                judged = int((np.isfinite(found.low).sum(0) * times).sum())
                by[found.decided_by] = by.get(found.decided_by, 0) + judged
            low = np.where(np.isnan(found.low), -np.inf, found.low)
            share.add(found.lines, low > 0, found.high <= 0, found.shifts, self.runs.times)
            row, place_ = divmod(int(low.argmin()), low.shape[1])
            lowest = float(low.min())
            if found.decided_by not in telling or lowest < telling[found.decided_by][0]:
                telling[found.decided_by] = lowest, (shift, *found.lines[row].tokens[: place_ + 1]), place_
            if lowest < least:
                least, tightest = lowest, self._described(shift, found.lines[row], place_)
            for row, place_ in np.argwhere(~(low > 0)).tolist():
                line = found.lines[row]
                length = place_ + 1 - line.leading
                case = (length, shift, -1 if line.start is None else line.start)
                if bool(found.high[row, place_] <= 0):
                    if wrong is None or case < wrong[:3]:
                        wrong = (*case, line, place_)
                elif opened is None or case < opened:
                    opened = case
        extra: dict[str, object] = {"decided_by": by, "accuracy": share.found()}
        if wrong is not None:
            *_, line, place_ = wrong
            failure = self.replay((wrong[1], *line.tokens[: place_ + 1]), place_, reading)
            failure.counterexample["is_smallest"] = opened is None or opened > wrong[:3]
            firm = min(wrong[0], opened[0] if opened else wrong[0])
            return Finding.refuted(argument, failure, extra=extra | {"length": _before(firm)})
        if opened is not None:
            reason = (
                f"the margin may be within the error at length {opened[0]}, shift {opened[1]}; shorter inputs are right"
                if ended is None
                else f"the {effort.limit} ended at shift {ended}, of {len(self.runs.shifts)}"
            )
            return Finding.open(argument, reason, extra=extra | {"length": _before(opened[0])})
        assert tightest is not None
        tightest["margin"] = least
        return Finding.proved(
            argument,
            least,
            tightest=tightest,
            telling=tuple((item, place) for _, item, place in telling.values()),
            extra=extra | self.proved_lengths,
        )

    def share(self) -> Share:
        """What counts right and wrong answers: at C's lengths, of every line, or what `shared` makes."""
        if self.shared is not None:
            return self.shared()
        return Share({name: InputRange(part) for name, part in lengths(self.wanted.name).items()})

    def _described(self, shift: int, line: Line, place: int) -> dict[str, object]:
        return {
            "input": list(line.tokens[: place + 1]), "length": place + 1 - line.leading, "shift": shift,
            "start": line.start,
        }  # fmt: skip

    def _strings(self, reading: Real | Rounded, effort: Effort) -> Finding:
        model = DecoderArrays.of(self.module)
        found = cells.decide(model, self.wanted, self.longest, reading)
        if found.reason is not None:
            return self._boxes(model, found.reason, reading, effort)
        assert found.margin_scaled is not None
        extra = self.proved_lengths | {"margin_scaled": found.margin_scaled}
        margin = None if self.longest is None else found.margin_scaled / (self.longest + 1) * (1 - OF_FEW)
        return Finding.proved(cells.ARGUMENT, margin, extra=extra)

    def _boxes(self, model: DecoderArrays, reason: str, reading: Real | Rounded, effort: Effort) -> Finding:
        """Decides all strings up to a length where no argument over all lengths is known."""
        known = (boxes, marked, placed, first_token)
        proof = next((proof for proof in known if proof.applies(model, self.wanted)), None)
        if proof is None:
            return self._short(reason, reading, effort)
        found = proof.decide(model, self.wanted, self.longest, reading, effort.budget)
        extra: dict[str, object] = {
            "length": found.length,
            "margin_scaled": found.margin_scaled if found.length else None,
        }
        if found.length == self.longest:
            return Finding.proved(proof.ARGUMENT, found.margin, extra=extra | self.proved_lengths)
        ended = "the search ends there" if found.length >= proof.LARGEST else found.ended_by.format(limit=effort.limit)
        if found.length < MOST and self._inputs_of(found.length + 1) <= MOST:  # else all that are run are right
            short = self._short(ended if found.ended_by in (boxes.REREAD, boxes.OVERFLOWS) else reason, reading, effort)
            if short.verdict is not Verdict.UNKNOWN or short.extra["length"] >= found.length:
                return short
        why = f"every string up to length {found.length} is right; {ended}"
        return Finding.open(proof.ARGUMENT, why, extra=extra)

    def _short(self, reason: str, reading: Real | Rounded, effort: Effort) -> Finding:
        """Runs all short strings where no proof over all of them closes; they are all where the domain is small."""
        least, done, deadline = float("inf"), 0, effort.deadline()
        for n in itertools.count(1):
            shifts = self._shifts(n)
            if (self.longest is not None and n > self.longest) or self._inputs_of(n) > MOST:
                break
            strings = list(self.wanted.strings(n))
            for shift in shifts:
                if deadline.is_up():
                    why = f"{reason}; the {effort.limit} ended at length {n}"
                    return Finding.open(SHORT, why, extra={"length": done})
                low, high = self._bounds_of(strings, shift, reading)
                for row, place in np.argwhere(~(low > 0)).tolist():
                    if bool(high[row, place] <= 0):
                        failure = self.replay((shift, *strings[row][: place + 1]), place, reading)
                        return Finding.refuted(SHORT, failure, extra={"length": done})
                    why = f"{reason}; {list(strings[row])} may be within the error"
                    return Finding.open(SHORT, why, extra={"length": done})
                least = min(least, float(low.min()))
            done = n
            effort.progress(n / (self.longest or DRAWN_LENGTH))
        if done == self.longest:
            return Finding.proved(SHORT, least, extra=self.proved_lengths)
        return Finding.open(SHORT, f"{reason}; every string up to length {done} is right", extra={"length": done})

    def _bounds_of(self, strings: list[tuple[int, ...]], shift: int, reading: Real | Rounded) -> tuple[Array, Array]:
        """Bounds on the margins of strings of one length."""
        if not uniform.applies(DecoderArrays.of(self.module)):
            from verify.tasks.inductive import engine_runs

            return engine_runs.of_strings(self.runs, strings, shift, reading)
        return uniform.of_lines(Allowed.of(reading), self.runs, [Line(None, string) for string in strings], shift)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        return OneRun()

    def batches(self) -> Iterator[list[Item]]:
        if self.wanted.is_homogeneous:
            items = ((s, *tokens) for s in self.runs.shifts for tokens in self.runs.prefixes(s))
            yield from ([item] for item in items)
            return
        assert self.longest is not None
        for n in range(1, self.longest + 1):
            for shift in self._shifts(n):
                strings = self.wanted.strings(n)
                while batch := [(shift, *tokens) for tokens in itertools.islice(strings, BATCH)]:
                    yield batch

    def draw(self, rng: random.Random) -> Item:
        if self.wanted.is_homogeneous:
            shift = rng.choice(self.runs.shifts)
            line = rng.choice(self.runs.lines(shift))
            return (shift, *line.tokens[: rng.randint(1, len(line.tokens))])
        assert self.wanted.K is not None
        n = rng.randint(1, min(self.longest or DRAWN_LENGTH, DRAWN_LENGTH))
        shift = 0 if self.room is None else rng.choice(self._shifts(n))
        tokens = rng.choices(range(self.wanted.K), k=n)
        if self.wanted.has_distinct_start and tokens[1:2] == tokens[:1]:
            tokens[1] = rng.choice([token for token in range(self.wanted.K) if token != tokens[0]])
        return (shift, *tokens)

    def smaller(self, item: Item) -> Iterator[Item]:
        """Shorter strings, then smaller shifts, then smaller tokens."""
        shift, *tokens = item
        if len(tokens) > 1:
            yield (shift, *tokens[:-1])
            if not self.wanted.is_homogeneous:
                yield (shift, *tokens[1:])
        if shift:
            yield (0, *tokens)
            yield (shift - 1, *tokens)
        if not self.wanted.is_homogeneous:
            for i, token in enumerate(tokens):
                yield from ((shift, *tokens[:i], new, *tokens[i + 1 :]) for new in range(token))

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(self._margins(batch))

    def _margins(self, batch: list[Item]) -> np.ndarray:
        """The margins of items of one length as torch runs them, infinite where no answer is judged."""
        import torch

        parts: dict[int, list[int]] = {}
        for i, item in enumerate(batch):
            parts.setdefault(int(item[0]), []).append(i)
        out = np.empty((len(batch), len(batch[0]) - 1))
        for shift, rows in parts.items():
            strings = [tuple(int(x) for x in batch[i][1:]) for i in rows]
            with torch.no_grad():
                logits = module_of(self.module)(torch.tensor(strings), shift=shift).double().numpy()
            for i, string, said in zip(rows, strings, logits, strict=True):
                answers = enumerate(self.wanted.answers(string))
                out[i] = [np.inf if right is None else float(margins_of(said[j], right)) for j, right in answers]
        return out

    def first(self, batch: list[Item], is_wrong: np.ndarray) -> tuple[int, Item, int]:
        _, item, answer = first_in_order(batch, is_wrong)
        return len(item), item, answer

    @property
    def dtype(self) -> torch.dtype | str:
        return self.module.dtype if isinstance(self.module, ModelArrays) else self.module.W_E.dtype

    def length_of(self, item: Item) -> int:
        return len(item)

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        shift, tokens = item[0], tuple(item[1:])
        right = self.wanted.answers(tokens)[answer]
        assert right is not None
        return is_wrong_in_its_ball(module_of(self.module), tokens, right, answer, shift=shift)

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        import torch

        shift, tokens = item[0], tuple(item[1:])
        with torch.no_grad():
            said = module_of(self.module)(torch.tensor([tokens]), shift=shift)[0].double().numpy()
        right = self.wanted.answers(tokens)
        due = right[answer]
        assert due is not None
        row, leading = said[answer], self._leading
        margin = float(margins_of(row, due))
        predicted = None if np.isnan(row).any() else self._rival(row, due, is_proved=not isinstance(reading, Kernel))
        found = {
            "input": list(tokens),
            "position": answer,
            "expected": self.wanted.said(due),
            "predicted": None if predicted is None else self.wanted.said(predicted),
            "length": answer + 1 - leading,
            "shift": shift,
            "start": tokens[0] if leading else None,
            "is_tie": bool(margin == 0),
        }
        return Failure(found, margin if np.isfinite(margin) and margin <= 0 else None)

    def _rival(self, row: np.ndarray, due: int, *, is_proved: bool) -> int:
        """The class that is said; of a proved failure that the run does not show, the closest rival."""
        others = row.copy()
        others[due] = -np.inf
        return int(others.argmax()) if is_proved else int(row.argmax())


def _is_decided(finding: Finding) -> bool:
    """Whether a refutation names the shortest wrong input, and the share of right ones is known."""
    if finding.failure is None or not finding.failure.counterexample["is_smallest"]:
        return False
    accuracy = finding.extra["accuracy"]
    return isinstance(accuracy, dict) and all(low == high for low, high in accuracy.values())


def _before(length: int) -> int | None:
    """The largest length below; None where a number word alone, of length 0, is not right already."""
    return length - 1 if length else None
