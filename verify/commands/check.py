"""`verify check`: re-checks saved certificates by the small independent checker."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from constructions.errors import BadInput

HELP = "re-check saved weights and certificates with a small independent checker"
EXIT_CODE_HELP = "Exit codes: 0 it holds, 1 it does not, 2 unreadable, 3 beyond this checker."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "place", help="a folder that --save wrote, or a .safetensors file with its certificate beside it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per certificate and nothing else")
    parser.epilog = EXIT_CODE_HELP


def run(args: argparse.Namespace) -> int:
    from verify.checker.fields import check, pairs
    from verify.checker.reading import Refusal

    codes = set()
    try:
        found = pairs(Path(args.place))
    except Refusal as refusal:
        raise BadInput(f"place={args.place!r}: {refusal}. Name a folder that --save wrote.") from None
    for weights, certificate in found:
        code, verdict, trusted, reason = 0, None, [], None
        try:
            verdict, trusted = check(weights, certificate)
        except Refusal as refusal:
            code, reason = refusal.exit_code, str(refusal)
        codes.add(code)
        if args.json:
            answer = {"weights": str(weights), "exit_code": code, "verdict": verdict, "not_rechecked": trusted}
            print(json.dumps(answer | {"reason": reason}))
        else:
            words = {0: f"HOLDS: {verdict}", 1: "DOES NOT HOLD", 2: "UNREADABLE", 3: "NOT CHECKED"}
            detail = f"not re-checked: {', '.join(trusted)}" if reason is None else reason
            print(f"{weights.name}  {words[code]} ({detail})")
    return min(codes - {0}, default=0)
