"""A module and its task as a problem that the house decides: verdict, counts, and the list of wrong inputs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from constructions.decoder import Decoder
from constructions.errors import BadInput
from constructions.threads import one_thread
from verify.arithmetic.contract import TRACED
from verify.arithmetic.formats import format_of
from verify.arithmetic.margins import OneRun, margins_of
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.arithmetic.slack import LARGEST_NU, gamma
from verify.engine import few_bits
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph, capture, longest_sum
from verify.engine.guard import Disagreement, Guard
from verify.engine.one_layer.layer import NotOneLayer
from verify.engine.run import enclose
from verify.engine.tables import Sets
from verify.frame.certificate import Certificate
from verify.frame.clock import Budget, Deadline
from verify.frame.decide import BUG, Effort, Failure, Finding, Ran, Run, first_in_order
from verify.frame.judged import check_on_cpu, check_read, is_judged
from verify.frame.over_time import OverTime
from verify.frame.tracing import load_tracer
from verify.module import cells, parts, positions
from verify.module.decision import Bounds, Judge, Progress, Tally, climb
from verify.module.inputs import BATCH, Listed, Product
from verify.module.language_models import logits_alone
from verify.module.layered import Layered
from verify.module.resumed import Kept
from verify.module.task import Task

MANY = 1 << 18  # inputs from which on a hill climb comes first
FEW = 1 << 16  # inputs that are decided one by one, whatever the module is
PIECE, SLOW_PIECE = 16384, 1024  # inputs that are decided between two looks at the clock, by plain runs or without
SLOPES_OF_A_PIECE = 2**19  # of the widest tensor's numbers by each other, in 16 bits or less
ENTRIES_OF_A_PIECE = 2**23  # and numbers of the widest tensor
WORTH_A_RADIUS = 1024  # inputs from which on one radius for all of them is looked for
CLIMBING = 0.2  # of the budget, as for products of token sets where every input can be looked at
RUN_AT_ONCE, RUNS = 512, 4
SHOWN = 12  # answer positions in a report
ARGUMENT = "every input enclosed in balls"
BY_CELLS = "one attention layer on products of token sets; what those leave open, input by input"
BY_MEAN_VALUES = "every input enclosed by the mean value form, results rounded or kept"
BY_ROUNDING_ONCE = "every input enclosed by the mean value form, each result rounded once"
Item = tuple[int, ...]
Pieces = Iterator[tuple[Tensor, int]]
CONTRACT = (
    "each operation is rounded to nearest, or kept with 2p + 2 bits; sums in any order, products fused or not",
    "exp, log, log1p, expm1, erf, tanh, sigmoid, sin, cos, roots within 8 u of their value; GELU, SiLU of |x|",
    "LayerNorm's variance within gamma_(4d+16) of the mean of squares (one pass, two passes, Welford)",
    "softmax subtracts the largest score so far and may rescale by later ones; exp within 8 u of its sums' format",
)
KEPT = (
    "an operation reads each result rounded to nearest, or kept with 2p + 2 bits; sums in float32, in any order",
    "LayerNorm is one operation in float32, its variance within gamma_(4d+16) of it; softmax is one, or several",
    "softmax subtracts the largest score so far and may rescale by later ones; exp within 8 u of its sums' format",
    "exp, log, log1p, expm1, erf, tanh, sigmoid, sin, cos, roots within 8 u of their value; GELU, SiLU of |x|",
)
ONCE = (
    "each operation on tensors is computed in float32, sums in any order, and its result rounded once, to nearest",
    "softmax and LayerNorm are one operation each; attention's scores and weights are rounded once or kept in float32",
    "RMSNorm, GroupNorm, log-softmax, powers and variances are several operations, each rounded or kept wider",
    "exp, log, erf, tanh, sigmoid, sin, cos and roots within 8 u of float32 of their value, before that rounding",
    "stored numbers are rounded to the dtype, Python's numbers to float32 or kept",
    "LayerNorm's variance within gamma_(4d+16) of float32 of the mean of squares (one pass, two passes, Welford)",
)


class ModuleProblem:
    """One module on one finite domain."""

    task = "module"
    counts_answers = False
    runs_for_ever = False
    claim: str | None = None

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        device: str = "cpu",
        resume: str | None = None,
        aim: cells.Aim = "accuracy",
        run_parts: parts.Run | None = None,
    ) -> None:
        load_tracer()
        self.module, self.given, self.device, self.resume = logits_alone(module), task, device, resume
        self.aim: cells.Aim = aim
        self.run_parts = run_parts  # of a search by cells, elsewhere
        self.name, self.so_far = type(module).__name__, "deciding"  # the latter is what a progress bar says
        self.over_time = OverTime()
        self.at: dict[tuple[int, int], Tally] = {}  # by length and place among several answer positions
        if aim not in cells.AIMS:
            raise BadInput(f"aim={aim!r} is not known; choose one of {', '.join(cells.AIMS)}")
        if device != "cpu" and not torch.cuda.is_available():
            raise BadInput(f"device={device}: torch {torch.__version__} finds no such device here; use cpu")
        check_on_cpu(module)

    def parameters(self, reading: Reading) -> dict[str, object]:
        graphs = list(self.graphs.values())
        lengths = self.given.inputs.lengths
        return {
            "module": self.name,
            "lengths": list(lengths),
            "positions": None if self.given.position is None else list(self.given.position),
            "classes": len(self.given.classes) if self.given.classes is not None else self.columns(lengths[0]),
            "stored_numbers": sum(value.numel() for value in graphs[0].stored.values()),
        }

    def size(self) -> int:
        return self.given.inputs.size

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            raise BadInput("--precision sN: a module has no defined order of operations; use a float format, or real")
        if isinstance(reading, Kernel):
            return ("the module runs as torch runs it here, one input at a time",)
        assert self.graphs  # a module that cannot be judged is refused before the clock starts
        if isinstance(reading, Rounded) and reading.once:
            return (*TRACED, *ONCE)
        if isinstance(reading, Real):
            return TRACED
        return (*TRACED, *(KEPT if few_bits.is_covered(reading.format, reading.accumulate) else CONTRACT))

    @cached_property
    def has_several(self) -> bool:
        """Whether several positions answer on inputs of some length."""
        return any(len(self.given.positions(length)) > 1 for length in self.given.inputs.lengths)

    @cached_property
    def graphs(self) -> dict[int, Graph]:
        """The module captured for each length of the domain."""
        found = {}
        for length in dict.fromkeys(self.given.inputs.lengths):
            places = self.given.positions(length)
            alone = is_judged(self.module, Decoder)
            arguments = dict[str, object](position=places[0]) if alone and len(places) == 1 else None
            found[length] = capture(self.module, length, arguments=arguments)
            graph = found[length]
            check_read(self.module, {graph.names[name]: value for name, value in graph.stored.items()})
            self._check_output(graph, alone and arguments is not None)
        for part in self.given.inputs.parts:
            self._check_tokens(part)
        return found

    def capture(self) -> None:
        """Traces the module now, and not when it is first asked for."""
        assert self.graphs

    def _check_tokens(self, part: Product | Listed) -> None:
        """Runs the largest token of each position, so that a token without an embedding is an error of its own."""
        rows = part.rows.amax(0).tolist() if isinstance(part, Listed) else [allowed[-1] for allowed in part.sets]
        self._check_run(rows, ". Are all tokens in its vocabulary?")

    def _check_run(self, row: list[int], hint: str) -> None:
        try:
            with torch.no_grad():
                self.module(torch.tensor([row]))
        except Exception as error:  # whatever the user's code raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInput(f"inputs: the module fails on {row}: {reason}{hint}") from None

    def _check_output(self, graph: Graph, is_one_row: bool) -> None:
        shape = tuple(graph.output.shape)
        if len(shape) == 3 and shape[:2] == (1, graph.length) and not is_one_row:
            return
        one_answer = len(self.given.positions(graph.length)) == 1
        if len(shape) == 2 and shape[0] == 1 and one_answer:
            return
        raise BadInput(
            f"module: returns {shape} for an input (1, {graph.length}); must be logits (1, {graph.length}, classes), "
            "or (1, classes) where one position answers"
        )

    def columns(self, length: int) -> int:
        """How many logits the module gives."""
        return int(self.graphs[length].output.shape[-1])

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        """Decides every input, within the budget: the hill climb first where there are many."""
        assert isinstance(reading, Real | Rounded)
        try:
            return self._prove(reading, effort)
        except Disagreement as found:
            return Finding.open(ARGUMENT, f"{found}: {BUG}")
        except (IndexError, RuntimeError):
            self._run_until_it_fails()
            raise

    def _run_until_it_fails(self) -> None:
        """Raises BadInput with the first input on which the module itself fails; looks at a batch of each length."""
        for part in self.given.inputs.parts:
            for row in next(iter(part.batches())).tolist():
                self._check_run(row, "")

    def _prove(self, reading: Real | Rounded, effort: Effort) -> Finding:
        deadline = effort.deadline()
        parts, tally = self.given.inputs.parts, Tally()
        candidates, stopped = sum(part.candidates for part in parts), False
        layers = [self.layers(part, reading) for part in parts]
        self.at = {}
        found_wrong: list[int] | None = None
        self.over_time = OverTime()
        for part, found in zip(parts, layers, strict=True):
            own = Tally()  # of the inputs that are decided by cells

            def progress(done: int, before: int = tally.seen, own: Tally = own) -> None:
                effort.progress(min(1.0, (before + done) / candidates))
                self.over_time.see(tally.right + own.right, tally.wrong + own.wrong)

            if not found:
                is_left, failing = self._one_by_one(part, reading, tally, effort, deadline, progress)
            elif self.has_several:
                is_left, failing = self._at_each_position(found, own, effort, deadline)
            else:
                search, failing = self._by_cells(found[0], own, effort, deadline, progress)
                is_left = search.open > 0
            tally.take(own)
            stopped, found_wrong = stopped or is_left, found_wrong or failing
            if self._is_enough(tally, found_wrong):
                stopped = stopped or part is not parts[-1]
                break
        self.over_time.see(tally.right, tally.wrong, is_last=True)
        return self.finding(tally, reading, found_wrong, stopped, effort.limit)

    def _is_enough(self, tally: Tally, found_wrong: list[int] | None = None) -> bool:
        """Whether a wrong input is known, and that is all that is asked."""
        return self.aim == "verdict" and (tally.wrong > 0 or found_wrong is not None)

    def _one_by_one(
        self,
        part: Product | Listed,
        reading: Real | Rounded,
        tally: Tally,
        effort: Effort,
        deadline: Deadline,
        progress: Progress,
    ) -> tuple[bool, list[int] | None]:
        """Decides every input of a part by itself: whether some are left, and a wrong one, if the hill climb met it.

        Where there are many, and most of the time has met no wrong input, some of it is for the hill climb.
        """
        judge = self.judge(part.length, reading, part.allowed if part.candidates >= WORTH_A_RADIUS else None)
        are_many = part.candidates > MANY
        first = deadline.part(1 - CLIMBING) if are_many else deadline
        left = self._decide(judge, self._pieces(part, judge), tally, first, progress)
        if left is None:
            return False, None
        failing = self.search(reading, effort, deadline) if are_many and not tally.wrong else None
        if self._is_enough(tally, failing):
            return True, failing
        return self._decide(judge, left, tally, deadline, progress) is not None, failing

    def _pieces(self, part: Product | Listed, judge: Judge) -> Pieces:
        """The inputs of a part, as many at a time as are decided between two looks at the clock, and how far it is."""
        widest = self.graphs[part.length].widest
        most, of_few_bits = (max(1, n) for n in (ENTRIES_OF_A_PIECE // widest, SLOPES_OF_A_PIECE // widest**2))
        for i, batch in enumerate(part.batches()):
            done = 0
            while done < len(batch):
                is_quick = judge.plain is not None and i + done > 0
                at_once = of_few_bits if judge.is_of_few_bits else PIECE if is_quick else SLOW_PIECE
                tokens = batch[done : done + min(most, at_once)]
                done += len(tokens)
                yield tokens, i * BATCH + done

    def _decide(
        self, judge: Judge, pieces: Pieces, tally: Tally, deadline: Deadline, progress: Progress
    ) -> Pieces | None:
        """Decides pieces until the time is up, but one at least; those that are left, None where there are none."""
        for tokens, done in pieces:
            if tally.seen and (self._is_enough(tally) or deadline.is_up()):
                return chain([(tokens, done)], pieces)
            bounds = self.decide_batch(judge, tokens, tally, deadline)
            self._count_positions(judge, tokens, bounds, deadline)
            progress(done)
        return None

    def layers(self, part: Product | Listed, reading: Reading) -> list[Layered]:
        """What decides a part by cells at each answer position, where it has many inputs and each is of one layer.

        None where that is not so, or answers on cells are not known at one of them.
        """
        is_real = isinstance(reading, Real) and self.device == "cpu"
        if not is_real or not isinstance(part, Product) or part.where is not None or part.candidates <= FEW:
            return []
        if self.columns(part.length) < 2:
            return []
        found: list[Layered] = []
        for place in range(len(self.given.positions(part.length))):
            task = self.given.at(place, part.length) if self.has_several else self.given
            try:
                layer = cells.one_layer(self.graphs[part.length], task.question(part.length), part)
            except NotOneLayer:
                return []
            judge = self.judge(part.length, Real()).at(place)
            found.append(Layered(layer, part, task, self.columns(part.length), judge))
            if found[-1].chart is None:
                return []
        return found

    def _at_each_position(
        self, layers: list[Layered], tally: Tally, effort: Effort, deadline: Deadline
    ) -> tuple[bool, list[int] | None]:
        """Decides a part at each position by cells of its own: whether some are left, and a wrong input, if met."""
        searches, own, failing = list[cells.Search](), list[Tally](), None
        for i, layer in enumerate(layers):
            own.append(Tally())
            is_enough = any(self._is_enough(tally, failing) for tally in own)
            until = deadline.part(0.0 if is_enough else 1 / (len(layers) - i))
            search, met = self._by_cells(
                layer, own[-1], effort, until, lambda done: None, remembered=cells.Remembered()
            )
            searches.append(search)
            failing = failing or met
            effort.progress((i + 1) / len(layers))
            self.at[layer.part.length, i] = own[-1]
        tally.take(positions.together(searches, own))
        return any(search.open for search in searches), failing

    def _count_positions(self, judge: Judge, tokens: Tensor, bounds: Bounds, deadline: Deadline) -> None:
        """Counts a batch at each of several positions: what is right at all of them is not looked at again."""
        length = tokens.shape[1]
        rest = (~(bounds.low > 0)).nonzero().squeeze(1)
        for place in range(len(self.given.positions(length)) if self.has_several else 0):
            own = self.at.setdefault((length, place), Tally())
            own.right += len(tokens) - len(rest)
            if len(rest):
                own_judge = judge.at(place)
                answers = self.given.answers(tokens[rest], self.columns(length))[:, place : place + 1]
                own.add(tokens[rest], own_judge.bounds(tokens[rest], answers, deadline))

    def _by_cells(
        self,
        layer: Layered,
        tally: Tally,
        effort: Effort,
        deadline: Deadline,
        progress: Progress,
        remembered: cells.Remembered | None = None,
    ) -> tuple[cells.Search, list[int] | None]:
        """Decides a part by products of token sets: the search, and a wrong input, if one was met.

        Where most of the time has met no wrong input, some of it is for the hill climb.
        """
        search = layer.search(self.aim)
        search.start(deadline)
        search.remembered = remembered
        kept, one = None, layer.layer
        if self.resume is not None:
            kept = Kept(self.resume, one.graph, one.question, layer.part, effort.clock)
            kept.read(search, tally)

        def keep(is_due: bool) -> None:
            size = layer.part.size
            self.so_far = f"{tally.right / size:.6%} right, {tally.wrong} wrong"
            if kept is not None:
                kept.write(search, tally, is_due)

        threads = torch.get_num_threads()
        try:
            with one_thread(), ThreadPoolExecutor(threads) as pool:  # each of which bounds cells by small products
                first = deadline.part(1 - CLIMBING)
                if self.run_parts is None:
                    layer.by_cells(search, tally, first, progress, keep, pool.map)
                else:
                    parts.decide(self.run_parts, layer, search, tally, first, progress, keep)
                failing = search.failing
                if search.open and failing is None and not tally.wrong:
                    failing = self.search(Real(), effort, deadline)
                if self.run_parts is None and not self._is_enough(tally, failing):
                    layer.by_cells(search, tally, deadline, progress, keep, pool.map)
        except KeyboardInterrupt:
            so_far = f"{tally.right} inputs right and {tally.wrong} wrong so far"
            where = "; --resume DIR would keep them"
            if kept is not None:
                where = f", {'' if kept.seen == tally.seen else f'{kept.seen} of them '}kept in {self.resume}"
            raise KeyboardInterrupt(so_far + where) from None
        return search, failing

    def judge(self, length: int, reading: Real | Rounded, sets: Sets | None = None) -> Judge:
        """What decides inputs of a length; all of those of these token sets by one radius, where they are given."""
        guard = self.guard(length, reading)
        return Judge(self.graphs[length], self.given.question(length), reading, self.device, guard, sets)

    def guard(self, length: int, reading: Real | Rounded) -> Guard:
        """What runs the module beside its enclosure."""
        return Guard(self.module, self.graphs[length], self.given.question(length), reading)

    def decide_batch(self, judge: Judge, tokens: Tensor, tally: Tally, deadline: Deadline) -> Bounds:
        if not len(tokens):
            return Bounds.unknown(0)
        answers = self.given.answers(tokens, self.columns(tokens.shape[1]))
        found = judge.bounds(tokens, answers, deadline)
        tally.add(tokens, found)
        return found

    def search(self, reading: Real | Rounded, effort: Effort, until: Deadline) -> list[int] | None:
        """A wrong input found by hill climbing on the float margin and confirmed in balls, None if there is none."""
        rng = random.Random(effort.seed)
        deadline = until.moved_to(min(effort.deadline(CLIMBING).at, until.at))
        products = [part for part in self.given.inputs.parts if isinstance(part, Product)]
        while products and not deadline.is_up():
            part = rng.choice(products)
            margin = self.float_margin(part.length)
            wrong = climb(margin, part.draw(rng), part.sets, part.kept, deadline)
            if wrong is not None:
                tally = Tally()
                self.decide_batch(self.judge(part.length, reading), wrong.unsqueeze(0), tally, deadline)
                if tally.wrong:
                    return wrong.tolist()
        return None

    def float_margin(self, length: int) -> Callable[[Tensor], Tensor]:
        """The margin in float64 as a function of tokens (N, length): what the hill climb descends."""
        question = self.given.question(length)

        def middle(output: Ball, tokens: Tensor, answers: Tensor) -> tuple[Tensor]:
            low, _ = question(Ball(output.mid), tokens, answers)
            return (low,)

        run = enclose(self.graphs[length], Arithmetic(), middle)
        return lambda tokens: run(tokens, self.given.answers(tokens, self.columns(length)))[0]

    def finding(self, tally: Tally, reading: Reading, found: list[int] | None, stopped: bool, limit: Budget) -> Finding:
        size = self.given.inputs.size if not stopped else None
        left = 0 if not stopped else self._left(tally)
        extra = self.extra(tally, left)
        argument, tightest = BY_CELLS if tally.by["cells"] else ARGUMENT, None
        if isinstance(reading, Rounded) and few_bits.is_covered(reading.format, reading.accumulate):
            argument = BY_ROUNDING_ONCE if reading.once else BY_MEAN_VALUES
        if tally.tightest is not None:
            tightest = {"input": tally.tightest, "margin": tally.margin}
        first = tally.wrong_inputs[0] if tally.wrong_inputs else found
        if first is not None and tally.right == size:
            raise Disagreement(f"{first} is wrong, and all inputs are counted as right")
        if first is not None:
            failure = self.replay(tuple(first), 0, reading)
            if failure.counterexample["predicted"] == failure.counterexample["expected"]:
                return Finding.open(
                    argument, f"{list(first)} is wrong, by logits beyond the range of float64", extra=extra
                )
            return Finding.refuted(argument, failure, tightest=tightest, extra=extra)
        for row in tally.open_inputs[:RUNS]:
            self._check_run(row, "")
        if tally.undecided or left:
            return Finding.open(argument, self._reason(tally, left, limit, reading), tightest=tightest, extra=extra)
        assert tally.right == size, (tally, size)
        if not size:
            raise BadInput("inputs: the domain is empty, so nothing could be wrong; check where=")
        rng = random.Random(0)
        telling = [] if tally.tightest is None else [tuple(tally.tightest)]
        telling += [self.draw(rng) for _ in range(RUNS)]
        runs = tuple((item, 0) for item in telling)
        return Finding.proved(argument, tally.margin, tightest=tightest, telling=runs, extra=extra)

    def _left(self, tally: Tally) -> int:
        """How many inputs were not reached; with a filter at most so many."""
        filtered = any(part.where is not None for part in self.given.inputs.parts)
        return sum(part.candidates if filtered else part.size for part in self.given.inputs.parts) - tally.seen

    def _reason(self, tally: Tally, left: int, limit: Budget, reading: Reading) -> str:
        if left:
            return f"the {limit} ended with {left} inputs to go, {tally.right} right so far; raise it"
        what = f"{tally.undecided} inputs are undecided, the first {tally.open_inputs[0]}"
        if isinstance(reading, Rounded) and reading.accumulate is None:
            terms = max(map(longest_sum, self.graphs.values()))
            if not math.isfinite(gamma(terms + 2, reading.format.u)):
                most = int(LARGEST_NU / reading.format.u) - 2
                return (
                    f"{what}: sums of {terms} terms in {reading.format.name} have no useful bound in any order, which "
                    f"ends at {most} terms; ask for --accumulate float32, or for a wider format"
                )
        return f"{what}: their margins may be zero, or the errors of this dtype exceed them"

    def extra(self, tally: Tally, left: int) -> dict[str, object]:
        return {
            "counts": {"right": str(tally.right), "wrong": str(tally.wrong), "undecided": str(tally.undecided + left)},
            "decided_by": dict(tally.by),
            "wrong_inputs": tally.wrong_inputs,
            **({"by_position": [*self._by_position(left > 0)]} if self.at else {}),
        }

    def _by_position(self, is_cut: bool) -> Iterator[dict[str, object]]:
        """What is known of each answer position; what was not looked at there is undecided.

        With a filter that is at most so many, and known only where the search was cut.
        """
        for part in self.given.inputs.parts:
            for place, position in enumerate(self.given.positions(part.length)):
                own = self.at.get((part.length, place), Tally())
                unseen = part.candidates - own.seen if is_cut or part.where is None else 0
                counts = {"right": own.right, "wrong": own.wrong, "undecided": own.undecided + unseen}
                yield {"length": part.length, "position": position, **{key: str(n) for key, n in counts.items()}}

    def facts(self) -> dict[str, object]:
        """The graph that was judged: its digests, its operations, and the torch that traced it."""
        return {
            "graph": {
                "sha256": [graph.digest for graph in self.graphs.values()],
                "operations": next(iter(self.graphs.values())).operations,
                "torch": torch.__version__,
            }
        }

    def report(self, certificate: Certificate) -> Iterator[tuple[str, str]]:
        """What a report says besides: the graph, who decided how many, and names in the file that were not used."""
        by = certificate.extra.get("decided_by", {})
        if any(by.values()):
            yield "decided by", ", ".join(f"{name} {count}" for name, count in by.items() if count)
        for counts in certificate.extra.get("by_position", ())[:SHOWN]:
            where = f"position {counts['position']} of {counts['length']}"
            yield where, ", ".join(f"{counts[key]} {key}" for key in ("right", "wrong", "undecided"))
        operations = next(iter(self.graphs.values())).operations
        yield "graph", f"{sum(operations.values())} operations of {len(operations)} kinds, torch {torch.__version__}"
        unused = getattr(self.module, "unused", ())
        if unused:
            yield "not used", ", ".join(unused)
        listed = certificate.extra.get("wrong_inputs", [])
        if listed:
            shown = "; ".join(" ".join(map(str, row)) for row in listed[:5])
            yield "wrong inputs", shown + ("; ..." if len(listed) > 5 else "")

    def batches(self) -> Iterator[list[Item]]:
        for part in self.given.inputs.parts:
            for batch in part.batches(RUN_AT_ONCE):
                if len(batch):
                    yield [tuple(row) for row in batch.tolist()]

    def draw(self, rng: random.Random) -> Item:
        parts = self.given.inputs.parts
        return tuple(rng.choices(parts, [part.candidates for part in parts])[0].draw(rng).tolist())

    def smaller(self, item: Item) -> Iterator[Item]:
        """One token replaced by a smaller one, where the input then still belongs to the domain."""
        for part in self.given.inputs.parts:
            if isinstance(part, Product) and part.length == len(item):
                for place, allowed in enumerate(part.sets):
                    for token in (t for t in allowed if t < item[place]):
                        changed = (*item[:place], token, *item[place + 1 :])
                        if len(part.kept(torch.tensor([changed]))):
                            yield changed

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(np.array([self._run_one(torch.tensor(item))[0] for item in batch]))

    def first(self, batch: list[Item], is_wrong: NDArray[np.bool_]) -> tuple[int, Item, int]:
        return first_in_order(batch, is_wrong)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        """The run must lie where the module's own dtype can bring it; the margin of real arithmetic lies there, too."""
        self._check_run(list(item), "")
        low, high = self._margin_in_own_dtype(torch.tensor(item))
        margin = min(self._run_one(torch.tensor(item))[0])
        return OneRun(margin, low, high, at_most=high if isinstance(reading, Real) else math.inf)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The coarsest that a number of the module is stored or computed in."""
        return min((graph.coarsest for graph in self.graphs.values()), key=lambda dtype: torch.finfo(dtype).bits)

    def length_of(self, item: Item) -> int:
        return len(item)

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        low, high = self._margin_in_own_dtype(torch.tensor(item))
        return high <= 0 or low > 0

    def _margin_in_own_dtype(self, tokens: Tensor) -> tuple[float, float]:
        """Between which numbers every order of evaluation in the stored dtype lies."""
        at = Arithmetic(format_of(self.dtype), has_norms=True)
        answers = self.given.answers(tokens.unsqueeze(0), self.columns(len(tokens)))
        run = enclose(self.graphs[len(tokens)], at, self.given.question(len(tokens)))
        low, high = run(tokens.unsqueeze(0), answers)
        return float(low[0].nan_to_num(-math.inf)), float(high[0].nan_to_num(math.inf))

    def run_one(self, tokens: Tensor) -> tuple[Tensor, list[int]]:
        """The logits (questions, classes) as torch runs it on this input alone, and the labels of the classes."""
        with torch.no_grad():
            output = self.module(tokens.unsqueeze(0)).double()
        classes = list(self.given.classes or range(output.shape[-1]))
        return self.given.question(len(tokens)).logits(Ball(output)).mid, classes

    def _run_one(self, tokens: Tensor) -> tuple[list[float], list[int], list[int]]:
        """The margins as torch runs it on this input alone, the labels that are right, and those that it says."""
        logits, classes = self.run_one(tokens)
        answers = self.given.answers(tokens.unsqueeze(0), self.columns(len(tokens)))[0]
        said = [classes[i] for i in logits.argmax(1).tolist()]
        return margins_of(logits, answers).tolist(), [classes[i] for i in answers.tolist()], said

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        """Runs one wrong input, and says what is proved where the module's own run differs from it."""
        tokens = torch.tensor(item)
        margins, right, said = self._run_one(tokens)
        margin, proved = min(margins), said
        if isinstance(reading, Real | Rounded):
            margin, proved = self._proved_answer(tokens, reading)
        one = len(right) == 1
        case: dict[str, object] = {
            "input": tokens.tolist(),
            "expected": right[0] if one else right,
            "predicted": proved[0] if one else proved,
        }
        if proved != said:
            case["module_answers"] = said[0] if one else said
        return Failure(case, margin if margin == margin else None)

    def _proved_answer(self, tokens: Tensor, reading: Real | Rounded) -> tuple[float, list[int]]:
        """The upper end of the margin, and at each position the rival with the largest lower end where it is wrong."""
        length = len(tokens)
        judge = self.judge(length, reading)
        answers = self.given.answers(tokens.unsqueeze(0), self.columns(length))
        high = judge.bounds(tokens.unsqueeze(0), answers, Deadline.never()).high
        question = self.given.question(length)

        def middle(output: Ball, _: Tensor, right: Tensor) -> tuple[Tensor]:
            return (question.logits(output).mid,)

        (logits,) = enclose(self.graphs[length], Arithmetic(), middle)(tokens.unsqueeze(0), answers)
        gap = margins_of(logits[0], answers[0])
        rival = logits[0].scatter(1, answers[0].unsqueeze(1), -torch.inf).argmax(1)
        is_wrong = gap <= gap.amin().clamp(min=0)  # the least margin is proved not to be positive
        found = torch.where(is_wrong, rival, answers[0])
        classes = list(self.given.classes or range(self.columns(length)))
        return float(high[0]), [classes[i] for i in found.tolist()]
