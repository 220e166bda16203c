"""Keeps the output of `verify frontier ... --json --save DIR`: python tests/tools/write_frontier.py ROWS DIR.

Writes verify/tasks/histogram/frontier.json, docs/frontier.md and tests/data/frontier.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from verify.report.tables import render
from verify.tasks.histogram.frontier.command import COLUMNS

ROOT = Path(__file__).parents[2]
INTRODUCTION = """# The smallest d that is proved

This is what `verify frontier histogram --T 16,32,64 --L 5,10,15,30 --steps 2000 --save DIR` prints (about an hour on
one core of a busy machine). It searches codes by bisection over d and proves every hit in float64; weights and
certificates of this table are in `tests/data/frontier`, and the tests judge them again, as `verify check` does. The
codes and what was tried are those of one run; scales and readouts were built around them again when the builders
changed. A search follows the last bits of the machine's arithmetic, so that a run elsewhere can find other codes. "no
code found" says nothing about what exists. The lower bounds are those of the construction's shape
([W-6](fewer-dimensions.md)), so where d equals its bound, no other code of that shape is smaller. The margin is a lower
bound on (right logit) - (highest other logit) and depends on the weights' scale.

Three codes are kept in `constructions/codes`, where the commands find them, those of the headline sizes T = 32, L = 10:
lin at d = 29, dot at d = 8, and dot+sftm at d = 6, which took 10000 steps.
"""


def main(rows_file: str, weights: str) -> None:
    rows = json.loads(Path(rows_file).read_text())
    order = {model: i for i, model in enumerate(("lin", "lin+sftm", "dot", "bos", "dot+sftm", "bos+sftm"))}
    rows.sort(key=lambda row: (row["T"], row["L"], order[row["model"]]))
    (ROOT / "verify" / "tasks" / "histogram" / "frontier.json").write_text(json.dumps(rows, indent=1) + "\n")
    table = render(COLUMNS, [[row[column] for column in COLUMNS] for row in rows], "markdown")
    (ROOT / "docs" / "frontier.md").write_text(INTRODUCTION + "\n" + table)
    target = ROOT / "tests" / "data" / "frontier"
    target.mkdir(parents=True, exist_ok=True)
    for row in rows:
        name = f"{row['model']}_T{row['T']}_L{row['L']}_d{row['d']}"
        for suffix in ("safetensors", "json"):
            shutil.copy(Path(weights) / f"{name}.{suffix}", target)


if __name__ == "__main__":
    main(*sys.argv[1:])
