"""Calls that a user gets wrong, of every command: one line that names what is wrong, exit code 2, soon."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest
from command import run
from models import bad_files
from models.selection import every

from verify.frame import registry

CALLS = Path(__file__).parents[1] / "data" / "mistyped.txt"
COMMANDS = registry.commands()
MOST_SECONDS, MOST_KIB = 10, 1 << 20
LONGEST = 2500  # characters; the list of all claims is the longest that a message holds


class Call(NamedTuple):
    argv: list[str]
    code: int
    named: list[str]  # what the message says

    @classmethod
    def of(cls, line):
        typed, _, more = line.partition(" # ")
        code, typed = re.fullmatch(r"(?:(\d+) )?(.*)", typed).groups()
        named = re.findall(r"\{([^}]*)\}", typed) + more.split()
        return cls(shlex.split(re.sub("[{}]", "", typed)), int(code or 2), named)

    @property
    def command(self):
        first = self.argv[0] if self.argv else ""
        return first if first in COMMANDS else ""

    def faults(self, code, out, err):
        """What is wrong with an answer."""
        begins = ("verify " + self.command).strip()
        rules = {
            f"exit code {code}": code != self.code,
            "stdout": bool(out),
            "not one line": err.count("\n") != 1 or len(err) > LONGEST,
            "does not name the command": not re.match(rf"{begins}( \w+)?: |impossible \(", err),
            "a traceback, or a bug of ours": "Traceback" in err or "bug of ours" in err,
            **{f"does not name {word}": word not in err for word in self.named},
        }
        found = [rule for rule, is_broken in rules.items() if is_broken]
        return [f"verify {shlex.join(self.argv)}: {', '.join(found)}: {err}{out[-200:]}"] if found else []


EVERY = [Call.of(line) for line in CALLS.read_text().splitlines() if line and not re.match("# [a-zA-Z]", line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        bad_files.prepare(place)
    return place


def test_every_command_and_every_old_spelling_has_calls():
    assert {call.command for call in EVERY} == {"", *COMMANDS} and len(EVERY) > 300
    old = {(name, word) for name, command in COMMANDS.items() for word in getattr(command.module(), "RENAMED", {})}
    typed = {(call.command, word.partition("=")[0]) for call in EVERY for word in call.argv}
    assert old and not old - typed


@pytest.mark.parametrize("command", every(2, ["", *COMMANDS]))
def test_a_bad_call_is_one_line_that_names_what_is_wrong(command, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    faults = [fault for call in EVERY if call.command == command for fault in call.faults(*run(capsys, *call.argv))]
    assert not faults, "\n".join(faults)
    assert sorted(os.listdir(folder)) == before  # nothing is written, and no pickle makes its folder


@pytest.mark.deep
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_bad_call_ends_soon_and_takes_little_memory(command, folder, monkeypatch):
    """Each in a process of its own: its CPU time, and the most memory that it held."""
    monkeypatch.chdir(folder)
    for call in (call for call in EVERY if call.command == command):
        out, err, code, used = alone(call, folder)
        assert not call.faults(code, out, err), call
        assert used.ru_utime + used.ru_stime < MOST_SECONDS and used.ru_maxrss < MOST_KIB, call


def alone(call, folder):
    """What a call prints, its exit code, and what it used, from the system."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = subprocess.Popen([sys.executable, "-m", "verify", *call.argv], cwd=folder, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said = [file.seek(0) or file.read() for file in (out, err)]
    return *said, process.returncode, used
