"""How a circuit's certificate is printed, and its chain of thought, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from verify.arithmetic.outward import below
from verify.frame.certificate import Verdict

if TYPE_CHECKING:
    from constructions.circuits.circuit import Decomposition
    from verify.arithmetic.formats import Format
    from verify.arithmetic.readings import Real, Rounded
    from verify.frame.certificate import Certificate
    from verify.report.certificate import Fact
    from verify.tasks.circuit.model import CircuitModel


class ChainStep(TypedDict):
    """One step of a chain of thought: a gate, and the token that stands for its value."""

    step: int
    gate: str
    kind: str
    reads: list[str]
    token: int | None


def format_of(reading: Real | Rounded) -> tuple[Format | None, Format | None]:
    """The format of a reading and that of its sums; None for real arithmetic."""
    from verify.arithmetic.readings import Rounded

    return (reading.format, reading.accumulate) if isinstance(reading, Rounded) else (None, None)


def chain_of_thought(
    model: CircuitModel, decomposition: Decomposition, s: int, bits: list[int], reading: Real | Rounded | None = None
) -> tuple[list[ChainStep], dict[str, int | None]]:
    """Every step of one run as a row, and the outputs by name."""
    import numpy as np

    from constructions.circuits.machine import ConstantBitMachine
    from verify.tasks.circuit.forward import generate

    circuit = decomposition.circuit
    if reading is None:
        tokens = [int(t) for t in ConstantBitMachine(model, s).generate(np.array([bits]))[0]]
    else:
        tokens = [int(t) for t in generate(model, *format_of(reading), np.array(circuit.evaluate(bits)))]
    value = {node: None if token < 0 else token for node, token in enumerate(tokens)}
    steps: list[ChainStep] = [
        {
            "step": j + 1,
            "gate": gate.name,
            "kind": gate.kind,
            "reads": [circuit.name_of(node) for node in gate.fan_in],
            "token": value[len(circuit.inputs) + j],
        }
        for j, gate in enumerate(circuit.gates)
    ]
    return steps, {name: value[node] for name, node in circuit.outputs}


def print_chain(steps: list[ChainStep], outputs: dict[str, int | None]) -> None:
    for step in steps:
        definition = f"{step['gate']} = {step['kind'].upper()} {' '.join(step['reads'])}"
        print(f"{step['step']:>6}  {step['token']}  {definition}")
    print("outputs " + " ".join(f"{name}={value}" for name, value in outputs.items()))


def print_certificate(certificate: Certificate, wrote: list[Fact]) -> None:
    """Prints the chain of thought where there is one, and the certificate in a circuit's own words."""
    from verify.report.certificate import print_report

    if "chain" in certificate.extra:
        print_chain(certificate.extra["chain"], certificate.extra["outputs"])
    facts = [*_model_facts(certificate), *_outcome_facts(certificate), *_run_facts(certificate), *wrote]
    print_report(certificate, facts, covers=f"{_power(certificate.inputs_covered or 0)} inputs")


def _power(covered: int) -> str:
    """A number of inputs, from 10^9 on as a power of two."""
    if covered < 10**9:
        return str(covered)
    return f"{'about ' if covered & (covered - 1) else ''}2^{covered.bit_length() - 1}"


def _model_facts(certificate: Certificate) -> Iterator[Fact]:
    p, extra = certificate.parameters, certificate.extra
    yield "task", f"{certificate.task}, {p['circuit']}"
    yield "circuit", f"{extra['statistics']['gates']} gates; {p['n']} inputs, {p['T']} steps"
    yield "model", f"width {p['d']} = 3k+6 (k={p['k']}), s={p['s']} bits"
    if "accumulate" in p:
        sums = "" if p["accumulate"] == p["precision"] else f", sums in {p['accumulate']}"
        yield "format", p["precision"] + sums
    if "language" in extra:
        yield "language", extra["language"]


def _outcome_facts(certificate: Certificate) -> Iterator[Fact]:
    p, extra, found = certificate.parameters, certificate.extra, certificate.counterexample
    if certificate.verdict is Verdict.PROVED:
        yield from _margin_fact(certificate.margin)
    if found is not None:
        yield "gate", f"{found['gate']} ({found['kind'].upper()}, step {found['step']})"
        computed = f"{found['computed']}, should be {found['expected']}"
        yield "counterexample", f"input {found['input']}: token {computed}"
        yield from [("run", found["run"])] if "run" in found else []
        yield from [("why", found["why"])] if found["why"] else []
    if extra.get("smallest_bits"):
        s = extra["smallest_bits"]
        yield "fewest", f"s={s}" + (f"; s < {s} refuted" if s > 1 else "; s=0 has no token 1")
    elif certificate.verdict is Verdict.PROVED and extra.get("smaller_bits"):
        open_ = ", ".join(str(smaller["s"]) for smaller in extra["smaller_bits"] if smaller["verdict"] == "UNKNOWN")
        yield "fewest", f"s={p['s']}, or one of s = {open_}, which stay open"


def _margin_fact(distance: float | None) -> Iterator[Fact]:
    """How far g stays from 1/2; the token 0 allows g = 1/2, and then there is no number."""
    if distance is None:
        yield "margin", "g may be 1/2 itself where the token is 0, which is above 1/2 only for 1"
    elif distance > 0:
        yield "margin", f"g stays at least {below(distance)} from 1/2"


def _run_facts(certificate: Certificate) -> Iterator[Fact]:
    extra, runs = certificate.extra, certificate.extra["forward_runs"]
    if runs["inputs"]:
        how = f" in {runs['run']}" if "run" in runs else ""
        yield "runs", f"{runs['inputs']} inputs{' (all)' if runs['all'] else ''}{how}, no wrong token"
    if extra.get("harmless_differences"):
        yield "harmless", f"{extra['harmless_differences']} steps, for bits no input brings"
