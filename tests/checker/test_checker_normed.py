"""Count01 models with a layer norm, in real arithmetic: what enumeration calls right is accepted, and nothing else."""

import hashlib
import json
import random
from itertools import product

import pytest
import torch
from models.selection import first
from test_checker_real import outcome

from constructions import count01
from tests.planted import planted
from verify.checker.normed_prompts import NormedPrompts, triples
from verify.checker.reading import NOT_CHECKABLE
from verify.frame.decide import certify
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01

DIGITS, NOISE = 3, 2
PARAMETERS = ("E", "W_Q", "W_K", "W_V", "W_O", "W_out", "b_out", "norm_weight", "norm_bias")


def saved(model):
    """The file of a model and its certificate."""
    problem = Count01.of(model, "majority-ones", PromptDomain(DIGITS, NOISE))
    weights = count01.as_bytes(model)
    return weights, json.loads(certify(problem).about(weights).to_json())


def least_gap(model):
    """The least (due logit) - (largest other) of all prompts, as torch computes it in float64."""
    found = []
    for n0, n1, n2 in product(range(DIGITS + 1), range(DIGITS + 1), range(NOISE + 1)):
        string = [0, *[1] * n0, *[2] * n1, *[3] * n2, 4]
        for last in (None, 5, 6):
            due = 7 if last else 5 if n1 > n0 else 6
            logits = model.next_logits(torch.tensor([*string, *([last] if last else [])])).tolist()
            found.append(logits[due] - max(x for j, x in enumerate(logits) if j != due))
    return min(found)


def changed(seed):
    """The built model with one number moved, and often its gain, bias and epsilon."""
    draw, model = random.Random(seed), count01.normed()
    with torch.no_grad():
        for name in draw.sample(PARAMETERS, draw.randint(1, 2)):
            W = getattr(model, name).view(-1)
            W[draw.randrange(len(W))] += draw.choice([-1, 1]) * 2.0 ** -draw.randint(1, 9)
        model.norm_eps.fill_(draw.choice([1e-5, 0.0, 0.5]))
    return model


@pytest.mark.parametrize("seeds", first(1, [range(6), range(6, 150)]), ids=str)
def test_what_holds_is_what_enumeration_says(seeds):
    """A proof of any drawn model with any margin holds exactly if the margin is no larger than the least gap."""
    weights, proof = saved(count01.normed())
    assert outcome(weights, json.dumps(proof)) == (0, "PROVED")
    right = 0
    for seed in seeds:
        model = changed(seed)
        weights, least = count01.as_bytes(model), least_gap(model)
        digest = hashlib.sha256(weights).hexdigest()
        for margin in (least - 1e-9, least + 1e-9, proof["margin"], 1e-3):
            said = proof | {"weights_sha256": digest, "margin": margin}
            holds = outcome(weights, json.dumps(said))[0] == 0
            assert holds == (0 < margin <= least), (seed, margin, least)
            right += holds
    assert right


def test_fields_of_another_statement_are_refused():
    weights, proof = saved(count01.normed())
    for name, value in (
        ("inputs_covered", "143"),
        ("margin", 0.5),
        ("region", "n0, n1 <= 4, n2 <= 2"),
        ("margin", 0.0),
    ):
        assert outcome(weights, json.dumps(proof | {name: value}))[0] == 1, name
    for change in ({"verdict": "REFUTED"}, {"reading": "dtype, any order"}):
        assert outcome(weights, json.dumps(proof | change))[0] == NOT_CHECKABLE
    endless = proof | {"parameters": proof["parameters"] | {"max_digits": None}, "region": "all n0, n1, n2 <= 2"}
    assert outcome(weights, json.dumps(endless))[0] == NOT_CHECKABLE


@pytest.mark.parametrize(
    "fault", [("_lines", "(0, EQUALS,", "(EQUALS,"), ("gaps", "zip(line, row,", "zip(line, (1, *row[:3]),")], ids=str
)
def test_a_checker_that_forgets_something_is_found(fault):
    weights, proof = saved(count01.normed())
    with planted(NormedPrompts, *fault):
        assert outcome(weights, json.dumps(proof))[0] == 1


@pytest.mark.parametrize("domain", [(0, None, 0, None, 4), (0, 10**12, 0, 10**12, 2), (1, 3, 1, 2, None)], ids=str)
def test_prompts_are_those_of_the_region(domain):
    """Each once, and none are looked for beyond the most digits of all."""
    lo, hi, m, M, total = ((10 if x is None else x) for x in domain)
    for is_more in (True, False):
        due = [
            (n0, n1, n2)
            for n0, n1, n2 in product(range(10), repeat=3)
            if min(n0, n1) >= lo and max(n0, n1) <= hi and m <= n2 <= M and sum((n0, n1, n2)) <= total
            if (n1 > n0) == is_more
        ]
        assert [*triples(domain, is_more)] == due
