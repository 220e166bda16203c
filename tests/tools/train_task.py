"""Trains a transformer and writes it as a stranger's task: python tests/tools/train_task.py largest DIR.

The folder has model.pt and task.py, a plain nn.Module that imports nothing of ours but the task's words:
verify module DIR/task.py --weights DIR/model.pt. Sizes are options; `--hidden 0` leaves the MLPs out.
"""

from __future__ import annotations

import argparse
import inspect
import io
from itertools import permutations
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from constructions.threads import one_thread
from constructions.written_files import write_whole


class Block(nn.Module):
    """Attention and an MLP, for the rows from `first` on."""

    def __init__(self, heads, hidden, norm, d):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.n1, self.n2 = (nn.LayerNorm(d) if norm else nn.Identity() for _ in range(2))
        self.up, self.down = (nn.Linear(d, hidden), nn.Linear(hidden, d)) if hidden else (None, None)

    def forward(self, x, first):
        b, n, d = x.shape
        y = self.n1(x)
        q, k, v = (f(y).view(b, n, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q[:, :, first:], k, v).transpose(1, 2).flatten(2)
        r = x[:, first:] + self.o(a)
        if self.up is not None:
            r = r + self.down(F.relu(self.up(self.n2(r))))
        return r


class Net(nn.Module):
    """Layers of attention, read at the last position."""

    def __init__(self, vocabulary, length, layers, heads, hidden, norm, d, classes):
        super().__init__()
        self.E, self.P = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(heads, hidden, norm, d) for _ in range(layers))
        self.n3 = nn.LayerNorm(d) if norm else nn.Identity()
        self.U = nn.Linear(d, classes, bias=False)

    def forward(self, t):
        x = self.E(t) + self.P(torch.arange(t.shape[1]))
        for block in self.blocks[:-1]:
            x = block(x, 0)
        return self.U(self.n3(self.blocks[-1](x, -1)[:, 0]))


TASK = '''"""{name} of {length} of {vocabulary} tokens, trained by tests/tools/train_task.py."""

from itertools import permutations

import torch
from torch import nn
from torch.nn import functional as F

from verify.module import Task, compose, count_of_last, dyck, largest, smallest, sum_modulo, tokens


{net}

def model(weights):
    module = Net({sizes})
    module.load_state_dict(weights)
    return module.eval()


task = Task(inputs=tokens([{vocabulary}] * {length}), expected={expected})
'''
EXPECTED = {
    "largest": "largest",
    "smallest": "smallest",
    "count": "count_of_last()",
    "sum": "sum_modulo({classes})",
    "dyck": "dyck()",
    "compose": "compose(list(permutations(range({letters}))))",
}


LETTERS = {6: 3, 24: 4, 120: 5}  # of the permutations that are so many


def composed(t, elements):
    """The place of the composition among all permutations of some letters, the first token's first."""
    group = torch.tensor(list(permutations(range(LETTERS[elements]))))
    found = group[t[:, 0]]
    for column in t.T[1:]:
        found = group[column].gather(1, found)
    return (found.unsqueeze(1) == group).all(2).double().argmax(1)


def balanced(t):
    """1 where each bracket that closes has one that opens, token 0, and the other way round."""
    depth = (1 - 2 * t).cumsum(1)
    return ((depth.amin(1) >= 0) & (depth[:, -1] == 0)).long()


def answers(name, t, classes):
    """The right classes of a batch, by torch alone."""
    return {
        "largest": lambda: t.amax(1),
        "smallest": lambda: t.amin(1),
        "count": lambda: (t == t[:, -1:]).sum(1) - 1,
        "sum": lambda: t.sum(1) % classes,
        "dyck": lambda: balanced(t),
        "compose": lambda: composed(t, classes),
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
    if args.task == "dyck":
        return torch.where(torch.rand(512, 1) < 0.8, nearly_balanced(args.length), t)
    return t


def nearly_balanced(length):
    """As many brackets of either kind, turned round to be balanced, and up to two of them flipped."""
    t = (torch.rand(512, length).argsort(1) % 2).long()
    start = (1 - 2 * t).cumsum(1).argmin(1, keepdim=True) + 1
    t = t.gather(1, (torch.arange(length) + start) % length)
    flips = torch.rand(512, length).argsort(1) < torch.randint(0, 3, (512, 1))
    return torch.where(flips, 1 - t, t)


@one_thread()
def train(args):
    """The module after its steps, and its last loss; a sum modulo P is learnt after the sum itself."""
    torch.manual_seed(args.seed)
    sizes = [args.vocabulary, args.length, args.layers, args.heads, args.hidden, args.norm, args.width, args.classes]
    if args.task != "sum":
        module = Net(*sizes)
        return module, sizes, fit(module, args, lambda t: answers(args.task, t, args.classes))
    most = (args.vocabulary - 1) * args.length + 1
    module = Net(*sizes[:-1], most)
    fit(module, args, lambda t: t.sum(1))
    bend_at_inputs(module, drawn(args))
    module.U = nn.Linear(args.width, args.classes, bias=False)
    return module, sizes, fit(module, args, lambda t: t.sum(1) % args.classes)


def bend_at_inputs(module, t):
    """Starts the last MLP again, each neuron's bend at some input: a remainder goes up and down along the sum."""
    block, given = module.blocks[-1], []
    hook = block.n2.register_forward_hook(lambda module, args, result: given.append(result))
    with torch.no_grad():
        module(t)
        block.up.reset_parameters()
        some = given[0].flatten(0, -2)[torch.randint(0, len(t), (len(block.up.weight),))]
        block.up.bias.copy_(-(block.up.weight * some).sum(1))
    hook.remove()


def fit(module, args, right):
    """Trains a module by cross-entropy; its last loss."""
    optimiser = torch.optim.AdamW(module.parameters(), args.rate, weight_decay=args.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, args.steps)
    for _ in range(args.steps):
        t = drawn(args)
        loss = F.cross_entropy(module(t), right(t))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    module.eval()
    return float(loss.detach())


def written(args, folder):
    """Trains, and writes the task into the folder; the last loss."""
    args.classes = args.classes or {"count": args.length, "dyck": 2}.get(args.task, args.vocabulary)
    module, sizes, loss = train(args)
    folder.mkdir(parents=True, exist_ok=True)
    stored = io.BytesIO()
    torch.save(module.state_dict(), stored)
    write_whole(folder / "model.pt", stored.getvalue())
    net = "\n\n".join(map(inspect.getsource, (Block, Net)))
    about = {"name": args.task, "length": args.length, "vocabulary": args.vocabulary, "net": net}
    expected = EXPECTED[args.task].format(classes=args.classes, letters=LETTERS.get(args.vocabulary))
    about |= {"sizes": ", ".join(map(repr, sizes)), "expected": expected}
    write_whole(folder / "task.py", TASK.format(**about).encode())
    return loss


def options():
    """The options of one training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=tuple(EXPECTED))
    for name, value in (
        ("vocabulary", 32), ("length", 5), ("layers", 1), ("heads", 2), ("hidden", 64), ("width", 32), ("seed", 0),
        ("steps", 4000),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--classes", type=int, default=None)
    parser.add_argument("--norm", action="store_true")
    parser.add_argument("--near", action="store_true", help="half of the inputs have tokens that are near each other")
    return parser


if __name__ == "__main__":
    parser = options()
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    print(f"{args.folder}: loss {written(args, args.folder):.5f}")
