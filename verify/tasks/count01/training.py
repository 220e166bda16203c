"""How a Count01 model is trained until it is proved on a box of counts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import check_least
from verify.commands.vocabulary import JUDGED, group, option

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from verify.changes.until_proved import Lesson

SUMMARY = "a model that knows the majority of 0 and 1 among noise"
BATCH = 1024  # triples of a step, a half of them practised
KEPT = 4096  # triples that need practice
MOST = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "heads", default=1, help="attention heads (default: 1)")
    option(parser, "d", default=8, help="size of the stream (default: 8)")
    add = group(parser, JUDGED).add_argument
    add("--max-digits", type=int, default=20, metavar="N", help="at most N of 0 and of 1 each (default: 20)")
    add("--max-noise", type=int, default=20, metavar="M", help="at most M of 2 (default: 20)")
    option(parser, "labels")


def course(args: argparse.Namespace) -> Lesson:
    """A model without positions, which sees counts alone, with random weights."""
    check_least(args, 1, "heads", "d", "max_digits", "max_noise")
    if args.d % args.heads or max(args.max_digits, args.max_noise) > MOST:
        raise BadInput(
            f"--d {args.d}, --heads {args.heads}: heads must divide d; --max-digits and --max-noise at most {MOST}"
        )
    import torch

    from constructions.count01 import EOS, EQUALS, FIVE, FOUR, Count01Transformer, as_bytes
    from constructions.training import ONE_CYCLE, Recipe
    from verify.arithmetic.margins import margins_of
    from verify.changes.changeable import of_kind
    from verify.changes.until_proved import Lesson
    from verify.tasks.count01.noisy_majority import counts_of, due_of, initialise
    from verify.tasks.count01.task import PromptDomain
    from verify.tasks.count01.verdict import Count01

    module = Count01Transformer(d=args.d, heads=args.heads, d_h=args.d // args.heads, dtype=torch.float32)
    initialise(module, torch.Generator().manual_seed(args.seed))
    digits, noise = torch.arange(args.max_digits + 1), torch.arange(args.max_noise + 1)
    triples = torch.cartesian_prod(digits, digits, noise)
    due = due_of(triples, args.labels)

    def loss(g: torch.Generator, practised: Tensor) -> Tensor:
        rows = torch.randint(0, len(triples), (BATCH // 2,), generator=g)
        pool = practised.long() if len(practised) else (triples[:, 1] - triples[:, 0]).abs().argsort()[:KEPT]
        rows = torch.cat([rows, pool[torch.randint(0, len(pool), (BATCH // 2,), generator=g)]])
        n, right = triples[rows], due[rows]
        total = torch.nn.functional.cross_entropy(module.logits_at_counts(counts_of(n, EQUALS), EQUALS), right)
        for last in (FOUR, FIVE):
            end = torch.full((len(n),), EOS)
            total = (
                total + torch.nn.functional.cross_entropy(module.logits_at_counts(counts_of(n, last), last), end) / 2
            )
        return total

    def hard(seed: int, practised: Tensor) -> Tensor:
        with torch.no_grad():
            return margins_of(module.logits_at_counts(counts_of(triples, EQUALS), EQUALS), due).argsort()[:KEPT]

    domain = PromptDomain(args.max_digits, args.max_noise, None)
    judged = of_kind(Count01Transformer, lambda trained, _: Count01.of(trained, args.labels, domain), as_bytes)
    recipe = Recipe("Adam", lr=0.02, steps=3000, batch=BATCH, schedule=ONE_CYCLE)
    return Lesson(module, recipe, loss, hard, *judged)
