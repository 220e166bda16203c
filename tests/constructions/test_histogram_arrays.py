"""Models as arrays: the weights of the torch builders, the same certificate, and the same answers."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from models.selection import every, first

from constructions import inventory_counting, relation_counting
from constructions.errors import BadInput
from constructions.histogram import DTYPES as TORCH_DTYPES
from constructions.histogram_arrays import DTYPES, inventory, relation, zero_bos
from verify.arithmetic.formats import FORMATS, format_named
from verify.frame.clock import Budget
from verify.frame.decide import certify
from verify.tasks.histogram.array_problem import ArrayHistogram
from verify.tasks.histogram.catalogue import storage
from verify.tasks.histogram.proof import certify as certify_module
from verify.tasks.histogram.rounded import forward
from verify.tasks.histogram.rounded.verdict import certify as certify_in

INVENTORY = {
    "lin": inventory_counting.lin,
    "lin+sftm": inventory_counting.lin_sftm,
    "dot": inventory_counting.dot,
    "dot+sftm": inventory_counting.dot_sftm,
    "bos": inventory_counting.bos,
    "bos+sftm": inventory_counting.bos_sftm,
}
BUILDERS = [
    ("dot", relation, relation_counting.dot), ("bos", relation, relation_counting.bos),
    ("bos+sftm", relation, relation_counting.bos_sftm), ("bos", zero_bos, relation_counting.zero_bos),
    *((name, inventory, build) for name, build in INVENTORY.items()),
]  # fmt: skip
SIZES = [(2, 1, None, None), (4, 3, None, None), (5, 9, 8, 7), (32, 10, 32, 33), (3, 40, 3, 3), (2, 300, None, None)]

SIZES_OF_FOUR = [size for size in SIZES if size[0] >= 4]


@pytest.mark.parametrize(("model", "built", "build"), BUILDERS)
@pytest.mark.parametrize("dtype", first(1, DTYPES))
def test_the_builders_weights(model, built, build, dtype):
    for T, L, d, p in SIZES if build is not relation_counting.bos_sftm else SIZES_OF_FOUR:
        module = build(T=T, L=L, d=d, p=p, dtype=TORCH_DTYPES[dtype])
        arrays = built(model=model, T=T, L=L, d=d, p=p, dtype=dtype)
        for name, value in module.state_dict().items():
            assert arrays.weights[name].tobytes() == value.numpy().tobytes(), (name, T, L)
        copy = arrays.module()
        assert all(torch.equal(copy.state_dict()[name], value) for name, value in module.state_dict().items())


@pytest.mark.parametrize(("model", "built", "build"), BUILDERS)
def test_the_same_certificate_and_answers(model, built, build):
    rng = np.random.default_rng(0)
    for T, L in [(4, 3), (8, 6)]:
        module, arrays = build(T=T, L=L), built(model=model, T=T, L=L)
        one, other = certify_module(module, claim="A"), certify(ArrayHistogram.of(arrays, "A"))
        found, due = (json.loads(c.to_json()) for c in (other, one))
        for timed in (found, due):
            timed.pop("seconds", None)
        assert found == due
        for tokens in rng.integers(0, T, (20, L)):
            assert np.allclose(arrays.logits(tokens), module(torch.tensor(tokens[None])).detach().numpy()[0], atol=1e-4)
            assert arrays.predict(tokens) == module.predict(torch.tensor(tokens[None]))[0].tolist()


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "p6", "e4m3"])
@pytest.mark.parametrize(("model", "built", "build"), every(3, BUILDERS))
def test_the_same_certificate_in_a_format(model, built, build, precision):
    dtype = storage(precision)
    module, arrays = build(T=6, L=5, dtype=TORCH_DTYPES[dtype]), built(model=model, T=6, L=5, dtype=dtype)
    found, due = (
        json.loads(certify_in(one, fmt=format_named(precision), claim="A", budget=Budget.counting(8)).to_json())
        for one in (arrays, module)
    )
    assert found.pop("seconds") >= 0 and due.pop("seconds") >= 0
    assert found == due


def test_an_evaluation_that_is_not_what_was_proved_is_a_contradiction(monkeypatch):
    arrays = relation(model="dot", T=4, L=3)
    monkeypatch.setattr(forward, "margins", lambda *_: np.zeros((1, 3)))
    certificate = certify_in(arrays, fmt=FORMATS["float32"])
    assert certificate.verdict.value == "UNKNOWN" and "bug" in certificate.reason


def test_a_forward_pass_that_is_not_what_was_proved_is_a_contradiction(monkeypatch):
    arrays = relation(model="dot", T=4, L=3)
    monkeypatch.setattr(type(arrays), "logits", lambda self, tokens: np.zeros((3, 3), dtype=np.float32))
    certificate = certify(ArrayHistogram.of(arrays, None))
    assert certificate.verdict.value == "UNKNOWN" and "bug" in certificate.reason


def test_wrong_arrays_are_refuted():
    arrays = relation(model="dot", T=4, L=3)
    arrays.weights["b_2"][1] -= 1.0
    certificate = certify(ArrayHistogram.of(arrays, None))
    found, due = certificate.counterexample, certify_module(arrays.module()).counterexample
    assert certificate.verdict.value == "REFUTED" and found == due


def test_bad_sizes():
    with pytest.raises(BadInput, match="d=2: this construction needs d >= T"):
        relation(model="dot", T=3, L=2, d=2)
    with pytest.raises(BadInput, match="model=bos.sftm, T=3: has no relation as arrays"):
        relation(model="bos+sftm", T=3, L=2)
    with pytest.raises(BadInput, match="model=dot: only bos"):
        zero_bos(model="dot", T=3, L=2)
    with pytest.raises(BadInput, match="p=2: inventory counting needs p >= T"):
        inventory(model="lin", T=3, L=2, p=2)
    with pytest.raises(BadInput, match="at most"):
        relation(model="dot", T=1 << 15, L=2)


@pytest.mark.parametrize(
    "options",
    first(1, [["dot"], ["lin+sftm", "--json"], ["lin", "--precision", "float32"], ["lin"], ["bos"], ["bos+sftm"]]),
)
def test_the_main_job_loads_no_torch(options):
    argv = ["histogram", "--T", "32", "--L", "10", "--d", "32", "--model", *options]
    code = f"import sys\nfrom verify import cli\nassert cli.main({argv}) == 0\nassert 'torch' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "PROVED" in run.stdout


def test_precision_loads_no_torch():
    argv = ["precision", "histogram", "--model", "bos", "--T", "4", "--L", "3", "--effort", "1"]
    code = f"import sys\nfrom verify import cli\nassert cli.main({argv}) == 0\nassert 'torch' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "p24" in run.stdout


@pytest.mark.parametrize(("options", "not_loaded"), every(2, [([], "torch sympy numpy"), (["--coherence"], "torch")]))
def test_bounds_load_no_torch(options, not_loaded):
    code = f"import sys\nfrom verify import cli\nassert cli.main({['bounds', '--T', '32', '--L', '10', *options]}) == 0"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nassert not {set(not_loaded.split())} & set(sys.modules)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "bos" in run.stdout
