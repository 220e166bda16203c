"""Networks whose steps are rational: linear ones and ReLUs, run in exact fractions until a state comes again."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

import torch
from flint import fmpq, fmpq_mat

from constructions.recurrent.gated import GatedModel
from constructions.recurrent.linear import LinearModel, RotationModel
from constructions.recurrent.model import RecurrentModel
from verify.arithmetic.outward import float_at_least, float_at_most
from verify.arithmetic.stored import check_finite, matrix
from verify.frame.clock import Budget
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion

MOST_BITS = 1 << 12  # of a number of the state: beyond it exact runs are too slow
MOST_REPEATS = 100_000


@dataclass(frozen=True)
class Exact:
    """h' = f(A h + B) for each token, with f the identity or ReLU, and logits V h + b."""

    A: fmpq_mat
    B: list[fmpq_mat]
    V: fmpq_mat
    b: fmpq_mat
    is_relu: bool

    @classmethod
    def of(cls, model: RecurrentModel | LinearModel) -> Exact:
        """Only for linear models and RNNs with one layer of ReLUs.

        Raises: BadInput for numbers that are not finite.
        """
        check_finite(model.state_dict().items())
        V, b = matrix(model.readout.weight), matrix(model.readout.bias[:, None])
        if isinstance(model, LinearModel):
            return cls(matrix(model.cell.A), [matrix(model.cell.B[:, None])], V, b, False)
        cell = dict(model.cell.named_parameters())
        given = matrix(cell["bias_ih_l0"][:, None]) + matrix(cell["bias_hh_l0"][:, None])
        W_x = matrix(cell["weight_ih_l0"])
        tokens = model.embedding.weight if model.embedding is not None else torch.eye(model.inputs, dtype=model.dtype)
        inputs = [W_x * matrix(row[:, None]) + given for row in tokens]
        return cls(matrix(cell["weight_hh_l0"]), inputs, V, b, True)

    def step(self, h: fmpq_mat, token: int) -> fmpq_mat:
        after = self.A * h + self.B[token]
        if not self.is_relu:
            return after
        return fmpq_mat(after.nrows(), 1, [x if x > 0 else fmpq(0) for row in after.tolist() for x in row])

    def logits(self, h: fmpq_mat) -> list[fmpq]:
        return [x for row in (self.V * h + self.b).tolist() for x in row]


def is_rational(
    model: RecurrentModel | LinearModel | RotationModel | GatedModel,
) -> TypeGuard[RecurrentModel | LinearModel]:
    """Whether its steps are rational, so that this file can run it."""
    if isinstance(model, RotationModel | GatedModel):
        return False
    return isinstance(model, LinearModel) or (model.kind == "rnn" and model.activation == "relu" and model.layers == 1)


def run(
    model: RecurrentModel | LinearModel, line: OrbitQuestion, length: int | None, budget: float | Budget
) -> OrbitOutcome:
    """Right after each of 1..length tokens, or at every length (None), where a state must come again."""
    net, until = Exact.of(model), Budget.of(budget).deadline()
    h = fmpq_mat(net.A.nrows(), 1)
    least: Fraction | None = None
    tightest, seen = 0, dict[tuple[tuple[str, ...], int], int]()
    steps = length if length is not None else MOST_REPEATS
    for t in range(1, steps + 1):
        h = net.step(h, line.at(t - 1))
        logits, right = net.logits(h), line.expected(t)
        others = [(x, j) for j, x in enumerate(logits) if j != right]
        best, place = max(others) if others else (logits[right] - 1, right)
        gap = logits[right] - best
        margin = Fraction(int(gap.p), int(gap.q))
        if margin <= 0:
            return OrbitOutcome(t - 1, _margin(least), tightest, t, min(0.0, float_at_least(margin)), place)
        if least is None or margin < least:
            least, tightest = margin, t
        entries = [x for row in h.tolist() for x in row]
        if length is None and t > line.settled and t >= len(line.leading):
            key = (tuple(str(x) for x in entries), t % line.period)
            if key in seen:
                return OrbitOutcome(None, _margin(least), tightest, facts={"repeats": [seen[key], t]})
            seen[key] = t
        if until.is_up() or max(int(x.q).bit_length() for x in entries) > MOST_BITS:
            reason = "time is up" if until.is_up() else "fractions grow too long"
            return OrbitOutcome(t, _margin(least), tightest, reason=f"{reason} after {t} tokens")
    if length is None:
        return OrbitOutcome(steps, _margin(least), tightest, reason="no state has come again")
    return OrbitOutcome(None, _margin(least), tightest)


def _margin(least: Fraction | None) -> float:
    return float("inf") if least is None else float_at_most(least)
