"""Decides whether a circuit transformer's chain of thought is the circuit, for all 2^n inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from constructions.circuit_simulation import CircuitTransformer, Layer, build
from constructions.circuits.circuit import Circuit, Decomposition
from constructions.circuits.machine import UNDEFINED, ConstantBitMachine
from constructions.constant_bits.arithmetic import MAX_BITS
from constructions.errors import BadInput
from verify.certificate import READING_BIT_EXACT, Certificate, Verdict
from verify.circuit.refutation import (
    EXHAUSTIVE_INPUTS,
    InputFinder,
    Reach,
    cone_of,
    evaluate_cone,
    exhaustive_words,
    random_words,
)
from verify.circuit.retrieval import TooManyPairs
from verify.circuit.steps import Fault, Opaque, Steps
from verify.judged import check_judged, unparametrized

PARTS = {"layers": nn.ModuleList, "layers.0": Layer, "layers.1": Layer}
METHODS = ("certified", "exhaustive", "sampled")
CLAIM = "E-3.4"
BATCH_TOKENS = 2**26  # tokens of one batch of forward runs: about 200 MiB with their values
MAX_FAULTS = 1000  # steps that differ on paper and for which an input is looked for
ASSUMPTIONS = (
    "the weights are the stored ones, rounded once to s bits",
    "constant-bit arithmetic: s integer and s fractional bits, rounded after every operation, ties to the "
    "smaller magnitude, saturating at B_s; sums left to right, the bias last",
    "the next token is 1 where coordinate g exceeds 1/2; a softmax 0/0 has no token, nor has any later step",
    "right means: every token of the chain of thought is its gate's value",
)
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Shows no progress."""


@dataclass(frozen=True)
class Failure:
    """An input on which the module, run forward, computed a wrong token."""

    gate: int
    bits: tuple[int, ...]
    computed: int
    expected: int


def certify(
    model: CircuitTransformer,
    decomposition: Decomposition,
    *,
    s: int | None = None,
    method: str = "certified",
    runs: int = 0,
    seed: int = 0,
    progress: Progress = silent,
) -> Certificate:
    """The verdict on the stored weights: does each step compute its gate, on every input of the circuit?

    Claim: E-3.4. `certified` tabulates every step (verify.circuit.steps) and concludes by induction over the
    gates; a step that differs from its gate for bits that no input brings there is harmless. `exhaustive`
    runs all 2^n inputs, `sampled` some. `runs` further random inputs (all of them up to n = 16) are run
    forward and compared with the circuit as it was read.
    Raises: BadInput for an unknown method, or exhaustive beyond n = 16.

    >>> from constructions.circuits.circuit import Gate, decompose
    >>> nand = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    >>> certify(build(nand.circuit, s=2), nand).verdict
    <Verdict.PROVED: 'PROVED'>
    >>> certify(build(nand.circuit, s=1), nand).counterexample["input"]
    '11'
    """
    start = time.perf_counter()
    if method not in METHODS:
        raise BadInput(f"method={method!r}: must be one of {', '.join(METHODS)}")
    judge = _Judge(model, decomposition, s, seed, progress)
    certificate = judge.decide(method, runs)
    return replace(certificate, seconds=time.perf_counter() - start)


def smallest_bits(
    decomposition: Decomposition,
    *,
    runs: int = 0,
    seed: int = 0,
    progress: Progress = silent,
    decide: Callable[..., Certificate] = certify,
) -> tuple[CircuitTransformer, Certificate]:
    """The built transformer with the fewest bits that is proved, all fewer bits being refuted.

    The certificate's `smallest_bits` is None when some smaller s stayed undecided.
    """
    smaller: list[dict[str, Any]] = []
    for s in range(1, MAX_BITS + 1):
        model = build(decomposition.circuit, s=s)
        certificate = decide(model, decomposition, seed=seed, progress=progress)
        if certificate.verdict is Verdict.PROVED or s == MAX_BITS:
            break
        why = certificate.counterexample or certificate.reason
        smaller.append({"s": s, "verdict": certificate.verdict.value, "why": why})
    certificate = decide(model, decomposition, runs=runs, seed=seed, progress=progress) if runs else certificate
    is_smallest = all(entry["verdict"] == "REFUTED" for entry in smaller)
    is_proved = certificate.verdict is Verdict.PROVED
    extra = {"smallest_bits": s if is_proved and is_smallest else None, "smaller_bits": smaller}
    return model, replace(certificate, extra={**certificate.extra, **extra})


def check_sizes(model: CircuitTransformer, decomposition: Decomposition) -> None:
    """Raises: BadInput for the weights of another circuit, or a forward pass that is not the class's own."""
    check_judged(model, CircuitTransformer, PARTS)
    if len(model.layers) != len(model.both):
        raise BadInput(f"module.layers: has {len(model.layers)} layers, and two are run. Remove the others.")
    n, T = len(decomposition.circuit.inputs), len(decomposition.circuit.gates)
    if (model.n, model.T) != (n, T):
        raise BadInput(f"weights for n={model.n}, T={model.T}: circuit {decomposition.original.name} has n={n}, T={T}")


def parameters(model: CircuitTransformer, decomposition: Decomposition, s: int) -> dict[str, Any]:
    """The sizes that a certificate names."""
    lanes = model.lanes
    return {
        "circuit": decomposition.original.name,
        "s": s,
        "n": model.n,
        "T": model.T,
        "k": lanes.k,
        "d": lanes.d,
    }


class _Judge:
    """One module against one circuit."""

    def __init__(
        self,
        model: CircuitTransformer,
        decomposition: Decomposition,
        s: int | None,
        seed: int,
        progress: Progress,
    ) -> None:
        self.original, self.circuit = decomposition.original, decomposition.circuit
        self.decomposition, self.seed, self.progress = decomposition, seed, progress
        self.n, self.T = len(self.circuit.inputs), len(self.circuit.gates)
        check_sizes(model, decomposition)
        self.s = model.s if s is None else s
        self.model = unparametrized(model)
        self.runs: dict[str, Any] = {"inputs": 0, "all": False}
        self.machine: ConstantBitMachine

    def decide(self, method: str, runs: int) -> Certificate:
        if method == "exhaustive" and self.n > EXHAUSTIVE_INPUTS:
            raise BadInput(
                f"method=exhaustive: n={self.n} inputs are 2^{self.n} runs, "
                f"the most is n={EXHAUSTIVE_INPUTS}; use certified"
            )
        wrong = wrong_decomposition(self.decomposition)
        if wrong is not None:
            return self._unknown(method, f"the decomposition of gate {wrong} is wrong", 0)
        try:
            self.machine = ConstantBitMachine(self.model, self.s)
        except BadInput as error:
            return self._unknown(method, str(error), 0)
        if method == "exhaustive":
            failure = self._run(*exhaustive_words(self.n))
            return self._refuted(method, failure) if failure else self._proved(method)
        if method == "sampled":
            return self._sampled(method, max(runs, 64), "samples prove nothing")
        return self._certified(runs)

    def _certified(self, runs: int) -> Certificate:
        unreached: list[tuple[Fault, Reach]] = []
        try:
            finder: InputFinder | None = None
            for fault in self._faults():
                finder = finder or InputFinder(self.circuit, self.seed)
                found = finder.find(fault)
                if isinstance(found, list):
                    failure = self._run(found, 1)
                    if failure is not None:
                        return self._refuted("certified", failure, fault.why if fault.gate == failure.gate else None)
                    raise AssertionError(f"fault at gate {fault.gate} did not show when it was run")
                unreached.append((fault, found))
                if len(unreached) >= MAX_FAULTS:
                    return self._sampled("certified", 64, f"{MAX_FAULTS} steps differ from their gates")
        except (Opaque, TooManyPairs):
            return self._unstructured()
        open_ = [(fault, reach) for fault, reach in unreached if reach is not Reach.IMPOSSIBLE]
        if open_:
            fault, reach = open_[0]
            name = self.circuit.name_of(fault.gate)
            return self._sampled("certified", 64, f"gate {name}: {fault.why}, but {reach.value}")
        failure = self._forward(runs)
        if failure is not None:
            return self._refuted("certified", failure, "a forward run contradicts the certificate")
        return self._proved("certified", harmless=len(unreached))

    def _faults(self) -> Iterator[Fault]:
        steps = Steps(self.machine, lambda done, total: self.progress("steps", done, total))
        return steps.faults(self.circuit)

    def _unstructured(self) -> Certificate:
        """Weights whose steps cannot be tabulated: all inputs where they are few, else samples."""
        if self.n > EXHAUSTIVE_INPUTS:
            return self._sampled("certified", 64, "the steps read too many tokens to be tabulated")
        failure = self._run(*exhaustive_words(self.n))
        return self._refuted("certified", failure) if failure else self._proved("certified")

    def _sampled(self, method: str, samples: int, reason: str) -> Certificate:
        failure = self._run(*random_words(self.n, samples, self.seed))
        return self._refuted(method, failure) if failure else self._unknown(method, reason, samples)

    def _forward(self, runs: int) -> Failure | None:
        """Random inputs, or all of them when they are no more than 2^16."""
        if runs == 0:
            return None
        is_all = self.n <= EXHAUSTIVE_INPUTS
        words, mask = exhaustive_words(self.n) if is_all else random_words(self.n, runs, self.seed)
        self.runs = {"inputs": mask.bit_length(), "all": is_all}
        return self._run(words, mask)

    def _run(self, words: list[int], mask: int) -> Failure | None:
        """Runs inputs through the machine; the first wrong token, compared with both circuits."""
        count = mask.bit_length()
        wanted = self.circuit.evaluate(words, mask)
        self._compare_outputs(words, mask, wanted)
        batch = max(1, min(4096, BATCH_TOKENS // self.circuit.nodes))
        for start in range(0, count, batch):
            size = min(batch, count - start)
            expected = np.stack([unpack(word >> start, size) for word in wanted], axis=1)
            failure = self._run_batch(expected, start, count)
            if failure is not None:
                return failure
        return None

    def _compare_outputs(self, words: list[int], mask: int, wanted: list[int]) -> None:
        """The decomposed circuit must have the outputs of the circuit as it was read."""
        read = self.original.evaluate(words[: len(self.original.inputs)], mask)
        for (name, node), (_, mapped) in zip(self.original.outputs, self.circuit.outputs, strict=True):
            if read[node] != wanted[mapped]:
                raise AssertionError(f"output {name} was changed by the decomposition")

    def _run_batch(self, expected: np.ndarray[Any, Any], start: int, count: int) -> Failure | None:
        def is_wrong(m: int, tokens: np.ndarray[Any, Any]) -> bool:
            if m % 64 == 0:
                self.progress("forward runs", start * self.T + len(expected) * m, count * self.T)
            return bool((tokens[:, m] != expected[:, m]).any())

        tokens = self.machine.generate(expected[:, : self.n], watch=is_wrong)
        for gate in range(self.n, self.n + self.T):
            rows = np.flatnonzero(tokens[:, gate] != expected[:, gate])
            if len(rows):
                row = int(rows[0])
                bits = tuple(int(bit) for bit in expected[row, : self.n])
                return Failure(gate, bits, int(tokens[row, gate]), int(expected[row, gate]))
        return None

    def _proved(self, method: str, harmless: int = 0) -> Certificate:
        return self._certificate(Verdict.PROVED, method, self._all_inputs(), harmless=harmless)

    def _all_inputs(self) -> int:
        return 1 << len(self.original.inputs)

    def _unknown(self, method: str, reason: str, covered: int) -> Certificate:
        return self._certificate(Verdict.UNKNOWN, method, covered, reason=reason)

    def _refuted(self, method: str, failure: Failure, why: str | None = None) -> Certificate:
        bits = "".join(map(str, failure.bits))
        counterexample = {
            "gate": self.circuit.name_of(failure.gate),
            "kind": self.circuit.gates[failure.gate - self.n].kind,
            "step": failure.gate - self.n + 1,
            "input": bits,
            "computed": None if failure.computed == UNDEFINED else failure.computed,
            "expected": failure.expected,
            "why": why,
        }
        return self._certificate(Verdict.REFUTED, method, 1, counterexample=counterexample)

    def _certificate(
        self, verdict: Verdict, method: str, covered: int, harmless: int = 0, **fields: Any
    ) -> Certificate:
        return Certificate(
            verdict=verdict,
            claim=CLAIM,
            task="circuit",
            parameters=parameters(self.model, self.decomposition, self.s),
            reading=READING_BIT_EXACT,
            method=method,
            inputs_covered=covered,
            assumptions=ASSUMPTIONS,
            extra={
                "statistics": self.original.statistics(),
                "forward_runs": self.runs,
                "harmless_differences": harmless,
            },
            **fields,
        )


def unpack(word: int, size: int) -> np.ndarray[Any, Any]:
    """The lowest bits of a word as an array of 0 and 1."""
    low = (word & ((1 << size) - 1)).to_bytes((size + 7) // 8, "little")
    return np.unpackbits(np.frombuffer(low, np.uint8), bitorder="little")[:size].astype(np.int8)


def wrong_decomposition(decomposition: Decomposition) -> str | None:
    """The first gate whose AND and NOT gates do not compute it on some input of the gate, or output astray.

    A node and its negation count as one variable, so that only possible cases are compared.
    """
    original, circuit, node_of = decomposition.original, decomposition.circuit, decomposition.node_of
    n = len(original.inputs)
    if node_of[:n] != tuple(range(n)) or circuit.inputs != (original.inputs or ("start",)):
        return "input"
    if circuit.outputs != tuple((name, node_of[node]) for name, node in original.outputs):
        return "output"
    for j, gate in enumerate(original.gates):
        leaves = [node_of[node] for node in gate.fan_in]
        known, mask = _leaf_words(circuit, leaves or [0])
        cone = cone_of(circuit, [node_of[n + j]], known)
        if any(node < len(circuit.inputs) and node not in known for node in cone):
            return gate.name
        value = evaluate_cone(circuit, cone, known, mask)[node_of[n + j]]
        one_gate = Circuit(
            "",
            tuple(map(str, range(len(leaves)))),
            (gate._replace(fan_in=tuple(range(len(leaves)))),),
            (("", len(leaves)),),
        )
        if value != one_gate.evaluate([known[leaf] for leaf in leaves], mask)[-1]:
            return gate.name
    return None


def _leaf_words(circuit: Circuit, leaves: list[int]) -> tuple[dict[int, int], int]:
    """Words that run through all values of the leaves; a NOT gate among them is tied to what it negates."""
    n = len(circuit.inputs)

    def negated(node: int) -> int | None:
        return circuit.gates[node - n].fan_in[0] if node >= n and circuit.gates[node - n].kind == "not" else None

    variables = list(dict.fromkeys(leaf if negated(leaf) is None else negated(leaf) for leaf in leaves))
    words, mask = exhaustive_words(len(variables))
    known = {node: word for node, word in zip(variables, words, strict=True) if node is not None}
    for leaf in leaves:
        other = negated(leaf)
        if other is not None:
            known[leaf] = known[other] ^ mask
    return known, mask
