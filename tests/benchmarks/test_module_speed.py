"""verify module and plain forward passes, and its start: pytest tests/benchmarks -m benchmark --benchmark-enable -s."""

import resource
import subprocess
import sys
import time

import pytest
import torch

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
