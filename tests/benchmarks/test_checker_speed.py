"""The checker beside the prover at T = 32, L = 10: pytest tests/benchmarks -m benchmark --benchmark-enable -s."""

import json
import statistics
import time

import pytest

from constructions import checkpoint, inventory_counting, relation_counting
from verify.checker.fields import check
from verify.tasks.histogram.proof import certify

pytestmark = pytest.mark.benchmark
BUILDERS = [
    inventory_counting.lin,
    inventory_counting.lin_sftm,
    relation_counting.dot,
    inventory_counting.dot_sftm,
    relation_counting.bos,
    relation_counting.bos_sftm,
]


def median_time(work):
    times = []
    for _ in range(15):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


@pytest.mark.parametrize("basis", ["standard", "random"])
@pytest.mark.parametrize("build", BUILDERS, ids=lambda b: b.__name__)
def test_checking_beside_proving(build, basis):
    module = build(T=32, L=10, basis=basis)
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    certificate = json.dumps(certify(module).about(weights).to_dict()).encode()
    assert check(weights, certificate)[0] == "PROVED"
    proving, checking = median_time(lambda: certify(module)), median_time(lambda: check(weights, certificate))
    print(f"\n{build.__name__} {basis}: proof {1000 * proving:.1f} ms, check {1000 * checking:.1f} ms")
    print(f"  checked in {checking / proving:.1f} times the prover's time")
