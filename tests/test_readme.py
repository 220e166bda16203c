"""What README says is what happens: its output, its Python, its table of claims."""

import re
from pathlib import Path

from verify.claims import CLAIMS
from verify.cli import main

README = Path(__file__).parents[1] / "README.md"
MARKERS = ("<!-- claims: kept by tests/test_readme.py -->\n", "<!-- end of claims -->")


def claims_table():
    rows = ["| id | statement | source |", "|---|---|---|"]
    rows += [f"| {claim.id} | {claim.statement} | {claim.source} |" for claim in CLAIMS]
    return "\n".join(rows) + "\n"


def test_the_shown_output_is_the_real_output(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command, shown = re.search(r"```console\n\$ verify (.*)\n((?:.|\n)*?)```", README.read_text()).groups()
    assert main(command.split()) == 0

    def comparable(text):
        return [line.rstrip() for line in text.splitlines() if not line.startswith("time ")]

    assert comparable(shown) == comparable(capsys.readouterr().out)


def test_the_python_runs():
    for block in re.findall(r"```python\n((?:.|\n)*?)```", README.read_text()):
        exec(block, {})


def test_the_table_of_claims_is_the_registry():
    text = README.read_text()
    assert text.split(MARKERS[0])[1].split(MARKERS[1])[0] == claims_table(), "python tests/test_readme.py mends it"


if __name__ == "__main__":
    before, rest = README.read_text().split(MARKERS[0])
    README.write_text(before + MARKERS[0] + claims_table() + MARKERS[1] + rest.split(MARKERS[1])[1])
