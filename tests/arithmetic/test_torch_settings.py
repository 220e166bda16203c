"""A process that lowers float32 matrix products is told that a proof in float32 does not speak of its runs."""

import json
import warnings

import pytest
import torch
from command import run

from constructions import circuit_simulation, contextual_counting, count01, fewer_dimensions, relation_counting
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.partition_sampler import sample
from verify.arithmetic.contract import Contract
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.arithmetic.torch_settings import LoweredPrecision, lowered
from verify.tasks.circuit import dtype as circuit_dtype
from verify.tasks.contextual.verdict import certify as certify_contextual
from verify.tasks.contextual.verdict import domain_of
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import certify as certify_count01
from verify.tasks.histogram.rounded.verdict import certify

FLOAT32, TF32 = FORMATS["float32"], FORMATS["tf32"]


@pytest.fixture(params=["high", "medium"])
def setting(request):
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision("highest")


def histogram(fmt):
    return certify(relation_counting.dot(T=4, L=3), fmt=fmt)


def counting(fmt):
    model = count01.uniform(dtype=torch.float32)
    return certify_count01(model, "majority-ones", PromptDomain(max_length=3), reading=Rounded(fmt))


def contextual(fmt):
    module = contextual_counting.build(6, 2, dtype=torch.float32)
    return certify_contextual(module, domain_of(module, 6), fmt=fmt)


def circuit(fmt):
    nand = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    return circuit_dtype.certify(circuit_simulation.build(nand.circuit, s=3), nand, fmt=fmt)


@pytest.mark.parametrize("prove", [histogram, counting, contextual, circuit])
def test_every_task_warns_where_float32_is_lowered_and_only_there(prove, setting):
    with pytest.warns(LoweredPrecision, match=r"get_float32_matmul_precision\(\) is '" + setting):
        certificate = prove(FLOAT32)
    assert any("set_float32_matmul_precision is at 'highest'" in text for text in certificate.assumptions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prove(FORMATS["float64"])
        torch.set_float32_matmul_precision("highest")
        prove(FLOAT32)


def test_tf32_allows_tf32_and_no_less(setting):
    assert bool(lowered(TF32)) == (setting == "medium")
    assert lowered(FLOAT32) and not lowered(FORMATS["float64"]) and not lowered(FORMATS["bfloat16"])


def test_autocast_lowers_too():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert lowered(FLOAT32) == ["torch.autocast is on for cpu"]
    assert lowered(FLOAT32) == []


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="this torch has the old setting only")
def test_the_newer_settings_are_seen_where_the_old_one_cannot_be_read():
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        assert lowered(FLOAT32) == ["torch.backends.mkldnn.matmul.fp32_precision is 'bf16'"]
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert lowered(FLOAT32) == []


def test_why_it_matters_a_proved_model_may_run_wrong_and_float64_never_changes(setting):
    """Where this machine lowers products at all: the circle at d = 3, proved in float32, answers wrongly."""
    model = fewer_dimensions.sphere("bos+sftm", T=32, L=10, d=3)
    g = torch.Generator().manual_seed(0)
    x = sample(T=32, L=10, n=64, generator=g)
    right = (x[:, :, None] == x[:, None, :]).sum(2)
    A = torch.randn(64, 128, generator=g)
    is_lowered_here = not torch.allclose((A @ A.T).double(), A.double() @ A.double().T, atol=1e-3)
    assert bool((model.predict(x) != right).any()) == is_lowered_here
    with torch.no_grad():
        assert bool((model.double().predict(x) == right).all())
    wide = A.double() @ A.double().T
    torch.set_float32_matmul_precision("highest")
    assert bool((wide == A.double() @ A.double().T).all()) and bool((model.float().predict(x) == right).all())


def test_the_command_warns_in_one_line_and_keeps_stdout(capsys, setting):
    argv = ("histogram", "--model", "dot", "--T", "4", "--L", "3", "--precision", "float32", "--json")
    code, out, err = run(capsys, *argv)
    assert code == 0 and json.loads(out)["verdict"] == "PROVED"
    assert err.startswith("warning: precision=float32") and err.count("\n") == 1
    torch.set_float32_matmul_precision("highest")
    assert run(capsys, *argv)[2] == ""


@pytest.mark.parametrize(("name", "number"), [("float64", 0), ("float32", 1), ("tf32", 1), ("bfloat16", 0)])
def test_the_assumption_stands_in_the_contract(name, number):
    told = [text for text in Contract().text(FORMATS[name]) if "set_float32_matmul_precision" in text]
    assert len(told) == number
