"""The engine as a second opinion: the small models of the other tasks, decided as modules on all their inputs."""

import pytest
import torch
from models.selection import first

from constructions import inventory_counting, relation_counting
from tests.models.random_models import random_model
from verify import certify
from verify.frame.certificate import Verdict
from verify.histogram import certify as histogram
from verify.module import tokens


def counts(t):
    return (t.unsqueeze(2) == t.unsqueeze(1)).sum(2)


BUILDERS = [relation_counting.dot, relation_counting.bos_sftm, inventory_counting.lin_sftm, inventory_counting.dot_sftm]


def as_module(model, **options):
    classes = model.W_2.shape[1]
    return certify(
        model.eval(),
        inputs=tokens([model.T] * model.L),
        expected=lambda t: counts(t) - model.first_count,
        position=None,
        classes=range(classes),
        **options,
    )


@pytest.mark.parametrize("build", first(1, BUILDERS))
@pytest.mark.parametrize("reading", ["real", "float32"])
def test_built_histogram_models(build, reading):
    model = build(T=3, L=3)
    specialised, general = histogram(model), as_module(model, reading=reading)
    assert specialised.verdict is general.verdict is Verdict.PROVED
    assert general.inputs_covered == specialised.inputs_covered == 27
    if reading == "real":
        assert specialised.margin == pytest.approx(general.margin, rel=1e-6, abs=1e-9)
    else:
        assert general.margin <= specialised.margin * (1 + 1e-9)


@pytest.mark.parametrize("seed", first(1, range(18)))
def test_random_histogram_models(seed):
    """Same verdict and the same first kind of failure, ties included."""
    model = random_model(seed)
    if model.L < 2 or model.W_2.shape[1] < 2:
        return
    specialised, general = histogram(model), as_module(model)
    if general.verdict is not Verdict.UNKNOWN:
        assert specialised.verdict is general.verdict
    else:  # ties that no precision shows, which the specialised verifier decides by algebra
        assert specialised.verdict is not Verdict.PROVED
    if general.verdict is Verdict.REFUTED:
        wrong = torch.tensor([specialised.counterexample["input"]])
        assert wrong.shape == (1, model.L)
        assert specialised.counterexample["input"] in general.extra["wrong_inputs"]
