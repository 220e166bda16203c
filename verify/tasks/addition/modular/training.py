"""How a decoder is trained to add modulo P until it is proved on all pairs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.vocabulary import MODEL, group

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from verify.changes.until_proved import Lesson

SUMMARY = "a decoder that adds modulo P, in the layout of the grokking checkpoints"
MOST = 113
BATCH, KEPT = 1024, 256  # pairs of a step, and those that need practice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group(parser, MODEL).add_argument("--P", type=int, required=True, metavar="P", help="the modulus")


def course(args: argparse.Namespace) -> Lesson:
    """One layer, four heads and ReLU, with random weights; all pairs may be trained on."""
    if not 2 <= args.P <= MOST:
        raise BadInput(f"--P {args.P}: must be from 2 to {MOST}")
    import torch
    from torch import nn

    from constructions.training import Recipe
    from verify.arithmetic.margins import margins_of
    from verify.changes.changeable import of_kind
    from verify.changes.until_proved import Lesson
    from verify.frame.tracing import load_tracer
    from verify.tasks.addition.modular.changing import file, problem
    from verify.tasks.addition.modular.experiments import decoder

    load_tracer()  # for the verdicts, before the time of the training begins
    P = args.P
    width = (32, 64) if P <= 32 else (128, 512)
    module = decoder(P, width, args.seed)
    pairs = torch.cartesian_prod(torch.arange(P), torch.arange(P))
    tokens, due = torch.cat([pairs, torch.full((P * P, 1), P)], dim=1), pairs.sum(1) % P

    def loss(g: torch.Generator, practised: Tensor) -> Tensor:
        rows = torch.randint(0, P * P, (min(BATCH, P * P),), generator=g)
        rows = torch.cat([rows, practised.long()]) if len(practised) else rows
        return torch.nn.functional.cross_entropy(module(tokens[rows])[:, -1], due[rows])

    def hard(seed: int, practised: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = module(tokens)[:, -1]
        return margins_of(logits, due).argsort()[:KEPT]

    recipe = Recipe("AdamW", lr=0.01, steps=1500, batch=BATCH, weight_decay=0.3, betas=(0.9, 0.98))
    judged = of_kind(nn.Module, lambda trained, _: problem(trained, P), file)
    return Lesson(module, recipe, loss, hard, *judged)
