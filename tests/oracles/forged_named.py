"""Wrong lengths by runs that a certificate only names: numpy's own formats, fractions, and closed forms."""

from __future__ import annotations

import math
import random
import re
from fractions import Fraction

import numpy as np
import torch
from mpmath import mp
from oracles import slow_units

from constructions.recurrent.model import RecurrentModel
from tests.oracles.rounded import fraction, nearest

LONGEST = 1_000_000  # tokens that are run
KEPT = "every result kept exactly, and factors of matrix products rounded"
EXACT = "every result kept exactly, where no factor of a matrix product is rounded"
STEPS = {
    "every result rounded once, sums from left to right": False,
    "results kept with 53 bits, factors of matrix products rounded, sums from left to right": True,
}
AGAINST = "each result rounded or kept, sums sorted, functions off by 2 units in the last place, against one answer"
LONGEST_SORTED = 10_000  # tokens, each number in torch's own arithmetic
SIGMOIDS = re.compile(f"(?:each sigmoid (low|high) by a factor of 1 (?:- 3u/2|\\+ 15u/8), )?{KEPT}")


class Far(Exception):
    """What is too long to be run here."""


def is_named(c):
    said = c["counterexample"].get("evaluation", "")
    is_against = said == AGAINST and c["margin"] is None
    return "run" not in c and (said in STEPS or said == EXACT or is_against or SIGMOIDS.fullmatch(said) is not None)


def check(rows, c, n, fmt, due, wrong, say):
    """The run that is named is wrong after n tokens, which is no first length."""
    said, model, right = c["counterexample"]["evaluation"], c["parameters"]["model"], due(n)
    say(c["counterexample"]["is_first"] is (c["right_to"] == n - 1) and c["right_to"] < n, "is_first")
    for t in range(1, n if c["counterexample"]["is_first"] else 1):
        logits = logits_of(rows, model, said, t, fmt, say)
        say(all(logits[due(t)] > x for j, x in enumerate(logits) if j != due(t)), f"wrong at {t}")
    if SIGMOIDS.fullmatch(said) and model in ("gru", "lstm"):
        share = {"l": -1.5, "h": 1.875, "": 0}[(SIGMOIDS.fullmatch(said)[1] or "")[:1]]
        gap = of_gates(rows, model, fmt, n, share, due, c["parameters"].get("modulus", 1))
        say(gap <= Fraction(c["margin"]) <= 0, "its margin")
        say(wrong is None or (wrong != right and len(rows["readout.bias"][0]) == 2), "predicted")
        return
    logits = logits_of(rows, model, said, n, fmt, say)
    if any(x != x for x in logits):
        say(wrong is None and c["margin"] is None, "its margin")
        return
    best = max(x for j, x in enumerate(logits) if j != right)
    gap = 0 if logits[right] == best else logits[right] - best
    say(gap <= 0 and (c["margin"] is None if math.isinf(gap) else gap <= Fraction(c["margin"]) <= 0), "its margin")
    say(wrong is None or logits[wrong] == max(logits), "predicted")


def logits_of(rows, model, said, n, fmt, say):
    """The logits after n tokens of the run that is named."""
    if said == EXACT:
        return real(layer_of(rows, float), fmt, n, say)
    if said == AGAINST:
        return ascending(rows, fmt, n)
    if said in STEPS:
        return stepped(rows, model, fmt, n, is_kept=STEPS[said])
    return in_fractions(layer_of(rows, lambda x: of_sign(x, fmt)), fmt, n)


def of_sign(x, fmt):
    """The nearest number of the format, of either sign."""
    return (-1 if x < 0 else 1) * nearest(abs(Fraction(x)), fmt) if isinstance(x, Fraction) or math.isfinite(x) else x


def layer_of(rows, of):
    """W, the parts of what is added, whether ReLUs follow, and the readout, each number by `of`."""
    own = {name: [[of(x) for x in row] for row in table] for name, table in rows.items()}
    V, b = own["readout.weight"], own["readout.bias"][0]
    if "cell.A" in own:
        return own["cell.A"], [own["cell.B"][0]], False, V, b
    given = [[row[0] for row in own["cell.weight_ih_l0"]], own["cell.bias_ih_l0"][0], own["cell.bias_hh_l0"][0]]
    return own["cell.weight_hh_l0"], given, True, V, b


def stepped(rows, model, fmt, n, *, is_kept):
    """A whole layer at a time, column by column, in the format or in float64."""
    if n > LONGEST:
        raise Far
    kind = np.float64 if is_kept else getattr(np, fmt.name)

    def factor(x):
        return np.array([of_sign(float(y), fmt) for y in x], kind) if is_kept else x

    def linear(W, x, b):
        total = np.zeros(len(b), kind)
        for column, y in zip(W.T, x, strict=True):
            total = total + column * y
        return total + b

    own = {name: np.array([[of_sign(x, fmt) for x in row] for row in table], kind) for name, table in rows.items()}
    V, b = own["readout.weight"], own["readout.bias"][0]
    with np.errstate(all="ignore"):
        if model == "s4":
            a, u, c = own["cell.a"][0], own["cell.u"][0], own["cell.c"][0]
            h = np.zeros(len(a), kind)
            for _ in range(n):
                h = a * h + u
            return linear(V, factor(c * h), b).tolist()
        is_space = "cell.A" in own
        W = own["cell.A" if is_space else "cell.weight_hh_l0"]
        b_h = own["cell.B" if is_space else "cell.bias_hh_l0"][0]
        given = 0 * b_h
        if not is_space:
            x = np.eye(1, own["cell.weight_ih_l0"].shape[1], dtype=kind)[0]
            given = linear(own["cell.weight_ih_l0"], x, own["cell.bias_ih_l0"][0])
        h = np.zeros(len(W), kind)
        for _ in range(n):
            h = given + linear(W, factor(h), b_h)
            h = h if is_space else np.where(h < 0, kind(0), h)
        return linear(V, factor(h), b).tolist()


def ascending(rows, fmt, n):
    """Every result rounded by torch, and the terms of a sum sorted."""
    if n > LONGEST_SORTED:
        raise Far
    own = {name: [[of_sign(float(x), fmt) for x in row] for row in table] for name, table in rows.items()}
    own = {name: torch.tensor(table, dtype=getattr(torch, fmt.name)) for name, table in own.items()}

    def linear(*parts):
        terms = torch.cat([torch.cat([W * x, b.T], 1) for W, x, b in parts], 1).sort(1).values.T
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    is_space = "cell.A" in own
    W, b = (own[name] for name in (("cell.A", "cell.B") if is_space else ("cell.weight_hh_l0", "cell.bias_hh_l0")))
    given = (
        [] if is_space else [(own["cell.weight_ih_l0"][:, :1], own["readout.bias"].new_ones(1), own["cell.bias_ih_l0"])]
    )
    h = W.new_zeros(len(W))
    for _ in range(n):
        h = linear(*given, (W, h, b))
        h = h if is_space else torch.where(h < 0, torch.zeros_like(h), h)
    return linear((own["readout.weight"], h, own["readout.bias"])).tolist()


def in_fractions(layer, fmt, n):
    """Every sum in fractions, each state rounded as it is read."""
    if n > LONGEST:
        raise Far
    W, given, is_relu, V, b = layer
    rows = [[(Fraction(w), j) for j, w in enumerate(row) if w] for row in W]
    added = [sum(map(Fraction, x)) for x in zip(*given, strict=True)]
    h = [Fraction(0)] * len(W)
    for _ in range(n):
        h = [sum((w * h[j] for w, j in row), a) for row, a in zip(rows, added, strict=True)]
        h = [Fraction(of_sign(max(x, Fraction(0)) if is_relu else x, fmt)) for x in h]
    return shown(V, h, b)


def shown(V, h, b):
    return [
        sum((Fraction(w) * x for w, x in zip(row, h, strict=True)), Fraction(c)) for row, c in zip(V, b, strict=True)
    ]


def real(layer, fmt, n, say):
    """The run in real arithmetic, by turns of two that are alike at both ends; drawn states are of the format."""
    W, given, is_relu, V, b = layer
    say(is_relu, "a state space")
    added = [sum(map(Fraction, x)) for x in zip(*given, strict=True)]

    def is_of(x):
        return Fraction(nearest(abs(x), fmt)) == abs(x)

    def after(h, tokens):
        for _ in range(tokens):
            h = [max(x, Fraction(0)) for x in shown(W, h, added)]
        return h

    def change(h):
        return [y - x for x, y in zip(h, after(h, 2), strict=True)]

    say(all(is_of(Fraction(x)) for table in (W, V, [*given, b]) for row in table for x in row), "weights are rounded")
    if n < 10:
        return shown(V, after([Fraction(0)] * len(W), n), b)
    first = after([Fraction(0)] * len(W), 8 + n % 2)
    e, turns = change(first), (n - 8) // 2
    last = [x + turns * y for x, y in zip(first, e, strict=True)]
    if not e == change(last) or change(after(first, 1)) != change(after(last, 1)):
        raise Far
    draw = random.Random(n)
    for q in [*(draw.randrange(turns + 1) for _ in range(50)), *range(min(9, turns)), turns]:
        h = [x + q * y for x, y in zip(first, e, strict=True)]
        say(all(map(is_of, [*h, *after(h, 1)])), "a state is none of the format")
    return shown(V, last, b)


def of_gates(rows, kind, fmt, n, share, due, turn):
    """The margin of an LSTM or a GRU whose last unit is seen by no other."""
    V = rows["readout.weight"]
    model = RecurrentModel(kind, hidden=len(V[0]), classes=len(V), activation="tanh", dtype=torch.float64)
    shapes = {name: x.shape for name, x in model.state_dict().items()}
    model.load_state_dict(
        {name: torch.tensor(x, dtype=torch.float64).reshape(shapes[name]) for name, x in rows.items()}
    )
    with mp.workdps(slow_units.DIGITS):
        cell = slow_units.KeptCell(model, fmt, share)
        if not cell.is_alone():
            raise Far
        try:
            found = slow_units.margin_after(cell, n, due, turn)
        except AssertionError:  # the other units do not settle
            raise Far from None
        return fraction(found) if found > 0 else -fraction(-found) if found else Fraction(0)
