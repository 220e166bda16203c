"""Circuits for tests: the published files, random circuits, every input, and one changed weight."""

from __future__ import annotations

from oracles.circuit import DATA, random_gates

from constructions.circuits.circuit import Circuit, Gate

EPFL = ("ctrl", "int2float", "cavlc", "adder", "i2c", "router")
ISCAS = ("c17", "c432", "c880", "c6288")


def path_of(name):
    return next(p for p in DATA.glob(f"*/{name}.*") if p.suffix in (".bench", ".aig", ".aag"))


def random_circuit(rng, n, size):
    gates = tuple(Gate(kind, fan_in, f"g{j}") for j, (kind, fan_in) in enumerate(random_gates(rng, n, size)))
    return Circuit("random", tuple(f"i{j}" for j in range(n)), gates, (("o", n + size - 1),))


def mutate(model, rng):
    """Changes one stored weight: its sign, to 0, or to another value."""
    state = {name: tensor for name, tensor in model.state_dict().items() if tensor.numel()}
    name = "P" if "P" in state and rng.random() < 0.4 else rng.choice(sorted(state))
    weights = state[name].view(-1)
    j = rng.randrange(len(weights))
    new = rng.choice([-1.0, 1.0, 0.5, -0.25, 0.25, 3.75, -3.75, 2.0, 0.0, 0.1, float(-weights[j])])
    weights[j] = new


def inputs(n):
    return [[index >> j & 1 for j in range(n)] for index in range(2**n)]
