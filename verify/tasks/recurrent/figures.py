"""The figures of a recurrent network that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import AddKind
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import option
from verify.counting.asked import ACTIVATIONS, Asked
from verify.counting.tasks import Task
from verify.tasks.recurrent import COUNTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 10_000  # states that are drawn


def add_kinds(add_kind: AddKind) -> None:
    cycle = add_kind("cycle", "the cycle of a recurrent network's state, with the ellipsoids of its proof")
    option(cycle, "modulus", default=10, help="what is counted modulo (default: 10)")
    add_weights(cycle, "an RNN, GRU or LSTM (.safetensors or .pt) instead of the built cycle of two tanh units")

    orbit = add_kind("orbit", "a recurrent network's states and margins at each length, with right and wrong answers")
    kinds = f"{', '.join(COUNTS[:-1])} or {COUNTS[-1]} (default: rnn)"
    orbit.add_argument("--model", choices=COUNTS, default="rnn", metavar="MODEL", help=f"the kind of network: {kinds}")
    option(orbit, "modulus", default=10, help="what is counted modulo (default: 10)")
    option(orbit, "length", default=100, help="the last length that is drawn (default: 100)")
    orbit.add_argument("--activation", choices=ACTIVATIONS, help="of a head of several layers in the file")
    add_weights(orbit, "a trained network of that kind (.safetensors or .pt) instead of a built one")


def draw(args: argparse.Namespace) -> Figure:
    """The cycle of a network's state, or its orbit."""
    if args.kind == "cycle":
        return _cycle(args.modulus, args.weights)
    if not 1 <= args.length <= LONGEST:
        raise BadInput(f"--length {args.length}: must be from 1 to {LONGEST} states that are drawn")
    task = Task.of("modular", modulus=args.modulus)
    return _orbit(Asked(task, args.model, length=args.length, weights=args.weights, activation=args.activation))


def _orbit(asked: Asked) -> Figure:
    from verify.module.recurrent import RecurrentProblem
    from verify.tasks.recurrent.models import judged
    from verify.tasks.recurrent.orbit_drawing import orbit
    from verify.tasks.recurrent.task import Homogeneous

    problem = judged(asked).problem
    assert isinstance(problem, Homogeneous | RecurrentProblem)
    assert asked.task.m is not None and asked.length is not None
    return orbit(problem, asked.task.m, asked.length)


def _cycle(modulus: int, weights: str | None) -> Figure:
    from constructions.recurrent import counters
    from constructions.recurrent.model import load
    from verify.tasks.recurrent.drawing import cycle

    counters.check(modulus)
    return cycle(counters.chinese(m=modulus) if weights is None else load(weights), modulus)
