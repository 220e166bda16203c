"""Trains addition modulo P in the grokking layout: python tests/tools/train_modular.py FILE --P 13 --steps 400.

One layer, ReLU, no LayerNorm, AdamW with weight decay on a share of all pairs, as Nanda et al. do.
"""

from __future__ import annotations

import argparse

import torch
from safetensors.torch import save_file

from constructions.decoder import Decoder, to_progress_measures


def train(P: int, seed: int, steps: int, share: float, d: int = 16, d_mlp: int = 32) -> tuple[Decoder, int]:
    """The model after so many steps on a share of the pairs, and how many of all pairs it gets wrong in float32."""
    torch.manual_seed(seed)
    model = Decoder(
        vocabulary=P + 1, d=d, n_heads=2, n_layers=1, d_mlp=d_mlp, d_head=d // 2, classes=P, positions=3,
        activation="relu", layernorm=False, attention_bias=False, dtype=torch.float32,
    )  # fmt: skip
    for W in model.parameters():
        torch.nn.init.normal_(W, std=d**-0.5) if W.ndim > 1 else torch.nn.init.zeros_(W)
        W.requires_grad_(True)
    pairs = torch.cartesian_prod(torch.arange(P), torch.arange(P))
    tokens, due = torch.cat([pairs, torch.full((P * P, 1), P)], dim=1), pairs.sum(1) % P
    chosen = torch.randperm(P * P)[: round(share * P * P)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.3, betas=(0.9, 0.98))
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens[chosen])[:, -1], due[chosen]).backward()
        optimizer.step()
    with torch.no_grad():
        wrong = int((model(tokens)[:, -1].argmax(-1) != due).sum())
    return model, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    for name, value in (("P", 13), ("seed", 0), ("steps", 400)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--share", type=float, default=1.0, help="of the pairs that are trained on")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, wrong = train(args.P, args.seed, args.steps, args.share)
    save_file(to_progress_measures(model), args.out)
    print(f"{args.out}: {wrong} of {args.P**2} pairs wrong in float32")
