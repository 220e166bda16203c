"""Fewer dimensions than tokens: proved where the claims say so, unknown and impossible told apart."""

import json
from functools import partial

import numpy as np
import pytest
import sympy
import torch
from models.histogram_runs import exhaustive
from models.selection import first

from bounds import coherent_counting
from constructions import fewer_dimensions, planar_relation
from constructions.coded_inventory import CARRIER, on_code
from constructions.coded_relation import (
    derived_kappa,
    printed_softmax_code,
    signed_simplex,
    softmax_code,
    tagged_softmax_code,
)
from constructions.codes import library as code_library
from constructions.codes import tokens as token_codes
from constructions.codes.code import Code, log_readings
from constructions.codes.search import search
from constructions.errors import BadInput, NotKnown
from constructions.frames.line_systems import normalized
from constructions.histogram import HistogramTransformer
from constructions.planar_relation import plane
from verify.commands.cli import main
from verify.frame.certificate import Verdict
from verify.tasks.histogram.frontier.search import smallest_d
from verify.tasks.histogram.proof import certify


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("T", "L", "d"), [(32, 10, 3), (8, 4, 3), (100, 6, 3)])
def test_one_neuron_on_the_circle(T, L, d, dtype):
    certificate = certify(softmax_code(token_codes.circle(T), L=L, dtype=dtype).module())
    assert certificate.verdict is Verdict.PROVED and certificate.parameters["d"] == d


@pytest.mark.parametrize(
    "v", [token_codes.binary(32), token_codes.digits(32, 2), token_codes.digits(32, 3), token_codes.circle(32)], ids=len
)
def test_every_code_of_distinct_vectors_serves(v):
    assert certify(softmax_code(v, L=10, dtype="float64").module()).verdict is Verdict.PROVED
    assert certify(tagged_softmax_code(v, L=10, dtype="float64").module()).verdict is Verdict.PROVED


def test_the_sphere_needs_a_lower_temperature_than_the_circle():
    sphere, circle = token_codes.spread_out(32, 3, steps=600), token_codes.circle(32)
    assert derived_kappa(sphere, 10) < derived_kappa(circle, 10) / 8
    assert certify(softmax_code(sphere, L=10, dtype="float32").module()).verdict is Verdict.PROVED


@pytest.mark.deep
def test_the_printed_temperature_of_the_quarter_circle():
    """kappa = 30000 tells 32 tokens apart, but not 128, in real arithmetic."""
    for T, verdict in ((32, Verdict.PROVED), (128, Verdict.REFUTED)):
        v = token_codes.quarter_circle(T)
        printed = printed_softmax_code(v, L=10, dtype="float32", kappa=30000.0, alpha=0.01).module()
        assert certify(printed, budget=5).verdict is verdict
        assert certify(tagged_softmax_code(v, L=10, dtype="float32").module()).verdict is Verdict.PROVED
    binary = printed_softmax_code(token_codes.binary(32), L=10, dtype="float32", kappa=200.0, alpha=0.01)
    assert certify(binary.module()).verdict is Verdict.PROVED


@pytest.mark.parametrize("kind", ["dot", "bos"])
def test_signed_simplex(kind):
    for T, L in ((32, 10), (6, 3), (32, 16)):
        assert certify(signed_simplex(kind, T=T, L=L, dtype="float32").module()).verdict is Verdict.PROVED
    for T, L in ((7, 3), (6, 4)):
        with pytest.raises(NotKnown):
            signed_simplex(kind, T=T, L=L, dtype="float32")


@pytest.mark.parametrize("kind", ["dot", "bos"])
@pytest.mark.parametrize(("T", "L", "d"), [(6, 3, 6), (28, 5, 22), (16, 3, 11)])
def test_low_coherence_and_one_neuron(kind, T, L, d):
    """A-4.4 with p = 1, on a simplex and on equiangular tight frames: (28, 21) has M = 1/9 < 1/7."""
    certificate = certify(fewer_dimensions.coherent(kind, T=T, L=L, d=d))
    assert certificate.verdict is Verdict.PROVED and certificate.parameters["p"] == 1


@pytest.mark.parametrize(("model", "T", "L", "d"), [("lin", 36, 3, 15), ("lin+sftm", 36, 3, 15), ("dot", 28, 9, 7)])
def test_low_coherence_and_a_neuron_per_token(model, T, L, d):
    """A-4.4 with p = T: (36, 15) has M = 1/5 < 1/3, and (28, 7) has M = 1/3 < 1/sqrt(8); L + 1 is too long for it."""
    certificate = certify(fewer_dimensions.coherent(model, T=T, L=L, d=d, p=T))
    assert certificate.verdict is Verdict.PROVED and certificate.parameters["p"] == T
    with pytest.raises(NotKnown, match="coherence"):
        fewer_dimensions.coherent(model, T=T, L=L + 1, d=d, p=T)


@pytest.mark.parametrize(("model", "L"), [("lin", 2), ("lin+sftm", 2), ("dot", 4), ("bos", 4)])
def test_counting_on_a_frame_by_enumeration(model, L):
    """Six lines through the icosahedron, M = 1/sqrt(5): every sequence is run, and a wrong weight is seen."""
    module = fewer_dimensions.coherent(model, T=6, L=L, d=3, p=6, dtype=torch.float64)
    assert exhaustive(module).verdict is Verdict.PROVED
    with torch.no_grad():
        module.E[0] = module.E[1]
    assert exhaustive(module).verdict is Verdict.REFUTED


def test_coherence_that_is_too_large_is_not_known():
    with pytest.raises(NotKnown, match="coherence"):
        fewer_dimensions.coherent("dot", T=6, L=5, d=4)


@pytest.mark.parametrize(
    ("model", "T", "L", "d"),
    first(
        1, [("lin", 12, 5, 11), ("dot", 12, 6, 5), ("dot+sftm", 12, 6, 5), ("lin+sftm", 12, 5, 11), ("bos", 12, 6, 5)]
    ),
)
@pytest.mark.deep
def test_codes_are_proved(model, T, L, d):
    found = search(CARRIER[model], T, L, d, steps=500)
    for dtype in ("float32", "float64"):
        module = on_code(model, found, L=L, dtype=dtype).module()
        certificate = certify(module)
        assert certificate.verdict is Verdict.PROVED and module.d == d


def test_the_kept_code_for_dot_sftm_in_six_dimensions():
    certificate = certify(fewer_dimensions.code("dot+sftm", T=32, L=10, d=6, p=32))
    assert certificate.verdict is Verdict.PROVED and certificate.inputs_covered == 32**10


def test_the_simplex_counts_in_lin_for_every_length():
    T = 6
    E = np.linalg.svd(np.eye(T) - 1 / T)[0][:, : T - 1]
    for L in (3, 10, 40):
        code = Code("lin", E, np.eye(T - 1), E.T, 1.0)
        assert certify(on_code("lin", code, L=L, dtype="float64").module()).verdict is Verdict.PROVED


def test_an_uneven_code_is_refused():
    E = normalized(np.random.default_rng(0).normal(size=(8, 3)))
    code = Code("lin", E, np.eye(3), E.T, -1.0)
    with pytest.raises(NotKnown, match="gap"):
        on_code("lin", code, L=8, dtype="float64")


@pytest.mark.parametrize(("T", "L", "d_lin", "d_dot"), first(1, [(5, 3, 4, 3), (7, 4, 6, 4)]))
@pytest.mark.deep
def test_the_gap_is_the_reading_of_the_module(T, L, d_lin, d_dot):
    """log R of the search against the neuron of the built module, input by input."""
    for model, d in (("lin", d_lin), ("dot", d_dot), ("dot+sftm", d_dot)):
        code = search(model, T, L, d, steps=100 * (T - 3) // 2)
        module = on_code(model, code, L=L, dtype="float64").module()
        scale = module.W_2[:, 1] - module.W_2[:, 0]
        for t in range(T):
            values = {}
            for s in (s for s in range(T) if s != t):
                for k in range(1, L + 1):
                    tokens = torch.tensor([t] * k + [s] * (L - k))
                    x = module.E[tokens]
                    z = ((x + module.mixing(x, x) @ x) @ module.W_1 + module.b_1)[0]
                    values[s, k] = (z[t] * scale[t]).item()
                    assert max(z[i].item() for i in range(T) if i != t) <= 1e-12
            top = values[(t + 1) % T, L]
            E, W_1 = module.E.detach().numpy(), module.W_1.detach().numpy()
            log_R = log_readings(model, E, code.X, W_1, L)[..., t, :]
            ratio = [(top - values[s, 1]) for s in range(T) if s != t] / np.exp(log_R[0])
            assert ratio.max() / ratio.min() == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("seeds", first(1, [range(15), range(15, 200)]))
@pytest.mark.parametrize("kind", ["lin", "lin+sftm", "dot+sftm"])
def test_one_neuron_never_suffices_without_bos(kind, seeds):
    """W-5 on random weights: no model with p = 1 is right on two tokens and two positions."""
    for seed in seeds:
        g = torch.Generator().manual_seed(seed)
        module = HistogramTransformer(kind, T=2, L=2, d=2, p=1, dtype=torch.float64)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=g))
        assert certify(module).verdict is Verdict.REFUTED


def test_sizes_as_printed_and_if_attained():
    def at(build, T, L):
        bound = build()
        return int(bound.at(bound.printed, T=T, L=L)), int(bound.at(bound.if_attained, T=T, L=L))

    assert at(coherent_counting.lin, 32, 10) == (29, 29)
    assert at(coherent_counting.dot_one_neuron, 32, 10) == (30, 30)
    assert at(coherent_counting.dot_inventory, 32, 10) == (8, 8)  # evaluated as 7 in the document
    assert at(coherent_counting.lin, 50, 5) == (25, 26)
    assert at(coherent_counting.softmax_relation, 32, 10)[0] == 8
    assert at(coherent_counting.softmax_relation, 31, 10)[0] == 7
    epsilon, T = coherent_counting.epsilon_quarter_circle(), coherent_counting.T
    assert sympy.limit(2 * epsilon * T**2, T, sympy.oo) == 1


@pytest.mark.parametrize(("T", "L", "steps"), first(1, [(4, 3, 20), (5, 3, 100), (6, 4, 200)]))
def test_frontier_is_proved_saved_and_judged_again(tmp_path, capsys, T, L, steps):
    sizes = ["--T", str(T), "--L", str(L), "--steps", str(steps)]
    argv = ["frontier", "histogram", "--model", "all", *sizes, "--json"]
    assert main([*argv, "--save", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 6 and all(row["margin"] > 0 and row["lower bound on d"] <= row["d"] <= T for row in rows)
    for row in rows:
        path = tmp_path / f"{row['model']}_T{T}_L{L}_d{row['d']}.safetensors"
        assert json.loads(path.with_suffix(".json").read_text())["verdict"] == "PROVED"
        assert main(["histogram", "--weights", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] == "PROVED"


@pytest.mark.parametrize(("T", "L", "steps"), first(1, [(6, 3, 100), (8, 4, 200)]))
@pytest.mark.deep
def test_frontier_respects_the_rank_bound(T, L, steps):
    frontier = smallest_d("lin", T, L, steps=steps)
    assert frontier.lower_bound <= frontier.d <= T - 1
    assert frontier.certificate.verdict is Verdict.PROVED


def test_unknown_and_impossible_are_two_things(capsys, monkeypatch):
    monkeypatch.setattr(code_library, "find", lambda *a, **k: search("dot", 16, 10, 2, steps=20))
    monkeypatch.setattr(planar_relation, "plane", partial(plane, steps=20))
    small = ["--T", "16", "--L", "10"]
    assert main(["histogram", "--model", "dot", "--p", "16", "--d", "2", *small, "--json"]) == 3
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"] == "UNKNOWN" and "d >= 5 (W-18)" in result["reason"]
    assert main(["histogram", "--model", "bos+sftm", "--d", "2", "--p", "1", *small]) == 3
    assert "UNKNOWN" in capsys.readouterr().out
    assert main(["histogram", "--model", "lin", "--p", "1", *small]) == 2
    assert "impossible" in capsys.readouterr().err


@pytest.mark.parametrize(("T", "L"), first(1, [(4, 2), (3, 3)]))
@pytest.mark.deep
def test_one_neuron_in_the_plane(T, L):
    assert certify(plane(T=T, L=L, dtype="float32", steps=300).module()).verdict is Verdict.PROVED


@pytest.mark.deep
@pytest.mark.parametrize(("T", "L"), [*((3, L) for L in range(2, 11)), *((T, 2) for T in range(4, 9))])
def test_all_sizes_that_the_claim_names(T, L):
    """W-8, with the command's own number of steps."""
    assert certify(plane(T=T, L=L, dtype="float32").module()).verdict is Verdict.PROVED


def test_the_plane_refuses_what_it_cannot_find():
    with pytest.raises(NotKnown, match="gap about -"):
        plane(T=5, L=4, dtype="float32", steps=50)


@pytest.mark.parametrize("form", first(1, ["json", "latex", "rich", "markdown", "csv"]))
def test_bounds_command(form, capsys):
    assert main(["bounds", "--T", "8:24:8", "--L", "10", "--format", form]) == 0
    out = capsys.readouterr().out
    assert "lin" in out
    if form == "json":
        assert len(json.loads(out)) == 3 * 10  # ten rows for each T
    assert main(["bounds", "--T", "8", "--L", "10", "--formulas", "--format", form]) == 0


@pytest.mark.parametrize("T", ["1", "x", "8:4", "0:10:0", "1:99999"])
def test_bad_ranges(T, capsys):
    assert main(["bounds", "--T", T, "--L", "10"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("T", "d", "code_size"), [(32, 3, 2), (32, 5, 4), (32, 6, 5), (2, 2, 1)])
def test_digits_take_the_base_that_fits(T, d, code_size):
    """W-23, and against the sizes of the codes themselves."""
    module = fewer_dimensions.digits("bos+sftm", T=T, L=6, d=d)
    assert module.d == d == code_size + 1 and certify(module).verdict is Verdict.PROVED
    with pytest.raises(BadInput, match="Use --d"):
        fewer_dimensions.digits("bos+sftm", T=32, L=6, d=2)


def test_gaussian_shares_agree_with_the_exact_decision():
    """Some readouts exist where the linear program says so, in floats, and where rationals do."""
    from fractions import Fraction

    from verify.tasks.histogram.gaussian import has_readouts, shares
    from verify.tasks.histogram.kernels import Even, decide_kernel

    rng = np.random.default_rng(0)
    for L in (2, 3):
        u = rng.integers(-9, 10, size=8)
        u = u - np.append(np.zeros(7, int), u.sum())
        E = np.linalg.qr(np.column_stack([np.ones(8), u, rng.normal(size=(8, 6))]))[0][:, 2:]
        exact = decide_kernel([[Fraction(int(x))] for x in u], L)
        assert has_readouts(E, L) == isinstance(exact, Even)
    found = shares(5, 3, 4, draws=10)
    assert (found.lin_any, found.relation) == (10, 10) and found.lin_own < 10
