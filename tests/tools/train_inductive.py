"""Trains a small decoder on a homogeneous task of document C and writes it: python tests/tools/train_inductive.py FILE.

Every shift and the whole line are in each step, with the loss at every token, as in C; its sizes are smaller.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from constructions.decoder import Decoder, initialised
from constructions.inductive import as_bytes
from verify.inductive.tasks import Task


def trained(
    *, pe: str, n_layers: int = 4, d: int = 32, length: int = 50, positions: int = 256, steps: int = 400, seed: int = 0
) -> Decoder:
    """A decoder with BOS that was shown a^n for n up to `length`, its answers modulo 10."""
    task = Task.of("modular")
    model = initialised(
        Decoder(
            vocabulary=1, d=d, n_heads=4, n_layers=n_layers, classes=10, positions=positions, pe=pe, bos=True,
            dtype=torch.float32,
        ), seed=seed, std=0.1,
    )  # fmt: skip
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    line = next(task.lines(length)).tokens
    right = torch.tensor(task.answers(line))
    for _ in range(steps):
        shift = 0 if pe == "nope" else int(torch.randint(positions - length, (1,)))
        loss = torch.nn.functional.cross_entropy(model(torch.tensor([line]), shift=shift)[0], right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--pe", default="nope")
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    Path(args.file).write_bytes(as_bytes(trained(pe=args.pe, steps=args.steps), {"task": "modular"}))
