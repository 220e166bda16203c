"""Count01 in a dtype: what is proved holds in torch and left to right; what fails is never proved."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from models.selection import first

from constructions import count01 as build
from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import ORDERS, Evaluation, rounded_model
from verify.arithmetic.formats import FORMATS, format_named, format_of, format_of_bits
from verify.arithmetic.readings import Rounded
from verify.arithmetic.rounding import rounded
from verify.frame.certificate import Verdict
from verify.tasks.count01.boxes import BoxQuery, decide_boxes
from verify.tasks.count01.dtype import largest_domain
from verify.tasks.count01.real import exact_model
from verify.tasks.count01.rounding import is_exact, sum_error
from verify.tasks.count01.runs import fails, rounded_logits, sequential_logits
from verify.tasks.count01.table import smallest_bits
from verify.tasks.count01.task import PromptDomain, cells, triples
from verify.tasks.count01.verdict import certify

ONES = "majority-ones"


def proved(model, domain, fmt):
    return decide_boxes(model, ONES, domain, RoundedArithmetic.of(fmt)).is_proved


def perturbed(model, rng):
    """Generic numbers in every weight, close enough to the given ones to be right for short prompts."""
    with torch.no_grad():
        for W in model.parameters():
            noise = torch.tensor([rng.uniform(-0.02, 0.02) for _ in range(W.numel())]).reshape(W.shape)
            W += noise.to(W.dtype)
    return model


def wide(rng, dtype):
    """Two heads of width 2 in d = 3 with generic numbers, a rotation away from uniform attention."""
    model = build.Count01Transformer(d=3, heads=2, d_h=2, dtype=torch.float64)
    base = build.uniform()
    with torch.no_grad():
        model.E[:, 0], model.E[:, 1] = base.E[:, 0], 0.5 * base.E[:, 0]
        for name in ("W_Q", "W_K", "W_V"):
            getattr(model, name)[:, 0, 0] = 1
        model.W_O[:, 0, 0] = torch.tensor([0.375, 0.625])
        model.W_out[0], model.b_out[:] = base.W_out[0], base.b_out
    return perturbed(model, rng).to(dtype)


@pytest.mark.parametrize("name", first(1, build.DTYPES))
def test_what_is_proved_holds_in_torch_and_left_to_right(name, device):
    dtype, rng, proofs = build.DTYPES[name], random.Random(4), 0
    models = [build.uniform(dtype=dtype), build.documents(4, eps=0.125, dtype=dtype)]
    models += [perturbed(build.uniform(dtype=dtype), rng) for _ in range(4)]
    models += [perturbed(build.documents(4, eps=0.125, dtype=dtype), rng) for _ in range(2)]
    models += [wide(rng, dtype) for _ in range(2)]
    for model in models:
        domains = (PromptDomain(4, 4), PromptDomain(2, 1), PromptDomain(1, 1), PromptDomain(1, 0))
        domain = next((r for r in domains if proved(model, r, format_of(dtype))), None)
        if domain is None:
            continue
        proofs += 1
        model.to(device)
        everything = list(triples(domain))
        for n in rng.sample(everything, min(5, len(everything))):
            for last in (4, 5, 6):
                due = 7 if last != 4 else 5 if n[1] > n[0] else 6
                digits = [1] * n[0] + [2] * n[1] + [3] * n[2]
                end = [4] if last == 4 else [4, last]
                tokens = torch.tensor([[0, *rng.sample(digits, len(digits)), *end] for _ in range(3)], device=device)
                runs = [model.next_logits(tokens), sequential_logits(model, tokens), model(tokens)[:, -1]]
                for logits in torch.cat(runs).double().tolist():
                    assert not fails(logits, due), (n, last)
    assert proofs >= (6 if name in ("float64", "float32") else 2)


@pytest.mark.parametrize(
    ("name", "reach"), first(1, [("float32", 60), ("bfloat16", 4), ("float64", 300), ("float16", 12)])
)
@pytest.mark.deep
def test_computed_logits_stay_within_the_error_bound(name, reach):
    """The distance of torch's and the sequential logits from float64's, against the bound, input by input."""
    dtype, rng, used = build.DTYPES[name], random.Random(9), 0.0
    for model in (
        build.documents(4, dtype=dtype),
        build.uniform(dtype=dtype),
        wide(rng, dtype),
        perturbed(build.uniform(dtype=dtype), rng),
    ):
        exact = build.from_state_dict({k: v.double() if k != "skip" else v for k, v in model.state_dict().items()})
        for cell in cells(ONES):
            query = BoxQuery(model, exact_model(model), cell, RoundedArithmetic.of(format_of(dtype)))
            for point in [(rng.randrange(reach), rng.randrange(reach), rng.randrange(reach)) for _ in range(4)]:
                at = np.array([point], dtype=float)
                counts = query.counts(at[:, None])
                D = np.einsum("kct,ht->kch", counts, query.weights)
                bound = query.rounding(counts, D)[0]
                n = cell.side.at(*point)
                digits = [1] * n[0] + [2] * n[1] + [3] * n[2]
                end = [4] if cell.last == 4 else [4, cell.last]
                tokens = torch.tensor([[0, *rng.sample(digits, len(digits)), *end]])
                reference = exact.next_logits(tokens)[0]
                for run in (model.next_logits(tokens)[0], sequential_logits(model, tokens)[0]):
                    for j, slack in zip(query.rivals, bound, strict=True):
                        gap = run[cell.expected].double() - run[j].double()
                        error = abs((gap - (reference[cell.expected] - reference[j])).item())
                        assert error <= slack + (2e-12 if name == "float64" else 1e-10)
                        used = max(used, error / slack if np.isfinite(slack) and slack else 0)
    assert used > 0.001  # the bound is met by errors of its own kind, not by accident of scale


@pytest.mark.parametrize(("name", "length"), [("float32", 2894), ("float16", 24), ("bfloat16", 9)])
def test_uniform_reaches_these_lengths(name, length):
    model, fmt = build.uniform(dtype=build.DTYPES[name]), format_of(build.DTYPES[name])
    assert proved(model, PromptDomain(max_length=length), fmt)
    assert not proved(model, PromptDomain(max_length=4 * length), fmt)


@pytest.mark.deep
def test_smallest_precision_for_the_documents_ranges():
    assert smallest_bits(build.uniform()) == 19
    assert smallest_bits(build.documents(8)) == 29
    assert smallest_bits(build.documents(7)) is None  # 200 twos are too many at any precision
    assert smallest_bits(build.documents(10, eps=2.0**-10)) == 25
    assert proved(build.documents(8), PromptDomain(200, 200), format_of(torch.float64))


def test_a_model_that_fails_in_float32_is_refuted_by_a_run():
    model = build.documents(10, dtype=torch.float32)
    certificate = certify(model, ONES, PromptDomain(60, 5), reading=Rounded(format_of(torch.float32)))
    assert certificate.verdict is Verdict.REFUTED
    c = certificate.counterexample
    assert c["fails"] and c["n0"] == c["n1"] and c["n2"] <= 5


def test_overflow_and_tiny_formats_are_not_proved():
    assert not proved(build.documents(20, dtype=torch.float16), PromptDomain(0, 0), format_of(torch.float16))
    assert not proved(build.uniform(), PromptDomain(50, 50), format_of_bits(4))
    assert not proved(build.documents(10), PromptDomain(1, 0), format_of_bits(3))
    assert not proved(build.uniform(dtype=torch.float16), PromptDomain(1, 70000), format_of(torch.float16))


def test_rounding_helpers():
    from fractions import Fraction

    fmt = format_of_bits(4)
    assert is_exact([Fraction(3), Fraction(-5), Fraction(0)], fmt)
    assert not is_exact([Fraction(16), Fraction(1)], fmt)
    rounded = rounded_model(build.documents(10), fmt)
    assert rounded.b_out[5].item() == -12.0


FORMATS_WITHOUT_KERNEL = ("tf32", "e4m3", "e5m2", "p6", "p12", "p30")


@pytest.mark.parametrize("accumulate", first(1, [None, "float32"]))
@pytest.mark.parametrize("name", first(1, ("bfloat16", "float16", *FORMATS_WITHOUT_KERNEL)))
def test_simulated_runs_stay_within_the_error_bound(name, accumulate):
    """Every order of the simulator, fused or not, subnormals flushed or not, against real arithmetic."""
    fmt, rng = format_named(name), random.Random(name)
    if accumulate is not None and fmt.p > 24:
        pytest.skip("p30 holds more than float32")
    inner = None if accumulate is None else FORMATS[accumulate]
    reach, used = {"p30": 60, "tf32": 20, "p12": 20, "float16": 9}.get(name, 3), 0.0
    for base in (build.uniform(), wide(rng, torch.float64), perturbed(build.uniform(), rng)):
        model = rounded_model(base, fmt)
        for cell in cells(ONES):
            query = BoxQuery(model, exact_model(model), cell, RoundedArithmetic.of(fmt, inner))
            for point in [tuple(rng.randrange(reach) for _ in range(3)) for _ in range(3)]:
                counts = query.counts(np.array([point], dtype=float)[:, None])
                D = np.einsum("kct,ht->kch", counts, query.weights)
                with np.errstate(invalid="ignore"):
                    bound = query.rounding(counts, D)[0]
                n = cell.side.at(*point)
                digits = [1] * n[0] + [2] * n[1] + [3] * n[2]
                end = [4] if cell.last == 4 else [4, cell.last]
                tokens = torch.tensor([[0, *rng.sample(digits, len(digits)), *end]])
                reference = model.next_logits(tokens)[0].numpy()
                order = rng.choice(ORDERS)
                at = Evaluation(fmt, inner, order, fused=rng.random() < 0.5, flush=rng.random() < 0.5)
                run = rounded_logits(model, tokens, at)[0]
                for j, slack in zip(query.rivals, bound, strict=True):
                    error = abs((run[cell.expected] - run[j]) - (reference[cell.expected] - reference[j]))
                    assert error <= slack + 1e-12, (order, n, cell.last)
                    used = max(used, error / slack if 0 < slack < np.inf else 0)
    assert used > 0.002 or name in ("e5m2", "e4m3")


def test_formats_without_a_kernel_are_decided():
    fmt = FORMATS["tf32"]
    certificate = certify(rounded_model(build.uniform(), fmt), ONES, PromptDomain(max_length=8), reading=Rounded(fmt))
    assert certificate.verdict is Verdict.PROVED and "11 bits" in certificate.assumptions[0]
    fmt = FORMATS["e4m3"]
    certificate = certify(rounded_model(build.documents(10), fmt), ONES, PromptDomain(3, 1), reading=Rounded(fmt))
    assert certificate.verdict is Verdict.REFUTED
    assert "simulated" in certificate.counterexample["replayed"]


def test_a_wider_accumulation_proves_longer_prompts():
    model, fmt = build.uniform(dtype=torch.bfloat16), FORMATS["bfloat16"]
    alone = largest_domain(lambda k: PromptDomain(max_length=k), model, ONES, RoundedArithmetic.of(fmt))
    wider = largest_domain(
        lambda k: PromptDomain(max_length=k), model, ONES, RoundedArithmetic.of(fmt, FORMATS["float32"])
    )
    assert alone.max_length == 9 and wider.max_length > 9
    with pytest.raises(BadInput, match="accumulate=bfloat16"):
        RoundedArithmetic.of(FORMATS["float32"], fmt)


def test_subnormal_weights_and_flushed_results_are_not_proved():
    model = build.uniform(dtype=torch.float16)
    with torch.no_grad():
        model.W_out *= 2.0**-16
        model.b_out *= 2.0**-16
    assert proved(build.uniform(dtype=torch.float16), PromptDomain(2, 2), FORMATS["float16"])
    assert not proved(model, PromptDomain(2, 2), FORMATS["float16"])
    flushing = Evaluation(FORMATS["float16"], flush=True)
    assert fails(rounded_logits(model, torch.tensor([[0, 2, 4]]), flushing)[0].tolist(), 5)
    assert not fails(rounded_logits(model, torch.tensor([[0, 2, 4]]), Evaluation(FORMATS["float16"]))[0].tolist(), 5)


@pytest.mark.parametrize("name", ["bfloat16", "p16", "p20", "p23"])
def test_a_sum_of_two_is_rounded_in_the_accumulation_and_where_it_is_stored(name):
    """Products by 1 are exact, so that both roundings are all there is; the format may have almost as many bits."""
    fmt, rng = format_named(name), np.random.default_rng(0)
    at = RoundedArithmetic.of(fmt, FORMATS["float32"])
    x = rounded(rng.uniform(1, 2, (3000, 2)) * 2.0 ** rng.integers(-6, 1, (3000, 2)), fmt)
    exact, W = x.sum(1, keepdims=True), np.ones((2, 1))
    error = np.abs(Evaluation(fmt, FORMATS["float32"]).product(x, W) - exact)
    assert (error <= sum_error(x.sum(1, keepdims=True), exact, W, False, at)).all()
