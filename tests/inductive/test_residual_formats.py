"""Whole blocks in a format: every evaluation in boxes, one of them as a point, against sums with a hundred digits."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from flint import arb, ctx
from models.selection import every
from models.whole_blocks import drawn
from mpmath import mp, mpf
from oracles import residual_blocks
from oracles.rounded_factors import as_fraction, by_the_oracle, plainly_rounded
from planted import planted

from constructions.recurrent.residual import BLOCKS
from verify.arithmetic.contract import EVERY, EXACTLY_KEPT
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, Rounded
from verify.counting.tasks import Task
from verify.engine import exact
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.frame.decide import Effort, certify
from verify.module import followed, recurrence
from verify.module.recurrence import StepGraph
from verify.tasks.recurrent import residual
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

TASKS = {
    "modular": Task.of("modular", modulus=2),
    "helper": Task.of("helper", vocabulary=3),
    "selective": Task.of("selective", types=2, max_count=2),
}
NAMED = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def any_format(kind, seed, *, types, classes, layers=1):
    """A drawn stack that answers one class more often than others, in float64."""
    model = drawn(kind, seed, types=types, classes=classes, layers=layers)
    with torch.no_grad():
        model.head.bias += 2 * torch.nn.functional.one_hot(torch.tensor(seed % classes), classes)
    return model


def in_format(kind, name, seed, **sizes):
    """The same, whose numbers are those of the format."""
    return any_format(kind, seed, **sizes).to(NAMED[name]).double()


def kept(model, string, name):
    """The logits of the one evaluation after each token, in balls."""
    graph = residual.captured(model, TASKS["selective"]).read_in(Rounded(FORMATS[name]))
    state, found = graph.precise_start(), []
    with ctx.workprec(256):
        for token in string:
            state, logits = graph.precise(state, token)
            found.append(logits)
    return found


def differs(rows, others):
    return max(
        abs(as_fraction(mpf(x.mid().str(60, radius=False))) - as_fraction(y))
        for a, b in zip(rows, others, strict=True)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_one_evaluation_is_that_of_the_oracle(kind, monkeypatch):
    string, name = (0, 1, 1), "bfloat16"
    model = any_format(kind, 0, types=2, classes=2)
    with mp.workdps(residual_blocks.DIGITS):
        rounded = in_format(kind, name, 0, types=2, classes=2)
        due = by_the_oracle(monkeypatch, rounded, FORMATS[name], [string])[string]
        assert differs(kept(model, string, name), due) < 1e-40
        with planted(StepGraph, "_numbers", "rounded(x.detach().double().numpy(), fmt)", "x.detach().double().numpy()"):
            assert differs(kept(model, string, name), due) > 1e-5
        monkeypatch.setattr(exact, "nearest", lambda x, fmt: x)
        assert differs(kept(model, string, name), due) > 1e-5


@pytest.mark.parametrize("name", ["float16", *NAMED])
def test_numbers_are_rounded_as_fractions_are(name):
    """Near ties, below the least number, and far below it, where whole numbers of so many bits fit in no memory."""
    fmt, draw = FORMATS[name], random.Random(0)
    least = fmt.smallest_exponent - fmt.p + 1
    for e in (least - 2, least - 1, least, least + 3, 0):
        for _ in range(8):
            x = draw.choice([1, -1]) * Fraction(draw.randint(1, 7) * 2**fmt.p + draw.randint(-3, 3)) * Fraction(2) ** e
            x = x / 2 ** draw.choice([1, 2, fmt.p, fmt.p + 1, fmt.p + 3])
            with ctx.workprec(256):
                point = exact.filled([arb(x.numerator) / x.denominator], (1,))
                assert Fraction(float(exact.nearest(point, fmt)[0])) == plainly_rounded(x, fmt)
    far = exact.filled([arb(-1e6).exp(), -arb(-1e30).exp()], (2,))
    assert exact.nearest(far, fmt).tolist() == [0, 0]


@pytest.mark.parametrize(("kind", "name"), every(4, product(BLOCKS, NAMED)))
def test_boxes_hold_evaluations(kind, name, monkeypatch):
    """torch's run in the format and the one that keeps every result; without rounding the boxes miss one of them."""
    string, fmt = (0, 1, 1), FORMATS[name]
    model = in_format(kind, name, 1, types=2, classes=2)
    graph = residual.captured(model, TASKS["selective"]).read_in(Rounded(fmt))
    with torch.no_grad():
        ran = model.to(NAMED[name])(torch.tensor([string]))[0].double().numpy()
    runs = [ran, np.array([[float(x) for x in row] for row in kept(model.double(), string, name)])]

    def misses(at):
        mid, rad, out = graph.first[None], np.zeros((1, graph.size)), False
        for t, token in enumerate(string):
            mid, rad = graph.enclosed(mid, rad, [token], at)
            off = [np.abs(run[t] - mid[0, graph.size :]) for run in runs]
            out |= any((~np.isnan(rad[0, graph.size :]) & (x > rad[0, graph.size :] + 1e-12)).any() for x in off)
            mid, rad = mid[:, : graph.size], rad[:, : graph.size]
        return out

    assert not misses(None)
    assert misses(Arithmetic()) or name == "float64"


def judged(model, task, length, name):
    kind = Homogeneous if task.is_homogeneous else Selective
    return certify(kind(model, task, length), Rounded(FORMATS[name]), Effort(budget=120))


CASES = [
    (kind, task, name, seed) for seed in range(8) for task in TASKS for name in NAMED for kind in BLOCKS
]  # fmt: skip


@pytest.mark.parametrize(("kind", "task_name", "name", "seed"), every(70, CASES))
def test_no_evaluation_of_a_hundred_digits_gainsays_a_verdict(kind, task_name, name, seed, monkeypatch):
    task, longest = TASKS[task_name], 3
    model = in_format(kind, name, seed, types=task.vocabulary, classes=task.classes)
    if task.is_homogeneous:
        strings = [line.tokens[:longest] for line in task.lines(None if task.longest() else longest)]
    else:
        strings = list(product(range(task.K), repeat=longest))
    wrong = {}  # strings, and by how much
    for string, rows in by_the_oracle(monkeypatch, model, FORMATS[name], strings).items():
        for t, (row, right) in enumerate(zip(rows, task.answers(string), strict=True), 1):
            gap = None if right is None else row[right] - max(x for j, x in enumerate(row) if j != right)
            if gap is not None and gap <= 0:
                wrong[string[:t]] = gap
    started = int(task_name == "helper")
    found = judged(model, task, longest - started, name)
    if found.verdict == "PROVED":
        assert not wrong
        return
    right_to = int(found.extra.get("right_to", -started)) + started
    assert all(len(string) > right_to for string in wrong)
    if wrong and task.is_homogeneous:
        assert found.verdict == "REFUTED"
    if found.verdict == "REFUTED":
        case = found.counterexample
        string = tuple(case["input"])
        assert case["evaluation"] in (EVERY, EXACTLY_KEPT) and string in wrong
        assert bool(case.get("is_first")) == (len(string) == right_to + 1)
        assert 0 >= found.margin >= float(wrong[string]) - 1e-9
        if task.is_homogeneous and case["evaluation"] == EXACTLY_KEPT:
            assert len(string) == min(map(len, wrong))


def test_a_line_is_proved_and_refuted_in_a_format():
    """Classes 1 and 2 in turn are said by a convolution of width 3 that sees how long ago the first token was."""
    model, task = in_format("mamba", "float32", 0, types=1, classes=2), TASKS["modular"]
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 0.0]))
    found = judged(model, task, 1, "float32")
    assert found.verdict == "PROVED" and found.margin == pytest.approx(1.0) and found.inputs_covered == 1
    found = judged(model, task, None, "float32")
    assert found.verdict == "REFUTED" and found.counterexample["evaluation"] == EVERY
    assert (
        found.counterexample["length"] == 2 and found.counterexample["is_first"] and found.margin == pytest.approx(-1)
    )


def test_what_is_no_number_in_a_format_is_not_proved():
    """A weight beyond float16's largest number, and states whose product overflows there."""
    model, task = in_format("s4", "float32", 0, types=1, classes=2), TASKS["modular"]
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1e6, 0.0]))
    assert judged(model, task, 1, "float32").verdict == "PROVED"
    found = judged(model, task, 1, "float16")
    assert found.verdict == "UNKNOWN" and "right up to" in found.reason
    with torch.no_grad():
        model.head.bias[0] = 1.0
        model.embedding.weight.fill_(6e4)
        model.blocks[0].D.fill_(6e4)
    assert judged(model, task, 1, "float64").verdict == "PROVED"
    assert judged(model, task, 1, "float16").verdict == "UNKNOWN"


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64", "float16"])
def test_numbers_are_rounded_to_nearest(name):
    fmt, rng = FORMATS[name], random.Random(0)
    for _ in range(60):
        near = plainly_rounded(Fraction(rng.choice([1.0, 1.5, 3.0, 0.1, 65.0])) * 2 ** rng.randrange(-3, 3), fmt)
        unit = abs(near) * Fraction(2) ** -fmt.p * rng.choice([1, Fraction(1, 2), 2])
        x = near + unit * (rng.choice([-1, 0, 1]) + rng.choice([0, Fraction(1, 2**40), Fraction(-1, 2**40)]))
        with ctx.workprec(400):
            ball = arb(x.numerator) / x.denominator
            assert ball.is_exact()
            got = exact.nearest(exact.filled([ball, -ball], (2,)), fmt)
        due = plainly_rounded(x, fmt)
        assert [Fraction(float(y)) for y in got] == [due, -due]


def test_a_ball_with_two_nearest_numbers_is_not_rounded():
    """Half-way between two numbers; just below a power of two, where gaps are half as wide; beyond the largest."""
    for x in (arb(1 + 2.0**-8, 1e-9), arb(1 - 2.0**-10 - 2.0**-11, 2.0**-11), arb(1e39), arb("nan")):
        with pytest.raises(exact.Undecidable):
            exact.nearest(exact.filled([x], (1,)), FORMATS["bfloat16"])
    assert exact.nearest(exact.filled([arb(1 + 2.0**-8)], (1,)), FORMATS["bfloat16"])[0] == 1  # a tie, exactly


@pytest.mark.parametrize("kind", every(3, BLOCKS))
def test_answers_after_wrong_ones_are_those_of_the_oracle(kind):
    task = TASKS["helper"]
    model = drawn(kind, 3, types=task.vocabulary, classes=task.classes, layers=1)
    lines = [(line.tokens, task.answers(line.tokens)) for line in task.lines(None)]
    found = followed.answers(residual.captured(model, task), lines, Effort(budget=60).deadline())
    for (tokens, due), said in zip(lines, found, strict=True):
        wrong = residual_blocks.wrong_at(model, tokens, due)
        assert said == [t not in wrong for t in range(1, len(tokens) + 1)]


def test_a_line_without_an_end_says_how_far_it_was_followed(monkeypatch):
    model = drawn("rwkv", 0, types=2, classes=2, layers=1)
    monkeypatch.setattr(residual, "of_lines", lambda *asked: followed.Known(right_to=9, margin=0.5, tightest=(0,)))
    found = certify(Homogeneous(model, Task.of("first-homogeneous"), None), Rounded(FORMATS["float64"]))
    assert (found.verdict, found.reason) == ("UNKNOWN", "right up to length 9; 9 tokens were followed")


def test_a_step_is_captured_once_and_before_the_search(monkeypatch):
    """With counts by length, and a wrong answer that is looked at again."""
    captures = []
    monkeypatch.setattr(recurrence, "capture", lambda *given: captures.append(given) or capture(*given))
    model = drawn("mamba", 0, types=1, classes=2)
    problem = Homogeneous(model, TASKS["modular"], 4, by_length=True)
    problem.assumptions(Real())
    assert len(captures) == 1
    found = certify(problem, Real(), Effort(budget=60))
    assert found.verdict == "REFUTED" and len(captures) == 1
    assert problem.is_surely_wrong((0,) * found.counterexample["length"], found.counterexample["length"] - 1)
    problem = Selective(drawn("s4", 0, types=2, classes=3), TASKS["selective"], 2, by_length=True)
    with planted(Selective, "assumptions", "isinstance(reading, Kernel) or self.step", "self"):
        problem.assumptions(Real())
        assert len(captures) == 1
    certify(problem, Real(), Effort(budget=60))
    assert len(captures) == 2
