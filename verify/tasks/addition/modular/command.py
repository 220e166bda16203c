"""`verify modular`: builds or loads a model that adds modulo P, and decides it on all P^2 pairs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown, ProvedImpossible
from verify.commands import request as shared
from verify.commands.options import flag, is_given, stored_dtype
from verify.commands.parsing import add_weights
from verify.commands.request import Request, decided, print_impossible, print_unknown, publish
from verify.commands.vocabulary import DTYPES, JUDGED, MODEL, group, option
from verify.frame.schema import as_json
from verify.tasks.addition.modular import grokking

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder

CONSTRUCTIONS = ("staircase", "clock", "pizza", "one-neuron")
WITHOUT_FREQUENCIES = ("staircase", "one-neuron")
BUILT = ("construction", "K", "frequencies", "neurons_per_frequency", "no_mlp")
DEFAULTS = {"no_mlp": False}
LARGEST = 100_000
LARGEST_PAIRWISE = 2000  # P^3 logits
IMPOSSIBLE = ("W-E4.7", "W-E4.8")


@dataclass(frozen=True)
class ModularWish:
    """The modulus that a command line names, and the construction or file that is to add."""

    P: int
    construction: str
    frequencies: tuple[int, ...] | None
    K: int | None
    neurons: int | None
    dtype: str
    weights: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> ModularWish:
        """Raises: BadInput for options that do not go together."""
        given = [name for name in BUILT if is_given(args, name, DEFAULTS)]
        if args.weights is not None and given:
            raise BadInput(f"--weights: the file holds the numbers; drop {flag(given[0])}")
        kind = "file" if args.weights is not None else args.construction or "staircase"
        if kind in WITHOUT_FREQUENCIES and (args.K is not None or args.frequencies is not None):
            raise BadInput(f"--frequencies, --K: {kind} has none; name --construction clock or pizza")
        if kind != "pizza" and args.neurons_per_frequency is not None:
            raise BadInput("--neurons-per-frequency: only the pizza chooses it; name --construction pizza")
        if args.K is not None and args.frequencies is not None:
            raise BadInput("--K: --frequencies says how many there are; drop one of the two")
        if not 2 <= args.P <= LARGEST:
            raise BadInput(f"--P {args.P}: must be from 2 to {LARGEST}")
        if kind != "staircase" and args.P > LARGEST_PAIRWISE:
            raise BadInput(
                f"--P {args.P}: {kind} is decided up to P={LARGEST_PAIRWISE}, by pairs in a dtype; use the staircase"
            )
        return cls(
            args.P, kind, None if args.frequencies is None else parse(args.frequencies), args.K,
            args.neurons_per_frequency, stored_dtype(args, DTYPES), args.weights,
        )  # fmt: skip

    def model(self) -> tuple[Adder, str | None, dict[str, object]]:
        """The module, its claim, and the facts that identify it."""
        from bounds.modular import neurons_needed
        from constructions import modular_arrays as modular
        from verify.tasks.addition.modular.best import best, canonical

        dtype = self.dtype
        facts: dict[str, object] = {"construction": self.construction}
        if self.weights is not None:
            from constructions.adder.transformer import load

            return load(self.weights)[0], None, facts
        if self.construction == "staircase":
            return modular.staircase(P=self.P, dtype=dtype), "W-E4.4", facts
        if self.construction == "one-neuron":
            return modular.one_neuron(P=self.P, dtype=dtype), "W-E4.9", facts
        if self.construction == "clock":
            modular.check_modulus(self.P, least=3)
            K = min(3, (self.P - 1) // 2) if self.K is None else self.K
            chosen = self.frequencies or best(self.P, K).frequencies
            model, claim = modular.clock(P=self.P, frequencies=chosen, dtype=dtype), "E-4.1"
        else:
            if self.P % 2 == 0:
                modular.pizza(P=self.P)  # says why it is impossible
            m = neurons_needed(self.P) if self.neurons is None else self.neurons
            chosen = self.frequencies or modular.pizza_frequencies(self.P, self.K or 1)
            model, claim = modular.pizza(P=self.P, frequencies=chosen, m=m, dtype=dtype), "W-E4.5"
        facts["frequencies"] = list(modular.check_frequencies(self.P, chosen))
        facts["orbit"] = list(canonical(self.P, chosen))
        return model, claim, facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "modulus", "--P", dest="P", default=113, help="the document's P (default: 113)")
    add = group(parser, MODEL).add_argument
    add("--construction", choices=CONSTRUCTIONS, help="(default: staircase; one-neuron: P = 2, 3)")
    add("--K", type=int, metavar="k", help="how many frequencies: the best ones for a clock, searched ones for a pizza")
    add("--frequencies", metavar="W,W,...", help="such as 1,6,43")
    add("--neurons-per-frequency", type=int, metavar="m", help="pizza: odd, at least 5 (default: least proved enough)")
    add("--no-mlp", action="store_true", help="attention alone: impossible with one head")
    option(parser, "dtype")
    add_weights(parser, "decide a saved model (.safetensors or .pt) for P instead, or one of the grokking layout")
    group(parser, JUDGED).add_argument(
        "--best", type=int, metavar="K", help="the best frequency sets of 1 to K frequencies, and proof that they are"
    )
    option(
        parser,
        "impossible",
        choices=IMPOSSIBLE,
        help="the argument and its checks: W-E4.7, attention alone; W-E4.8, a pizza of even P",
    )
    shared.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    request = Request.of(args)
    if args.impossible is not None:
        from verify.report.impossibility import print_argument
        from verify.tasks.addition.modular.impossible import ARGUMENTS

        return print_argument(ARGUMENTS[args.impossible](args.seed), is_json=args.json)
    if args.best is not None:
        return show_best(args.P, args.best, args.json)
    wish = ModularWish.of(args)
    checkpoint = None if wish.weights is None else grokking.read(wish.weights)
    if checkpoint is not None:
        return grokking.judge(request, checkpoint, wish.P)
    if args.no_mlp:
        return print_impossible(IMPOSSIBLE[0], no_mlp_reason(wish.P), is_json=request.is_json)
    try:
        model, claim, facts = wish.model()
    except ProvedImpossible as error:
        return print_impossible(error.claim, str(error), is_json=request.is_json)
    except NotKnown as error:
        return print_unknown(str(error), request.is_json)
    from verify.tasks.addition.model import weights_of
    from verify.tasks.addition.modular.task import ModularAddition

    problem = ModularAddition(model, wish.P, claim, facts)
    certificate = decided(request, problem)
    return publish(request, certificate, lambda: weights_of(model, {"task": "modular", "P": wish.P}))


def no_mlp_reason(P: int) -> str:
    return (
        f"P={P}: one softmax head and a linear readout. Each logit difference times the normaliser is a function of a "
        "plus a function of b; right against right + 1, summed over all pairs, it is 0, though all terms are to be "
        "positive. Drop --no-mlp."
    )


def parse(text: str) -> tuple[int, ...]:
    """Frequencies from a list such as "1,6,43".

    Raises: BadInput for anything else.

    >>> parse("1,6,43")
    (1, 6, 43)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"--frequencies {text}: must be whole numbers with commas between, as in 1,6,43") from None


def show_best(P: int, largest: int, is_json: bool) -> int:
    """Prints the best sets of 1..K frequencies, their margins, and the upper bound K P/(P-1)."""
    from verify.arithmetic.outward import above, below
    from verify.tasks.addition.modular.best import best, sets_to_compare

    if P < 3 or P > LARGEST_PAIRWISE:
        raise BadInput(f"--P {P}: --best needs P from 3 to {LARGEST_PAIRWISE}")
    for K in (largest, *range(1, largest)):  # all of them before one is searched, the one that was typed first
        sets_to_compare(P, K)
    found = [best(P, K) for K in range(1, largest + 1)]
    if is_json:
        rows = [
            {
                "K": row.K,
                "frequencies": list(row.frequencies),
                "margin": row.margin[0],
                "margin_at_most": row.margin[1],
                "average": str(row.average),
                "sets": row.compared,
            }
            for row in found
        ]
        print(as_json({"claim": "W-E4.6", "P": P, "best": rows}))
        return 0
    from verify.report.tables import render

    cells = [
        [row.K, ",".join(map(str, row.frequencies)), below(row.margin[0], 9), above(row.average), row.compared]
        for row in found
    ]
    columns = ("K", "frequencies", "margin at least", "no set exceeds", "sets compared")
    print(render(columns, cells, "rich"), end="")
    print(f"PROVED: no other sets of 1 to {largest} frequencies have larger margins (W-E4.6)")
    return 0
