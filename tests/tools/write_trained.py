"""Trains, decides, and writes what is decided into docs/recurrent.md: python -m tests.tools.write_trained DIR.

DIR keeps the networks of tests/tools/train_counters.py, and a JSON file of each decision, at the command's default
budget; only what is missing there is done. Verdicts on modular counting are compared with runs of 100 digits to 10^5
tokens, and strings that are said to be wrong are run with 60.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

from constructions.recurrent import gated
from constructions.recurrent.model import KINDS, load
from constructions.written_files import write_whole
from tests.oracles.recurrent_blocks import line as run_line
from tests.oracles.recurrent_strings import gap
from tests.tools import train_counters
from tests.tools.train_counters import LINES, Line

PAGE = Path(__file__).parents[2] / "docs" / "recurrent.md"
START, END = "<!-- trained: written by tests/tools/write_trained.py -->\n", "<!-- end of trained -->\n"
LONGEST = 100_000


def decided(folder: Path, line: Line) -> dict[str, object]:
    """What `verify inductive --json` says, and the seconds of CPU that it took, start-up included."""
    kept, path = folder / f"{line.name}.json", folder / f"{line.name}.safetensors"
    if not kept.exists():
        sizes = [x for name, value in line.sizes.items() for x in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-m", "verify", "inductive", "--task", line.task, "--model", line.kind, *sizes]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*command, "--weights", str(path), "--json"], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found = json.loads(done.stdout)
        names = ("verdict", "margin", "reason", "right_to", "counterexample")
        said = {name: found.get(name) for name in names} | {"cpu": round(seconds, 1)}
        write_whole(kept, json.dumps(said, indent=1).encode())
    result: dict[str, object] = json.loads(kept.read_bytes())
    return result


def check(folder: Path, line: Line, found: dict[str, object]) -> None:
    """Raises AssertionError where runs with many digits say otherwise."""
    path, case = folder / f"{line.name}.safetensors", found["counterexample"]
    network = load(path) if line.kind in KINDS else gated.load(path, kind=line.kind)
    if line.task == "modular" and line.kind in KINDS:
        wrong, _ = run_line(network, line.asked.m, LONGEST)
        if found["verdict"] == "UNKNOWN":
            assert wrong is None or wrong > found["right_to"], line.name  # type: ignore[operator]
        else:
            said = case["length"] if found["verdict"] == "REFUTED" else None  # type: ignore[index]
            assert wrong == said, (line.name, wrong, said)
    elif case is not None:
        tokens = tuple(case["input"])  # type: ignore[index]
        right = line.asked.answers(tokens)[-1]
        assert gap(network, tokens, right) <= 0, line.name


def row(line: Line, found: dict[str, object]) -> str:
    """A line of the table."""
    sizes = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in line.sizes.items())
    layers = f"{line.layers} layers of {line.hidden}" if line.layers > 1 else str(line.hidden)
    said = "all lengths"
    if found["verdict"] == "REFUTED":
        case = found["counterexample"]
        assert isinstance(case, dict)
        said = f"{'first wrong' if case.get('is_first') else 'wrong'} at length {case['length']}"
    elif found["verdict"] == "UNKNOWN":
        said = f"right to length {found['right_to']}"
    elif line.task == "shifted":
        said = "all lines"
    noise = "yes" if line.noise else ""
    return (
        f"| {line.kind} | {layers} | {line.task}, {sizes} | {noise} | {found['verdict']} | {said} | {found['cpu']} |\n"
    )


def main(folder: Path) -> None:
    """Trains and decides what is missing, and writes the page."""
    train_counters.main(folder, [])
    rows = []
    for line in LINES:
        found = decided(folder, line)
        check(folder, line, found)
        rows.append(row(line, found))
        print(rows[-1], end="", flush=True)
    head = "| cell | units | task | noise | verdict | | CPU s |\n|---|---|---|---|---|---|---|\n"
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(START)[0], page.split(END)[1]
    write_whole(PAGE, f"{before}{START}{head}{''.join(rows)}{END}{after}".encode())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
