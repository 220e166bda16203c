"""`verify language`: a regular language becomes transformer weights, proved on all strings of one length."""

from __future__ import annotations

import argparse

from verify.commands.parsing import add_map
from verify.report.circuit import add_shared_arguments, finish, judge, reading_asked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("regex", metavar="REGEX", nargs="?", help="such as '0*1(0|10*1)*'")
    parser.add_argument("--length", type=int, required=True, metavar="N", help="length of the strings")
    parser.add_argument("--alphabet", metavar="SYMBOLS", help="symbols of REGEX (default 01)")
    parser.add_argument("--dfa", metavar="FILE", help="JSON automaton instead of REGEX")
    parser.add_argument("--majority", action="store_true", help="more ones than zeros, instead of REGEX")
    add_shared_arguments(parser)
    add_map(parser)


def run(args: argparse.Namespace) -> int:
    from constructions.circuits.circuit import decompose
    from constructions.errors import BadInput
    from constructions.regular_language import from_dfa_file, from_regex, majority, unroll
    from verify.circuit.language import for_strings

    if (args.regex is not None) + (args.dfa is not None) + args.majority != 1:
        raise BadInput("give exactly one of REGEX, --dfa FILE and --majority")
    if args.alphabet is not None and args.regex is None:
        raise BadInput("--alphabet: belongs to REGEX; --dfa and --majority have their own")
    if args.length < 0:
        raise BadInput(f"--length {args.length}: must be at least 0")
    reading = reading_asked(args)
    if args.regex is not None:
        automaton = from_regex(args.regex, "01" if args.alphabet is None else args.alphabet)
    else:
        automaton = majority(args.length) if args.majority else from_dfa_file(args.dfa)
    unrolling = unroll(automaton, args.length)
    bits = None if args.input is None else unrolling.encode(args.input) or [0]
    decomposition = decompose(unrolling.circuit)
    model, certificate = judge(args, decomposition, reading)
    return finish(args, model, decomposition, for_strings(certificate, unrolling), bits, reading)
