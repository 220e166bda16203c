"""Writes how often the networks of tests/data/table_a1 are right, beside C's figures, into docs/inductive.md.

    python -m tests.tools.write_table_a1

Runs in float64. On lines every input of C's lengths counts, of every start, with the helper as with the counted token;
of tasks on all strings, STRINGS are drawn of each part's longest length, and every answer at a length of the part
counts whose own count is judged.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from constructions.recurrent import gated, model, residual
from constructions.recurrent.gated import GatedModel
from constructions.recurrent.model import RecurrentModel
from constructions.recurrent.residual import ResidualModel
from constructions.written_files import write_whole
from verify.counting.tasks import STARTED, Task
from verify.tasks.inductive.document_c import lengths, reported
from verify.tasks.inductive.table import RECURRENT, TrainedFile, trained_files

ROOT = Path(__file__).parents[2]
STRINGS = 500
HEAD = "| file | trained lengths, % | longer, % | C | decided |\n|---|---|---|---|---|\n"


Network = RecurrentModel | GatedModel | ResidualModel


def stored(file: TrainedFile) -> Network:
    if file.model in model.KINDS:
        return model.load(file.path, kind=file.model).double()
    if residual.is_residual_file(file.path, file.model):
        return residual.load(file.path, kind=file.model).double()
    return gated.load(file.path, kind=file.model).double()


def share(network: Network, task: Task, part: range) -> float:
    """The percentage of right answers at these lengths."""
    longest = task.longest(part[-1]) or 0
    if task.is_homogeneous:
        strings = [line.tokens for line in task.lines(longest)]
    else:
        g = torch.Generator().manual_seed(0)
        strings = [tuple(x) for x in torch.randint(task.vocabulary, (STRINGS, longest), generator=g).tolist()]
    leading, right, judged = int(task.name in STARTED), 0, 0
    for n in {*map(len, strings)}:
        of_one_length = [string for string in strings if len(string) == n]
        said = network(torch.tensor(of_one_length) * (network.vocabulary > 1)).argmax(-1).tolist()
        for string, answers in zip(of_one_length, said, strict=True):
            for t, (due, answer) in enumerate(zip(task.answers(string), answers, strict=True), 1):
                if due is not None and t - leading in part:
                    judged, right = judged + 1, right + (answer == due)
    return 100 * right / judged


def row(file: TrainedFile) -> str:
    network, task = stored(file), Task.of(file.task)
    found = [f"{share(network, task, part):.1f}" for part in lengths(file.task).values()]
    (cell,) = [x for x in reported() if (x.task, x.model, x.layers) == (file.task, file.model, file.layers)]
    of_c = f"{cell.inside:g}, {cell.outside:g}"
    return f"| {Path(file.path).stem} | {' | '.join(found)} | {of_c} | {file.run().replace('length ', '')} |"


def without_a_file(files: list[TrainedFile]) -> int:
    """How many cells of recurrent networks have none."""
    return sum(x.model in RECURRENT for x in reported()) - len(files)


def main() -> None:
    files = trained_files(str(ROOT / "tests/data/table_a1"))
    rows = [row(file) for file in files if file.task != "modular" or file.model not in model.KINDS]
    page = ROOT / "docs/inductive.md"
    text, times = re.subn(re.escape(HEAD) + r"(\|.*\n)+", lambda _: HEAD + "\n".join(rows) + "\n", page.read_text())
    assert times == 1, "the page has no such table"
    write_whole(page, text.encode())
    print(f"{len(rows)} rows; {without_a_file(files)} cells have no file")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    main()
