"""One contract for every field, over all tasks, readings, methods and verdicts (docs/certificate.md)."""

import json
import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from constructions import circuit_simulation, contextual_counting, count01, parity, relation_counting
from constructions.errors import BadInput
from tests.models.judged import NAND
from verify import Certificate, certify
from verify.frame.certificate import KEYS

TEXT = (Path(__file__).parents[2] / "docs" / "certificate.md").read_text(encoding="utf-8")


def broken(module):
    """Every logit the same: wrong everywhere, by a tie or by the wrong class."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
    return module


def overflowing(module):
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(1e30)
    return module


def slightly(module):
    with torch.no_grad():
        module.W_2[0, 0] += 0.6
    return module


OPTIONS = {
    "histogram": {},
    "count01": {"max_length": 4},
    "contextual": {"length": 5},
    "circuit": {"circuit": NAND},
    "parity": {},
}
RIGHT = {
    "histogram": lambda: relation_counting.bos(T=3, L=3),
    "count01": lambda: count01.uniform(),
    "contextual": lambda: contextual_counting.build(6, 2),
    "circuit": lambda: circuit_simulation.build(NAND.circuit, s=3),
    "parity": lambda: parity.sawtooth(T=3, L=3),
}
READINGS = {
    "histogram": ("real", "float32", "bfloat16", "p2", "s2", "s6"),
    "count01": ("real", "float64", "p3", "s6"),
    "contextual": ("real", "float32"),
    "circuit": ("real", "float32", "p2", "s1", "s3"),
    "parity": ("real",),
}
METHODS = {
    "histogram": ("exhaustive", "sampled"),
    "count01": ("exhaustive", "sampled"),
    "contextual": ("exhaustive", "sampled"),
    "circuit": ("exhaustive", "sampled"),
    "parity": ("exhaustive", "sampled"),
}
CASES = [
    (task, model, reading, method)
    for task in RIGHT
    for model in ("right", "broken", "overflowing")
    for reading, method in [(r, "certified") for r in READINGS[task]] + [(None, m) for m in METHODS[task]]
]
EXTRA = [
    ("count01", lambda: count01.uniform(), {}),
    ("count01", lambda: count01.documents(5), {}),
    ("count01", lambda: count01.as_printed(5), {}),
    ("histogram", lambda: slightly(relation_counting.bos(T=3, L=3)), {"method": "sampled"}),
    ("histogram", lambda: relation_counting.bos(T=12, L=8, as_printed=True), {"reading": "s4", "budget": 0.1}),
    ("histogram", lambda: relation_counting.bos(T=12, L=8), {"reading": "s9", "budget": 0.1}),
    ("histogram", lambda: relation_counting.bos(T=2, L=1), {}),
]


@cache
def decided(task, model, reading, method):
    change = {"right": lambda m: m, "broken": broken, "overflowing": overflowing}[model]
    named = {} if reading is None else {"reading": reading}
    return certify(change(RIGHT[task]()), method=method, **named, **OPTIONS[task])


def check(certificate):
    """Every rule of the page."""
    said = json.loads(certificate.to_json())
    verdict, found = said["verdict"], said["counterexample"]
    assert set(KEYS) <= set(said) and Certificate.from_json(certificate.to_json()) == certificate
    assert bool(certificate) is (verdict == "PROVED")
    assert said["reading"] in ("real", "dtype, any order", "bit-exact")
    assert said["method"] in ("certified", "exhaustive", "sampled") and said["argument"]
    assert not (verdict == "PROVED" and said["method"] == "sampled")
    if verdict == "PROVED":
        assert said["inputs_covered"] == "infinite" or int(said["inputs_covered"]) > 0
        assert said["margin"] is None or (said["margin"] >= 0 and math.isfinite(said["margin"]))
        assert found is None and said["reason"] is None
    elif verdict == "REFUTED":
        assert said["inputs_covered"] == "1" and said["reason"] is None and said["tightest"] is None
        assert said["margin"] is None or said["margin"] <= 0
        assert {"input", "expected", "predicted"} <= set(found) and found["predicted"] != found["expected"]
    else:
        assert said["inputs_covered"] == "0" and said["reason"] and said["margin"] is None
        assert found is None and said["tightest"] is None and said["margin_per_count"] is None
    if "margin_scaled" in said:
        assert verdict == "PROVED" and said["margin"] is None and said["margin_scaled"] > 0
    elif verdict == "PROVED" and said["margin"] is None:
        assert said["task"] == "circuit" or said["parameters"]["L"] == 1  # g = 1/2 for a token 0, or no other class
    if "counts" in said:
        right, wrong = int(said["counts"]["right"]), int(said["counts"]["wrong"])
        assert (wrong > 0) is (verdict == "REFUTED") and (verdict != "PROVED" or str(right) == said["inputs_covered"])
    if said["method"] == "sampled":
        assert said["samples"] <= 1000 and "counts" not in said
    assert said["error_share"] is None or 0 <= said["error_share"][0] <= said["error_share"][1] <= 1
    for key in said:
        assert f"`{key}`" in TEXT or key in ("boxes", "search_ended_at", "strings"), key
    return verdict


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_the_contract_holds(case):
    try:
        verdict = check(decided(*case))
    except BadInput as refusal:  # numbers beyond what a proof takes are refused, and never decided
        assert case[1] == "overflowing" and "\n" not in str(refusal)
        return
    if case[3] != "sampled" and case[1] == "broken":
        assert verdict == "REFUTED"


@pytest.mark.parametrize("i", range(len(EXTRA)))
def test_the_contract_holds_elsewhere(i):
    task, build, options = EXTRA[i]
    check(certify(build(), **options))


def test_all_verdicts_of_all_tasks_are_in_the_table():
    seen = {(case[0], decided(*case).verdict.value) for case in CASES if case[1] != "overflowing"}
    assert {(task, verdict) for task in RIGHT for verdict in ("PROVED", "REFUTED")} <= seen
    assert {task for task, verdict in seen if verdict == "UNKNOWN"} >= {"histogram", "count01", "circuit", "parity"}


def test_samples_are_no_more_than_the_domain_has():
    small = certify(relation_counting.bos(T=3, L=1), method="sampled")
    assert small.extra["samples"] == 3 and small.inputs_covered == 0


def test_a_nan_has_no_margin():
    refuted = decided("histogram", "overflowing", None, "exhaustive")
    assert refuted.verdict.value == "REFUTED" and refuted.margin is None and refuted.counterexample["predicted"] is None


def test_an_infimum_of_zero_is_not_a_margin():
    certificate = certify(count01.uniform())
    assert certificate and certificate.inputs_covered is None and certificate.margin is None
    assert 0 < certificate.extra["margin_scaled"] <= 0.5


def test_a_token_zero_at_one_half_has_no_distance():
    """AND of two zeros: g = 1/2 exactly, which is the token 0, and right."""
    module = circuit_simulation.build(NAND.circuit, s=3)
    with torch.no_grad():
        module.layers[1].b_2[module.lanes.g] = 0.5
    for reading in ("s3", "real"):
        certificate = certify(module, circuit=NAND, reading=reading)
        assert certificate.margin is None or certificate.margin > 1e-9


def test_every_key_is_explained():
    assert all(re.search(rf"^\| .*`{key}`", TEXT, re.M) for key in KEYS)
