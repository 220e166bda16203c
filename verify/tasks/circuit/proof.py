"""Decides whether a circuit transformer's chain of thought is the circuit, for all 2^n inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from constructions.circuit_simulation_arrays import build
from constructions.circuits.circuit import Decomposition
from constructions.circuits.machine import ConstantBitMachine
from constructions.constant_bits.arithmetic import MAX_BITS
from constructions.errors import BadInput
from verify.arithmetic.readings import ConstantBits
from verify.frame import decide
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import Budget, TimeIsUp
from verify.frame.decide import WRONG_BESIDE, Effort, Finding, contradicted, run_all, run_some
from verify.tasks.circuit.decomposition import wrong_decomposition
from verify.tasks.circuit.refutation import EXHAUSTIVE_INPUTS, InputFinder, WhyNone, exhaustive_words, random_words
from verify.tasks.circuit.retrieval import TooManyPairs
from verify.tasks.circuit.steps import Fault, Opaque, Steps
from verify.tasks.circuit.task import CircuitProblem, Progress, silent

if TYPE_CHECKING:
    from verify.tasks.circuit.model import CircuitModel

INDUCTION = "every step as a table, induction over the gates"
SEARCH = "a search among inputs, run"
FEWEST_SAMPLES = 64
UNLIMITED = Effort(budget=float("inf"))  # there are at most 2^16 inputs
MAX_FAULTS = 1000  # steps that differ on paper and for which an input is looked for


def certify(
    model: CircuitModel,
    decomposition: Decomposition,
    *,
    s: int | None = None,
    method: str = "certified",
    runs: int = 0,
    seed: int = 0,
    budget: float | Budget = 30.0,
    progress: Progress = silent,
) -> Certificate:
    """The verdict on the stored weights: does each step compute its gate, on every input of the circuit?

    Claim: E-3.4. `certified` tabulates every step (verify.tasks.circuit.steps) and concludes by induction over the
    gates; a step that differs from its gate for bits that no input brings there is harmless. `exhaustive`
    runs all 2^n inputs, `sampled` some. `runs` further random inputs (all of them up to n = 16) are run
    forward and compared with the circuit as it was read.
    Raises: BadInput for an unknown method, or exhaustive beyond n = 16 or `budget` seconds.

    >>> from constructions.circuits.circuit import Circuit, Gate, decompose
    >>> nand = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    >>> certify(build(nand.circuit, s=2), nand).verdict
    <Verdict.PROVED: 'PROVED'>
    >>> certify(build(nand.circuit, s=1), nand).counterexample["input"]
    '11'
    """
    problem = CircuitProblem.of(model, decomposition, prove, runs, progress)
    reading = ConstantBits(model.s if s is None else s)
    effort = Effort(budget, seed, progress=forward_runs(progress), samples=max(runs, FEWEST_SAMPLES))
    return decide.decide(problem, reading, method, effort)


def forward_runs(progress: Progress) -> Callable[[float], None]:
    """Reports the finished share of forward runs."""
    return lambda share: progress("forward runs", round(1000 * share), 1000)


def smallest_bits(
    decomposition: Decomposition,
    *,
    runs: int = 0,
    seed: int = 0,
    budget: float | Budget = 30.0,
    progress: Progress = silent,
    decide: Callable[..., Certificate] = certify,
) -> tuple[CircuitModel, Certificate]:
    """The built transformer with the fewest bits that is proved, all fewer bits being refuted, in one budget.

    The certificate's `smallest_bits` is None when some smaller s stayed undecided.
    """
    smaller: list[dict[str, object]] = []
    effort = Effort(budget)
    deadline = effort.deadline()
    for s in range(1, MAX_BITS + 1):  # no two models are held at once: each has tens of numbers for each gate
        model, left = build(decomposition.circuit, s=s), effort.left(deadline).budget
        certificate = decide(model, decomposition, runs=runs, seed=seed, budget=left, progress=progress)
        if certificate.verdict is Verdict.PROVED or s == MAX_BITS:
            break
        if deadline.is_up():
            certificate = _with_more_bits_open(certificate, s, effort.limit)
            break
        del model
        why = certificate.counterexample or certificate.reason
        smaller.append({"s": s, "verdict": certificate.verdict.value, "why": why})
    is_smallest = all(entry["verdict"] == "REFUTED" for entry in smaller)
    is_proved = certificate.verdict is Verdict.PROVED
    extra = {"smallest_bits": s if is_proved and is_smallest else None, "smaller_bits": smaller}
    return model, replace(certificate, extra={**certificate.extra, **extra})  # noqa: F821 (made by the last pass)


def _with_more_bits_open(certificate: Certificate, s: int, limit: Budget) -> Certificate:
    """What a search says that ended at s bits: that these do not suffice is no verdict on those that were to follow."""
    if certificate.verdict is not Verdict.REFUTED:
        return certificate
    reason = f"the {limit} ended when no more than {s} bits had been looked at, which do not suffice"
    return replace(
        certificate, verdict=Verdict.UNKNOWN, reason=reason, counterexample=None, margin=None, margin_exact=None,
        error_share=None, inputs_covered=0,
    )  # fmt: skip


def prove(problem: CircuitProblem, reading: ConstantBits, effort: Effort) -> Finding:
    """By tabulating every step and induction over the gates; else by running inputs."""
    wrong = wrong_decomposition(problem.decomposition)
    if wrong is not None:
        return Finding.open(INDUCTION, f"the decomposition of gate {wrong} is wrong")
    try:
        machine = ConstantBitMachine(problem.model, reading.s)
    except BadInput as error:
        return Finding.open(INDUCTION, str(error))
    return _BitsProof(problem, reading, machine, effort).find()


class _BitsProof:
    """One module against one circuit, in constant-bit arithmetic."""

    def __init__(
        self, problem: CircuitProblem, reading: ConstantBits, machine: ConstantBitMachine, effort: Effort
    ) -> None:
        self.problem, self.reading, self.machine, self.effort = problem, reading, machine, effort
        self.circuit, self.n = problem.decomposition.circuit, problem.model.n
        self.deadline = effort.deadline()
        self.timed = replace(problem, between=self.deadline.check)  # whose runs the deadline ends

    def find(self) -> Finding:
        unreached: list[tuple[Fault, WhyNone]] = []
        finder: InputFinder | None = None
        least: float | None = 0.5
        try:
            steps = Steps(self.machine, lambda done, total: self.problem.stepped(done, total, self.deadline))
            for block in steps.blocks(self.circuit):
                least = None if least is None or block.least is None else min(least, block.least)
                for fault in block.faults:
                    self.deadline.check()
                    finder = finder or InputFinder(self.circuit, self.effort.seed)
                    found = finder.find(fault)
                    if isinstance(found, list):
                        return self._refuted(fault, found)
                    unreached.append((fault, found))
                    if len(unreached) >= MAX_FAULTS:
                        return self._searched(f"{MAX_FAULTS} steps differ from their gates")
        except (Opaque, TooManyPairs):
            return self._unstructured()
        except TimeIsUp:
            return Finding.open(INDUCTION, "the budget ended before every step was looked at")
        open_ = [(fault, reach) for fault, reach in unreached if reach is not WhyNone.IMPOSSIBLE]
        if open_:
            fault, reach = open_[0]
            return self._searched(f"gate {self.circuit.name_of(fault.gate)}: {fault.why}, but {reach.value}")
        is_known = least is not None and not unreached  # where it is not, 0 is a lower bound all the same
        extra: dict[str, object] = {"harmless_differences": len(unreached)}
        proof = Finding.proved(INDUCTION, (least or None) if is_known else 0.0, extra=extra)
        return self._run_beside(proof) if self.problem.runs else proof

    def _refuted(self, fault: Fault, found: list[int]) -> Finding:
        """Runs the input that brings a fault's bits to its gate."""
        item = tuple(found)
        try:
            failure = self.timed.replay(item, 0, self.reading)
        except TimeIsUp:
            differs = f"gate {self.circuit.name_of(fault.gate)}: {fault.why}"
            return Finding.open(INDUCTION, f"{differs}, but the budget ended while an input that shows it was run")
        if failure.counterexample["computed"] == failure.counterexample["expected"]:
            raise AssertionError(f"fault at gate {fault.gate} did not show when it was run")
        if failure.counterexample["step"] == fault.gate - self.n + 1:
            failure.counterexample["why"] = fault.why
        return Finding.refuted(INDUCTION, failure)

    def _unstructured(self) -> Finding:
        """Weights whose steps cannot be tabulated: all inputs where they are few, else samples."""
        if self.n > EXHAUSTIVE_INPUTS:
            return self._searched("the steps read too many tokens to be tabulated")
        return run_all(self.problem, self.reading, UNLIMITED)

    def _searched(self, reason: str) -> Finding:
        """Samples, where nothing is proved and there is time for runs: a failure refutes."""
        try:
            found = self._run_on(random_words(self.n, FEWEST_SAMPLES, self.effort.seed))
        except TimeIsUp:
            return Finding.open(SEARCH, reason)
        return found if found.failure is not None else Finding.open(SEARCH, reason)

    def _run_beside(self, proof: Finding) -> Finding:
        """The proof, and random inputs, or all when they are no more than 2^16, run beside it while there is time."""
        is_all = self.n <= EXHAUSTIVE_INPUTS
        words = exhaustive_words(self.n) if is_all else random_words(self.n, self.problem.runs, self.effort.seed)
        try:
            found = self._run_on(words)
        except TimeIsUp:
            return proof
        if found.failure is not None:
            return contradicted(proof, WRONG_BESIDE.format(found.failure.counterexample["input"]))
        done = found.extra["samples"]
        ran = {"inputs": done, "all": is_all and done == words[1].bit_length()}
        return replace(proof, extra=proof.extra | {"forward_runs": ran})

    def _run_on(self, words: tuple[list[int], int]) -> Finding:
        return run_some(self.timed, self.reading, self.effort.left(self.deadline), items_of(*words), argument=SEARCH)


def items_of(words: list[int], mask: int) -> list[tuple[int, ...]]:
    """The inputs whose bits are in words, one for each bit of the mask.

    >>> items_of([0b10, 0b11], 0b11)
    [(0, 1), (1, 1)]
    """
    count = mask.bit_length()
    return [tuple(int(bit) for bit in row) for row in np.stack([unpack(word, count) for word in words], axis=1)]


def unpack(word: int, size: int) -> NDArray[np.int8]:
    """The lowest bits of a word as an array of 0 and 1."""
    low = (word & ((1 << size) - 1)).to_bytes((size + 7) // 8, "little")
    return np.unpackbits(np.frombuffer(low, np.uint8), bitorder="little")[:size].astype(np.int8)
