"""A fault planted in the certified bound proves a model that some evaluation breaks; without it, none is.

Each model is made so that the error at issue is all but attained, and the rival's logit is raised, number by number of
the format, as long as the model is proved. What is proved then must hold in every evaluation that is run.

Faults that no model shows, because the bound has slack there: results flushed to zero are counted 2 n times for n
products, and at most n can be (a flushed sum had two nonzero parts and leaves none); scores, queries and keys are
rounded as results and, when they are factors, once more. No evaluation here keeps more bits than the format, so that
nothing tests the room for those (`wider`); torch's kernels do, in test_dtype_soundness.py.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import nullcontext

import numpy as np
import pytest
from oracles.rounded_edges import (
    attending_neurons,
    coordinates,
    lossy_product,
    mixed,
    neurons,
    query,
    root,
    score,
    share,
    slots,
)
from oracles.worst_exponentials import exponentials
from planted import planted

from verify.arithmetic import softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import ORDERS, Evaluation
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import rounded
from verify.arithmetic.softmax import Arguments
from verify.tasks.histogram.rounded import coordinate as rounded_coordinate
from verify.tasks.histogram.rounded import reduction
from verify.tasks.histogram.rounded.cells import RoundedReadout, cell_margins
from verify.tasks.histogram.rounded.directed import Directed
from verify.tasks.histogram.rounded.forward import logits, margins, rounded_model
from verify.tasks.histogram.rounded.reduction import Mixed, Reader, RoundedReduction
from verify.tasks.histogram.stored import StoredModel


def is_proved(stored, at):
    """Whether the cell of L tokens 0 is proved."""
    with np.errstate(all="ignore"):
        return bool(cell_margins(RoundedReduction(stored, at))[0, 0, -1] > 0)


def raised(module, at, evaluation):
    """The model with the rival's logit as high as it is proved below the right one, or None."""
    zeros = np.zeros((1, module.L), int)
    exact = logits(rounded_model(StoredModel.of(module), evaluation), zeros, Evaluation(FORMATS["float64"]))[0, 0, -2]
    step = np.ldexp(1.0, max(int(np.frexp(exact)[1]) - 1, at.stored.smallest_exponent) - at.stored.p + 1)

    def with_rival(steps):
        module.b_2.data[-1] = float(rounded(exact - steps * step, at.stored))
        return rounded_model(StoredModel.of(module), evaluation)

    most = 4 << at.stored.p
    steps = bisect_left(range(most), True, key=lambda steps: is_proved(with_rival(steps), at))
    return None if steps == most else with_rival(steps)


def computed(model, evaluation):
    """The margins of every evaluation that is run: (right logit) - (the rival's)."""
    tokens, zero = np.zeros((1, model.L), int), np.zeros(1, int)
    fmt, wide = evaluation.fmt, evaluation.accumulate
    for off in (0, 1, -1) if model.is_softmax else (0,):
        with exponentials(off) if off else nullcontext():
            for order in ORDERS[: 1 if off else None]:
                for fused in (False, True):
                    yield margins(model, tokens, Evaluation(fmt, wide, order, fused))[0, 0]
            yield margins(model, tokens, Evaluation(fmt, wide, flush=True))[0, 0]
            yield margins(model, tokens, Evaluation(fmt, wide, reciprocal=True))[0, 0]
            for stores in (False, True):
                with np.errstate(all="ignore"):
                    for rounds in (True, False):
                        yield Directed(evaluation, stores, rounds).margins(model, tokens, zero, zero + model.L)[0]


def is_broken(module, name, wide):
    """Whether an evaluation is wrong about what is proved of the model; None where nothing is."""
    evaluation = Evaluation(format_named(name), wide and FORMATS[wide])
    model = raised(module, RoundedArithmetic.of(evaluation.fmt, evaluation.accumulate), evaluation)
    return None if model is None else not all(margin > 0 for margin in computed(model, evaluation))


BFLOAT16, BFLOAT16_WIDE, FLOAT16 = ("bfloat16", None), ("bfloat16", "float32"), ("float16", None)
TF32, P5, P12, E4M3, E4M3_WIDE = ("tf32", None), ("p5", None), ("p12", None), ("e4m3", None), ("e4m3", "float32")
u, u_tf32, tiny = 2.0**-8, 2.0**-11, 2.0**-6  # of bfloat16, of tf32's factors, and the smallest normal of e4m3
a, b = lossy_product(8)
flushed = 1.5 * tiny  # its product with 1/2 is subnormal
lowest = 4346 * 2.0**-20  # what p12 makes of share(0, s), with exp(s) 2 units too small
lowest_top = 2709 * 2.0**-12  # and of share(s, 0), with exp(s) 2 units too large
sharp, even = -5.48046875, -0.67138671875

FAULTS = {
    (RoundedArithmetic, "growth"): {
        "halved": ("np.expm1(log)", "np.expm1(log) / 2", neurons(1.0, u, u), BFLOAT16),
        "a tenth less": ("np.expm1(log)", "np.expm1(log) * 0.9", coordinates(1.0, u, u), BFLOAT16),
        "what is stored not rounded": ("np.log1p(v)", "0", neurons(1.0, u), BFLOAT16_WIDE),
    },
    (RoundedArithmetic, "underflow"): {
        "none": ("(n * self.inner.tiny + wider) * INFLATION", "0.0", neurons(0.5, 0.5, W_2=flushed), E4M3),
        "none when stored": ("stored * self.stored.tiny", "0.0", neurons(0.5, W_2=flushed), E4M3_WIDE),
    },
    (RoundedArithmetic, "result"): {
        "not rounded": ("low, high = np.minimum(low, rounded(low, self.stored)), "
                        "np.maximum(high, rounded(high, self.stored))", "pass", neurons(a, W_2=b), BFLOAT16),
    },
    (RoundedArithmetic, "factors"): {
        "not rounded": ("rounded(low - wider * np.abs(low), self.stored)", "low", coordinates(1.0, u), BFLOAT16),
        "not to 11 bits": ("self.operand is not self.stored", "False", coordinates(1.0, W_1=1 + u_tf32), TF32),
    },
    (RoundedArithmetic, "_may_flush"): {
        "never": ("(x != 0) & (np.abs(x) < self.stored.tiny)", "np.zeros(np.shape(x), bool)",
                  neurons(2.0, 2.0, W_2=tiny / 2), E4M3),
    },
    (RoundedArithmetic, "flush_loss"): {"none": ("size, 0.0)", "0.0, 0.0)", neurons(2.0, W_2=tiny / 2), E4M3)},
    (RoundedArithmetic, "is_exact_sum"): {
        "one bit more": ("step * 2.0 **", "step * 4.0 **", score(1.0, u, u), BFLOAT16),
        "of subnormals": (" & (step >= self.stored.tiny)", "", neurons(0.5, 0.5, W_2=flushed), E4M3),
    },
    (RoundedArithmetic, "is_representable"): {
        "in the accumulation": ("& (size <= step * 2.0 ** min(self.stored.p, 52))", "", neurons(1.0, u), BFLOAT16_WIDE),
    },
    (RoundedArithmetic, "fits_operand"): {"always": ("size <= ", "0 * size <= ", coordinates(1 + u_tf32, -1.0), TF32)},
    (RoundedArithmetic, "_computed"): {
        "no growth": ("growth * size +", "", query(1.0, u, u), BFLOAT16),
        "one addition less": ("terms - 1, 0) + of.hard", "terms - 2, 0) + of.hard", query(1.0, u, u), BFLOAT16),
        "exact products": ("terms - 1, 0) + of.hard", "terms - 1, 0)", query(a, 2 * u, W_Q=[b, 1.0]), BFLOAT16),
        "no underflow": ("lost * (1 + growth), 0.0)", "0.0, 0.0)", query(0.5, 0.5, W_Q=flushed, key=64.0), E4M3),
    },
    (reduction, "divided_by_root"): {
        "by the exact root": ("1 / rounded(root, at.inner)]", "]", root(5), P12),
        "reciprocal not rounded": ("factors += [rounded(factor, at.inner) for factor in factors]", "",
                                   root(2, 1 + 2.0**-10, W_2=-1.0), P12),
    },
    (Arguments, "of"): {
        "scores exact": ("(scores.rad + rounding)", "rounding", share(7.650390625, -7.890625, d=3), P12),
        "no subtraction": ("at.once * power_at_or_below(distance * (1 + at.inner.u)) + at.stored.tiny", "0.0",
                           share(4 + 16 * u, -4 + 8 * u, W_2=-1.0), BFLOAT16),
    },
    (RoundedReduction, "_softmax"): {
        "no sum": ("np.log1p(summing)", "0", share(0.0, sharp, b_1=-lowest), P12),
        "no quotient": ("self._uniform_error(N), once)", "self._uniform_error(N), 0.0)",
                        share(0.0, sharp, b_1=-lowest), P12),
        "the others' errors": ("np.log1p(worst) +", "", share(even, 0.0, b_1=-lowest_top), P12),
        "no underflow": ("np.minimum(6 * tiny * N, 3 * (size + wrong) + kept)", "0.0",
                         share(0.0, -10.0, e_BOS=64.0), FLOAT16),
    },
    (softmax, "errors_by_units"): {
        "exp within half a unit": ("ULPS * fmt.u", "fmt.u", share(0.0, sharp), P12),
        "exp within one unit": ("ULPS * fmt.u", "2 * fmt.u", share(0.0, sharp), P12),
        "half": ("1 - U)) /", "1 - U)) / 2 /", share(0.0, sharp), P12),
    },
    (RoundedReduction, "weights_as_factors"): {
        "exact": ("self.at.operand.u", "0.0",
                  share(0.0, -4.0625, e_BOS=1.84765625, W_1=-1.0, b_1=0.031280517578125), TF32),
    },
    (RoundedReduction, "features"): {
        "read exactly": ("(inherited + size) * self.reader.growth", "0", mixed([0, 0], [1, u], 1.0, b_1=u), BFLOAT16),
        "mixed exactly": ("self.reader.growth + inherited", "self.reader.growth", slots(1 / u, b_1=-1 / u), BFLOAT16),
    },
    (RoundedReduction, "residual"): {
        "read exactly": ("reader.growth * size", "0", coordinates(1.0, u, u), BFLOAT16),
        "bias added last": (" + reader.bias_growth * b_1.magnitude", "", coordinates(u, u, b_1=1.0), BFLOAT16),
        "mixed exactly": ("inherited * (1 + reader.growth)", "0", slots(u, b_1=-1.0), BFLOAT16),
        "no underflow": (" + lost + flushed", " + flushed", coordinates(0.5, 0.5, W_1=flushed), E4M3),
        "no flushing": (" + flushed * (1 + reader.growth)", "", coordinates(tiny / 2, W_1=16.0), E4M3),
    },
    (Mixed, "of"): {
        "one rounding for all": ("np.maximum(N - 1, 0) + adds", "adds", slots(2 / u, 1, 1, b_1=-2 / u), BFLOAT16),
        "residual not added": ("N - 1, 0) + adds", "N - 1, 0)", slots(1 / u, b_1=-1 / u), BFLOAT16),
        "exact products": ("+ adds + hard", "+ adds", mixed([2 * u, 0], [a, 0], b, b_1=-2.0), BFLOAT16),
        "moved by any factor": ("(N <= 1) & ~hard & ~adds", "(N <= 1) & ~adds",
                                mixed([0, 0], [1.3046875, 0], 1.265625, W_1=1.0390625), BFLOAT16_WIDE),
        "stored once": ("is_moved, 0, 1 + adds)", "is_moved, 0, 1)", slots(1 / u, 1.0, b_1=-1 / u), BFLOAT16_WIDE),
        "exact residual": ("residual_error = at.growth(N, 1)", "residual_error = 0 * N", slots(u, b_1=-1.0), BFLOAT16),
        "no underflow": ("at.underflow(2 * N)", "0 * N", mixed([0, 0], [0.5, 0], flushed, W_1=16.0), E4M3),
        "no flushing": ("is_exact = is_kept &", "is_exact =", coordinates(tiny / 2, W_1=2.0), E4M3),
        "exact factor": ("at.operand.u)", "0.0)", coordinates(1 + u_tf32, -1.0), TF32),
    },
    (Reader, "of"): {
        "one addition less": ("terms - 1 + has_bias", "terms - 2 + has_bias", coordinates(1.0, u, u), BFLOAT16),
        "exact products": ("- last, 0) + hard", "- last, 0)", coordinates(a, 2 * u, W_1=[b, 1.0]), BFLOAT16),
        "bias added last": ("at.growth(np.maximum(terms - last, 0), 0)", "0.0 * terms",
                            coordinates(u, u, b_1=1.0), BFLOAT16),
        "stored once": ("has_bias & ((terms > 1) | hard)", "0", coordinates(1.0, u, b_1=-1.0), BFLOAT16_WIDE),
        "no underflow": ("at.underflow(2 * terms + has_bias)", "0 * terms", coordinates(0.5, 0.5, W_1=flushed), E4M3),
    },
    (rounded_coordinate, "_error"): {
        "halved": ("error = at.inner.u *", "error = 0.5 * at.inner.u *", slots(1 / u, b_1=-1 / u), BFLOAT16),
        "exact sums": ("(below + hard * total)", "hard * total", slots(1 / u, b_1=-1 / u), BFLOAT16),
        "exact products": ("(below + hard * total)", "below", mixed([2 * u, 0], [a, 0], b, b_1=-2.0), BFLOAT16),
        "not stored": ("2 * at.stored.u", "0.0", slots(1 / u, 1.0, b_1=-1 / u), BFLOAT16_WIDE),
        "no underflow": (" + reduction.mixed.lost[coordinate]", "",
                         mixed([0, 0], [0.5, 0], flushed, W_1=16.0), E4M3),
    },
    (RoundedReadout, "_with_one"): {
        "exact product": ("~is_exact_product, once", "~is_exact_product, 0.0", neurons(a, W_2=b), BFLOAT16),
        "exact sum": ("~is_exact, once", "~is_exact, 0.0", neurons(1.0, b_2=u), BFLOAT16),
        "exact factor": ("times(factor, end[:, None]) * (1 + once) +", "", neurons(1.0, W_2=1 + u_tf32), TF32),
        "no underflow": ("at.underflow(np.where(W != 0, 2, 0))", "0 * W", neurons(0.5, W_2=flushed), E4M3),
        "no flushing": (" + self.lost_b\n", "\n", neurons(1.0, W_2=0.0, b_2=0.75 * tiny), E4M3),
    },
    (RoundedReadout, "_value_by_value"): {
        "exact sum": ("ends(at.result(Ball.between(low_sum, high_sum)))", "(low_sum, high_sum)",
                      neurons(1.0, b_2=u), BFLOAT16),
    },
    (RoundedReadout, "_with_sum"): {
        "no errors of the readout": ("np.minimum(margin, self._margin(rows * end[:, None], error, k))",
                                     "np.minimum(margin, self._margin(rows * end[:, None], 0 * error, k))",
                                     attending_neurons(1.0, u, u), BFLOAT16),
        "neurons not rounded": ("np.where(is_on, self.step(before), 0.0).sum(-1)", "0.0",
                                attending_neurons(1.0, u, 1.0, 2.75 * u, each=2), BFLOAT16),
        "one neuron rounded": ("self.step(before), 0.0).sum(-1)", "self.step(before), 0.0).max(-1)",
                               attending_neurons(1.0, u, 1.0, 2.75 * u, each=2), BFLOAT16),
    },
    (RoundedReadout, "errors"): {
        "no growth": ("+ growth * size", "", neurons(1.0, u, u), BFLOAT16),
        "exact products": ("(b != 0) + hard", "(b != 0)", neurons(a, 2 * u, W_2=[b, 1.0]), BFLOAT16),
        "bias added last": (" + at.growth(terms, 1) * np.abs(b)", "", neurons(u, u, b_2=1.0), BFLOAT16),
        "not stored": ("hard, 1 + (b != 0))", "hard, 0)", neurons(1.0, u), BFLOAT16_WIDE),
        "exact factors": ("factor * (1 + growth) + ", "", neurons(1.0, 1.0, W_2=1 + u_tf32), TF32),
        "no underflow": ("at.underflow(2 * terms)", "0.0", neurons(0.5, 0.5, W_2=flushed), E4M3),
    },
}  # fmt: skip
CASES = [
    pytest.param(*place, name, marks=pytest.mark.deep if i or number % 2 else (), id=f"{place[1]}: {name}")
    for number, (place, faults) in enumerate(FAULTS.items())
    for i, name in enumerate(faults)
]


@pytest.mark.parametrize(("owner", "function", "fault"), CASES)  # of each second function the first fault by default
def test_a_planted_fault_proves_a_wrong_model(owner, function, fault):
    right, wrong, module, reading = FAULTS[owner, function][fault]
    assert not is_broken(module, *reading)
    with planted(owner, function, right, wrong):
        assert is_broken(module, *reading)
