"""Certificates about transformers that count inductively: every input is run in balls (docs/checker.md)."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from flint import arb

from verify.checker.computed_decoder import ComputedDecoder
from verify.checker.decoder import Decoder
from verify.checker.exponentials import BITS
from verify.checker.reading import NOT_CHECKABLE, Refusal, as_text, require
from verify.checker.roundoff import opened
from verify.checker.statement import compare

SIZES = {
    "vanilla": ["vocabulary"], "succession": ["vocabulary"], "shifted": ["vocabulary"], "helper": ["vocabulary"],
    "helper-shifted": ["vocabulary"], "modular": ["modulus"], "first-homogeneous": [],
    "selective": ["types", "max_count"], "selective-modular": ["types", "max_count", "modulus"],
    "first-heterogeneous": ["types"],
}  # fmt: skip
STARTED = ("shifted", "helper", "helper-shifted")
MOST_WORK, LONGEST = 10**8, 1 << 10  # numbers of the file times tokens that are run; tokens of a string
ASSUMED = [
    "torch.export traced the module faithfully",
    "the module is called on a batch of one input",
]
CONTRACT = [
    "each operation is rounded to nearest, or kept with 2p + 2 bits; sums in any order, products fused or not",
    "exp and erf within 8 u of their value, GELU within 8 u of |x|, exp(0) = 1",
    "LayerNorm in one pass, two passes or by Welford",
]
RIGHT = "right means: at every judged position the right class has strictly the largest logit"

Tokens = tuple[int, ...]


def check(weights: bytes, c: dict[str, Any]) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    verdict, fmt, trusted = opened("transformer", c)
    model = Decoder(weights) if fmt is None else ComputedDecoder(weights, fmt)
    task, p = CountingTask(c["parameters"]), c["parameters"]
    due = {"name": task.name, "model": "transformer", **model.says, **task.sizes}
    due |= {name: p[name] for name in ("precision", "accumulate") if fmt and name in p}
    due |= {"distinct_start": True} if task.distinct else {}
    compare(c, {"parameters": due, "assumptions": [*ASSUMED, *(CONTRACT if fmt else []), RIGHT]})
    require((model.tokens, model.classes) == (task.tokens, task.classes), "weights: other tokens or classes")
    if verdict == "REFUTED":
        _refute(model, task, c)
        return verdict, trusted
    longest = _longest(model, task, c["length"])
    names_it = "longest" not in c or c["length"] == "all" and c["longest"] == longest
    require(names_it, "longest: is not what the table of positions holds")
    require(c["margin"] is not None and c["margin"] > 0, "margin: must be above zero")
    rooms = [None] if model.positions is None else range(model.positions - model.bos, 0, -1)
    inputs = work = 0
    for shift, room in enumerate(rooms):
        prefixes: dict[tuple[int, int], int] = {}
        for tokens in task.longest_inputs(longest, room):
            work += len(tokens) * model.size
            require(work <= MOST_WORK and len(tokens) <= LONGEST, "so many inputs are not run again", NOT_CHECKABLE)
            _show(model, task, tokens, shift, c)
            place = 0
            for token in tokens:
                place = prefixes.setdefault((place, token), len(prefixes) + 1)
        inputs += len(prefixes)
    compare(c, {"inputs_covered": str(inputs)})
    says = c.get("accuracy", {})
    ranges = ("1..50", f"51..{128 if task.name.startswith('first') else 100}")
    is_all = isinstance(says, dict) and {*says} <= {*ranges} and all(x == ["1/1", "1/1"] for x in says.values())
    require(is_all, "accuracy: is not that of a proof")
    return verdict, trusted


class CountingTask:
    """A task: its inputs, and the class that is right at each of their positions."""

    def __init__(self, p: dict[str, Any]) -> None:
        self.name, self.distinct = p["name"], "distinct_start" in p
        require(self.name in SIZES, f"parameters: {self.name[:80]!r} is no task")
        self.sizes = {name: p.get(name) for name in SIZES[self.name]}
        require(all(type(n) is int and n > 0 for n in self.sizes.values()), "parameters: a size is missing")
        self.M: Any  # a number wherever the task has number words
        self.M, self.m, self.K, self.C = (p.get(name) for name in ("vocabulary", "modulus", "types", "max_count"))
        require(not self.distinct or (self.K or 0) > 1, "parameters: no first two tokens differ")
        self.tokens = self.K or (1 if self.name in ("vanilla", "modular", "first-homogeneous") else self.words)
        of_count = (self.M if self.M is not None else self.C or 0) + 1
        self.classes = self.m if self.m is not None else 2 if self.name.startswith("first") else of_count

    @property
    def words(self) -> int:
        """Number words 0..M, a, and b where there is a helper."""
        return int(self.M) + 2 + int(self.name.startswith("helper"))

    def ends_at(self) -> int | None:
        """The largest length that number words leave room for."""
        return None if self.M is None else int(self.M) - (self.name == "shifted")

    def longest_inputs(self, longest: int, room: int | None) -> Iterator[Tokens]:
        """Inputs of which all inputs are prefixes, and no others; at most `room` tokens."""
        most = longest if room is None else min(longest, room)
        if self.K is not None:
            every = product(range(self.K), repeat=most)
            yield from (x for x in every if not self.distinct or x[1:2] != x[:1])
        elif self.name in STARTED:
            first = {"shifted": range(1, self.M + 1), "helper": range(1), "helper-shifted": range(self.M + 1)}
            for start in first[self.name]:
                for filler in range(self.M + 1, self.tokens if start < self.M else self.M + 2):
                    yield (start, *[filler] * min(longest, self.M - start))[:room]
        else:
            yield (self.M + 1 if self.name == "succession" else 0,) * most
            if self.name == "succession" and self.M > 1:
                yield (*range(1, min(most, self.M - 1) + 1),)

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
            return [tokens[0] + i if tokens[0] + i <= self.M else None for i in range(len(tokens))]
        if self.name == "succession" and tokens[:1] == (1,):
            return [t + 1 if t < self.M else None for t in tokens]
        counts = [tokens[: i + 1].count(t) for i, t in enumerate(tokens)]
        most = self.C if self.C is not None else self.M
        return [None if most is not None and n > most else (n - 1) % self.m if self.m else n for n in counts]


def _longest(model: Decoder, task: CountingTask, length: Any) -> int:
    """The length that the certificate names: all that there are, or as many tokens after a leading one."""
    most, leading = task.ends_at(), task.name in STARTED
    room = None if model.positions is None else model.positions - model.bos
    if length == "all":
        require(task.M is None, "length: number words end it")
        is_checkable = room is not None and room <= LONGEST
        require(is_checkable, "proofs of all lengths, or of long strings, are not checked", NOT_CHECKABLE)
        return room or 0
    tops = [n for n in (most, None if room is None else room - leading) if n is not None]
    is_length = type(length) is int and 0 < length <= min([*tops, length])
    require(is_length, f"length: {as_text(length)[:80]} is none")
    require(task.M is not None or length != room, "length: is all that there are")
    require(length <= LONGEST, f"strings of more than {LONGEST} tokens are not run", NOT_CHECKABLE)
    return int(length)


def _show(model: Decoder, task: CountingTask, tokens: Tokens, shift: int, c: dict[str, Any]) -> None:
    """Every judged position of an input has the margin, and the one times the number of positions that it sees.

    In a dtype every order has half of both, and no order is shown to have less than all of them.
    """
    margin, scaled, due = arb(c["margin"]), arb(c.get("margin_scaled", 0.0)), task.due(tokens)
    for bits in BITS[:2]:
        rows = [*enumerate(model.gaps(tokens, due, shift, bits), 1)]
        if isinstance(model, ComputedDecoder):
            has_less = any(x < margin or x * (i + model.bos) < scaled for i, row in rows for x in row)
            require(not has_less, f"margin: {list(tokens)[:20]} at shift {shift} has less")
            has_half = all(2 * x >= margin and 2 * x * (i + model.bos) >= scaled for i, row in rows for x in row)
            require(has_half, f"half of the margin is not shown for {list(tokens)[:20]}, shift {shift}", NOT_CHECKABLE)
            return
        if all(x >= margin and x * (i + model.bos) >= scaled for i, row in rows for x in row):
            return
    raise Refusal(f"margin: is not shown for {list(tokens)[:20]} at shift {shift}")


def _refute(model: Decoder, task: CountingTask, c: dict[str, Any]) -> None:
    """One input decides, in balls: at its last position some other logit is at least the due one."""
    case, room = c["counterexample"], None if model.positions is None else model.positions - model.bos
    tokens, shift, leading = (*case["input"],), case["shift"], task.name in STARTED
    is_there = shift == 0 if room is None else shift < room
    is_there = is_there and task.is_input(tokens, None if room is None else room - shift)
    require(is_there, f"counterexample: {list(tokens)[:20]} at shift {shift} is no input")
    due = task.due(tokens)
    right, last = due[-1], len(tokens) - 1
    require(right is not None, "counterexample: its last position is not judged")
    said = {"position": last, "expected": (right or 0) + (task.m is not None), "length": last + 1 - leading}
    compare(case, said | {"start": tokens[0] if leading else None})
    require(c["margin"] is None or c["margin"] <= 0, "margin: must not be above zero")
    for bits in BITS:
        row = model.gaps(tokens, due, shift, bits)[-1]
        require(not all(x > 0 for x in row), f"counterexample: {list(tokens)[:20]} is answered rightly")
        if any(x <= 0 for x in row):
            return
    raise Refusal("the sign of a difference of logits does not show", NOT_CHECKABLE)
