"""Trains a one-layer transformer and writes it as a stranger's task: python tests/tools/train_one_layer.py out largest.

The folder has model.pt and task.py, a plain nn.Module that imports nothing of ours but the task's words:
verify module out/task.py --weights out/model.pt. Sizes are options; `--hidden 0` leaves the MLP out.
"""

from __future__ import annotations

import argparse
import inspect
import io
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from constructions.written_files import write_whole


class Net(nn.Module):
    """One attention layer, read at the last position."""

    def __init__(self, vocabulary, length, heads, hidden, norm, d, classes):
        super().__init__()
        self.E, self.P, self.heads = nn.Embedding(vocabulary, d), nn.Embedding(length, d), heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.n1, self.n2, self.n3 = (nn.LayerNorm(d) if norm else nn.Identity() for _ in range(3))
        self.up, self.down = (nn.Linear(d, hidden), nn.Linear(hidden, d)) if hidden else (None, None)
        self.U = nn.Linear(d, classes, bias=False)

    def forward(self, t):
        x = self.E(t) + self.P(torch.arange(t.shape[1]))
        b, n, d = x.shape
        y = self.n1(x)
        q, k, v = (f(y).view(b, n, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q[:, :, -1:], k, v).transpose(1, 2).reshape(b, d)
        r = x[:, -1] + self.o(a)
        if self.up is not None:
            r = r + self.down(F.relu(self.up(self.n2(r))))
        return self.U(self.n3(r))


TASK = '''"""{name} of {length} of {vocabulary} tokens, trained by tests/tools/train_one_layer.py."""

import torch
from torch import nn
from torch.nn import functional as F

from verify.module import Task, count_of_last, largest, smallest, sum_modulo, tokens


{net}

def model(weights):
    module = Net({sizes})
    module.load_state_dict(weights)
    return module.eval()


task = Task(inputs=tokens([{vocabulary}] * {length}), expected={expected})
'''
EXPECTED = {"largest": "largest", "smallest": "smallest", "count": "count_of_last()", "sum": "sum_modulo({classes})"}


def answers(name, t, classes):
    """The right classes of a batch, by torch alone."""
    return {
        "largest": lambda: t.amax(1),
        "smallest": lambda: t.amin(1),
        "count": lambda: (t == t[:, -1:]).sum(1) - 1,
        "sum": lambda: t.sum(1) % classes,
    }[name]()


def drawn(args):
    """Inputs to learn from: extremes and counts of all sizes are met often, and close calls where that is asked."""
    t = torch.randint(0, args.vocabulary, (512, args.length))
    if args.near:
        width = 2 ** torch.randint(0, args.vocabulary.bit_length(), (512, 1))
        near = torch.randint(0, args.vocabulary, (512, 1)) - (torch.rand(512, args.length) * width).long()
        t = torch.where(torch.rand(512, 1) < 0.5, near.clamp(min=0), t)
    some = torch.rand(512, 1) < 0.6
    caps = torch.randint(0, args.vocabulary, (512, 1))
    if args.task == "largest":
        return torch.where(some, torch.minimum(t, caps), t)
    if args.task == "smallest":
        return torch.where(some, torch.maximum(t, caps), t)
    if args.task == "count":
        chosen = torch.rand(512, args.length - 1).argsort(1) < torch.randint(0, args.length, (512, 1))
        t[:, :-1] = torch.where(chosen, t[:, -1:], t[:, :-1])
    return t


def train(args):
    """The module after its steps, and its last loss."""
    torch.manual_seed(args.seed)
    sizes = (args.vocabulary, args.length, args.heads, args.hidden, args.norm, args.width, args.classes)
    module = Net(*sizes)
    optimiser = torch.optim.AdamW(module.parameters(), args.rate, weight_decay=args.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, args.steps)
    for _ in range(args.steps):
        t = drawn(args)
        loss = F.cross_entropy(module(t), answers(args.task, t, args.classes))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return module.eval(), sizes, float(loss)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("task", choices=tuple(EXPECTED))
    for name, value in (
        ("vocabulary", 32), ("length", 5), ("heads", 2), ("hidden", 64), ("width", 32), ("seed", 0), ("steps", 4000)
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--classes", type=int, default=None)
    parser.add_argument("--norm", action="store_true")
    parser.add_argument("--near", action="store_true", help="half of the inputs have tokens that are near each other")
    args = parser.parse_args()
    args.classes = args.classes or (args.length if args.task == "count" else args.vocabulary)
    torch.set_num_threads(1)
    module, sizes, loss = train(args)
    with torch.no_grad():
        t = torch.randint(0, args.vocabulary, (100_000, args.length))
        wrong = sum(int((module(p).argmax(1) != answers(args.task, p, args.classes)).sum()) for p in t.split(5000))
    args.folder.mkdir(parents=True, exist_ok=True)
    stored = io.BytesIO()
    torch.save(module.state_dict(), stored)
    write_whole(args.folder / "model.pt", stored.getvalue())
    about = {"name": args.task, "length": args.length, "vocabulary": args.vocabulary, "net": inspect.getsource(Net)}
    about |= {"sizes": ", ".join(map(repr, sizes)), "expected": EXPECTED[args.task].format(classes=args.classes)}
    write_whole(args.folder / "task.py", TASK.format(**about).encode())
    print(f"{args.folder}: loss {loss:.5f}, {wrong} of 100,000 drawn inputs wrong")
