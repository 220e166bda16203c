"""Models as arrays: the weights of the torch builders, the same certificate, and the same answers."""

import json
import re
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from inspect import signature
from itertools import product

import numpy as np
import pytest
import torch
from models.selection import every, first

from constructions.errors import BadInput, NotKnown
from constructions.exact_laws_arrays import on_kernel
from constructions.histogram import DTYPES as TORCH_DTYPES
from constructions.histogram_arrays import DTYPES, HistogramArrays
from constructions.inventory_counting_arrays import lin
from constructions.relation_counting_arrays import dot, zero_bos
from verify.arithmetic.formats import FORMATS, format_named
from verify.frame.clock import Budget
from verify.frame.decide import certify
from verify.tasks.histogram.array_problem import ArrayHistogram
from verify.tasks.histogram.catalogue import CONSTRUCTIONS, SizesAsked, built, storage
from verify.tasks.histogram.proof import certify as certify_module
from verify.tasks.histogram.rounded import forward
from verify.tasks.histogram.rounded.verdict import certify as certify_in
from verify.tasks.histogram.stored import StoredModel

SIZES = [(2, 1, None, None), (4, 3, None, None), (5, 9, 8, 7), (32, 10, 32, 33), (3, 40, 3, 3), (2, 300, None, None)]
OTHER_SIZES = {  # of a construction that has others; for dot+sftm the kept codes
    "balanced": [(6, 3, 4, None), (32, 10, 29, None)],
    "coherent": [(6, 2, 3, 6), (36, 3, 15, 36)],
    "simplex": [(6, 3, 5, None), (14, 4, 13, 2)],
    "rational": [(2, 2, None, None), (5, 9, 4, None)],
    "logarithmic": [(2, 3, None, None), (8, 6, 7, None)],
    "sphere": [(8, 4, 3, 2), (32, 10, 3, None)],
    "plane": [(3, 2, 2, 1)],
    "binary": [(7, 4, None, None), (31, 10, 9, 2)],
    "quarter-circle": [(7, 4, None, None), (31, 10, 9, 2)],
    "digits": [(2, 6, 2, None), (32, 4, 5, 2)],
}
CODES = {"dot": [(15, 10, 8, 15)], "bos": [(32, 10, 8, 33)], "dot+sftm": [(32, 10, 6, 32)],
         "lin": [(32, 10, 29, 33)], "lin+sftm": [(32, 10, 29, 32)]}  # fmt: skip
QUICK = [key for key in CONSTRUCTIONS if key[1] != "plane"]  # which is searched


def sizes_of(model, construction):
    other = CODES[model] if construction == "code" else OTHER_SIZES.get(construction)
    return [SizesAsked(model, *size) for size in other or SIZES]


def arrays_of(key, sizes, dtype="float32", **asked):
    return built(sizes, key[1], dtype, **asked)


@pytest.mark.parametrize("key", QUICK, ids=" ".join)
@pytest.mark.parametrize("dtype", first(2, DTYPES[::-1]))
def test_the_module_has_the_weights_of_the_arrays(key, dtype):
    """What a builder of modules returns, and what its arrays make, by the bits."""
    module_name, function = CONSTRUCTIONS[key][0].split(".")
    build = getattr(import_module(f"constructions.{module_name}"), function)
    named = {"model": key[0]} if "model" in signature(build).parameters else {}
    for sizes in sizes_of(*key):
        asked = {"T": sizes.T, "L": sizes.L, "d": sizes.d, "p": sizes.p, "dtype": TORCH_DTYPES[dtype]} | named
        try:
            arrays = arrays_of(key, sizes, dtype)
        except NotKnown as error:
            assert "16" in dtype  # whose numbers are too coarse for the code
            with pytest.raises(NotKnown, match=re.escape(str(error))):
                build(**asked)
            continue
        module = build(**asked)
        state = module.state_dict()
        assert list(state) == list(arrays.weights) and module.dtype == TORCH_DTYPES[dtype]
        for name, value in state.items():
            held = value.float() if dtype == "bfloat16" else value
            assert arrays.weights[name].tobytes() == held.numpy().tobytes(), (name, sizes)


def test_weights_that_no_construction_names():
    """The other numbers of a document, other directions, and vectors given: again module and arrays alike."""
    u = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    for arrays in (
        dot(T=5, L=3, as_printed=True), dot(T=5, L=3, basis="random", seed=3, dtype="float16"),
        on_kernel("lin", u, (np.eye(4) - u @ u.T) / 3, L=2),
    ):  # fmt: skip
        for name, value in arrays.module().state_dict().items():
            assert arrays.weights[name].tobytes() == value.numpy().tobytes()


SMALL = {"coherent": (6, 2, 3, 6), "sphere": (8, 4, 3, None), "simplex": (6, 3, 5, None),
         "balanced": (6, 3, 4, None), "rational": (5, 4, 4, None), "logarithmic": (7, 4, 6, None)}  # fmt: skip


def small(model, construction):
    size = CODES.get(model, [None])[0]
    return SizesAsked(model, *(size if construction == "code" and size else SMALL.get(construction, (8, 6))))


@pytest.mark.parametrize("key", QUICK, ids=" ".join)
def test_the_same_certificate_and_answers(key):
    rng = np.random.default_rng(0)
    arrays = arrays_of(key, small(*key))
    module, T, L = arrays.module(), arrays.T, arrays.L
    one, other = certify_module(module, claim="A"), certify(ArrayHistogram.of(arrays, "A"))
    found, due = (json.loads(c.to_json()) for c in (other, one))
    for timed in (found, due):
        timed.pop("seconds", None)
    assert found == due
    wide = replace(arrays, weights={name: x.astype(np.float64) for name, x in arrays.weights.items()})
    exact = deepcopy(module).double()  # in float32 the sums of codes differ by the order that a machine adds in
    for tokens in rng.integers(0, T, (20, L)):
        assert np.allclose(
            wide.logits(tokens), exact(torch.tensor(tokens[None])).detach().numpy()[0], rtol=1e-8, atol=1e-8
        )
        assert arrays.predict(tokens) == module.predict(torch.tensor(tokens[None]))[0].tolist()


FORMATTED = every(3, product(QUICK[::6], ["bfloat16", "float16", "p6", "e4m3"]))


@pytest.mark.parametrize(("key", "precision"), FORMATTED, ids=str)
def test_the_same_certificate_in_a_format(key, precision):
    arrays = arrays_of(key, small(*key), storage(precision))
    found, due = (
        json.loads(certify_in(one, fmt=format_named(precision), claim="A", budget=Budget.counting(8)).to_json())
        for one in (arrays, arrays.module())
    )
    assert found.pop("seconds") >= 0 and due.pop("seconds") >= 0
    assert found == due


def test_an_evaluation_that_is_not_what_was_proved_is_a_contradiction(monkeypatch):
    arrays = dot(T=4, L=3)
    monkeypatch.setattr(forward, "margins", lambda *_: np.zeros((1, 3)))
    certificate = certify_in(arrays, fmt=FORMATS["float32"])
    assert certificate.verdict.value == "UNKNOWN" and "bug" in certificate.reason


def test_a_forward_pass_that_is_not_what_was_proved_is_a_contradiction(monkeypatch):
    arrays = dot(T=4, L=3)
    monkeypatch.setattr(type(arrays), "logits", lambda self, tokens: np.zeros((3, 3), dtype=np.float32))
    certificate = certify(ArrayHistogram.of(arrays, None))
    assert certificate.verdict.value == "UNKNOWN" and "bug" in certificate.reason


def test_wrong_arrays_are_refuted():
    arrays = dot(T=4, L=3)
    arrays.weights["b_2"][1] -= 1.0
    certificate = certify(ArrayHistogram.of(arrays, None))
    found, due = certificate.counterexample, certify_module(arrays.module()).counterexample
    assert certificate.verdict.value == "REFUTED" and found == due


def test_bad_sizes():
    with pytest.raises(BadInput, match="d=2: this construction needs d >= T"):
        zero_bos(T=3, L=2, d=2)
    with pytest.raises(BadInput, match="p=2: inventory counting needs p >= T"):
        lin(T=3, L=2, p=2)
    with pytest.raises(BadInput, match="at most"):
        dot(T=1 << 15, L=2)
    with pytest.raises(BadInput, match="model='bots'"):
        HistogramArrays.zeros("bots", T=3, L=2, d=3, p=1, dtype="float32")


SIZED = "--T 32 --L 10"
JOBS = [
    f"--model dot {SIZED}", f"--model lin+sftm {SIZED} --json", f"--model lin {SIZED} --precision float32",
    f"--model bos {SIZED}", "--model bos --T 4 --L 3 --as-printed", f"--model bos+sftm {SIZED} --construction binary",
    f"--model lin {SIZED} --d 29 --construction code", "--model dot --construction coherent --T 36 --L 3 --d 16",
    f"--model bos+sftm {SIZED} --construction quarter-circle", f"--model lin+sftm {SIZED} --d 29",
    "--model dot+sftm --T 7 --L 50 --d 4 --p 7 --dtype float64",
    "--model lin --construction coherent --T 36 --L 3 --d 15",
    f"--model bos+sftm --construction digits {SIZED} --d 5", f"--model bos+sftm {SIZED} --d 3",
    "--model dot --T 6 --L 3 --d 5", "--model dot --T 7 --L 9 --d 6", f"--model dot+sftm {SIZED} --p 6",
]  # fmt: skip


def test_the_main_jobs_load_no_torch():
    """All of them in one process, which is as good: nothing unloads a module."""
    code = (
        "import sys\nfrom verify.commands import cli\n"
        f"for job in {JOBS}:\n"
        "    code = cli.main(['histogram', *job.split()])\n"
        "    assert code == ('--as-printed' in job) and 'torch' not in sys.modules, job"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("PROVED") >= len(JOBS) - 1


def test_precision_loads_no_torch():
    argv = ["precision", "histogram", "--model", "bos", "--T", "4", "--L", "3", "--effort", "1"]
    code = f"import sys\nfrom verify.commands import cli\nassert cli.main({argv}) == 3\n"
    code += "assert 'torch' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "p24" in run.stdout


@pytest.mark.parametrize(("options", "not_loaded"), every(2, [([], "torch sympy numpy"), (["--coherence"], "torch")]))
def test_bounds_load_no_torch(options, not_loaded):
    argv = ["bounds", "--T", "32", "--L", "10", *options]
    code = f"import sys\nfrom verify.commands import cli\nassert cli.main({argv}) == 0"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nassert not {set(not_loaded.split())} & set(sys.modules)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "bos" in run.stdout


@pytest.mark.parametrize("change", [lambda x: x * 1e5, lambda x: x * (1 + 2.0**-30), lambda x: x.astype(np.longdouble)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_numbers_that_the_dtype_does_not_hold_are_refused(dtype, change):
    """The module and the file round them, so that a proof would speak of other numbers."""
    arrays = dot(T=4, L=3, dtype=dtype)
    changed = change(np.float64(arrays.weights["W_2"]) / 3)
    with pytest.raises(BadInput, match="W_2"):
        StoredModel.of_arrays(replace(arrays, weights={**arrays.weights, "W_2": changed}))
