"""`verify batch` over 50 checkpoints against 50 calls of the task's own command, in CPU seconds of whole processes."""

import resource
import subprocess
import sys

import pytest
import torch

from constructions import relation_counting

FILES = 50
pytestmark = pytest.mark.benchmark


def cpu_time(*argv):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "verify", *argv], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_batch_takes_at_most_a_tenth_of_the_calls(tmp_path):
    for i in range(FILES):
        torch.save(relation_counting.dot(T=8, L=6).state_dict(), tmp_path / f"{i}.pt")
    options = ("--model", "dot", "--L", "6")
    together = cpu_time("batch", str(tmp_path), *options)
    alone = min(cpu_time("histogram", "--weights", str(tmp_path / "0.pt"), *options) for _ in range(3)) * FILES
    print(f"\n{FILES} checkpoints: {together:.1f} s by batch, {alone:.0f} s by {FILES} calls")
    assert together < alone / 10
