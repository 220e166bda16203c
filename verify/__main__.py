"""Starts the command: `python -m verify`, and the script `verify`."""

import _signal  # type: ignore[import-not-found]  # `signal` itself loads for milliseconds: Ctrl-C would be a traceback
import os
import sys

INTERRUPTED_EXIT_CODE = 130
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


def start() -> int:
    """Runs the command of this process; Ctrl-C while Python still loads us ends in one line as well."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # not where it is ignored: in the background
        _signal.signal(_signal.SIGINT, leave)
    from verify.cli import main

    return main()


def leave(number: int, frame: object) -> None:
    """Ends the process at once: modules that are being loaded drop a KeyboardInterrupt, or fail by it in their way."""
    try:
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + b"verify: interrupted while modules were being loaded\n")
    finally:
        os._exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    sys.exit(start())
