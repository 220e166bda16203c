"""Small random recurrent networks that count for a while: random cells, the readout fitted to where they settle."""

from __future__ import annotations

import numpy as np
import torch

from constructions.recurrent.model import RecurrentModel


def random_network(seed):
    """A cell of a random kind, a modulus, and the network: right for ever, for a while, or never."""
    g = np.random.default_rng(seed)
    kind, modulus = g.choice(["rnn", "rnn", "gru", "lstm"]), int(g.choice([2, 2, 3, 4]))
    hidden = int(g.integers(2, 5))
    activation = "relu" if kind == "rnn" and g.random() < 0.25 else "tanh"
    model = RecurrentModel(str(kind), hidden=hidden, classes=modulus, activation=activation, dtype=torch.float64)
    scale = g.choice([1.0, 2.0, 4.0]) if activation == "tanh" else 0.7
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.as_tensor(np.round(g.normal(size=p.shape) * scale, int(g.integers(1, 4)))))
        if activation == "tanh":  # the last hidden rows turn the state by about one m-th of a circle
            angle = 2 * np.pi / modulus + g.normal() * g.choice([0.0, 0.0, 0.1])
            turn = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            row = {"rnn": 0, "gru": 2 * hidden, "lstm": 2 * hidden}[kind]
            model.cell.weight_hh_l0[row : row + 2, :2] = turn * float(g.choice([1.5, 2.5, 4.0]))
            model.cell.weight_hh_l0[row : row + 2, 2:] *= 0.1
            model.cell.bias_ih_l0[:] *= 0.1
            model.cell.weight_ih_l0[:] *= float(g.choice([0.0, 0.1, 1.0]))
            if kind == "lstm":
                model.cell.bias_ih_l0[hidden : 2 * hidden] -= 3.0  # forget
            if kind == "gru":
                model.cell.bias_ih_l0[:hidden] += 3.0
                model.cell.bias_ih_l0[hidden : 2 * hidden] -= 3.0
        states = model.cell(torch.ones(1, 60 * modulus, 1, dtype=torch.float64))[0][0].numpy()
        first = int(g.choice([0, 30]))
        due = np.eye(modulus)[np.arange(len(states)) % modulus]
        design = np.concatenate([states, np.ones((len(states), 1))], axis=1)[first:]
        fitted = np.linalg.lstsq(design, due[first:], rcond=1e-8)[0]
        if np.isfinite(fitted).all():
            model.readout.weight.copy_(torch.as_tensor(fitted[:-1].T.copy()))
            model.readout.bias.copy_(torch.as_tensor(fitted[-1]))
    return model, modulus
