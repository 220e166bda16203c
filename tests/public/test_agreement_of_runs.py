"""A proof that a run of the module contradicts ends UNKNOWN, and right ones are never contradicted."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from models.selection import every, first

import verify
from constructions import contextual_counting, count01, count01_heads, inventory_counting
from tests.models.judged import MODELS, NAND
from tests.public.test_beside import TASKS
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import Real, Rounded
from verify.frame import decide
from verify.frame.certificate import Verdict
from verify.frame.decide import BUG, Effort, Ran
from verify.tasks.circuit.task import CircuitProblem
from verify.tasks.contextual.verdict import ContextualCounting, domain_of
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01, certify
from verify.tasks.histogram.problem import Histogram
from verify.tasks.histogram.proof import SPLIT, prove

REGION = PromptDomain(4, 4)


@contextmanager
def wrong_on(kind, wrong):
    """Runs as the module does, but for one item, all of whose answers are called wrong."""
    honest = kind.runner

    def runner(problem, reading):
        run = honest(problem, reading)

        def answer(batch):
            ran, is_it = run(batch), np.array([[tuple(item) == wrong] for item in batch])
            return Ran(np.where(is_it, -1.0, ran.margins), ran.is_wrong | is_it)

        return answer

    with mock.patch.object(kind, "runner", runner):
        yield


@pytest.mark.parametrize("reading", [Real(), Rounded(FORMATS["float64"])])
def test_a_run_that_contradicts_count01_is_reported(reading):
    """In real arithmetic too: the module is right there in every order of rounding, so that this is no run of it."""
    model = count01.uniform(dtype=torch.float64)
    with wrong_on(Count01, ()):
        certificate = certify(model, "majority-ones", REGION, reading=reading)
    assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason and certificate.inputs_covered == 0
    assert certify(model, "majority-ones", REGION, reading=reading).verdict is Verdict.PROVED


@pytest.mark.parametrize(("margin", "most", "is_seen"), [(None, -1e-300, True), (None, 0.0, False), (0.5, 0.25, True)])
def test_a_wrong_run_contradicts_a_proof_without_a_margin(margin, most, is_seen):
    """Such a proof says that all margins are above 0, and their infimum is 0."""
    module = contextual_counting.build(16, 2)
    problem = ContextualCounting(module, domain_of(module, 16))
    proof = decide.Finding.proved("some argument", margin, telling=((problem.draw(random.Random(0)), 0),))
    with mock.patch.object(ContextualCounting, "look", lambda *_: OneRun(at_most=most)):
        said = decide._looked_at(problem, proof, Real())
    assert (said is not None) == is_seen


def test_a_run_that_cannot_tell_contradicts_nothing():
    """Where the dtype's error bound exceeds the margin, a wrong run may be rounding."""
    with wrong_on(Count01, ()), mock.patch.object(Count01, "is_surely_wrong", lambda *_: False):
        assert certify(count01.uniform(), "majority-ones", REGION).verdict is Verdict.PROVED


@pytest.mark.parametrize("reading", first(1, [Rounded(FORMATS["float32"]), Real()]))
def test_a_run_that_contradicts_contextual_counting_is_reported(reading):
    """Wrong on the tightest string of one number of regions alone."""
    module = contextual_counting.build(16, 2)
    problem = ContextualCounting(module, domain_of(module, 16))
    honest = problem.prove(reading, Effort())
    assert honest.verdict is Verdict.PROVED and len(honest.telling) == 3
    for item, _ in honest.telling:
        with wrong_on(ContextualCounting, item):
            certificate = decide.certify(problem, reading)
        assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason
        assert (certificate.margin, certificate.tightest, certificate.inputs_covered) == (None, None, 0)


@pytest.mark.parametrize(
    "name", ["histogram", "parity", "modular", "addition", "contextual", "bidirectional", "positional"]
)
def test_a_margin_that_is_too_large_is_reported(name, monkeypatch):
    """Of the tightest input more is not true: a proof that says 2 % more, and right everywhere, contradicts it."""
    kind, build, decided = TASKS[name]
    honest = kind.prove

    def generous(problem, reading, effort):
        found = honest(problem, reading, effort)
        return replace(found, margin=found.margin * 1.02)

    assert decided(build()).verdict is Verdict.PROVED
    monkeypatch.setattr(kind, "prove", generous)
    certificate = decided(build())
    assert certificate.verdict is Verdict.UNKNOWN and "is proved, and it is at most" in certificate.reason


LEAVES = {"contextual": 3, "circuit": 2, "count01": 2, "module": 2}


@pytest.mark.parametrize("name", every(9, [name for name in TASKS if name != "selective"]))
def test_a_run_that_is_wrong_on_a_telling_input_alone_is_reported(name, monkeypatch):
    """Each of the inputs that a proof hands over is run, whatever is drawn besides."""
    kind, build, decided = TASKS[name]
    with mock.patch.object(decide, "_looked_at", wraps=decide._looked_at) as asked:
        assert decided(build()).verdict is Verdict.PROVED
    finding = asked.call_args.args[1]
    items = list(dict.fromkeys(item for item, _ in finding.telling))
    assert len(items) >= LEAVES.get(name, 1)
    monkeypatch.setattr(kind, "draw", lambda *_: pytest.fail("the telling inputs come first"))
    monkeypatch.setattr(kind, "is_surely_wrong", lambda *_: True)
    monkeypatch.setattr(kind, "prove", lambda *_: finding)
    for item in items[:: -(-len(items) // 3)]:
        with wrong_on(kind, item):
            certificate = decided(build())
        assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason


def test_each_way_to_decide_a_cell_hands_over_an_input():
    """A model whose cells are decided by vertices and, where these leave one open, by regions."""
    problem = Histogram.of(inventory_counting.dot_sftm(T=4, L=4, d=4, p=5), None, None, lambda p, _, e: prove(p, e))
    honest = problem.prove(Real(), Effort())
    assert honest.argument == SPLIT and len(honest.telling) > 2
    for item, _ in honest.telling:
        with wrong_on(Histogram, item), mock.patch.object(Histogram, "is_surely_wrong", lambda *_: True):
            assert BUG in decide.certify(problem).reason


@pytest.mark.parametrize("reading", [Real(), Rounded(FORMATS["float64"])])
def test_boxes_hand_over_their_tightest_prompt(reading):
    """Besides the two shortest prompts with a tie and with one more 1."""
    problem = Count01.of(count01_heads.counting_pair(), "majority-ones", PromptDomain(6, 6))
    found = problem.prove(reading, Effort())
    assert found.verdict is Verdict.PROVED and len(set(found.telling)) >= 3


@pytest.mark.parametrize(
    "look, proved, says",
    [
        (OneRun(), 1.0, None),
        (OneRun(1.0, 0.5, 1.5, at_most=1.5), 1.5, None),
        (OneRun(1.0, 0.5, 1.5, at_most=1.5), 1.6, "a margin of 1.6 is proved, and it is at most 1.5"),
        (OneRun(0.4, 0.5, 1.5), None, "the module's margin is 0.4, where it must be from 0.5 to 1.5"),
        (OneRun(float("nan"), 0.5, 1.5), 0.1, "nan, where it must be from 0.5"),
        (OneRun(float("nan")), 0.1, None),
        (OneRun(at_most=-float("inf")), 0.1, "at most -inf"),
    ],
)
def test_what_contradicts(look, proved, says):
    found = look.contradicts(proved)
    assert found is None if says is None else says in found


@pytest.mark.parametrize("reading", every(3, ["s3", "real", "float32"]))
def test_a_run_that_contradicts_a_circuit_is_reported(reading):
    """Wrong on the input of ones alone: more than one input is run."""
    honest = CircuitProblem.runner

    def wrong_on_ones(problem, reading):
        run = honest(problem, reading)

        def answer(batch):
            ran = run(batch)
            return Ran(ran.margins, ran.is_wrong | np.array([[all(bits)] for bits in batch]))

        return answer

    with mock.patch.object(CircuitProblem, "runner", wrong_on_ones):
        certificate = verify.certify(MODELS["circuit"](), circuit=NAND, reading=reading)
    assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason and "[1, 1]" in certificate.reason
    assert verify.certify(MODELS["circuit"](), circuit=NAND, reading=reading)
