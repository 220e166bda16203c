"""Circuit transformers in the readings "dtype, any order" and "real", where every position leaks into every gate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from constructions.circuit_simulation import CircuitTransformer
from constructions.circuits.circuit import Decomposition
from verify.arithmetic.any_order import Arithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.contract import Contract
from verify.arithmetic.formats import Array, Format
from verify.arithmetic.torch_settings import warn_if_lowered
from verify.certificate import READING_DTYPE, READING_REAL, Certificate, Verdict
from verify.circuit.attention import Undecided
from verify.circuit.forward import UNDECIDED, RealRun, Run, inputs_run, next_tokens, runs_of, stored_weights
from verify.circuit.refutation import EXHAUSTIVE_INPUTS, InputFinder, Reach, exhaustive_words, random_words
from verify.circuit.rounding import RoundedSteps
from verify.circuit.steps import Fault
from verify.circuit.verdict import (
    CLAIM,
    MAX_FAULTS,
    Failure,
    Progress,
    check_sizes,
    parameters,
    silent,
    unpack,
    wrong_decomposition,
)
from verify.judged import unparametrized

MOST_INPUTS = 64  # random ones that are run when a failure is looked for
MOST_REACHED = 8  # besides those that bring undecided bits to a step
REAL = Format("real", 1024, -1022, float(np.finfo(float).max))  # rounds less than any number that is computed here


class RealArithmetic(Arithmetic):
    """No operation rounds."""

    def result(self, x: Ball) -> Ball:
        return x

    def factors(self, low: Array, high: Array) -> tuple[Array, Array]:
        return low, high

    def as_operand(self, x: Ball) -> Ball:
        return x


CONTRACT = Contract(sums="the partial results of one sum are in at most three formats", is_exp_small=True)


@dataclass(frozen=True)
class Reading:
    """How numbers are computed: in a format whose matrix products may be summed in a wider one, or not rounded."""

    fmt: Format | None
    accumulate: Format | None = None

    @property
    def arithmetic(self) -> Arithmetic:
        """Raises: BadInput for an accumulation with fewer bits than the format."""
        return RealArithmetic(REAL, REAL, REAL) if self.fmt is None else Arithmetic.of(self.fmt, self.accumulate)

    @property
    def name(self) -> str:
        return READING_REAL if self.fmt is None else READING_DTYPE

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the certificate takes for granted; docs/precision.md says it in full."""
        right = (
            "the next token is 1 where coordinate g exceeds 1/2",
            "right means: every token of the chain of thought is its gate's value",
        )
        if self.fmt is None:
            return ("the weights are the stored ones, in real arithmetic, with a softmax that is never 0", *right)
        return (*CONTRACT.text(self.fmt, self.accumulate), *right)


def certify(
    model: CircuitTransformer,
    decomposition: Decomposition,
    *,
    fmt: Format | None,
    accumulate: Format | None = None,
    runs: int = 0,
    seed: int = 0,
    progress: Progress = silent,
) -> Certificate:
    """Decides the stored weights, rounded once to a format, in every order of evaluation; no format is real arithmetic.

    Claim: E-3.4, without its constant-bit arithmetic. Tokens are discrete, so that by induction over the gates all
    earlier ones are exactly 0 or 1; each step is then bounded on its own (verify.circuit.rounding). Steps that are
    not decided for bits that no input brings there are harmless; inputs that bring them are run.
    Raises: BadInput for weights of another circuit, or an accumulation with fewer bits than the format.

    >>> from constructions.circuits.circuit import Circuit, Gate, decompose
    >>> from constructions.circuit_simulation import build
    >>> from verify.arithmetic.formats import FORMATS
    >>> nand = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    >>> certify(build(nand.circuit, s=3), nand, fmt=FORMATS["bfloat16"]).verdict.value
    'PROVED'
    """
    if fmt is not None:
        warn_if_lowered(fmt)
    judge = _Judge(model, decomposition, Reading(fmt, accumulate), runs, seed, progress)
    return judge.decide()


class _Judge:
    """One module against one circuit in one reading."""

    def __init__(
        self,
        model: CircuitTransformer,
        decomposition: Decomposition,
        reading: Reading,
        runs: int,
        seed: int,
        progress: Progress,
    ) -> None:
        check_sizes(model, decomposition)
        self.model, self.decomposition, self.circuit = unparametrized(model), decomposition, decomposition.circuit
        self.reading, self.at = reading, reading.arithmetic
        self.asked, self.seed, self.progress, self.start = runs, seed, progress, time.perf_counter()
        self.runs: dict[str, Any] = {"inputs": 0, "all": False}
        self.positions = self.circuit.nodes - 1

    def decide(self) -> Certificate:
        wrong = wrong_decomposition(self.decomposition)
        if wrong is not None:
            return self._certificate(Verdict.UNKNOWN, 0, reason=f"the decomposition of gate {wrong} is wrong")
        W = stored_weights(self.model, self.reading.fmt)
        if not all(np.isfinite(w).all() for w in W.values()):
            return self._open("a weight is not a finite number of the format", [])
        if not self.circuit.gates:
            return self._proved(None, 0)
        try:
            with np.errstate(all="ignore"):  # overflow and NaN decide nothing: every test is false for them
                steps = RoundedSteps(W, self.model.n, self.model.lanes, self.at, self._step)
                margins = steps.margins(self.circuit)
                open_ = np.flatnonzero(~(margins > 0))
                faults = (steps.fault(self.circuit, int(step)) for step in open_[:MAX_FAULTS])
                reached, inputs = self._reachable(faults)
        except Undecided as undecided:
            return self._open(str(undecided), [])
        if reached is None and len(open_) <= MAX_FAULTS:
            return self._proved(float(margins[margins > 0].min(initial=0.5)), len(open_))
        if reached is None:
            return self._open(f"{len(open_)} steps are open, of which {MAX_FAULTS} are harmless", [])
        fault, reach = reached
        others = f", and {len(open_) - 1} more steps are open" if len(open_) > 1 else ""
        unknown = "" if isinstance(reach, list) else f", but {reach.value}"
        return self._open(f"gate {self.circuit.name_of(fault.gate)}: {fault.why}{unknown}{others}", inputs)

    def _step(self, done: int, total: int) -> None:
        self.progress("steps", done, total)

    def _reachable(self, faults: Iterator[Fault]) -> tuple[tuple[Fault, list[int] | Reach] | None, list[list[int]]]:
        """The first fault that some input may reach, and inputs that reach some."""
        first, inputs, finder = None, [], None
        for fault in faults:
            finder = finder or InputFinder(self.circuit, self.seed)
            found = finder.find(fault)
            if found is Reach.IMPOSSIBLE:
                continue
            first = first or (fault, found)
            if isinstance(found, list):
                inputs.append(found)
            if len(inputs) >= MOST_REACHED:
                break
        return first, inputs

    def _open(self, reason: str, inputs: list[list[int]]) -> Certificate:
        """What is not proved: inputs that reach open steps, and random ones, are run; a wrong token refutes."""
        n = self.model.n
        words, mask = exhaustive_words(n) if n <= 6 else random_words(n, MOST_INPUTS, self.seed)
        first = [sum(bits[node] << j for j, bits in enumerate(inputs)) for node in range(n)]
        words = [low | word << len(inputs) for low, word in zip(first, words, strict=True)]
        count, tried = len(inputs) + mask.bit_length(), []
        for run in runs_of(self.reading.fmt, self.reading.accumulate, self.positions):
            most = (1 << min(count, inputs_run(self.positions, run))) - 1
            tried.append(run.name)
            failure = self._run(run, [word & most for word in words], most)
            if failure is not None:
                return self._refuted(failure, run, reason)
        how = f"no input of up to {count} surely fails in {len(tried)} ways of running" if tried else "nothing was run"
        return self._certificate(Verdict.UNKNOWN, 0, reason=f"{reason}; {how}")

    def _proved(self, margin: float | None, harmless: int) -> Certificate:
        """Beside the proof, inputs are run: all of them up to n = 16."""
        run = next(runs_of(self.reading.fmt, self.reading.accumulate, self.positions), None)
        if self.asked and run is not None:
            is_all = self.model.n <= EXHAUSTIVE_INPUTS and 2**self.model.n <= inputs_run(self.positions, run)
            words, mask = (
                exhaustive_words(self.model.n) if is_all else random_words(self.model.n, self.asked, self.seed)
            )
            self.runs = {"inputs": mask.bit_length(), "all": is_all, "run": run.name}
            failure = self._run(run, words, mask)
            if failure is not None:
                return self._refuted(failure, run, "a forward run contradicts the certificate")
        covered = 1 << len(self.decomposition.original.inputs)
        return self._certificate(Verdict.PROVED, covered, harmless, margin=margin)

    def _run(self, run: Run | RealRun, words: list[int], mask: int) -> Failure | None:
        """The first wrong token of a run on some inputs; nothing after an undecided one is known to be the first."""
        n, count = self.model.n, mask.bit_length()
        wanted = self.circuit.evaluate(words, mask)
        batch = max(1, 2**22 // self.circuit.nodes)
        for start in range(0, count, batch):
            self.progress("forward runs", start, count)
            size = min(batch, count - start)
            right = np.stack([unpack(word >> start, size) for word in wanted], axis=1).astype(np.int64)
            computed = next_tokens(self.model, self.reading.fmt, run, right[:, :-1])
            is_other = (computed != right[:, 1:])[:, n - 1 :]
            is_open = np.logical_or.accumulate((computed == UNDECIDED)[:, n - 1 :], axis=1)
            is_wrong = is_other & ~is_open
            if is_wrong.any():
                row = int(is_wrong.any(1).argmax())
                gate = n + int(is_wrong[row].argmax())
                return Failure(
                    gate, tuple(int(x) for x in right[row, :n]), int(computed[row, gate - 1]), int(right[row, gate])
                )
        return None

    def _refuted(self, failure: Failure, run: Run | RealRun, why: str) -> Certificate:
        counterexample = {
            "gate": self.circuit.name_of(failure.gate),
            "kind": self.circuit.gates[failure.gate - self.model.n].kind,
            "step": failure.gate - self.model.n + 1,
            "input": "".join(map(str, failure.bits)),
            "computed": failure.computed,
            "expected": failure.expected,
            "why": why,
            "run": run.name,
        }
        return self._certificate(Verdict.REFUTED, 1, counterexample=counterexample)

    def _certificate(self, verdict: Verdict, covered: int, harmless: int = 0, **fields: Any) -> Certificate:
        sizes = parameters(self.model, self.decomposition, self.model.s)
        if self.reading.fmt is not None:
            sizes |= {"precision": self.reading.fmt.name, "accumulate": self.at.inner.name}
        return Certificate(
            verdict=verdict,
            claim=CLAIM,
            task="circuit",
            parameters=sizes,
            reading=self.reading.name,
            method="certified",
            inputs_covered=covered,
            assumptions=self.reading.assumptions,
            extra={
                "statistics": self.decomposition.original.statistics(),
                "forward_runs": self.runs,
                "harmless_differences": harmless,
            },
            seconds=time.perf_counter() - self.start,
            **fields,
        )
