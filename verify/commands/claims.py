"""`verify claims`: the registry of claims, what their commands promise, and whether they end so."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import workers
from verify.commands.resumed import KeptResults
from verify.commands.vocabulary import option, table_options
from verify.frame.schema import named
from verify.report.tables import render

if TYPE_CHECKING:
    from verify.claims import Claim, Ending
    from verify.claims.running import CommandRun

COLUMNS = ("id", "statement", "kind", "source", "command", "ends")
RUN_COLUMNS = ("id", "command", "promised", "ended", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="these claims only, in full (default: all, in a table)")
    add(
        "--run",
        dest="is_run",
        action="store_true",
        help="run the commands; exit code 0 iff all that can be run end as promised",
    )
    add("--deep", action="store_true", help="with --run: also the commands for other models and sizes (minutes)")
    workers.add_argument(parser)
    option(parser, "resume")
    table_options(parser)
    parser.set_defaults(format=None)


def run(args: argparse.Namespace) -> int:
    if args.deep and not args.is_run:
        raise BadInput("--deep: goes with --run. Add --run, or drop it.")
    claims, helpers = chosen(args.ids), workers.Workers.of(args)
    if args.is_run:
        return run_claims(claims, helpers, deep=args.deep, form=args.format, folder=args.resume)
    if helpers != workers.Workers():
        raise BadInput("--workers: run the commands; add --run, or drop it")
    if args.resume is not None:
        raise BadInput("--resume: keeps how the commands end; add --run, or drop it")
    if args.format == "json":
        print(json.dumps([named(claim.to_dict()) for claim in claims]))
    elif args.ids and args.format is None:
        print("\n\n".join(in_full(claim) for claim in claims))
    else:
        sys.stdout.write(render(COLUMNS, [row(claim) for claim in claims], args.format or "rich"))
    return 0


def chosen(ids: Sequence[str]) -> tuple[Claim, ...]:
    """The named claims in the order in which they are named, or all.

    Raises: BadInput for an id that no claim has.
    """
    from verify.claims import CLAIMS

    known = {claim.id: claim for claim in CLAIMS}
    for name in ids:
        if name not in known:
            raise BadInput(f"ID {name!r}: no claim has it; choose from {', '.join(known)}")
    return tuple(known[name] for name in ids) or CLAIMS


def row(claim: Claim) -> list[str]:
    return [claim.id, claim.sentence, claim.kind, claim.source, claim.command, ending(claim)]


def ending(claim: Claim) -> str:
    """Says in words what the claim's commands promise."""
    return in_words(claim.promise)


def in_words(ending: Ending) -> str:
    return f"{ending.verdict}, exit code {ending.exit_code}"


def in_full(claim: Claim) -> str:
    """Everything about one claim; its commands stand on lines of their own, to be copied."""
    lines = [f"{claim.id}: {claim.sentence}", f"kind      {claim.kind}", f"source    {claim.source}"]
    lines += [f"{name:9} {place}" for name, place in places(claim) if place != "-"]
    lines += [f"shown in  {claim.shown_in}"] if claim.shown_in else []
    lines += [f"ends      {ending(claim)}", "", *claim.set_up, claim.command]
    if claim.refutes:
        lines += ["", "and refuted, as the statement says:", *claim.refutes]
    if claim.deep:
        lines += ["", "and for other models and sizes:", *claim.deep]
    more = [command for command in claim.in_dtype if command not in (claim.command, *claim.deep)]
    if more:
        lines += ["", "and in a dtype:", *more]
    if claim.exact:
        lines += ["", f"not in a dtype: {claim.exact}"]
    return "\n".join(lines)


def places(claim: Claim) -> tuple[tuple[str, str], ...]:
    return ("builder", claim.builder), ("bound", claim.bound), ("verifier", claim.verifier)


def run_claims(
    claims: Sequence[Claim], helpers: workers.Workers, *, deep: bool, form: str | None, folder: str | None = None
) -> int:
    """Runs the commands, each told as it ends; 0 iff all that are run end as promised, else 1.

    With a folder those that ended as promised are kept there.
    """
    from verify.claims.running import ClaimedCommand, CommandRun, commands

    asked, found = commands(claims, deep=deep), {}
    kept = KeptResults.of(folder, repr, CommandRun.to_json, ClaimedCommand.ended)
    for job, done in workers.results(ClaimedCommand.run, asked, helpers, kept, says_left=False):
        found[job] = done
        if form != "json":  # a table comes at the end, and this takes a minute
            print(told(done, len(found), len(asked)), file=sys.stdout if form is None else sys.stderr, flush=True)
    runs, total = [found[job] for job in asked], len(asked)
    wrong = [done for done in runs if done.is_run and not done.is_as_promised]
    skipped = sum(not done.is_run for done in runs)
    if form is None:
        ended = f"{total - len(wrong) - skipped} of {total} commands end as their claims promise"
        print(ended + (f", {skipped} were not run" if skipped else ""))
    else:
        sys.stdout.write(render(RUN_COLUMNS, [run_row(done) for done in runs], form))
    return 1 if wrong else 0


def told(done: CommandRun, number: int, total: int) -> str:
    """One line on a command, a second one where it ended otherwise."""
    head = f"[{number}/{total}]"
    if not done.is_run:
        return f"{head} not run: {done.claim.id}, {done.said}: {done.command}"
    line = f"{head} {'as promised' if done.is_as_promised else 'NOT AS PROMISED'}: {done.claim.id}, "
    line += f"{done.ending.verdict}, exit code {done.ending.exit_code}, {done.seconds:.1f} s: {done.command}"
    if done.is_as_promised:
        return line
    if done.ending == done.promised:
        return f"{line}\n{' ' * len(head)} it does not say {done.claim.shown_in or done.claim.id}"
    return f"{line}\n{' ' * len(head)} promised is {in_words(done.promised)}; it said: {done.said}"


def run_row(done: CommandRun) -> list[object]:
    ended = in_words(done.ending) if done.is_run else f"not run: {done.said}"
    if not done.names_its_claim:
        ended += f", without saying {done.claim.shown_in or done.claim.id}"
    return [done.claim.id, done.command, in_words(done.promised), ended, round(done.seconds, 1)]
