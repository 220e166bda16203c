"""The first wrong length of a network whose last unit is slow and seen by no other, with many digits, in closed form.

The other units run until they repeat to 90 digits. From then on the slow unit is s' = f_r s + a_r at step r of a turn,
so that after q turns it is F^q s + A (1 - F^q) / (1 - F). What the readout sees of it is monotone in it, so that each
difference of logits is monotone in q, and the first turn at which one is not above 0 is found by bisection.
"""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction

import torch
from mpmath import exp, log, mp, mpf, tanh
from oracles.recurrent_digits import sigmoid, step
from oracles.rounded import fraction, nearest

DIGITS, LONGEST = 250, 40_000
SAME = 90


def numbers(x):
    return [numbers(y) for y in x] if isinstance(x, list) else mpf(x)


class Cell:
    """A step of every cell that the house reads on one repeated token, and what its last unit keeps, adds and shows."""

    def __init__(self, model):
        stored = {name: numbers(value.double().tolist()) for name, value in model.state_dict().items()}
        self.kind, self.H = model.kind, model.hidden
        self.activation = model.activation
        self.V, self.b = stored["readout.weight"], stored["readout.bias"]
        cell = {name.removeprefix("cell."): value for name, value in stored.items()}
        if "weight_ih_l0" in cell:
            self.weights = [cell[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        elif "A" in cell and self.kind not in ("mamba", "rwkv"):
            self.kind, self.A, self.B = "linear", cell["A"], cell["B"]
        else:
            self.keep, self.add, self.read = gated(self.kind, cell)
            self.kind = "gated"

    def sigmoid(self, x):
        return sigmoid(x)

    def is_own(self, row):
        """Whether a row of W_h is one by which the slow unit sees itself."""
        return self.kind == "rnn" and row == self.H - 1

    def is_alone(self):
        """Whether no other unit sees the slow one."""
        if self.kind == "gated":
            return True
        if self.kind == "linear":
            return all(row[-1] == 0 for row in self.A[:-1])
        return all(row[-1] == 0 for r, row in enumerate(self.weights[1]) if not self.is_own(r))

    def start(self):
        return [[mpf(0)] * self.H for _ in range(2 if self.kind == "lstm" else 1)]

    def step(self, state):
        if self.kind == "linear":
            rows = zip(self.A, self.B, strict=True)
            return [[sum(w * h for w, h in zip(row, state[0], strict=True)) + b for row, b in rows]]
        if self.kind == "gated":
            return [[f * h + a for f, h, a in zip(self.keep, state[0], self.add, strict=True)]]
        return step(self.kind, self.weights, state, self.activation)

    def slow(self, state):
        """f and a of the slow unit's next step, and what it then shows, given the other units."""
        if self.kind == "linear":
            rest = sum((w * h for w, h in zip(self.A[-1][:-1], state[0][:-1], strict=True)), mpf(0))
            return self.A[-1][-1], rest + self.B[-1], lambda s: s
        if self.kind == "gated":
            return self.keep[-1], self.add[-1], lambda s: s
        W_x, W_h, b_x, b_h = self.weights
        given = [row[0] + x for row, x in zip(W_x, b_x, strict=True)]
        own = [sum((w * h for w, h in zip(row[:-1], state[0][:-1], strict=True)), mpf(0)) for row in W_h]
        own = [x + y for x, y in zip(own, b_h, strict=True)]
        last = [(given[r], own[r]) for r in range(self.H - 1, len(given), self.H)]
        if self.kind == "rnn":
            assert self.activation == "relu", "a tanh unit has no closed form"
            f, a = W_h[-1][-1], sum(last[0])
            assert f >= 0 and a >= 0, "it may be off"
            return f, a, lambda s: s
        if self.kind == "gru":
            r, z = (self.sigmoid(sum(x)) for x in last[:2])
            return z, (1 - z) * tanh(last[2][0] + r * last[2][1]), lambda s: s
        i, f, g, o = (sum(x) for x in last)
        shown = self.sigmoid(o)
        return self.sigmoid(f), self.sigmoid(i) * tanh(g), lambda s: shown * tanh(s)

    def shown(self, state):
        """What the readout sees."""
        return [r * h for r, h in zip(self.read, state[0], strict=True)] if self.kind == "gated" else state[0]

    def margin(self, h, right):
        logits = [sum(w * x for w, x in zip(row, h, strict=True)) + c for row, c in zip(self.V, self.b, strict=True)]
        return logits[right] - max(x for j, x in enumerate(logits) if j != right)


def gated(kind, cell):
    """What the first token keeps, adds and reads."""
    if kind == "mamba":
        sizes = [log(1 + exp(d)) for d in cell["delta"][0]]
        keep = [exp(-s * exp(a)) for s, a in zip(sizes, cell["A"], strict=True)]
        return keep, [s * b for s, b in zip(sizes, cell["B"][0], strict=True)], cell["C"][0]
    if kind == "rwkv":
        add = [k * v for k, v in zip(cell["k"][0], cell["v"][0], strict=True)]
        return [exp(-exp(w)) for w in cell["w"][0]], add, cell["r"][0]
    return cell["a"], cell["u"][0], cell["c"]


class KeptCell(Cell):
    """The cell in a format, in the run that keeps every result exactly and rounds factors of matrix products.

    Sigmoids are `share` u high, and so is what a gated cell computes that it keeps; None leaves them as they are.
    """

    def __init__(self, model, fmt, share=None):
        super().__init__(in_format(model, fmt))
        self.fmt, self.by = fmt, (share or 0) * mpf(fmt.u)
        if self.kind == "gated" and share is not None:
            is_stored = model.kind == "s4"
            self.keep = [f if is_stored else mpf(float(f) * (1 + share * fmt.u)) for f in self.keep]

    def is_alone(self):
        """A ReLU or linear unit is a factor of its own next state."""
        return self.kind in ("gated", "gru", "lstm") and super().is_alone()

    def near(self, h):
        sign = -1 if h < 0 else 1
        return mpf(sign * nearest(fraction(abs(h)), self.fmt)) if h else h

    def sigmoid(self, x):
        return (1 + self.by) * sigmoid(x)

    def step(self, state):
        if self.kind == "gated":
            return super().step(state)
        return step(self.kind, self.weights, state, self.activation, self.near, self.sigmoid)

    def slow(self, state):
        others = [self.near(h) for h in state[0][:-1]]
        return super().slow([[*others, state[0][-1]], *state[1:]])

    def margin(self, h, right):
        return super().margin([self.near(x) for x in h], right)


def in_format(model, fmt):
    """A copy in float64 whose stored numbers are those of the format."""
    found = deepcopy(model).double()
    for value in found.parameters():
        value.data = torch.tensor(
            [nearest(Fraction(x), fmt) for x in value.flatten().tolist()], dtype=value.dtype
        ).view_as(value)
    return found


def first_wrong(model, due, turn=1, most=10**24):
    """The first wrong length up to `most` of a model, or of a cell; None where there is none.

    `due` gives the right class after t tokens, or is a modulus; from the second turn on it repeats with the turn.
    """
    if isinstance(due, int):
        return first_wrong(model, lambda t, m=due: (t - 1) % m, due, most)
    with mp.workdps(DIGITS):
        cell = model if isinstance(model, Cell) else Cell(model)
        state, t = cell.start(), 0
        for state, t in _until_settled(cell, turn, most):
            if cell.margin(cell.shown(state), due(t)) <= 0:
                return t
        return None if t >= most else _later(_in_turns(cell, due, turn, state, t), turn, most, t)


def margin_after(cell, n, due, turn):
    """The margin after n tokens, the other units being settled by then or not."""
    with mp.workdps(DIGITS):
        *_, (state, t) = _until_settled(cell, turn, n)
        if t == n:
            return cell.margin(cell.shown(state), due(n))
        q, r = divmod(n - t - 1, turn)
        return _in_turns(cell, due, turn, state, t)[r](q)


def _until_settled(cell, turn, most):
    """The states of the first tokens, at most so many, until the other units are in their cycle."""
    assert cell.is_alone(), "another unit sees the slow one"
    state, t, off = cell.start(), 0, mpf(1)
    while off > mpf(10) ** -SAME or t <= 2 * turn:
        before = state[0][:-1]
        for _ in range(turn):
            if t == most:
                return
            state, t = cell.step(state), t + 1
            yield state, t
        off = max((abs(x - y) for x, y in zip(before, state[0], strict=False)), default=mpf(0))
        assert t < LONGEST, "the other units do not settle"


def _in_turns(cell, due, turn, state, t):
    """For each place of a turn, the margin there q turns beyond t, all other units being in their cycle."""
    steps, rest, x = [], [], state
    for _ in range(turn):
        steps.append(cell.slow(x))
        x = cell.step(x)
        rest.append(x[0][:-1])
    found = []
    for r in range(turn):
        F, A = mpf(1), mpf(0)
        for s in range(r + 1, r + 1 + turn):
            f, a, _ = steps[s % turn]
            F, A = F * f, A * f + a
        slow = state[-1][-1]
        for f, a, _ in steps[: r + 1]:
            slow = f * slow + a

        def at(q, r=r, F=F, A=A, slow=slow):
            now = slow + q * A if F == 1 else F**q * slow + A * (1 - F**q) / (1 - F)
            return cell.margin(cell.shown([[*rest[r], steps[r][2](now)]]), due(t + r + 1))

        found.append(at)
    return found


def _later(margins, turn, most, t):
    """The first wrong length beyond t, by bisection at each place of a turn."""
    wrong = []
    for r, at in enumerate(margins):
        low, high = 0, max(0, (most - t - r - 1) // turn)
        if at(low) <= 0:
            wrong.append(t + r + 1)
            continue
        if at(high) > 0:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if at(middle) > 0 else (low, middle)
        wrong.append(t + r + 1 + turn * high)
    found = min(wrong, default=None)
    return found if found is None or found <= most else None
