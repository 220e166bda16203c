"""The figures of inductive counting that `verify figure` draws."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import AddKind, check_least, flag
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import JUDGED, MODEL, group, option, options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from constructions.decoder import Decoder
    from verify.counting.asked import Asked

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
    wish = DecoderWish.of(args)
    from verify.tasks.inductive import states

    model = wish.decoder()
    if args.kind == "variation":
        return states.variation(model)
    tokens = states.line_of(model, args.token, args.length)
    if args.kind == "first-token":
        return states.first_token(model, tokens)
    return states.components(model, tokens, wish.modulus)


@dataclass(frozen=True)
class DecoderWish:
    """The decoder that is drawn, and the modulus by which its positions are coloured."""

    asked: Asked
    modulus: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> DecoderWish:
        """Parses the options.

        Raises: BadInput for neither or both of --task and --weights, or an option that is not of what is drawn.
        """
        from verify.counting.asked import Asked
        from verify.counting.tasks import MODULAR, Task

        if (args.task is None) == (args.weights is None):
            raise BadInput("--task, --weights: name a task that a decoder is built for, or a file; one of the two")
        check_least(args, 1, "heads", "positions")
        for name in ("types", "max_count"):
            if args.weights is not None and getattr(args, name) is not None:
                raise BadInput(f"{flag(name)}: is of a task, and --weights names a file; drop one of the two")
        task = Task.of(
            args.task or "first-homogeneous",  # a file is drawn whatever it counts
            modulus=args.modulus if args.task in MODULAR else None,
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
        return cls(asked, 10 if args.modulus is None else args.modulus)

    def decoder(self) -> Decoder:
        """The decoder, built or loaded.

        Raises: BadInput; ProvedImpossible, NotKnown where none can be built.
        """
        from constructions.model_arrays import module_of
        from verify.tasks.inductive import models

        if self.asked.weights is not None:
            return models.loaded(self.asked)
        models.check_possible(self.asked)
        return module_of(models.built(self.asked)[0])
