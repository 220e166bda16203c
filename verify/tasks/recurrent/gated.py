"""Cells of positive decays (Mamba, RWKV, S4) in balls: what each token keeps, adds and reads, and runs of one line."""

from __future__ import annotations

from dataclasses import replace

from flint import arb, ctx

from constructions.recurrent.gated import DiagonalCell, GatedModel, MambaCell
from verify.frame.clock import Budget
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import Followed, bounds
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion, outcome

BITS = 400
LONG = 1000  # tokens; longer lines are taken as orbits

Tables = tuple[list[list[arb]], list[list[arb]], list[list[arb]]]


def in_balls(model: GatedModel) -> Tables:
    """What each token keeps, adds and reads of each state, [token][state], from the stored numbers."""
    cell = {name: value.double().tolist() for name, value in model.cell.named_parameters()}
    if isinstance(model.cell, DiagonalCell):
        kept, seen = ([arb(x) for x in cell[name]] for name in ("a", "c"))
        return [kept] * model.inputs, [[arb(x) for x in row] for row in cell["u"]], [seen] * model.inputs
    if isinstance(model.cell, MambaCell):
        step = [[_softplus(arb(x)) for x in row] for row in cell["delta"]]
        A = [arb(x).exp() for x in cell["A"]]
        keep = [[(-s * a).exp() for s, a in zip(row, A, strict=True)] for row in step]
        add = [[s * arb(x) for s, x in zip(*rows, strict=True)] for rows in zip(step, cell["B"], strict=True)]
        return keep, add, [[arb(x) for x in row] for row in cell["C"]]
    keep = [[(-arb(x).exp()).exp() for x in row] for row in cell["w"]]
    add = [[arb(x) * arb(y) for x, y in zip(*rows, strict=True)] for rows in zip(cell["k"], cell["v"], strict=True)]
    return keep, add, [[arb(x) for x in row] for row in cell["r"]]


def _softplus(x: arb) -> arb:
    return x.exp().log1p()


def network(model: GatedModel) -> Network:
    """The same cell as the other proofs take it."""
    with ctx.workprec(BITS):
        return Network.of_gated(model, in_balls(model))


def run(model: GatedModel, line: OrbitQuestion, length: int | None, budget: float | Budget) -> OrbitOutcome | None:
    """Right after each of 1..length tokens? None where the first LONG do not tell."""
    until = Budget.of(budget).deadline()
    with ctx.workprec(BITS):
        keep, add, read = in_balls(model)
        V = [[arb(x) for x in row] for row in model.readout.weight.double().tolist()]
        b = [arb(x) for x in model.readout.bias.double().tolist()]
        h, found = [arb(0)] * model.hidden, Followed()
        for t in range(1, min(length or LONG, LONG) + 1):
            x = line.at(t - 1)
            h = [f * c + a for f, c, a in zip(keep[x], h, add[x], strict=True)]
            y = [r * c for r, c in zip(read[x], h, strict=True)]
            logits = [sum((v * z for v, z in zip(row, y, strict=True)), c) for row, c in zip(V, b, strict=True)]
            right = line.expected(t)
            if not found.take(t, *bounds([(logits[right] - x, j) for j, x in enumerate(logits) if j != right])):
                return outcome(found)
            if until.is_up():
                return outcome(found, f"time is up after {t} tokens")
        return replace(outcome(found), right_to=None) if length is not None and length <= LONG else None
