"""How a recurrent network is trained to count modulo m until it is proved for all lengths."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import check_least
from verify.commands.vocabulary import MODEL, group, option

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from verify.changes.until_proved import Lesson

SUMMARY = "a recurrent network that counts modulo m at every length"
KINDS = ("rnn", "gru", "lstm")
MOST_LENGTH = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = group(parser, MODEL).add_argument
    add("--model", choices=KINDS, default=KINDS[0], help=f"the cell (default: {KINDS[0]})")
    option(parser, "modulus", default=5, help="what is counted modulo (default: 5)")
    option(parser, "d", default=16, help="units (default: 16)")
    option(parser, "built-for", default=50, dest="length", help="tokens that it is trained on (default: 50)")


def course(args: argparse.Namespace) -> Lesson:
    """A network as torch initialises it, and one string of equal tokens to learn from."""
    check_least(args, 2, "modulus")
    check_least(args, 1, "d", "length")
    if args.length > MOST_LENGTH:
        raise BadInput(f"--built-for {args.length}: must be at most {MOST_LENGTH}")
    import torch

    from constructions.recurrent.model import RecurrentModel, as_bytes
    from constructions.training import Recipe
    from verify.changes.changeable import of_kind
    from verify.changes.until_proved import Lesson
    from verify.counting.tasks import Task
    from verify.tasks.recurrent.task import Homogeneous

    torch.manual_seed(args.seed)
    network = RecurrentModel(args.model, hidden=args.d, classes=args.modulus)
    tokens, due = torch.zeros(1, args.length, dtype=torch.long), torch.arange(args.length) % args.modulus

    def loss(g: torch.Generator, practised: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(network(tokens)[0], due)

    task = Task.of("modular", modulus=args.modulus)
    judged = of_kind(RecurrentModel, lambda trained, _: Homogeneous(trained, task, None), as_bytes)
    recipe = Recipe("Adam", lr=0.01, steps=1000, batch=1, clip=1.0, stop=0.003)
    return Lesson(network, recipe, loss, lambda seed, practised: practised, *judged)
