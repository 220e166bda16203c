"""`verify claims`: the registry of claims and what is built."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

HELP = "list the claims that are built: statement, source, and the command that proves each"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON array and nothing else")


def run(args: argparse.Namespace) -> int:
    from verify.claims import CLAIMS

    if args.json:
        print(json.dumps([asdict(claim) for claim in CLAIMS]))
        return 0
    from verify.report.tables import render

    rows = [(claim.id, claim.statement, claim.source, claim.command) for claim in CLAIMS]
    print(render(("id", "statement", "source", "proved by"), rows, "rich"), end="")
    return 0
