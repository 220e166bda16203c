"""Regular languages: unrolled, proved, and compared with Python's own regular expressions and counting."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re

import numpy as np
import pytest
from models.selection import first

from constructions.circuits.circuit import decompose
from constructions.circuits.machine import ConstantBitMachine
from constructions.errors import BadInput
from constructions.regular_language import from_dfa_file, from_regex, majority, parity, unroll
from verify.frame.certificate import Verdict
from verify.tasks.circuit.language.task import accepted, for_strings, wrong_position
from verify.tasks.circuit.proof import smallest_bits

PARITY = "0*1(0|10*1)*"
# expressions that mean the same to Python's re
REGEXES = [
    (PARITY, "01"), ("(0|1)*101(0|1)*", "01"), ("(01)*", "01"), ("0{2,3}1+", "01"), ("(a|b|c)*abc", "abc"),
    ("a?b?c?d?e?", "abcde"), ("()", "01"), ("0", "01"), ("(x|y)*", "xy"), ("x*", "x"), ("(ab|ba)+c*", "abc"),
]  # fmt: skip


@pytest.mark.parametrize("regex, alphabet", first(4, REGEXES))
@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_every_short_string_against_re(regex, alphabet, length):
    unrolling = unroll(from_regex(regex, alphabet), length)
    assert wrong_position(unrolling) is None
    decomposition = decompose(unrolling.circuit)
    model, certificate = smallest_bits(decomposition)
    certificate = for_strings(certificate, unrolling)
    assert certificate.verdict is Verdict.PROVED and certificate.inputs_covered == len(alphabet) ** length
    strings = ["".join(s) for s in itertools.product(alphabet, repeat=length)]
    prompts = np.array([unrolling.encode(string) or [0] for string in strings])
    tokens = ConstantBitMachine(model, certificate.parameters["s"]).generate(prompts)
    answers = tokens[:, decomposition.circuit.outputs[0][1]].tolist()
    wanted = [int(re.fullmatch(regex, string) is not None) for string in strings]
    assert answers == wanted
    assert accepted(unrolling.automaton, length) == sum(wanted)


@pytest.mark.parametrize(
    "automaton, is_in",
    [
        pytest.param(parity(), lambda x: x.count("1") % 2 == 1, marks=pytest.mark.deep),
        pytest.param(from_regex(PARITY), lambda x: x.count("1") % 2 == 1, marks=pytest.mark.deep),
        pytest.param(from_regex("(0|1)*00100(0|1)*"), lambda x: "00100" in x, marks=pytest.mark.deep),
    ],
)
def test_length_64(automaton, is_in):
    unrolling = unroll(automaton, 64)
    decomposition = decompose(unrolling.circuit)
    model, certificate = smallest_bits(decomposition)
    certificate = for_strings(certificate, unrolling)
    assert certificate.verdict is Verdict.PROVED and certificate.inputs_covered == 2**64
    rng = random.Random(0)
    strings = ["".join(rng.choices("01", weights=[rng.random() + 0.1, 1], k=64)) for _ in range(200)]
    tokens = ConstantBitMachine(model).generate(np.array([unrolling.encode(string) for string in strings]))
    answers = tokens[:, decomposition.circuit.outputs[0][1]]
    assert answers.tolist() == [int(is_in(string)) for string in strings]
    assert 0 < answers.sum() < 200


@pytest.mark.deep
def test_majority_of_64():
    unrolling = unroll(majority(64), 64)
    assert wrong_position(unrolling) is None
    _, certificate = smallest_bits(decompose(unrolling.circuit))
    certificate = for_strings(certificate, unrolling)
    assert certificate.verdict is Verdict.PROVED and certificate.inputs_covered == 2**64
    rng = random.Random(0)
    for _ in range(200):
        bits = rng.sample([1] * 64 + [0] * 64, 64) if rng.random() < 0.5 else rng.sample([1] * 33 + [0] * 32, 64)
        assert unrolling.circuit.outputs_of(bits) == (int(sum(bits) > 32),)


def test_length_24():
    unrolling = unroll(parity(), 24)
    _, certificate = smallest_bits(decompose(unrolling.circuit))
    certificate = for_strings(certificate, unrolling)
    assert certificate.verdict is Verdict.PROVED and certificate.inputs_covered == 2**24


@pytest.mark.parametrize("n", first(1, [8, 12]))
def test_majority_runs(n):
    decomposition = decompose(unroll(majority(n), n).circuit)
    model, certificate = smallest_bits(decomposition)
    assert certificate.verdict is Verdict.PROVED
    prompts = np.array(list(itertools.product((0, 1), repeat=n)))
    tokens = ConstantBitMachine(model).generate(prompts)
    assert (tokens[:, decomposition.circuit.outputs[0][1]] == (prompts.sum(axis=1) > n // 2)).all()


def test_a_wrong_unrolling_is_noticed():
    """Every gate of the circuit changed in turn: noticed exactly when some string is answered differently."""
    unrolling = unroll(from_regex("(0|1)*101(0|1)*"), 5)
    circuit = unrolling.circuit
    strings = list(itertools.product((0, 1), repeat=5))
    noticed = 0
    for j, gate in enumerate(circuit.gates):
        for kind in ("and", "or", "nor"):
            if kind == gate.kind:
                continue
            gates = (*circuit.gates[:j], gate._replace(kind=kind), *circuit.gates[j + 1 :])
            changed = dataclasses.replace(circuit, gates=gates)
            is_changed = any(changed.outputs_of(bits) != circuit.outputs_of(bits) for bits in strings)
            position = wrong_position(dataclasses.replace(unrolling, circuit=changed))
            noticed += position is not None
            assert position is not None or not is_changed
    assert noticed > 20
    swapped = [dict(slice_) for slice_ in unrolling.slices]
    first, second = sorted(swapped[3])[:2]
    swapped[3][first], swapped[3][second] = swapped[3][second], swapped[3][first]
    assert wrong_position(dataclasses.replace(unrolling, slices=tuple(swapped))) == 3


def test_a_wrong_unrolling_is_not_proved():
    unrolling = unroll(parity(), 4)
    wrong = dataclasses.replace(unrolling.automaton, accepting=frozenset({0}))
    _, certificate = smallest_bits(decompose(unrolling.circuit))
    assert for_strings(certificate, dataclasses.replace(unrolling, automaton=wrong)).verdict is Verdict.UNKNOWN


def test_bits_that_encode_no_string_refute_nothing():
    """Over three symbols, 11 is no symbol: a module that is wrong there only is neither right nor refuted."""
    unrolling = unroll(from_regex("(a|b|c)*", "abc"), 1)
    _, certificate = smallest_bits(decompose(unrolling.circuit))
    example = {
        "gate": "g",
        "kind": "and",
        "step": 1,
        "input": "11",
        "computed": 0,
        "expected": 1,
        "why": None,
    }
    refuted = dataclasses.replace(certificate, verdict=Verdict.REFUTED, counterexample=example)
    assert for_strings(refuted, unrolling).verdict is Verdict.UNKNOWN
    example = {**example, "input": "01"}
    refuted = dataclasses.replace(certificate, verdict=Verdict.REFUTED, counterexample=example)
    assert for_strings(refuted, unrolling).counterexample["string"] == "c"


def test_automaton_files(tmp_path):
    path = tmp_path / "dfa.json"
    even = {"alphabet": "01", "start": "even", "accept": ["odd"],
            "transitions": {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}}  # fmt: skip
    path.write_text(json.dumps(even))
    assert from_dfa_file(path).step == parity().step
    partial = {**even, "transitions": {"even": {"1": "odd"}}}
    path.write_text(json.dumps(partial))
    automaton = from_dfa_file(path)
    for length in range(4):
        for string in itertools.product("01", repeat=length):
            assert automaton.accepts("".join(string)) == (string == ("1",))
    changes = ({"start": "x", "accept": 3}, {"accept": ["z"]}, {"alphabet": "0"}, {"alphabet": ["ab"]})
    twice = json.dumps(even).replace('"odd": {', '"even": {"0": "odd", "1": "odd"}, "odd": {')
    nameless = ({"accept": "odd"}, {"accept": [True]}, {"start": None}, {"accept": [["odd"]]}, {"start": 1.0})
    odd_rows = (
        {"even": [["0", "odd"]]},
        {"even": {"0": None}},
        {"even": {"0": {}}},
        {"even": {"2": "odd"}},
        [],
        "even",
    )
    changes += (*nameless, *({"transitions": rows} for rows in odd_rows))
    for bad in (
        "",
        "[]",
        "{",
        "[" * 100000,
        twice,
        "NaN",
        "1" * 9999,
        *(json.dumps({**even, **change}) for change in changes),
    ):
        path.write_text(bad)
        with pytest.raises(BadInput) as caught:
            from_dfa_file(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="is a folder"):
        from_dfa_file(tmp_path)


@pytest.mark.parametrize("regex", ["(", "0)", "*", "2", "0{", "0|"])
def test_bad_expressions(regex):
    with pytest.raises(BadInput, match="regular expression"):
        from_regex(regex)


def test_bad_arguments():
    for alphabet in ("", "00"):
        with pytest.raises(BadInput, match="alphabet"):
            from_regex("0", alphabet)
    with pytest.raises(BadInput, match="length"):
        unroll(parity(), -1)
    with pytest.raises(BadInput, match="length"):
        unroll(parity(), 10**9)
    with pytest.raises(BadInput, match="must be 3 symbols"):
        unroll(parity(), 3).encode("012")


def test_what_a_class_names_outside_the_alphabet_matches_nothing():
    assert [from_regex(regex).accepts("0") for regex in ("[02]", "[2]", "[^1]", ".")] == [
        True,
        False,
        True,
        True,
    ]


def test_a_repetition_count_is_no_symbol():
    assert from_regex("0{2}").alphabet == ("0", "1")
    assert from_regex("0{2}").accepts("00") and not from_regex("0{2}").accepts("0")
