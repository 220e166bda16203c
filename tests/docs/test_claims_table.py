"""The table of claims in docs is the registry; README's examples are run by test_examples.py."""

from pathlib import Path

from verify.claims import CLAIMS

TABLE = Path(__file__).parents[2] / "docs" / "all-claims.md"
MARKERS = ("<!-- claims: kept by tests/docs/test_claims_table.py -->\n", "<!-- end of claims -->")


def claims_table():
    rows = ["| id | statement | kind | source |", "|---|---|---|---|"]
    for claim in CLAIMS:
        cells = (claim.id, claim.sentence, claim.kind, claim.source)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def test_the_table_of_claims_is_the_registry():
    text = TABLE.read_text()
    assert text.split(MARKERS[0])[1].split(MARKERS[1])[0] == claims_table(), f"python {__file__} mends it"


if __name__ == "__main__":
    before, rest = TABLE.read_text().split(MARKERS[0])
    TABLE.write_text(before + MARKERS[0] + claims_table() + MARKERS[1] + rest.split(MARKERS[1])[1])
