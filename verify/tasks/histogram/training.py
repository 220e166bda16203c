"""How a histogram model is trained until it is proved: its batches, and the sequences that need practice."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.vocabulary import MODEL, group, option, options
from verify.tasks.histogram.catalogue import MODELS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constructions.histogram import HistogramTransformer
    from verify.changes.until_proved import Lesson

SUMMARY = "a model that counts every token of its sequence"
DRAWN, KEPT = 1 << 16, 1 << 12  # sequences that are looked at for those that need practice, and how many are kept
BATCH = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group(parser, MODEL).add_argument("--model", choices=MODELS, required=True, help="one of the six models")
    options(parser, "T", "L", "d")
    option(parser, "p", help="hidden neurons (default: 2 T)")


def course(args: argparse.Namespace) -> Lesson:
    """The model with random weights; d is T and p is 2 T where the options do not say it."""
    if args.T is None or args.L is None:
        raise BadInput("--T and --L: missing. Give both.")
    from constructions import checkpoint
    from constructions.histogram import HistogramTransformer, check_sizes
    from constructions.training import ONE_CYCLE, Recipe
    from verify.changes.changeable import of_kind
    from verify.changes.until_proved import Lesson
    from verify.tasks.histogram.changing import changeable
    from verify.tasks.histogram.every_reading import problem
    from verify.tasks.histogram.trained_models import initialise

    d, p = args.d or args.T, args.p or 2 * args.T
    check_sizes(args.model, T=args.T, L=args.L, d=d, p=p)
    module = HistogramTransformer(args.model, T=args.T, L=args.L, d=d, p=p)
    initialise(module, args.seed)
    file = partial(checkpoint.as_bytes, claim=None, construction=f"trained until proved, seed {args.seed}")
    judged = of_kind(HistogramTransformer, lambda trained, _: problem(trained), file)
    recipe = Recipe("Adam", lr=0.01, steps=2000, batch=BATCH, schedule=ONE_CYCLE)
    return Lesson(module, recipe, partial(loss, module), partial(hard, module), *judged, changeable)  # type: ignore[arg-type]


def classes(x: Tensor) -> Tensor:
    """The class of every position: its token's count less one."""
    return (x[:, :, None] == x[:, None, :]).sum(-1) - 1


def loss(module: HistogramTransformer, g: torch.Generator, practised: Tensor) -> Tensor:
    """Cross-entropy: a quarter of a batch is drawn by document A's law, a quarter uniformly, the rest is practice."""
    import torch

    from constructions.partition_sampler import sample

    T, L, part = module.T, module.L, BATCH // 4
    more = torch.randint(0, T, (2 * part, L), generator=g)
    if len(practised):
        more = practised[torch.randint(0, len(practised), (2 * part,), generator=g)]
    x = torch.cat([sample(T, L, part, g), torch.randint(0, T, (part, L), generator=g), more])
    return torch.nn.functional.cross_entropy(module(x).flatten(0, 1), classes(x).flatten())


def hard(module: HistogramTransformer, seed: int, practised: Tensor) -> Tensor:
    """Of many drawn sequences and those practised before, the ones on which a right answer is least ahead."""
    import torch

    from constructions.partition_sampler import sample
    from verify.arithmetic.margins import margins_of

    g = torch.Generator().manual_seed(seed)
    drawn = [torch.randint(0, module.T, (DRAWN, module.L), generator=g), sample(module.T, module.L, DRAWN // 4, g)]
    x = torch.cat([*drawn, practised.long()] if len(practised) else drawn)
    with torch.no_grad():
        return x[margins_of(module(x), classes(x)).amin(1).argsort()[:KEPT]]
