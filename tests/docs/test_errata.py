"""The errata cover every suspect, and each entry shows its outcome by an example, which test_examples.py runs."""

import re
from pathlib import Path

import pytest

from verify.claims import CLAIMS

ERRATA = (Path(__file__).parents[2] / "docs" / "errata.md").read_text()
# Suspects first, then what was found on the way; the last entries of a document hold its smaller misprints.
LAST = {"a": 16, "b": 6, "c": 13, "d": 14, "e": 11}
EXPECTED = [f"{document}-{i}" for document, last in LAST.items() for i in range(1, last + 1)]
OUTCOME = r"PROVED|REFUTED|all checks agree|needs d >=|wrong: due|d printed"
KINDS = "wrong|too strong|incomplete|an open question, answered|right|both wrong|the first is incomplete"
NOTHING_TO_RUN = {"b-3", "e-7"}
ENTRIES = dict(re.findall(r"^\(erratum-([\w-]+)\)=\n((?:(?!^\(erratum|^## ).*\n)*)", ERRATA, re.M))


def test_every_suspect_has_its_entry():
    assert list(ENTRIES) == EXPECTED


@pytest.mark.parametrize("name", ENTRIES)
def test_the_entry_says_what_is_printed_found_and_right_and_shows_it(name):
    entry = ENTRIES[name]
    known = {claim.id for claim in CLAIMS}
    (claims,) = re.findall(r"^Claim: (.*)$", entry, re.M)
    assert set(claims.split(", ")) <= known or claims == "none"
    assert re.search(r"\*\*Printed\*\* \(.+?\):", entry)
    assert re.search(rf"\*\*Found:\*\* ({KINDS})", entry)
    assert "**Correct:**" in entry
    blocks = re.findall(r"^```(console|python)\n((?:.|\n)*?)^```$", entry, re.M)
    assert blocks or name in NOTHING_TO_RUN
    for language, body in blocks:
        if language == "python":
            assert "assert " in body
        else:
            shown = re.split(r"^\$ verify .*\n", body, flags=re.M)[1:]
            assert all(re.search(OUTCOME, output) for output in shown)
