"""The certificate as an object, and the public face of the three packages."""

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from models.histogram_runs import exhaustive, sampled

import bounds
import constructions
import verify
from constructions.errors import BadInput
from constructions.relation_counting import bos
from tests.models.judged import MODELS, WAYS
from verify import Certificate, Verdict
from verify.histogram import certify

ROOT = Path(__file__).parents[2]
PROVED, REFUTED = certify(bos(T=3, L=2)), certify(bos(T=3, L=2, as_printed=True))
UNKNOWN = sampled(bos(T=3, L=2))
MADE = {
    "proved": lambda: PROVED,
    "refuted": lambda: REFUTED,
    "unknown": lambda: UNKNOWN,
    "exhaustive": lambda: exhaustive(bos(T=3, L=2)),
    **{" ".join(way): lambda way=way: WAYS[way](MODELS[way[0]]()) for way in WAYS},
}


@pytest.fixture(scope="module", params=MADE)
def certificate(request):
    return MADE[request.param]()


def test_only_a_proof_is_true(certificate):
    assert PROVED and not REFUTED and not UNKNOWN
    assert bool(certificate) is (certificate.verdict is Verdict.PROVED)


def test_what_is_written_is_read_back(certificate):
    again = Certificate.from_json(certificate.to_json())
    assert again == certificate and hash(again) == hash(certificate) and {again: 1}[certificate] == 1
    assert again.to_json() == certificate.to_json()
    assert type(again.verdict) is Verdict and type(again.assumptions) is tuple
    assert again != replace(certificate, claim="another") and again != certificate.to_json()


def test_numbers_that_json_has_no_words_for():
    wide = replace(PROVED, inputs_covered=7**9000, error_share=(Fraction(1, 3), Fraction(2, 3)), margin=float("inf"))
    again = Certificate.from_json(wide.to_json())
    assert again == wide and again.inputs_covered == 7**9000 and again.margin is None
    low, high = again.error_share
    assert low <= Fraction(1, 3) and Fraction(2, 3) <= high
    assert Certificate.from_json(replace(PROVED, inputs_covered=None).to_json()).inputs_covered is None


def test_one_line_says_the_verdict(certificate):
    assert str(certificate).startswith(certificate.verdict.value) and "\n" not in str(certificate)
    assert len(repr(certificate)) < 80 and certificate.verdict.value in repr(certificate)


def test_the_line_of_each_verdict():
    assert str(PROVED) == "PROVED histogram: all inputs (9), margin at least 0.499999, reading real"
    assert str(REFUTED) == "REFUTED histogram: input [0, 1], expected 1, predicted 2"
    assert str(UNKNOWN).startswith("UNKNOWN histogram: no failure among")


OTHERS = [
    "",
    "[]",
    "null",
    "{",
    "NaN",
    "[" * 100_000,
    json.dumps(PROVED.to_dict() | {"verdict": "TRUE"}),
    json.dumps(PROVED.to_dict() | {"inputs_covered": "-1"}),
    json.dumps(PROVED.to_dict() | {"inputs_covered": 9}),
    json.dumps(PROVED.to_dict() | {"margin": float("nan")}),
    json.dumps(REFUTED.to_dict() | {"counterexample": None}),
    json.dumps({key: value for key, value in PROVED.to_dict().items() if key != "task"}),
]


@pytest.mark.parametrize("text", OTHERS, ids=lambda text: text[:20])
def test_what_is_no_certificate(text):
    with pytest.raises(BadInput, match="^certificate: ") as refusal:
        Certificate.from_json(text)
    assert "\n" not in str(refusal.value)


def test_importing_verify_costs_nothing():
    """Neither torch nor numpy is imported: few modules are, and none of a library."""
    program = "import sys; before = set(sys.modules); import verify; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found = {name.partition(".")[0] for name in done.split()}
    assert "verify" in found and len(done.split()) < 20
    assert not found & {"torch", "numpy", "flint", "rich", "constructions"}


def test_what_a_package_says_it_has_is_there():
    program = ""
    for package in (verify, constructions, bounds):
        assert package.__version__ == verify.__version__ and len(set(package.__all__)) == len(package.__all__)
        program += f"from {package.__name__} import *\nimport {package.__name__} as p\n"
        program += "".join(f"assert {name} is p.{name}\n" for name in package.__all__)
    exec(program, {})


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="certfy"):
        _ = verify.certfy
    assert set(verify.__all__) <= set(dir(verify))
