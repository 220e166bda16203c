"""Regular languages as circuits: an automaton unrolled over the positions of strings of one length."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from constructions import plain_json, regular_files
from constructions.circuits.automata_lib import DFA, NFA, AutomatonException, RegexException
from constructions.circuits.between import AT_ONCE, Between, goes_on, watched
from constructions.circuits.circuit import MAX_NODES, Circuit, Signal, from_signals
from constructions.circuits.expression import letters, plain
from constructions.circuits.expression_size import MOST_STATES, TRAP, deterministic, most_states
from constructions.errors import BadInput, shown

DEAD = -1
MOST_BYTES = 64 << 20  # of an automaton's file


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton: states 0 (the start), 1, ...; step[state][symbol] is a state or DEAD.

    >>> parity().accepts("1011")
    True
    """

    name: str
    alphabet: tuple[str, ...]
    step: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]

    def run(self, string: str) -> int:
        """The state after the string, DEAD once there is no transition."""
        state = 0
        for symbol in string:
            state = DEAD if state == DEAD else self.step[state][self.alphabet.index(symbol)]
        return state

    def accepts(self, string: str) -> bool:
        return self.run(string) in self.accepting


def from_regex(regex: str, alphabet: str = "01") -> Automaton:
    """The minimal automaton of a regular expression, by automata-lib, which is given its plain form.

    Its syntax: | union, & intersection, ^ shuffle, * + ? {m} {m,} {,n} {m,n} repetition, [01] and . classes, () the
    empty string. Where Python's re has the same, it is the same language; anchors, lazy repetitions, back references
    and (?...) are refused. What a class names outside the alphabet matches nothing.
    Raises: BadInput for a malformed expression, a symbol outside the alphabet, or an odd alphabet.

    >>> from_regex("0*1(0|10*1)*").accepts("0111")
    True
    """
    symbols = tuple(alphabet)
    check_alphabet(symbols)
    what = f"regular expression {shown(regex)}"
    read, coded = plain(regex, symbols), letters(symbols)
    most = most_states(len(symbols))
    if read.states > most:
        raise BadInput(f"{what}: may take {shown(read.states)} states, and at most {most} are built. Simplify it.")
    try:
        nfa = NFA.from_regex(read.text, input_symbols=set(coded))
        dfa = deterministic(nfa, what)
    except (RegexException, AutomatonException) as error:
        raise BadInput(f"{what} over {shown(alphabet)}: {error}") from None
    return replace(_canonical(f"/{regex}/", coded, dfa.minify(), TRAP in dfa.states), alphabet=symbols)


def from_dfa_file(path: str | Path) -> Automaton:
    """The automaton of a JSON file with `alphabet`, `start`, `accept` and `transitions`.

    transitions maps each state to {symbol: state}; what is missing leads nowhere.
    Raises: BadInput when the file is not such an automaton.

    >>> import json, tempfile
    >>> flips = {"a": {"1": "b", "0": "a"}, "b": {"1": "a", "0": "b"}}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump({"alphabet": ["0", "1"], "start": "a", "accept": ["b"], "transitions": flips}, file)
    ...     file.flush()
    ...     from_dfa_file(file.name).accepts("10110")
    True
    """
    try:
        data = plain_json.loads(regular_files.read(path, "dfa", MOST_BYTES))
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{path}: is not JSON text ({str(error)[:80]})") from None
    rule = "must be JSON with alphabet, start, accept and transitions, as in docs/circuit.md"
    try:
        transitions = {q: {a: _state_name(r) for a, r in row.items()} for q, row in data["transitions"].items()}
        alphabet, start = tuple(data["alphabet"]), _state_name(data["start"])
        check_alphabet(alphabet)
        if not isinstance(data["accept"], list):
            raise TypeError("accept is no list")
        states = {*transitions, *(q for row in transitions.values() for q in row.values()), start}
        if len(states) > MOST_STATES:
            raise BadInput(f"{path}: has {len(states)} states, and at most {MOST_STATES} are unrolled. Minimise it.")
        dfa = DFA(
            states=states,
            input_symbols=set(alphabet),
            transitions={q: transitions.get(q, {}) for q in states},
            initial_state=start,
            final_states={_state_name(q) for q in data["accept"]},
            allow_partial=True,
        )
    except (KeyError, TypeError, AttributeError, ValueError, AutomatonException) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: {rule} ({type(error).__name__}: {error})") from None
    return _canonical(Path(path).name, alphabet, dfa.minify())


def _state_name(state: object) -> str:
    """The name of a state, which is text, or a number that stands for its digits as in the keys of JSON."""
    if isinstance(state, bool) or not isinstance(state, str | int):
        raise TypeError(f"{shown(state)} is no name of a state")
    return str(state)


def check_alphabet(alphabet: tuple[str, ...]) -> None:
    if not alphabet or any(not isinstance(a, str) or len(a) != 1 for a in alphabet):
        raise BadInput(f"alphabet {''.join(map(str, alphabet))!r}: must be one or more single characters")
    if len(set(alphabet)) < len(alphabet):
        raise BadInput(f"alphabet {''.join(alphabet)!r}: names a symbol twice")


def _canonical(name: str, alphabet: tuple[str, ...], dfa: DFA, has_trap: bool = False) -> Automaton:
    """States numbered in the order of discovery, so that the same language gives the same weights.

    With `has_trap` the state, not the start, from which no string is accepted is left out: arrows to it lead nowhere.
    """
    number = {dfa.initial_state: 0}
    queue, step = deque([dfa.initial_state]), []
    traps = {
        q for q, row in dfa.transitions.items() if has_trap and q not in dfa.final_states and {*row.values()} == {q}
    }
    traps.discard(dfa.initial_state)
    while queue:
        row = {symbol: q for symbol, q in dfa.transitions[queue.popleft()].items() if q not in traps}
        for symbol in alphabet:
            if symbol in row and row[symbol] not in number:
                number[row[symbol]] = len(number)
                queue.append(row[symbol])
        step.append(tuple(number[row[symbol]] if symbol in row else DEAD for symbol in alphabet))
    accepting = frozenset(number[state] for state in dfa.final_states if state in number)
    return Automaton(name, alphabet, tuple(step), accepting)


def parity() -> Automaton:
    """Strings over 0 and 1 with an odd number of ones.

    >>> parity().accepts("1011"), parity().accepts("11")
    (True, False)
    """
    return Automaton("PARITY", ("0", "1"), ((0, 1), (1, 0)), frozenset({1}))


def majority(n: int) -> Automaton:
    """Strings of length n over 0 and 1 with more ones than zeros: a counter up to n // 2 + 1.

    MAJORITY is not regular; its strings of one length are, and this automaton is right for those.

    >>> majority(4).accepts("1011"), majority(4).accepts("1010")
    (True, False)
    """
    most = n // 2 + 1
    check_unrolled(n, most + 1, 2)
    step = tuple((count, min(count + 1, most)) for count in range(most + 1))
    return Automaton(f"MAJORITY of {n}", ("0", "1"), step, frozenset({most}))


@dataclass(frozen=True)
class Unrolling:
    """The circuit of an automaton on strings of length n, and its node for each (position, state) kept.

    `slices[t]` maps states after t symbols to nodes. It claims nothing: verify.tasks.circuit.language.task checks it.
    """

    automaton: Automaton
    n: int
    circuit: Circuit
    slices: tuple[dict[int, int], ...]

    @property
    def bits_per_symbol(self) -> int:
        return bits_per_symbol(self.automaton)

    def encode(self, string: str) -> list[int]:
        """The circuit's input of a string: each symbol's index in the alphabet, lowest bit first.

        Raises: BadInput for another length or an unknown symbol.
        """
        alphabet = self.automaton.alphabet
        if len(string) != self.n or set(string) - set(alphabet):
            raise BadInput(f"string {string[:40]!r}: must be {self.n} symbols of {''.join(alphabet)!r}")
        return [alphabet.index(a) >> j & 1 for a in string for j in range(self.bits_per_symbol)]

    def decode(self, bits: str) -> str | None:
        """The string of an input, None when some bits are no symbol's."""
        size, alphabet = self.bits_per_symbol, self.automaton.alphabet
        indices = [int(bits[t * size : (t + 1) * size][::-1], 2) for t in range(self.n)]
        return None if any(j >= len(alphabet) for j in indices) else "".join(alphabet[j] for j in indices)


def bits_per_symbol(automaton: Automaton) -> int:
    return max(1, (len(automaton.alphabet) - 1).bit_length())


def unroll(automaton: Automaton, n: int, between: Between = goes_on) -> Unrolling:
    """The circuit that says whether a string of n symbols is accepted: a node per position and useful state.

    Claim: E, Cor. 3.5. A state is useful after t symbols when some string leads there and some string on
    to acceptance. Size: at most n times the transitions of the automaton, each one AND, joined by ORs.
    `between` is called between pieces of the work, and may end it.
    Raises: BadInput for a negative length or a circuit that is too large.

    >>> unroll(parity(), 3).circuit.outputs_of([1, 1, 1])
    (1,)
    """
    check_unrolled(n, len(automaton.step), len(automaton.alphabet))
    useful = _useful_states(automaton, n)
    inputs = [name for t in range(1, n + 1) for name in _bit_names(automaton, t)]
    definitions: dict[Signal, tuple[str, Sequence[Signal]]] = {}
    at_once = max(1, AT_ONCE // (len(automaton.step) * len(automaton.alphabet)))  # positions
    for t in watched(range(1, n + 1), between, at_once):
        definitions.update(_symbols(automaton, t))
        definitions.update(_transitions(automaton, t, useful))
    last = [_state(n, state) for state in sorted(useful[n] & automaton.accepting)]
    if n == 0:
        definitions["accept"] = ("one" if useful[0] else "zero", [])
    else:
        definitions["accept"] = ("or", last) if last else ("zero", [])
    circuit = from_signals(f"{automaton.name}, length {n}", inputs, definitions, ["accept"], between)
    node_of = {gate.name: node for node, gate in enumerate(circuit.gates, start=len(inputs))}
    slices = tuple({q: node_of[_state(t, q)] for q in sorted(useful[t])} for t in range(1, n + 1))
    return Unrolling(automaton, n, circuit, ({}, *slices))


def check_unrolled(n: int, states: int, symbols: int) -> None:
    """Raises BadInput for a negative length, or one whose circuit is too large.

    >>> check_unrolled(-1, 2, 2)
    Traceback (most recent call last):
    constructions.errors.BadInput: length -1: must be at least 0
    """
    if n < 0:
        raise BadInput(f"length {shown(n)}: must be at least 0")
    if n * states * symbols > MAX_NODES:
        raise BadInput(f"length {shown(n)}: {shown(states)} states make more than the {MAX_NODES} nodes that fit")


def _useful_states(automaton: Automaton, n: int) -> list[set[int]]:
    reached = [{0}]
    for _ in range(n):
        reached.append({q for p in reached[-1] for q in automaton.step[p]} - {DEAD})
    wanted = [set(automaton.accepting)]
    for _ in range(n):
        wanted.append({p for p, row in enumerate(automaton.step) if wanted[-1] & set(row)})
    return [r & w for r, w in zip(reached, reversed(wanted), strict=True)]


def _bit_names(automaton: Automaton, t: int) -> list[str]:
    count = bits_per_symbol(automaton)
    return [f"x{t}"] if count == 1 else [f"x{t}.{j}" for j in range(count)]


def _state(t: int, state: int) -> str:
    return f"q{state}@{t}"


def _symbols(automaton: Automaton, t: int) -> dict[str, tuple[str, list[str]]]:
    """x_t=a for every symbol a: the AND of its bits."""
    definitions: dict[str, tuple[str, list[str]]] = {}
    bits = _bit_names(automaton, t)
    for index, symbol in enumerate(automaton.alphabet):
        literals = []
        for j, bit in enumerate(bits):
            if not index >> j & 1:
                definitions[f"~{bit}"] = ("not", [bit])
            literals.append(bit if index >> j & 1 else f"~{bit}")
        definitions[f"x{t}={symbol}"] = ("and", literals)
    return definitions


def _transitions(automaton: Automaton, t: int, useful: list[set[int]]) -> dict[str, tuple[str, list[str]]]:
    """q@t is the OR, over the transitions into q, of the state before AND the symbol."""
    definitions: dict[str, tuple[str, list[str]]] = {}
    into: dict[int, list[str]] = {q: [] for q in sorted(useful[t])}
    for p in sorted(useful[t - 1]):
        for index, q in enumerate(automaton.step[p]):
            if q in into:
                symbol = f"x{t}={automaton.alphabet[index]}"
                edge = f"{_state(t, q)}<{p}{automaton.alphabet[index]}"
                definitions[edge] = ("and", [symbol] if t == 1 else [_state(t - 1, p), symbol])
                into[q].append(edge)
    for q, edges in into.items():
        definitions[_state(t, q)] = ("or", edges)
    return definitions
