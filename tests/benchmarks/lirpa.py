"""Run by solvers.py in an environment of its own: auto_LiRPA's bounds on each question of a file.

Prints CPU seconds, how many margins are bounded above 0, and how many were asked, as JSON.
"""

import json
import sys
import time

import torch
from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm


class Logits(torch.nn.Module):
    """The counts' hidden layer and the readout."""

    def __init__(self, question):
        super().__init__()
        slopes, W_2 = torch.tensor(question["slopes"]), torch.tensor(question["W_2"])
        self.hidden, self.readout = torch.nn.Linear(*slopes.shape), torch.nn.Linear(*W_2.shape)
        with torch.no_grad():
            self.hidden.weight.copy_(slopes.T)
            self.hidden.bias.copy_(torch.tensor(question["base"]))
            self.readout.weight.copy_(W_2.T)
            self.readout.bias.copy_(torch.tensor(question["b_2"]))

    def forward(self, counts):
        return self.readout(torch.relu(self.hidden(counts)))


def is_bounded_above_0(question):
    T, C, right = len(question["slopes"]), len(question["b_2"]), question["right"]
    low, high = torch.zeros(1, T), torch.full((1, T), float(question["L"] - question["k"]))
    low[0, question["t"]] = high[0, question["t"]] = float(question["k"])
    model = BoundedModule(Logits(question), torch.zeros(1, T))
    others = [c for c in range(C) if c != right]
    matrix = torch.zeros(1, len(others), C)
    matrix[0, :, right] = 1
    for row, c in enumerate(others):
        matrix[0, row, c] = -1
    box = BoundedTensor((low + high) / 2, PerturbationLpNorm(norm=float("inf"), x_L=low, x_U=high))
    below, _ = model.compute_bounds(x=(box,), C=matrix, method="CROWN", bound_upper=False)
    return bool((below > 0).all())


torch.set_num_threads(1)
with open(sys.argv[1], encoding="utf-8") as file:
    asked = json.load(file)
started = time.process_time()
answered = sum(is_bounded_above_0(question) for question in asked)
print(json.dumps([time.process_time() - started, answered, len(asked)]))
