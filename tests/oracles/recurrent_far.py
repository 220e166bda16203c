"""Inputs of 100,000 tokens through any trained network with 100 digits, and every short one: no proof, many digits.

python-flint's matrices of balls, whose midpoints are kept after each step. A run of one token is left as soon as the
state is one that it was before, digit for digit: all that follows is then known, and nothing is taken to be small.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

from flint import arb, arb_mat, ctx

from tests.oracles.recurrent_blocks import DIGITS, column, points, step, weights

LONGEST, DRAWN, MOST = 100_000, 16, 100_000  # tokens of a long input, long inputs, and short ones


def rows(x):
    return [[arb(y) for y in row] for row in x.detach().double().reshape(-1, x.shape[-1]).tolist()]


def products(*factors):
    return [[x * y for x, y in zip(*pair, strict=True)] for pair in zip(*factors, strict=True)]


def tables(model):
    """What each token keeps, adds and reads, from the formulas of the papers."""
    part, K = {name: rows(x) for name, x in model.cell.named_parameters()}, model.inputs
    if model.kind == "s4":
        return part["a"] * K, part["u"], part["c"] * K
    if model.kind == "rwkv":
        return [[(-w.exp()).exp() for w in row] for row in part["w"]], products(part["k"], part["v"]), part["r"]
    dt = [[d.exp().log1p() for d in row] for row in part["delta"]]
    rates = [[-a.exp() for a in part["A"][0]]] * K
    return [[x.exp() for x in row] for row in products(dt, rates)], products(dt, part["B"]), part["C"]


class Network:
    """A network of `constructions.recurrent`; a state is a tuple of columns, h and c of each layer or h alone."""

    def __init__(self, model):
        self.model, self.is_gated = model, not hasattr(model.cell, "weight_ih_l0")
        with ctx.workdps(DIGITS):
            if self.is_gated:
                assert model.layer is None
                self.tables = tables(model)
                self.V, self.b = arb_mat(rows(model.readout.weight)), column(rows(model.readout.bias)[0])
            else:
                assert model.kind != "rnn" or model.activation == "tanh"
                self.layers, self.V, self.b = weights(model)
        self.start = (column([0.0] * model.hidden),) * (1 if self.is_gated else 2 * model.layers)

    def read(self, token):
        """What the first layer reads."""
        if self.model.types:
            return column(self.model.embedding.weight[token].double().tolist())
        n = self.model.inputs
        return column([float(n == 1 or j == token) for j in range(n)])

    def after(self, state, token):
        """The state after one more token."""
        if self.is_gated:
            keep, add, _ = (table[token] for table in self.tables)
            return (points([f * x + a for f, x, a in zip(keep, state[0].entries(), add, strict=True)]),)
        x, found = self.read(token), []
        for k, layer in enumerate(self.layers):
            found += step(self.model.kind, layer, x, state[2 * k], state[2 * k + 1])
            x = found[-2]
        return tuple(found)

    def after_many(self, state, token, n):
        """The state after n more of one token."""
        before, since = state, 0  # as it was at a power of two
        for t in range(1, n + 1):
            state = self.after(state, token)
            if state == before:
                for _ in range((n - t) % (t - since)):
                    state = self.after(state, token)
                return state
            if t & (t - 1) == 0:
                before, since = state, t
        return state

    def gap(self, state, token, right):
        """(right logit) - (largest other), where `token` was the last one."""
        h = state[0 if self.is_gated else -2]
        if self.is_gated:
            h = column([r * x for r, x in zip(self.tables[2][token], h.entries(), strict=True)])
        logits = [y.mid() for y in (self.V * h + self.b).entries()]
        return min(logits[right] - y for j, y in enumerate(logits) if j != right)


def due(task, counts, token):
    """The right class after a token of a string, None where its count is not judged."""
    n = counts[token]
    return (n - 1) % task.m if task.m else n if n <= task.C else None


def line_wrong(net, modulus, length=LONGEST):
    """The first wrong length of a repeated token modulo a number, None up to `length`."""
    with ctx.workdps(DIGITS):
        state, before, since = net.start, None, 0
        for t in range(length):
            state = net.after(state, 0)
            if net.gap(state, 0, t % modulus) <= 0:
                return t + 1
            if state == before and (t - since) % modulus == 0:
                return None  # the state was this one before, all since then was right, and all comes again
            if t & (t + 1) == 0:
                before, since = state, t
        return None


def started(net, task):
    """All inputs of a number word k >= 1 and so many a that the sum is in the vocabulary."""
    with ctx.workdps(DIGITS):
        inputs, wrong, a = 0, [], task.M + 1
        for k in range(1, task.M + 1):
            state, last = net.after(net.start, k), k
            for n in range(k, task.M + 1):
                inputs += 1
                wrong += [n - k] if net.gap(state, last, n) <= 0 else []
                state, last = net.after(state, a), a
        return {"inputs": inputs, "to": task.M - 1, "wrong": min(wrong, default=None)}


def every(net, task, most=MOST):
    """All strings whose last answer is judged, up to the length at which these are so many, or one is wrong."""
    with ctx.workdps(DIGITS):
        level, length, inputs, wrong = [(net.start, (0,) * task.K)], 0, 0, None
        while level and wrong is None and inputs + len(level) * task.K <= most:
            length, later = length + 1, []
            for state, counts in level:
                for x in range(task.K):
                    after, own = net.after(state, x), tuple(n + (i == x) for i, n in enumerate(counts))
                    right = due(task, own, x)
                    if right is not None:
                        inputs += 1
                        wrong = length if net.gap(after, x, right) <= 0 else wrong
                    if task.m or min(own) < task.C:  # else no longer string is judged
                        later.append((after, own))
            level = later
        return {"inputs": inputs, "to": length, "wrong": wrong}


def drawn(task, seed, length=LONGEST):
    """A string whose last answer is judged: one type at few places, and the others at random in all others."""
    at_random = random.Random(seed)
    if task.m:
        return [at_random.randrange(task.K) for _ in range(length)]
    rare = at_random.randrange(task.K)
    places = {length - 1, *at_random.sample(range(length - 1), task.C - 1)}
    others = [x for x in range(task.K) if x != rare]
    return [rare if t in places else at_random.choice(others) for t in range(length)]


def string_wrong(net, task, tokens):
    """The first wrong length of a string, None where every judged answer is right."""
    with ctx.workdps(DIGITS):
        state, counts, t = net.start, Counter(), 0
        for token, group in groupby(tokens):
            for left in range(len(list(group)), 0, -1):
                if task.C is not None and counts[token] >= task.C:  # none of the rest is judged
                    state, t = net.after_many(state, token, left), t + left
                    counts[token] += left
                    break
                state, t = net.after(state, token), t + 1
                counts[token] += 1
                if net.gap(state, token, due(task, counts, token)) <= 0:
                    return t
        return None


def last_gap(net, tokens, right):
    """(right logit) - (largest other) after a string."""
    with ctx.workdps(DIGITS):
        state = net.start
        for token in tokens:
            state = net.after(state, token)
        return net.gap(state, tokens[-1], right)
