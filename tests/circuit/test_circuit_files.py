"""Circuit files: read right, or refused in one line; never read as another circuit."""

from __future__ import annotations

import random
import re

import pytest
from models.circuits import EPFL, ISCAS, path_of
from models.selection import first
from oracles.circuit import bench_outputs, gate_values, random_gates

from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.circuits.files import read_circuit
from constructions.errors import BadInput
from verify.tasks.circuit.decomposition import first_by_shape, wrong_decomposition
from verify.tasks.circuit.refutation import exhaustive_words

# sizes as the publishers state them: inputs, outputs, AND gates (EPFL) or gates (ISCAS)
SIZES = {
    "ctrl": (7, 26, 174), "int2float": (11, 7, 260), "cavlc": (10, 11, 693), "adder": (256, 129, 1020),
    "i2c": (147, 142, 1342), "router": (60, 30, 257),
    "c17": (5, 2, 6), "c432": (36, 7, 160), "c880": (60, 26, 383), "c6288": (32, 32, 2416),
}  # fmt: skip
WITH_LATCHES = (
    "cnt1",
    "cnt1e",
    "notcnt1",
    "notcnt1e",
    "toggle",
    "toggle-re",
    "mult2",
    "s2cfair",
    "s2cunfair",
)


def write(tmp_path, text, suffix=".bench"):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", EPFL + ISCAS)
def test_sizes(name):
    circuit = read_circuit(path_of(name))
    statistics = circuit.statistics()
    gates = statistics["and"] if name in EPFL else statistics["gates"]
    assert (statistics["inputs"], statistics["outputs"], gates) == SIZES[name]


@pytest.mark.parametrize("name", ISCAS)
def test_bench_against_a_recursive_evaluation(name):
    circuit, decomposed = read_circuit(path_of(name)), decompose(read_circuit(path_of(name))).circuit
    rng = random.Random(name)
    for _ in range(3 if name == "c6288" else 20):
        bits = [rng.randrange(2) for _ in circuit.inputs]
        wanted = bench_outputs(path_of(name), dict(zip(circuit.inputs, bits, strict=True)))
        for read in (circuit, decomposed):
            assert dict(zip([y for y, _ in read.outputs], read.outputs_of(bits), strict=True)) == wanted


def as_aiger(circuit):
    """AND and NOT gates as ascii AIGER, for another program to read."""
    n = len(circuit.inputs)
    literal, lines, fresh = [2 * j + 2 for j in range(n)], [], n
    for kind, fan_in, _ in circuit.gates:
        if kind == "not":
            literal.append(literal[fan_in[0]] ^ 1)
        else:
            fresh += 1
            literal.append(2 * fresh)
            lines.append(f"{2 * fresh} {literal[fan_in[0]]} {literal[fan_in[1]]}")
    head = [f"aag {fresh} {n} 0 {len(circuit.outputs)} {len(lines)}", *map(str, literal[:n])]
    return "\n".join(head + [str(literal[node]) for _, node in circuit.outputs] + lines) + "\n"


@pytest.mark.parametrize("name", EPFL)
def test_aiger_is_equivalent_to_what_aigverse_reads(name, tmp_path):
    from aigverse.algorithms import equivalence_checking
    from aigverse.io import read_aiger_into_aig, read_ascii_aiger_into_aig

    theirs = read_aiger_into_aig(str(path_of(name)))
    circuit = decompose(read_circuit(path_of(name))).circuit
    ours = read_ascii_aiger_into_aig(str(write(tmp_path, as_aiger(circuit), ".aag")))
    assert equivalence_checking(theirs, ours) is True
    wrong = circuit.gates[-1]._replace(kind="not", fan_in=(0,))
    broken = Circuit(
        "",
        circuit.inputs,
        (*circuit.gates[:-1], wrong),
        ((circuit.outputs[0][0], circuit.nodes - 1), *circuit.outputs[1:]),
    )
    other = read_ascii_aiger_into_aig(str(write(tmp_path, as_aiger(broken), ".aag")))
    assert equivalence_checking(theirs, other) is False


@pytest.mark.parametrize("name", WITH_LATCHES)
def test_latches_are_refused(name):
    with pytest.raises(BadInput, match="latches; only combinational"):
        read_circuit(path_of(name))


@pytest.mark.parametrize(
    "name, table",
    [("and", "0001"), ("or", "0111"), ("xor1", "0110"), ("xorxormiter", "0000"), ("halfadder", "00 01 01 10"),
     ("buffer", "01"), ("inverter", "10"), ("true", "1"), ("false", "0")],
)  # fmt: skip
def test_small_aiger_examples(name, table):
    circuit = read_circuit(path_of(name))
    rows = []
    for index in range(2 ** len(circuit.inputs)):
        bits = [index >> j & 1 for j in range(len(circuit.inputs))]
        rows.append("".join(map(str, reversed(circuit.outputs_of(bits)))))
    assert rows == (table.split() if " " in table else list(table))


def test_no_outputs_is_refused():
    with pytest.raises(BadInput, match="no outputs"):
        read_circuit(path_of("empty"))


@pytest.mark.parametrize("name", first(2, ["c17", "halfadder", "ctrl", "int2float"]))
def test_every_truncation_is_refused_or_harmless(name, tmp_path):
    data = path_of(name).read_bytes()
    whole = read_circuit(path_of(name))
    words, mask = exhaustive_words(len(whole.inputs))
    whole_values = whole.evaluate(words, mask)
    wanted = [whole_values[node] for _, node in whole.outputs]
    accepted = 0
    for length in range(len(data)):
        try:
            circuit = read_circuit(write(tmp_path, data[:length], path_of(name).suffix))
        except BadInput as error:
            assert "\n" not in str(error)
            continue
        values = circuit.evaluate(words, mask)
        assert [values[node] for _, node in circuit.outputs] == wanted, length
        accepted += 1
    assert accepted < len(data) // 2


@pytest.mark.parametrize("name", first(3, ["c17", "ctrl", "halfadder", "cavlc"]))
def test_damaged_bytes_never_crash(name, tmp_path):
    rng = random.Random(1)
    data = path_of(name).read_bytes()
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(min(len(data), 400))] = rng.randrange(256)
        try:
            read_circuit(write(tmp_path, bytes(damaged), path_of(name).suffix))
        except BadInput as error:
            refused += 1
            assert len(str(error)) < 400
    assert refused > 10


BAD = {
    "a latch": ("INPUT(a)\nOUTPUT(q)\nq = DFF(a)\n", ".bench", "latch"),
    "a cycle": ("INPUT(a)\nOUTPUT(x)\nx = AND(a, y)\ny = NOT(x)\n", ".bench", "cycle through"),
    "a loop": ("INPUT(a)\nOUTPUT(x)\nx = AND(a, x)\n", ".bench", "cycle through x"),
    "undefined": ("INPUT(a)\nOUTPUT(x)\nx = AND(a, y)\n", ".bench", "signal y.*defined nowhere"),
    "undefined output": ("INPUT(a)\nOUTPUT(x)\n", ".bench", "output x is defined nowhere"),
    "output twice": ("INPUT(a)\nOUTPUT(x)\nOUTPUT(x)\nx = NOT(a)\n", ".bench", "output x is declared twice"),
    "input twice": ("INPUT(a)\nINPUT(a)\nOUTPUT(a)\n", ".bench", "input a is declared twice"),
    "gate twice": ("INPUT(a)\nOUTPUT(x)\nx = NOT(a)\nx = BUF(a)\n", ".bench", "x is defined twice"),
    "input is gate": ("INPUT(a)\nOUTPUT(a)\na = NOT(a)\n", ".bench", "input a is also"),
    "kind": ("INPUT(a)\nOUTPUT(x)\nx = MAJ(a, a, a)\n", ".bench", "unknown kind 'maj'"),
    "arity": ("INPUT(a)\nOUTPUT(x)\nx = NOT(a, a)\n", ".bench", "not of 2 inputs"),
    "no fan-in": ("INPUT(a)\nOUTPUT(x)\nx = AND()\n", ".bench", "and of 0 inputs"),
    "cut line": ("INPUT(a)\nOUTPUT(x)\nx = AND(a, ", ".bench", "line 3"),
    "empty": ("", ".bench", "is empty"),
    "blank": ("  \n\n", ".aag", "is empty"),
    "garbage": (bytes(range(128, 256)), ".bench", "not text"),
    "zero bytes": (b"INPUT(a)\0\n", ".blif", "zero bytes"),
    "other": ("hello", ".txt", "begins with neither"),
    "aiger short header": ("aag 1 1\n", ".aag", "header has 2 numbers"),
    "aiger words": ("aag a b c d e\n", ".aag", "not a number"),
    "aiger negative": ("aag -1 0 0 0 0\n", ".aag", "not a number"),
    "aiger huge": ("aig 999999999 999999999 0 1 0\n2\n", ".aig", "more than"),
    "aiger huge outputs": ("aig 1 1 0 999999999 0\n", ".aig", "more than"),
    "aiger many gates": ("aag 4000000 1 0 1 3999999\n", ".aag", "truncated"),
    "aiger odd input": ("aag 1 1 0 1 0\n3\n2\n", ".aag", "must be even"),
    "aiger literal": ("aag 1 1 0 1 0\n2\n9\n", ".aag", "beyond 2M.1=3"),
    "aiger undefined": ("aag 3 1 0 1 0\n2\n6\n", ".aag", "defined nowhere"),
    "aiger cycle": ("aag 2 1 0 1 1\n2\n4\n4 4 2\n", ".aag", "cycle"),
    "aiger twice": ("aag 2 1 0 1 1\n2\n2\n2 2 2\n", ".aag", "defined twice"),
    "aiger M": ("aig 5 1 0 1 1\n2\n", ".aig", "is not I.L.A=2"),
    "aiger property": ("aag 1 1 0 1 0 1\n2\n2\n2\n", ".aag", "model checking"),
    "aiger symbol": ("aag 1 1 0 1 0\n2\n2\ni5 x\n", ".aag", "not the one symbol"),
    "aiger names": ("aag 1 1 0 2 0\n2\n2\n3\no0 x\no1 x\n", ".aag", "output x is declared twice"),
    "blif latch": (".model m\n.inputs a\n.outputs q\n.latch a q 0\n.end\n", ".blif", "latch"),
    "blif no end": (".model m\n.inputs a\n.outputs q\n.names a q\n1 1\n", ".blif", "no .end"),
    "blif row": (".model m\n.inputs a\n.outputs q\n.names a q\n11 1\n.end\n", ".blif", "row '11 1'"),
    "blif mixed": (".model m\n.inputs a\n.outputs q\n.names a q\n1 1\n0 0\n.end\n", ".blif", "ones and z"),
    "blif stray row": (".model m\n.inputs a\n1 1\n.end\n", ".blif", "belongs to no .names"),
    "blif subcircuit": (".model m\n.inputs a\n.outputs q\n.subckt f x=a y=q\n.end\n", ".blif", "flatten"),
    "blif cut": (".model m\n.inputs a \\", ".blif", "backslash"),
    "blif second": (".model m\n.inputs a\n.outputs a\n.end\n.model k\n.end\n", ".blif", "after .end"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_clear_line(name, tmp_path):
    text, suffix, message = BAD[name]
    with pytest.raises(BadInput) as caught:
        read_circuit(write(tmp_path, text, suffix))
    assert re.search(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_and_missing_files(tmp_path):
    with pytest.raises(BadInput, match="is a folder"):
        read_circuit(tmp_path)
    with pytest.raises(BadInput, match="no such file"):
        read_circuit(tmp_path / "nothing.bench")


def test_blif_against_its_covers(tmp_path):
    text = """# a full adder, a constant, an off-set and a don't care
.model adder
.inputs a b \\
 c
.outputs s carry one nand any
.names a b c s
100 1
010 1
001 1
111 1
.names a b c carry
11- 1
1-1 1
-11 1
.names one
1
.names a b nand
11 0
.names a any
- 1
.end
"""
    circuit = read_circuit(write(tmp_path, text, ".blif"))
    for index in range(8):
        a, b, c = bits = [index >> j & 1 for j in range(3)]
        assert circuit.outputs_of(bits) == ((a + b + c) % 2, (a + b + c) // 2, 1, 1 - a * b, 1)


def test_bench_constants_wide_gates_and_any_order(tmp_path):
    wide = ", ".join(f"x{j}" for j in range(40))
    inputs = "".join(f"INPUT(x{j})\n" for j in range(40))
    outputs = "".join(f"OUTPUT({y})\n" for y in ("z", "p", "k", "x3"))
    text = f"{inputs}{outputs}z = nand(o, n)\nn = NAND({wide})\no = vdd\np = XNOR({wide})\nk = gnd\n"
    decomposition = decompose(read_circuit(write(tmp_path, text)))
    assert wrong_decomposition(decomposition) is None
    rng = random.Random(0)
    for bits in [[1] * 40, [0] * 40, [1] * 39 + [0]] + [[rng.randrange(2) for _ in range(40)] for _ in range(50)]:
        wanted = (int(all(bits)), 1 - sum(bits) % 2, 0, bits[3])
        assert decomposition.original.outputs_of(bits) == wanted == decomposition.circuit.outputs_of(bits)


def test_decomposition_and_its_check():
    rng = random.Random(3)
    for _ in range(200):
        n = rng.randrange(1, 5)
        gates = random_gates(rng, n, 8)
        original = Circuit(
            "r", tuple(f"i{j}" for j in range(n)),
            tuple(Gate(kind, fan_in, f"g{j}") for j, (kind, fan_in) in enumerate(gates)), (("o", n + 7),),
        )  # fmt: skip
        decomposition = decompose(original)
        assert wrong_decomposition(decomposition) is None
        for index in range(2**n):
            bits = [index >> j & 1 for j in range(n)]
            wanted = gate_values(gates, bits)
            assert original.evaluate(bits) == wanted
            values = decomposition.circuit.evaluate(bits)
            assert [values[node] for node in decomposition.node_of] == wanted


def test_a_wrong_decomposition_is_noticed():
    import dataclasses

    circuit = read_circuit(path_of("c17"))
    good = decompose(circuit)
    noticed = 0
    for j, gate in enumerate(good.circuit.gates):
        if gate.kind == "not":
            swapped = gate._replace(kind="and", fan_in=(gate.fan_in[0], 0))
        else:
            swapped = gate._replace(kind="not", fan_in=gate.fan_in[:1])
        gates = (*good.circuit.gates[:j], swapped, *good.circuit.gates[j + 1 :])
        bad = dataclasses.replace(good, circuit=dataclasses.replace(good.circuit, gates=gates))
        noticed += wrong_decomposition(bad) is not None
    assert noticed == len(good.circuit.gates)
    moved = dataclasses.replace(good.circuit, outputs=((good.circuit.outputs[0][0], 0), *good.circuit.outputs[1:]))
    assert wrong_decomposition(dataclasses.replace(good, circuit=moved)) == "output"
    gate = good.circuit.gates[1]._replace(kind="or", fan_in=(0, 1))  # which no step of the proof knows
    other = dataclasses.replace(good.circuit, gates=(good.circuit.gates[0], gate, *good.circuit.gates[2:]))
    assert wrong_decomposition(dataclasses.replace(good, circuit=other)) == gate.name


def test_gates_traced_together_are_judged_as_one_by_one():
    """Wide gates, equal inputs, negated ones, and one changed gate: the same first wrong gate either way."""
    import dataclasses

    rng, wrong = random.Random(8), 0
    for _ in range(150):
        n = rng.randrange(1, 5)
        gates = tuple(Gate(kind, fan_in, f"g{j}") for j, (kind, fan_in) in enumerate(random_gates(rng, n, 8)))
        good = decompose(Circuit("r", tuple(f"i{j}" for j in range(n)), gates, (("o", n + 7),)))
        j = rng.randrange(len(good.circuit.gates))
        kind = rng.choice(["and", "not"])
        changed = Gate(kind, tuple(rng.randrange(n + j) for _ in range(1 + (kind == "and"))), "changed")
        circuit = dataclasses.replace(
            good.circuit, gates=(*good.circuit.gates[:j], changed, *good.circuit.gates[j + 1 :])
        )
        bad = dataclasses.replace(good, circuit=circuit)
        one_by_one = first_by_shape(bad, range(8))
        assert wrong_decomposition(bad) == (None if one_by_one is None else f"g{one_by_one}")
        wrong += one_by_one is not None
    assert 75 < wrong < 150
