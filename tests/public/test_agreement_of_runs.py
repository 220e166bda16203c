"""A proof that a run of the module contradicts ends UNKNOWN, and right ones are never contradicted."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch

import verify
from constructions import contextual_counting, count01
from tests.models.judged import MODELS, NAND
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, Rounded
from verify.frame.certificate import Verdict
from verify.frame.decide import BUG, Ran
from verify.tasks.circuit.task import CircuitProblem
from verify.tasks.contextual import verdict as contextual
from verify.tasks.contextual.agreement import contradiction as contextual_contradiction
from verify.tasks.count01 import agreement
from verify.tasks.count01.task import Domain
from verify.tasks.count01.verdict import certify

REGION = Domain(4, 4)


def wrong_at(n, last):
    """Replays as the module does, but for one prompt, whose answer is called wrong."""
    honest = agreement.replay

    def replay(model, m, at, due):
        found = honest(model, m, at, due)
        return found | {"fails": True, "predicted": "4"} if (m, at) == (n, last) else found

    return replay


@pytest.mark.parametrize("reading", [Real(), Rounded(FORMATS["float64"])])
def test_a_run_that_contradicts_count01_is_reported(reading):
    with mock.patch.object(agreement, "replay", wrong_at((0, 0, 0), 4)):
        certificate = certify(count01.uniform(), "majority-ones", REGION, reading=reading)
    assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason and certificate.inputs_covered == 0
    assert certify(count01.uniform(), "majority-ones", REGION, reading=reading).verdict is Verdict.PROVED


def test_a_run_that_cannot_tell_contradicts_nothing():
    """Where the dtype's error bound exceeds the margin a wrong run may be rounding."""
    low = FORMATS["bfloat16"]
    with mock.patch.object(agreement, "replay", wrong_at((9, 9, 0), 4)), mock.patch.object(
        agreement, "format_of", lambda dtype: low
    ), mock.patch.object(agreement, "decide_boxes", return_value=mock.Mock(is_proved=False)):  # fmt: skip
        assert (
            agreement.contradiction(count01.uniform(), "majority-ones", Domain(9, 9), {"at": [9, 9, 0], "last": "="})
            is None
        )


def test_a_run_that_contradicts_contextual_counting_is_reported():
    module = contextual_counting.build(16, 2)
    domain = contextual.domain_of(module, 16)
    honest = contextual.certify(module, domain)
    assert honest.verdict is Verdict.PROVED
    stored = contextual.StoredContextual.of(module)
    assert contextual_contradiction(module, stored, domain, honest.tightest) is None
    with mock.patch.object(torch.Tensor, "argmax", lambda self, *a, **k: torch.tensor(-1)):
        assert "counts -1" in contextual_contradiction(module, stored, domain, honest.tightest)
    with mock.patch("verify.tasks.contextual.verdict.contradiction", return_value="the module counts 3"):
        for certificate in (
            contextual.certify(module, domain),
            contextual.certify(module, domain, fmt=FORMATS["float32"]),
        ):
            assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason
            assert (certificate.margin, certificate.tightest, certificate.inputs_covered) == (None, None, 0)


@pytest.mark.parametrize("reading", ["s3", "real", "float32"])
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
    assert certificate.verdict is Verdict.UNKNOWN and BUG in certificate.reason and "input 11" in certificate.reason
    assert verify.certify(MODELS["circuit"](), circuit=NAND, reading=reading)
