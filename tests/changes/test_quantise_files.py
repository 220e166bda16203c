"""Files of every task in fewer bits: numbers against a rounding of their own, verdicts against the task's command."""

import json

import numpy as np
import pytest
import torch
from command import as_json, run
from safetensors.torch import load_file

from constructions import count01, parity, relation_counting
from constructions.files import read_tensors
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
    """What of a file in fewer bits another rounding, or the task's command on the file, contradicts, if anything."""
    build, options = BUILT[task]
    assert run(capsys, task, *build, "--save", "m.safetensors", "--quiet")[0] == 0
    line = ("quantise", "m.safetensors", "--task", task, "--bits", str(bits), *options)
    code, out, _ = run(capsys, *line, "--save", "q.safetensors", "--json")
    said, (again, alone) = json.loads(out), as_json(capsys, task, "--weights", "q.safetensors", *options)
    if again != code or alone["verdict"] != said["verdict"] or alone["margin"] != said["certificate"]["margin"]:
        return "verdict"
    read, stored = read_tensors("q.safetensors", "")[0], load_file("q.safetensors")
    due = {name: on_grid(w.numpy(), bits) for name, w in load_file("m.safetensors").items()}
    is_same = {*read} == {*due} and all(np.array_equal(read[name].numpy(), w) for name, w in due.items())
    is_small = all(w.ndim == 0 or name not in stored or stored[name].dtype == torch.int8 for name, w in read.items())
    return None if is_same and is_small else "numbers"


def test_every_task_of_files_is_here():
    assert {*BUILT} | {"module"} == {*tasks_of_files()}


@pytest.mark.deep
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
