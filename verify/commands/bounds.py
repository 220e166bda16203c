"""`verify bounds`: the embedding sizes that the propositions ask for, printed and corrected."""

from __future__ import annotations

import argparse
import sys

from constructions.errors import BadInput
from verify.commands.ranges import integers
from verify.tables import FORMATS, render

HELP = "print every model's bound on d: as printed, as corrected, and the smallest d proved here"

FORMULA_COLUMNS = ("model", "claim", "coherence below", "d printed", "d corrected")
COLUMNS = ("model", "claim", "T", "L", *FORMULA_COLUMNS[2:], "least coherence at that d", "d proved")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--T", type=integers, required=True, help="alphabet size: 32, 16,32 or 8:64:8")
    add("--L", type=integers, required=True, help="sequence length: 10, 5,10 or 5:30:5")
    add("--format", choices=FORMATS, default="rich", help="default: rich")
    add("--formulas", action="store_true", help="print the formulas themselves in LaTeX")


def run(args: argparse.Namespace) -> int:
    for name in ("T", "L"):
        for value in getattr(args, name):
            if value < (2 if name == "T" else 3):
                raise BadInput(f"{name}={value}: the propositions ask for T >= 2 and L >= 3. Use larger ones.")
    if args.formulas:
        sys.stdout.write(render(FORMULA_COLUMNS, formulas(), args.format))
        return 0
    sys.stdout.write(render(COLUMNS, [row for T in args.T for L in args.L for row in rows(T, L)], args.format))
    return 0


def rows(T: int, L: int) -> list[list[object]]:
    """One row per proposition, evaluated at (T, L)."""
    from bounds import coherent_counting
    from bounds.coherence import best_known_lower_bound

    out: list[list[object]] = []
    for build in coherent_counting.BOUNDS:
        bound = build()
        threshold = bound.at(bound.threshold, T=T, L=L).subs(coherent_counting.alpha, 0)
        printed, corrected = (int(bound.at(e, T=T, L=L)) for e in (bound.printed, bound.corrected))
        least = float(best_known_lower_bound(T, corrected)[0]) if corrected < T else 0.0
        proved = proved_d(build.__name__, T, L)
        out.append([bound.models, bound.claim, T, L, str(threshold), printed, corrected, f"{least:.4g}", proved])
    return out


def formulas() -> list[list[object]]:
    """The same propositions as LaTeX."""
    import sympy

    from bounds import coherent_counting

    return [
        [b.models, b.claim, *(f"${sympy.latex(e)}$" for e in (b.threshold, b.printed, b.corrected))]
        for b in (build() for build in coherent_counting.BOUNDS)
    ]


def proved_d(name: str, T: int, L: int) -> int | None:
    """The smallest d in the kept frontier table, or what is proved without a search."""
    from verify.commands.frontier import kept_table

    model = {"lin": "lin", "dot_inventory": "dot", "softmax_inventory": "dot+sftm"}.get(name)
    if name == "softmax_relation":
        return min(3, T)
    if name == "dot_one_neuron":
        return T - 1 if T % 2 == 0 and 2 * L - 3 < T - 1 else T
    return next((row["d"] for row in kept_table() if (row["model"], row["T"], row["L"]) == (model, T, L)), None)
