"""A length that is wrong in the run that keeps every result of gated decays, or of a rotation (docs/checker.md).

Its states are known in closed form: h_t = a (1 - f^t) / (1 - f) for the f that it computes, which exp may be off by, or
(1 - l^t) / (1 - l) with l = c + i s for computed cos and sin. Only what the readout reads is rounded.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from flint import acb, arb, ctx

from verify.checker.closed_lines import is_right
from verify.checker.computed_decays import BITS, ComputedStates, Growth, in_closed_form
from verify.checker.computed_orders import exact, scaled
from verify.checker.computed_tables import StoredCell, gates
from verify.checker.formats import BinaryFormat, named
from verify.checker.linear import wrong_after
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import due_of
from verify.checker.rounded_lines import EVERY, Gaps, is_wrong

OFF = 2  # units in the last place of exp, cos and sin
KEPT = "every result kept exactly, and factors of matrix products rounded"
SHARES = {  # of u, by which what is kept is high in a run
    "what a token keeps as float64 has it, ": arb(0),
    "what a token keeps low by a factor of about 1 - 3u/2, ": arb(-1.5),
    "what a token keeps high by a factor of about 1 + 15u/8, ": arb(1.875),
}
ABOUT = arb(2) ** -52
NUMBER = r"(-?[0-9]+\.[0-9]+(?:e-?[0-9]+)?)"
TURNED = re.compile(
    f"cosine {NUMBER} and sine {NUMBER}, within 2 units in the last place, "
    "every state kept exactly, and factors of the readout rounded"
)


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a length that is wrong in the run that is named; and all shorter ones, in every order, if it is first."""
    if c["counterexample"]["evaluation"] == EVERY:
        require("run" not in c, "run: is that of no evaluation")
        in_closed_form(weights, c, said)
        return
    with ctx.workprec(BITS):
        net, fmt = StoredCell.of(weights, said, named(said)), named(said)
        run, due = _run_of(net, fmt, c), due_of(len(net.b), said)
        n, margin, wrong = wrong_after(c, due, said)
        if c["margin"] is None:
            require(wrong == -1 and run.is_no_number(n, due(n) or 0), f"length {n}: the answer is a number, or right")
        else:
            is_wrong(lambda k: run.gaps(n, k), due(n) or 0, margin, wrong, f"length {n}")
        if c["counterexample"]["is_first"]:
            require("omega" not in net.rows, "that a rotation is right before is not checked", NOT_CHECKABLE)
            is_right(ComputedStates(net, fmt), due, said, n - 1, arb(0))


def is_named(evaluation: str) -> bool:
    """Whether it is one that is looked at here."""
    return evaluation == EVERY or evaluation.endswith(KEPT) or TURNED.fullmatch(evaluation) is not None


class KeptRun(NamedTuple):
    """The run of which the readout reads these numbers after t tokens, before they are rounded as its factors."""

    net: StoredCell
    fmt: BinaryFormat
    reads: Callable[[int], list[arb]]

    def gaps(self, t: int, right: int) -> Gaps:
        """(right logit) - (each other) after t tokens."""
        factors = self._factors(t)
        gaps = {j: self._gap(factors, right, j) for j in range(len(self.net.b)) if j != right}
        return {j: (x.lower(), x.upper()) for j, x in gaps.items()}

    def _gap(self, factors: list[arb], right: int, j: int) -> arb:
        V, b = self.net.V, self.net.b
        terms = ((arb(v) - arb(w)) * y for v, w, y in zip(V[right], V[j], factors, strict=True))
        return sum(terms, arb(b[right]) - arb(b[j]))

    def _factors(self, t: int) -> list[arb]:
        reads, largest = self.reads(t), self.fmt.largest
        require(all(abs(y) <= largest for y in reads), "a factor of the readout may overflow", NOT_CHECKABLE)
        ends = ([arb(self.fmt.closest(*scaled(exact(x)))) for x in (y.lower(), y.upper())] for y in reads)
        return [low.union(high) for low, high in ends]

    def is_no_number(self, t: int, right: int) -> bool:
        """Whether factors are infinite, and the answer so is wrong: not all other logits are infinitely small."""
        largest, signs = self.fmt.largest, dict[int, int]()
        for i, y in enumerate(self.reads(t)):
            is_beyond = bool(abs(y) >= arb(2) ** self.fmt.most * (2 - self.fmt.u))
            require(is_beyond or bool(abs(y) <= largest), "whether a factor overflows does not show", NOT_CHECKABLE)
            signs |= {i: 1 if y > 0 else -1} if is_beyond else {}
        moved = [
            [row[i] * sign * (1 if j == right else -1) for i, sign in signs.items()] for j, row in enumerate(self.net.V)
        ]
        return bool(signs) and not all(x > 0 for row in moved for x in row)


def _run_of(net: StoredCell, fmt: BinaryFormat, c: LineCertificate) -> KeptRun:
    """Raises: Refusal where no such run is named, or none that the reading allows."""
    said = c["counterexample"]["evaluation"]
    if "omega" in net.rows:
        found = TURNED.fullmatch(said)
        require(found is not None, "runs of such cells are not repeated", NOT_CHECKABLE)
        require("run" not in c, "run: is that of another evaluation")
        assert found is not None
        return turning_run(net, fmt, float(found[1]), float(found[2]))
    share = next((x for name, x in SHARES.items() if said == name + KEPT), None)
    require(share is not None and "run" in c, "runs of such cells are not repeated", NOT_CHECKABLE)
    assert share is not None
    return decaying_run(net, fmt, c["run"]["kept"], share)


def decaying_run(net: StoredCell, fmt: BinaryFormat, kept: list[float], share: arb) -> KeptRun:
    """The run that keeps these numbers of each state, which exp may be, and about so high."""
    require("layer.W" not in net.rows, "runs with neurons are not repeated", NOT_CHECKABLE)
    keep, add, read = (table[0].value for table in gates(net, fmt))
    is_whole = len(kept) == len(keep) and all(type(x) is float for x in kept)
    require(is_whole, "run: another number of states")
    for f, x in zip(kept, keep, strict=True):
        is_near = net.kind != "s4" and _may_be(f, x, fmt)
        require(x == f or is_near, "run: a number that is kept is none that may be computed")
        high = arb(0) if net.kind == "s4" else share * fmt.u
        require(bool(abs(f - x * (1 + high)) <= ABOUT * x), "run: what is kept is not about as high as is said")
    units = [(arb(f), a, r) for f, a, r in zip(kept, add, read, strict=True)]
    return KeptRun(net, fmt, lambda t: [r * Growth(f, a, a).after(t) for f, a, r in units])


def turning_run(net: StoredCell, fmt: BinaryFormat, c: float, s: float) -> KeptRun:
    """The run of a rotation by these computed cos and sin."""
    omega = arb(net.rows["omega"][0][0])
    is_near = _may_be(c, omega.cos(), fmt) and _may_be(s, omega.sin(), fmt)
    require(is_near, "evaluation: no cosine and sine that may be computed")
    rate = acb(c, s)

    def reads(t: int) -> list[arb]:
        z = (1 - rate**t) / (1 - rate)
        return [z.real, z.imag]

    return KeptRun(net, fmt, reads)


def _may_be(f: float, x: arb, fmt: BinaryFormat) -> bool:
    """Whether a function may be computed so whose value is in a ball: within some units in its last place."""
    mantissa, exponent = abs(x).lower().man_exp()
    place = int(exponent) + int(mantissa).bit_length() - fmt.p
    return bool(mantissa > 0 and abs(arb(f) - x) <= OFF * arb(2) ** place)
