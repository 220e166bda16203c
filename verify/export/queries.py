"""What is asked of a network, in VNN-LIB 1.0 and 2.0: is there an input whose right answer is not the largest?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

Box = tuple[tuple[Fraction, Fraction], ...]  # lower and upper bound of each input, row by row


@dataclass(frozen=True)
class Query:
    """Inputs as a union of boxes, and the flat output that is to be larger than the others beside it.

    The query is satisfied where another output is at least as large: a tie is a wrong answer.
    """

    shape_in: tuple[int, int]
    shape_out: tuple[int, int]
    boxes: tuple[Box, ...]
    right: int
    others: tuple[int, ...]

    def points(self) -> np.ndarray:
        """The boxes' corners with all inputs low, and with all high, in float32: (2 boxes, rows, columns)."""
        corners = [[float(low) for low, _ in box] for box in self.boxes]
        corners += [[float(high) for _, high in box] for box in self.boxes]
        return np.array(corners, dtype=np.float32).reshape(-1, *self.shape_in)

    def is_met(self, outputs: np.ndarray) -> np.ndarray:
        """Whether each row of flat outputs meets the query; NaN does not count as larger."""
        met: np.ndarray = np.logical_not(np.all(outputs[:, [self.right]] > outputs[:, list(self.others)], axis=1))
        return met


def one_hot_box(tokens: Sequence[int], T: int) -> Box:
    """The point of a sequence: rows of zeros with a one at the token.

    >>> one_hot_box([1], 2)
    ((Fraction(0, 1), Fraction(0, 1)), (Fraction(1, 1), Fraction(1, 1)))
    """
    return tuple((Fraction(int(t == s)),) * 2 for t in tokens for s in range(T))


def decimal_of(x: Fraction) -> str:
    """A binary fraction in decimal digits, all of them.

    >>> decimal_of(Fraction(-3, 8)), decimal_of(Fraction(2))
    ('-0.375', '2.0')
    """
    power = x.denominator.bit_length() - 1
    if x.denominator != 1 << power:
        raise ValueError(f"{x} has no finite binary digits")
    digits = str(abs(x.numerator) * 5**power).rjust(power + 1, "0")
    whole, part = (digits, "0") if power == 0 else (digits[:-power], digits[-power:])
    return f"{'-' if x < 0 else ''}{whole}.{part}"


def version_1(query: Query, comment: str) -> str:
    """The query in VNN-LIB 1.0, which the verifiers of VNN-COMP read."""
    inputs, outputs = (_size(shape) for shape in (query.shape_in, query.shape_out))
    head = [f"; {line}" for line in comment.splitlines()]
    head += [f"(declare-const X_{i} Real)" for i in range(inputs)]
    head += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    boxes = [
        " ".join(f"(>= X_{i} {decimal_of(low)}) (<= X_{i} {decimal_of(high)})" for i, (low, high) in enumerate(box))
        for box in query.boxes
    ]
    wrong = [f"(>= Y_{other} Y_{query.right})" for other in query.others]
    if len(boxes) == 1:
        asserted = [f"(assert {bound})" for bound in _bounds(boxes[0])]
    else:
        asserted = ["(assert (or\n" + "\n".join(f"  (and {box})" for box in boxes) + "\n))"]
    asserted.append("(assert (or\n" + "\n".join(f"  (and {each})" for each in wrong) + "\n))")
    return "\n".join([*head, *asserted]) + "\n"


def _bounds(box: str) -> list[str]:
    """The bounds of one box, each in its own assertion."""
    return [f"({bound.strip('() ')})" for bound in box.split(") (")]


def version_2(query: Query, comment: str) -> str:
    """Writes the query in VNN-LIB 2.0."""
    columns, answers = query.shape_in[1], query.shape_out[1]

    def X(i: int) -> str:
        return f"X[{i // columns},{i % columns}]"

    def Y(i: int) -> str:
        return f"Y[{i // answers},{i % answers}]"

    lines = ["(vnnlib-version <2.0>)", *(f"; {line}" for line in comment.splitlines())]
    lines += [
        "(declare-network f",
        f"  (declare-input X float32 [{query.shape_in[0]},{columns}])",
        f"  (declare-output Y float32 [{query.shape_out[0]},{answers}])",
        ")",
    ]
    boxes = [
        "(and "
        + " ".join(f"(>= {X(i)} {decimal_of(a)}) (<= {X(i)} {decimal_of(b)})" for i, (a, b) in enumerate(box))
        + ")"
        for box in query.boxes
    ]
    wrong = [f"(>= {Y(other)} {Y(query.right)})" for other in query.others]
    lines += [_either(boxes), _either(wrong)]
    return "\n".join(lines) + "\n"


def _either(parts: list[str]) -> str:
    return f"(assert {parts[0]})" if len(parts) == 1 else "(assert (or\n  " + "\n  ".join(parts) + "\n))"


def _size(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]
