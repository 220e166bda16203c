"""Trains recurrent networks of 8 to 64 units on document C's tasks.

    python -m tests.tools.train_counters DIR [NAME ...]
    python -m tests.tools.train_counters --table tests/data/table_a1

Each line of LINES is one network with a fixed seed; those of TABLE_A1 and WHOLE (whole blocks) are of cells of C's
Table A1. Modular and shifted counting learn from the lines of the task, selective counting from random strings; `noise`
disturbs the state at every step while training. Training stops as soon as the loss is below `stop`; a large one leaves
networks that are right on the trained lengths and wrong later.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from constructions.recurrent import gated, model, residual
from constructions.recurrent.gated import Cell, DiagonalCell, GatedModel, MambaCell, RwkvCell
from constructions.recurrent.model import RecurrentModel
from constructions.recurrent.residual import ResidualModel
from constructions.written_files import write_whole
from verify.counting.tasks import Task
from verify.tasks.inductive.trained import Course

RATE, STRINGS, BEYOND = 1e-2, 128, -100
Network = RecurrentModel | GatedModel | ResidualModel


@dataclass(frozen=True)
class Line:
    """One network: its cell, its sizes, its task, and when its training stops."""

    name: str
    kind: str
    hidden: int
    task: str
    sizes: dict[str, int] = field(default_factory=dict)
    layers: int = 1
    length: int = 50
    stop: float = 0.02
    noise: float = 0.0
    steps: int = 1000
    seed: int = 0
    is_whole: bool = False  # whole blocks of S4, Mamba and RWKV, and not their recurrence alone

    @property
    def asked(self) -> Task:
        return Task.of(self.task, **self.sizes)


LINES = (
    Line("rnn8_mod10", "rnn", 8, "modular", {"modulus": 10}, stop=0.3),
    Line("rnn16_mod7_2", "rnn", 16, "modular", {"modulus": 7}, layers=2),
    Line("rnn32_mod10", "rnn", 32, "modular", {"modulus": 10}),
    Line("rnn64_mod4", "rnn", 64, "modular", {"modulus": 4}),
    Line("gru8_mod5_2", "gru", 8, "modular", {"modulus": 5}, layers=2, stop=0.3),
    Line("gru16_mod10", "gru", 16, "modular", {"modulus": 10}, stop=0.3),
    Line("gru64_mod10", "gru", 64, "modular", {"modulus": 10}),
    Line("lstm8_mod10", "lstm", 8, "modular", {"modulus": 10}, stop=0.3),
    Line("lstm16_mod6_2", "lstm", 16, "modular", {"modulus": 6}, layers=2, stop=0.3),
    Line("lstm32_mod10", "lstm", 32, "modular", {"modulus": 10}),
    Line("lstm64_mod10", "lstm", 64, "modular", {"modulus": 10}),
    Line("lstm64_mod10_2", "lstm", 64, "modular", {"modulus": 10}, layers=2),
    Line("lstm16_shifted", "lstm", 16, "shifted", {"vocabulary": 20}, length=19, steps=2000),
    Line("rnn16_sel", "rnn", 16, "selective", {"types": 2, "max_count": 2}, length=16, noise=0.1, stop=0.01),
    Line("gru8_sel", "gru", 8, "selective", {"types": 2, "max_count": 2}, length=16, noise=0.1, stop=0.01),
    Line("lstm8_sel", "lstm", 8, "selective", {"types": 2, "max_count": 2}, length=16, noise=0.1, stop=0.01),
    Line("rnn16_selmod", "rnn", 16, "selective-modular", {"types": 2, "modulus": 2}, length=16, noise=0.1, stop=0.01),
    Line("mamba16_mod10", "mamba", 16, "modular", {"modulus": 10}, length=20, stop=0.3),
    Line("mamba8_sel", "mamba", 8, "selective", {"types": 2, "max_count": 3}, length=16, stop=0.02),
    Line("rwkv8_sel", "rwkv", 8, "selective", {"types": 3, "max_count": 2}, length=16, stop=0.02),
)  # fmt: skip

TABLE_A1 = (
    *(Line(f"modular-{kind}-{layers}", kind, 8, "modular", layers=layers, stop=0.1, steps=3000)
      for kind in ("rnn", "lstm") for layers in (1, 2, 4)),
    *(Line(f"{task}-{kind}-1", kind, 16, task, length=64 if task == "selective-modular" else 50, stop=stop, steps=steps)
      for task, kind, stop, steps in (
          ("modular", "s4", 0.1, 1000), ("modular", "mamba", 0.1, 1000), ("modular", "rwkv", 0.1, 1000),
          ("helper", "rnn", 0.1, 3000), ("helper", "lstm", 0.1, 3000), ("helper-shifted", "lstm", 0.1, 300),
          ("shifted", "rnn", 0.1, 300), ("shifted", "lstm", 0.1, 1500), ("shifted", "rwkv", 0.1, 300),
          ("selective", "lstm", 0.02, 200), ("selective", "mamba", 0.02, 200), ("selective", "rwkv", 0.02, 800),
          ("selective-modular", "lstm", 0.02, 1500), ("selective-modular", "rwkv", 0.02, 200),
          ("selective", "rnn", 0.02, 200), ("selective", "s4", 0.02, 200), ("selective-modular", "rnn", 0.02, 200),
          ("selective-modular", "s4", 0.02, 200), ("selective-modular", "mamba", 0.02, 200),
      )),
    *(Line(f"{task}-{kind}-{layers}", kind, 16, task, layers=layers, length=64 if task == "selective-modular" else 50,
           steps=300)
      for task in ("selective", "selective-modular") for kind in ("rnn", "lstm") for layers in (2, 4)),
    *(Line(f"{task}-{kind}-{layers}", kind, 16, task, layers=layers, stop=0.1, steps=300)
      for task in ("helper", "helper-shifted", "shifted") for kind in ("rnn", "lstm") for layers in (2, 4)),
    Line("helper-shifted-rnn-1", "rnn", 16, "helper-shifted", stop=0.1, steps=300),
)  # fmt: skip
WHOLE = tuple(
    Line(f"{task}-{kind}-{layers}", kind, 16, task, layers=layers, length=64 if task == "selective-modular" else 50,
         steps=steps // (layers + 1), is_whole=True)
    for task, steps in (("helper", 240), ("helper-shifted", 60), ("shifted", 120), ("modular", 480),
                        ("selective", 240), ("selective-modular", 240))
    for kind in ("s4", "mamba", "rwkv") for layers in (1, 2, 4)
    if f"{task}-{kind}-{layers}" not in {line.name for line in TABLE_A1}
)  # fmt: skip
BLOCKS = {
    "s4": {"states": 4}, "mamba": {"inner": 16, "states": 2, "rank": 1, "window": 4},
    "rwkv": {"heads": 2, "mixed": 2, "decayed": 2, "neurons": 16},
}  # fmt: skip


def fresh(line: Line) -> Network:
    """The network before training."""
    torch.manual_seed(line.seed)
    task, H = line.asked, line.hidden
    if line.is_whole:
        return blocks(line)
    if line.kind in model.KINDS:
        return RecurrentModel(line.kind, hidden=H, classes=task.classes, inputs=task.vocabulary, layers=line.layers)
    K = task.vocabulary
    cell: Cell
    if line.kind == "mamba":
        cell = MambaCell(torch.randn(H) / 4, torch.randn(K, H), torch.randn(K, H), torch.randn(K, H))
    elif line.kind == "s4":
        cell = DiagonalCell(1 - torch.rand(H) / 4, torch.randn(K, H), torch.randn(H))
    else:
        cell = RwkvCell(*(torch.randn(K, H) - shift for shift in (1, 0, 0, 0)))
    readout = torch.nn.Linear(H, task.classes)
    return GatedModel(cell, readout.weight.data, readout.bias.data)


def blocks(line: Line) -> ResidualModel:
    """A stack of whole blocks, each number drawn as the layouts' own code does, or nearly so."""
    sizes = BLOCKS[line.kind]
    network = ResidualModel(
        line.kind, d=line.hidden, layers=line.layers, types=line.asked.vocabulary, classes=line.asked.classes, **sizes
    )
    for name, value in network.named_parameters():
        draw(name.rpartition(".")[2], value)
    for part in network.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.LayerNorm | torch.nn.GroupNorm | torch.nn.Conv1d):
            part.reset_parameters()
        if isinstance(part, residual.RootMeanSquare):
            torch.nn.init.ones_(part.weight)
        if isinstance(part, residual.MambaMixer):
            step = torch.empty(part.D.shape).uniform_(math.log(1e-3), math.log(0.1)).exp()
            part.dt_proj.bias.data = step + torch.log(-torch.expm1(-step))
    return network


def draw(name: str, value: Tensor) -> None:
    """A parameter of no layer of torch's."""
    if name == "log_dt":
        value.uniform_(math.log(1e-2), math.log(0.5))
    elif name == "A_imag":
        value.copy_(math.pi * torch.arange(value.shape[-1]).expand_as(value))
    elif name == "log_A_real":
        value.fill_(math.log(0.5))
    elif name == "A_log":
        value.copy_(torch.arange(1, value.shape[-1] + 1).log().expand_as(value))
    elif name == "time_decay":
        value.uniform_(-6, -1)
    elif name.startswith("time_maa") and value.shape[:2] == (1, 1):
        value.uniform_(0, 1)
    elif name.startswith("time_"):
        torch.nn.init.normal_(value, std=0.1)
    else:
        torch.nn.init.normal_(value)


def shown(line: Line, g: torch.Generator, step: int) -> tuple[Tensor, Tensor]:
    """What a step of training sees, and the right classes; as in C, helper tokens come twice as often as others."""
    task = line.asked
    longest = line.length * (2 if task.has_helper else 1)
    if task.is_homogeneous:
        tokens = [one.tokens for one in task.lines(longest)]
        longest = max(map(len, tokens))
        tokens = [one + one[-1:] * (longest - len(one)) for one in tokens]
        strings = torch.tensor(tokens)
    else:
        strings = torch.randint(line.asked.vocabulary, (STRINGS, line.length), generator=g)
        if step % 2:  # long runs of one type among few of the others
            strings = torch.where(torch.rand(strings.shape, generator=g) < 0.7, strings[:, :1], strings)
    due = torch.tensor(
        [[BEYOND if x is None else x for x in task.answers(tuple(string))] for string in strings.tolist()]
    )
    if task.has_helper:
        due[strings[:, 1] == Course(task, line.length, longest, 0).main, line.length + 1 :] = BEYOND
    return strings, due


def said(network: Network, strings: Tensor, noise: float, g: torch.Generator) -> Tensor:
    """Logits, each state disturbed by as much noise."""
    if not noise or not isinstance(network, RecurrentModel):
        logits: Tensor = network(strings)
        return logits
    x, state, found = network.embed(strings), None, []
    for t in range(strings.shape[1]):
        out, state = network.cell(x[:, t : t + 1], state)
        found.append(network.readout(out[:, 0]))
        parts = state if isinstance(state, tuple) else (state,)
        parts = tuple(part + noise * torch.randn(part.shape, generator=g) for part in parts)
        state = parts if isinstance(state, tuple) else parts[0]
    return torch.stack(found, dim=1)


def trained(line: Line) -> tuple[Network, float]:
    """The network after Adam with clipped gradients, and its last loss."""
    network = fresh(line).requires_grad_(True)
    g = torch.Generator().manual_seed(line.seed)
    rate = RATE if line.hidden * line.layers < 64 else RATE / 4
    optimizer, loss = torch.optim.Adam(network.parameters(), lr=rate), torch.tensor(float("inf"))
    lines = shown(line, g, 0) if line.asked.is_homogeneous else None  # all that there are
    for step in range(line.steps):
        strings, due = lines or shown(line, g, step)
        logits = said(network, strings, line.noise, g)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), due.flatten(), ignore_index=BEYOND)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if loss.item() < line.stop:
            break
    return network.requires_grad_(False), loss.item()


def as_bytes(network: Network) -> bytes:
    """A file; of whole blocks in float16, which keeps it small."""
    if isinstance(network, ResidualModel):
        return residual.as_bytes(network.half())
    return model.as_bytes(network) if isinstance(network, RecurrentModel) else gated.as_bytes(network)


def main(folder: Path, chosen: list[str], lines: tuple[Line, ...] = LINES) -> None:
    """Trains what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        path = folder / f"{line.name}.safetensors"
        if path.exists() or (chosen and line.name not in chosen):
            continue
        network, loss = trained(line)
        write_whole(path, as_bytes(network))
        print(f"{line.name}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", action="store_true", help="those of Table A1")
    args = parser.parse_args()
    torch.set_num_threads(1)
    main(args.folder, args.names, TABLE_A1 + WHOLE if args.table else LINES)
