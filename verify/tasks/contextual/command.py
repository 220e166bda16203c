"""`verify contextual`: builds or loads a contextual counting model, decides it on all strings, or lets it count one."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.options import check_alone, check_least, flag
from verify.commands.parsing import add_weights
from verify.commands.request import Request, publish, save_weights
from verify.commands.vocabulary import DTYPES, JUDGED, MODEL, group, option, renamed
from verify.frame.schema import as_json

if TYPE_CHECKING:
    from constructions.contextual.positional import PositionalContextualTransformer
    from constructions.contextual.transformer import ContextualCountingTransformer
    from constructions.model_arrays import ModelArrays
    from verify.arithmetic.readings import Reading
    from verify.tasks.contextual.model import ContextualModel
    from verify.tasks.contextual.positional.task import Positional
    from verify.tasks.contextual.task import StringDomain

BIASES = ("BOS", "]", "0")
KEYS = ("onehot", "convex")
PE = ("nope", "ape", "rope", "alibi")
# The claims by their ids, and by the numbers of the document's propositions.
IMPOSSIBLE = {
    "B-2.3": "B-2.3", "B-2.4": "B-2.4", "B-2.5": "B-2.5", "B-D.3": "B-D.3", "W-11": "W-11",
    "2.3": "B-2.3", "2.4": "B-2.4", "2.5": "B-2.5", "2.1+2.2": "W-11",
}  # fmt: skip
RENAMED = {"--on-length": {"--length": "--built-for", "--on-length": "--length"}} | renamed(
    string="input", alibi_base="slope"
)
MOST_CELLS = 20_000_000
LONGEST_RANK = 256
PROVING = ("precision", "accumulate", "method", "budget")
POSITIONS = ("pe", "slope", "decoder_mlp")
BUILDING = ("bias", "keys", "calibrated_zeros", "dtype", *POSITIONS)
ALONE = {
    "impossible": ("weights", "save", "input", "figure5", "zeros", "exactly", "regions", "built_for",
                   "on_regions",
                   *PROVING, *BUILDING),
    "figure5": ("weights", "save", "input", "zeros", "exactly", "on_regions", "bias", "calibrated_zeros",
                *PROVING, *POSITIONS),
    "input": ("zeros", "exactly", "on_regions", *PROVING),
    "weights": ("built_for", "regions", *BUILDING),
}  # fmt: skip
NO_POSITIONS = ("bias", "keys", "calibrated_zeros", "zeros", "exactly")
DEFAULTS = {"method": "certified", "budget": 30.0, "exactly": False, "figure5": False, "decoder_mlp": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "built-for", help="longest string the model is built for (default: --length, else 512)")
    add = group(parser, MODEL).add_argument
    add("--regions", type=int, metavar="R", help="regions it counts (default: 4)")
    add("--bias", choices=BIASES, help="the bias token (default: BOS)")
    add("--keys", choices=KEYS, help="a lane per region, or a convex polygon in two lanes (default: onehot)")
    add("--calibrated-zeros", type=int, metavar="Z", help="0 tokens bias 0 is built for (default: half the digits)")
    add("--pe", choices=PE, help="what the encoder's head knows of positions (default: nope, nothing)")
    add("--slope", type=float, metavar="M", help="of ALiBi, for one place (default: half of the largest that is built)")
    add("--decoder-mlp", action="store_true", help="a feed-forward layer in the decoder, too")
    option(parser, "dtype", help="dtype of the stored weights (default: float32, or that of --precision)")
    add_weights(parser)
    option(parser, "length", help="judge strings of up to N tokens (default: --built-for)")
    add = group(parser, JUDGED).add_argument
    add("--on-regions", type=int, metavar="R", help="judge strings of up to R regions (default: --regions)")
    add("--exactly", action="store_true", help="judge strings with exactly that many regions")
    add("--zeros", type=int, metavar="Z", help="judge strings with exactly Z tokens 0")
    option(parser, "input", metavar="STRING", help='count one string instead, as in --input "[0][101]0[1]1[]0"')
    add("--figure5", action="store_true", help="the three bias tokens on other lengths and numbers of regions")
    option(
        parser,
        "impossible",
        choices=tuple(IMPOSSIBLE),
        help="the argument and its checks: B-2.3, B-2.4 (at --length), B-2.5, B-D.3, W-11",
    )
    request.add_arguments(parser)


@dataclass(frozen=True)
class ContextualWish:
    """The model that is asked for: built for sizes, or read from a file."""

    N: int
    R: int
    bias: str
    keys: str
    zeros: int | None
    dtype: str | None
    weights: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> ContextualWish:
        """Raises: BadInput for sizes beyond a few minutes."""
        N, R = args.built_for or args.length or 512, args.regions or 4
        if N * R > MOST_CELLS:
            raise BadInput(f"--built-for {N} --regions {R}: {N * R} cells exceed {MOST_CELLS}; choose smaller ones")
        return cls(N, R, args.bias or "BOS", args.keys or "onehot", args.calibrated_zeros, args.dtype, args.weights)

    def model(self, reading: Reading) -> tuple[ContextualModel, str | None]:
        """The module, its weights rounded to the reading's format where torch has no such dtype, and its claim."""
        from constructions.contextual_counting_arrays import build
        from verify.arithmetic.readings import Rounded, precision_of

        if self.weights is not None:
            from constructions.contextual.transformer import load

            return load(self.weights), None
        fmt = reading.format if isinstance(reading, Rounded) else None
        dtype = self.dtype or default_dtype(str(precision_of(reading)))
        u = None if fmt is None else fmt.u
        named = {"bias": self.bias, "keys": self.keys, "dtype": dtype}
        module: ContextualModel = build(self.N, self.R, zeros=self.zeros, u=u, **named)
        if fmt is not None and fmt.name not in DTYPES:
            from constructions.model_arrays import module_of
            from verify.tasks.contextual.dtype import round_weights

            module = round_weights(module_of(module), fmt)
        return module, "B-2.1+2.2" if self.bias == "BOS" else "B-3.4"

    def named(self) -> dict[str, object]:
        """Returns the fields with which a certificate names the construction."""
        if self.weights is not None:
            return {"construction": "file"}
        return {"construction": self.keys, "bias": self.bias}


@dataclass(frozen=True)
class JudgedStrings:
    """The strings that a model is judged on, where they are not those that it is built for."""

    length: int | None
    regions: int | None
    exactly: bool
    zeros: int | None

    def of(self, module: ContextualModel, wish: ContextualWish) -> StringDomain:
        """Raises: BadInput for impossible sizes, or counts that the model has no class for."""
        from verify.tasks.contextual.verdict import domain_of

        N = self.length or (wish.N if wish.weights is None else len(module.b_out) - 1)
        return domain_of(module, N, regions=self.regions, exactly=self.exactly, zeros=self.zeros)


@dataclass(frozen=True)
class PositionalWish:
    """The model that is asked for, built or read from a file, and the strings that it is judged on."""

    N: int
    R: int
    pe: str
    slope: float | None
    has_mlp: bool
    dtype: str | None
    weights: str | None
    length: int | None
    on_regions: int | None

    @classmethod
    def of(cls, args: argparse.Namespace, N: int, R: int) -> PositionalWish | None:
        """None where the model knows no positions and its decoder has no MLP.

        Raises: BadInput for options that go with such a model only.
        """
        if args.slope is not None and args.pe != "alibi":
            raise BadInput(f"--slope {args.slope}: goes with --pe alibi. Add it, or leave the slope out.")
        if not (args.pe not in (None, "nope") or args.decoder_mlp or is_in(args.weights)):
            return None
        for name in NO_POSITIONS:
            if getattr(args, name) not in (None, False):
                raise BadInput(f"{flag(name)}: goes without positions and without a decoder MLP. Leave it out.")
        sizes = (args.dtype, args.weights, args.length, args.on_regions)
        return cls(N, R, args.pe or "nope", args.slope, args.decoder_mlp, *sizes)

    def model(self, reading: Reading) -> PositionalContextualTransformer | ModelArrays:
        """The module or its arrays; weights that are built suit the format of the reading."""
        from constructions.contextual_with_positions_arrays import build
        from verify.arithmetic.readings import Rounded
        from verify.tasks.contextual.task import MOST_PLACED

        if self.weights is not None:
            from constructions.contextual import positional

            return positional.load(self.weights)
        if self.N > MOST_PLACED:
            raise BadInput(f"built for {self.N} tokens: at most {MOST_PLACED} have positions. Ask for fewer.")
        fmt = reading.format if isinstance(reading, Rounded) else None
        dtype = self.dtype or (fmt.name if fmt is not None and fmt.name in DTYPES else "float64")
        u = None if fmt is None else fmt.u
        return build(self.N, self.R, self.pe, slope=self.slope, has_mlp=self.has_mlp, dtype=dtype, u=u)

    def problem(self, module: PositionalContextualTransformer | ModelArrays) -> Positional:
        """The module with its strings."""
        from verify.tasks.contextual.positional.task import Positional

        claim = None if self.weights is not None else "B-3.5"
        named = {"construction": "file"} if claim is None else {"pe": self.pe, "decoder_mlp": self.has_mlp}
        return Positional.of(module, length=self.length, regions=self.on_regions, claim=claim, named=named)


def is_in(path: str | None) -> bool:
    """Whether a file holds a model with positions."""
    if path is None:
        return False
    from constructions.contextual.positional import METADATA_KEY
    from constructions.files import read_tensors

    return {"slope", "cosines"} <= set(read_tensors(path, METADATA_KEY, ("E",))[0])


def run(args: argparse.Namespace) -> int:
    check_alone(args, ALONE, DEFAULTS)
    check_least(args, 1, "length", "built_for", "regions", "calibrated_zeros")
    check_least(args, 0, "on_regions", "zeros", "seed")
    if args.impossible:
        return argue(IMPOSSIBLE[args.impossible], args.length, args.seed, is_json=args.json)
    asked, wish = Request.of(args), ContextualWish.of(args)
    reading = asked.reading
    if args.figure5:
        from verify.tasks.contextual.report import figure5

        return figure5(wish.N, wish.R, wish.keys, wish.dtype or "float32", is_json=args.json)
    positional = PositionalWish.of(args, wish.N, wish.R)
    if positional is not None:
        return with_positions(positional, asked, args.input)
    from verify.tasks.contextual.model import bytes_of

    module, claim = wish.model(reading)
    if args.input is not None:
        from constructions.model_arrays import module_of

        save_weights(asked, "--input", bytes_of(module))
        return count(module_of(module), args.input, is_json=args.json)
    from verify.frame.decide import decide
    from verify.tasks.contextual.report import facts, report
    from verify.tasks.contextual.verdict import ContextualCounting

    domain = JudgedStrings(args.length, args.on_regions, args.exactly, args.zeros).of(module, wish)
    problem = ContextualCounting(module, domain, claim, wish.named())
    certificate = decide(problem, reading, asked.method, asked.effort())
    return publish(asked, certificate, lambda: bytes_of(module), facts(certificate, module), report)


def with_positions(wish: PositionalWish, asked: Request, text: str | None) -> int:
    """Decides a model that knows positions, or lets it count one string."""
    from constructions.model_arrays import module_of

    model = wish.model(asked.reading)

    def weights() -> bytes:
        from constructions.contextual.positional import as_bytes

        return as_bytes(module_of(model))

    if text is not None:
        save_weights(asked, "--input", weights())
        return count(module_of(model), text, is_json=asked.is_json)
    if asked.method != "certified":
        model = module_of(model)
    return publish(asked, request.decided(asked, wish.problem(model)), weights)


def argue(claim: str, length: int | None, seed: int, *, is_json: bool) -> int:
    """Prints an argument of impossibility and its checks; B-2.4 at the length that is asked."""
    from verify.report.impossibility import print_argument
    from verify.tasks.contextual.impossible import ARGUMENTS, causal_rank

    if length is not None:
        if claim != "B-2.4" or length > LONGEST_RANK:
            raise BadInput(f"--length {length}: goes with --impossible B-2.4, up to {LONGEST_RANK}; drop it")
        return print_argument(causal_rank(length, seed), is_json=is_json)
    return print_argument(ARGUMENTS[claim](seed), is_json=is_json)


def default_dtype(precision: str) -> str:
    """Weights are stored in the dtype that computes, where torch has it."""
    return precision if precision in DTYPES else "float64" if precision.startswith("p") else "float32"


def count(module: ContextualCountingTransformer | PositionalContextualTransformer, text: str, *, is_json: bool) -> int:
    """Prints the module's counts of one string; exit code 1 where one is wrong."""
    import torch

    from verify.tasks.contextual.report import shortened
    from verify.tasks.contextual.runs import regions
    from verify.tasks.contextual.task import answers, parse

    tokens = parse(text)
    if not tokens and not module.has_bos:
        raise BadInput("string='': is empty, and without BOS there is nothing to attend to; give a token")
    if len(tokens) > 8192:
        raise BadInput(f"string: has {len(tokens)} tokens; a run is for up to 8192 of them")
    with torch.no_grad():
        said = module(torch.tensor(tokens, dtype=torch.long)).argmax(dim=-1).tolist()
    right, written = answers(tokens, module.R), regions(tokens)
    if is_json:
        print(as_json({"regions": written, "counts": said, "right": right, "is_right": said == right}))
        return 0 if said == right else 1
    for r, (a, b) in enumerate(zip(said, right, strict=True)):
        region = shortened((written + ["not there"] * module.R)[r])
        print(f"region {r + 1}  {region}  counted {a}{'' if a == b else f', which is wrong: {b}'}")
    return 0 if said == right else 1
