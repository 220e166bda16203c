"""The tasks of transformers that count: their inputs, and what is right at each position (docs/checker.md)."""

from collections.abc import Iterator
from itertools import product

from verify.checker.reading import require
from verify.checker.records import CountingSizes

SIZES = {
    "vanilla": ["vocabulary"], "succession": ["vocabulary"], "shifted": ["vocabulary"], "helper": ["vocabulary"],
    "helper-shifted": ["vocabulary"], "modular": ["modulus"], "first-homogeneous": [],
    "selective": ["types", "max_count"], "selective-modular": ["types", "max_count", "modulus"],
    "first-heterogeneous": ["types"],
}  # fmt: skip
STARTED = ("shifted", "helper", "helper-shifted")
LONGEST = 1 << 10  # tokens of a string

Tokens = tuple[int, ...]


class CountingTask:
    """A task: its inputs, and the class that is right at each of their positions."""

    def __init__(self, p: CountingSizes) -> None:
        self.name, self.distinct = p["name"], "distinct_start" in p
        require(self.name in SIZES, f"parameters: {self.name[:80]!r} is no task")
        self.sizes = {name: {**p}.get(name) for name in SIZES[self.name]}
        require(all(type(n) is int and n > 0 for n in self.sizes.values()), "parameters: a size is missing")
        self.M, self.m, self.K, self.C = p.get("vocabulary"), p.get("modulus"), p.get("types"), p.get("max_count")
        self.last = self.M or 0  # number word, where there are any
        require(not self.distinct or (self.K or 0) > 1, "parameters: no first two tokens differ")
        self.tokens = self.K or (1 if self.name in ("vanilla", "modular", "first-homogeneous") else self.words)
        of_count = (self.M if self.M is not None else self.C or 0) + 1
        self.classes = self.m if self.m is not None else 2 if self.name.startswith("first") else of_count

    @property
    def words(self) -> int:
        """Number words 0..M, a, and b where there is a helper."""
        return self.last + 2 + int(self.name.startswith("helper"))

    def ends_at(self) -> int | None:
        """The largest length that number words leave room for."""
        return None if self.M is None else self.last - (self.name == "shifted")

    def longest_inputs(self, longest: int, room: int | None) -> Iterator[Tokens]:
        """Inputs of which all inputs are prefixes, and no others; at most `room` tokens."""
        most = longest if room is None else min(longest, room)
        if self.K is not None:
            every = product(range(self.K), repeat=most)
            yield from (x for x in every if not self.distinct or x[1:2] != x[:1])
        elif self.name in STARTED:
            first = {"shifted": range(1, self.last + 1), "helper": range(1), "helper-shifted": range(self.last + 1)}
            for start in first[self.name]:
                for filler in range(self.last + 1, self.tokens if start < self.last else self.last + 2):
                    yield (start, *[filler] * min(longest, self.last - start))[:room]
        else:
            yield (self.last + 1 if self.name == "succession" else 0,) * most
            if self.name == "succession" and self.last > 1:
                yield (*range(1, min(most, self.last - 1) + 1),)

    def is_input(self, tokens: Tokens, room: int | None) -> bool:
        """Whether the task has this input, and positions for it."""
        if not tokens or len(tokens) > LONGEST or (room is not None and len(tokens) > room):
            return False
        if self.K is not None:
            return max(tokens) < self.K and not (self.distinct and tokens[1:2] == tokens[:1])
        longest = self.ends_at() or (len(tokens) if self.M is None else 0)
        return any(x[: len(tokens)] == tokens for x in self.longest_inputs(longest, room))

    def due(self, tokens: Tokens) -> list[int | None]:
        """The right class at each position, None where none is judged."""
        if self.name.startswith("first"):
            return [int(i == 0) for i in range(len(tokens))]
        if self.name in STARTED:
            return [tokens[0] + i if tokens[0] + i <= self.last else None for i in range(len(tokens))]
        if self.name == "succession" and tokens[:1] == (1,):
            return [t + 1 if t < self.last else None for t in tokens]
        counts = [tokens[: i + 1].count(t) for i, t in enumerate(tokens)]
        most = self.C if self.C is not None else self.M
        return [None if most is not None and n > most else (n - 1) % self.m if self.m else n for n in counts]
