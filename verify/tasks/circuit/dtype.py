"""Circuit transformers in the readings "dtype, any order" and "real", where every position leaks into every gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from constructions.circuits.circuit import Decomposition
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import Format
from verify.arithmetic.readings import Kernel, Real, Rounded
from verify.frame import decide
from verify.frame.certificate import Certificate
from verify.frame.clock import Budget, TimeIsUp
from verify.frame.decide import WRONG_BESIDE, Effort, Failure, Finding, contradicted
from verify.tasks.circuit.attention import UnboundedSteps
from verify.tasks.circuit.decomposition import wrong_decomposition
from verify.tasks.circuit.forward import (
    UNDECIDED,
    RealRun,
    WayOfRunning,
    inputs_run,
    next_g,
    runs_of,
    stored_weights,
    tokens_of,
)
from verify.tasks.circuit.proof import MAX_FAULTS, unpack
from verify.tasks.circuit.refutation import EXHAUSTIVE_INPUTS, InputFinder, WhyNone, exhaustive_words, random_words
from verify.tasks.circuit.rounding import RoundedSteps
from verify.tasks.circuit.steps import Fault
from verify.tasks.circuit.task import CircuitProblem, Progress, silent

if TYPE_CHECKING:
    from verify.tasks.circuit.model import CircuitModel

INDUCTION = "every step bounded in balls, induction over the gates"
SMALLEST = float(np.finfo(float).tiny)  # stands for a distance of zero, which the token 0 allows
MOST_INPUTS = 64  # random ones that are run when a failure is looked for
MOST_REACHED = 8  # besides those that bring undecided bits to a step


@dataclass(frozen=True)
class WrongStep:
    """A wrong step of one input, and how far g is on the wrong side of 1/2 (NaN where it is none)."""

    gate: int
    bits: tuple[int, ...]
    computed: int
    expected: int
    margin: float


def certify(
    model: CircuitModel,
    decomposition: Decomposition,
    *,
    fmt: Format | None,
    accumulate: Format | None = None,
    runs: int = 0,
    seed: int = 0,
    budget: float | Budget = 30.0,
    progress: Progress = silent,
) -> Certificate:
    """Decides the stored weights, rounded once to a format, in every order of evaluation; no format is real arithmetic.

    Claim: E-3.4, without its constant-bit arithmetic. Tokens are discrete, so that by induction over the gates all
    earlier ones are exactly 0 or 1; each step is then bounded on its own (verify.tasks.circuit.rounding). Steps that
    are not decided for bits that no input brings there are harmless; inputs that bring them are run.
    Raises: BadInput for weights of another circuit, or an accumulation with fewer bits than the format.

    >>> from constructions.circuits.circuit import Circuit, Gate, decompose
    >>> from constructions.circuit_simulation import build
    >>> from verify.arithmetic.formats import FORMATS
    >>> nand = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    >>> certify(build(nand.circuit, s=3), nand, fmt=FORMATS["bfloat16"]).verdict.value
    'PROVED'
    """
    reading = Real() if fmt is None else Rounded(fmt, accumulate)
    _ = arithmetic_of(reading)  # refuses an accumulation with fewer bits than the format
    problem = CircuitProblem.of(model, decomposition, prove, runs, progress)
    return decide.certify(problem, reading, Effort(budget, seed))


def run_by_torch(
    model: CircuitModel,
    decomposition: Decomposition,
    *,
    method: str,
    runs: int = 0,
    seed: int = 0,
    budget: float | Budget = 30.0,
    progress: Progress = silent,
) -> Certificate:
    """Runs the module as torch does, on every input or on sampled ones.

    Raises: BadInput where there are too many inputs.
    """
    problem = CircuitProblem.of(model, decomposition, prove, runs, progress)
    return decide.decide(problem, Kernel(), method, Effort(budget, seed, samples=max(runs, MOST_INPUTS)))


def arithmetic_of(reading: Real | Rounded) -> RoundedArithmetic:
    """Raises: BadInput for an accumulation with fewer bits than the format."""
    if isinstance(reading, Real):
        return RoundedArithmetic.real()
    return RoundedArithmetic.of(reading.format, reading.accumulate)


def prove(problem: CircuitProblem, reading: Real | Rounded, effort: Effort) -> Finding:
    """By bounding every step in balls and induction over the gates; else by running inputs."""
    return _RoundedProof(problem, reading, effort).find()


class _RoundedProof:
    """One module against one circuit in one reading."""

    def __init__(self, problem: CircuitProblem, reading: Real | Rounded, effort: Effort) -> None:
        self.problem, self.model, self.seed = problem, problem.model, effort.seed
        self.decomposition, self.circuit = problem.decomposition, problem.decomposition.circuit
        self.at, self.asked, self.progress = arithmetic_of(reading), problem.runs, problem.advance
        self.fmt = reading.format if isinstance(reading, Rounded) else None
        self.accumulate = reading.accumulate if isinstance(reading, Rounded) else None
        self.positions, self.deadline = self.circuit.nodes - 1, effort.deadline()

    def find(self) -> Finding:
        wrong = wrong_decomposition(self.decomposition)
        if wrong is not None:
            return Finding.open(INDUCTION, f"the decomposition of gate {wrong} is wrong")
        W = stored_weights(self.model, self.fmt)
        if not all(np.isfinite(w).all() for w in W.values()):
            return self._open("a weight is not a finite number of the format", [])
        if not self.circuit.gates:
            return self._proved(None, 0)
        try:
            steps = RoundedSteps(W, self.model.n, self.model.lanes, self.at, self._step)
            margins, of_right = steps.margins(self.circuit)
            open_ = np.flatnonzero(~(margins > 0))
            faults = (steps.fault(self.circuit, int(step)) for step in open_[:MAX_FAULTS])
            reached, inputs = self._reachable(faults)
        except UnboundedSteps as undecided:
            return self._open(str(undecided), [])
        except TimeIsUp:
            return Finding.open(INDUCTION, "the budget ended before every step was bounded")
        if reached is None and len(open_) <= MAX_FAULTS:
            least = float(of_right.min(initial=0.5))  # also of steps that are open in cases that no input brings
            return self._proved(None if least <= SMALLEST else least, len(open_))
        if reached is None:
            return self._open(f"{len(open_)} steps are open, of which {MAX_FAULTS} are harmless", [])
        fault, reach = reached
        others = f", and {len(open_) - 1} more steps are open" if len(open_) > 1 else ""
        unknown = "" if isinstance(reach, list) else f", but {reach.value}"
        return self._open(f"gate {self.circuit.name_of(fault.gate)}: {fault.why}{unknown}{others}", inputs)

    def _step(self, done: int, total: int) -> None:
        self.problem.stepped(done, total, self.deadline)

    def _reachable(self, faults: Iterator[Fault]) -> tuple[tuple[Fault, list[int] | WhyNone] | None, list[list[int]]]:
        """The first fault that some input may reach, and inputs that reach some."""
        first, inputs, finder = None, [], None
        for fault in faults:
            self.deadline.check()
            finder = finder or InputFinder(self.circuit, self.seed)
            found = finder.find(fault)
            if found is WhyNone.IMPOSSIBLE:
                continue
            first = first or (fault, found)
            if isinstance(found, list):
                inputs.append(found)
            if len(inputs) >= MOST_REACHED:
                break
        return first, inputs

    def _open(self, reason: str, inputs: list[list[int]]) -> Finding:
        """Runs inputs that reach open steps, and random ones, where nothing is proved. A wrong token refutes."""
        n = self.model.n
        words, mask = exhaustive_words(n) if n <= 6 else random_words(n, MOST_INPUTS, self.seed)
        first = [sum(bits[node] << j for j, bits in enumerate(inputs)) for node in range(n)]
        words = [low | word << len(inputs) for low, word in zip(first, words, strict=True)]
        count, tried = len(inputs) + mask.bit_length(), []
        for run in runs_of(self.fmt, self.accumulate, self.positions):
            most = (1 << min(count, inputs_run(self.positions, run))) - 1
            if self.deadline.is_up():
                break
            try:
                failure = self._run(run, [word & most for word in words], most)
            except TimeIsUp:
                break
            tried.append(run.name)
            if failure is not None:
                return self._refuted(failure, run, reason)
        how = f"no input of up to {count} surely fails in {len(tried)} ways of running" if tried else "nothing was run"
        return Finding.open(INDUCTION, f"{reason}; {how}")

    def _proved(self, margin: float | None, harmless: int) -> Finding:
        """Beside the proof, inputs are run: all of them up to n = 16."""
        extra: dict[str, object] = {"harmless_differences": harmless}
        proof = Finding.proved(INDUCTION, margin, extra=extra)
        run = next(runs_of(self.fmt, self.accumulate, self.positions), None)
        if self.asked and run is not None:
            is_all = self.model.n <= EXHAUSTIVE_INPUTS and 2**self.model.n <= inputs_run(self.positions, run)
            words, mask = (
                exhaustive_words(self.model.n) if is_all else random_words(self.model.n, self.asked, self.seed)
            )
            ran = {"inputs": mask.bit_length(), "all": is_all, "run": run.name}
            try:
                failure = self._run(run, words, mask)
            except TimeIsUp:  # every step is proved: what is run beside is not needed
                return proof
            if failure is not None:
                return contradicted(proof, WRONG_BESIDE.format("".join(map(str, failure.bits))))
            proof = replace(proof, extra=extra | {"forward_runs": ran})
        return proof

    def _run(self, run: WayOfRunning | RealRun, words: list[int], mask: int) -> WrongStep | None:
        """The first wrong token of a run on some inputs; nothing after an undecided one is known to be the first.

        Raises: TimeIsUp.
        """
        n, count = self.model.n, mask.bit_length()
        wanted = self.circuit.evaluate(words, mask)
        batch = max(1, 2**22 // self.circuit.nodes)
        for start in range(0, count, batch):
            self.progress("forward runs", start, count)
            size = min(batch, count - start)
            right = np.stack([unpack(word >> start, size) for word in wanted], axis=1).astype(np.int64)
            g = next_g(self.model, self.fmt, run, right[:, :-1], self.deadline.check)
            computed = tokens_of(g)
            is_other = (computed != right[:, 1:])[:, n - 1 :]
            is_open = np.logical_or.accumulate((computed == UNDECIDED)[:, n - 1 :], axis=1)
            is_wrong = is_other & ~is_open
            if is_wrong.any():
                row = int(is_wrong.any(1).argmax())
                gate = n + int(is_wrong[row].argmax())
                expected, found = int(right[row, gate]), g[row, gate - 1]
                margin = float(found.upper - 0.5 if expected else 0.5 - found.lower) if found.rad else None
                margin = float(found.mid - 0.5 if expected else 0.5 - found.mid) if margin is None else margin
                bits = tuple(int(x) for x in right[row, :n])
                return WrongStep(gate, bits, int(computed[row, gate - 1]), expected, margin)
        return None

    def _refuted(self, wrong: WrongStep, run: WayOfRunning | RealRun, why: str) -> Finding:
        found = self.problem.counterexample(wrong.bits, wrong.gate, wrong.computed, wrong.expected)
        margin = wrong.margin if wrong.margin == wrong.margin else None
        return Finding.refuted("a run in this reading", Failure(found | {"why": why, "run": run.name}, margin))
