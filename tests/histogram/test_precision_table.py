"""The table of docs/precision.md: nothing that it says is contradicted by judging the same cells again."""

from __future__ import annotations

from pathlib import Path

import pytest
from models.selection import every

from verify.arithmetic.formats import FORMATS
from verify.frame.certificate import Verdict
from verify.tasks.histogram.precision.search import constructions, judge

PAGE = (Path(__file__).parents[2] / "docs" / "precision.md").read_text()
ROWS = {(row.model, row.construction): row for row in constructions(32, 10)}


def table(title):
    """The markdown table under a heading, as (model, construction) -> format -> verdict."""
    lines = PAGE.split(title)[1].split("\n\n")[1].splitlines()
    names = [cell.strip() for cell in lines[0].strip("|").split("|")]
    found = {}
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[cells[0], cells[1]] = dict(zip(names[3:], cells[3:], strict=True))
    return found


IN_THE_FORMAT, IN_FLOAT32 = table("### Sums in the format"), table("### Sums in float32")


def check(kept, construction, names, accumulate):
    for name in names:
        certificate = judge(construction, FORMATS[name], accumulate, 0.0)  # proofs need no budget
        said = kept[construction.model, construction.construction][name]
        assert (certificate.verdict is Verdict.PROVED) == (said == "PROVED"), name
        if certificate.verdict is Verdict.REFUTED:
            assert said == "REFUTED", name


def test_every_construction_is_in_both_tables():
    assert set(IN_THE_FORMAT) == set(IN_FLOAT32) == set(ROWS)
    assert all(list(row) == list(FORMATS) for row in (*IN_THE_FORMAT.values(), *IN_FLOAT32.values()))


@pytest.mark.parametrize("key", every(8, [(key,) for key in ROWS]))
def test_the_formats_of_training(key):
    check(IN_THE_FORMAT, ROWS[key], ("float32", "bfloat16", "float16"), None)


@pytest.mark.deep
@pytest.mark.parametrize("key", ROWS, ids="-".join)
def test_all_cells(key):
    check(IN_THE_FORMAT, ROWS[key], FORMATS, None)
    check(IN_FLOAT32, ROWS[key], FORMATS, FORMATS["float32"])
