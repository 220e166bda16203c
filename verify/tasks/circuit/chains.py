"""What `verify circuit` and `verify language` share: the weights that are asked for, deciding them, and the result."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.parsing import add_weights
from verify.commands.request import Request
from verify.commands.vocabulary import HOW, MODEL, group, option, renamed
from verify.frame.certificate import CERTIFIED

if TYPE_CHECKING:
    from collections.abc import Callable

    from constructions.circuits.circuit import Decomposition
    from constructions.regular_language import Unrolling
    from verify.arithmetic.readings import Real, Rounded
    from verify.frame.certificate import Certificate
    from verify.tasks.circuit.model import CircuitModel
    from verify.tasks.circuit.task import Progress

RENAMED = renamed(run="input")
DEFAULT_RUNS = 64
MOST_RUNS = 1_000_000
QUICK_POSITIONS = 3000  # a forward run of this length takes a few seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group(parser, MODEL).add_argument(
        "--bits", type=int, metavar="S", help="bits before and after the point (default: the fewest that suffice)"
    )
    option(parser, "as-printed", "--printed", help="build the proof as printed (NOT: b = 0)")
    add_weights(parser, "judge these weights instead of building them")
    option(parser, "input", metavar="BITS", help="print the chain of thought on this input")
    option(
        parser,
        "precision",
        help="sN: constant-bit arithmetic, as --bits N (default); float64, float32, tf32, bfloat16, float16, e4m3, "
        "e5m2 or pN: every operation rounded to it, sums in any order; real: no rounding",
    )
    group(parser, HOW).add_argument(
        "--runs", type=int, metavar="R", help="inputs run forward beside the proof; 0 for none (default: 64 if quick)"
    )
    request.add_arguments(parser, without=("precision",))


@dataclass(frozen=True)
class ChainWish:
    """The weights that a command line asks for, and what is run beside their proof.

    `reading` None is constant-bit arithmetic of `bits`, and of the fewest bits that suffice where that is None, too.
    """

    reading: Real | Rounded | None
    bits: int | None
    runs: int | None
    weights: str | None
    as_printed: bool

    @classmethod
    def of(cls, args: argparse.Namespace, asked: Request) -> ChainWish:
        """Raises: BadInput for options that do not go together, or a number out of range."""
        reading, bits = _reading(asked, args.bits)
        wish = cls(reading, bits, args.runs, args.weights, args.as_printed)
        if wish.runs is not None and not 0 <= wish.runs <= MOST_RUNS:
            raise BadInput(f"--runs {wish.runs}: must be between 0 and {MOST_RUNS}; the proof needs none")
        if wish.as_printed and (wish.bits is None or wish.weights is not None):
            raise BadInput("--as-printed: needs --bits S and no --weights, as it fails at every S")
        return wish

    def runs_beside(self, nodes: int) -> int:
        """How many inputs are run forward beside the proof of a circuit of so many positions."""
        from verify.tasks.circuit.forward import inputs_run

        if self.runs is not None:
            return self.runs
        runs = DEFAULT_RUNS if nodes <= QUICK_POSITIONS else 0
        return runs if self.reading is None else min(runs, inputs_run(nodes))

    def built(self, decomposition: Decomposition) -> CircuitModel:
        """The stored or built weights, with 2 bits where no other number is asked for."""
        from constructions.circuit_simulation_arrays import build

        if self.weights is not None:
            from constructions.circuits.weights import load_weights

            return load_weights(self.weights)
        return build(decomposition.circuit, s=2 if self.bits is None else self.bits, as_printed=self.as_printed)


def _reading(asked: Request, bits: int | None) -> tuple[Real | Rounded | None, int | None]:
    """The arithmetic that is asked for, None for constant bits, and how many of them."""
    from verify.arithmetic.any_order import RoundedArithmetic
    from verify.arithmetic.readings import ConstantBits, Real, Rounded
    from verify.frame.decide import running

    reading = asked.reading
    if isinstance(reading, ConstantBits):
        if bits not in (None, reading.s):
            raise BadInput(f"--bits {bits}: differs from --precision {asked.precision}; give only one")
        return None, reading.s
    if isinstance(reading, Rounded):
        RoundedArithmetic.of(
            reading.format, reading.accumulate
        )  # refuses an accumulation with fewer bits than the format
        if asked.method != CERTIFIED:
            running(reading, asked.method)
        return reading, bits
    return (None if asked.precision is None else Real()), bits


def judge(wish: ChainWish, asked: Request, decomposition: Decomposition) -> tuple[CircuitModel, Certificate]:
    """Builds or loads the weights and decides them."""
    from verify.report.progress import progress_bar

    with progress_bar("deciding", quiet=asked.is_json) as advance:

        def progress(what: str, done: int, total: int) -> None:
            advance(done / max(total, 1), what)

        return _decided(wish, asked, decomposition, progress)


def _decided(
    wish: ChainWish, asked: Request, decomposition: Decomposition, progress: Progress
) -> tuple[CircuitModel, Certificate]:
    """The weights and their certificate, in the arithmetic that is asked for."""
    from verify.tasks.circuit.proof import smallest_bits

    runs, decide = wish.runs_beside(decomposition.circuit.nodes), _decider(wish, asked)
    if wish.weights is None and wish.bits is None and asked.method == CERTIFIED:
        return smallest_bits(
            decomposition, runs=runs, seed=asked.seed, budget=asked.budget, progress=progress, decide=decide
        )
    model = wish.built(decomposition)
    return model, decide(model, decomposition, runs=runs, seed=asked.seed, budget=asked.budget, progress=progress)


def _decider(wish: ChainWish, asked: Request) -> Callable[..., Certificate]:
    """Returns the function that decides a transformer and a circuit, in the arithmetic and by the method asked for."""
    from functools import partial

    from verify.tasks.circuit import dtype, proof
    from verify.tasks.circuit.report import format_of

    if wish.reading is None:
        return partial(proof.certify, s=wish.bits, method=asked.method)
    if asked.method != CERTIFIED:
        return partial(dtype.run_by_torch, method=asked.method)
    fmt, accumulate = format_of(wish.reading)
    return partial(dtype.certify, fmt=fmt, accumulate=accumulate)


def publish(
    wish: ChainWish,
    asked: Request,
    decomposition: Decomposition,
    judged: tuple[CircuitModel, Certificate],
    bits: list[int] | None,
    unrolling: Unrolling | None = None,
) -> int:
    """Writes what was asked for, prints the certificate and the chain of thought on `bits`. Returns the exit code."""
    from verify.tasks.circuit.model import bytes_of
    from verify.tasks.circuit.program import program
    from verify.tasks.circuit.report import chain_of_thought, print_certificate

    model, certificate = judged
    if bits is not None:
        steps, outputs = chain_of_thought(model, decomposition, certificate.parameters["s"], bits, wish.reading)
        chain: dict[str, object] = {"chain": steps, "outputs": outputs}
        certificate = replace(certificate, extra=certificate.extra | chain)
    return request.publish(
        asked,
        certificate,
        lambda: bytes_of(model),
        report=print_certificate,
        only_saved=lambda: {"program": program(decomposition, unrolling)},
    )
