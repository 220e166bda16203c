"""Erratum E-2: which conventions for a softmax that is 0/0 save the printed addresses of NOT gates, by running them."""

import itertools

import numpy as np
import pytest
from oracles.circuit import DATA

from constructions.circuit_simulation import build
from constructions.circuits import machine
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.circuits.files import read_circuit

XOR = Circuit("xor", ("x", "y"), (Gate("xor", (0, 1), "z"),), (("z", 2),))


def wrong_rows(circuit, s, convention, monkeypatch):
    """How many inputs get a wrong token when `convention(bits, values)` is retrieved where the softmax is 0/0."""
    original = machine.attend

    def attend(bits, q, keys, values):
        mixed, is_zero_over_zero = original(bits, q, keys, values)
        replaced = np.where(is_zero_over_zero, convention(bits, values), mixed).astype(mixed.dtype)
        return replaced, np.zeros(mixed.shape, bool)

    gates = decompose(circuit).circuit
    prompts = np.array(list(itertools.product((0, 1), repeat=len(gates.inputs))))
    due = []
    for prompt in prompts:
        tokens = prompt.tolist()
        for gate in gates.gates:
            first, last = (tokens[i] for i in (gate.fan_in[0], gate.fan_in[-1]))
            tokens.append(1 - first if gate.kind == "not" else first & last)
        due.append(tokens)
    with monkeypatch.context() as patched:
        if convention is not None:
            patched.setattr(machine, "attend", attend)
        said = machine.ConstantBitMachine(build(gates, s=s, as_printed=True)).generate(prompts)
    return int((said != np.array(due)).any(1).sum())


@pytest.mark.parametrize("s", [2, 3, 6])
@pytest.mark.parametrize("circuit", [XOR, read_circuit(str(DATA / "iscas85" / "c17.bench"))], ids=lambda c: c.name)
def test_a_retrieved_value_of_at_most_1_saves_the_printed_addresses_and_nan_does_not(circuit, s, monkeypatch):
    everything = 2 ** len(circuit.inputs)
    assert wrong_rows(circuit, s, None, monkeypatch) == everything
    for value in (0, 0.5, 1):
        assert wrong_rows(circuit, s, lambda bits, _, v=value: int(v * bits.one), monkeypatch) == 0
    assert wrong_rows(circuit, s, lambda bits, _: 2 * bits.one, monkeypatch) == everything
    summed = wrong_rows(circuit, s, lambda bits, values: np.minimum(values.sum(1), bits.largest), monkeypatch)
    assert summed > 0  # every weight 1: the values' sum exceeds 1
