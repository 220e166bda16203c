"""Every string of one length, prefix by prefix: shares are those of plain loops, and leads those of 400 bits."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from models.selection import every
from oracles.contextual import counts as ones
from oracles.contextual import valid_strings
from oracles.contextual_positions import plain_margins

from constructions.contextual.positional import SHAPES
from constructions.contextual_with_positions import PE, build
from constructions.errors import BadInput
from tests.planted import planted
from verify.arithmetic.balls import Ball
from verify.tasks.contextual import exact
from verify.tasks.contextual.positional import every_string
from verify.tasks.contextual.positional.every_string import SizedNumbers, Walk, decide


def shaken(pe, seed, N=6, R=2, by=0.3):
    """A built model with a decoder MLP, its numbers moved until it is wrong on some strings."""
    torch.manual_seed(seed)
    module = build(N, R, pe, has_mlp=True)
    with torch.no_grad():
        for name, W in module.named_parameters():
            if name not in ("cosines", "sines", "slope", "W_K", "U_K"):
                W += by * torch.randn_like(W) * (W.abs() + 0.2)
        module.W_Q += 0.2 * torch.randn_like(module.W_Q)
        module.W_K.clamp_(-2, 2)
        module.U_K.clamp_(-4, 4)
        module.slope += 0.1 * (pe == "alibi")
    return module


def weights(module):
    return {name: getattr(module, name).double().numpy() for name in SHAPES}


def strings(N, M):
    return [["01[]".index(c) for c in text] for text in valid_strings(N, M, N) if text.count("[") == M]


def written(tokens):
    return "".join("01[]"[t] for t in tokens)


@pytest.mark.parametrize("pe", every(2, PE))
def test_shares_and_the_first_wrong_string_are_those_of_plain_loops(pe):
    module, seen = shaken(pe, 3), set()
    for N, M in ((5, 2), (6, 1)):
        found, W = decide(module, N, M), weights(module)
        leads = {tuple(x): plain_margins(W, x, ones(written(x), 2))[:M] for x in strings(N, M)}
        assert min(abs(lead) for each in leads.values() for lead in each) > 1e-9
        for prompt in range(M):
            right = Fraction(sum(each[prompt] > 0 for each in leads.values()), len(leads))
            assert found.shares[prompt] == every_string.PairShare(right, Fraction(0))
            seen.add(right)
        wrong = min((x, r) for x, each in leads.items() for r, lead in enumerate(each) if lead < 0)
        assert found.wrong == (list(wrong[0]), wrong[1])
        assert found.whole.right == sum(share.right for share in found.shares) / M
    assert any(0 < right < 1 for right in seen)


def outside(module, N=5, M=2):
    """By how many radii a lead is off what 400 bits say of it, at most over all strings."""
    walk, worst, number = Walk(module, N, M), 0.0, 0
    assert 0 < walk.radius < 1e-5
    for tokens, right, leads in walk.leads():
        for x, due, each in zip(tokens.tolist(), right.tolist(), leads.tolist(), strict=True):
            assert due == ones(written(x), M)
            known = exact.margins(walk.numbers, x, [*due, *[0] * (module.R - M)], is_causal=True)
            worst = max(worst, *(abs(lead - float(ball.mid())) for lead, ball in zip(each, known, strict=False)))
            number += 1
    assert number == every_string.RandomStrings(N, M).number()
    return worst / walk.radius


@pytest.mark.parametrize("pe", every(1, PE))
def test_leads_are_within_the_radius(pe):
    assert outside(shaken(pe, 5)) <= 1


FAULTS = [
    ("_with", "range(1, place)", "range(2, place)"),
    ("_with", "prefixes.values + weights", "prefixes.values - weights"),
    ("_out", "torch.relu(", "("),
    ("_read", "torch.relu(", "("),
    ("_with", "mixed[self.bos] + mixed[kind]", "mixed[kind]"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), every(2, FAULTS))
def test_a_planted_fault_is_found(name, right, wrong):
    with planted(Walk, name, right, wrong):
        assert outside(shaken("alibi", 5, N=4), N=4) > 1


def test_a_tie_is_wrong_and_what_is_too_near_is_decided_by_itself(monkeypatch):
    module = shaken("rope", 1, N=4)
    with torch.no_grad():
        module.W_out.zero_()
        module.b_out.fill_(1)
    found = decide(module, 4, 1)
    assert found.whole == every_string.PairShare(Fraction(0), Fraction(0)) and found.wrong == ([0, 0, 2, 3], 0)
    monkeypatch.setattr(every_string, "MOST_OPEN", 3)
    assert decide(module, 4, 1).whole == every_string.PairShare(Fraction(0), Fraction(21, 24))


def test_scores_without_a_radius_decide_nothing(monkeypatch):
    module = build(4, 1, "rope")
    with torch.no_grad():
        module.W_Q *= 1e3
        module.W_K *= -1e3
    assert Walk(module, 4, 1).radius == np.inf
    monkeypatch.setattr(every_string, "MOST_OPEN", 0)
    found = decide(module, 4, 1)
    assert found.whole == every_string.PairShare(Fraction(0), Fraction(1)) and found.wrong is None


def test_products_and_means_are_off_by_no_more_than_said():
    rng = np.random.default_rng(0)
    for _ in range(20):
        W, b = Ball(rng.normal(size=(4, 3)), np.full((4, 3), 1e-3)), Ball(rng.normal(size=3), np.full(3, 1e-2))
        x, e = rng.normal(size=4), 1e-2
        found = SizedNumbers(np.abs(x), np.full(4, e)).through(W, SizedNumbers.of(b))
        off = [rng.choice([-1, 1], size=shape) for shape in (4, (4, 3), 3)]
        moved = (x + e * off[0]) @ (W.mid + 1e-3 * off[1]) + b.mid + 1e-2 * off[2]
        assert (np.abs(moved - (x @ W.mid + b.mid)) <= found.error).all() and (np.abs(moved) <= found.size + 1e-9).all()
        v, w = rng.normal(size=(6, 2)), np.abs(rng.normal(size=6)) + 0.5
        values = SizedNumbers(np.abs(v).max(0), np.full(2, e)).averaged(1e-2, 1e-3, 6)
        other, near = v + e * rng.choice([-1, 1], size=v.shape), w + (1e-2 * w + 1e-3) * rng.choice([-1, 1], size=6)
        assert (np.abs(w @ v / w.sum() - near @ other / near.sum()) <= values.error).all()


@pytest.mark.parametrize(
    ("N", "M", "named"),
    [(6, 3, "regions=3"), (6, 0, "regions=0"), (3, 2, "regions=2"), (7, 2, "length=7"), (30, 2, "length=30")],
)
def test_what_does_not_fit_is_one_line(N, M, named):
    with pytest.raises(BadInput, match=named):
        decide(build(30 if N == 30 else 6, 2, "nope"), N, M)
