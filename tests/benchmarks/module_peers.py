"""A section of docs/benchmarks.md: transformers run by torch and decided, on the same inputs in one run.

python -m tests.benchmarks.peers --modules DIR trains models into DIR, or finds them there, and writes the section.
"""

import datetime
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from tests.benchmarks.peers import MODULES as HEAD
from tests.tools.train_task import options, written
from verify.arithmetic.readings import Real
from verify.frame.decide import Effort
from verify.module import ModuleProblem, Task, problem, tokens
from verify.tasks.module.task import problem_parts

AT_ONCE = 4096  # inputs of a batch of torch's
NAMES = ("model", "inputs", "torch float64", "torch float32", "one by one", "by cells", "all inputs", "by cells")


@dataclass(frozen=True)
class Line:
    """What is trained, how (options of tests/tools/train_task.py), and the tokens of the inputs that all are run on."""

    name: str
    what: str
    given: str
    sets: tuple
    by_cells: bool = True


LINES = (
    Line("max4h1", "largest of 4 of 64: one head, attention only",
         "largest --vocabulary 64 --length 4 --heads 1 --hidden 0 --near", (64, 64, 64, [40])),
    Line("max5", "largest of 5 of 32: two heads, ReLU MLP of 64", "largest", (32, 32, 32, 8, [20])),
    Line("two", "largest of 6 of 10: two layers, two heads, ReLU MLPs of 64",
         "largest --vocabulary 10 --length 6 --layers 2 --steps 1000", (10, 10, 10, 10, 10, [4]), False),
)  # fmt: skip


def by_torch(module, dtype, task):
    """Inputs per CPU second of the module in a dtype, and how many it says right."""
    copied, right, seconds = module.to(dtype), 0, 0.0
    with torch.no_grad():
        for batch in task.inputs.parts[0].batches():
            answers = task.expected(batch)
            started = time.process_time()
            said = torch.cat([copied(part).argmax(1) for part in batch.split(AT_ONCE)])
            seconds += time.process_time() - started
            right += int((said == answers).sum())
    return task.inputs.size / seconds, right


def decided(module, task, few):
    """Inputs per CPU second, and how many are right; one by one unless there are more than few."""
    with mock.patch.object(problem, "FEW", few):
        given = ModuleProblem(module, task)
        given.capture()
        started = time.process_time()
        found = given.prove(Real(), Effort(1200))
        seconds = time.process_time() - started
    counts = {name: int(n) for name, n in found.extra["counts"].items()}
    assert counts["undecided"] == 0, counts
    return task.inputs.size / seconds, counts["right"]


def rows(folder):
    """Lines of the table: inputs per second, the counts of torch in float64 compared with those that are proved."""
    for line in LINES:
        place = folder / line.name
        if not (place / "model.pt").exists():
            written(options().parse_args(shlex.split(line.given)), place)
        module, whole = problem_parts(str(place / "task.py"), str(place / "model.pt"))
        task = Task(tokens(line.sets), whole.expected)
        single, _ = by_torch(module, torch.float32, task)
        one_by_one, right = decided(module, task, task.inputs.size)
        cells = whole_cells = None
        if line.by_cells:
            cells, same = decided(module, task, 1)
            whole_cells, _ = decided(module, whole, 1)
            assert same == right, line
        double, by_double = by_torch(module, torch.float64, task)
        assert by_double == right, line
        rates = (double, single, one_by_one, cells, None, whole_cells)
        shown = ["" if rate is None else f"{rate:,.0f}" for rate in rates]
        shown[4] = "" if whole_cells is None else f"{whole.inputs.size:,}"
        yield f"| {line.what} | {task.inputs.size:,} | {' | '.join(shown)} |"


def section(folder):
    """The section of the page."""
    lines = [f"| {' | '.join(NAMES)} |", "|---" * len(NAMES) + "|", *rows(folder)]
    today, load = datetime.datetime.now(datetime.UTC).date(), os.getloadavg()[0]
    return f"""{HEAD}

Written by `python -m tests.benchmarks.peers --modules DIR` on {today}, load average {load:.1f}.
Trained transformers; inputs per CPU second. Torch runs the module in batches of {AT_ONCE}, and its own roundings are
part of the answer; `verify module` proves real arithmetic, one by one or by cells, on the same inputs, then by cells on
all inputs of the domain, radius and tables included. On the same inputs the counts were those of torch in float64.

{chr(10).join(lines)}
"""


def write(page, folder):
    """Writes the section anew where it stands, else at the end of the page."""
    before, _, old = page.read_text(encoding="utf-8").partition(HEAD)
    after = "".join(old.partition("\n## ")[1:])
    page.write_text(f"{before.rstrip()}\n\n{section(Path(folder))}{after}", encoding="utf-8")
