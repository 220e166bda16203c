"""docs/trust.md's table of tasks by readings is made by running each: what decides it, and what decides it again."""

import contextlib
import io
import tempfile
from pathlib import Path

from verify.commands.cli import main
from verify.frame import registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/trust.md"
MARKERS = ("<!-- tasks: kept by tests/docs/test_trust_table.py -->\n", "<!-- end of tasks -->")
READINGS = {
    "`real`": [["--precision", "real"]],
    "`dtype, any order`": [["--precision", "float32"]],
    "constant bits": [["--precision", "s8"], ["--precision", "s8", "--method", "exhaustive"]],
    "every input, run": [["--method", "exhaustive"]],
}
# The smallest models that each reading decides; {} is a folder with the files below.
ROWS = {
    "histogram": "histogram --model dot --T 3 --L 3",
    "parity": "parity --T 3 --L 2",
    "addition modulo P": "modular --P 3",
    "Count01": "count01 --construction uniform --max-digits 2 --max-noise 2",
    "Count01, heads' separability": "heads {} --law box:0:3:1",
    "inductive, recurrent": "inductive --task modular --model rnn --modulus 3",
    "inductive, transformers": "inductive --task shifted --vocabulary 3",
    "contextual, causal": "contextual --length 5 --regions 1",
    "contextual, with positions": "contextual --pe rope --length 5 --regions 1",
    "contextual, bidirectional": "bidirectional --length 5",
    "addition": "addition --digits 1 --base 3",
    "circuits": "circuit {}/and.bench",
    "regular languages": "language (01)* --length 3",
    "any module": "module {}/task.py",
}
OTHER = {"bounds", "frontier", "precision"}  # commands of tasks that decide no model of their own
FILES = {
    "and.bench": "INPUT(a)\nINPUT(b)\nOUTPUT(c)\nc = AND(a, b)\n",
    "task.py": """import torch
from verify.module import Task, tokens

class Same(torch.nn.Embedding):
    def forward(self, x):
        return super().forward(x)[:, 0]

def model(weights):
    return Same(2, 2, _weight=torch.eye(2)).eval()

task = Task(inputs=tokens([2, 2]), expected=lambda x: x[:, 0])
""",
}


def code_of(*argv):
    """The exit code of a command, whatever it prints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return main([*map(str, argv)])
        except SystemExit as stop:
            return stop.code


def cell(line, options, folder):
    """What a reading has: a prover or a run whose verdict is PROVED, the checker, the kernel."""
    words = [word.format(folder) for word in line.split()]
    if words[0] == "heads":
        if options != READINGS["`real`"][0]:
            return ""
        words, options = ["heads", ROOT / "tests/data/count01/a4_s0.safetensors", *words[2:]], []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if code_of(*words, *options, "--save", f"{place}/saved", "--quiet" if words[0] != "heads" else "--json"):
            return ""
        base = "run" if "exhaustive" in options else "prover"
        is_checked, is_kernel = (code_of(command, f"{place}/saved") == 0 for command in ("check", "kernel"))
        return ", ".join([base] + ["checker"] * is_checked + ["kernel"] * is_kernel)


def table():
    rows = ["| task | " + " | ".join(READINGS) + " |", "|---" * (1 + len(READINGS)) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text)
        for name, line in ROWS.items():
            cells = [next(filter(None, (cell(line, x, folder) for x in listed)), "-") for listed in READINGS.values()]
            rows.append(" | ".join([f"| {name}", *cells]) + " |")
    return "\n".join(rows) + "\n"


def test_every_task_has_a_row():
    named = {line.split()[0] for line in ROWS.values()}
    assert named == {*registry.commands()} - {*registry.HOUSE} - OTHER


def test_the_table_of_tasks_by_readings_is_what_the_commands_do():
    assert PAGE.read_text().split(MARKERS[0])[1].split(MARKERS[1])[0] == table(), f"python {__file__} mends it"


if __name__ == "__main__":
    before, rest = PAGE.read_text().split(MARKERS[0])
    PAGE.write_text(before + MARKERS[0] + table() + MARKERS[1] + rest.split(MARKERS[1])[1])
