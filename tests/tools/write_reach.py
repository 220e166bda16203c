"""Trains, decides, and writes what is reached into docs/module.md: python -m tests.tools.write_reach DIR [NAME ...].

DIR keeps the trained models, and a JSON file of each decision; only what is missing there is done. With names, only
those lines are trained and decided, and the page is written of all that are there.
"""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path

from constructions.written_files import write_whole
from tests.tools.train_task import options, written

PAGE = Path(__file__).parents[2] / "docs" / "module.md"
START, END = "<!-- reach: written by tests/tools/write_reach.py -->\n", "<!-- end of reach -->\n"
# name, what it is, options of tests/tools/train_task.py, seconds
LINES = [
    ("max5", "largest of 5 of 32 tokens: two heads, ReLU MLP of 64", "largest", 600),
    ("max5ln", "the same with three LayerNorms", "largest --norm", 600),
    ("max4h1", "largest of 4 of 64: one head, attention only",
     "largest --vocabulary 64 --length 4 --heads 1 --hidden 0 --near", 600),
    ("max4h4", "largest of 4 of 64: four heads, attention only",
     "largest --vocabulary 64 --length 4 --heads 4 --hidden 0 --near", 600),
    ("max8h1", "largest of 8 of 64: one head, attention only",
     "largest --vocabulary 64 --length 8 --heads 1 --hidden 0 --near --steps 6000 --rate 1e-2 --decay 0", 600),
    ("max8h4", "largest of 8 of 64: four heads, attention only",
     "largest --vocabulary 64 --length 8 --heads 4 --hidden 0 --near --steps 6000", 600),
    ("max10", "largest of 10 of 64: two heads, ReLU MLP of 64",
     "largest --vocabulary 64 --length 10 --near --steps 12000 --decay 0.1", 3600),
    ("count", "count of the last token, 8 of 16: two heads, ReLU MLP, three LayerNorms",
     "count --vocabulary 16 --length 8 --norm --steps 8000", 600),
    ("sum", "sum of 8 digits to base 7, modulo 7: two heads, ReLU MLP of 128",
     "sum --vocabulary 7 --length 8 --classes 7 --hidden 128 --steps 4000 --rate 1e-3", 600),
    ("dyck", "balanced brackets, 20 of them: two layers, three LayerNorms",
     "dyck --vocabulary 2 --length 20 --layers 2 --norm --steps 3000 --rate 1e-3", 600),
    ("s5", "composition of two permutations of five letters: d = 128, four heads, MLP of 256",
     "compose --vocabulary 120 --length 2 --width 128 --heads 4 --hidden 256 --steps 4000 --rate 1e-3", 600),
]  # fmt: skip


def decided(folder: Path, budget: int) -> dict[str, object]:
    """What `verify module --json` says, and the seconds of CPU that it took, start-up included."""
    kept = folder / "decided.json"
    if not kept.exists():
        command = [sys.executable, "-m", "verify", "module", str(folder / "task.py"), "--weights"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, str(folder / "model.pt"), "--json", "--budget", str(budget)], capture_output=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads(done.stdout)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        said = {"counts": found["counts"], "decided_by": found["decided_by"], "cpu": round(seconds, 1)}
        write_whole(kept, json.dumps(said | {"verdict": found["verdict"]}, indent=1).encode())
    result: dict[str, object] = json.loads(kept.read_bytes())
    return result


def row(what: str, given: str, found: dict[str, object]) -> str:
    """A line of the table."""
    counts: dict[str, str] = found["counts"]  # type: ignore[assignment]
    total = sum(map(int, counts.values()))
    shown = [f"{int(n):,}" for n in (total, counts["right"], counts["wrong"], counts["undecided"])]
    return f"| {what} | `{given}` | {' | '.join(shown)} | {found['verdict']} | {found['cpu']} |\n"


def main(folder: Path, chosen: list[str]) -> None:
    """Trains and decides what is missing, and writes the page."""
    rows = []
    for name, what, given, budget in LINES:
        place = folder / name
        if not chosen or name in chosen:
            if not (place / "model.pt").exists():
                written(options().parse_args(shlex.split(given)), place)
            print(name, decided(place, budget), flush=True)
        if (place / "decided.json").exists():
            rows.append(row(what, given, decided(place, budget)))
    names = "model", "options of train_task.py", "inputs", "right", "wrong", "undecided", "verdict", "CPU s"
    head = f"| {' | '.join(names)} |\n" + "|---" * len(names) + "|\n"
    page = PAGE.read_text()
    before, after = page[: page.index(START) + len(START)], page[page.index(END) :]
    write_whole(PAGE, (before + head + "".join(rows) + after).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
