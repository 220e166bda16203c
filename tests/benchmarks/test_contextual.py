"""Timings of the contextual counting certificate: pytest tests/benchmarks -m benchmark --benchmark-enable -s."""

import time

import pytest
import torch

from constructions.contextual_counting import build
from verify.arithmetic.formats import FORMATS
from verify.tasks.contextual.verdict import certify, domain_of

pytestmark = pytest.mark.benchmark


def median_of_five(decide):
    times = []
    for _ in range(5):
        started = time.perf_counter()
        assert decide().verdict.value == "PROVED"
        times.append(time.perf_counter() - started)
    return sorted(times)[2]


def test_the_documents_setting(benchmark):
    module = build(512, 4)
    assert benchmark(lambda: certify(module, domain_of(module, 512))).verdict.value == "PROVED"


@pytest.mark.parametrize("reading", ["real", "float64"])
def test_growth_with_length_and_regions(reading):
    """At most N R: the time per cell as N and R grow."""
    for N, R in ((512, 4), (1024, 4), (4096, 4), (4096, 8), (4096, 32), (100_000, 4)):
        module = build(N, R, dtype=torch.float64)
        domain = domain_of(module, N)
        if reading == "real":
            seconds = median_of_five(lambda module=module, domain=domain: certify(module, domain))
        else:
            seconds = median_of_five(
                lambda module=module, domain=domain: certify(module, domain, fmt=FORMATS["float64"])
            )
        print(f"\n{reading} N={N} R={R}: {seconds * 1000:.1f} ms, {seconds / (N * R) * 1e6:.2f} us per N R", end="")


def test_beside_one_forward_pass():
    """The proof against one forward pass of the module on one string of 512 tokens."""
    module = build(512, 4)
    tokens = torch.randint(0, 2, (512,))
    started = time.perf_counter()
    with torch.no_grad():
        found = module(tokens)
    assert bool(torch.as_tensor(found).isfinite().all())
    print(f"\none forward pass over 512 tokens {(time.perf_counter() - started) * 1000:.1f} ms", end="")
