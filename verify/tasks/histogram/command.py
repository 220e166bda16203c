"""`verify histogram`: builds or loads a model and decides it on all T^L sequences."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown
from verify.commands import request
from verify.commands.options import check_alone, flag
from verify.commands.parsing import add_weights
from verify.commands.request import Request, publish
from verify.commands.vocabulary import JUDGED, MODEL, group, option, options
from verify.report.progress import progress_bar
from verify.tasks.histogram.catalogue import (
    CONSTRUCTIONS,
    DTYPES,
    MODELS,
    SizesAsked,
    built,
    check_known,
    choices,
    chosen,
    storage,
)
from verify.tasks.histogram.given_kernel import CLAIM, RuledOut, on_kernel, print_uneven

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer
    from constructions.histogram_arrays import HistogramArrays
    from verify.arithmetic.readings import Reading
    from verify.frame.certificate import Certificate
    from verify.frame.clock import Deadline
    from verify.frame.decide import Effort
    from verify.tasks.histogram.array_problem import ArrayProof
    from verify.tasks.histogram.task import Progress


LAWS = ("uniform", "partitions")
IMPOSSIBLE = ("A-neg", "W-5", "W-6", "W-7", "W-16", "W-17", "W-18", "W-24", "W-27")
DEFAULTS = {"basis": "standard", "as_printed": False, "method": "certified", "budget": None}
ALONE = {
    "impossible": ("model", "T", "L", "d", "p", "construction", "dtype", "weights", "precision", "accumulate", "save",
                   "law", "kernel", *DEFAULTS),
    "kernel": ("construction", "weights", "basis", "as_printed"),
}  # fmt: skip


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose the weights: built for a size, or read from a file."""
    add = group(parser, MODEL).add_argument
    add("--model", choices=MODELS, metavar="M", help=f"one of {', '.join(MODELS)}")
    options(parser, "T", "L", "d", "p")
    add(
        "--construction",
        choices=sorted({construction for _, construction in CONSTRUCTIONS}),
        metavar="HOW",
        help="how it counts (default: relation where the model can and p < T, else inventory; for d < T code, "
        "simplex, sphere or plane)",
    )
    add("--kernel", metavar="U", help="lin on embeddings that free these vectors, such as 1,-1,1,-1; more with colons")
    add("--basis", choices=("standard", "random"), default="standard", help="orthonormal token directions")
    option(parser, "dtype", choices=DTYPES, help="dtype of the stored weights (default: float32)")
    add_weights(parser)
    option(parser, "as-printed")
    option(parser, "seed", help="for --basis random and --method sampled (default: 0)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    group(parser, JUDGED).add_argument(
        "--law", choices=LAWS, help="also the exact accuracy and confusion matrix when sequences are drawn by this law"
    )
    option(parser, "impossible", choices=IMPOSSIBLE, help=f"the argument and its checks: {', '.join(IMPOSSIBLE)}")
    request.add_arguments(parser, without=("seed", "budget"))
    help = "time limit of all searches, a builder's too (default: 30 of a proof's, none of a builder's)"
    option(parser, "budget", default=None, help=help)


@dataclass(frozen=True)
class HistogramWish:
    """The model that a command line asks for: built for sizes, or read from a file."""

    model: str | None
    T: int | None
    L: int | None
    d: int | None
    p: int | None
    construction: str | None
    basis: str
    dtype: str | None
    weights: str | None
    as_printed: bool
    seed: int
    kernel: str | None

    @classmethod
    def of(cls, args: argparse.Namespace, *, L: int | None = None, precision: str | None = None) -> HistogramWish:
        """Parses what chooses the weights; `L` and `precision` stand in for a length and a dtype that are not given.

        Raises: BadInput for what is missing, and for what has no effect.
        """
        is_built, dtype = args.weights is None, args.dtype
        if is_built and dtype is None and precision is not None:
            dtype = storage(precision)
        sizes = args.model, args.T, L if is_built and args.L is None else args.L, args.d, args.p
        wish = cls(*sizes, args.construction, args.basis, dtype, args.weights, args.as_printed, args.seed, args.kernel)
        wish._check()
        return wish

    def _check(self) -> None:
        if self.weights is not None:
            for name in ("T", "d", "p", "construction", "dtype"):
                if getattr(self, name) is not None:
                    value = getattr(self, name)
                    raise BadInput(f"{name}={value}: read from the file. Leave --{name} out with --weights.")
            if self.as_printed or self.basis != "standard":
                raise BadInput("as-printed and basis choose how weights are built. Leave them out with --weights.")
            return
        for name in ("model", "T", "L"):
            if getattr(self, name) is None:
                raise BadInput(f"{name}: missing. Add --{name}, or judge a file with --weights.")

    def sizes(self) -> SizesAsked:
        """The sizes of weights that are built.

        Raises: BadInput for sizes that no model has.
        """
        from constructions.histogram_sizes import check_sizes

        assert self.model is not None and self.T is not None and self.L is not None
        d, p = (1 if size is None else size for size in (self.d, self.p))
        check_sizes(self.model, T=self.T, L=self.L, d=d, p=p)
        return SizesAsked(self.model, self.T, self.L, self.d, self.p)

    def chosen(self, *, quiet: bool, until: Deadline | None = None) -> Chosen:
        """The model, read or built.

        Raises: RuledOut where no weights count on the vectors of --kernel; TimeIsUp as `built`.
        """
        if self.kernel is not None:
            return Chosen(on_kernel(self.kernel, self.sizes(), self.dtype or "float32"), CLAIM, "kernel")
        if self.weights is not None:
            return self._read()
        found = self.built(quiet=quiet, until=until)
        return Chosen(found.arrays.module(), found.claim, found.construction)

    def _read(self) -> Chosen:
        from constructions.checkpoint import load

        assert self.weights is not None
        return Chosen(load(self.weights, model=self.model, L=self.L), None, self.construction)

    def after_building(self, asked: Request, until: Deadline) -> Request:
        """The same request with what a builder that searches has left of the time."""
        if self.weights is not None or self.kernel is not None:
            return asked
        sizes = self.sizes()
        if "progress" not in choices(sizes.model, chosen(sizes, self.construction)):
            return asked
        return replace(asked, budget=asked.effort().left(until).limit)

    def built(self, *, quiet: bool, until: Deadline | None = None) -> Built:
        """The weights as arrays, made for sizes.

        Raises: NotKnown where no weights of these sizes are known; BadInput for a choice that the builder has not;
            TimeIsUp where the builder still searches at the deadline.
        """
        sizes = self.sizes()
        construction = chosen(sizes, self.construction)
        check_known(sizes, construction)
        asked = {"basis": self.basis, "seed": self.seed, "as_printed": self.as_printed}
        takes = choices(sizes.model, construction)
        for name, plain in (("basis", "standard"), ("as_printed", False)):
            if name not in takes and asked[name] != plain:
                raise BadInput(f"{flag(name)}: construction {construction} has no such choice. Leave {flag(name)} out.")
        with progress_bar("searching a code", quiet=quiet) as progress:
            told = progress if until is None else until.ending(progress)
            arrays = built(sizes, construction, self.dtype or "float32", progress=told, **asked)
        return Built(arrays, CONSTRUCTIONS[sizes.model, construction][1], construction)


@dataclass(frozen=True)
class Built:
    """Weights as arrays, the claim that they are built by, and the name of their construction."""

    arrays: HistogramArrays
    claim: str
    construction: str


@dataclass(frozen=True)
class Chosen:
    """A model, the claim that it is built by, and the name of its construction."""

    module: HistogramTransformer
    claim: str | None
    construction: str | None


def run(args: argparse.Namespace) -> int:
    check_alone(args, ALONE, DEFAULTS)
    if args.impossible is not None:
        from verify.report.impossibility import print_argument
        from verify.tasks.histogram.impossible import ARGUMENTS

        return print_argument(ARGUMENTS[args.impossible](args.seed), is_json=args.json)
    wish = HistogramWish.of(args, precision=args.precision)
    asked = Request.of(args)
    _check(asked, args.law)
    from verify.frame.clock import Deadline, TimeIsUp
    from verify.tasks.histogram.task import BracketBar

    until = Deadline.never() if args.budget is None else asked.effort().end()
    try:
        if _needs_no_torch(wish, asked, args.law):
            arrays = wish.built(quiet=asked.is_json, until=until)
            return _run_arrays(arrays, wish.after_building(asked, until))
        found = wish.chosen(quiet=asked.is_json, until=until)
    except RuledOut as error:
        return print_uneven(wish.sizes(), error.found, is_json=asked.is_json)
    except NotKnown as error:
        return _print_unknown(wish, asked, str(error))
    except TimeIsUp:
        return _print_unknown(wish, asked, f"the {asked.effort().limit} ended before weights were found; raise it")
    asked = wish.after_building(asked, until)
    with progress_bar("deciding", quiet=asked.is_json) as bar:
        progress = BracketBar(bar)
        certificate = _decide(found, wish.L, asked, progress)
        brackets = progress.brackets(certificate.error_share)
        if args.law is not None:
            certificate = _with_shares(found.module, wish.L, args.law, certificate, asked.effort(bar))
    from verify.report.certificate import weights_fact
    from verify.tasks.histogram.look import look_at
    from verify.tasks.histogram.report import print_certificate

    facts = [weights_fact(found.module)]
    return publish(asked, certificate, _bytes(found, asked), facts, print_certificate, look_at(found.module), brackets)


def _check(asked: Request, law: str | None) -> None:
    from verify.arithmetic.any_order import RoundedArithmetic
    from verify.arithmetic.readings import Rounded
    from verify.frame.certificate import CERTIFIED
    from verify.frame.decide import running

    reading = asked.reading
    if isinstance(reading, Rounded):
        RoundedArithmetic.of(
            reading.format, reading.accumulate
        )  # refuses an accumulation with fewer bits than the format
    if asked.method != CERTIFIED:
        running(reading, asked.method)
    if law is not None and (asked.precision is not None or asked.method != CERTIFIED):
        raise BadInput(f"law={law}: shares are exact in real arithmetic. Leave --precision and --method out.")


def _needs_no_torch(wish: HistogramWish, asked: Request, law: str | None) -> bool:
    """Whether the weights can be built as arrays, and are to be proved in real arithmetic or a format, not saved."""
    from verify.arithmetic.readings import Real, Rounded

    is_plain = isinstance(asked.reading, Real | Rounded) and asked.method == "certified" and asked.save is None
    is_plain = is_plain and law is None
    if wish.weights is not None or wish.kernel is not None or asked.report is not None or not is_plain:
        return False
    return not (wish.dtype == "bfloat16" and isinstance(asked.reading, Real))  # numpy does not run it


def _run_arrays(found: Built, asked: Request) -> int:
    from verify.frame.decide import certify
    from verify.report.certificate import shapes_fact
    from verify.tasks.histogram.array_problem import ArrayHistogram
    from verify.tasks.histogram.report import print_certificate
    from verify.tasks.histogram.task import BracketBar

    with progress_bar("deciding", quiet=asked.is_json) as bar:
        problem = ArrayHistogram.of(found.arrays, found.claim, _proof_in(asked.reading))
        certificate = certify(problem, asked.reading, asked.effort(BracketBar(bar)))
    shapes = shapes_fact((name, w.shape) for name, w in found.arrays.weights.items())
    return publish(asked, certificate, b"", [shapes], print_certificate)


def _proof_in(reading: Reading) -> ArrayProof | None:
    """The proof of a model that is given as arrays in a format; None in real arithmetic, whose proof is the default."""
    from verify.arithmetic.readings import Rounded

    if not isinstance(reading, Rounded):
        return None
    from verify.tasks.histogram.rounded.verdict import prove

    return prove


def _bytes(found: Chosen, asked: Request) -> bytes:
    """The weights file, where one is asked for."""
    from constructions import checkpoint

    if asked.save is None:
        return b""
    return checkpoint.as_bytes(found.module, claim=found.claim, construction=found.construction or "default")


def _print_unknown(wish: HistogramWish, asked: Request, reason: str) -> int:
    """No construction is known for these sizes, which is neither bad input nor impossible."""
    from verify.frame.certificate import READING_BIT_EXACT, READING_DTYPE, READING_REAL, Certificate, Verdict

    parameters = {name: getattr(wish, name) for name in ("model", "T", "L", "d", "p", "dtype")}
    rounded = READING_BIT_EXACT if (asked.precision or "").startswith("s") else READING_DTYPE
    reading = READING_REAL if asked.precision is None else rounded
    certificate = Certificate(
        Verdict.UNKNOWN, None, "histogram", parameters, reading, asked.method, inputs_covered=0, reason=reason
    )
    print(certificate.to_json() if asked.is_json else f"UNKNOWN: {reason}")
    return certificate.verdict.exit_code


def _decide(found: Chosen, L: int | None, asked: Request, progress: Progress) -> Certificate:
    from verify.frame.decide import decide
    from verify.tasks.histogram.every_reading import problem

    posed = problem(found.module, L=L, claim=found.claim)
    return decide(posed, asked.reading, asked.method, asked.effort(progress))


def _with_shares(
    module: HistogramTransformer, L: int | None, law: str, certificate: Certificate, effort: Effort
) -> Certificate:
    """The certificate with the exact accuracy and confusion matrix under the asked law."""
    from verify.tasks.histogram.confusion import confusion
    from verify.tasks.histogram.stored import StoredModel

    found = confusion(StoredModel.of(module, L), law, effort)
    return replace(certificate, extra=certificate.extra | found.to_dict())
