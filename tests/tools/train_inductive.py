"""Trains a small decoder on a homogeneous task of document C and writes it.

Every step has the whole line, at a shift of its own where the embedding has one, and the loss at every token, as in C;
its sizes are smaller. What tests/data/inductive/ has is written by

    python tests/tools/train_inductive.py tests/data/inductive/modular_rope_l4.safetensors --pe rope --length 200
    python tests/tools/train_inductive.py tests/data/inductive/vanilla_nope_l4.safetensors --task vanilla --steps 2500
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from constructions.decoder import Decoder, initialised
from constructions.inductive import as_bytes
from verify.counting.tasks import Task


def trained(
    task: Task, *, pe: str, length: int, n_layers: int = 4, d: int = 32, n_heads: int = 2, d_mlp: int = 64,
    positions: int = 256, steps: int = 1600, seed: int = 0,
) -> Decoder:  # fmt: skip
    """A decoder with BOS that was shown a^n for n up to `length`."""
    model = initialised(
        Decoder(
            vocabulary=1, d=d, n_heads=n_heads, n_layers=n_layers, d_mlp=d_mlp, classes=task.classes,
            positions=positions, pe=pe, bos=True, dtype=torch.float32,
        ), seed=seed, std=0.1,
    )  # fmt: skip
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    line = next(task.lines(length)).tokens
    right = torch.tensor(task.answers(line))
    for _ in range(steps):
        shift = 0 if pe == "nope" else int(torch.randint(positions - length, (1,)))
        loss = torch.nn.functional.cross_entropy(model(torch.tensor([line]), shift=shift)[0], right)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--task", choices=("modular", "vanilla"), default="modular")
    parser.add_argument("--pe", default="nope")
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1600)
    args = parser.parse_args()
    task = Task.of(args.task)
    model = trained(task, pe=args.pe, length=args.length, steps=args.steps)
    Path(args.file).write_bytes(as_bytes(model, {"task": task.name, **task.parameters()}))
