"""Lines of gated decays in closed form: honest certificates, and forgeries against runs in fractions, with faults."""

import hashlib
import json
import random
from fractions import Fraction

import pytest
import torch
from models.crafted import crafted
from models.judged_crafted import decided
from models.rechecked import outcome
from models.selection import every, first

from constructions.recurrent.gated import DiagonalCell, GatedModel
from tests.planted import planted
from verify.checker import closed_lines
from verify.checker.closed_lines import ClosedLine
from verify.checker.gated_lines import FadingStates
from verify.tasks.recurrent.models import bytes_of

RUN = 64  # tokens of a run in fractions
CRAFTED = [(7, "PROVED"), (8, "PROVED"), (26, "PROVED"), (64, "REFUTED"), (66, "PROVED"), (256, "REFUTED")]


@pytest.mark.parametrize(("seed", "verdict"), every(3, CRAFTED))
def test_lines_that_fade_for_ever_or_fail_late_hold(seed, verdict):
    case = crafted(seed)
    found, weights = decided(case, "real", 2000), bytes_of(case.model)
    assert outcome(weights, json.loads(found.about(weights).to_json())) == found.verdict.value == verdict


def drawn(seed):
    """Two states that fade, turn over, add up or grow, right after one token; small numbers, and what they are."""
    draw = random.Random(seed)
    a = [draw.choice([0.5, 0.75, 0.875, 1.0, -0.5, -0.875, 1.0625, 0.96875]) for _ in "01"]
    u, V = ([draw.choice([-1.0, -0.5, 0.25, 0.5, 1.0]) for _ in a] for _ in "01")
    b = -sum(v * x for v, x in zip(V, u, strict=True)) - draw.choice([0.0625, 0.25])
    tensors = [torch.tensor(x, dtype=torch.float64) for x in (a, [u], [1.0, 1.0])]
    model = GatedModel(DiagonalCell(*tensors), torch.tensor([V, [0.0, 0.0]]).double(), torch.tensor([b, 0.0]).double())
    h, margins = [Fraction(0)] * 2, []
    for t in range(RUN):
        h = [Fraction(f) * x + Fraction(y) for f, x, y in zip(a, h, u, strict=True)]
        gap = sum(Fraction(v) * x for v, x in zip(V, h, strict=True)) + Fraction(b)
        margins.append(-gap if t == 0 else gap)
    return model, margins


def forged(draw, weights, margins):
    """A certificate that may be true: a verdict, a length and a margin."""
    said = {"task": "first-homogeneous", "model": "s4", "units": 2, "layers": 1, "dtype": "float64"}
    c = {"schema": "weightproof/1", "claim": None, "task": "inductive", "reading": "real", "method": "certified",
         "argument": "forged", "margin_exact": None, "margin_per_count": None, "assumptions": [], "error_share": None,
         "reason": None, "seconds": 0.0, "tightest": None,
         "weights_sha256": hashlib.sha256(weights).hexdigest()}  # fmt: skip
    if draw.random() < 0.5:
        n = next((t for t, x in enumerate(margins, 1) if x <= 0), 9) + draw.choice([0, 0, 0, -1, 1])
        case = {"input": [0] * n, "length": n, "expected": 0, "predicted": 1, "is_first": True}
        margin = draw.choice([0.0, 0.0, -0.25]) + min(0.0, float(margins[min(n, RUN) - 1]))
        return c | {"verdict": "REFUTED", "length": "all", "parameters": said | {"length": "all"}, "margin": margin,
                    "inputs_covered": "1", "right_to": n - 1,
                    "counterexample": case | {"float64_predicts": None}}  # fmt: skip
    length = draw.choice(["all", "all", draw.randint(2, RUN)])
    least = min(margins if length == "all" else margins[:length])
    return c | {"verdict": "PROVED", "length": length, "parameters": said | {"length": length}, "counterexample": None,
                "margin": max(float(least), 2.0**-6) * draw.choice([0.75, 1.0, 1.25]),
                "inputs_covered": "infinite" if length == "all" else str(length)}  # fmt: skip


def is_true(c, margins):
    if c["verdict"] == "REFUTED":
        n = c["counterexample"]["length"]
        return n <= RUN and min(margins[: n - 1], default=1) > 0 >= margins[n - 1] and margins[n - 1] <= c["margin"]
    return min(margins if c["length"] == "all" else margins[: c["length"]]) >= Fraction(c["margin"])


def sweep(seeds):
    """How many forgeries hold that are true, and which are false."""
    true, false = 0, []
    for seed in seeds:
        model, margins = drawn(seed)
        if min(margins[:2]) > 0:
            weights, draw = bytes_of(model), random.Random(seed)
            for c in (forged(draw, weights, margins) for _ in range(4)):
                if outcome(weights, c) == c["verdict"]:
                    true += is_true(c, margins)
                    false += [] if is_true(c, margins) else [(seed, c)]
    return true, false


SEEN = (2, 29, 95, 132)  # networks of which a forgery holds by one of the faults
FAULTS = [
    (ClosedLine, "_halved", "if self._is_right(r, k, low, high):", "if low < high or self._is_right(r, k, low, high):"),
    (FadingStates, "gaps", "x.union(y)", "y"),
    (FadingStates, "gaps", "self.limit() if high is None", "self.after(low) if high is None"),
    (FadingStates, "__init__", "1 if all(f >= 0 for f, _ in self.units) else 2", "1"),
    (FadingStates, "limit", "if abs(f) < 1", "if True"),
    (FadingStates, "after", "a * (1 - f**t) / (1 - f)", "a * (1 - f**(t + 1)) / (1 - f)"),
    (ClosedLine, "_is_right", "x >= self.least and", ""),
    (closed_lines, "decide_line", "is_right(states, due, said, n - 1, arb(0))", "pass"),
    (closed_lines, "decide_line", "is_at_least(arb(margin), gaps[other])", "True"),
]


@pytest.mark.parametrize("seeds", first(1, [range(25), range(25, 200)]))
def test_forgeries_that_hold_are_true(seeds):
    true, false = sweep(seeds)
    assert true > 2 and false == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_checker_is_seen(fault):
    with planted(*fault):
        assert any(sweep([seed])[1] for seed in SEEN)
