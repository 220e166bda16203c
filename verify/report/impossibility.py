"""An impossibility's argument on a terminal: its steps, witness and checks, and the verdict as the last line."""

from __future__ import annotations

from verify.frame.impossibility import Impossibility
from verify.frame.schema import as_json
from verify.report.console import say


def print_argument(found: Impossibility, *, is_json: bool) -> int:
    """Prints the argument, with --json as one object, and returns the exit code."""
    if is_json:
        print(as_json(found.to_dict()))
        return found.exit_code
    say(f"{found.claim}: {found.statement}")
    for i, step in enumerate(found.argument, 1):
        say(f"{i}. {step}")
    for name, values in (("witness", found.witness), ("checked", found.checks)):
        say(f"{name}: " + "; ".join(f"{k}: {v}" for k, v in values.items()))
    told = "all checks agree" if found.holds else "a check disagrees"
    say(f"{found.verdict}: {told} with the argument")
    return found.exit_code
