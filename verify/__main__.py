"""Starts the command: `python -m verify`, and the script `verify`."""

import _signal  # type: ignore[import-not-found]  # `signal` itself loads for milliseconds: Ctrl-C would be a traceback
import sys

from verify.commands.interruption import leave


def start() -> int:
    """Runs the command of this process; Ctrl-C while Python still loads us ends in one line as well."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # not where it is ignored: in the background
        _signal.signal(_signal.SIGINT, leave)
    from verify.commands.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
