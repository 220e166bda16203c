"""Compares the counts of wrong pairs that a cuda device, numpy and the compiled loop give, and how long each takes.

python tests/tools/counts_on_device.py [--models N] [--large]
"""

import argparse
import time
from unittest import mock

import torch

from constructions.histogram import HistogramTransformer
from verify.frame.clock import Budget
from verify.tasks.histogram import by_cost, by_prefix, loops, on_device
from verify.tasks.histogram.proof import certify

KINDS = ("dot", "bos", "dot+sftm", "bos+sftm")
WAYS = ("cuda", "compiled", "numpy")


def drawn(seed, T, L, p):
    """Weights of random numbers, some of which are wrong nearly everywhere and others nearly nowhere."""
    g = torch.Generator().manual_seed(seed)
    module = HistogramTransformer(KINDS[seed % 4], T=T, L=L, d=p, p=p)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g) * parameter.shape[0] ** -0.5)
        module.b_2[0] += 2.0 * (seed % 3)
    return module


def found(module, way):
    """Everything that a certificate counts, and the seconds that it took."""
    device = torch.device("cuda") if way == "cuda" else None
    with (
        mock.patch.object(by_cost, "FOR_LOOPS", -1),
        mock.patch.object(by_cost, "has_fast_loop", lambda: True),
        mock.patch.object(by_prefix, "WORTH", -1),
        mock.patch.object(by_prefix, "device_at_hand", lambda: device),
        mock.patch.object(loops, "is_compiled", lambda: way == "compiled"),
        mock.patch.object(by_prefix, "is_compiled", lambda: way == "compiled"),
    ):
        started = time.perf_counter()
        certificate = certify(module, budget=Budget(3600.0))
        seconds = time.perf_counter() - started
    numbers = certificate.verdict.value, certificate.error_share, certificate.extra.get("wrong_pairs")
    return (*numbers, certificate.counterexample), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60, help="small models that are compared")
    parser.add_argument("--large", action="store_true", help="also dot at T = 32, L = 10, d = p = 32: 8.75e9 multisets")
    args = parser.parse_args()
    assert on_device.device_at_hand() is not None, "no cuda device that multiplies in float32"
    ways = [way for way in WAYS if way != "compiled" or loops.is_compiled()]
    print(torch.cuda.get_device_name(), "torch", torch.__version__, ways, flush=True)
    differing, total = 0, dict.fromkeys(ways, 0.0)
    for seed in range(args.models):
        results = {way: found(drawn(seed, 4 + seed % 9, 3 + seed % 5, 2 + seed % 33), way) for way in ways}
        differing += len({repr(numbers) for numbers, _ in results.values()}) > 1
        for way in ways:
            total[way] += results[way][1]
    print(f"{args.models} models, {differing} differ; seconds {total}", flush=True)
    if args.large:
        sizes = (32, 10, 32)
        for way in [way for way in ways if way != "numpy"]:
            numbers, seconds = found(drawn(0, *sizes), way)
            print(way, numbers[:3], f"{seconds:.1f} s", flush=True)
    raise SystemExit(differing > 0)


if __name__ == "__main__":
    main()
