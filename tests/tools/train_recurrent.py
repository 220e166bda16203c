"""Trains small recurrent networks to count: python tests/tools/train_recurrent.py out.safetensors lstm --seed 3.

One string of `--length` tokens is all there is to learn from, as in document C. Training stops as soon as the loss is
below `--stop`; a large one leaves networks that are right on the trained lengths and wrong later.
"""

from __future__ import annotations

import argparse

import torch

from constructions.recurrent.model import RecurrentModel, as_bytes
from constructions.written_files import write_whole

LOOKED_AT = 100_000  # tokens for which the trained network is run


def train(
    kind: str, *, hidden: int, modulus: int, seed: int, length: int = 50, stop: float = 0.02, steps: int = 600
) -> tuple[RecurrentModel, float]:
    """The network after Adam with clipped gradients, and its last loss."""
    torch.manual_seed(seed)
    model = RecurrentModel(kind, hidden=hidden, classes=modulus).requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tokens, due = torch.zeros(1, length, dtype=torch.long), torch.arange(length) % modulus
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens)[0], due)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss.item() < stop:
            break
    return model.requires_grad_(False), loss.item()


def first_wrong(model: RecurrentModel, modulus: int) -> int | None:
    """The first wrong length in a float32 run, None where there is none."""
    said = model(torch.zeros(1, LOOKED_AT, dtype=torch.long))[0].argmax(-1)
    wrong = (said != torch.arange(LOOKED_AT) % modulus).nonzero()
    return int(wrong[0]) + 1 if len(wrong) else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("kind", choices=("rnn", "gru", "lstm"))
    for name, value in (("hidden", 8), ("modulus", 10), ("seed", 0), ("length", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--stop", type=float, default=0.02)
    args = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {"hidden": args.hidden, "modulus": args.modulus, "seed": args.seed, "length": args.length}
    model, loss = train(args.kind, **sizes, stop=args.stop)
    write_whole(args.out, as_bytes(model))
    print(f"{args.out}: {args.kind}, {sizes}, loss {loss:.4f}, first wrong length {first_wrong(model, args.modulus)}")
