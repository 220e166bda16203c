"""Circuits from files: AIGER (ascii and binary), ISCAS .bench, and combinational BLIF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from constructions import regular_files
from constructions.circuits.circuit import (
    MAX_NODES,
    Circuit,
    Part,
    Signal,
    check_distinct,
    from_signals,
    topological,
)
from constructions.errors import BadInput

Definition = tuple[str, list[Signal]]
BENCH_KINDS = {"buff": "buf", "inv": "not"}
BENCH_KINDS |= {kind: kind for kind in ("and", "nand", "or", "nor", "xor", "xnor", "not", "buf")}
BENCH_CONSTANTS = {"gnd": "zero", "vdd": "one"}
MAX_FILE = 256 * 2**20


def read_circuit(path: str | Path) -> Circuit:
    """The circuit in a file: AIGER by its first word, .bench and .blif by the file's name.

    The readers are ours: the library at hand (aigverse) merges gates while it reads, so that the circuit
    proved would not be the circuit in the file; it serves as an oracle in the tests.
    Raises: BadInput, naming the file, the line and the rule, for anything but a combinational circuit.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".bench") as file:
    ...     _ = file.write("INPUT(x)\\nOUTPUT(z)\\nz = NOT(x)\\n"), file.flush()
    ...     read_circuit(file.name).outputs_of([0])
    (1,)
    """
    data, path = _read(path), Path(path)
    if data[:4] in (b"aag ", b"aig "):
        return _Aiger(path.name, data).circuit()
    if path.suffix.lower() not in (".bench", ".blif"):
        raise BadInput(f"{path}: begins with neither 'aag' nor 'aig' and is named neither .bench nor .blif")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text (byte {error.start}), as {path.suffix} must be") from None
    if "\0" in text:
        raise BadInput(f"{path}: not text (holds zero bytes), as {path.suffix} must be")
    return (_bench if path.suffix.lower() == ".bench" else _blif)(path.name, text)


def _read(path: str | Path) -> bytes:
    data = regular_files.read(path, "file", MAX_FILE)
    if not data.strip():
        raise BadInput(f"{path}: is empty; a circuit has at least one output")
    return data


class _Aiger:
    """Both AIGER forms; signals are called by their literals, so that 13 is NOT 12."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data, self.at, self.line = name, data, 0, 0
        header = self.next_line("the header").split()
        self.is_binary = header[0] == "aig"
        numbers = [self.number(word) for word in header[1:]]
        if not 5 <= len(numbers) <= 9:
            raise self.error(f"the header has {len(numbers)} numbers; it is 'aag M I L O A [B C J F]'")
        self.M, self.I, self.L, self.O, self.A = numbers[:5]
        if self.L:
            raise self.error(f"L={self.L} latches; only combinational circuits (L=0) are computed")
        if any(numbers[5:]):
            raise self.error("properties (B, C, J, F) belong to model checking; declare them as outputs")
        self.check_sizes()
        self.definitions: dict[Signal, Definition] = {}

    def check_sizes(self) -> None:
        """Refuses sizes that the file cannot hold before anything is allocated."""
        if max(self.M, self.O) > MAX_NODES:
            raise self.error(f"M={self.M}, O={self.O}: more than the {MAX_NODES} that fit into memory")
        if self.is_binary and self.M != self.I + self.A:
            raise self.error(f"M={self.M} is not I+L+A={self.I + self.A}, as the binary form needs")
        if self.M < self.I + self.A:
            raise self.error(f"M={self.M} is less than I+L+A={self.I + self.A}")
        least = 2 * self.O + (2 * self.A if self.is_binary else 2 * self.I + 6 * self.A)
        if least > len(self.data) - self.at:
            raise self.error(f"the header needs at least {least} further bytes; the file is truncated")

    def error(self, message: str) -> BadInput:
        return BadInput(f"{self.name}: line {self.line}: {message}")

    def next_line(self, what: str) -> str:
        end = self.data.find(b"\n", self.at)
        self.line += 1
        if end < 0:
            raise self.error(f"the file is truncated in {what}")
        line, self.at = self.data[self.at : end], end + 1
        try:
            return line.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not text") from None

    def number(self, word: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", word):
            raise self.error(f"{word[:20]!r} is not a number")
        return int(word)

    def literals(self, count: int, what: str) -> list[int]:
        words = self.next_line(what).split(" ")
        if len(words) != count:
            raise self.error(f"{what} has {len(words)} numbers, not {count}")
        literals = [self.number(word) for word in words]
        for literal in literals:
            if literal > 2 * self.M + 1:
                raise self.error(f"{what} names literal {literal}, beyond 2M+1={2 * self.M + 1}")
        return literals

    def positive(self, literal: int, what: str) -> int:
        if literal < 2 or literal % 2:
            raise self.error(f"{what} is literal {literal}; it must be even and not 0")
        return literal

    def circuit(self) -> Circuit:
        if self.is_binary:
            inputs = [2 * j + 2 for j in range(self.I)]
        else:
            inputs = [self.positive(self.literals(1, "an input")[0], "an input") for _ in range(self.I)]
        check_distinct(self.name, "input", map(str, inputs))
        outputs = [self.literals(1, "an output")[0] for _ in range(self.O)]
        defined = set(inputs)
        for j in range(self.A):
            left, *right = self.binary_gate(j) if self.is_binary else self.literals(3, "an AND gate")
            if self.positive(left, "an AND gate") in defined:
                raise self.error(f"literal {left} is defined twice")
            defined.add(left)
            self.definitions[str(left)] = ("and", [self.read(literal) for literal in right])
        signals = [self.read(literal) for literal in outputs]
        input_names, output_names = self.symbols()
        # several outputs of one literal are usual in AIGER; each keeps its own name
        gates = from_signals(self.name, [str(x) for x in inputs], self.definitions, list(dict.fromkeys(signals)))
        node_of = dict(gates.outputs)
        return replace(
            gates,
            inputs=tuple(input_names),
            outputs=tuple((name, node_of[s]) for name, s in zip(output_names, signals, strict=True)),
        )

    def read(self, literal: int) -> str:
        """The signal of a literal; negations and constants are defined at their first use."""
        if literal < 2:
            self.definitions[str(literal)] = ("one" if literal else "zero", [])
        elif literal % 2:
            self.definitions[str(literal)] = ("not", [str(literal - 1)])
        return str(literal)

    def binary_gate(self, j: int) -> list[int]:
        left = 2 * (self.I + j + 1)
        first = left - self.delta(left)
        second = first - self.delta(left)
        if not 0 <= second <= first < left:
            raise self.error(f"AND gate {left} reads literal {min(first, second)}; it must be in 0..{left - 1}")
        return [left, first, second]

    def delta(self, left: int) -> int:
        value, shift = 0, 0
        while True:
            if self.at >= len(self.data):
                raise self.error(f"the file is truncated in AND gate {left}")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 35:
                raise self.error(f"AND gate {left} has a difference of more than 35 bits")

    def symbols(self) -> tuple[list[str], list[str]]:
        """Names of inputs and outputs; without a symbol i0, i1, ... and o0, o1, ..."""
        names = {f"i{j}": f"i{j}" for j in range(self.I)} | {f"o{j}": f"o{j}" for j in range(self.O)}
        named: set[str] = set()
        while self.at < len(self.data):
            line = self.next_line("the symbol table") if self.data[self.at : self.at + 2] != b"c\n" else "c"
            if line == "c" or (not line and not self.data[self.at :].strip()):
                break
            key, _, symbol = line.partition(" ")
            if key not in names or key in named or not symbol:
                raise self.error(f"{line[:30]!r} is not the one symbol of an input (i) or output (o)")
            named.add(key)
            names[key] = symbol
        inputs, outputs = [names[f"i{j}"] for j in range(self.I)], [names[f"o{j}"] for j in range(self.O)]
        check_distinct(self.name, "input", inputs)
        check_distinct(self.name, "output", outputs)
        return inputs, outputs


def _bench(name: str, text: str) -> Circuit:
    """ISCAS .bench: INPUT(x), OUTPUT(y), y = KIND(a, b, ...); y = vdd and y = gnd are the constants."""
    inputs: list[str] = []
    outputs: list[str] = []
    definitions: dict[Signal, Definition] = {}
    for number, line in _lines(name, text):
        line, where = line.strip(), f"{name}: line {number}"
        if not line:
            continue
        if port := re.fullmatch(r"(INPUT|OUTPUT)\s*\(\s*([^\s(),=]+)\s*\)", line, re.IGNORECASE | re.ASCII):
            (inputs if port[1].upper() == "INPUT" else outputs).append(port[2])
            continue
        gate = re.fullmatch(r"([^\s(),=]+)\s*=\s*(\w+)\s*(?:\(([^()=]*)\))?", line, re.ASCII)
        if not gate:
            raise BadInput(f"{where}: {line[:40]!r} is neither INPUT(x), OUTPUT(y) nor y = KIND(a, b)")
        signal, kind = gate[1], gate[2].lower()
        fan_in: list[Signal] = [word.strip() for word in gate[3].split(",")] if (gate[3] or "").strip() else []
        if not all(isinstance(word, str) and re.fullmatch(r"\S+", word) for word in fan_in):
            raise BadInput(f"{where}: {signal} reads ({gate[3][:40]}), which is no list of names with commas between")
        if signal in definitions:
            raise BadInput(f"{where}: signal {signal} is defined twice")
        if kind.startswith("dff"):
            raise BadInput(f"{where}: {signal} is a latch ({gate[2]}); only combinational circuits are computed")
        definitions[signal] = (_bench_kind(where, signal, kind, len(fan_in)), fan_in)
    check_distinct(name, "input", inputs)
    check_distinct(name, "output", outputs)
    return from_signals(name, inputs, definitions, outputs)


def _bench_kind(where: str, signal: str, kind: str, fan_in: int) -> str:
    if kind in BENCH_CONSTANTS and not fan_in:
        return BENCH_CONSTANTS[kind]
    if kind not in BENCH_KINDS:
        raise BadInput(f"{where}: {signal} is of the unknown kind {kind[:20]!r}, not {', '.join(BENCH_KINDS)}")
    if not fan_in or (BENCH_KINDS[kind] in ("not", "buf") and fan_in != 1):
        raise BadInput(f"{where}: {signal} is {kind} of {fan_in} inputs")
    return BENCH_KINDS[kind]


def _lines(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Every line less its comment and the blanks at its end.

    A line ends with a line feed. Python would end one also at a form feed or U+2028, and part words at U+00A0, where
    other readers go on: such a character is refused, except in a comment.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.split("#")[0].rstrip(" \t\r")
        if odd := re.search(r"[^\S \t]|[\x00-\x08\x0e-\x1f\x7f]", line):
            raise BadInput(f"{name}: line {number}: holds the character {odd[0]!a}, which is no blank and in no name")
        yield number, line


def _blif(name: str, text: str) -> Circuit:
    """Flat combinational BLIF: one .model with .inputs, .outputs and .names covers, closed by .end."""
    inputs: list[str] = []
    outputs: list[str] = []
    covers: dict[str, tuple[str, list[str], list[str]]] = {}
    cubes: list[str] | None = None
    is_open, is_named = True, False
    for number, words in _blif_lines(name, text):
        where, (word, *rest) = f"{name}: line {number}", words
        if not is_open and word != ".exdc":
            raise BadInput(f"{where}: {word[:20]!r} after .end; only one flat model is read")
        if not word.startswith("."):
            if cubes is None:
                raise BadInput(f"{where}: {' '.join(words)[:30]!r} belongs to no .names")
            cubes.append(" ".join(words))
            continue
        cubes = None
        match word:
            case ".model":
                if is_named or covers or inputs or outputs:
                    raise BadInput(f"{where}: a second .model; only one flat model is read")
                is_named = True
            case ".inputs":
                inputs += rest
            case ".outputs":
                outputs += rest
            case ".end":
                is_open = False
            case ".names" if rest:
                cubes = []
                if rest[-1] in covers:
                    raise BadInput(f"{where}: signal {rest[-1]} is defined twice")
                covers[rest[-1]] = (where, rest[:-1], cubes)
            case ".latch" | ".mlatch":
                raise BadInput(f"{where}: {word}; only combinational circuits are computed")
            case _:
                raise BadInput(f"{where}: {word[:20]} is not read; flatten the model to .names (ABC: strash)")
    if is_open:
        raise BadInput(f"{name}: no .end; the file may be truncated")
    check_distinct(name, "input", inputs)
    check_distinct(name, "output", outputs)
    # what a cover reads is checked also where no row of it depends on that
    topological(name, inputs, {signal: ("names", fan_in) for signal, (_, fan_in, _) in covers.items()})
    definitions: dict[Signal, Definition] = {}
    for signal, (where, fan_in, rows) in covers.items():
        definitions |= _cover(where, signal, fan_in, rows)
    return from_signals(name, inputs, definitions, outputs)


def _blif_lines(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The words of every logical line: comments cut, lines ending in a backslash joined."""
    pending, first = "", 0
    for number, line in _lines(name, text):
        first = first or number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        words = (pending + line).split()
        if words:
            yield first, words
        pending, first = "", 0
    if pending:
        raise BadInput(f"{name}: line {first}: ends in a backslash; the file is truncated")


def _cover(where: str, signal: str, fan_in: list[str], rows: list[str]) -> dict[Signal, Definition]:
    """A sum of products as gates: AND of literals, then OR, negated for a cover of the zeros."""
    if not rows:
        return {signal: ("zero", [])}
    values = {row[-1] for row in rows}
    for row in rows:
        if not re.fullmatch(rf"[01-]{{{len(fan_in)}}} [01]" if fan_in else "[01]", row):
            raise BadInput(f"{where}: row {row[:30]!r} of {signal} is not {len(fan_in)} of 0, 1, - and 0 or 1")
    if len(values) > 1:
        raise BadInput(f"{where}: {signal} lists both ones and zeros; a cover lists one of the two")
    is_zeros = values == {"0"}
    definitions: dict[Signal, Definition] = {}
    products: list[Signal] = []
    for j, row in enumerate(rows):
        literals = [_literal(definitions, x, v) for x, v in zip(fan_in, row, strict=False) if v in "01"]
        products.append(Part(signal, f"{{}}*{j}"))
        definitions[products[-1]] = ("and", literals) if literals else ("one", [])
    definitions[signal] = ("nor" if is_zeros else "or", products)
    return definitions


def _literal(definitions: dict[Signal, Definition], signal: str, value: str) -> Signal:
    if value == "1":
        return signal
    negated = Part(signal, "~{}")
    definitions[negated] = ("not", [signal])
    return negated
