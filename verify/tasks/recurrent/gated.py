"""Cells of positive decays (Mamba, RWKV, S4) in balls: what each token keeps, adds and reads, and runs of one line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from flint import arb, arb_mat, ctx

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays
from constructions.recurrent.arrays import of_gated
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.formats import Format
from verify.arithmetic.rounding import rounded
from verify.arithmetic.softmax import ULPS
from verify.frame.clock import Budget
from verify.tasks.recurrent.kinds import is_gated, stored
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import Followed, bounds, closest
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion, outcome

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

BITS = 400
AT_ONCE = 64  # steps whose logits are first told apart in float64
LONG = 1000  # tokens; longer lines are taken as orbits, where no neurons come after the decays
MOST_STEPS = 200_000
LINEAR = 19  # below it torch's softplus is that of the formula

Tables = tuple[list[list[arb]], list[list[arb]], list[list[arb]]]


def formula(model: AnyModel) -> str:
    """What such a network computes, in a line."""
    said = "V (r(x) h) + b" if not neurons(model) else "V ReLU(W (r(x) h) + U(x)) + b"
    return f"h' = f(x) h + a(x) from the state 0, a {model.kind.upper()}-like cell; logits = {said}"


def neurons(model: AnyModel) -> dict[str, object]:
    """How many neurons there are after gated decays, as a certificate has it; nothing for other networks."""
    W = stored(model).get("layer.W") if is_gated(model) else None
    return {} if W is None else {"neurons": len(W)}


class TableNumbers(Protocol):
    """How the tables of a cell are computed from stored numbers."""

    def stored(self, x: float) -> arb: ...

    def result(self, x: arb) -> arb:
        """All that a sum or product may be computed as, whose exact value is in x."""

    def exp(self, x: arb) -> arb: ...

    def softplus(self, x: arb) -> arb: ...


class ExactTables:
    """Tables in real arithmetic."""

    def stored(self, x: float) -> arb:
        return arb(x)

    def result(self, x: arb) -> arb:
        return x

    def exp(self, x: arb) -> arb:
        return x.exp()

    def softplus(self, x: arb) -> arb:
        return x.exp().log1p()


@dataclass(frozen=True)
class RoundedTables:
    """Tables that a format computes: exp and softplus within 2 units in the last place, which then are rounded as all
    else is.
    """

    at: RoundedArithmetic

    def stored(self, x: float) -> arb:
        """A subnormal number may be read as zero."""
        return arb(x).union(arb(0)) if float(self.at.flush_loss(np.asarray(x))) > 0 else arb(x)

    def result(self, x: arb) -> arb:
        return self._off(x, float(self.at.growth(2)))

    def exp(self, x: arb) -> arb:
        return self._function(x.exp())

    def softplus(self, x: arb) -> arb:
        """Beyond 20 torch takes x itself, which may be off by more than units in the last place."""
        near = self._function(x.exp().log1p())
        return near if x < LINEAR else near.union(x)

    def _function(self, x: arb) -> arb:
        u = self.at.stored.u
        return self._off(x, (ULPS + 1) * u * (1 + ULPS * u))

    def _off(self, x: arb, relative: float) -> arb:
        """Zero stays zero; beyond the largest number nothing is known."""
        if x == 0:
            return x
        off = x * arb(1, relative) + arb(0, float(self.at.underflow(2)))
        return off if abs(off) < self.at.stored.largest else arb(0, float("inf"))


EXACTLY = ExactTables()


def stored_in(model: AnyModel, fmt: Format) -> ModelArrays:
    """The network with every stored number rounded once.

    Raises: BadInput where one of them overflows, or is not finite.
    """
    near = {name: rounded(value, fmt) for name, value in stored(model).items()}
    if infinite := [name for name, value in near.items() if not np.isfinite(value).all()]:
        raise BadInput(f"precision={fmt.name}: {infinite[0]} overflows. Use a wider format.")
    cell, layer = ({name.removeprefix(place): value for name, value in near.items() if name.startswith(place)}
                   for place in ("cell.", "layer."))  # fmt: skip
    return of_gated(model.kind, cell, near["readout.weight"], near["readout.bias"], "float64", layer)


def in_balls(model: AnyModel, on: TableNumbers = EXACTLY) -> Tables:
    """What each token keeps, adds and reads of each state, [token][state], from the stored numbers."""
    cell: dict[str, list[list[arb]]] = {
        name.removeprefix("cell."): [[on.stored(x) for x in row] for row in value.reshape(-1, model.hidden).tolist()]
        for name, value in stored(model).items()
        if name.startswith("cell.")
    }
    if model.kind == "s4":
        return cell["a"] * model.inputs, cell["u"], cell["c"] * model.inputs
    if model.kind == "mamba":
        step = [[on.softplus(x) for x in row] for row in cell["delta"]]
        A = [on.exp(x) for x in cell["A"][0]]
        keep = [[on.exp(-on.result(s * a)) for s, a in zip(row, A, strict=True)] for row in step]
        return keep, _products(step, cell["B"], on), cell["C"]
    keep = [[on.exp(-on.exp(x)) for x in row] for row in cell["w"]]
    return keep, _products(cell["k"], cell["v"], on), cell["r"]


def _products(x: list[list[arb]], y: list[list[arb]], on: TableNumbers) -> list[list[arb]]:
    """Entry by entry."""
    return [[on.result(a * b) for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]


def network(model: AnyModel, at: RoundedArithmetic | None = None) -> Network:
    """The same cell as the other proofs take it; computed as `at` says, None for real arithmetic."""
    held = model if at is None else stored_in(model, at.stored)
    with ctx.workprec(BITS):
        return Network.of_gated(held, in_balls(held, EXACTLY if at is None else RoundedTables(at)))


@dataclass(frozen=True)
class GatedBalls:
    """The numbers of a network in balls: what each token keeps, adds and reads, and the matrices after that.

    Shapes: V (classes, d or p), b (classes,); with neurons W (p, d) and for each token U (p, 1).
    """

    tables: Tables
    V: np.ndarray
    b: np.ndarray
    W: arb_mat | None
    U: list[arb_mat]

    @classmethod
    def of(cls, model: AnyModel) -> GatedBalls:
        """Raises: BadInput for weights that are not finite, or of a dtype that float64 does not hold."""
        numbers = stored(model)
        V, b, W = (numbers.get(name) for name in ("readout.weight", "readout.bias", "layer.W"))
        assert V is not None and b is not None
        U = [arb_mat(u[:, None].tolist()) for u in numbers.get("layer.U", ())]
        with ctx.workprec(BITS):
            tables = in_balls(model)
        given = None if W is None else arb_mat(W.tolist())
        return cls(tables, V, b, given, U)

    def step(self, h: list[arb], token: int) -> tuple[list[arb], list[arb]]:
        """The state after one more token, and what V reads there."""
        keep, add, read = (table[token] for table in self.tables)
        h = [f * c + a for f, c, a in zip(keep, h, add, strict=True)]
        y = [r * c for r, c in zip(read, h, strict=True)]
        if self.W is not None:
            products = self.W * arb_mat([[z] for z in y])
            y = [z.max(0) for z in (products + self.U[token]).entries()]
        return h, y

    def gaps(self, y: list[arb], right: int, rivals: list[int]) -> list[tuple[arb, int]]:
        """The differences (right - other, other) to the largest logit of rivals, as `closest` has them."""
        rows = [right, *rivals]
        products = arb_mat(self.V[rows].tolist()) * arb_mat([[z] for z in y])
        logits = [x + c for x, c in zip(products.entries(), self.b[rows].tolist(), strict=True)]
        return [(gap, rows[j]) for gap, j in closest(logits, 0)]

    def rivals(self, reads: list[list[arb]], right: list[int]) -> list[list[int]]:
        """The classes but the right one whose logits may be the largest of those, after each of some steps.

        The one whose lower bound is the largest is among them, and every class that is left out is below it. What is
        no number leaves none out.
        """
        low, high = ([[end(z) for z in y] for y in reads] for end in (float_below, float_above))
        steps = np.arange(len(reads))
        with np.errstate(all="ignore"):
            logits = Ball.between(np.array(low), np.array(high)) @ Ball.exact(self.V.T) + Ball.exact(self.b)
            lower, upper = logits.lower, logits.upper
        lower[steps, right] = -np.inf
        may_be = ~(upper < lower.max(1, keepdims=True))
        may_be[steps, right] = False
        return [np.flatnonzero(row).tolist() for row in may_be]


def run(known: GatedBalls, line: OrbitQuestion, length: int | None, budget: float | Budget) -> OrbitOutcome | None:
    """Right after each of 1..length tokens? None where the first LONG do not tell, and there are no neurons."""
    until, most = Budget.of(budget).deadline(), LONG if known.W is None else MOST_STEPS
    with ctx.workprec(BITS):
        h, found, end = [arb(0)] * len(known.tables[0][0]), Followed(), min(length or most, most)
        for first in range(1, end + 1, AT_ONCE):
            times, reads = range(first, min(first + AT_ONCE, end + 1)), []
            for t in times:
                h, y = known.step(h, line.at(t - 1))
                reads.append(y)
            expected = [line.expected(t) for t in times]
            for t, y, right, others in zip(times, reads, expected, known.rivals(reads, expected), strict=True):
                if not found.take(t, *bounds(known.gaps(y, right, others))):
                    return outcome(found)
                if until.is_up():
                    return outcome(found, f"time is up after {t} tokens")
        if length is not None and length <= most:
            return replace(outcome(found), right_to=None)
        return None if known.W is None else outcome(found, "it is right as far as it was followed")
