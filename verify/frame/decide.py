"""The one place that makes certificates: a problem is proved, or run, and every failure is replayed.

A `Decidable` is one model with the inputs that it is to be right on. What is special about a task is there; the clock,
the verdict, the count of inputs and the meaning of every field are here, the same for all tasks (docs/certificate.md).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from verify.arithmetic.formats import KERNEL_NAMES, format_of
from verify.arithmetic.margins import OneRun
from verify.arithmetic.outward import decimal
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded, precision_of
from verify.arithmetic.torch_settings import lowered, warn_if_lowered
from verify.frame.arguments import check_whole_number
from verify.frame.certificate import CERTIFIED, EXHAUSTIVE, METHODS, SAMPLED, Certificate, Verdict
from verify.frame.clock import Budget, Clock, Deadline

if TYPE_CHECKING:
    import torch

SAMPLES = 1000
DRAWS = 20  # for each sample that is wanted, before a small domain counts as drawn
LARGEST_SIZE = 10**300  # that a float holds with room for seconds: no run is for more
LONGEST_WAIT = 86400.0  # a day: the longest budget that a message suggests
BESIDE = 0.1  # of a proof's own time is spent on runs beside it
LONGEST_BESIDE = 2048  # tokens of such a run: attention holds the square of it
FASTEST = 1e-10  # seconds that any run of one input takes at least
WARM = 0.2  # seconds of running, after which the time per input is a fair estimate
AT_A_TIME = 256  # samples that are run before the clock is looked at
EVERY_INPUT, DRAWN = "every input, run", "inputs drawn at random, run"
WRONG_BESIDE = "everything is proved right, and the module is wrong on {}"
BUG = "the proof and a run of the module disagree, which is a bug of weightproof: please report it with these weights"

Item = tuple[int, ...]  # what is run at once: a sequence, a string, the bits of an input
Batch = Any  # items of one length: a list of them, or a tensor with one in each row
Margins = np.ndarray  # (items, answers): (right logit) - (largest other) of each answer, NaN where a logit is


class Ran(NamedTuple):
    """What a run of some items gave: margins and which answers are wrong, (items, answers) each."""

    margins: Margins
    is_wrong: np.ndarray

    @classmethod
    def strictly(cls, margins: Margins) -> Ran:
        """Right means that the margin is above zero; NaN is wrong."""
        return cls(margins, ~(margins > 0))


Run = Callable[[Batch], Ran]


def silent(share: float) -> None:
    """Shows no progress."""


@dataclass(frozen=True)
class Effort:
    """How long to try: seconds for searches, a seed and a number for what is drawn, and where to report progress.

    Seconds are the machine's; those of a `Budget` are its clock's, and `Budget.counting` counts steps instead.
    """

    budget: float | Budget = 30.0
    seed: int = 0
    progress: Callable[[float], None] = silent
    samples: int = SAMPLES

    def __post_init__(self) -> None:
        Budget.of(self.budget)
        check_whole_number("seed", self.seed)

    @property
    def limit(self) -> Budget:
        """The budget with its clock, which `str` names."""
        return Budget.of(self.budget)

    @property
    def seconds(self) -> float:
        """The budget as a number."""
        return self.limit.seconds

    @property
    def clock(self) -> Clock:
        """What counts these seconds."""
        return self.limit.clock

    def deadline(self, share: float = 1.0) -> Deadline:
        """When this share of the budget is up, counted from now."""
        return self.limit.deadline(share)

    def end(self) -> Deadline:
        """When several searches together end, counted from now: never by steps, of which each search has its own."""
        return Deadline.never() if self.limit.steps else self.deadline()

    def share(self, share: float) -> Effort:
        """The same effort with this share of the budget, or of what is left of one that has begun.

        >>> Effort(budget=30).share(1 / 2).seconds
        15.0
        """
        limit = self.limit
        seconds = limit.seconds if limit.since is None else max(0.0, limit.deadline().left())
        return replace(self, budget=limit.of_seconds(seconds * share))

    def left(self, until: Deadline) -> Effort:
        """The same effort with what is left until then, at most the budget."""
        return replace(self, budget=self.limit.of_seconds(max(0.0, min(self.seconds, until.left()))))

    def begun(self) -> Effort:
        """The same effort, whose seconds count from now, or from when they began."""
        return replace(self, budget=self.limit.begun())

    def shares(self, number: int) -> Iterator[Effort]:
        """An effort for each of so many searches, asked for as each begins.

        Of seconds it is an equal part of what is left, so that all searches together keep the budget; of steps each
        search has its own, so that it ends at the same place whatever the others took.

        >>> looks = iter([0, 0, 1])
        >>> [of.seconds for of in Effort(Budget(10, lambda: next(looks))).shares(2)]
        [5.0, 9.0]
        """
        limit, until = self.limit, self.end()
        for left in range(number, 0, -1):
            if limit.steps:
                yield replace(self, budget=Budget.counting(limit.steps, limit.seconds))
            else:
                yield self.left(until).share(1 / left)


@dataclass(frozen=True)
class Failure:
    """An input on which the model is wrong, already replayed.

    `counterexample` has `input`, `expected`, `predicted` and what the task adds; `margin` is (logit of the right
    answer) - (largest other logit) there, zero or negative, None where a logit is not a number.
    """

    counterexample: dict[str, object]
    margin: float | None = None
    margin_exact: str | None = None


@dataclass(frozen=True)
class Finding:
    """What a proof found: right on the whole domain, wrong on an input, or open for a reason.

    `argument` says in a few words how; `about` is the problem that was decided where proving narrowed the domain.
    `telling` are items and answers that are run beside a proof first: the tightest of each kind of leaf.
    """

    verdict: Verdict
    argument: str
    margin: float | None = None
    margin_exact: str | None = None
    margin_per_count: tuple[float | None, ...] | None = None
    tightest: dict[str, object] | None = None
    failure: Failure | None = None
    reason: str | None = None
    error_share: tuple[Fraction, Fraction] | None = None
    about: Provable | None = None
    telling: tuple[tuple[Item, int], ...] = ()
    extra: dict[str, object] = field(default_factory=dict)

    @classmethod
    def proved(cls, argument: str, margin: float | None, **fields: Any) -> Finding:
        """Right everywhere; `margin` is a lower bound on all margins, None where their infimum is 0."""
        return cls(Verdict.PROVED, argument, margin=margin, **fields)

    @classmethod
    def refuted(cls, argument: str, failure: Failure, **fields: object) -> Finding:
        """Wrong on an input that was replayed."""
        margins = {"margin": failure.margin, "margin_exact": failure.margin_exact}
        return cls(Verdict.REFUTED, argument, **margins, failure=failure, **fields)  # type: ignore[arg-type]

    @classmethod
    def open(cls, argument: str, reason: str, **fields: Any) -> Finding:
        """Neither proved nor refuted."""
        return cls(Verdict.UNKNOWN, argument, reason=reason, **fields)


class Provable(Protocol):
    """A model and the inputs on which it is to be right, to be proved or refuted.

    `task` names the task, `claim` the claim that its weights come from.
    """

    task: str

    @property
    def claim(self) -> str | None:
        """The claim that the weights come from, where they come from one."""

    def parameters(self, reading: Reading) -> dict[str, object]:
        """What identifies the model's shape and the domain in a certificate."""

    def size(self) -> int | None:
        """How many inputs the domain has, None for infinitely many."""

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        """What a verdict in this reading takes for granted; BadInput where the task has no such reading."""

    def facts(self) -> dict[str, object]:
        """Further keys of the certificate, whatever the verdict."""

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        """Decides the whole domain at once, from the stored numbers."""

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        """Runs one answer beside a proof in this reading, and says what is known of its margin."""

    def length_of(self, item: Item) -> int:
        """How many tokens the module reads at once when an item is run."""


@runtime_checkable
class Decidable(Provable, Protocol):
    """A model that can also be run on inputs of its domain: what a task gives the house.

    Each item asks for one or more answers; `counts_answers` says whether each of them is an input of its own, as a
    pair of a string and a prompt is.
    """

    @property
    def counts_answers(self) -> bool:
        """Whether each answer of an item is an input of its own."""

    @property
    def runs_for_ever(self) -> bool:
        """Whether infinitely many inputs can all be run: until the module's state comes again."""

    def batches(self) -> Iterator[Batch]:
        """Every item; BadInput where they cannot all be run."""

    def draw(self, rng: random.Random) -> Item:
        """One item at random."""

    def smaller(self, item: Item) -> Iterator[Item]:
        """Simpler items of the domain, the simplest first, to shrink a failure to."""

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        """Runs batches of items as torch does, or in constant-bit arithmetic."""

    def first(self, batch: Batch, is_wrong: NDArray[np.bool_]) -> tuple[Any, Item, int]:
        """The simplest wrong answer of a batch, given (items, answers): something to compare by, the item, the answer.

        Batches come in order, so that only what is strictly simpler replaces what was found before.
        """

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        """Runs one wrong answer of an item and says what it is."""

    @property
    def dtype(self) -> torch.dtype | str:
        """In which the module's numbers are stored, and torch runs it; its name where there is no module yet."""

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        """Whether an answer that a run got wrong is so in real arithmetic, or the run is not that of the weights.

        False where the rounding of the run is all that is known. Raises: BadInput where nobody can tell.
        """


@dataclass(frozen=True)
class How:
    """The reading and the method that are asked for; no reading is the task's own default."""

    reading: Reading | None = None
    method: str = CERTIFIED


def decide(problem: Decidable, reading: Reading | None, method: str, effort: Effort) -> Certificate:
    """The certificate by one of METHODS.

    Raises: BadInput for another method, or a reading that task or method do not have.
    """
    if method not in METHODS:
        raise BadInput(f"method={method!r}: must be one of {', '.join(METHODS)}.")
    return {CERTIFIED: certify, EXHAUSTIVE: exhaustive, SAMPLED: sampled}[method](problem, reading, effort)


def certify(problem: Provable, reading: Reading | None = None, effort: Effort | None = None) -> Certificate:
    """Decides the problem on its whole domain, and runs telling inputs of a proof through the module.

    Raises: BadInput where the task has no such reading.
    """
    started, reading, effort = time.perf_counter(), reading or Real(), (effort or Effort()).begun()
    assumptions = problem.assumptions(reading)  # may trace the module, which takes time of its own
    if isinstance(reading, Rounded):
        warn_if_lowered(reading.format)
    with np.errstate(all="ignore"):  # overflow and NaN decide nothing: every test is false for them
        finding = problem.prove(reading, effort)
        if finding.verdict is Verdict.PROVED:
            finding = _compared(finding, problem, reading, (time.perf_counter() - started) * BESIDE)
    return _certificate(finding.about or problem, reading, CERTIFIED, finding, assumptions, started)


def _compared(finding: Finding, problem: Provable, reading: Reading, seconds: float) -> Finding:
    """The proof, or an open finding where a run of the module contradicts it."""
    about = finding.about or problem
    disagrees = _looked_at(about, finding, reading)
    if disagrees is None and isinstance(about, Decidable):
        disagrees = _ran_wrong(about, reading, seconds, [item for item, _ in finding.telling])
    if disagrees is None:
        return finding
    return contradicted(finding, disagrees)


def contradicted(proof: Finding, disagrees: str) -> Finding:
    """What is left of a proof that a run disagrees with: one of the two is wrong, so that neither is believed."""
    return Finding.open(proof.argument, f"{disagrees}: {BUG}", about=proof.about, extra=proof.extra)


def _looked_at(problem: Provable, finding: Finding, reading: Reading) -> str | None:
    """Looks at the telling answers one by one: what of the first is not as the proof says, if anything.

    A proof without a margin says that all are above 0.
    """
    proved = 0.0 if finding.margin is None else finding.margin
    for item, answer in finding.telling:
        if problem.length_of(item) <= LONGEST_BESIDE:
            disagrees = problem.look(item, answer, reading).contradicts(proved)
            if disagrees is not None:
                return f"on the input {list(item)}, answer {answer}: {disagrees}"
    return None


def _ran_wrong(problem: Decidable, reading: Reading, seconds: float, telling: Sequence[Item] = ()) -> str | None:
    """Runs the telling inputs, and drawn ones, 1, 2, 4, ... at a time while there is time: what is wrong, if anything.

    Where every order of rounding in the module's own dtype is proved right, a wrong run contradicts the proof, and so
    it does in constant-bit arithmetic, which has one run. Where real arithmetic is, a run may be wrong by its own
    rounding, so that a wrong answer is looked at without it.
    """
    if isinstance(problem.dtype, str) and isinstance(reading, Real):
        return None  # nothing but arrays, of which no module is made: they were looked at, exactly
    own = format_of(problem.dtype)
    is_own = isinstance(reading, Rounded) and reading.accumulate is None and reading.format == own
    if not isinstance(reading, ConstantBits) and (
        own.name not in KERNEL_NAMES or lowered(own) or not (is_own or isinstance(reading, Real))
    ):
        return None
    rng, started, done, at_once = random.Random(0), time.perf_counter(), 0, 1
    items, most = list(telling), 0 if isinstance(reading, ConstantBits) else SAMPLES
    try:
        run = problem.runner(reading if isinstance(reading, ConstantBits) else Kernel())
        while items or (done < most and time.perf_counter() - started < seconds):
            if not items:
                items, at_once = [problem.draw(rng) for _ in range(min(at_once, most - done))], 2 * at_once
                done += len(items)
            for batch in by_length(item for item in items if problem.length_of(item) <= LONGEST_BESIDE):
                is_wrong = run(batch).is_wrong
                if is_wrong.any():
                    _, item, answer = problem.first(batch, is_wrong)
                    if not isinstance(reading, Real) or problem.is_surely_wrong(item, answer):
                        return WRONG_BESIDE.format(list(item))
            items = []
    except BadInput:  # no input can be drawn or run, or nobody can tell
        return None
    return None


def is_wrong_exactly(problem: Decidable, item: Item, answer: int) -> bool:
    """Whether an answer is wrong in real arithmetic, of a problem whose replay in it is exact."""
    margin = problem.replay(item, answer, Real()).margin
    return margin is not None and margin <= 0


def is_wrong_in_its_ball(
    module: torch.nn.Module, tokens: Sequence[int], right: int, row: int = -1, **options: object
) -> bool:
    """Whether the answer is wrong in real arithmetic; or right in every order of rounding, so that the run was not of
    these weights.

    Raises: BadInput where the engine has no rule for an operation of the module.
    """
    from verify.frame.tracing import ends  # loads torch's tracer

    run_at_least, really_at_most = ends(module, tokens, right, row, **options)
    return really_at_most <= 0 or run_at_least > 0


def exhaustive(problem: Decidable, reading: Reading | None = None, effort: Effort | None = None) -> Certificate:
    """Runs the module on every input of the domain, as torch runs it or in constant-bit arithmetic.

    Of infinitely many inputs, only a problem that `runs_for_ever` can run all: until the module's state comes again.
    Raises: BadInput where the domain is infinite, or the run would outlast the budget.
    """
    ran, effort = running(reading, EXHAUSTIVE), effort or Effort()
    assumptions, started = problem.assumptions(ran), time.perf_counter()
    is_endless = problem.size() is None and isinstance(ran, Kernel) and problem.runs_for_ever
    with np.errstate(all="ignore"):  # as in `certify`
        finding = problem.prove(ran, effort) if is_endless else run_all(problem, ran, effort)
    return _certificate(problem, ran, EXHAUSTIVE, finding, assumptions, started)


def run_all(problem: Decidable, reading: Kernel | ConstantBits, effort: Effort) -> Finding:
    """Runs every item: all right, or the simplest wrong answer, and exact counts of right and wrong inputs.

    Raises: BadInput where the domain is infinite, or the run would outlast the budget.
    """
    size, warm = problem.size(), None
    if size is None:
        raise BadInput("method=exhaustive: the domain has infinitely many inputs. Use --method certified, or bounds.")
    run, best, margin = problem.runner(reading), None, float("inf")
    done = wrong = answers = wrong_answers = 0
    for batch in problem.batches():
        margins, is_wrong = run(batch)
        if is_wrong.any():
            found = problem.first(batch, is_wrong)
            best = found if best is None or found[0] < best[0] else best
        else:
            margin = min(margin, float(margins.min()))
        answers, wrong_answers = answers + margins.size, wrong_answers + int(is_wrong.sum())
        done += margins.size if problem.counts_answers else len(margins)
        wrong += int(is_wrong.sum() if problem.counts_answers else is_wrong.any(1).sum())
        if warm is None:  # the first batch takes longer than others: libraries load, caches fill
            warm = done, effort.clock()
        elif done < size:
            _check_time(done - warm[0], size, effort.clock() - warm[1], effort.limit)
        effort.progress(done / size)
    if done != size:
        raise AssertionError(f"the domain has {size} inputs, and {done} were run")
    share = Fraction(wrong_answers, max(answers, 1))
    extra: dict[str, object] = {"counts": {"right": decimal(size - wrong), "wrong": decimal(wrong)}}
    extra |= {} if problem.counts_answers else {"wrong_pairs": str(wrong_answers)}
    if best is None:
        return Finding.proved(EVERY_INPUT, margin or None, error_share=(share, share), extra=extra)
    failure = problem.replay(best[1], best[2], reading)
    failure.counterexample["is_smallest"] = True  # all were run
    return Finding.refuted(EVERY_INPUT, failure, error_share=(share, share), extra=extra)


def _check_time(done: int, size: int, seconds: float, limit: Budget) -> None:
    """Refuses a run that the time of `done` inputs, the first batch not among them, shows to outlast the budget."""
    needed, budget = seconds / max(done, 1) * min(size, LARGEST_SIZE), limit.seconds
    is_hopeless = min(size, LARGEST_SIZE) * FASTEST > budget
    if limit.steps is not None and needed > budget:
        raise BadInput(
            f"method=exhaustive: {decimal(size)} inputs take more than the {limit}. "
            "Use --method certified, or a larger --effort."
        )
    if needed > budget and (is_hopeless or seconds > min(WARM, budget)):
        wait = f", or --budget {needed * 1.5:.0f}" if needed <= LONGEST_WAIT else ""
        raise BadInput(
            f"method=exhaustive: {decimal(size)} inputs take about {readable_time(needed)} here, more than the budget "
            f"of {budget:g} s. Use --method certified{wait}."
        )


def sampled(problem: Decidable, reading: Reading | None = None, effort: Effort | None = None) -> Certificate:
    """Runs the module on different items drawn at random: a failure is shrunk and refutes, nothing is ever proved."""
    ran, effort = running(reading, SAMPLED), effort or Effort()
    assumptions, started = problem.assumptions(ran), time.perf_counter()
    finding = run_some(problem, ran, effort, _drawn(problem, effort))
    return _certificate(problem, ran, SAMPLED, finding, assumptions, started)


def run_some(
    problem: Decidable, reading: Kernel | ConstantBits, effort: Effort, items: Sequence[Item], argument: str = DRAWN
) -> Finding:
    """Runs these items until one fails or the budget ends, and shrinks a failure."""
    run, deadline, done = problem.runner(reading), effort.deadline(), 0
    parts = (batch[i : i + AT_A_TIME] for batch in by_length(items) for i in range(0, len(batch), AT_A_TIME))
    for part in parts:
        is_wrong, done = run(part).is_wrong, done + len(part)
        if is_wrong.any():
            _, item, answer = problem.first(part, is_wrong)
            item, answer = _shrunk(problem, run, item, answer)
            extra = {"samples": done}
            return Finding.refuted(argument, problem.replay(item, answer, reading), extra=extra)
        effort.progress(done / len(items))
        if deadline.is_up():
            break
    reason = f"no failure among {done} sampled inputs, and sampling never proves"
    return Finding.open(argument, reason, extra={"samples": done})


def _drawn(problem: Decidable, effort: Effort) -> list[Item]:
    """Different items, as many as are asked for, or as a small domain has."""
    rng, found, size = random.Random(effort.seed), dict[Item, None](), problem.size()
    wanted = effort.samples if size is None else min(effort.samples, size)
    for _ in range(DRAWS * effort.samples):
        found[problem.draw(rng)] = None
        if len(found) >= wanted:
            break
    return list(found)


def _shrunk(problem: Decidable, run: Run, item: Item, answer: int) -> tuple[Item, int]:
    """A wrong item none of whose simpler neighbours is wrong."""
    for simpler in problem.smaller(item):
        is_wrong = run([simpler]).is_wrong
        if is_wrong.any():
            _, simpler, answer = problem.first([simpler], is_wrong)
            return _shrunk(problem, run, simpler, answer)
    return item, answer


def by_length(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in batches of one length, the shortest first.

    >>> list(by_length([(1, 2), (), (3, 4)]))
    [[()], [(1, 2), (3, 4)]]
    """
    batches: dict[int, list[Item]] = {}
    for item in items:
        batches.setdefault(len(item), []).append(item)
    for length in sorted(batches):
        yield batches[length]


def first_in_order(batch: Batch, is_wrong: NDArray[np.bool_]) -> tuple[int, Item, int]:
    """The first wrong answer of the first wrong item; of two batches the earlier one stays first."""
    row = int(is_wrong.any(1).argmax())
    return 0, tuple(int(x) for x in batch[row]), int(is_wrong[row].argmax())


def running(reading: Reading | None, method: str) -> Kernel | ConstantBits:
    """The reading of a run: real stands for the kernel that torch uses here.

    Raises: BadInput for a dtype in any order, of which a run shows one.
    """
    if reading is None or isinstance(reading, Real):
        return Kernel()
    if not isinstance(reading, Kernel | ConstantBits):
        raise BadInput(
            f"method={method}: runs one kernel, not every order of --precision {reading.format.name}. "
            "Use --method certified, or leave --precision out."
        )
    return reading


def no_reading(reading: Reading, task: str, has: str) -> BadInput:
    """The refusal of a reading that a task does not have, in words that are the same for all tasks.

    >>> str(no_reading(ConstantBits(4), "parity", "real"))
    'precision=s4: parity is not decided in this reading. Use real.'
    """
    return BadInput(f"precision={precision_of(reading)}: {task} is not decided in this reading. Use {has}.")


def check_not_accumulated(reading: Reading, task: str) -> None:
    """Raises BadInput for sums in a wider format, where a task's proof has one format for all."""
    if isinstance(reading, Rounded) and reading.accumulate is not None:
        name = reading.accumulate.name
        raise BadInput(f"accumulate={name}: {task} is decided with every sum in one format. Leave it out.")


def readable_time(seconds: float) -> str:
    """Seconds in the unit that people use.

    >>> readable_time(90), readable_time(3e9)
    ('1.5 minutes', '95.1 years')
    """
    for unit, size in (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} seconds"


def _format(reading: Reading) -> dict[str, object]:
    """The format that every operation is rounded to, in a reading that has one, and that of sums where it is wider."""
    wider = reading.accumulate if isinstance(reading, Rounded) else None
    accumulate = {} if wider is None else {"accumulate": wider.name}
    return {} if isinstance(reading, Real | Kernel) else {"precision": precision_of(reading), **accumulate}


def _certificate(
    problem: Provable, reading: Reading, method: str, finding: Finding, assumptions: tuple[str, ...], started: float
) -> Certificate:
    verdict = finding.verdict
    return Certificate(
        verdict,
        problem.claim,
        problem.task,
        problem.parameters(reading) | _format(reading),
        reading.name,
        method,
        problem.size() if verdict is Verdict.PROVED else int(verdict is Verdict.REFUTED),
        argument=finding.argument,
        margin=finding.margin,
        margin_exact=finding.margin_exact,
        margin_per_count=finding.margin_per_count,
        tightest=finding.tightest,
        counterexample=None if finding.failure is None else finding.failure.counterexample,
        assumptions=assumptions,
        error_share=finding.error_share,
        reason=finding.reason,
        seconds=time.perf_counter() - started,
        extra=problem.facts() | finding.extra,
    )
