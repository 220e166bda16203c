"""An impossibility's argument on a terminal: its steps, witness and checks, and the verdict as the last line."""

from __future__ import annotations

import json

from verify.impossibility import Impossibility
from verify.report.console import folded, screen


def print_argument(found: Impossibility, *, is_json: bool) -> int:
    """Prints the argument, with --json as one object, and returns the exit code."""
    if is_json:
        print(json.dumps(found.to_dict()))
        return found.exit_code
    _print(f"{found.claim}: {found.statement}")
    for i, step in enumerate(found.argument, 1):
        _print(f"{i}. {step}")
    for name, values in (("witness", found.witness), ("checked", found.checks)):
        _print(f"{name}: " + "; ".join(f"{k}: {v}" for k, v in values.items()))
    told = "all checks agree" if found.holds else "a check disagrees"
    _print(f"{found.verdict}: {told} with the argument")
    return found.exit_code


def _print(text: str) -> None:
    print("\n".join(folded(text, screen().width)))
