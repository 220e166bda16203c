"""Regular languages: a circuit is its automaton unrolled, by induction over the positions of a string."""

from itertools import product

from verify.checker.netlists import Gates
from verify.checker.reading import as_text, require
from verify.checker.records import ChainCertificate, CircuitSizes, SavedAutomaton
from verify.checker.statement import compare

DEAD = -1  # where there is no transition


def check_language(circuit: Gates, found: SavedAutomaton, p: CircuitSizes, c: ChainCertificate) -> int:
    """How many strings there are.

    After each symbol, the nodes of the states are 1 at the automaton's state and 0 elsewhere; so is the output.
    """
    step, accepting, slices, length = found["step"], found["accepting"], found["slices"], p["length"]
    symbols, width = len(p["alphabet"]), max(1, (len(p["alphabet"]) - 1).bit_length())
    is_right = len({*p["alphabet"]}) == symbols > 0 and all(len(row) == symbols for row in step) and step != []
    is_right = is_right and all(DEAD <= x < len(step) for row in step for x in row)
    require(is_right and circuit.inputs == length * width, "program: is no automaton on such strings")
    require(len(slices) == length + 1 and len(circuit.outputs) == 1, "program: slices of another length")
    ways: dict[int, int] = {0: 1}
    is_pair = all(len(x) == 2 and x[1] < circuit.nodes for pairs in slices for x in pairs)
    require(is_pair and _is_one_hot(slices[0], [0], circuit, {}, 1), "program: the start is not its node")
    for t in range(length):
        cases, after = [*product(sorted(ways), range(symbols))], dict[int, int]()
        states = [DEAD if q == DEAD else step[q][a] for q, a in cases]
        for (q, _), x in zip(cases, states, strict=True):
            after[x] = after.get(x, 0) + ways[q]
        bits = {t * width + j: sum((a >> j & 1) << i for i, (_, a) in enumerate(cases)) for j in range(width)}
        known = bits | _one_hot(slices[t], [q for q, _ in cases])
        is_so = _is_one_hot(slices[t + 1], states, circuit, known, (1 << len(cases)) - 1)
        require(is_so, f"program: the states after {t + 1} symbols are not their nodes")
        ways = after
    final, word = [*ways], sum((q in accepting) << i for i, q in enumerate(ways))
    known = _one_hot(slices[length], final)
    output = circuit.value(circuit.outputs[0], known, (1 << len(final)) - 1)
    require(output == word, "program: the output is not whether the string is accepted")
    accepted = sum(n for q, n in ways.items() if q in accepting)
    compare(c, {"accepted": str(accepted)})
    require(as_text(c["language"]).endswith(f' over {p["alphabet"]}, {len(step)} states"'), "language: is of others")
    return int(symbols**length)


def spelled(bits: str, p: CircuitSizes) -> str:
    """The string that the bits of an input stand for: of each symbol the lowest bit first. Raises: Refusal for none."""
    alphabet, length = p["alphabet"], p["length"]
    width = max(1, (len(alphabet) - 1).bit_length())
    require(len(bits) == width * length and {*bits} <= {*"01"}, "counterexample: has not the bits of a string")
    found = [int(bits[i : i + width][::-1], 2) for i in range(0, len(bits), width)]
    require(all(a < len(alphabet) for a in found), "counterexample: its bits encode no string")
    return "".join(alphabet[a] for a in found)


def _one_hot(pairs: list[list[int]], states: list[int]) -> dict[int, int]:
    return {node: sum((q == state) << i for i, q in enumerate(states)) for state, node in pairs}


def _is_one_hot(pairs: list[list[int]], states: list[int], circuit: Gates, known: dict[int, int], mask: int) -> bool:
    due = _one_hot(pairs, states)
    return all(circuit.value(node, known, mask) == word for node, word in due.items())
