"""Ground truth for circuits: plain Python integers, no torch, no numpy, nothing of the code under test."""

from __future__ import annotations

import random
import re
from pathlib import Path

import mpmath

DATA = Path(__file__).parents[1] / "data" / "circuits"


def rounded(numerator: int, denominator: int, s: int) -> int:
    """The nearest integer to a fraction, a tie to the smaller magnitude, within 4^s - 1."""
    whole, rest = divmod(abs(numerator), denominator)
    whole = min(whole + (2 * rest > denominator), 4**s - 1)
    return whole if numerator >= 0 else -whole


def stored(weight: float, s: int) -> int:
    numerator, denominator = float(weight).as_integer_ratio()
    return rounded(numerator * 2**s, denominator, s)


class NaiveTransformer:
    """The transformer of the theorem, every operation a rounded one, nothing skipped and nothing shared."""

    def __init__(self, state: dict, n: int, T: int, s: int, g: int = 3):
        self.n, self.T, self.s, self.g = n, T, s, g
        self.w = {name: self._round(tensor.tolist()) for name, tensor in state.items()}

    def _round(self, x):
        return [self._round(y) for y in x] if isinstance(x, list) else stored(x, self.s)

    def add(self, x, y):
        return rounded(x + y, 1, self.s)

    def times(self, x, y):
        return rounded(x * y, 2**self.s, self.s)

    def dot(self, x, y):
        total = 0
        for a, b in zip(x, y, strict=True):
            total = self.add(total, self.times(a, b))
        return total

    def affine(self, x, W, b=None):
        columns = len(W[0]) if W else 0
        out = [self.dot(x, [row[j] for row in W]) for j in range(columns)]
        return out if b is None else [self.add(o, c) for o, c in zip(out, b, strict=True)]

    def exp(self, j):
        with mpmath.workdps(60):
            return min(int(mpmath.nint(mpmath.exp(mpmath.mpf(j) / 2**self.s) * 2**self.s)), 4**self.s - 1)

    def head(self, layer, query_stream, streams):
        w = {name: self.w[f"layers.{layer}.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O")}
        q = self.affine(query_stream, w["W_Q"])
        exponentials = [self.exp(self.dot(q, self.affine(x, w["W_K"]))) for x in streams]
        total = 0
        for e in exponentials:
            total = self.add(total, e)
        if total == 0:
            return None
        mixed = 0
        for e, x in zip(exponentials, streams, strict=True):
            weight = rounded(e * 2**self.s, total, self.s)
            mixed = self.add(mixed, self.times(weight, self.affine(x, w["W_V"])[0]))
        return [self.add(x, y) for x, y in zip(query_stream, self.affine([mixed], w["W_O"]), strict=True)]

    def feed_forward(self, layer, y):
        w = {name: self.w[f"layers.{layer}.{name}"] for name in ("W_1", "b_1", "W_2", "b_2")}
        hidden = [max(0, h) for h in self.affine(y, w["W_1"], w["b_1"])]
        return [self.add(a, b) for a, b in zip(y, self.affine(hidden, w["W_2"], w["b_2"]), strict=True)]

    def generate(self, prompt):
        tokens, first, second = list(prompt), [], []
        for m in range(self.n + self.T - 1):
            first.append([self.add(a, b) for a, b in zip(self.w["E"][tokens[m]], self.w["P"][m], strict=True)])
            y = self.head(0, first[m], first)
            if y is None:
                break
            second.append(self.feed_forward(0, y))
            if m + 1 < self.n:
                continue
            y = self.head(1, second[m], second)
            if y is None:
                break
            tokens.append(int(2 * self.feed_forward(1, y)[self.g] > 2**self.s))
        return tokens + [-1] * (self.n + self.T - len(tokens))


def bench_outputs(path: Path, bits: dict[str, int]) -> dict[str, int]:
    """A .bench file evaluated by its definitions, one input vector, recursively."""
    text = re.sub(r"#.*", "", path.read_text())
    gates = {y: (kind.lower(), args.replace(" ", "").split(","))
             for y, kind, args in re.findall(r"(\w+) *= *(\w+)\(([^)]*)\)", text)}  # fmt: skip
    values = dict(bits)

    def value(y):
        if y not in values:
            kind, args = gates[y]
            x = [value(a) for a in args]
            values[y] = {
                "and": all(x), "nand": not all(x), "or": any(x), "nor": not any(x),
                "xor": sum(x) % 2, "xnor": 1 - sum(x) % 2, "not": not x[0], "buf": x[0], "buff": x[0],
            }[kind]  # fmt: skip
        return int(values[y])

    return {y: value(y) for y in re.findall(r"OUTPUT\((\w+)\)", text)}


def random_gates(rng: random.Random, n: int, size: int) -> list[tuple[str, tuple[int, ...]]]:
    """Gates of every kind on earlier nodes."""
    gates = []
    for j in range(size):
        kind = rng.choice(["and", "not", "or", "nand", "xor", "nor", "xnor", "buf", "one", "zero"])
        count = 0 if kind in ("one", "zero") else 1 if kind in ("not", "buf") else rng.randrange(1, 4)
        gates.append((kind, tuple(rng.randrange(n + j) for _ in range(count))))
    return gates


def gate_value(kind: str, x: list[int]) -> int:
    return int({
        "and": all(x), "nand": not all(x), "or": any(x), "nor": not any(x), "xor": sum(x) % 2,
        "xnor": 1 - sum(x) % 2, "not": not any(x), "buf": any(x), "one": True, "zero": False,
    }[kind])  # fmt: skip


def gate_values(gates, bits) -> list[int]:
    """Every node's value, by Python's own words for the gates."""
    values = list(bits)
    for kind, fan_in in gates:
        values.append(gate_value(kind, [values[node] for node in fan_in]))
    return values
