"""README's table of claims is the registry; its examples are run by test_examples.py."""

from pathlib import Path

from verify.claims import CLAIMS

README = Path(__file__).parents[2] / "README.md"
MARKERS = ("<!-- claims: kept by tests/docs/test_readme.py -->\n", "<!-- end of claims -->")


def claims_table():
    rows = ["| id | statement | kind | source |", "|---|---|---|---|"]
    rows += [f"| {claim.id} | {claim.statement} | {claim.kind} | {claim.source} |" for claim in CLAIMS]
    return "\n".join(rows) + "\n"


def test_the_table_of_claims_is_the_registry():
    text = README.read_text()
    assert text.split(MARKERS[0])[1].split(MARKERS[1])[0] == claims_table(), "python tests/docs/test_readme.py mends it"


if __name__ == "__main__":
    before, rest = README.read_text().split(MARKERS[0])
    README.write_text(before + MARKERS[0] + claims_table() + MARKERS[1] + rest.split(MARKERS[1])[1])
