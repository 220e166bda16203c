"""Timings, never part of the default run: pytest tests/benchmarks -m benchmark --benchmark-enable -s."""

import resource
import statistics
import subprocess
import sys
import time

import pytest
import torch

from constructions import inventory_counting, relation_counting
from verify.frame.decide import readable_time
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.runs import all_sequences, run_margins

pytestmark = pytest.mark.benchmark
MAIN_JOB = ["histogram", "--model", "dot", "--T", "32", "--L", "10", "--d", "32"]


def wall_time(*argv):
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, *argv], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def test_main_job_beyond_import_torch():
    """The whole command against a bare `import torch`."""
    command = wall_time("-m", "verify.commands.cli", *MAIN_JOB)
    bare = wall_time("-c", "import torch")
    print(f"\nmain job {command:.2f} s, import torch {bare:.2f} s, difference {command - bare:.2f} s")


def test_help():
    print(f"\nverify histogram --help {wall_time('-m', 'verify.commands.cli', 'histogram', '--help'):.3f} s")


def test_proof_step(benchmark):
    module = relation_counting.dot(T=32, L=10, d=32)
    benchmark(lambda: certify(module))


def test_proof_beside_enumeration():
    """The figures of the README: the proof, and the time that all 32^10 sequences would take."""
    module = relation_counting.dot(T=32, L=10, d=32)
    certify(module)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        certify(module)
        times.append(time.perf_counter() - started)
    batch = next(all_sequences(32, 10))
    run_margins(module, batch)
    started = time.perf_counter()
    for _ in range(10):
        run_margins(module, batch)
    rate = 10 * len(batch) / (time.perf_counter() - started)
    print(
        f"\nproof {statistics.median(times) * 1000:.1f} ms; enumeration {rate:,.0f} sequences/s, "
        f"all 32^10 in {readable_time(32**10 / rate)}"
    )


def test_a_thousand_tokens_beside_a_forward_pass():
    """dot at T = L = d = 1000: the proof against one forward pass over 100 sequences, and its memory."""
    module = relation_counting.dot(T=1000, L=1000, d=1000)
    started = time.perf_counter()
    certificate = certify(module)
    assert certificate.verdict.value == "PROVED"
    proof = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    tokens = torch.randint(0, 1000, (100, 1000))
    started = time.perf_counter()
    with torch.no_grad():
        module(tokens)
    forward = time.perf_counter() - started
    print(f"\n{certificate.verdict.value}: proof {proof:.2f} s within {memory:.1f} GiB, forward pass {forward:.2f} s")


@pytest.mark.parametrize("build", [inventory_counting.lin, inventory_counting.dot_sftm], ids=lambda b: b.__name__)
def test_inventory_at_two_hundred(benchmark, build):
    module = build(T=200, L=100, d=200)
    assert benchmark.pedantic(lambda: certify(module), rounds=3).verdict.value == "PROVED"
