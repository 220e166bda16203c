"""Trains addition modulo P so that rounding does not matter: python -m tests.tools.train_with_noise FILE.

The layer is that of train_modular.py. Once all pairs are right, every result is off by a random share of it while it
trains, and large logits are penalised: margins are then large beside all that is rounded, in bfloat16 too.
"""

from __future__ import annotations

import argparse
import time

import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from constructions.decoder import Decoder, initialised, to_progress_measures

STAGES = ((False, 1.0, 0.0, 0.3), (False, 4.0, 3e-4, 1.0), (True, 3.0, 3e-4, 0.5))
"""Whether with noise, what logits are divided by, the penalty on the mean of their squares, the decay of weights."""


class Noise(TorchFunctionMode):
    """Results of products, sums, activations and softmaxes, each number off by a random share of itself."""

    NOISY = {"matmul", "linear", "add", "relu", "softmax", "embedding"}

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in self.NOISY:
            return out
        with torch._C.DisableTorchFunction():
            return out * (1 + self.share * torch.randn(out.shape))


def margins(model: Decoder, tokens: torch.Tensor, due: torch.Tensor) -> torch.Tensor:
    """The right logit less the largest other one, of each pair."""
    with torch.no_grad():
        logits = torch.cat([model(part, position=-1).flatten(1) for part in tokens.split(1024)])
    own = logits.gather(1, due[:, None])
    return own[:, 0] - logits.scatter(1, due[:, None], -torch.inf).amax(1)


def train(P: int, seed: int, steps: int, share: float, d: int = 128, d_mlp: int = 512) -> Decoder:
    """The model after `steps` of each stage."""
    torch.manual_seed(seed)
    model = initialised(
        Decoder(
            vocabulary=P + 1, d=d, n_heads=4, d_mlp=d_mlp, positions=3, classes=P, activation="relu", layernorm=False,
            attention_bias=False,
        ),
        seed=seed, std=d**-0.5,
    )  # fmt: skip
    pairs = torch.cartesian_prod(torch.arange(P), torch.arange(P))
    tokens, due = torch.cat([pairs, torch.full((P * P, 1), P)], 1), pairs.sum(1) % P
    for is_noisy, temperature, penalty, decay in STAGES:
        optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=decay)
        started = time.process_time()
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1, (step + 1) / 50, max(0.02, (steps - step) / (0.3 * steps)))
            rows = torch.randint(P * P, (512,))
            with Noise(share * is_noisy):
                logits = model(tokens[rows], position=-1).flatten(1)
            loss = F.cross_entropy(logits / temperature, due[rows]) + penalty * logits.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        least = float(margins(model, tokens, due).amin())
        seconds = time.process_time() - started
        print(f"{'with' if is_noisy else 'no'} noise: least margin {least:.2f}, {seconds:.0f} CPU s", flush=True)
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    for name, value in (("P", 113), ("seed", 0), ("steps", 4000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--share", type=float, default=0.1, help="of each result that it is off by")
    args = parser.parse_args()
    torch.set_num_threads(1)
    save_file(to_progress_measures(train(args.P, args.seed, args.steps, args.share)), args.out)
