"""The command as tests start it."""

from __future__ import annotations

import json

from verify.commands.cli import main


def run(capsys, *argv):
    """Exit code, stdout and stderr of one command."""
    try:
        code = main(list(argv))
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys, *argv):
    """Exit code and the one object that --json prints."""
    code, out, err = run(capsys, *argv, "--json")
    assert out.count("\n") == 1 and err == ""
    return code, json.loads(out)
