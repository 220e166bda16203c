"""Runs the claims' commands as a reader types them, and compares how they end with what their kinds promise."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from verify.frame.claim import Claim, Ending

ROOT = Path(__file__).parents[2]
NOT_RUN = Ending("not run", 0)
VERDICT = re.compile(r"^(PROVED|REFUTED|UNKNOWN|IMPOSSIBLE)\b", re.M)


@dataclass(frozen=True)
class CommandRun:
    """How one command of a claim ended; `said` is its last line, or the reason why it was not run."""

    claim: Claim
    command: str
    ending: Ending
    seconds: float
    said: str
    names_its_claim: bool = True

    @property
    def promised(self) -> Ending:
        return self.claim.promise_of(self.command)

    @property
    def is_as_promised(self) -> bool:
        return self.ending == self.promised and self.names_its_claim

    @property
    def is_run(self) -> bool:
        return self.ending != NOT_RUN

    def to_json(self) -> dict[str, object] | None:
        """What tells how it ended, where that is as promised."""
        return {"seconds": self.seconds, "said": self.said} if self.is_run and self.is_as_promised else None


@dataclass(frozen=True)
class ClaimedCommand:
    """A command of a claim, to be run in a process and an empty folder of its own."""

    claim: Claim
    command: str

    def run(self) -> CommandRun:
        """How it ended; what needs a program that is missing is not run, and says so."""
        reason = self.claim.why_not
        if reason:
            return CommandRun(self.claim, self.command, NOT_RUN, 0.0, reason)
        return run(self.claim, self.command)

    def ended(self, said: object) -> CommandRun:
        """How it ended where it was as promised, of what `CommandRun.to_json` told.

        Raises: TypeError for anything else.
        """
        if not isinstance(said, dict):
            raise TypeError("no ending of a command")
        return CommandRun(self.claim, self.command, self.claim.promise_of(self.command), said["seconds"], said["said"])


def commands(claims: Iterable[Claim], *, deep: bool) -> list[ClaimedCommand]:
    """Each claim's command and those that refute, and with `deep` its others, and those in a dtype."""
    return [
        ClaimedCommand(claim, command)
        for claim in claims
        for command in dict.fromkeys((claim.command, *claim.refutes, *((*claim.deep, *claim.in_dtype) if deep else ())))
    ]


def run(claim: Claim, command: str) -> CommandRun:
    """Runs one command of a claim.

    >>> from verify.claims import CLAIMS
    >>> claim = next(claim for claim in CLAIMS if claim.id == "W-12")
    >>> run(claim, claim.command).ending
    Ending(verdict='PROVED', exit_code=0)
    """
    program, *arguments = shlex.split(command)
    if program != "verify":
        raise ValueError(f"{claim.id}: {command!r} is no command of verify")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "10000", "NO_COLOR": "1"}  # nothing is folded
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in claim.reads:
            (Path(folder) / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "verify.commands.cli", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    ending = Ending(last_verdict(done.stdout), done.returncode)
    lines = (done.stdout + done.stderr).strip().splitlines()
    said = lines[-1] if lines else "nothing was printed"
    seconds = time.perf_counter() - started
    return CommandRun(claim, command, ending, seconds, said, names(claim.shown_in or claim.id, done.stdout))


def names(claim: str, printed: str) -> bool:
    """Whether a claim's id stands in what is printed, as a word of its own.

    >>> names("B-2.1", "claim B-2.1+2.2: both"), names("B-2.1", "claim B-2.1: keys")
    (False, True)
    """
    return re.search(rf"(?<![\w.+-]){re.escape(claim)}(?![\w+-]|\.\w)", printed) is not None


def last_verdict(printed: str) -> str:
    """The last line's leading verdict, or none.

    >>> last_verdict("reading real" + chr(10) + "PROVED on all 9 inputs"), last_verdict("it is not PROVED")
    ('PROVED', 'no verdict')
    """
    found = VERDICT.findall(printed)
    return found[-1] if found else "no verdict"
