"""`verify bounds`: the sizes that the propositions ask for: printed, proved enough, proved too few, and open."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.arithmetic.outward import above, below
from verify.commands import workers
from verify.commands.ranges import LARGEST_N, integers
from verify.commands.resumed import KeptResults
from verify.commands.vocabulary import JUDGED, MODEL, group, option, table_options
from verify.report.tables import render

if TYPE_CHECKING:
    import sympy


MOST_TOKENS = 128  # of --regime and --gaussian: seconds per row
EVALUATED_DIGITS = 300  # of an irrational number; more than any that is printed has before its point
FORMULA_COLUMNS = ("model", "claim", "coherence below", "d printed", "d if attained")
NOISE_COLUMNS = ("claim", "N", "n2 below", "largest n2")
COHERENCE_COLUMNS = ("model", "claim", "T", "L", *FORMULA_COLUMNS[2:], "least coherence at that d", "d proved")
COLUMNS = (
    "model", "T", "L", "size", "printed", "built and proved", "impossible below, all weights",
    "impossible below, in the regime", "open",
)  # fmt: skip
GAUSSIAN_COLUMNS = (
    "T", "L", "d", "draws", "lin, W_1 = E^T", "lin, some W_1", "dot, W_1 = E^T", "bos+sftm at d + 1 (W-3)",
    "inverse temperature",
)  # fmt: skip
REGIME_COLUMNS = ("T", "L", "d", "even readings", "shown by")
COLUMNS_OF = {
    "gaussian": GAUSSIAN_COLUMNS, "regime": REGIME_COLUMNS, "coherence": COHERENCE_COLUMNS, "sizes": COLUMNS,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "T", type=integers, help="alphabet size: 32, 16,32 or 8:64:8")
    option(parser, "L", type=integers, help="sequence length: 10, 5,10 or 5:30:5")
    add = group(parser, MODEL).add_argument
    add("--N", type=integers, help="instead of T and L: count01's attention scale N, for the exact limit on n2")
    add = group(parser, JUDGED).add_argument
    add("--coherence", action="store_true", help="the coherence that the propositions ask for, and d if it is attained")
    add(
        "--regime",
        action="store_true",
        help="which d are possible for lin with even readings (claim W-18), by exact certificates",
    )
    add("--gaussian", type=int, metavar="N", help="the share of N random Gaussian codes that meet W-2 and W-3, sampled")
    add("--formulas", action="store_true", help="print the formulas themselves in LaTeX")
    workers.add_argument(parser)
    option(parser, "resume")
    table_options(parser)


def run(args: argparse.Namespace) -> int:
    check(args)
    helpers = workers.Workers.of(args)
    columns: tuple[str, ...]
    if args.N is not None:
        columns, table = NOISE_COLUMNS, [noise_formula()] if args.formulas else [noise_row(size) for size in args.N]
    elif args.formulas:
        columns, table = FORMULA_COLUMNS, formulas()
    else:
        kind = "gaussian" if args.gaussian is not None else "regime" if args.regime else "sizes"
        kind = "coherence" if args.coherence and kind == "sizes" else kind
        columns = COLUMNS_OF[kind]
        jobs = [BoundsJob(kind, T, L, args.gaussian or 0) for T in args.T for L in args.L]
        kept = KeptResults.of(args.resume, repr, list[list[object]], _rows_read)
        found = dict(workers.results(BoundsJob.run, jobs, helpers, kept))
        table = [row for job in jobs for row in found[job]]
    sys.stdout.write(render(columns, table, args.format))
    return 0


def _rows_read(job: BoundsJob, said: object) -> list[list[object]]:
    """Raises: ValueError where they are no rows of the job's table."""
    columns = len(COLUMNS_OF[job.kind])
    if not isinstance(said, list) or not all(isinstance(row, list) and len(row) == columns for row in said):
        raise ValueError("not rows of a table")
    return said


@dataclass(frozen=True)
class BoundsJob:
    """The rows of one kind at one T and L."""

    kind: str
    T: int
    L: int
    draws: int

    def run(self) -> list[list[object]]:
        if self.kind == "gaussian":
            return gaussian_rows(self.T, self.L, self.draws)
        return {"regime": regime_rows, "coherence": rows, "sizes": size_rows}[self.kind](self.T, self.L)


def check(args: argparse.Namespace) -> None:
    """Raises BadInput for sizes that the propositions do not speak of."""
    if args.N is not None:
        if args.T is not None or args.L is not None:
            raise BadInput("N: belongs to count01, T and L to histogram. Leave one of them out.")
        for size in args.N:
            if not 1 <= size <= LARGEST_N:
                raise BadInput(f"N={size}: must be from 1 to {LARGEST_N}. Choose another one.")
        return
    if args.gaussian is not None and args.gaussian < 1:
        raise BadInput(f"gaussian={args.gaussian}: must be a number of draws, one or more. Use --gaussian 100.")
    for name in ("T", "L"):
        values = getattr(args, name)
        if values is None and not args.formulas:
            raise BadInput(f"{name}: missing. Give --T and --L, or --N for count01.")
        for value in values or ():
            if name == "T" and value > MOST_TOKENS and (args.regime or args.gaussian is not None):
                raise BadInput(
                    f"T={value}: --regime and --gaussian take at most {MOST_TOKENS} tokens. Use a smaller T."
                )
            if value < (2 if name == "T" else 3):
                raise BadInput(f"{name}={value}: the propositions ask for T >= 2 and L >= 3. Use larger ones.")


def regime_rows(T: int, L: int) -> list[list[object]]:
    """One row per d of lin and lin+sftm with even readings: exists, impossible or open, and what shows it."""
    from verify.tasks.histogram.kernels import cells

    return [[cell.T, cell.L, cell.d, cell.verdict, cell.shown_by] for cell in cells(T, L)]


def gaussian_rows(T: int, L: int, draws: int) -> list[list[object]]:
    """One row per d: how many of the draws meet the conditions of W-2 and W-3; sampled, not proved."""
    from verify.tasks.histogram.gaussian import dimensions, shares

    out: list[list[object]] = []
    for d in dimensions(T):
        s = shares(T, L, d, draws=draws)
        met = (s.lin_own, s.lin_any, s.dot_own, s.relation)
        out.append([s.T, s.L, s.d, s.draws, *met, f"{s.temperature:.3g}"])
    return out


def noise_row(N: int) -> list[object]:
    """The exact limit on the number of twos, for all n0 and n1."""
    from bounds.count01 import largest_noise, noise_threshold

    return ["D-1", N, above(ends(noise_threshold(N))[1], digits=10), largest_noise(N)]


def noise_formula() -> list[object]:
    """Returns the limit on n2 as a row with its LaTeX."""
    import sympy

    from bounds.count01 import N, noise_threshold

    return ["D-1", "N", f"${sympy.latex(noise_threshold(N))}$", None]


def rows(T: int, L: int) -> list[list[object]]:
    """One row per proposition, evaluated at (T, L)."""
    from bounds import coherent_counting
    from bounds.coherence import best_known_lower_bound

    out: list[list[object]] = []
    for build in coherent_counting.BOUNDS:
        bound = build()
        threshold = bound.at(bound.threshold, T=T, L=L).subs(coherent_counting.alpha, 0)
        printed, if_attained = (int(bound.at(e, T=T, L=L)) for e in (bound.printed, bound.if_attained))
        least = ends(best_known_lower_bound(T, if_attained)[0])[0] if if_attained < T else 0
        proved = proved_d(build.__name__, T, L)
        sizes = [str(threshold), printed, if_attained, below(least, digits=4), proved]
        out.append([bound.models, bound.claim, T, L, *sizes])
    return out


def size_rows(T: int, L: int) -> list[list[object]]:
    """One row per model and size: the fewest dimensions d, and the fewest neurons p."""
    from verify.tasks.histogram.smallest import smallest_sizes

    return [
        [s.model, T, L, s.size, s.printed, s.proved, s.needed, s.needed_in_the_regime, s.open]
        for s in smallest_sizes(T, L)
    ]


def ends(x: sympy.Expr) -> tuple[Fraction, Fraction]:
    """Two rationals that hold a real number between them, both the number itself where it is rational.

    >>> import sympy
    >>> ends(sympy.Rational(1, 3))[0], ends(sympy.sqrt(2))[0] ** 2 < 2 < ends(sympy.sqrt(2))[1] ** 2
    (Fraction(1, 3), True)
    """
    if x.is_Rational:
        return Fraction(int(x.p), int(x.q)), Fraction(int(x.p), int(x.q))
    near = Fraction(str(x.evalf(EVALUATED_DIGITS)))
    slack = abs(near) / 10 ** (EVALUATED_DIGITS - 5)
    return near - slack, near + slack


def formulas() -> list[list[object]]:
    """Returns the propositions as rows with their LaTeX."""
    import sympy

    from bounds import coherent_counting

    return [
        [b.models, b.claim, *(f"${sympy.latex(e)}$" for e in (b.threshold, b.printed, b.if_attained))]
        for b in (build() for build in coherent_counting.BOUNDS)
    ]


def proved_d(name: str, T: int, L: int) -> int:
    """The smallest d that is proved, in the kept frontier table or by a construction for all sizes."""
    from verify.tasks.histogram.smallest import proved_dimensions

    model, is_one_neuron = {
        "lin": ("lin", False),
        "dot_one_neuron": ("dot", True),
        "dot_inventory": ("dot", False),
        "softmax_relation": ("bos+sftm", True),
        "softmax_inventory": ("dot+sftm", False),
    }[name]
    return proved_dimensions(model, T, L, is_one_neuron=is_one_neuron)
