"""The figures of inductive counting that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verify.commands.options import AddKind, check_least
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import JUDGED, MODEL, group, option, options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from constructions.decoder import Decoder

OF_ONE_TOKEN = ("modular", "selective", "selective-modular", "first-homogeneous", "first-heterogeneous")


def add_kinds(add_kind: AddKind) -> None:
    inductive = add_kind("inductive", "modular counting beyond document C's lengths, and sinusoidal readouts")
    inductive.add_argument("--d-head", type=int, default=128, help="RoPE's head size (default: 128, as C's)")
    option(inductive, "d", default=64, help="size of the sinusoidal table (default: 64)")
    first = add_kind("first-token", "a decoder's heads that look at the first token, and the streams before them")
    components = add_kind("components", "principal components of a decoder's states, by position modulo m")
    variation = add_kind("variation", "how much a decoder's attention scores vary with positions")
    for kind in (first, components, variation):
        _add_decoder(kind)
    for kind in (first, components):
        option(kind, "length", help="of the line of equal tokens (default: 128, or the positions there are)")
        group(kind, JUDGED).add_argument("--token", type=int, default=0, metavar="t", help="of the line (default: 0)")


def _add_decoder(kind: argparse.ArgumentParser) -> None:
    """What is drawn: a decoder that is built, or one in a file."""
    from verify.counting.asked import POSITIONAL

    add = group(kind, MODEL).add_argument
    add("--task", choices=OF_ONE_TOKEN, metavar="TASK", help=f"built for it: {', '.join(OF_ONE_TOKEN)}")
    add("--pe", choices=POSITIONAL, help="positional embedding (default: nope, or that of the file)")
    add("--bos", action="store_true", help="with a beginning-of-sequence token")
    options(kind, "modulus", "heads")
    add("--types", type=int, metavar="K", help="different tokens in selective tasks (default: 10)")
    add("--max-count", type=int, metavar="C", help="counts up to C in selective tasks (default: 10)")
    add("--no-layernorm", action="store_true", help="without LayerNorm")
    add("--positions", type=int, metavar="P", help="(default: 128)")
    add_weights(kind, "a saved decoder (.safetensors or .pt) instead of one that is built")


def draw(args: argparse.Namespace) -> Figure:
    """Counting beyond document C's lengths and sinusoidal readouts, or the inner workings of a decoder."""
    if args.kind == "inductive":
        from verify.tasks.inductive.drawing import inductive

        return inductive(args.d_head, args.d)
    from verify.tasks.inductive import states

    model = _decoder(args)
    if args.kind == "variation":
        return states.variation(model)
    tokens = states.line_of(model, args.token, args.length)
    if args.kind == "first-token":
        return states.first_token(model, tokens)
    return states.components(model, tokens, 10 if args.modulus is None else args.modulus)


def _decoder(args: argparse.Namespace) -> Decoder:
    """The decoder that is asked for, built or loaded.

    Raises: BadInput for neither or both of --task and --weights; ProvedImpossible, NotKnown where none can be built.
    """
    from constructions.errors import BadInput
    from verify.counting.asked import Asked
    from verify.counting.tasks import Task
    from verify.tasks.inductive import models

    if (args.task is None) == (args.weights is None):
        raise BadInput("--task, --weights: name a task that a decoder is built for, or a file; one of the two")
    check_least(args, 1, "heads", "positions")
    for name in ("types", "max_count"):
        if args.weights is not None and getattr(args, name) is not None:
            raise BadInput(f"--{name.replace('_', '-')}: is of a task, and --weights names a file; drop one of the two")
    has_modulus = args.task in ("modular", "selective-modular")
    task = Task.of(
        args.task or "first-homogeneous",
        modulus=args.modulus if has_modulus else None,
        types=args.types,
        max_count=args.max_count,
    )
    asked = Asked(
        task=task,
        model="transformer",
        pe=args.pe or ("nope" if args.weights is None else None),
        has_bos=args.bos,
        has_layernorm=not args.no_layernorm,
        n_heads=args.heads,
        positions=args.positions,
        weights=args.weights,
    )
    if args.weights is not None:
        return models.loaded(asked)
    models.check_possible(asked)
    model, _ = models.built(asked)
    return model
