"""`verify language`: a regular language becomes transformer weights, proved on all strings of one length."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.request import Request, print_unknown
from verify.commands.vocabulary import option
from verify.tasks.circuit import chains
from verify.tasks.circuit.chains import RENAMED as RENAMED

if TYPE_CHECKING:
    from constructions.circuits.between import Between
    from constructions.regular_language import Unrolling

BUILT = 0.45  # of a budget, for building: weights, statistics and letting go of all of it take about as long again
AFTER = 0.75  # of what building took: for what is said of a circuit, and for letting go of it, after the search


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("regex", metavar="REGEX", nargs="?", help="such as '0*1(0|10*1)*'")
    option(parser, "length", required=True, help="length of the strings")
    add("--alphabet", metavar="SYMBOLS", help="symbols of REGEX (default 01)")
    add("--dfa", metavar="FILE", help="JSON automaton instead of REGEX")
    add("--majority", action="store_true", help="more ones than zeros, instead of REGEX")
    chains.add_arguments(parser)


@dataclass(frozen=True)
class LanguageStrings:
    """The strings of one length, and the language that is asked for: by an expression, a file, or by name."""

    length: int
    regex: str | None
    alphabet: str
    dfa: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> LanguageStrings:
        """Raises: BadInput for no or several languages, and for a length below zero."""
        if (args.regex is not None) + (args.dfa is not None) + args.majority != 1:
            raise BadInput("give exactly one of REGEX, --dfa FILE and --majority")
        if args.alphabet is not None and args.regex is None:
            raise BadInput("--alphabet: belongs to REGEX; --dfa and --majority have their own")
        if args.length < 0:
            raise BadInput(f"--length {args.length}: must be at least 0")
        return cls(args.length, args.regex, "01" if args.alphabet is None else args.alphabet, args.dfa)

    def unrolled(self, between: Between) -> Unrolling:
        """The circuit that reads them; `between` is called between pieces of the work, and may end it."""
        from constructions.regular_language import from_dfa_file, from_regex, majority, unroll

        if self.regex is not None:
            return unroll(from_regex(self.regex, self.alphabet), self.length, between)
        automaton = majority(self.length) if self.dfa is None else from_dfa_file(self.dfa)
        return unroll(automaton, self.length, between)


def run(args: argparse.Namespace) -> int:
    from constructions.circuits.circuit import decompose
    from constructions.uncollected import uncollected
    from verify.frame.clock import Budget, TimeIsUp
    from verify.tasks.circuit.language.task import for_strings

    asked = Request.of(args).begun()
    limit = Budget.of(asked.budget)
    wish, strings, until = chains.ChainWish.of(args, asked), LanguageStrings.of(args), limit.building().part(BUILT)
    try:
        with uncollected():
            unrolling = strings.unrolled(until.check)
            bits = None if args.input is None else unrolling.encode(args.input) or [0]
            decomposition = decompose(unrolling.circuit, until.check)
    except TimeIsUp:
        return print_unknown(f"the {limit} ended while the circuit of all strings was built; raise it", asked.is_json)
    asked = replace(asked, budget=limit.saving(AFTER))
    model, certificate = chains.judge(wish, asked, decomposition)
    return chains.publish(wish, asked, decomposition, (model, for_strings(certificate, unrolling)), bits, unrolling)
