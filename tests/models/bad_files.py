"""The files that tests/data/mistyped.txt names: some as they should be, most as they should not."""

import json
import os
import pickle
from pathlib import Path

import torch
from models import weight_files
from safetensors import safe_open
from safetensors.torch import save_file

from verify.commands.cli import main

EVEN = {
    "alphabet": "01",
    "start": "a",
    "accept": ["a"],
    "transitions": {"a": {"0": "a", "1": "b"}, "b": {"0": "b", "1": "a"}},
}
RIGHT = """
import torch
from verify.module import Task, tokens

class Largest(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.E = torch.nn.Embedding(3, 3)
        with torch.no_grad():
            self.E.weight.copy_(torch.diag(torch.tensor([1.0, 3.0, 9.0])))

    def forward(self, x):
        return self.E(x).sum(-2)

def model(weights=None):
    return Largest().eval()

task = Task(inputs=tokens([3, 3]), expected=lambda t: t.amax(1), classes=range(3))
"""
CIRCUITS = {
    "xor.bench": "INPUT(x)\nINPUT(y)\nOUTPUT(z)\nz = XOR(x, y)\n",
    "empty.bench": "",
    "cycle.bench": "INPUT(x)\nOUTPUT(z)\nz = AND(x, y)\ny = NOT(z)\n",
    "undefined.bench": "INPUT(x)\nOUTPUT(z)\nz = AND(x, y)\n",
    "latch.aag": "aag 2 1 1 1 0\n2\n4 2\n4\n",
    "noise.blif": ".model m\n.inputs x\n.outputs z\n.names x z\nhello\n.end\n",
}
TASKS = {
    "right.py": RIGHT,
    "syntax.py": "def model(:\n",
    "raises.py": "raise RuntimeError('out of order')\n",
    "no_task.py": RIGHT.replace("task =", "other ="),
    "no_model.py": RIGHT.replace("def model", "def other"),
    "model_raises.py": RIGHT.replace("return Largest().eval()", "raise ValueError('no weights today')"),
    "wrong_task.py": RIGHT.replace("task = Task(", "task = dict("),
    "shape.py": RIGHT.replace("self.E(x).sum(-2)", "self.E(x).sum()"),
}


def prepare(folder: Path) -> None:
    """Makes all of them in the folder, which is the current one."""
    for line in (
        "histogram --model dot --T 4 --L 3 --save dot.safetensors",
        "histogram --model dot --T 4 --L 3 --save saved",
        "parity --T 4 --L 3 --save parity.safetensors",
        "count01 --N 3 --save count.safetensors",
        "modular --P 13 --save modular.safetensors",
    ):
        assert main([*line.split(), "--json"]) == 0
    with safe_open("dot.safetensors", framework="pt") as file:
        state, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    torch.save(state, "dot.pt")
    torch.save(state | {"b_1": state["b_1"] * float("nan")}, "nan.pt")
    torch.save(state | {"b_1": state["b_1"].to(torch.complex64)}, "complex.pt")
    torch.save(torch.nn.Linear(2, 2), "module.pt")
    (folder / "evil.pkl").write_bytes(pickle.dumps(weight_files.Evil(folder / "canary")))
    (folder / "scalar.npy").write_bytes(weight_files.npy_bytes(torch.tensor(3.0).numpy()))
    save_file(state, "lies.safetensors", {key: text.replace('"T": 4', '"T": 5') for key, text in metadata.items()})
    (folder / "cut.safetensors").write_bytes((folder / "dot.safetensors").read_bytes()[:-8])
    (folder / "text.pt").write_text("these are no weights\n")
    (folder / "empty.pt").write_bytes(b"")
    os.mkfifo("pipe")
    (folder / "gone.pt").symlink_to("nothing")
    (folder / "even.json").write_text(json.dumps(EVEN))
    (folder / "torn.json").write_text(json.dumps(EVEN)[:30])
    for name, text in (CIRCUITS | TASKS).items():
        (folder / name).write_text(text)
    for name, change in (("torn", lambda text: text[:40]), ("forged", lambda text: text.replace("64", "65"))):
        (folder / name).mkdir()
        for file in (folder / "saved").iterdir():
            (folder / name / file.name).write_bytes(file.read_bytes())
        certificate = folder / name / "certificate.json"
        certificate.write_text(change(certificate.read_text()))
