"""Saved certificates of built, trained and mutated models, checked again: python -m tests.benchmarks.checked [TASK ...]

For each task and reading: the verdict, the CPU seconds of the proof and of `verify check`, and what the check says.
--write puts the table into docs/benchmarks.md; --json FILE keeps the rows, and goes on from those that are there.
"""

import argparse
import collections
import contextlib
import io
import json
import random
import re
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from verify.commands.check import check_files
from verify.commands.cli import main as verify

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/benchmarks.md"
MARKERS = ("<!-- checked: written by tests/benchmarks/checked.py -->\n", "<!-- end of checked -->\n")
READINGS = ("real", "float64", "float32", "tf32", "bfloat16", "float16", "s8")
NUMBER = re.compile(r"\b[0-9][0-9.e-]*")
MOST_TIMES, MOST_SECONDS = 20, 60
FILES = {
    "xor.bench": "INPUT(a)\nINPUT(b)\nOUTPUT(e)\nc = NAND(a, b)\nd = OR(a, b)\ne = AND(c, d)\n",
    "largest.py": """import torch
from verify.module import Task, largest, tokens

class Attention(torch.nn.Module):
    def __init__(self, W):
        super().__init__()
        self.E, self.U = torch.nn.Parameter(W[0]), torch.nn.Parameter(W[1])
    def forward(self, x):
        e = self.E[x]
        shares = (e[:, -1:] @ e.transpose(1, 2)).softmax(-1)
        return (shares @ e)[:, 0] @ self.U

def model(weights):
    n = torch.arange(1.0, 5.0, dtype=torch.float64)
    E, U = torch.stack([3 * n, n**0], 1), torch.stack([n / 3, -(n**2) / 2], 0)
    module = Attention([E, U])
    if weights:
        module.load_state_dict(weights)
    return module.eval()

task = Task(inputs=tokens([4] * 3), expected=largest)
""",
}


class Model(NamedTuple):
    """A model of a task: the words that build it, those that judge a file, and a trained file (else noise)."""

    task: str
    build: str
    judge: str
    trained: str | None = None
    trained_judge: str | None = None
    readings: tuple[str, ...] = READINGS


PROMPTS, SHIFTED, MODULO = "--max-digits 4 --max-noise 3", "--task shifted --vocabulary 4", "--task modular --modulus 3"
RNN, TEN = "tests/data/recurrent", "--task modular --modulus 10"
MODELS = [
    Model("histogram", "histogram --model lin --T 8 --L 5", "histogram", "tests/data/trained_lin_T8_L5_d16_p16"),
    Model(
        "histogram", "histogram --model lin+sftm --T 8 --L 5", "histogram", "tests/data/trained_lin_sftm_T8_L5_d32_p32"
    ),
    Model("histogram", "histogram --model dot --T 8 --L 5", "histogram", "tests/data/frontier/dot_T16_L5_d5"),
    Model("histogram", "histogram --model dot+sftm --T 8 --L 5", "histogram", "tests/data/frontier/dot+sftm_T16_L5_d3"),
    Model("histogram", "histogram --model bos --T 8 --L 5", "histogram", "tests/data/trained_bos_T4_L3_d4_p8"),
    Model("histogram", "histogram --model bos+sftm --T 8 --L 5", "histogram", "tests/data/frontier/bos+sftm_T16_L5_d3"),
    Model("parity", "parity --T 6 --L 4", "parity"),
    Model("modular", "modular --P 13", "modular --P 13", "tests/data/modular/p13"),
    Model("modular", "modular --P 7 --construction clock --K 2", "modular --P 7"),
    Model("addition", "addition --digits 2 --base 4", "addition --digits 2 --base 4"),
    Model("addition", "addition --digits 2 --base 4 --layers 2", "addition --digits 2 --base 4"),
    Model("count01", f"count01 {PROMPTS}", f"count01 {PROMPTS}", "tests/data/count01/a4_s1"),
    Model("count01", f"count01 --construction uniform {PROMPTS}", f"count01 {PROMPTS}", "tests/data/count01/norm_s0"),
    Model("contextual", "contextual --length 6 --regions 2", "contextual --length 6"),
    Model("contextual", "contextual --pe ape --length 5 --regions 1", "contextual --length 5"),
    Model("contextual", "contextual --pe rope --length 5 --regions 1", "contextual --length 5"),
    Model("bidirectional", "bidirectional --length 5 --regions 1", "bidirectional --length 5"),
    Model("circuit", "circuit {}/xor.bench", "circuit {}/xor.bench"),
    Model("language", "language (01)* --length 4", "language (01)* --length 4"),
    Model("module", "module {}/largest.py", "module {}/largest.py"),
    Model("transformers", f"inductive {SHIFTED}", f"inductive {SHIFTED}"),
    Model("transformers", f"inductive --pe rope --bos --length 8 {MODULO}", f"inductive --length 8 {MODULO}"),
    Model("recurrent", f"inductive --model rnn {TEN}", f"inductive --model rnn {TEN}", f"{RNN}/rnn_seed3_stop0.5"),
]


def run(words):
    """Exit code, what is printed, and CPU seconds of a command in this process."""
    out, began = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = verify([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), time.process_time() - began


def changed(file, where, change):
    """Writes the weights after `change(tensors)`, with the same metadata."""
    with safe_open(file, "pt") as opened:
        tensors, metadata = {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata()  # noqa: SIM118
    change(tensors)
    save_file(tensors, where, metadata)


def with_noise(tensors):
    """Every number moved by a normal one of 2^-12 times the largest of its tensor, as training leaves none at 0."""
    drawn = torch.Generator().manual_seed(0)
    for name, x in tensors.items():
        if x.is_floating_point() and x.numel():
            noise = torch.randn(x.shape, generator=drawn, dtype=torch.float64) * x.abs().max().double() * 2.0**-12
            tensors[name] = (x.double() + noise).to(x.dtype)


def moved(share):
    """A change of one drawn number by a share of the largest in its tensor."""

    def change(tensors):
        draw = random.Random(0)
        name = draw.choice(sorted(name for name, x in tensors.items() if x.is_floating_point() and x.numel() > 1))
        x = tensors[name].flatten().clone()
        x[draw.randrange(len(x))] += share * x.abs().max()
        tensors[name] = x.reshape(tensors[name].shape)

    return change


CHANGES = {"near the built one": with_noise, "one weight moved": moved(2.0**-7), "one weight broken": moved(1.5)}


def judged(words, folder):
    """One row: the verdict, what the check says, and both times."""
    code, text, proof = run([*words, "--save", folder, "--quiet"])
    if not (folder / "certificate.json").exists():
        return {
            "verdict": "UNKNOWN" if code == 3 else "none",
            "reason": text.strip().splitlines()[-1][:300] if text.strip() else "",
        }
    said = json.loads((folder / "certificate.json").read_text())
    began = time.process_time()
    answer = check_files(folder / "weights.safetensors")
    return {
        "verdict": said.get("verdict", "SEPARABILITY"),
        "proof": proof,
        "check": time.process_time() - began,
        "outcome": answer["outcome"],
        "reason": answer["reason"] or "",
    }


def rows_of(model, folder, readings):
    """Every reading of the built model, of the trained one or one near it, and of two mutated ones."""
    build, judge = ([w.format(folder) for w in words.split(" ")] for words in (model.build, model.judge))
    built = folder / "built.safetensors"
    code, text, _ = run([*build, "--save", built, "--quiet"])
    if not built.exists():
        raise RuntimeError(f"{model.build}: {text}")
    cases = {"built": build}
    for name, change in CHANGES.items():
        if name.startswith("near") and model.trained:
            continue
        file = folder / f"{name.replace(' ', '_')}.safetensors"
        changed(built, file, change)
        cases[name] = [*judge, "--weights", str(file)]
    if model.trained:
        cases["trained"] = [
            *(model.trained_judge or model.judge).split(),
            "--weights",
            str(ROOT / f"{model.trained}.safetensors"),
        ]
    for reading in readings:
        if reading not in model.readings:
            continue
        for case, words in cases.items():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                row = judged([*words, "--precision", reading], Path(place, "saved"))
            yield {"task": model.task, "model": model.build, "reading": reading, "case": case, **row}


def is_shown(row):
    """Whether the certificate holds within 20 times the proof, or 60 s."""
    return row.get("outcome") == "HOLDS" and row["check"] <= max(MOST_TIMES * row["proof"], MOST_SECONDS)


def line_of(row):
    """One row as it is printed."""
    times = f"{row['proof']:8.3f} {row['check']:8.3f}" if "proof" in row else " " * 17
    words = f"{row['model']:45.45} {row['reading']:9} {row['case']:18} {row['verdict']:8}"
    return f"{words} {times} {row.get('outcome', '-'):14} {row['reason']}"


def table(rows):
    """Of each task and reading: how many certificates hold of those that decide something, and why others do not."""
    lines = ["| task | reading | hold in time | of | most check / proof | slowest check | others |", "|" + "---|" * 7]
    for task, reading in dict.fromkeys((row["task"], row["reading"]) for row in rows):
        decided = [
            row for row in rows
            if (row["task"], row["reading"]) == (task, reading) and row["verdict"] in ("PROVED", "REFUTED")
        ]  # fmt: skip
        if not decided:
            continue
        held = [row for row in decided if is_shown(row)]
        ratio = f"{max(row['check'] / row['proof'] for row in held):.1f}" if held else ""
        slowest = f"{max(row['check'] for row in held):.2f} s" if held else ""
        counted = collections.Counter(
            f"{row['outcome']}: {NUMBER.sub('x', row['reason'])}" for row in decided if not is_shown(row)
        )
        others = "; ".join(f"{n} {why}" for why, n in counted.most_common())
        lines.append(f"| {task} | {reading} | {len(held)} | {len(decided)} | {ratio} | {slowest} | {others} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--readings", default=",".join(READINGS))
    parser.add_argument("--only", default="", help="part of the words that build the model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    found = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    for model in MODELS:
        if args.tasks and model.task not in args.tasks or args.only not in model.build:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in FILES.items():
                (folder / file).write_text(text)
            run([*(w.format(folder) for w in model.build.split()), "--quiet"])  # what is imported and compiled once
            for row in rows_of(model, folder, args.readings.split(",")):
                found = [x for x in found if [x[k] for k in row if k in KEYS] != [row[k] for k in row if k in KEYS]] + [
                    row
                ]
                print(line_of(row), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1))
    if args.write:
        before, rest = PAGE.read_text().split(MARKERS[0])
        PAGE.write_text(before + MARKERS[0] + table(found) + MARKERS[1] + rest.split(MARKERS[1])[1])


KEYS = ("task", "model", "reading", "case")

if __name__ == "__main__":
    main()
