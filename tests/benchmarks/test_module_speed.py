"""verify module and plain forward passes, and its start: pytest tests/benchmarks -m benchmark --benchmark-enable -s."""

import resource
import subprocess
import sys
import time
from copy import deepcopy

import pytest
import torch
from torch import nn

from constructions.decoder import Decoder, initialised
from constructions.largest import steep
from verify.arithmetic.readings import Real
from verify.frame.decide import Effort, decide
from verify.module import ModuleProblem, Task, largest, tokens

pytestmark = pytest.mark.benchmark

ONE_LAYER = """
from constructions.decoder import Decoder, initialised
from verify.module import Task, tokens
def model(weights):
    return initialised(Decoder(vocabulary=8, d=16, n_heads=2, positions=3), seed=0).eval()
task = Task(inputs=tokens([7, 7, [7]]), expected=lambda t: (t[:, 0] + t[:, 1]) % 7, classes=range(7))
"""


def cpu_seconds(work):
    started = time.process_time()
    work()
    return time.process_time() - started


def test_the_grokking_checkpoint_beside_a_forward_pass():
    """All 12,769 pairs of the sizes of the grokking checkpoints, with weights that are drawn."""
    model = Decoder(
        vocabulary=114, d=128, n_heads=4, d_mlp=512, positions=3, classes=114, activation="relu", layernorm=False,
        attention_bias=False,
    )  # fmt: skip
    model = initialised(model, seed=0, std=0.1).eval()
    task = Task(tokens([113, 113, [113]]), lambda t: (t[:, 0] + t[:, 1]) % 113, classes=range(113))
    problem = ModuleProblem(model, task)
    assert problem.graphs
    pairs = next(task.inputs.parts[0].batches())

    def forward(position):
        with torch.no_grad():
            for part in pairs.split(4096):
                model(part, position=position)

    rows = []
    for _ in range(3):
        every, last = cpu_seconds(lambda: forward(None)), cpu_seconds(lambda: forward(-1))
        rows.append((cpu_seconds(lambda: decide(problem, Real(), "certified", Effort())), every, last))
    proof, every, last = (sorted(column)[1] for column in zip(*rows, strict=True))
    print(f"\n{proof:.2f} CPU s: {proof / every:.1f} forward passes, {proof / last:.1f} of the last position alone")


def test_a_max_of_four_input_by_input():
    problem = ModuleProblem(steep(V=64, n=4), Task(tokens([64] * 4), lambda t: largest(t)))
    assert problem.graphs
    print(f"\n16.8 million inputs: {cpu_seconds(lambda: decide(problem, Real(), 'certified', Effort(60))):.1f} CPU s")


def test_the_start(tmp_path):
    (tmp_path / "task.py").write_text(ONE_LAYER)

    def start():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "verify", "module", str(tmp_path / "task.py")], stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    wall = time.perf_counter()
    cpu = sorted(start() for _ in range(3))[1]
    print(f"\none layer from start to end: {cpu:.1f} CPU s, {(time.perf_counter() - wall) / 3:.1f} s")


class Induction(nn.Module):
    """Two causal layers of attention in nanoGPT's way, with or without LayerNorm and MLPs."""

    def __init__(self, V, L, norm, d=32, heads=2):
        super().__init__()
        self.e, self.p, self.u, self.heads = nn.Embedding(V, d), nn.Embedding(L, d), nn.Linear(d, V), heads
        self.qkv, self.o = (nn.ModuleList(nn.Linear(d, k * d) for _ in range(2)) for k in (3, 1))
        self.norms = nn.ModuleList(nn.LayerNorm(d) if norm else nn.Identity() for _ in range(5))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)) for _ in range(2 * norm))

    def forward(self, t):
        b, n = t.shape
        x = self.e(t) + self.p(torch.arange(n))
        for i in range(2):
            parts = self.qkv[i](self.norms[2 * i](x)).chunk(3, -1)
            q, k, v = (y.view(b, n, self.heads, -1).transpose(1, 2) for y in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o[i](y.transpose(1, 2).reshape(b, n, -1))
            if self.mlps:
                x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return self.u(self.norms[4](x))


def follower(t):
    """The token after the last one's latest earlier place, the last token where there is none."""
    found = t[:, -1]
    for i in range(t.shape[1] - 1):
        found = torch.where(t[:, i] == t[:, -1], t[:, i + 1], found)
    return found


@pytest.mark.parametrize("norm, length", [(False, 6), (True, 6), (False, 7)])
def test_an_induction_head_of_two_layers(norm, length, V=10, steps=1500):
    torch.manual_seed(0)
    model = Induction(V, length, norm)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        t = torch.randint(V, (512, length))
        loss = nn.functional.cross_entropy(model(t)[:, -1], follower(t))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    task = Task(tokens([V] * length), follower)
    problem = ModuleProblem(model.eval(), task)
    assert problem.graphs
    doubled, rows = deepcopy(model).double(), next(task.inputs.parts[0].batches())
    answers = follower(rows)
    passes = []
    with torch.no_grad():
        for module in (doubled, model):
            for _ in range(2):
                seconds = cpu_seconds(lambda m=module: [m(part) for part in rows.split(4096)])
            passes.append(seconds / len(rows))
        right = sum(int((doubled(part)[:, -1].argmax(1) == follower(part)).sum()) for part in rows.split(4096))
    found = []
    proof = cpu_seconds(lambda: found.append(decide(problem, Real(), "certified", Effort(3600)))) / V**length
    print(
        f"\n{V**length} inputs: {found[0].extra['counts']}, {found[0].extra['decided_by']}, {proof * 1e6:.1f} us each, "
        f"{proof / passes[0]:.2f} passes in float64, {proof / passes[1]:.2f} in float32; "
        f"{right} of the first {len(answers)} right in float64"
    )
