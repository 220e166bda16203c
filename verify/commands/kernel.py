"""`verify kernel`: a saved proof as a theorem that Coq's kernel checks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.vocabulary import option
from verify.frame.certificate import Verdict
from verify.frame.schema import as_json
from verify.kernel.general import NAMES
from verify.report.console import say_written

if TYPE_CHECKING:
    from verify.kernel.compiler import CoqOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        help="a folder that `verify histogram`, `parity`, `count01` or `modular` wrote with --save, PROVED and real; "
        "of `parity` and of the model dot also in a format",
    )
    parser.add_argument(
        "--theorem", choices=NAMES, metavar="NAME", help=f"a theorem of no file instead: {', '.join(NAMES)}"
    )
    option(parser, "out", help="write the theorem and its proof there (a .v file)")
    parser.add_argument(
        "--run", action="store_true", dest="compiles", help="compile it with coqc, and read which axioms it rests on"
    )
    option(parser, "json")
    parser.epilog = (
        "Without --out and --run the theorem is printed. "
        "Exit codes: 0 written or PROVED, 2 bad input or no coqc, 3 the kernel does not accept it."
    )


def run(args: argparse.Namespace) -> int:
    from constructions.written_files import check_target, write_whole
    from verify.kernel import pairs, prompts
    from verify.kernel.stored import read_counting, read_folder
    from verify.kernel.theorem import state

    out, compiles, is_json = args.out, args.compiles, args.json
    if (args.folder is None) == (args.theorem is None):
        raise BadInput("DIR: name a saved proof, or a theorem of the library with --theorem, one of the two")
    if args.theorem is not None:
        check_general(args.theorem, out)
        return show_general(args.theorem, is_json)
    if out is not None:
        check_target(out, "out")
    data, said = read_folder(args.folder)
    if said.get("task") == prompts.TASK:
        of_prompts = prompts.read_prompts(args.folder, data, said)
        unsaid, theorem = of_prompts.unsaid, prompts.state_prompts(of_prompts)
    elif said.get("task") == pairs.TASK:
        of_pairs = pairs.read_pairs(args.folder, data, said)
        unsaid, theorem = of_pairs.unsaid, pairs.state_pairs(of_pairs)
    else:
        counting = read_counting(args.folder, data, said)
        unsaid, theorem = counting.unsaid, state(counting)
    if out is not None:
        write_whole(out, theorem.text.encode(), "out")
        if not is_json:  # else the object names the file
            say_written(out)
    about: dict[str, object] = {"theorem": theorem.name, "statement": theorem.statement, "file": out, "verdict": None}
    about["unsaid"] = unsaid
    if not compiles:
        if is_json:
            print(as_json(about))
        else:
            print(theorem.text.rstrip() if out is None else "\n".join([f"theorem  {theorem.name}", *_unsaid(unsaid)]))
        return 0
    return compiled(about, theorem.text, [theorem.library], is_json, unsaid)


def check_general(name: str, out: str | None) -> None:
    """Raises: BadInput for a file to write: a theorem of the library lies in the library already."""
    from verify.kernel.compiler import SOURCES
    from verify.kernel.general import source_of

    if out is not None:
        place = SOURCES / f"{source_of(name)}.v"
        raise BadInput(f"--out {out}: is for a saved proof; {name} and its proof lie in {place}. Leave --out out.")


def show_general(name: str, is_json: bool) -> int:
    """Compiles the library as far as a general theorem needs it, and prints the axioms it rests on."""
    from verify.claims.kernel import CLAIMS
    from verify.kernel.general import GENERAL, assumptions_of, source_of

    source = source_of(name)
    shown = f"verify kernel --theorem {name}"
    about: dict[str, object] = {
        "claim": next((claim.id for claim in CLAIMS if shown in (claim.command, *claim.deep)), None),
        "theorem": name,
        "statement": GENERAL[source][name],
        "file": None,
    }
    return compiled(about, assumptions_of(name), [source], is_json)


def compiled(
    about: dict[str, object], text: str, sources: Iterable[str], is_json: bool, unsaid: tuple[str, ...] = ()
) -> int:
    """Compiles what a theorem needs of the library, then the theorem, and prints what it is."""
    from verify.kernel.compiler import compile_theorem, library

    built, seconds = library(sources, report=lambda line: None if is_json else print(f"{line} ...", file=sys.stderr))
    outcome = compile_theorem(text, built)
    verdict = Verdict.PROVED if outcome.is_proved else Verdict.UNKNOWN
    about |= {"verdict": verdict.value, "axioms": outcome.axioms, "reason": outcome.reason, "seconds": outcome.seconds}
    about["library_seconds"] = seconds
    print(as_json(about) if is_json else _report(about, outcome, unsaid))
    return verdict.exit_code


def _unsaid(fields: tuple[str, ...]) -> list[str]:
    """The line that names the fields of a certificate of which no theorem speaks."""
    return [f"unsaid   {', '.join(fields)}: what the certificate says there is in no theorem"] if fields else []


def _report(about: dict[str, object], outcome: CoqOutcome, unsaid: tuple[str, ...]) -> str:
    lines = [f"theorem  {about['theorem']} : {about['statement']}"]
    if about.get("claim"):
        lines += [f"claim    {about['claim']}"]
    lines += _unsaid(unsaid)
    lines += [f"axiom    {name}" for name in outcome.axioms or ()]
    lines += [f"coqc     {outcome.seconds:.1f} s"]
    if outcome.is_proved:
        lines += ["PROVED in Coq's kernel"]
    else:
        lines += [f"UNKNOWN: Coq's kernel does not accept this proof, which says nothing against it ({outcome.reason})"]
    return "\n".join(lines)
