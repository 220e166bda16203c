"""The tables of docs/bounds.md are what the commands above them print; run this file to mend them."""

import re
from pathlib import Path

import pytest
import terminal
from models.selection import every

PAGE = Path(__file__).parents[2] / "docs" / "bounds.md"
KEPT = re.compile(r"<!-- \$ (verify .*) -->\n((?:.|\n)*?)<!-- end -->")


def printed(command):
    table, code = terminal.run(command, ".")
    assert code == 0
    return f"```latex\n{table}```\n" if command.endswith("latex") else f"\n{table}\n"


@pytest.mark.parametrize(("command", "shown"), every(3, KEPT.findall(PAGE.read_text())))
def test_the_table_is_what_the_command_prints(command, shown):
    assert shown == printed(command), "PYTHONPATH=docs/_ext python tests/bounds/test_bound_tables.py mends it"


def test_both_formats_are_kept():
    commands = [command for command, _ in KEPT.findall(PAGE.read_text())]
    assert {command.rsplit(maxsplit=1)[1] for command in commands} == {"markdown", "latex"} and len(commands) >= 6


if __name__ == "__main__":
    mended = KEPT.sub(lambda m: f"<!-- $ {m[1]} -->\n{printed(m[1])}<!-- end -->", PAGE.read_text())
    PAGE.write_text(mended)
