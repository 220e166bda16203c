"""Count01 with sums in a wider format, whose softmax is four operations: the result of each is stored."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from planted import planted

from constructions.count01 import Count01Transformer
from verify.arithmetic import softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS, format_of_bits
from verify.arithmetic.readings import Rounded
from verify.arithmetic.rounding import rounded
from verify.frame.certificate import Verdict
from verify.tasks.count01.boxes import BoxQuery
from verify.tasks.count01.real import exact_model
from verify.tasks.count01.rounding import QueryErrors
from verify.tasks.count01.task import EQUALS, PromptDomain, cells
from verify.tasks.count01.verdict import certify

BFLOAT16, WIDE, FEW = FORMATS["bfloat16"], FORMATS["float32"], format_of_bits(5)
MORE_ONES = cells("majority-ones", (EQUALS,))[0]


def one_head(scores, values, dtype=torch.float64):
    """One head that reads these values by these scores, whatever the last token is."""
    model = Count01Transformer(d=2, heads=1, d_h=1, dtype=dtype)
    with torch.no_grad():
        for W in model.parameters():
            W.zero_()
        for t in range(5):
            model.E[t] = torch.tensor([scores.get(t, 0.0), values.get(t, 0.0)])
        model.W_Q[0, 0, 0], model.W_K[0, 0, 0] = 1 / scores.get(EQUALS, 1.0), 1
        model.W_V[0, 1, 0] = model.W_O[0, 0, 1] = model.W_out[1, 5] = 1
    return model


def with_a_short_lead(share):
    """After one 1 the logit of 5 is ahead by 1 - share of e^-8.0314 or so, whose argument bfloat16 stores as 8.0625."""
    model = one_head({0: 8.0, 1: -0.0314, 2: -0.0314, 3: -0.0314, 4: -1.0}, {1: -1.0, 2: 1.0}, torch.bfloat16)
    weight = math.exp(float(model.E[2, 0]) - 8)
    with torch.no_grad():
        model.W_K[0, 0, 0] = 1
        model.b_out[:], model.b_out[6] = -1, 0
        model.b_out[5] = -share * weight / (1 + weight)
    return model


def lead_step_by_step(model):
    """By how much 5 is ahead after BOS 1 =, as torch computes it in the dtype, one operation after the other."""
    x = model.E.detach()[[0, 2, 4]]
    scores = (x @ model.W_K[0]) @ (x[-1] @ model.W_Q[0])
    weights = (scores - scores.max()).exp()
    logits = ((weights / weights.sum()) @ (x @ model.W_V[0]) @ model.W_O[0]) @ model.W_out + model.b_out
    return float(logits[5] - logits[6])


@pytest.mark.parametrize(("share", "verdict"), [(0.975, Verdict.UNKNOWN), (0.9, Verdict.PROVED)])
def test_what_torch_answers_wrongly_step_by_step_is_not_proved(share, verdict):
    """A kernel that stores each step answers 6 after one 1; a lead that all steps leave is proved."""
    model = with_a_short_lead(share)
    found = certify(model, "majority-ones", PromptDomain(1, 0, is_semantic=True), reading=Rounded(BFLOAT16, WIDE))
    assert found.verdict is verdict and (lead_step_by_step(model) > 0) is (verdict is Verdict.PROVED)


def excess_of_exponentials():
    """The most by which a computed exponential is further off, over its value, than is said of it."""
    worst = -math.inf
    for k in range(32, 62, 2):
        for own in (k / 16 - 0.03125, k / 16 + 0.03125):  # the distance has more than the 5 bits of the scores
            scores = {0: 4.0, 2: rounded(np.array([own - 4]), FEW).item(), EQUALS: 1.0}
            errors = QueryErrors(one_head(scores, {2: 1.0}), EQUALS, RoundedArithmetic.of(FEW, WIDE))
            row = [float(x.value) for x in errors.scores[0]]
            argument = rounded(np.array([row[2] - row[0]]), FEW)
            for units in (-2, 2):
                value = rounded(np.exp(argument) * (1 + units * 2.0**-24), FEW).item()
                off = abs(value / math.exp(row[2] - row[0]) - 1)
                worst = max(worst, off - errors.tables[0][0][0, 2])
    return worst


def excess_of_weights():
    """The most by which the exponentials of a prompt in a box are further off together than is said of the box."""
    worst = -math.inf
    for s in (0.5, 0.6875, 1.0625, 1.9375):
        model = one_head({0: 4.0, 1: s, 2: -s, 3: s / 2, EQUALS: 1.0}, {2: 1.0})
        errors = QueryErrors(model, EQUALS, RoundedArithmetic.of(FEW, WIDE))
        row = np.array([float(x.value) for x in errors.scores[0]])
        weights, computed = np.exp(row - 4), rounded(np.exp(rounded(row - 4, FEW)), FEW)
        low, high = np.array([1.0, 0, 1, 0, 1]), np.array([1.0, 2, 3, 9, 1])
        bound = errors.weight_error(0, low[None], high[None], np.array([low @ weights]))[0]
        for n in product(*(range(int(a), int(b) + 1) for a, b in zip(low, high, strict=True))):
            worst = max(worst, np.abs(computed - weights) @ n / (weights @ n) - bound)
    return worst


def excess_of_shares():
    """The most by which the mean of one value among n equal scores is further off than is said of it."""
    worst = -math.inf
    for v in (21, 24, 28):
        model = one_head({}, {2: v / 16})
        query = BoxQuery(model, exact_model(model), MORE_ONES, RoundedArithmetic.of(FEW, WIDE))
        for n in range(33, 64, 2):
            counts = np.array([[[1.0, n - 3.0, 1.0, 0.0, 1.0]]])
            share = rounded(1 / rounded(np.array([float(n)]), FEW), FEW)
            mean = rounded(share * v / 16, FEW).item()
            bound = query.rounding(counts, np.array([[[float(n)]]]))[0][0]
            worst = max(worst, abs(mean - v / 16 / n) - bound)
    return worst


def test_each_step_that_is_stored_is_within_its_bound():
    assert max(excess_of_exponentials(), excess_of_weights(), excess_of_shares()) <= 0


@pytest.mark.parametrize(
    ("where", "name", "right", "wrong", "excess"),
    [
        (QueryErrors, "weight_errors", "Fraction(at.once)", "Fraction(at.inner.u)", excess_of_exponentials),
        (softmax, "exponential_errors", "(1 + v)", "1", excess_of_exponentials),
        (QueryErrors, "weight_error", "high * absolute", "low * absolute", excess_of_weights),
        (QueryErrors, "weight_error", "+ of_large, of_all)", "+ of_large, of_large)", excess_of_weights),
        (QueryErrors, "logit_errors", "stored=1", "stored=0", excess_of_shares),
    ],
    ids=["distance", "exponential", "counts", "all weights", "total"],
)
def test_a_step_that_is_not_stored_is_seen(where, name, right, wrong, excess, monkeypatch):
    with planted(where, name, right, wrong):
        if where is softmax:
            monkeypatch.setattr("verify.tasks.count01.rounding.exponential_errors", softmax.exponential_errors)
        assert excess() > 0
