"""Trains, decides, and writes what is decided: python -m tests.tools.write_trained DIR [NAME ...].

DIR keeps the networks of tests/tools/train_counters.py, a JSON file of each decision with as many steps as EFFORT says,
what `verify check` says of it, and a JSON file of what runs of 100 digits say (tests/oracles/recurrent_far.py): every
line to 10^5 tokens, every short string, and drawn ones of 10^5 tokens. Only what is missing there is done. A verdict
that these gainsay is an AssertionError. With names, only those networks are looked at; else docs/recurrent.md is
written.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from constructions.recurrent import gated
from constructions.recurrent.model import KINDS, load
from constructions.written_files import write_whole
from tests.oracles import recurrent_far as far
from tests.tools import train_counters
from tests.tools.train_counters import LINES, Line

PAGE = Path(__file__).parents[2] / "docs" / "recurrent.md"
START, END = "<!-- trained: written by tests/tools/write_trained.py -->\n", "<!-- end of trained -->\n"
EFFORT = 5_000  # steps, so that the verdicts are the same on a loaded machine
FEWER = {"rnn16_selmod": 300}  # it stays open, and its steps take long
CHECKED = {0: "holds", 3: "not checkable"}
Kept = dict[str, Any]


def kept(path: Path, make: Callable[[], Kept]) -> Kept:
    """What the file holds, made and written where it is missing, with the seconds of CPU that it took."""
    if not path.exists():
        before = cpu()
        made = make()
        write_whole(path, json.dumps(made | {"cpu": round(cpu() - before, 1)}, indent=1).encode())
    result: Kept = json.loads(path.read_bytes())
    return result


def cpu() -> float:
    """Seconds of CPU so far, of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def decided(folder: Path, line: Line) -> Kept:
    """What `verify inductive --json` says."""
    sizes = [x for name, value in line.sizes.items() for x in (f"--{name.replace('_', '-')}", str(value))]
    command = ["inductive", "--task", line.task, "--model", line.kind, *sizes, "--weights", f"{line.name}.safetensors"]
    command = [*command, "--effort", str(FEWER.get(line.name, EFFORT)), "--json", "--save", line.name]
    found = json.loads(verify(folder, command).stdout)
    return {name: found.get(name) for name in ("verdict", "margin", "reason", "right_to", "counterexample")}


def checked(folder: Path, line: Line) -> Kept:
    """What `verify check` says of the certificate."""
    return {"checked": CHECKED.get(verify(folder, ["check", line.name]).returncode, "does not hold")}


def verify(folder: Path, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    path = os.pathsep.join([str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")])
    whole = [sys.executable, "-m", "verify", *command]
    return subprocess.run(whole, capture_output=True, check=False, cwd=folder, env=os.environ | {"PYTHONPATH": path})


def network(folder: Path, line: Line) -> far.Network:
    path = folder / f"{line.name}.safetensors"
    return far.Network(load(path) if line.kind in KINDS else gated.load(path, kind=line.kind))


def run(net: far.Network, line: Line) -> Kept:
    """What 100 digits say: how many inputs up to a length, the first wrong length, and that of each drawn string."""
    if line.task == "modular":
        return {"inputs": 1, "to": far.LONGEST, "wrong": far.line_wrong(net, line.asked.m), "drawn": []}
    if line.task == "shifted":
        return far.started(net, line.asked) | {"drawn": []}
    strings = [far.string_wrong(net, line.asked, far.drawn(line.asked, seed)) for seed in range(far.DRAWN)]
    return far.every(net, line.asked) | {"drawn": strings}


def agree(found: Kept, ran: Kept) -> bool:
    """Whether no run gainsays the verdict, and no first wrong length is another."""
    wrong = [n for n in (ran["wrong"], *ran["drawn"]) if n is not None]
    case, least = found["counterexample"], found["right_to"] or 0
    if found["verdict"] == "PROVED":
        return not wrong
    if any(n <= least for n in wrong):
        return False
    if found["verdict"] == "REFUTED" and case.get("is_first"):
        return all(n >= case["length"] for n in wrong) and (
            ran["wrong"] == case["length"] or ran["to"] < case["length"]
        )
    return True


def check(net: far.Network, line: Line, found: Kept, ran: Kept) -> None:
    """Raises AssertionError where runs with many digits say otherwise."""
    assert agree(found, ran), (line.name, found, ran)
    case = found["counterexample"]
    if case is not None:
        tokens = tuple(case["input"])
        assert far.last_gap(net, tokens, line.asked.answers(tokens)[-1]) <= 0, line.name


def said_of_runs(ran: Kept) -> str:
    """A cell of the table."""
    if ran["inputs"] == 1:
        return f"right to {far.LONGEST:,}" if ran["wrong"] is None else f"first wrong at {ran['wrong']}"
    short = f"{ran['inputs']:,} to length {ran['to']} right"
    if ran["wrong"] is not None:
        short = f"all to length {ran['wrong'] - 1} right, not all of {ran['wrong']}"
    right = sum(n is None for n in ran["drawn"])
    return short + (f"; {right} of {len(ran['drawn'])} of {far.LONGEST:,} right" if ran["drawn"] else "")


def row(line: Line, found: Kept, said: str) -> str:
    """A line of the table."""
    sizes = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in line.sizes.items())
    layers = f"{line.layers} layers of {line.hidden}" if line.layers > 1 else str(line.hidden)
    noise = "yes" if line.noise else ""
    cells = (line.kind, layers, f"{line.task}, {sizes}", noise, found["verdict"], verdict(line, found), found["cpu"])
    return f"| {' | '.join(map(str, cells))} | {said} |\n"


def verdict(line: Line, found: Kept) -> str:
    """The lengths that a verdict is of."""
    if found["verdict"] == "REFUTED":
        case = found["counterexample"]
        return f"{'first wrong' if case.get('is_first') else 'wrong'} at length {case['length']}"
    if found["verdict"] == "UNKNOWN":
        return f"right to length {found['right_to']}"
    return "all lines" if line.task == "shifted" else "all lengths"


def written(folder: Path, line: Line) -> str:
    """The line of the table of a network, trained, decided, checked, and run where that is missing."""
    train_counters.main(folder, [line.name])
    place, net = folder / line.name, network(folder, line)
    found = kept(place.with_suffix(".json"), lambda: decided(folder, line))
    ran = kept(place.with_suffix(".digits.json"), lambda: run(net, line))
    check(net, line, found, ran)
    answer = kept(place.with_suffix(".check.json"), lambda: checked(folder, line))
    return row(line, found, f"{said_of_runs(ran)} | {ran['cpu']} | {answer['checked']}")


def main(folder: Path, names: list[str]) -> None:
    """Does what is missing, and writes the page if no names are given."""
    rows = []
    for line in LINES:
        if not names or line.name in names:
            rows.append(written(folder, line))
            print(rows[-1], end="", flush=True)
    if names:
        return
    titles = ("cell", "units", "task", "noise", "verdict", "", "CPU s", "100 digits", "CPU s", "`verify check`")
    head = f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n"
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(START)[0], page.split(END)[1]
    write_whole(PAGE, f"{before}{START}{head}{''.join(rows)}{END}{after}".encode())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
