"""Trains a histogram model: python tests/tools/train_histogram.py bos+sftm out.safetensors [--steps N]."""

from __future__ import annotations

import argparse

import torch

from constructions.checkpoint import save
from constructions.histogram import MODELS, HistogramTransformer
from constructions.partition_sampler import sample


def train(model: str, T: int, L: int, d: int, p: int, steps: int, seed: int) -> HistogramTransformer:
    """Adam on cross-entropy with fresh partition samples; PyTorch's usual initialisation scales."""
    g = torch.Generator().manual_seed(seed)
    module = HistogramTransformer(model, T=T, L=L, d=d, p=p)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            scale = 1.0 if name in ("E", "e_BOS") else parameter.shape[0] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=g) * scale)
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    for step in range(steps):
        x = sample(T, L, 512, g)
        y = (x[:, :, None] == x[:, None, :]).sum(-1) - 1
        loss = torch.nn.functional.cross_entropy(module(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 500 == 0 or step == steps - 1:
            accuracy = (module(x).argmax(-1) == y).float().mean()
            print(f"step {step}: loss {loss.item():.5f}, accuracy {accuracy.item():.4f}", flush=True)
    return module


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("out")
    for name, value in (("T", 32), ("L", 10), ("d", 64), ("p", 64), ("steps", 4000), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    module = train(args.model, args.T, args.L, args.d, args.p, args.steps, args.seed)
    save(module, args.out, claim=None, construction=f"trained, {args.steps} steps, seed {args.seed}")
