"""Files of every task in fewer bits: numbers against a rounding of their own, verdicts against the task's command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command import as_json, run
from safetensors.torch import load_file, save_file

from constructions import count01, parity, relation_counting
from tests.planted import planted
from verify import certify, quantise
from verify.changes.quantise import NumberGrid
from verify.commands.batch import tasks_of_files

# A command that builds a small model of each task, and what its file does not say.
BUILT = {
    "histogram": (("--model", "dot", "--T", "3", "--L", "2"), ()),
    "parity": (("--T", "3", "--L", "2"), ()),
    "count01": (("--construction", "uniform"), ("--max-digits", "3", "--max-noise", "3")),
    "contextual": (("--length", "4", "--regions", "1"), ()),
    "bidirectional": (("--length", "3", "--regions", "1"), ()),
    "circuit": (("and.bench",), ("and.bench",)),
    "language": (("0*1", "--length", "2"), ("0*1", "--length", "2")),
    "addition": (("--digits", "1", "--base", "3"), ("--digits", "1", "--base", "3")),
    "modular": (("--P", "5"), ("--P", "5")),
    "inductive": (("--task", "vanilla", "--vocabulary", "4", "--bos"), ("--task", "vanilla", "--vocabulary", "4")),
}
BENCH = "INPUT(a)\nINPUT(b)\nOUTPUT(c)\nc = AND(a, b)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "and.bench").write_text(BENCH)
    return tmp_path


def on_grid(w, bits):
    """Whole numbers times one scale in the dtype of the numbers; a number alone stays."""
    if w.ndim == 0 or w.dtype.kind != "f":
        return w
    most = w.dtype.type(2 ** (bits - 1) - 1)
    scale = np.abs(w).max() / most
    scale = scale if scale > 0 else w.dtype.type(1)
    return np.clip(np.rint(w / scale), -most, most) * scale


def what_is_wrong(capsys, task, bits):
    """What of a file in fewer bits another rounding, or the task's command on that, contradicts, if anything."""
    build, options = BUILT[task]
    assert run(capsys, task, *build, "--save", "m.safetensors", "--quiet")[0] == 0
    bits = str(bits)
    code, said = as_json(capsys, "quantise", "m.safetensors", "--task", task, "--bits", bits, *options)
    line = ("quantise", "m.safetensors", "--task", task, "--bits", bits, *options)
    stored, judged = run(capsys, *line, "--save", "q.safetensors"), run(capsys, *line, "--save", "q")
    head = Path("m.safetensors").read_bytes()
    header = json.loads(head[8 : 8 + int.from_bytes(head[:8], "little")])
    due = {name: torch.from_numpy(on_grid(w.numpy(), int(bits))) for name, w in load_file("m.safetensors").items()}
    save_file(due, "due.safetensors", header.get("__metadata__"))
    codes = {code, stored[0], judged[0]}
    for file in ("due", "q", "q/weights"):
        code, alone = as_json(capsys, task, "--weights", f"{file}.safetensors", *options)
        codes.add(code)
        if alone["verdict"] != said["verdict"] or alone["margin"] != said["certificate"]["margin"]:
            return f"verdict of {file}"
    numbers = load_file("q/weights.safetensors")
    same = all(torch.equal(numbers[name], w) for name, w in due.items() if name in numbers)
    return None if len(codes) == 1 and same and "_scale" in str(load_file("q.safetensors").keys()) else "numbers"


def test_every_task_of_files_is_here():
    assert {*BUILT} | {"module"} == {*tasks_of_files()}


@pytest.mark.parametrize("task", BUILT)
def test_files_of_every_task_are_rounded_and_decided(folder, capsys, task):
    assert what_is_wrong(capsys, task, 4 if task in ("parity", "language", "circuit") else 8) is None


def test_a_planted_fault_is_seen(folder, capsys):
    with planted(NumberGrid, "rounded", ".round()", ".floor()"):
        assert what_is_wrong(capsys, "modular", 8)


def test_fewest_bits_of_a_file_and_of_each_tensor(folder, capsys):
    (folder / "m.safetensors").write_bytes(parity.as_bytes(parity.sawtooth(T=3, L=3)))
    code, said = as_json(capsys, "quantise", "m.safetensors", "--task", "parity", "--fewest", "--by-tensor")
    model = quantise(parity.sawtooth(T=3, L=3))
    assert code == 0 and said["bits"] == model.found.grid.bits == 4 and {*said["by_tensor"]} == {*parity.NAMES}
    assert [tried["verdict"] for tried in said["tried"]] == [str(q.certificate.verdict) for q in model.tried]


def test_task_files_are_rounded_as_modules(folder, capsys):
    (folder / "t.py").write_text(
        "import torch\nfrom verify.module import Task, tokens\n"
        "class Sum(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.tensor([[-1.0, 0.4, 1.8]]))\n"
        "    def forward(self, t):\n        return (t.sum(1, keepdim=True) - 0.5) * self.w\n"
        "def model(weights=None):\n    m = Sum().eval()\n"
        "    m.load_state_dict(weights or m.state_dict())\n    return m\n"
        "task = Task(tokens([2, 2]), lambda t: 2 * (t.sum(1) > 0))\n"
    )
    assert run(capsys, "module", "t.py", "--save", "m.safetensors", "--quiet")[0] == 0
    code, said = as_json(capsys, "quantise", "m.safetensors", "--task", "module", "t.py", "--fewest")
    assert code == 0 and said["bits"] == 2


def test_models_of_all_types_are_rounded_from_python():
    found = quantise(count01.uniform(labels="majority-ones"))
    assert found.found.grid.bits == 4 and certify(found.found.module)
    assert quantise(relation_counting.dot(T=3, L=2), L=2, bits=8)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("m.safetensors --task nothing", "must be one of histogram"),
        ("nothing.safetensors --task parity", "no such file"),
        ("m.safetensors --task parity --weights m.safetensors", "goes with a TASK.py"),
        ("m.safetensors --task parity --T 3", "--T"),
        ("m.safetensors --task parity --model dot", "unrecognized arguments"),
        ("m.safetensors --task count01", "Its names are histogram's"),
        ("m.safetensors --task count01 --input 0=", "is not for verify quantise"),
        ("m.safetensors --task parity --tensors W_9", "the model has E"),
        ("nan.safetensors --task parity", "holds NaN or infinity"),
    ],
)
def test_bad_calls_are_one_line(folder, capsys, line, says):
    model = parity.sawtooth(T=3, L=2).requires_grad_(False)
    (folder / "m.safetensors").write_bytes(parity.as_bytes(model))
    model.E[0, 0] = torch.nan
    (folder / "nan.safetensors").write_bytes(parity.as_bytes(model))
    code, out, err = run(capsys, "quantise", *line.split())
    assert code == 2 and out == "" and err.count("\n") == 1 and says in err, err
