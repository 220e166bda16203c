"""Crafted networks: a part that is right, and a unit that creeps, rounds, ties or overflows until it is wrong.

Every network is small, and its first wrong length in real arithmetic is known in closed form or by a long run; `seed`
gives the family and the numbers, so that a network is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from oracles import exact_lines, slow_units, turning

from constructions.recurrent import counters, diagonal
from constructions.recurrent.gated import DiagonalCell, GatedModel, MambaCell, RwkvCell
from constructions.recurrent.linear import LinearModel, RotationModel
from constructions.recurrent.model import RecurrentModel
from verify.counting.tasks import Task

D = torch.float64
FIRST = Task.of("first-homogeneous")


@dataclass(frozen=True)
class Crafted:
    """A network on a task, and a function that gives its first wrong length in real arithmetic, None for none.

    `by_run` says that the oracle is a run, and knows nothing beyond `exact_lines.LONGEST` tokens.
    """

    family: str
    model: object
    task: Task
    oracle: Callable[[], int | None]
    by_run: bool = False


def modular(m):
    return Task.of("modular", modulus=m)


def due_first(t):
    return int(t == 1)


def blank(kind, hidden, classes, activation="tanh"):
    model = RecurrentModel(kind, hidden=hidden, classes=classes, activation=activation, dtype=D)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


def stored(*values):
    return torch.tensor(values, dtype=D)


def size(g, low, high):
    return float(10.0 ** g.uniform(low, high))


# ---- the slow unit is the last one; `push` is how much of it the readout takes from the right class


def lstm_swing(g):
    """Two units: one swings between its classes, the other forgets with sigma(keep) and adds little."""
    model = blank("lstm", 2, 2)
    keep, add = g.uniform(4, 34), size(g, -12, -1)
    with torch.no_grad():
        gates, weights = model.cell.bias_ih_l0.view(4, 2), model.cell.weight_hh_l0.view(4, 2, 2)
        gates[:, 0], gates[:, 1] = stored(6.0, -6.0, 0.1, 6.0), stored(g.normal(), keep, add, 0.25)
        weights[2, 0, 0] = -4.0
        weights[:, 1, 0] = stored(*g.normal(size=4)) * 0.3
        push = float(g.choice([8.0, 2.0, 0.3, -8.0]))
        model.readout.weight.copy_(stored([2.0, -push], [-2.0, push]))
    return model, 2


def gru_swing(g):
    model = blank("gru", 2, 2)
    with torch.no_grad():
        gates, weights = model.cell.bias_ih_l0.view(3, 2), model.cell.weight_hh_l0.view(3, 2, 2)
        gates[:, 0], gates[:, 1] = stored(6.0, -6.0, 0.1), stored(1.0, g.uniform(4, 34), size(g, -6, 0))
        weights[2, 0, 0] = -4.0
        weights[:, 1, 0] = stored(*g.normal(size=3)) * 0.3
        push = float(g.choice([40.0, 8.0, 0.5, -8.0]))
        model.readout.weight.copy_(stored([2.0, -push], [-2.0, push]))
    return model, 2


def relu_swing(g):
    """h' = relu(1 - h) swings exactly, and a sum of ReLUs creeps."""
    model = blank("rnn", 2, 2, "relu")
    with torch.no_grad():
        f = float(g.choice([1.0, 1 - 2.0**-10, 1 - 2.0**-30, 1 + 2.0**-12, 1 + 2.0**-26]))
        model.cell.weight_hh_l0.copy_(stored([-1.0, 0.0], [float(g.choice([0.0, 1e-3])), f]))
        model.cell.bias_ih_l0.copy_(stored(1.0, size(g, -10, -2)))
        push = float(g.choice([1.0, 0.01, -1.0]))
        model.readout.weight.copy_(stored([2.0, -push], [0.0, 0.0]))
        model.readout.bias.copy_(stored(-1.0, 0.0))
    return model, 2


def ring_creeps(g):
    """The exact ring of m ReLUs, with one more unit that adds."""
    m = int(g.integers(3, 6))
    ring, model = counters.ring(m=m), blank("rnn", m + 1, m, "relu")
    with torch.no_grad():
        model.cell.weight_hh_l0[:m, :m] = ring.cell.weight_hh_l0
        model.cell.bias_hh_l0[:m] = ring.cell.bias_hh_l0
        model.cell.weight_hh_l0[m, m] = float(g.choice([1.0, 1 - 2.0**-14, 1 - 1e-7]))
        model.cell.bias_hh_l0[m] = size(g, -10, -2)
        model.readout.weight[:, :m] = torch.eye(m, dtype=D)
        model.readout.weight[int(g.integers(m)), m] = float(g.choice([1.0, -1.0, 0.05]))
    return model, m


def linear_creeps(g):
    """The dense integer state space with period m, and a decay beside it."""
    m = int(g.choice([2, 3, 4, 6, 10]))
    built = counters.cyclotomic(m=m)
    d = built.hidden
    A, B = torch.zeros(d + 1, d + 1, dtype=D), torch.zeros(d + 1, dtype=D)
    A[:d, :d], B[:d] = built.cell.A, built.cell.B
    A[d, d] = float(g.choice([1.0, 1 - size(g, -12, -2), 1 - size(g, -9, -5), 1 + size(g, -9, -4)]))
    B[d] = size(g, -10, -3)
    V = torch.cat([built.readout.weight, torch.zeros(m, 1, dtype=D)], dim=1)
    V[int(g.integers(m)), d] = float(g.choice([1.0, -1.0, 0.2]))
    return LinearModel("ssm", A, B, V, built.readout.bias.clone()), m


def between(first, later, push):
    """A readout (2, 2) and its bias that tell the first value of a unit from its later ones, and take `push` of the
    other unit from the class that is right later."""
    sign = 1.0 if first > later else -1.0
    V = stored([-40.0 * sign, -push], [0.0, 0.0])
    return V, stored(20.0 * sign * (first + later), 0.0)


def gated_first(g, kind):
    """The first token against all later ones: a fast decay, and a slow one that pushes."""
    fast = g.uniform(-1, 1)
    slow, add = g.uniform(-28, -4), size(g, -9, 0)
    if kind == "rwkv":
        cell = RwkvCell(stored([fast, slow]), stored([1.0, add]), stored([1.0, 1.0]), stored([1.0, 1.0]))
    elif kind == "mamba":
        cell = MambaCell(stored(0.1, 0.2), stored([fast, slow]), stored([1.0, add * 100]), stored([1.0, 0.5]))
    else:
        cell = DiagonalCell(stored(0.3, 1 - math.exp(slow)), stored([1.0, add]), stored(1.0, 1.0))
    keep, a, read = (table[0, 0].item() for table in cell.tables())
    V, b = between(read * a, read * a * (1 + keep), float(g.choice([30.0, 3.0, 0.2, -5.0])))
    return GatedModel(cell, V, b), 1


def lstm_first(g):
    model = blank("lstm", 2, 2)
    with torch.no_grad():
        gates = model.cell.bias_ih_l0.view(4, 2)
        gates[:, 0] = stored(20.0, -2.0, 1.0, 20.0)
        gates[:, 1] = stored(g.uniform(-20, 0), g.uniform(4, 36), size(g, -3, 0), 20.0)
        h = model.cell(torch.ones(1, 2, 1, dtype=D))[0][0, :, 0].tolist()
        V, b = between(*h, float(g.choice([8.0, 4.0, 2.0, 0.9])))
        model.readout.weight.copy_(V), model.readout.bias.copy_(b)
    return model, 1


def gru_first(g):
    model = blank("gru", 2, 2)
    with torch.no_grad():
        gates = model.cell.bias_ih_l0.view(3, 2)
        gates[:, 0], gates[:, 1] = stored(1.0, -1.0, 1.0), stored(1.0, g.uniform(4, 34), size(g, -6, 0.5))
        h = model.cell(torch.ones(1, 2, 1, dtype=D))[0][0, :, 0].tolist()
        V, b = between(*h, float(g.choice([30.0, 4.0, 0.5])))
        model.readout.weight.copy_(V), model.readout.bias.copy_(b)
    return model, 1


def subnormal(g):
    """A sum of numbers below 2^-1022 that the readout makes large: float64 may flush each of them, reals do not."""
    model = blank("rnn", 2, 2, "relu")
    k = int(g.integers(1022, 1070))
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_(stored([-1.0, 0.0], [0.0, 1.0]))
        model.cell.bias_ih_l0.copy_(stored(1.0, math.ldexp(float(g.integers(1, 9)), -k - 3)))
        model.readout.weight.copy_(stored([2.0, -math.ldexp(1.0, min(1000, k - int(g.integers(5, 60))))], [0.0, 0.0]))
        model.readout.bias.copy_(stored(-1.0, 0.0))
    return model, 2


def overflow(g):
    """A unit that grows by a factor a token, far beyond float64 where it is not seen before."""
    f, start = float(g.choice([1.5, 2.0, 1.01, 4.0])), -float(g.integers(20, 400))
    if g.random() < 0.5:
        model = blank("rnn", 2, 2, "relu")
        with torch.no_grad():
            model.cell.weight_hh_l0.copy_(stored([-1.0, 0.0], [0.0, f]))
            model.cell.bias_ih_l0.copy_(stored(1.0, 2.0**start))
            model.readout.weight.copy_(stored([2.0, -(2.0 ** -float(g.integers(0, 300)))], [0.0, 0.0]))
            model.readout.bias.copy_(stored(-1.0, 0.0))
        return model, 2
    A, B = stored([-1.0, 0.0], [0.0, f]), stored(1.0, 2.0**start)
    return LinearModel("ssm", A, B, stored([2.0, -1.0], [0.0, 0.0]), stored(-1.0, 0.0)), 2


SLOW = {
    "lstm swings": lstm_swing, "gru swings": gru_swing, "relu swings": relu_swing, "ring creeps": ring_creeps,
    "linear creeps": linear_creeps, "lstm first": lstm_first, "gru first": gru_first,
    "rwkv first": lambda g: gated_first(g, "rwkv"), "mamba first": lambda g: gated_first(g, "mamba"),
    "s4 first": lambda g: gated_first(g, "s4"), "subnormal": subnormal, "overflow": overflow,
}  # fmt: skip


def slow(name, g):
    """A slow unit beside a part that is right."""
    model, m = SLOW[name](g)
    if m == 1:
        return Crafted(name, model, FIRST, lambda: slow_units.first_wrong(model, due_first))
    return Crafted(name, model, modular(m), lambda: slow_units.first_wrong(model, m))


# ---- rotations that are off


def turn_by(angle):
    """The matrix of a rotation in float64: it also grows or shrinks by about 10^-17 a token."""
    c, s = math.cos(angle), math.sin(angle)
    return stored([c, -s], [s, c])


def rotation_matrix(g):
    m = int(g.integers(3, 11))
    off = size(g, -11, -3) * float(g.choice([-1, 1]))
    built = diagonal.rotation(m=m, dtype=D)
    A = turn_by(2 * math.pi / m + off)
    model = LinearModel("ssm", A, stored(1.0, 0.0), built.readout.weight.clone(), built.readout.bias.clone())
    return Crafted("rotation matrix", model, modular(m), lambda: turning.first_wrong_matrix(model, m))


def rotation_angle(g):
    """As S4 stores it: also an angle near k m-ths of a circle, whose classes come in another order."""
    m = int(g.integers(3, 11))
    k = int(g.choice([k for k in range(1, m) if math.gcd(k, m) == 1]))
    built = diagonal.rotation(m=m, dtype=D)
    centre = 1 / (1 - np.exp(2j * np.pi * k / m))
    places = centre * (1 - np.exp(2j * np.pi * k * np.arange(1, m + 1) / m))
    V = np.stack([places.real, places.imag], axis=1)
    b = -(V**2).sum(1) / 2
    omega = 2 * math.pi * k / m + size(g, -11, -3) * float(g.choice([-1, 1]))
    model = RotationModel(stored(omega), torch.as_tensor(V), torch.as_tensor(b))
    assert built.hidden == model.hidden
    return Crafted("rotation angle", model, modular(m), lambda: turning.first_wrong_angle(model, m))


# ---- ties and near ties: a network that settles, and a bias within ulps of where two classes are equal


def near_tie(g):
    """The readout's bias is moved until one answer of the cycle is right or wrong by a few units in the last place."""
    kind = str(g.choice(["rnn", "gru", "lstm"]))
    model = blank(kind, 2, 2)
    with torch.no_grad():
        for p in model.cell.parameters():
            p.copy_(torch.as_tensor(np.round(g.normal(size=p.shape), 2)))
        rows = {"rnn": 0, "gru": 4, "lstm": 4}[kind]
        model.cell.weight_hh_l0[rows : rows + 2] = stored([-3.0, 0.3], [0.2, -3.0])
        model.cell.bias_ih_l0[:] *= 0.1
        model.cell.weight_ih_l0[:] *= 0.1
        if kind != "rnn":
            model.cell.bias_ih_l0[2:4] -= 3.0  # hardly forgets nor keeps
        V = np.round(g.normal(size=2), 1) + 0.05
        states = model.cell(torch.ones(1, 4000, 1, dtype=D))[0][0].numpy()
        said = states @ V
        sign = 1.0 if said[-2] > said[-1] else -1.0
        at = int(g.choice([-1, -2]))
        bias = -sign * said[at]
        for _ in range(int(g.integers(0, 4))):
            bias = float(np.nextafter(bias, g.choice([-9.0, 9.0])))
        model.readout.weight[0], model.readout.bias[0] = torch.as_tensor(sign * V), bias
    return Crafted("near tie", model, modular(2), lambda: exact_lines.first_wrong(model, 2), by_run=True)


def exact_tie(g):
    """Whole numbers and dyadic fractions: a sum that meets a threshold exactly, where a tie is wrong."""
    k, n = int(g.integers(2, 12)), int(g.integers(3, 4000))
    step = math.ldexp(1.0, -k)
    model = blank("rnn", 2, 2, "relu")
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_(stored([-1.0, 0.0], [0.0, 1.0]))
        model.cell.bias_ih_l0.copy_(stored(1.0, step))
        model.readout.weight.copy_(stored([2.0 * n * step, -1.0], [0.0, 0.0]))
        model.readout.bias.copy_(stored(-n * step, 0.0) + stored(float(g.choice([0.0, 2.0**-50])), 0.0))
    return Crafted("exact tie", model, modular(2), lambda: slow_units.first_wrong(model, 2))


# ---- no closed form: runs with many digits


def tanh_creeps(g):
    """h' = tanh(w h + b) near w = 1: a narrow gate, or a point that is nearly neutral."""
    model = blank("rnn", 2, 2)
    w = float(g.choice([1.0, 1.0, 1 - size(g, -6, -2), 1 + size(g, -6, -3)]))
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_(stored([-4.0, 0.0], [float(g.choice([0.0, 1e-6])), w]))
        model.cell.bias_ih_l0.copy_(stored(0.1, size(g, -7, -3)))
        push = float(g.choice([200.0, 20.0, 3.0]))
        model.readout.weight.copy_(stored([1.0, -push], [-1.0, 0.0]))
    return Crafted("tanh creeps", model, modular(2), lambda: exact_lines.first_wrong(model, 2), by_run=True)


def disturbed_cycle(g):
    """A stored cycle of two tanh units whose weights are moved."""
    m = int(g.integers(3, 13))
    model = counters.cycle(m=m)
    with torch.no_grad():
        for p in model.parameters():
            p += torch.as_tensor(g.normal(size=p.shape)) * size(g, -7, -1)
    return Crafted("disturbed cycle", model, modular(m), lambda: exact_lines.first_wrong(model, m), by_run=True)


def number_line(g):
    """Vanilla counting, and on from a number word, by units that add and leak, token by token."""
    M, kind = int(g.integers(5, 40)), str(g.choice(["lstm", "rnn", "gru", "s4", "rwkv"]))
    leak = size(g, -7, -2)
    if kind in ("s4", "rwkv"):
        f, a = 1 - leak, 1.0
        cell = (
            DiagonalCell(stored(f), stored([a]), stored(1.0))
            if kind == "s4"
            else RwkvCell(stored([math.log(leak)]), stored([a]), stored([1.0]), stored([1.0]))
        )
        model = GatedModel(cell, *_nearest(M, 1.0))
    else:
        model = blank(kind, 1, M + 1, "relu" if kind == "rnn" else "tanh")
        with torch.no_grad():
            if kind == "rnn":
                model.cell.weight_hh_l0[:] = 1 - leak
                model.cell.bias_ih_l0[:] = 1.0
                unit = None
            elif kind == "lstm":
                model.cell.bias_ih_l0.copy_(stored(-math.log(8 * M), -math.log(leak), 1.0, 20.0))
                unit = model.cell(torch.ones(1, M, 1, dtype=D))[0][0, :, 0].numpy()
            else:
                model.cell.bias_ih_l0.copy_(stored(1.0, math.log(M), 5.0))
                unit = model.cell(torch.ones(1, M, 1, dtype=D))[0][0, :, 0].numpy()
            V, b = _nearest(M, 1.0, unit)
            if unit is not None:
                b = b * (1 + leak)
            model.readout.weight.copy_(V), model.readout.bias.copy_(b)
    task = Task.of("vanilla", vocabulary=M)
    return Crafted("number line", model, task, lambda: slow_units.first_wrong(model, lambda t: t, M, M))


def _nearest(M, step, places=None):
    """Lines that read which of the places 0, s, 2 s, .., or of others, is nearest."""
    places = step * np.arange(M + 1) if places is None else np.concatenate([[0.0], places])
    return torch.as_tensor(places[:, None].copy()), torch.as_tensor(-(places**2) / 2)


OTHERS = {
    "rotation matrix": rotation_matrix, "rotation angle": rotation_angle, "near tie": near_tie, "exact tie": exact_tie,
    "tanh creeps": tanh_creeps, "disturbed cycle": disturbed_cycle, "number line": number_line,
}  # fmt: skip
FAMILIES = (*SLOW, *OTHERS)


def crafted(seed):
    """The network of a seed, whose family comes in turns."""
    name, g = FAMILIES[seed % len(FAMILIES)], np.random.default_rng([37, seed])
    return slow(name, g) if name in SLOW else OTHERS[name](g)
