"""Several neurons of a token read as one sum: the bound holds in every evaluation; faults are planted elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from command import as_json, run
from models.selection import first

from constructions.exact_laws import logarithmic
from verify.arithmetic.evaluation import ORDERS, Evaluation
from verify.arithmetic.formats import format_named
from verify.frame.certificate import Verdict
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.rounded.forward import margins, rounded_model
from verify.tasks.histogram.rounded.verdict import certify as certify_in
from verify.tasks.histogram.stored import StoredModel

FORMATS = ("float32", "bfloat16", "float16", "p12", "p30", "float64")
SIZES = ((3, 3, 3), (3, 4, 2), (4, 3, 4), (6, 3, 5))


def is_proved(module, fmt):
    return certify_in(module, fmt=fmt, budget=0).verdict is Verdict.PROVED


def squeezed(seed):
    """A construction in random bases whose logit of one count is lowered until the proof is all but used up."""
    rng = np.random.default_rng(seed)
    T, L, d = SIZES[seed % len(SIZES)]
    fmt = format_named(FORMATS[seed % len(FORMATS)])
    module = logarithmic(T=T, L=L, d=d, dtype=torch.float64)
    scale = torch.from_numpy(1 + rng.random(d))
    with torch.no_grad():  # tokens with long significands, and the same model up to rounding
        module.E.mul_(scale)
        for W in (module.W_Q, module.W_K, module.W_1):
            W.div_(scale[:, None])
    low, high, count = 0.0, 1.0, int(rng.integers(L))
    start = module.b_2[count].item()
    if not is_proved(module, fmt):
        return None, module, fmt
    for _ in range(20):
        module.b_2.data[count] = start - (low + high) / 2
        low, high = ((low + high) / 2, high) if is_proved(module, fmt) else (low, (low + high) / 2)
    module.b_2.data[count] = start - low
    return certify_in(module, fmt=fmt, budget=0), module, fmt


def smallest_margin(module, fmt, seed, n=24):
    """The least computed margin over all sequences in evaluations of random orders."""
    rng = np.random.default_rng(seed)
    stored = rounded_model(StoredModel.of(module), Evaluation(fmt))
    tokens = np.array(np.meshgrid(*[range(stored.T)] * stored.L)).reshape(stored.L, -1).T.astype(np.int64).copy()
    least = np.inf
    for i in range(n):
        flags = (bool(x) for x in rng.integers(0, 2, 3))
        evaluation = Evaluation(fmt, None, ORDERS[i % len(ORDERS)], *flags, seed=int(rng.integers(1000)))
        least = min(least, float(margins(stored, tokens, evaluation).min()))
    return least


@pytest.mark.parametrize("seed", first(2, range(12)))
def test_models_at_the_edge_of_the_proof_are_right_in_every_order(seed):
    found, module, fmt = squeezed(seed)
    if found is None:
        assert fmt.p < 24  # too few bits for these sizes
        return
    assert smallest_margin(module, fmt, seed) >= found.margin


def test_the_sum_leaves_nothing_to_branch_and_bound():
    assert certify(logarithmic(T=15, L=10)).argument == "vertices"


@pytest.mark.parametrize("d", ["31", "32"])
def test_float32_at_32_tokens(capsys, d):
    argv = ("--model", "dot+sftm", "--T", "32", "--L", "10", "--d", d, "--p", "6", "--precision", "float32")
    code, out = as_json(capsys, "histogram", *argv)
    assert code == 0 and out["reading"] == "dtype, any order" and out["margin"] > 2e-5


def test_the_precision_command_takes_the_constructions_of_exact_laws(capsys):
    argv = ("precision", "histogram", "--model", "dot+sftm", "--construction", "logarithmic", "--T", "3", "--L", "3")
    code, out, _ = run(capsys, *argv, "--d", "3", "--p", "2", "--format", "csv")
    assert "float32,PROVED" in out and "bfloat16,UNKNOWN" in out
    assert code == 3, "a cell is open"
