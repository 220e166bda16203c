"""Honest certificates about users' modules: followed input by input, by cells of tokens, and in formats."""

from __future__ import annotations

import contextlib
import dataclasses
from unittest import mock

import torch
from models.one_layer import Plain
from models.saved_modules import saved
from torch import nn
from torch.nn import functional as F

from constructions.largest import steep
from verify.arithmetic.readings import reading_of
from verify.checker import module
from verify.frame.decide import certify
from verify.module import Task, largest, smallest, strings, tokens
from verify.module import program as program_of
from verify.module.problem import ModuleProblem
from verify.tasks.module.task import as_bytes

FEW = 10  # inputs that are followed one by one, where cells are asked for


class Chosen(nn.Module):
    """The token itself, at every position, by many operations that change or choose numbers little or not at all."""

    def __init__(self, n):
        super().__init__()
        self.table, self.n = nn.Embedding.from_pretrained(4 * torch.eye(n).double()), n
        self.register_buffer("weight", torch.arange(1, n + 1))

    def forward(self, t):
        x = self.table(t)
        x = torch.where(t.unsqueeze(-1) < 0, 0.5, x.cumsum(1) - x.cumsum(1) + x)
        y = F.softplus(x) + F.elu(x) + x.clamp(0.0, 1.0) + F.hardtanh(x, -1.0, 1.0) + F.gelu(x) + torch.rsqrt(x + 1.0)
        z = x.masked_fill((self.weight < 0) | ~(self.weight > 0), 0.0).flip(-1).flip(-1)
        mask = torch.ones(self.n, self.n).triu(1).to(x.dtype) + torch.eye(self.n) * 0
        spread = x.var(-1, keepdim=True) + x.std(-1, keepdim=True) + x.pow(2).mean(-1, keepdim=True)
        y = y + x.log_softmax(-1) + torch.tanh(z.unsqueeze(1).squeeze(1)) + 0 * (x @ mask) + 0 * spread
        part = torch.cat([y[..., :1], torch.stack([*y.unbind(-1)], -1)[..., 1:]], -1)
        return part * (part.amax(-1, keepdim=True) > 0).all().to(x.dtype)


class Largest(nn.Module):
    """The largest token, by the largest of one-hot vectors weighed by their token; float16 and whole numbers."""

    def __init__(self, n):
        super().__init__()
        self.table = nn.Parameter(torch.eye(n).half())
        self.register_buffer("weight", torch.arange(1, n + 1))

    def forward(self, t):
        return (self.table[t] * self.weight).amax(1)


def layer(seed, steps=0, V=3, **options):
    """One attention layer of drawn numbers, or trained to name the largest token."""
    torch.manual_seed(seed)
    model = Plain(V, 3, **{"d": 4, "heads": 1, "hidden": 0, **options})
    optimiser = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(steps):
        rows = torch.randint(0, V, (64, 3))
        optimiser.zero_grad()
        F.cross_entropy(model(rows), rows.amax(1)).backward()
        optimiser.step()
    return model


LARGEST = Task(tokens([3] * 3), largest)
GATED = {"heads": 2, "hidden": 4, "norm": "rms", "act": "silu", "gated": True}
BLOCK = {"heads": 2, "hidden": 4, "norm": "layer", "act": "gelu"}
ONE_BY_ONE = {
    "module, every position": lambda: (Chosen(2), Task(strings(2, 2), lambda t: t[:, -1])),
    "module, some inputs": lambda: (Largest(3), Task(
        tokens([3, 3], where=lambda t: t[:, 0] < t[:, 1]), lambda t: t[:, 1])),
    "module, some classes": lambda: (Largest(4), Task(
        tokens([[0, 2], [2]]), lambda t: t[:, 1] * 0 + 2, classes=[0, 2])),
    "module, a block": lambda: (layer(0, 60, 2, **BLOCK), Task(tokens([2] * 3), largest)),
    "module, wrong": lambda: (layer(1, **GATED), LARGEST),
}  # fmt: skip
BY_CELLS = {
    "module, cells": lambda: (steep(V=3, n=3), LARGEST),
    "module, cells, trained": lambda: (layer(0, 100), LARGEST),
    "module, cells, wrong": lambda: (layer(1), Task(tokens([3] * 3), smallest)),
    "module, cells, a block": lambda: (layer(0, 100, **BLOCK), LARGEST),
    "module, cells, gated, wrong": lambda: (layer(2, **GATED), LARGEST),
    "module, cells, relu, wrong": lambda: (layer(3, hidden=4), LARGEST),
}
IN_FORMATS = {
    "module, float32": (("float32",), "module, some classes"),
    "module, float32, wrong": (("float32",), "module, wrong"),
    "module, bfloat16 in float32": (("bfloat16", "float32"), "module, some inputs"),
    "module, tf32": (("tf32",), "module, some classes"),
    "module, a block, float64": (("float64",), "module, a block"),
}
MODULES = [*ONE_BY_ONE, *BY_CELLS, *IN_FORMATS]


def asked(name):
    """How many inputs are followed one by one, while a certificate by cells is made or checked."""
    stack = contextlib.ExitStack()
    for owner in (module, program_of) if name in BY_CELLS else ():
        stack.enter_context(mock.patch.object(owner, "MOST_INPUTS", FEW))
    return stack


def of_module(name):
    """The weights' bytes, and the certificate as text."""
    if name not in IN_FORMATS:
        with asked(name):
            return saved(*(ONE_BY_ONE | BY_CELLS)[name]())
    reading, model = IN_FORMATS[name]
    made, task = ONE_BY_ONE[model]()
    problem = ModuleProblem(made.eval(), task)
    weights = as_bytes(problem.module)
    found = certify(problem, reading_of(*reading)).about(weights)
    return weights, dataclasses.replace(found, extra={**found.extra, "program": program_of.program(problem)}).to_json()
