"""Circuits as certificates write them: the file's gates, the steps of AND and NOT, and which step is which gate's."""

from collections import Counter
from collections.abc import Callable
from functools import cached_property, reduce
from operator import and_, or_, xor

from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import SavedGates

FOLDS = {"and": and_, "nand": and_, "or": or_, "nor": or_, "xor": xor, "xnor": xor, "buf": and_, "not": and_}
NEGATED = ("nand", "nor", "xnor", "not")
MOST_VARIABLES = 17  # of one gate
Below = Callable[[int], list[int]]
Word = Callable[[int, list[int]], int]


class Gates:
    """The file's gates, the steps, and which step is which gate's. Raises: Refusal where one is not."""

    def __init__(self, found: SavedGates, n: int, T: int) -> None:
        self.inputs, self.outputs = found["inputs"], found["outputs"]
        self.steps, self.node_of, self.n = found["steps"], found["node_of"], n
        require(len(self.steps) == T and n == max(1, self.inputs), "program: is of other sizes")
        for i, read in enumerate(self.steps):
            require(len(read) in (1, 2) and max(read) < n + i, f"program: step {i + 1} reads no earlier nodes")
        nodes = self.nodes = self.inputs + len(found["gates"])
        require(len(self.node_of) == nodes and self.node_of[: self.inputs] == [*range(self.inputs)], "program: node_of")
        require(
            max(self.node_of, default=0) < n + T and self.outputs != [] and max(self.outputs) < nodes, "program: nodes"
        )
        self.gates = [self._checked(i, *gate) for i, gate in enumerate(found["gates"], self.inputs)]

    def _checked(self, node: int, said: str | int = "", *given: str | int) -> tuple[str, list[int]]:
        """A gate's kind and what it reads: for all values of that its step has its value, as bits of words at once."""
        kind, read = str(said), [x for x in given if type(x) is int and 0 <= x < node]
        arity = (0, 0) if kind in ("zero", "one") else (1, 1) if kind in ("not", "buf") else (1, 16)
        is_gate = kind in ("zero", "one", *FOLDS) and read == [*given] and arity[0] <= len(read) <= arity[1]
        require(is_gate, f"program: node {node} is no gate")
        places = [*dict.fromkeys(self.node_of[x] for x in read)]
        free = [x for x in self._reached(self.node_of[node], places) if x not in places]
        words, mask = _words(places + free)
        known = {x: words[x] for x in places + free}
        valid = mask
        for place in places:  # a step's negation is known where the step is
            x = place
            while x >= self.n and len(self.steps[x - self.n]) == 1:
                (below,), word = self.steps[x - self.n], known[x] ^ mask
                valid &= ~(known.setdefault(below, word) ^ word)
                x = below
        value = evaluated(self.node_of[node], known, self._below, lambda x, words: _step(words, mask))
        due = _gate(kind, [known[self.node_of[x]] for x in read], mask)
        require(value & valid == due & valid, f"program: the step of node {node} is not its {kind}")
        return kind, read

    def _reached(self, node: int, places: list[int]) -> list[int]:
        """The inputs that a step depends on but for what is known."""
        seen, stack, found = set(places), [node], list[int]()
        for place in places:
            x = place
            while x >= self.n and len(self.steps[x - self.n]) == 1:
                x = self.steps[x - self.n][0]
                seen.add(x)
        while stack:
            x = stack.pop()
            if x not in seen:
                seen.add(x)
                found += [x] if x < self.n else []
                stack += self.steps[x - self.n] if x >= self.n else []
        return found

    def _below(self, node: int) -> list[int]:
        return self.steps[node - self.n] if node >= self.n else []

    def value(self, node: int, known: dict[int, int], mask: int) -> int:
        """The word of one of the file's nodes, from those that are known."""
        first, gates = self.inputs, self.gates
        return evaluated(
            node,
            known,
            lambda x: gates[x - first][1] if x >= first else [],
            lambda x, words: _gate(gates[x - first][0] if x >= first else None, words, mask),
        )

    @cached_property
    def _all_words(self) -> list[int]:
        """The word of each step's node over all inputs."""
        require(self.n <= MOST_VARIABLES, "whether an input brings these tokens is not checked", NOT_CHECKABLE)
        known, mask = _words([*range(self.n)])
        words = [known[x] for x in range(self.n)]
        for read in self.steps:
            words.append(_step([words[x] for x in read], mask))
        return words

    def reaches(self, tokens: dict[int, int]) -> bool:
        """Whether some input gives these nodes these values."""
        words, mask = self._all_words, (1 << (1 << self.n)) - 1
        return reduce(and_, (words[node] ^ mask * (bit == 0) for node, bit in tokens.items()), mask) != 0

    def statistics(self) -> dict[str, int]:
        """How many there are of each, the longest path and the most that one gate reads."""
        depth = [0] * self.inputs
        for _, read in self.gates:
            depth.append(1 + max((depth[x] for x in read), default=0))
        sizes = {"inputs": self.inputs, "outputs": len(self.outputs), "gates": len(self.gates)}
        sizes |= {"depth": max(depth, default=0), "largest fan-in": max((len(x) for _, x in self.gates), default=0)}
        return sizes | Counter(kind for kind, _ in self.gates)


def _words(names: list[int]) -> tuple[dict[int, int], int]:
    """A word for each name, whose bits together are all cases; and the word of all ones."""
    require(len(names) <= MOST_VARIABLES, "a gate of so many inputs is not checked", NOT_CHECKABLE)
    size = 1 << len(names)
    return {x: sum(1 << j for j in range(size) if j >> i & 1) for i, x in enumerate(names)}, (1 << size) - 1


def _step(words: list[int], mask: int) -> int:
    """NOT of one word, AND of two; an input has none."""
    require(bool(words), "program: a step depends on another input")
    return words[0] & words[1] if len(words) > 1 else words[0] ^ mask


def _gate(kind: str | None, words: list[int], mask: int) -> int:
    require(kind is not None, "program: a state depends on an input of another position")
    if kind in ("zero", "one"):
        return mask * (kind == "one")
    return int(reduce(FOLDS[str(kind)], words)) ^ mask * (kind in NEGATED)


def evaluated(node: int, known: dict[int, int], below: Below, word: Word) -> int:
    """What a node is, from what is known and what is below each node; `known` grows by all that is met."""
    stack = [node]
    while stack:
        missing = [] if stack[-1] in known else [y for y in below(stack[-1]) if y not in known]
        stack += missing
        if not missing:
            x = stack.pop()
            if x not in known:
                known[x] = word(x, [known[y] for y in below(x)])
    return known[node]
