"""Small models of many kinds, random and trained, decided by cells: counts are those of brute force.

A model is an architecture, captured once, with weights of its own. 60 of them run by default; the 5,000 are
pytest tests/module/test_many_models.py -m deep
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models.one_layer import NORMS, Einsum, Encoder, Nano, Plain
from models.selection import every
from torch import nn

from tests.module.test_cells import Seen, margins_of
from verify.module import cells, count_of_last, largest, majority, smallest, sum_modulo

ACTS = [
    "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus", "elu", "leaky_relu", "relu6", "square", "abs",
    "hardswish", "gelu_written",
]  # fmt: skip
CLASSES = 6
MOST_LEFT = 0.5  # of a model's inputs: where numbers nearly cancel, tables may leave many to balls
OF_EACH = 20  # weights of an architecture


def architecture(seed):
    """A module, the tokens of each position, and what is right."""
    rng = np.random.default_rng([7, seed])
    torch.manual_seed(seed)
    V, L = int(rng.integers(2, 5)), int(rng.integers(3, 5))
    expected = [largest, smallest, sum_modulo(int(rng.integers(2, 6))), count_of_last(0), majority(1)][rng.integers(5)]
    kind, act = rng.integers(10), str(rng.choice(ACTS))
    if kind == 0:
        module = Nano(V, L, act=str(rng.choice(["gelu", "silu", "relu", "tanh"])))
    elif kind == 1:
        module = Encoder(V, L, norm_first=bool(rng.integers(2)))
    elif kind == 2:
        module = Einsum(V, L)
    else:
        heads = int(rng.integers(1, 4))
        groups = 2 if heads == 2 and rng.random() < 0.5 else 1
        module = Plain(
            V, L, d=4 * heads, heads=heads, hidden=int(rng.choice([0, 4, 7])), norm=str(rng.choice([*NORMS])), act=act,
            positions=str(rng.choice(["learned", "none"])), bos=bool(rng.integers(2)), groups=groups,
            gated=bool(rng.random() < 0.3), classes=CLASSES,
        )  # fmt: skip
    if kind < 3:
        expected = [largest, smallest, majority(1)][rng.integers(3)]
    sets = [sorted(rng.choice(V, int(rng.integers(2, V + 1)), replace=False).tolist()) for _ in range(L)]
    return module, sets, expected


class Again:
    """One architecture captured, and its module with other weights."""

    def __init__(self, seed):
        module, sets, expected = architecture(seed)
        self.seen, self.rng = Seen(module, sets, expected), np.random.default_rng([8, seed])

    def drawn(self):
        """The same graph with other numbers, some of them trained."""
        seen, module = self.seen, self.seen.module
        scale, is_trained = float(self.rng.choice([0.3, 1.0, 2.0, 4.0])), self.rng.random() < 0.3
        torch.manual_seed(int(self.rng.integers(2**31)))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(
                    torch.randn_like(parameter) * scale * max(1, parameter.shape[-1]) ** -0.5 + (parameter.ndim == 1)
                )
        if is_trained:
            trained(module, seen.rows, seen.right)
        state = dict(module.named_parameters()) | dict(module.named_buffers())
        stored = {key: state.get(seen.graph.names[key], value).detach() for key, value in seen.graph.stored.items()}
        seen.graph = replace(seen.graph, stored=stored)
        seen.layer = cells.one_layer(seen.graph, seen.question, seen.part)
        seen.margins = margins_of(module, seen.rows, seen.right)
        return seen


def trained(module, rows, right, steps=15):
    optimiser = torch.optim.Adam(module.parameters(), 0.03)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows), right).backward()
        optimiser.step()


def contradictions(seed, count):
    """Models whose counts are not those of brute force; those of whose inputs balls decide most, no near ties."""
    again, wrong, by_balls = Again(seed), [], []
    for i in range(count):
        seen = again.drawn()
        counts, left, faults, search = seen.search()
        near = int((seen.margins.abs() < 1e-6 * (1 + seen.margins.abs().amax())).sum())
        if faults or search.open:
            wrong.append((seed, i, faults[:3], search.open))
        elif left - near > len(seen.rows) * MOST_LEFT:
            by_balls.append((seed, i, left - near, len(seen.rows)))
    return wrong, by_balls


@pytest.mark.parametrize("seed", every(6, range(6)))
def test_counts_are_those_of_brute_force(seed, monkeypatch):
    monkeypatch.setattr(cells, "RUN", [1, 4, 16][seed % 3])
    assert contradictions(seed, 5) == ([], [])


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(12, 262))
def test_counts_of_many_models_are_those_of_brute_force(seed, monkeypatch):
    """250 architectures with 20 weights each: where weights of attention lie e^100 apart, tables say nothing."""
    monkeypatch.setattr(cells, "RUN", [1, 4, 16][seed % 3])
    wrong, by_balls = contradictions(seed, OF_EACH)
    assert wrong == [] and len(by_balls) <= OF_EACH // 3, by_balls
