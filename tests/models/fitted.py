"""Models with random features and a fitted readout: some right, some wrong on a few inputs, some beyond repair."""

from __future__ import annotations

import itertools

import torch

from constructions.histogram import MODELS, HistogramTransformer


def fitted(seed, *, T=3, L=3, d=4, p=12, model=None):
    """Least squares on all inputs, with some noise on the readout."""
    g = torch.Generator().manual_seed(seed)
    module = HistogramTransformer(model or MODELS[seed % len(MODELS)], T=T, L=L, d=d, p=p)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            size = 1.0 if name in ("E", "e_BOS", "b_1") else parameter.shape[0] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=g) * size)
        x = torch.tensor(list(itertools.product(range(T), repeat=L)))
        right = (x[:, :, None] == x[:, None, :]).sum(-1).flatten() - module.first_count
        hidden = hidden_numbers(module, x)
        due = torch.nn.functional.one_hot(right, module.W_2.shape[1]).double()
        solved = torch.linalg.lstsq(hidden.T @ hidden + 1e-6 * torch.eye(p + 1), hidden.T @ due).solution
        solved += 0.02 * torch.randn(solved.shape, generator=g)
        module.W_2.copy_(solved[:-1])
        module.b_2.copy_(solved[-1])
    return module.requires_grad_(False)


def hidden_numbers(module, x):
    """The hidden numbers of all positions, and 1: (n L, p + 1), in float64."""
    E = module.E.double()[x]
    context = E
    if module.has_bos:
        context = torch.cat([module.e_BOS.double().expand(len(x), 1, -1), E], 1)
    if module.is_linear:
        scores = module.A.double()
    else:
        scores = (E @ module.W_Q.double()) @ (context @ module.W_K.double()).transpose(1, 2) / module.d**0.5
    mixed = E + (scores.softmax(-1) if module.is_softmax else scores) @ context
    z = torch.relu(mixed @ module.W_1.double() + module.b_1.double()).flatten(0, 1)
    return torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
