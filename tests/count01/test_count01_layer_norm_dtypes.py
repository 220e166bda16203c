"""Count01 behind LayerNorm in a dtype: several ways to normalise and orders, torch, 60 digits, planted faults."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
import torch
from command import as_json
from models.selection import every, first
from planted import planted

from constructions import count01 as build
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import Evaluation, rounded_model, square_root
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.readings import reading_of
from verify.arithmetic.rounding import add, divide, multiply
from verify.frame.certificate import Verdict
from verify.tasks.count01 import real, rounding
from verify.tasks.count01.boxes import BoxQuery, decide_boxes
from verify.tasks.count01.rounding import QueryErrors
from verify.tasks.count01.runs import fails, rounded_logits, sequential_logits
from verify.tasks.count01.task import EQUALS, PromptDomain, cells, triples
from verify.tasks.count01.verdict import certify

ONES = "majority-ones"
FORMS = [("p9", None), ("bfloat16", "float32"), ("float32", None), ("tf32", None), ("float16", None)]
ATTACKED = list(product((0, 2, 3), FORMS[:3]))
POINTS = [(0, 0, 0), (1, 0, 1), (1, 1, 1)]


def changed(seed):
    """The built model; with all numbers changed a little; with unequal weights; with variances as small as eps."""
    g = torch.Generator().manual_seed(seed)
    model = build.normed()
    with torch.no_grad():
        for name, W in model.named_parameters():
            noise = 0.5 if seed >= 2 and name in ("W_Q", "W_K") else 0.02
            if seed:
                W += noise * torch.randn(W.shape, generator=g, dtype=W.dtype)
        if seed == 3:  # and a mean far above
            model.E *= 2.0**-8
            model.E += 0.25
            model.W_out /= 4
    return model


class ByOnePass(Evaluation):
    """The mean of the squares less the square of the mean."""

    def layer_norm(self, x, weight, bias, eps):
        d, ones = np.array(float(x.shape[-1])), np.ones(x.shape[-1])
        mean = self(divide, self.dot(x, ones), d)[..., None]
        square = self(divide, self.dot(x, x), d)[..., None]
        variance = self(add, square, -self(multiply, mean, mean))
        root = self(square_root, self(add, np.maximum(variance, 0.0), np.array(eps)))
        normal = self.tensor(self(divide, self(add, x, -mean), root))
        return self.tensor(self(add, self.tensor(self(multiply, normal, weight)), bias))


class ByRunningMeans(Evaluation):
    """Welford's update, then one product and one sum: x (w/s) + (b - mean w/s)."""

    def layer_norm(self, x, weight, bias, eps):
        mean, squares = np.zeros(x.shape[:-1]), np.zeros(x.shape[:-1])
        for i in range(x.shape[-1]):
            away = self(add, x[..., i], -mean)
            mean = self(add, mean, self(divide, away, np.array(i + 1.0)))
            squares = self(add, squares, self(multiply, away, self(add, x[..., i], -mean)))
        variance = self(divide, squares, np.array(float(x.shape[-1])))
        root = self(square_root, self(add, variance, np.array(eps)))[..., None]
        scale = self(multiply, self(divide, np.array(1.0), root), weight)
        shift = self(add, bias, -self(multiply, mean[..., None], scale))
        return self.tensor(self(add, self(multiply, x, scale), shift))


def runs(precision, accumulate):
    """Evaluations of each kind, in some orders."""
    wider = FORMATS[accumulate] if accumulate else None
    for kind, order in product((Evaluation, ByOnePass, ByRunningMeans), ("left to right", "random")):
        yield kind(format_named(precision), wider, order, seed=7)


def exactly(model):
    """The LayerNorm of each token, in 60 digits."""
    E, w, b = (W.double().tolist() for W in (model.E, model.norm_weight, model.norm_bias))
    with mpmath.workdps(60):
        out = []
        for row in E:
            mean = mpmath.fsum(row) / len(row)
            root = mpmath.sqrt(mpmath.fsum((x - mean) ** 2 for x in row) / len(row) + mpmath.mpf(float(model.norm_eps)))
            out.append([(x - mean) / root * y + z for x, y, z in zip(row, w, b, strict=True)])
        return out


@cache
def attacked(seed, precision, accumulate):
    """The least margin of all runs, of each cell at each of POINTS."""
    model, rng, found = rounded_model(changed(seed), format_named(precision)), random.Random(seed), {}
    for i, cell in enumerate(cells(ONES)):
        for point in POINTS:
            n = cell.side.at(*point)
            digits = [1] * n[0] + [2] * n[1] + [3] * n[2]
            end = [4] if cell.last == EQUALS else [4, cell.last]
            tokens = torch.tensor([[0, *rng.sample(digits, len(digits)), *end] for _ in range(2)])
            logits = np.concatenate([rounded_logits(model, tokens, at) for at in runs(precision, accumulate)])
            rivals = np.delete(logits, cell.expected, axis=1).max(1)
            found[i, point] = float((logits[:, cell.expected] - rivals).min())
    return found


def is_wrong_somewhere(cases=ATTACKED):
    """A computed LayerNorm is outside of its radius, or a run goes below a bound."""
    for seed, (precision, accumulate) in cases:
        at = RoundedArithmetic.of(format_named(precision), FORMATS[accumulate] if accumulate else None)
        model = rounded_model(changed(seed), format_named(precision))
        exact = real.exact_model(model, rounding.seen(model, at).mid)
        lowest = attacked(seed, precision, accumulate)
        for i, cell in enumerate(cells(ONES)):
            query = BoxQuery(model, exact, cell, at)
            points = np.array(POINTS, dtype=float)
            with np.errstate(all="ignore"):
                bounds = query.lower_bounds(points, points)
            if any(bound > lowest[i, point] for bound, point in zip(bounds.tolist(), POINTS, strict=True)):
                return True
    return False


@pytest.mark.parametrize("seed", range(4))
def test_every_layer_norm_is_within_its_radius(seed):
    for precision, accumulate in FORMS:
        at = RoundedArithmetic.of(format_named(precision), FORMATS[accumulate] if accumulate else None)
        model = rounded_model(changed(seed), format_named(precision))
        read, weights = rounding.seen(model, at), (model.E, model.norm_weight, model.norm_bias)
        stored = [W.detach().numpy() for W in weights]
        assert all(
            abs(x - y) <= r
            for xs, ys, rs in zip(exactly(model), read.mid.tolist(), read.rad.tolist(), strict=True)
            for x, y, r in zip(xs, ys, rs, strict=True)
        )
        for run in runs(precision, accumulate):
            found = run.layer_norm(*stored, float(model.norm_eps))
            assert (np.abs(found - read.mid) <= read.rad).all(), (precision, run)


@pytest.mark.parametrize(("seed", "form"), every(4, ATTACKED))  # each seed and each form by default
def test_no_run_goes_below_a_bound(seed, form):
    assert not is_wrong_somewhere([(seed, form)])


FAULTS = [
    (rounding, "seen", "torch.where(is_known, found.radius, torch.inf)", "0.0 * found.mid"),
    (rounding, "seen", "float(model.norm_eps)", "0.0"),
    (real, "exact_model", "found = read[list(lasts)]", "found = E[list(lasts)]"),
    (real, "exact_model", "for row in read @ W_V", "for row in E @ W_V"),
]


@pytest.mark.parametrize(("owner", "name", "right", "wrong"), first(1, FAULTS))
def test_planted_faults_are_caught(owner, name, right, wrong):
    with planted(owner, name, right, wrong):
        assert is_wrong_somewhere()


@pytest.mark.parametrize("name", first(1, ["float32", "float64", "float16"]))
def test_what_is_proved_holds_for_every_string_that_torch_runs(name, device):
    proofs, dtype = 0, build.DTYPES[name]
    for seed in range(3):
        model, domain = changed(seed).to(dtype), PromptDomain(2, 1)
        if certify(model, ONES, domain, reading=reading_of(name)).verdict is not Verdict.PROVED:
            continue
        proofs += 1
        model.to(device)
        rng = random.Random(seed)
        for n in triples(domain):
            for last in (4, 5, 6):
                due = 7 if last != 4 else 5 if n[1] > n[0] else 6
                digits = [1] * n[0] + [2] * n[1] + [3] * n[2]
                end = [4] if last == 4 else [4, last]
                tokens = torch.tensor([[0, *rng.sample(digits, len(digits)), *end] for _ in range(3)], device=device)
                found = torch.cat([model.next_logits(tokens), sequential_logits(model, tokens)])
                for logits in found.double().tolist():
                    assert not fails(logits, due), (n, last)
    assert proofs


def test_a_root_that_may_be_lost_proves_nothing():
    """Without eps, a token whose entries are equal is divided by 0; a square beyond the largest number overflows."""
    model = build.normed()
    with torch.no_grad():
        model.E[2] = 1.0
    model.norm_eps.fill_(0.0)
    large = build.normed()
    with torch.no_grad():
        large.E *= 2.0**70
    for broken in (model, large):
        found = decide_boxes(broken, ONES, PromptDomain(1, 1), RoundedArithmetic.of(FORMATS["float32"]))
        assert not found.is_proved and "LayerNorm" in found.reason


def test_equal_tokens_may_be_normalised_differently():
    model = build.Count01Transformer(norm=True)
    with torch.no_grad():
        model.norm_weight.fill_(1)
    at = RoundedArithmetic.of(FORMATS["float32"])
    assert not QueryErrors(model, EQUALS, at).is_one_number(1)
    assert QueryErrors(build.Count01Transformer(), EQUALS, at).is_one_number(1)


def test_the_built_model_by_command(capsys):
    words = ("count01", "--construction", "layer-norm", "--max-digits", "12", "--max-noise", "6", "--precision")
    for precision in ("float64", "float32"):
        code, out = as_json(capsys, *words, precision)
        assert code == 0 and out["verdict"] == "PROVED" and int(out["inputs_covered"]) == 3 * 13 * 13 * 7
        assert any("LayerNorm" in line for line in out["assumptions"])
    code, out = as_json(capsys, *words, "bfloat16")
    assert code == 3 and out["verdict"] == "UNKNOWN"


def test_how_far_float32_goes():
    model, at = build.normed(dtype=torch.float32), RoundedArithmetic.of(FORMATS["float32"])
    assert decide_boxes(model, ONES, PromptDomain(max_length=2808), at).is_proved
    assert not decide_boxes(model, ONES, PromptDomain(max_length=2809), at).is_proved
