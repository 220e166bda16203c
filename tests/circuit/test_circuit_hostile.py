"""Circuit files with hostile names and odd forms: the truth table of the file's own rules, or one line.

The oracles share nothing with the readers: a file is written from covers, gates or literals that are known, and these
are evaluated here; AIGER files are also simulated by aigverse.
"""

from __future__ import annotations

import itertools
import random

import pytest
from models.selection import first

from constructions.circuits import circuit as circuits
from constructions.circuits.circuit import decompose, from_signals
from constructions.circuits.files import read_circuit
from constructions.errors import BadInput

FILES = 1000  # of each form
# Names that earlier readers gave to signals of their own, and others that a file may have.
STEMS = ("x", "y", "z", "*", "~", "#", "{}", "1", "0", "-", "\\", "é", "a.b", "[3]", "gnd", "n0", "start", ".names")
PARTS = ("~{}", "{}*0", "{}*1", "{}#0", "{}&1", "{}&", "{}|", "{}^1", "~{}*0", "~~{}", "{}*0#0", "Part({})", "{}")


def names(rng, count, forbidden):
    """Distinct names, many of them another's with a part added."""
    found = []
    while len(found) < count:
        stem = rng.choice(found) if found and rng.random() < 0.7 else rng.choice(STEMS)
        name = rng.choice(PARTS).format(stem)
        if name not in found and not set(name) & set(forbidden) and not name.endswith("\\"):
            found.append(name)
    return found


def table(circuit):
    """The outputs by name on every input, and those of its AND and NOT gates."""
    simple = decompose(circuit).circuit
    rows = []
    for bits in itertools.product((0, 1), repeat=len(circuit.inputs)):
        out = circuit.outputs_of(bits)
        assert out == simple.outputs_of(bits or (0,))
        rows.append(dict(zip([name for name, _ in circuit.outputs], out, strict=True)))
    return rows


def agrees(path, text, inputs, outputs, value):
    """Whether the file was read, and then that it has the oracle's truth table; `value` is None for a bad file."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        circuit = read_circuit(path)
    except BadInput as error:
        assert "\n" not in str(error)
        return False
    assert value is not None, text
    assert list(circuit.inputs) == inputs and [name for name, _ in circuit.outputs] == outputs, text
    wanted = [
        {y: value(y, dict(zip(inputs, bits, strict=True))) for y in outputs}
        for bits in itertools.product((0, 1), repeat=len(inputs))
    ]
    assert table(circuit) == wanted, text
    return True


# ---- BLIF


def cover_value(covers, signal, values):
    """The value of a signal by the rules of BLIF: ones (or zeros) are the inputs that some row covers."""
    if signal in values:
        return values[signal]
    fan_in, rows = covers[signal]
    read = [cover_value(covers, other, values) for other in fan_in]
    is_covered = any(all(c == "-" or int(c) == v for c, v in zip(cube, read, strict=True)) for cube, _ in rows)
    return int(is_covered) if not rows or rows[0][1] == "1" else 1 - int(is_covered)


def random_blif(rng):
    """Text of a BLIF file, its inputs, outputs and covers."""
    n, m = rng.randrange(4), rng.randrange(1, 6)
    all_names = names(rng, n + m, "# \t")
    inputs, signals = all_names[:n], all_names[n:]
    covers = {}
    for j, signal in enumerate(signals):
        known = inputs + signals[:j]
        fan_in = [rng.choice(known) for _ in range(rng.randrange(4))] if known else []
        if known and rng.random() < 0.03:
            fan_in = [rng.choice(known) for _ in range(18)]
        value = rng.choice("01")
        rows = [("".join(rng.choices("01-", k=len(fan_in))), value) for _ in range(rng.randrange(4))]
        covers[signal] = (fan_in, rows)
    outputs = rng.sample(all_names, rng.randrange(1, len(all_names) + 1))
    lines = [folded(rng, [".inputs", *inputs]), folded(rng, [".outputs", *outputs])]
    order = list(covers)
    rng.shuffle(order)
    for signal in order:
        fan_in, rows = covers[signal]
        lines.append(folded(rng, [".names", *fan_in, signal]))
        lines += [f"{cube} {value}".strip() + rng.choice(["", "  ", " # a 1 \\", "\t\r"]) for cube, value in rows]
    return "\n".join([".model m # \u2028.end", *lines, ".end", ""]), inputs, outputs, covers


def folded(rng, words):
    """The words on one logical line, with line ends in it now and then."""
    return "".join(word + rng.choice([" ", "\t ", " \\\n", " "]) for word in words[:-1]) + words[-1]


@pytest.mark.parametrize("files", first(1, [250, FILES]))
def test_blif_files_mean_what_their_covers_mean(files, tmp_path):
    rng = random.Random(6)
    for _ in range(files):
        text, inputs, outputs, covers = random_blif(rng)
        assert agrees(tmp_path / "f.blif", text, inputs, outputs, lambda y, v, c=covers: cover_value(c, y, v))


@pytest.mark.parametrize(
    "text, inputs, wanted",
    [
        (".inputs x y\n.outputs z\n.names x y z\n01 1\n.names y ~x\n1 1\n.end\n", "11", 0),
        (".inputs x y\n.outputs w\n.names x z*0\n0 1\n.names y z\n1 1\n.names z*0 w\n1 1\n.end\n", "00", 1),
    ],
)
def test_names_that_the_reader_once_took_for_itself(text, inputs, wanted, tmp_path):
    (tmp_path / "f.blif").write_text(f".model m\n{text}")
    assert read_circuit(tmp_path / "f.blif").outputs_of([int(bit) for bit in inputs]) == (wanted,)


def test_a_part_of_a_signal_is_no_name():
    """A wide gate's chain beside a signal that is written as its first link."""
    wide = [f"x{j}" for j in range(17)]
    definitions = {"z": ("and", wide), "z#0": ("zero", []), "w": ("buf", ["z#0"])}
    circuit = from_signals("f", wide, definitions, ["z", "w"])
    assert circuit.outputs_of([1] * 17) == (1, 0)
    assert [gate.name for gate in circuit.gates].count("z#0") == 2
    negated = circuits.Part("x", "~{}")
    assert negated != "~x" and hash(negated) == hash(circuits.Part("x", "~{}"))


HEAD = ".model m\n.inputs a b\n.outputs z\n"
REFUSED = {
    "twice": HEAD + ".names a z\n1 1\n.names b z\n1 1\n.end\n",
    "an input defined": HEAD + ".names a b\n1 1\n.names a z\n1 1\n.end\n",
    "a cycle": HEAD + ".names a y z\n11 1\n.names z y\n1 1\n.end\n",
    "a cycle that no row depends on": HEAD + ".names a y z\n1- 1\n.names z y\n- 1\n.end\n",
    "an undefined name that no row depends on": HEAD + ".names a q z\n1- 1\n.end\n",
    "an undefined name of an empty cover": HEAD + ".names q z\n.end\n",
    "two models": ".model k\n" + HEAD + ".names a z\n1 1\n.end\n",
    "an input twice": ".inputs a\n" + HEAD + ".names a z\n1 1\n.end\n",
    "an output twice": ".outputs z\n" + HEAD + ".names a z\n1 1\n.end\n",
    "a latch": HEAD + ".latch a z re b 0\n.end\n",
    "a subcircuit": HEAD + ".subckt f x=a y=z\n.end\n",
    "a gate": HEAD + ".gate and2 A=a B=b O=z\n.end\n",
    "don't cares": HEAD + ".names a z\n1 1\n.exdc\n.names a z\n1 1\n.end\n",
    "names of nothing": HEAD + ".names\n.end\n",
    "a row too short": HEAD + ".names a b z\n1 1\n.end\n",
    "a row of two": HEAD + ".names a b z\n12 1\n.end\n",
    "a row without a value": HEAD + ".names a b z\n11\n.end\n",
    "a don't care as value": HEAD + ".names a z\n1 -\n.end\n",
    "ones and zeros": HEAD + ".names a z\n1 1\n0 0\n.end\n",
    "a form feed": HEAD + ".names a z\x0c1 1\n.names b q\n1 1\n.end\n",
    "a line separator": HEAD + ".names a z\u20281 1\n.end\n",
    "a no-break space": ".model m\n.inputs a\u00a0b\n.outputs z\n.names a z\n1 1\n.end\n",
    "a carriage return": HEAD + ".names a z\r1 1\n.end\n",
    "no end": HEAD + ".names a z\n1 1\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_flat_blif_is_refused(name, tmp_path):
    (tmp_path / "f.blif").write_bytes(REFUSED[name].encode())
    with pytest.raises(BadInput) as caught:
        read_circuit(tmp_path / "f.blif")
    assert "\n" not in str(caught.value)


# ---- BENCH

KINDS = ("AND", "nand", "OR", "Nor", "XOR", "XNOR", "NOT", "INV", "BUF", "BUFF", "vdd", "GND")


def gate_value(gates, signal, values):
    if signal in values:
        return values[signal]
    kind, fan_in = gates[signal]
    read, kind = [gate_value(gates, other, values) for other in fan_in], kind.lower()
    if kind in ("vdd", "gnd"):
        return int(kind == "vdd")
    if kind in ("and", "nand"):
        return int(all(read)) ^ (kind == "nand")
    if kind in ("or", "nor"):
        return int(any(read)) ^ (kind == "nor")
    return sum(read) % 2 ^ (kind in ("xnor", "not", "inv"))


def random_bench(rng):
    n, m = rng.randrange(1, 4), rng.randrange(1, 6)
    all_names = names(rng, n + m, "#(),= \t")
    inputs, signals = all_names[:n], all_names[n:]
    gates = {}
    for j, signal in enumerate(signals):
        kind = rng.choice(KINDS)
        most = (
            0 if kind in ("vdd", "GND") else 1 if kind in ("NOT", "INV", "BUF", "BUFF") else rng.choice([1, 2, 3, 19])
        )
        gates[signal] = (kind, [rng.choice(inputs + signals[:j]) for _ in range(most)])
    outputs = rng.sample(all_names, rng.randrange(1, len(all_names) + 1))
    lines = [f"{rng.choice(['INPUT', 'input'])}({x})" for x in inputs] + [f"OUTPUT ( {y} )\t" for y in outputs]
    for signal, (kind, fan_in) in gates.items():
        operands = f"({rng.choice([', ', ',', ' , ']).join(fan_in)})" if fan_in else rng.choice(["", "()"])
        lines.append(f"{signal} = {kind}{operands} # \u2028 x = gnd")
    rng.shuffle(lines)
    inputs = [line[6:-1] for line in lines if line.lower().startswith("input(")]
    outputs = [line[9:-3] for line in lines if line.startswith("OUTPUT (")]
    return "\r\n".join(lines) + "\n", inputs, outputs, gates


@pytest.mark.parametrize("files", first(1, [250, FILES]))
def test_bench_files_mean_what_their_gates_mean(files, tmp_path):
    rng = random.Random(7)
    for _ in range(files):
        text, inputs, outputs, gates = random_bench(rng)
        assert agrees(tmp_path / "f.bench", text, inputs, outputs, lambda y, v, g=gates: gate_value(g, y, v))


@pytest.mark.parametrize(
    "line",
    ["z = AND(a b)", "z = AND(a,)", "z = AND(,a)", "z = AND(a,,b)", "z = AND(a)(b)", "z = a", "z = LUT 0x8 (a, b)",
     "z = AND(a, b) OUTPUT(a)", "z = AND(a\u00a0, b)", "z = AND(a, b)\u2028OUTPUT(a)", "z = AND(a, b)\x0cOUTPUT(a)",
     "\u0130NPUT(c)\nz = AND(a, c)", "\u0131nput(c)\nz = AND(a, c)", "z = \uff21ND(a, b)", "z = AND(a, b)\rOUTPUT(a)",
     "z = vdd(a)", "z = NOT()", "z = NOT(a, b)", "z = DFFSR(a, b)", "z = AND(a, z)", "z = AND(a, q)"],
)  # fmt: skip
def test_what_is_no_bench_line_is_refused(line, tmp_path):
    (tmp_path / "f.bench").write_bytes(f"INPUT(a)\nINPUT(b)\nOUTPUT(z)\n{line}\n".encode())
    with pytest.raises(BadInput) as caught:
        read_circuit(tmp_path / "f.bench")
    assert "\n" not in str(caught.value)


# ---- AIGER


def literal_value(ands, literal, values):
    variable = literal // 2
    if variable == 0:
        return literal
    value = values.get(variable)
    if value is None:
        left, right = ands[variable]
        value = literal_value(ands, left, values) & literal_value(ands, right, values)
    return value ^ literal & 1


def random_aiger(rng):
    """The number of inputs, {variable: (literal, literal)} in order, and the literals of the outputs."""
    n, m = rng.randrange(4), rng.randrange(5)
    ands = {}
    for variable in range(n + 1, n + m + 1):
        ands[variable] = tuple(sorted((rng.randrange(2 * variable) for _ in range(2)), reverse=True))
    return n, ands, [rng.randrange(2 * (n + m + 1)) for _ in range(rng.randrange(1, 5))]


def ascii_aiger(rng, n, ands, outputs):
    """The same circuit in ascii; with `rng` its variables renumbered and its gates in any order."""
    numbers = list(range(1, n + len(ands) + (1 if rng is None else 3)))
    rng = rng or random.Random(0)
    if len(numbers) > n + len(ands):
        rng.shuffle(numbers)
    number = {variable: numbers[variable - 1] for variable in range(1, n + len(ands) + 1)}

    def renamed(literal):
        return 2 * number[literal // 2] + literal % 2 if literal > 1 else literal

    rows = [" ".join(str(renamed(x)) for x in (2 * v, *rng.sample(right, 2))) for v, right in ands.items()]
    if len(numbers) > n + len(ands):
        rng.shuffle(rows)
    lines = [f"aag {len(numbers)} {n} 0 {len(outputs)} {len(ands)}"]
    lines += [str(renamed(2 * v)) for v in range(1, n + 1)] + [str(renamed(y)) for y in outputs] + rows
    return "\n".join(lines) + "\n"


def binary_aiger(n, ands, outputs):
    data = f"aig {n + len(ands)} {n} 0 {len(outputs)} {len(ands)}\n".encode()
    data += "".join(f"{y}\n" for y in outputs).encode()
    for variable, (left, right) in ands.items():
        for difference in (2 * variable - left, left - right):
            while difference > 127:
                data, difference = data + bytes([128 | difference & 127]), difference >> 7
            data += bytes([difference])
    return data


def symbols(rng, n, outputs):
    """A symbol table with hostile names, the names of inputs and of outputs."""
    ins, outs = names(rng, n, ""), names(rng, len(outputs), "")
    table = [f"i{j} {name}" for j, name in enumerate(ins)] + [f"o{j} {name}" for j, name in enumerate(outs)]
    return "\n".join([*table, "c", "i0 not read", ""]), ins, outs


@pytest.mark.parametrize("files", first(1, [250, FILES]))
def test_aiger_files_mean_what_their_literals_mean(files, tmp_path):
    rng = random.Random(8)
    for _ in range(files):
        n, ands, outputs = random_aiger(rng)
        for suffix in (".aag", ".aig"):
            data = ascii_aiger(rng, n, ands, outputs).encode() if suffix == ".aag" else binary_aiger(n, ands, outputs)
            more, ins, outs = symbols(rng, n, outputs)
            literal = dict(zip(outs, outputs, strict=True))

            def value(y, named, literal=literal, ins=ins, ands=ands):
                return literal_value(ands, literal[y], {j + 1: named[name] for j, name in enumerate(ins)})

            assert agrees(tmp_path / f"f{suffix}", data + more.encode(), ins, outs, value)


def test_aiger_files_mean_what_aigverse_reads(tmp_path):
    """aigverse itself ends with a segmentation fault on ascii files whose gates are in another order."""
    from aigverse.algorithms import simulate
    from aigverse.io import read_aiger_into_aig, read_ascii_aiger_into_aig

    rng = random.Random(9)
    for _ in range(FILES // 5):
        n, ands, outputs = random_aiger(rng)
        if n == 0:
            continue
        for suffix, read in ((".aag", read_ascii_aiger_into_aig), (".aig", read_aiger_into_aig)):
            path = tmp_path / f"f{suffix}"
            ascii_text = ascii_aiger(None, n, ands, outputs).encode()
            path.write_bytes(ascii_text if suffix == ".aag" else binary_aiger(n, ands, outputs))
            theirs, circuit = simulate(read(str(path))), read_circuit(path)
            for index in range(2**n):
                bits = [index >> i & 1 for i in range(n)]
                assert circuit.outputs_of(bits) == tuple(int(column.get_bit(index)) for column in theirs)


@pytest.mark.parametrize(
    "text",
    ["aag 1 1 0 1 0\n2\n2\n\nmore\n", "aag 1 1 0 1 0\n2\n2\ni0 x\ni0 y\n", "aag 2 2 0 1 0\n2\n2\n4\n",
     "aag 2 1 0 1 1\n2\n4\n5 2 2\n", "aag 2 1 0 1 1\n2\n4\n4  2 2\n", "aag 2 1 0 1 1\n2\n4\n0 2 2\n",
     "aag 3 1 0 1 1\n2\n4\n4 6 2\n", "aag 1 1 0 1 0\n2\n\u0662\n", "aag 1 1 0 1 0\n2\n+2\n"],
)  # fmt: skip
def test_what_is_no_aiger_is_refused(text, tmp_path):
    (tmp_path / "f.aag").write_bytes(text.encode())
    with pytest.raises(BadInput) as caught:
        read_circuit(tmp_path / "f.aag")
    assert "\n" not in str(caught.value)
