"""The kept frontier table: every row's weights are PROVED again, and the page shows the same rows."""

import json
from pathlib import Path

import pytest
from models.selection import every

from constructions.checkpoint import load
from verify.report.tables import render
from verify.tasks.histogram.frontier.command import COLUMNS
from verify.tasks.histogram.frontier_table import kept_table
from verify.tasks.histogram.proof import certify

ROOT = Path(__file__).parents[2]
ROWS = kept_table()


def test_the_table_is_there():
    assert {row["T"] for row in ROWS} == {16, 32, 64} and {row["L"] for row in ROWS} == {5, 10, 15, 30}


@pytest.mark.parametrize("row", every(6, ROWS), ids=lambda row: f"{row['model']}-{row['T']}-{row['L']}")
def test_every_row_is_proved_again(row):
    path = ROOT / "tests" / "data" / "frontier" / f"{row['model']}_T{row['T']}_L{row['L']}_d{row['d']}.safetensors"
    module = load(path)
    assert (module.T, module.L, module.d, module.p) == (row["T"], row["L"], row["d"], row["p"])
    certificate, kept = certify(module), json.loads(path.with_suffix(".json").read_text())
    assert certificate.verdict.value == kept["verdict"] == "PROVED"
    assert row["lower bound on d"] <= row["d"]
    assert certificate.margin == pytest.approx(row["margin"], rel=1e-3)


def test_the_page_shows_the_table():
    table = render(COLUMNS, [[row[column] for column in COLUMNS] for row in ROWS], "markdown")
    assert table in (ROOT / "docs" / "frontier.md").read_text()
