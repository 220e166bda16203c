"""The figure of a recurrent network that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verify.commands.options import AddKind
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_kinds(add_kind: AddKind) -> None:
    cycle = add_kind("cycle", "the cycle of a recurrent network's state, with the ellipsoids of its proof")
    option(cycle, "modulus", default=10, help="what is counted modulo (default: 10)")
    add_weights(cycle, "an RNN, GRU or LSTM (.safetensors or .pt) instead of the built cycle of two tanh units")


def draw(args: argparse.Namespace) -> Figure:
    """The cycle of a network's state."""
    return _cycle(args.modulus, args.weights)


def _cycle(modulus: int, weights: str | None) -> Figure:
    from constructions.recurrent import counters
    from constructions.recurrent.model import load
    from verify.tasks.recurrent.drawing import cycle

    counters.check(modulus)
    return cycle(counters.chinese(m=modulus) if weights is None else load(weights), modulus)
