"""Plain text in claims is typeset as the formula that it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.some import some
from verify.claims import CLAIMS

sys.path.append(str(Path(__file__).parents[2] / "docs" / "_ext"))
formulas = pytest.importorskip("plain_formulas", reason="needs the docs extra")


def test_every_statement_keeps_its_words_and_closes_its_brackets():
    for claim in CLAIMS:
        pieces = formulas.split(claim.statement)
        assert "".join(piece for _, piece in pieces) == claim.statement
        for is_formula, piece in pieces:
            if is_formula:
                typeset = formulas.latex(piece)
                assert typeset.count("{") == typeset.count("}") and typeset.count("(") == typeset.count(")"), claim.id
                assert piece == piece.strip(), claim.id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for d >= T > 2, p >= 1", ["d >= T > 2", "p >= 1"]),
        ("as in W-2, Prop. 4.5 and App. B.2.3", []),
        ("dot+sftm and lin+sftm, 3 of 4", []),
        ("up to ms/2 + 1 for even s", []),
        ("width 1/(2M) - b_1, where a head", ["1/(2M) - b_1"]),
    ],
)
def test_what_is_a_formula(text, expected):
    assert [piece for is_formula, piece in formulas.split(text) if is_formula] == expected


def test_powers_subscripts_and_roots():
    assert formulas.latex("d > T x^2/(T - 1 + x^2)") == r"d > T \;x^{2}/(T - 1 + x^{2})"
    assert formulas.latex("M < 1/sqrt(L-1)") == r"M < 1/\sqrt{L-1}"
    assert formulas.latex("B^-n/2") == "B^{-n}/2"
    assert formulas.latex("T <= 2^ceil(log2(T)) - 1") == r"T \le 2^{\lceil \log_2 (T) \rceil} - 1"
    assert formulas.latex("e^x*") == "e^{x}" + r"\cdot"


def test_whatever_our_pages_and_docstrings_say_can_be_typeset():
    top = Path(__file__).parents[2]
    listed = (("docs", "*.md"), ("bounds", "*.py"), ("constructions", "*.py"))
    paths = [path for place, ends in listed for path in some((top / place).rglob(ends))]
    pages = {path: list(formulas.split(path.read_text(encoding="utf-8"))) for path in paths}
    assert sum(is_formula for pieces in pages.values() for is_formula, _ in pieces) > 100
    for path, pieces in pages.items():
        for is_formula, piece in pieces:
            if is_formula:
                typeset = formulas.latex(piece)
                assert typeset.count("{") == typeset.count("}"), (path, piece)
