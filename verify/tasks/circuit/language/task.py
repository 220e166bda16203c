"""Decides whether an unrolled circuit accepts what its automaton accepts, for all strings of its length."""

from __future__ import annotations

from dataclasses import replace

from constructions.circuits.circuit import Circuit, apply_gate
from constructions.regular_language import DEAD, Automaton, Unrolling
from verify.arithmetic.outward import decimal
from verify.frame.certificate import Certificate, Verdict
from verify.tasks.circuit.refutation import cone_of

CLAIM = "E-3.5"


def wrong_position(unrolling: Unrolling) -> int | None:
    """The first position after which a state's node is not right for some string, n + 1 for the output.

    Induction over the positions: after t symbols the nodes of slice t are one-hot in the automaton's state
    (all zero in states that the slice leaves out). For every state that some string reaches and every
    symbol, the next slice is evaluated from the slice and the symbol's bits alone, all cases at once.

    >>> from constructions.regular_language import parity, unroll
    >>> wrong_position(unroll(parity(), 5)) is None
    True
    """
    automaton, circuit = unrolling.automaton, unrolling.circuit
    if len(circuit.inputs) != unrolling.n * unrolling.bits_per_symbol or len(unrolling.slices) != unrolling.n + 1:
        return 0
    states = {0}
    for t in range(1, unrolling.n + 1):
        cases = [(p, a) for p in sorted(states) for a in range(len(automaton.alphabet))]
        after = [DEAD if p == DEAD else automaton.step[p][a] for p, a in cases]
        known = _one_hot(unrolling.slices[t - 1], [p for p, _ in cases])
        for j in range(unrolling.bits_per_symbol):
            known[(t - 1) * unrolling.bits_per_symbol + j] = _word([a >> j & 1 for _, a in cases])
        wanted = _one_hot(unrolling.slices[t], after)
        if not _agrees(circuit, known, wanted, len(cases)):
            return t
        states = set(after)
    finals = sorted(states)
    known = _one_hot(unrolling.slices[-1], finals)
    wanted = {circuit.outputs[0][1]: _word([p in automaton.accepting for p in finals])}
    return None if _agrees(circuit, known, wanted, len(finals)) else unrolling.n + 1


def _one_hot(slice_: dict[int, int], states: list[int]) -> dict[int, int]:
    return {node: _word([state == q for state in states]) for q, node in slice_.items()}


def _word(bits: list[int] | list[bool]) -> int:
    return sum(int(bit) << j for j, bit in enumerate(bits))


def _agrees(circuit: Circuit, known: dict[int, int], wanted: dict[int, int], cases: int) -> bool:
    """Whether the wanted nodes have their words whenever the known nodes have theirs."""
    mask, n = (1 << cases) - 1, len(circuit.inputs)
    values = dict(known)
    for node in cone_of(circuit, wanted, known):
        if node not in values:
            if node < n:
                return False  # it depends on an input of another position
            kind, fan_in, _ = circuit.gates[node - n]
            values[node] = apply_gate(kind, [values[other] for other in fan_in], mask)
    return all(values[node] == word for node, word in wanted.items())


def accepted(automaton: Automaton, n: int) -> int:
    """How many strings of length n the automaton accepts, by dynamic programming.

    >>> from constructions.regular_language import parity
    >>> accepted(parity(), 64) == 2**63
    True
    """
    ways = {0: 1}
    for _ in range(n):
        after: dict[int, int] = {}
        for p, count in ways.items():
            for q in automaton.step[p]:
                if q != DEAD:
                    after[q] = after.get(q, 0) + count
        ways = after
    return sum(count for state, count in ways.items() if state in automaton.accepting)


def for_strings(certificate: Certificate, unrolling: Unrolling) -> Certificate:
    """The circuit's certificate, restated for the |alphabet|^n strings of the language.

    UNKNOWN when the unrolled circuit is not the automaton, or the counterexample encodes no string.

    >>> from constructions.circuit_simulation import build
    >>> from constructions.circuits.circuit import decompose
    >>> from constructions.regular_language import parity, unroll
    >>> from verify.tasks.circuit.proof import certify
    >>> unrolled = unroll(parity(), 3)
    >>> parts = decompose(unrolled.circuit)
    >>> found = for_strings(certify(build(parts.circuit), parts), unrolled)
    >>> found.verdict.value, found.inputs_covered, found.extra["accepted"]
    ('PROVED', 8, '4')
    """
    automaton, n = unrolling.automaton, unrolling.n
    position = None if certificate.verdict is Verdict.UNKNOWN else wrong_position(unrolling)
    strings = len(automaton.alphabet) ** n
    extra = {
        "language": f"{automaton.name} over {''.join(automaton.alphabet)}, {len(automaton.step)} states",
        "accepted": decimal(accepted(automaton, n)),
    }
    certificate = replace(
        certificate,
        claim=CLAIM,
        task="language",
        parameters={**certificate.parameters, "length": n, "alphabet": "".join(automaton.alphabet)},
        assumptions=(
            *certificate.assumptions,
            "the language is that of the automaton (automata-lib's for a regular expression)",
        ),
        extra={**certificate.extra, **extra},
    )
    if position is not None:
        return opened(certificate, f"the unrolled circuit is not the automaton at position {position}")
    size = len(automaton.alphabet)
    if size & (size - 1) or size == 1:  # some bits encode no string, so that counts of inputs are not counts of strings
        extra = {name: value for name, value in certificate.extra.items() if name != "counts"}
        certificate = replace(certificate, extra=extra, error_share=None)
    if certificate.verdict is Verdict.PROVED:
        return replace(certificate, inputs_covered=strings)
    if certificate.counterexample is not None:
        string = unrolling.decode(certificate.counterexample["input"])
        if string is None:
            bits = certificate.counterexample["input"]
            return opened(certificate, f"wrong on bits that encode no string: {bits}")
        return replace(certificate, counterexample={**certificate.counterexample, "string": string})
    return certificate


def opened(certificate: Certificate, reason: str) -> Certificate:
    """The certificate with nothing decided."""
    return replace(
        certificate,
        verdict=Verdict.UNKNOWN,
        reason=reason,
        counterexample=None,
        inputs_covered=0,
        margin=None,
        error_share=None,
        extra={name: value for name, value in certificate.extra.items() if name != "counts"},
    )
