"""Every object that a command prints with --json names its schema, and is what docs/schema.json says."""

import json
from pathlib import Path

import pytest

from constructions.errors import BadInput
from tests.tools import corpus
from verify import Certificate, Verdict
from verify.frame.schema import SCHEMA

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "schema.json"
PROVED = Certificate(Verdict.PROVED, None, "t", {}, "real", "certified", 9)
SOME = 400  # of each so many lines of the corpus, one runs by default


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        corpus.prepare()
    return place


def validated(chosen, folder, monkeypatch):
    """How many lines printed JSON; each of them is valid."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    monkeypatch.chdir(folder)
    printed = 0
    for line in chosen:
        said = corpus.answered(line)
        for found in said:
            errors = [error.message[:200] for error in schema.iter_errors(found)]
            assert not errors, (line, errors, str(found)[:300])
            objects = found if isinstance(found, list) else [found]
            assert all(each["schema"] == SCHEMA for each in objects), line
            printed += 1
    return printed


def test_some_of_the_corpus_is_valid(folder, monkeypatch):
    chosen = [*corpus.lines()][::SOME] + ["check saved", "claims A-4.2", "kernel saved", "modular --P 13 --best 2"]
    chosen += [
        "repair dot-noise.safetensors",
        "radius dot-same.safetensors --tensors W_2",
        "quantise dot-zero.safetensors",
        "train recurrent --modulus 3",
    ]
    assert validated(chosen, folder, monkeypatch) > len(chosen) / 2


@pytest.mark.deep
def test_all_of_the_corpus_is_valid(folder, monkeypatch):
    assert validated([*corpus.lines()], folder, monkeypatch) > 400


def test_the_schema_refuses_what_is_no_answer():
    jsonschema = pytest.importorskip("jsonschema")
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    certificate = PROVED.to_dict()
    assert schema.is_valid(certificate)
    for name, value in {
        "schema": "weightproof/2", "verdict": "TRUE", "inputs_covered": 9, "reading": "float32", "margin": "0.5",
        "assumptions": None, "counterexample": {"input": [0], "expected": 1, "predicted": 2}, "error_share": [0.5],
    }.items():  # fmt: skip
        assert not schema.is_valid(certificate | {name: value}), name
    assert not schema.is_valid({key: value for key, value in certificate.items() if key != "schema"})


def test_a_certificate_of_another_schema_is_refused():
    said = PROVED.to_dict() | {"schema": "weightproof/2"}
    with pytest.raises(BadInput, match="its schema is not weightproof/1"):
        Certificate.from_json(json.dumps(said))
    del said["schema"]
    assert Certificate.from_json(json.dumps(said)).verdict == "PROVED"
