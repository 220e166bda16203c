"""Runs a shown command as a terminal of 80 columns would, for the book of claims and for the tests of the pages."""

import os
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from math import inf
from pathlib import Path
from unittest.mock import patch

from verify.commands.cli import main

ROOT = Path(__file__).parents[2]
COLUMNS = "80"
# By the interpreter that builds the site, whichever environment is activated, if any.
INTERPRETED = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest"]}


class UnexpectedEnd(RuntimeError):
    """A command of the site ended otherwise than its page says; Sphinx ends with an error."""


def run(command: str, folder: str | Path) -> tuple[str, int]:
    """What the command prints, on both streams, and its exit code; `verify` runs in this process."""
    argv = shlex.split(command, comments=True)
    in_no_time = patch("verify.commands.workers.LONG", inf)  # a slow machine says what is left, which no page shows
    environment = {"COLUMNS": COLUMNS, "TERM": "dumb", "NO_COLOR": "1"}
    if argv[0] != "verify":
        is_shell = argv[0] not in INTERPRETED
        typed = command if is_shell else [*INTERPRETED[argv[0]], *argv[1:]]
        where = ROOT if "pytest" in argv else folder
        done = subprocess.run(
            typed, shell=is_shell, cwd=where, capture_output=True, text=True, env=os.environ | environment
        )
        return done.stdout + done.stderr, done.returncode
    shown = StringIO()
    with chdir(folder), patch.dict(os.environ, environment), redirect_stdout(shown), redirect_stderr(shown), in_no_time:
        try:
            code = main(argv[1:])
        except SystemExit as stop:  # argparse, after --help or bad usage
            code = stop.code if isinstance(stop.code, int) else 1
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines()) + "\n", code


def require(command: str, folder: str | Path) -> str:
    """What a command prints that has to succeed.

    Raises: UnexpectedEnd for any exit code but 0.
    """
    output, code = run(command, folder)
    if code != 0:
        raise UnexpectedEnd(f"{command!r} ended with exit code {code}:\n{output}")
    return output
