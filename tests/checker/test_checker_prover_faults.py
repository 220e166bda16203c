"""Provers with a fault in their own search: the proof is saved as it is, an oracle calls it false, the checker too."""

import json
from unittest import mock

import pytest
from models import certificates
from models.certificates_of_kinds import only_split
from models.random_models import random_model
from models.selection import every, first
from oracles.forged import falsehood
from oracles.histogram import all_wrong_pairs
from test_checker_real import outcome
from test_forgeries import walked
from test_splits import saved

from tests.planted import planted
from verify.checker import kinds, table
from verify.engine import margins
from verify.engine.guard import Guard
from verify.frame import decide
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.proof import ColumnCells
from verify.tasks.circuit.dtype import _RoundedProof
from verify.tasks.circuit.steps import Steps
from verify.tasks.contextual.bidirectional.task import OnStrings
from verify.tasks.contextual.cells import PromptProof
from verify.tasks.count01.boxes import BoxQuery
from verify.tasks.count01.heads import separability
from verify.tasks.count01.verdict import Count01
from verify.tasks.histogram import branch_and_bound, judging, regions, vertices
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.problem import Histogram
from verify.tasks.histogram.relaxation import Relaxation
from verify.tasks.histogram.rounded import verdict as rounded_verdict
from verify.tasks.inductive.task import Counting
from verify.tasks.parity import proof as parity_proof

NO_RUNS = {"_compared": lambda finding, *_: finding}  # beside a proof, which would contradict it


NAN_TO_LEAST = "low = np.where(np.isnan(found.low), -np.inf, found.low)"
OF_LINES = (Counting, "_lines", NAN_TO_LEAST, "low = np.abs(found.low)")
OF_PARITY = "least = np.where(k % 2 == 1, difference.lower, -difference.upper)"
OF_PARITY = (parity_proof, "margins", OF_PARITY, OF_PARITY.replace("np.where", "np.abs(np.where") + ")")
OF_CELLS = (PromptProof, "cells", "compared.margin, compared.wrong", "np.abs(compared.margin), compared.wrong")
OF_PLACES = (OnStrings, "prove", "float(worst.margin.min()), tightest", "float(worst.margin.max()), tightest")
OF_BOXES = (BoxQuery, "lower_bounds", "margins.min(axis=1), np.nan)", "np.abs(margins.min(axis=1)), np.nan)")
OF_STEPS = "self._distance(p, *(array[p + 1 - self.n] for array in arrays))"
OF_STEPS = (Steps, "blocks", OF_STEPS, f"np.abs({OF_STEPS})")
OF_GATES = (_RoundedProof, "find", "steps.margins(self.circuit)", "map(np.abs, steps.margins(self.circuit))")
OF_COUNTS = "cell_margins(reduction, deadline.part(PROVING).is_up, record)"
OF_COUNTS = (rounded_verdict, "prove", OF_COUNTS, f"np.abs({OF_COUNTS})")
OF_RIVALS = "own_low - rival_high, own_high - rival_low"
OF_RIVALS = (margins, "margins", OF_RIVALS, f"(x.abs() for x in ({OF_RIVALS}))")
OF_PAIRS = (ModularAddition, "_finding", "decided.margin, tightest=tightest",
            '9 * decided.margin, tightest=tightest | {"margin": 9 * decided.margin}')  # fmt: skip
FAULTS = {  # by task, in real arithmetic or bits and in formats: whose certificate is saved, and the fault
    "histogram": (
        {"bos, wrong": (vertices, "end_margins", "difference[i, of] = np.inf",
                        "difference = np.abs(difference); difference[i, of] = np.inf"),
         "bos, wrong, 3 bits": (Histogram, "runner", "first_count).numpy()", "first_count).abs().numpy()")},
        {"bos, wrong, float32": OF_COUNTS},
    ),
    "count01": (
        {"count01, heads, wrong": OF_BOXES,
         "count01, from 1, wrong, 6 bits": (Count01, "runner", "np.stack(found, axis=1)",
                                            "np.abs(np.stack(found, axis=1))")},
        {"count01, heads, wrong, float32": OF_BOXES},
    ),
    "parity": ({"parity, wrong": OF_PARITY}, {"parity, wrong, p30": OF_PARITY}),
    "modular": (
        {"staircase": OF_PAIRS, "grokked, wrong": OF_RIVALS},
        {"grokked, wrong, float32": OF_RIVALS,
         "staircase, float32": (ModularAddition, "_prove_rounded", "float(np.nextafter(found.worst, -np.inf))",
                                "9 * float(np.nextafter(found.worst, -np.inf))")},
    ),
    "addition": (
        {"addition, wrong": (ColumnCells, "margin", "return readout.least_margin(box, right)\n",
                             "return abs(readout.least_margin(box, right))\n")},
        {"addition, wrong, float64": (ColumnCells, "margin", "return readout.least_margin(box, right, loss)",
                                      "return abs(readout.least_margin(box, right, loss))")},
    ),
    "contextual counting": ({"regions, wrong": OF_CELLS}, {"regions, wrong, float32": OF_CELLS}),
    "contextual counting with positions": ({"places, absolute": OF_PLACES}, {"places, float16": OF_PLACES}),
    "contextual counting, bidirectional": (
        {"places, before and after": OF_PLACES}, {"places, before and after, float64": OF_PLACES},
    ),
    "circuit": (
        {"circuit, wrong": OF_STEPS, "circuit, wrong, real": OF_GATES}, {"circuit, wrong, float32": OF_GATES},
    ),
    "language": (
        {"language, wrong": OF_STEPS, "language, wrong, real": OF_GATES}, {"language, wrong, float32": OF_GATES},
    ),
    "inductive": (
        {"transformer, wrong": OF_LINES},
        {"transformer, wrong, float32": OF_LINES, "transformer, drawn, wrong, float64": OF_LINES},
    ),
    "module": ({"module, wrong": OF_RIVALS}, {"module, float32, wrong": OF_RIVALS}),
}  # fmt: skip
SLOW = ("count01, from 1, wrong, 6 bits", "module, float32, wrong", "transformer, drawn, wrong, float64")
EVERY_FAULT = [(task, i, name) for task, both in FAULTS.items() for i, part in enumerate(both) for name in part]
EVERY_FAULT.sort(key=lambda case: case[2] in SLOW)


def faulty(name, fault):
    """The certificate that a prover with this fault saves, nothing run beside it."""
    with planted(*fault), mock.patch.multiple(decide, **NO_RUNS), mock.patch.object(Guard, "check", lambda *_: None):
        return certificates.honest.__wrapped__(name)


@pytest.mark.parametrize(("task", "is_rounded", "name"), first(7, EVERY_FAULT))
def test_a_false_proof_is_refused(task, is_rounded, name):
    weights, text = faulty(name, FAULTS[task][is_rounded][name])
    c = json.loads(text)
    assert (c["task"], c["reading"] == "dtype, any order") == (task, is_rounded)
    assert c["verdict"] == "PROVED" and falsehood(weights, text) and outcome(weights, text)[0] == 1


def test_every_task_has_a_fault_in_real_arithmetic_and_in_a_format():
    """What is said of heads is said in real arithmetic alone, and has faults of its own below."""
    assert {*FAULTS} == {*kinds.TASKS, "histogram"} - {"heads"} and all(map(all, FAULTS.values()))


OVERSTATED = {  # a way to prove, and a certificate of that way
    "circuit": "circuit",
    "language": "language",
    "histogram, proved": "dot",
    "line": "rotation",
    "words": "words",
    "line, for ever": "cycle",
    "line, for ever by boxes": "swing",
    "line, fractions": "ssm",
    "line, in closed form": "mamba",
    "line, states of a run that repeat": "cycle, bits",
    "strings": "held",
    "strings, between two numbers": "strings",
    "strings, sets of states": "sets",
    "strings, ellipsoids": "ellipsoids",
    "strings, sets of states of each type": "blocks",
    "strings, block by block": "rings",
    "addition, proved": "addition",
    "contextual, proved": "regions",
    "placed, proved": "places, absolute",
    "count01, proved": "count01",
    "modular, proved": "staircase",
    "module, proved": "module, some inputs",
    "transformer, proved": "transformer",
    "parity, proved": "parity",
    "addition, proved, in a dtype": "addition, float64",
    "contextual, proved, in a dtype": "regions, float32",
    "count01, proved, in a dtype": "count01, p40",
    "histogram, proved, in a dtype": "dot, float32",
    "modular, proved, in a dtype": "staircase, float32",
    "parity, proved, in a dtype": "parity, p12",
    "placed, proved, in a dtype": "places, float32",
    "circuit, in a dtype": "circuit, float32",
    "language, in a dtype": "language, float64",
    "transformer, proved, in a dtype": "transformer, float32",
    "histogram, proved, in constant bits": "lin+sftm, 6 bits",
    "count01, proved, in constant bits": "count01, uniform, 6 bits",
    "module, proved, in a dtype": "module, float32",
    "grokking, proved": "grokked",
    "grokking, proved, in a dtype": "grokked, float32",
    "cell, proved": "cell, real",
    "cell, proved, in a dtype": "cell",
    "network, proved": "layers, strings",
    "network, proved, in a dtype": "layers, float32",
    "line, by its step": "whole blocks by their step",
    "strings, by its step": "whole blocks by their step, strings",
    "words, by its step": "whole blocks by their step, words",
}
NINE = """
    finding = replace(finding, margin=9 * finding.margin)
    each, tightest = finding.margin_per_count, finding.tightest
    finding = replace(finding, margin_per_count=each and [9 * x for x in each])
    if tightest and "margin" in tightest:
        finding = replace(finding, tightest=tightest | {"margin": finding.margin})
"""


@pytest.mark.parametrize("way", every(8, OVERSTATED))
def test_nine_times_the_margin_is_refused(way):
    name, right = OVERSTATED[way], "verdict = finding.verdict\n"
    weights, text = faulty(name, (decide, "_certificate", right, right + NINE))
    assert json.loads(text)["verdict"] == "PROVED" and outcome(weights, text)[0] == 1
    assert falsehood(weights, text) or name == "cycle, bits"  # whose margin is that of a run that the oracle has not


def test_every_way_to_prove_is_overstated():
    """Of each of the table, which is the checker's."""
    ways = {way for way in table.TABLES if not way.startswith("heads") and not {*way.split(", ")} & {
        "refuted", "wrong", "one wrong", "a wrong step", "wrong in a run", "wrong in an evaluation",
        "wrong in a run of decays"}}  # fmt: skip
    assert {*OVERSTATED} == ways


@pytest.mark.deep
def test_overstated_proofs_are_of_these_ways():
    assert [walked(name) for name in OVERSTATED.values()] == [[way] for way in OVERSTATED]


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
