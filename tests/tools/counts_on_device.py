"""Compares the counts of wrong pairs that numpy, the compiled loop and a cuda device give, and how long each takes.

python -m tests.tools.counts_on_device [--models N] [--enumerated N] [--large]: by each way that there is here.
"""

import argparse
import time
from unittest import mock

import torch

from constructions.histogram import HistogramTransformer
from tests.oracles.histogram import differs
from verify.frame.clock import Budget
from verify.tasks.histogram import by_cost, by_prefix, loops, on_device
from verify.tasks.histogram.proof import certify

KINDS = ("dot", "bos", "dot+sftm", "bos+sftm")
WAYS = {"cuda": lambda: on_device.device_at_hand() is not None, "compiled": loops.is_compiled, "numpy": lambda: True}
FEW = 30_000  # sequences that are enumerated


def small(seed):
    """A small model: `drawn` of 4 to 12 tokens in 3 to 7 places."""
    return drawn(seed, 4 + seed % 9, 3 + seed % 5, 2 + seed % 33)


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
    """The certificate by this way, and the seconds that it took."""
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
    return certificate, seconds


def numbers(certificate):
    """Everything that a certificate counts."""
    share, wrong = certificate.error_share, certificate.extra.get("wrong_pairs")
    return certificate.verdict.value, share, wrong, certificate.counterexample


def compared(models, enumerated, ways):
    """Seeds of small models on which ways differ, or one from enumeration, and seconds of each way.

    Enumerated are the first models that have few sequences, as many as asked.
    """
    differing, total = [], dict.fromkeys(ways, 0.0)
    for seed in range(models):
        module, said = small(seed), []
        for way in ways:
            certificate, seconds = found(module, way)
            said.append(certificate)
            total[way] += seconds
        is_enumerated = enumerated > 0 and module.T**module.L <= FEW
        enumerated -= is_enumerated
        if len({repr(numbers(one)) for one in said}) > 1 or (is_enumerated and differs(module, said[0])):
            differing.append(seed)
    assert enumerated <= 0, f"{enumerated} models fewer were enumerated"
    return differing, total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60, help="small models that are compared")
    parser.add_argument("--enumerated", type=int, default=0, help="of these, how many are compared with enumeration")
    parser.add_argument("--large", action="store_true", help="also dot at T = 32, L = 10, d = p = 32: 8.75e9 multisets")
    args = parser.parse_args()
    ways = [way for way, is_here in WAYS.items() if is_here()]
    device = torch.cuda.get_device_name() if "cuda" in ways else "no cuda device that multiplies in float32"
    print(device, "torch", torch.__version__, ways, flush=True)
    differing, total = compared(args.models, args.enumerated, ways)
    print(f"{args.models} models, {args.enumerated} enumerated, {len(differing)} differ; seconds {total}", flush=True)
    if args.large:
        sizes = (32, 10, 32)
        for way in [way for way in ways if way != "numpy"]:
            certificate, seconds = found(drawn(0, *sizes), way)
            print(way, numbers(certificate)[:3], f"{seconds:.1f} s", flush=True)
    raise SystemExit(bool(differing))


if __name__ == "__main__":
    main()
