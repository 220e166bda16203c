"""`verify language`: a regular language becomes transformer weights, proved on all strings of one length."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import circuits
from verify.commands.request import Request

if TYPE_CHECKING:
    from constructions.regular_language import Automaton


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("regex", metavar="REGEX", nargs="?", help="such as '0*1(0|10*1)*'")
    add("--length", type=int, required=True, metavar="N", help="length of the strings")
    add("--alphabet", metavar="SYMBOLS", help="symbols of REGEX (default 01)")
    add("--dfa", metavar="FILE", help="JSON automaton instead of REGEX")
    add("--majority", action="store_true", help="more ones than zeros, instead of REGEX")
    circuits.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from constructions.circuits.circuit import decompose
    from constructions.regular_language import unroll
    from verify.circuit.language import for_strings

    asked = Request.of(args)
    wish = circuits.Wish.of(args, asked)
    unrolling = unroll(automaton_of(args), args.length)
    bits = None if args.input is None else unrolling.encode(args.input) or [0]
    decomposition = decompose(unrolling.circuit)
    model, certificate = circuits.judge(wish, asked, decomposition)
    return circuits.publish(wish, asked, decomposition, (model, for_strings(certificate, unrolling)), bits)


def automaton_of(args: argparse.Namespace) -> Automaton:
    """The language that is asked for: by an expression, a file, or by name.

    Raises: BadInput for none or several of them.
    """
    from constructions.regular_language import from_dfa_file, from_regex, majority

    if (args.regex is not None) + (args.dfa is not None) + args.majority != 1:
        raise BadInput("give exactly one of REGEX, --dfa FILE and --majority")
    if args.alphabet is not None and args.regex is None:
        raise BadInput("--alphabet: belongs to REGEX; --dfa and --majority have their own")
    if args.length < 0:
        raise BadInput(f"--length {args.length}: must be at least 0")
    if args.regex is not None:
        return from_regex(args.regex, "01" if args.alphabet is None else args.alphabet)
    return majority(args.length) if args.majority else from_dfa_file(args.dfa)
