"""Provers with a fault in their own search: the proof is saved as it is, an oracle calls it false, the checker too."""

import json
from functools import partial
from unittest import mock

import pytest
from models import certificates
from models.certificates import HISTOGRAMS, in_bits, in_dtype
from models.grokked import certified, hats
from models.random_models import random_model
from models.selection import first
from oracles import graph_in_dtype
from oracles.forged import falsehood
from oracles.histogram import all_wrong_pairs
from test_checker_modules import adder
from test_checker_modules_in_dtype import of_module
from test_checker_real import outcome
from test_splits import only_split, saved

from constructions import checkpoint
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.engine import margins
from verify.engine.guard import Guard
from verify.frame import decide
from verify.tasks.count01.heads import separability
from verify.tasks.count01.verdict import Count01
from verify.tasks.histogram import branch_and_bound, judging, regions, vertices
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.problem import Histogram
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.relaxation import Relaxation
from verify.tasks.inductive.task import Counting

NO_RUNS = {"_compared": lambda finding, *_: finding}  # beside a proof, which would contradict it


def histogram(name):
    module = HISTOGRAMS[name]()
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    return weights, certify(module).about(weights).to_json()


NAN_TO_LEAST = "low = np.where(np.isnan(found.low), -np.inf, found.low)"
FAULTS = {  # what is saved, and the fault: each takes the size of a margin for the margin
    "histogram": (
        lambda: histogram("bos, wrong"),
        (vertices, "end_margins", "difference[i, of] = np.inf",
         "difference = np.abs(difference); difference[i, of] = np.inf"),
    ),
    "histogram in 3 bits": (
        lambda: in_bits(3, "bos, wrong"),
        (Histogram, "runner", "first_count).numpy()", "first_count).abs().numpy()"),
    ),
    "a decoder in float32": (
        lambda: in_dtype("float32", "transformer, wrong"),
        (Counting, "_lines", NAN_TO_LEAST, "low = np.abs(found.low)"),
    ),
    "Count01 in 6 bits": (
        lambda: in_bits(6, "count01, from 1, wrong"),
        (Count01, "runner", "np.stack(found, axis=1)", "np.abs(np.stack(found, axis=1))"),
    ),
    "a decoder in tf32": (
        lambda: in_dtype("tf32", "transformer, wrong"),
        (Counting, "_lines", NAN_TO_LEAST, "low = np.abs(found.low)"),
    ),
    "a drawn decoder in float64": (
        lambda: in_dtype("float64", "transformer, drawn, wrong"),
        (Counting, "_lines", NAN_TO_LEAST, "low = np.abs(found.low)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", first(3, FAULTS))
def test_a_false_proof_is_refused(name):
    save, fault = FAULTS[name]
    assert json.loads(save()[1])["verdict"] == "REFUTED"
    with planted(*fault), mock.patch.multiple(decide, **NO_RUNS):
        weights, text = save()
    assert json.loads(text)["verdict"] == "PROVED" and falsehood(weights, text)
    assert outcome(weights, text)[0] == 1


OF_SPLITS = {  # a model whose search splits its multisets, the fault, and what the certificate then says
    "wrong multisets closed as right": (9, (RegionSearch, "_add_wrong", "    self.wrong_pairs += ",
        "    return self.record.close(regions.part, RIGHT)\n    self.wrong_pairs += "), "PROVED"),
    "the size of a difference": (2, (judging, "judge", "= found - errors", "= np.abs(found) - errors"), "REFUTED"),
    "any of the positions": (51, (Relaxation, "least_differences", "bases.min(1)", "bases.max(1) + 0.001"), "REFUTED"),
    "halves that both get the same": (4, (regions, "halves", "(n[parent] - first)", "first"), "REFUTED"),
}  # fmt: skip


@pytest.mark.parametrize("name", first(2, OF_SPLITS))
def test_a_false_search_that_splits_is_refused(name, monkeypatch):
    """A proof of what is wrong somewhere, or too few wrong pairs: enumeration calls it false, and the checker too."""
    only_split(monkeypatch)
    monkeypatch.setattr(decide, "_compared", NO_RUNS["_compared"])
    seed, fault, verdict = OF_SPLITS[name]
    due = len(all_wrong_pairs(random_model(seed)))
    weights, right = saved(random_model(seed))
    assert right["wrong_pairs"] == str(due) and outcome(weights, json.dumps(right))[0] == 0
    with planted(*fault):
        for module in (judging, regions):
            if fault[0] is module:  # which the search has by its name
                monkeypatch.setattr(branch_and_bound, fault[1], getattr(module, fault[1]))
        weights, faulty = saved(random_model(seed))
    assert faulty["verdict"] == verdict and int(faulty["wrong_pairs"]) != due
    assert outcome(weights, json.dumps(faulty))[0] == 1


OF_MODULES = {  # what is saved, and its oracle
    "grokked": (lambda: certified(hats(3, push=2.0), 3), falsehood),
    "grokked in float32": (lambda: certified(hats(3, push=2.0), 3, reading_of("float32")), falsehood),
    "a module in float32": (
        lambda: of_module(*adder(2, 0), ("float32",)),
        partial(graph_in_dtype.falsehood, evaluations=2),
    ),
}


@pytest.mark.parametrize("name", first(1, OF_MODULES))
def test_a_false_proof_of_a_module_is_refused(name):
    save, lie = OF_MODULES[name]
    right = "own_low - rival_high, own_high - rival_low"
    with (
        planted(margins, "margins", right, f"(x.abs() for x in ({right}))"),
        mock.patch.multiple(decide, **NO_RUNS),
        mock.patch.object(Guard, "check", lambda *_: None),
    ):
        weights, text = save()
    assert json.loads(text)["verdict"] == "PROVED" and lie(weights, text)
    assert outcome(weights, text)[0] == 1


OF_HEADS = {
    "a separator turned round": ("three dimensions", "_rounded", "full[k] = value", "full[k] = -value"),
    "a separator of some": ("three dimensions", "_holds", "return all(", "return any("),
    "a combination of any signs": ("pair", "ruled_out", "signs.append(sign if k % 2 == 0 else -sign)",
                                   "signs.append(1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_HEADS)
def test_a_false_answer_about_heads_is_refused(name):
    model, *fault = OF_HEADS[name]
    save = certificates.honest.__wrapped__
    weights, text = save(model)
    assert outcome(weights, text)[0] == 0
    with planted(separability, *fault):
        weights, faulty = save(model)
    assert faulty != text and outcome(weights, faulty)[0] == 1
