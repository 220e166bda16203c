"""`verify addition`: builds or loads a model that adds two numbers digit by digit, and decides it on all pairs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown
from verify.commands import request as shared
from verify.commands.options import check_alone, flag, is_given, stored_dtype
from verify.commands.parsing import add_weights
from verify.commands.request import Request, decided, print_unknown, publish
from verify.commands.vocabulary import DTYPES, MODEL, group, option, renamed
from verify.frame.schema import as_json

if TYPE_CHECKING:
    from constructions.adder.digits import Digits
    from verify.tasks.addition.model import Adder

RENAMED = renamed(say="input")
BUILT = ("heads", "layers", "lookahead", "as_printed")
DEFAULTS = {"as_printed": False, "method": "certified"}
AS_PRINTED = 2  # columns of lookahead in E's example
LARGEST = 2000  # digits: beyond it the module alone has millions of weights


@dataclass(frozen=True)
class AdditionWish:
    """The sums that a command line names, and the construction or file that is to add them."""

    digits: int
    base: int
    construction: str
    lookahead: int | None
    dtype: str
    weights: str | None
    input: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> AdditionWish:
        """Raises: BadInput for options that do not go together."""
        given = [name for name in BUILT if is_given(args, name, DEFAULTS)]
        if args.weights is not None and given:
            raise BadInput(f"--weights: the file holds the numbers; drop {flag(given[0])}")
        k = args.lookahead if args.lookahead is not None else AS_PRINTED if args.as_printed else None
        if k is not None and (args.heads is not None or args.layers is not None):
            raise BadInput(
                "--lookahead: the document's scheme has one layer and a head for each column; drop the other"
            )
        if args.layers == 2 and args.heads == 2:
            raise BadInput("--heads 2: two layers need one head each; drop --heads, or use --layers 1")
        if not 1 <= args.digits <= LARGEST:
            raise BadInput(f"--digits {args.digits}: must be from 1 to {LARGEST}")
        if not 2 <= args.base <= LARGEST:
            raise BadInput(f"--base {args.base}: must be from 2 to {LARGEST}")
        check_alone(args, {"input": ("method", "save", "precision", "accumulate")}, DEFAULTS)
        kind = "lookahead" if k is not None else "two-layers" if args.layers == 2 else "one-layer"
        if kind == "one-layer":
            kind = "two-heads" if args.heads == 2 else "one-head"
        kind = "file" if args.weights is not None else kind
        return cls(args.digits, args.base, kind, k, stored_dtype(args, DTYPES), args.weights, args.input)

    @property
    def sums(self) -> Digits:
        from constructions.adder.digits import Digits

        return Digits(self.digits, self.base)

    def model(self) -> tuple[Adder, str | None]:
        """The module, and the claim that it belongs to."""
        from constructions import addition_arrays as addition

        dtype = self.dtype
        if self.weights is not None:
            from constructions.adder.transformer import load

            return load(self.weights)[0], None
        if self.lookahead is not None:
            return addition.lookahead(self.lookahead, n=self.digits, B=self.base, dtype=dtype), "E-4"
        if self.construction == "two-layers":
            return addition.two_layers(n=self.digits, B=self.base, dtype=dtype), "W-E4.3"
        if self.construction == "two-heads":
            return addition.two_heads(n=self.digits, B=self.base, dtype=dtype), "W-E4.2"
        return addition.one_head(n=self.digits, B=self.base, dtype=dtype), "W-E4.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = group(parser, MODEL).add_argument
    add("--digits", type=int, default=5, metavar="N", help="digits of each number (default: 5)")
    add("--base", type=int, default=10, metavar="B", help="(default: 10)")
    option(parser, "heads", choices=(1, 2), help="one layer: all in one head, or two that need fewer bits (default: 1)")
    option(parser, "layers", choices=(1, 2), help="two layers need no more bits for more digits (default: 1)")
    add("--lookahead", type=int, metavar="K", help="the document's scheme: carries from K columns below, one head each")
    option(parser, "as-printed", help="the document's three heads: --lookahead 2")
    option(parser, "dtype")
    add_weights(parser, "decide a saved model (.safetensors or .pt) of these digits instead")
    option(parser, "input", metavar="PROMPT", help='answer one prompt instead, as in --input "00995+00005="')
    shared.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    wish, request = AdditionWish.of(args), Request.of(args)
    try:
        model, claim = wish.model()
    except NotKnown as error:
        return print_unknown(str(error), request.is_json)
    if wish.input is not None:
        return say(model, wish, request.is_json)
    from verify.tasks.addition.model import weights_of
    from verify.tasks.addition.task import DigitAddition

    facts: dict[str, object] = {"construction": wish.construction}
    if wish.lookahead is not None:
        facts |= {"lookahead": wish.lookahead}
    problem = DigitAddition(model, wish.sums, claim, facts)
    certificate = decided(request, problem)
    header = {"task": "addition", "digits": wish.digits, "base": wish.base}
    return publish(request, certificate, lambda: weights_of(model, header))


def say(model: Adder, wish: AdditionWish, is_json: bool) -> int:
    """Prints what the model generates for one prompt; exit code 1 where it is wrong."""
    import torch

    from verify.tasks.addition.task import DigitAddition, parse

    problem = DigitAddition(model, wish.sums)
    pair = parse(wish.input or "", wish.sums)
    with torch.no_grad():
        said = model.generate(torch.tensor([wish.sums.prompt(*pair)]), wish.digits + 1)[0].tolist()
    right = wish.sums.answer(*pair)
    if is_json:
        answer = {"prompt": problem.name(pair), "said": problem.text(said), "expected": problem.text(right)}
        print(as_json({**answer, "is_right": said == right}))
    else:
        print(f"{problem.name(pair)}{problem.text(said)}")
        if said != right:
            print(f"wrong: due is {problem.text(right)}")
    return 0 if said == right else 1
