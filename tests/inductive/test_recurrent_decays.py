"""Runs of gated decays in closed form: against fractions, many digits, and numpy's infinite numbers."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx, fmpq
from models.crafted import FAMILIES, crafted
from models.selection import first
from oracles.rounded import nearest
from test_recurrent_rounded import asked

from constructions.recurrent.gated import DiagonalCell, GatedModel, RwkvCell
from tests.clocks import endless, looks
from tests.planted import planted
from verify.arithmetic import contract
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import decays, gated, rounded
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.task import Homogeneous

NEVER = endless().deadline()
TABLES = ("keep", "add", "read")


def stored(rows):
    return torch.tensor(rows, dtype=torch.float64)


def drawn(rng, tokens=1):
    """Two states whose tables are numbers of bfloat16, some that keep all and some that grow, and a readout."""

    def number(*least):
        return float(nearest(Fraction(rng.choice([*least, rng.gauss(0, 1), rng.gauss(0, 1)])), FORMATS["bfloat16"]))

    f = stored([rng.choice([0.0, 0.5, 0.75, 1.0, 1.0078125, 1.5]) for _ in range(2)])
    a, r = (stored([[number(1.0), number(0.0)] for _ in range(tokens)]) for _ in range(2))
    V, b = stored([[number(0.0), number(0.0)] for _ in range(3)]), stored([number(0.0) for _ in range(3)])
    return GatedModel(DiagonalCell(f, a, r[0]), V, b)


def states(model, tokens):
    """The states after each token in fractions, and what the readout is given."""
    f, a, r = (
        [[Fraction(x) for x in row] for row in table.reshape(-1, 2).tolist()] for table in model.cell.parameters()
    )
    h, found = [Fraction(0)] * 2, []
    for token in tokens:
        h = [f[0][i] * h[i] + a[token][i] for i in range(2)]
        found.append([r[0][i] * h[i] for i in range(2)])
    return found


def outside(draws=60, tokens=40):
    """How many numbers that the readout is given are not in the balls of the closed form."""
    rng, found = random.Random(2), 0
    for _ in range(draws):
        model = drawn(rng, 2)
        leading = tuple(rng.choice([0, 1]) for _ in range(rng.randint(0, 3)))
        line = OrbitQuestion(leading, 1, lambda t: 0)
        with ctx.workprec(decays.BITS):
            net = gated.network(model)
            on = decays.Decays(net, line, net.tables[1][0].near.mid.tolist(), FORMATS["bfloat16"])
            exact = states(model, [line.at(t) for t in range(tokens)])
            for t in range(len(leading) + 1, tokens + 1):
                pairs = zip(on.read(t), exact[t - 1], strict=True)
                found += not all(ball.overlaps(arb(fmpq(*x.as_integer_ratio()))) for ball, x in pairs)
    return found


def test_the_closed_form_holds_the_states_of_every_step():
    assert outside() == 0


def test_a_closed_form_that_is_one_token_late_is_found():
    with planted(decays.Decays, "read", "t - len(self._line.leading), list", "t - 1, list"):
        assert outside() > 0


def test_a_start_without_its_leading_tokens_is_found():
    with planted(decays.Decays, "read", "power * h + a", "a"):
        assert outside() > 0


def said_otherwise(name, draws=150, tokens=24):
    """How many answers are said to be wrong and are right, are wrong and not said to be, are both, in fractions."""
    rng, fmt, wrongly, missed, said = random.Random(5), FORMATS[name], 0, 0, 0
    for _ in range(draws):
        model, right = drawn(rng), rng.randrange(3)
        line = OrbitQuestion((), 0, lambda t, right=right: right)
        with ctx.workprec(decays.BITS):
            net = gated.network(model)
            on = decays.Decays(net, line, net.tables[0][0].near.mid.tolist(), fmt)
            for t, read in enumerate(states(model, [0] * tokens), 1):
                margin = in_run(net, read, right, fmt)
                found = on.wrong(t)
                wrongly += found is not None and margin > 0
                wrongly += found is not None and found.by is not None and found.by < margin
                missed += found is None and margin <= 0
                said += found is not None and margin <= 0
    return wrongly, missed, said


def in_run(net, read, right, fmt):
    """The margin where factors alone are rounded."""
    factors = [Fraction(nearest(x, fmt)) for x in read]
    V, b = ([[Fraction(x) for x in row] for row in table.tolist()] for table in (net.V, net.b[:, None]))
    logits = [sum(v * x for v, x in zip(row, factors, strict=True)) + c[0] for row, c in zip(V, b, strict=True)]
    return min(logits[right] - x for j, x in enumerate(logits) if j != right)


@pytest.mark.parametrize("name", first(1, ["bfloat16", "float32"]))
def test_answers_that_are_said_to_be_wrong_are_so_in_the_run(name):
    wrongly, missed, said = said_otherwise(name)
    assert wrongly == 0 and missed < said / 10 and said > 500


def test_factors_that_are_not_rounded_are_found():
    with planted(decays.Decays, "wrong", "* self._fmt.u + self._fmt.tiny)", "* 0)"):
        assert said_otherwise("bfloat16")[0] > 0


@pytest.mark.parametrize(
    ("added", "V", "b", "said"),
    [
        (-(2.0**60), [1.0, 0.0, 0.0], [0.0, 1.0, 2.0], 2),  # float64 holds no 1 beside 2^60
        (-(2.0**60), [1.0, 0.0, 0.0], [0.0, 2.0, 1.0], 1),
        (1 + 2.0**-20, [0.0, 1.0, 0.0], [-5.0, 0.0, 1.0], None),  # rounded, it may be 1
    ],
)
def test_the_class_that_is_said_is_that_of_the_run(added, V, b, said):
    cell = DiagonalCell(stored([0.0]), stored([[added]]), stored([1.0]))
    net = gated.network(GatedModel(cell, stored(V)[:, None], stored(b)))
    line = OrbitQuestion((), 0, lambda t: 0)
    assert decays.refuted(net, line, None, FORMATS["bfloat16"], 0.0, NEVER).predicted == said


# ---- what exp may be computed as


def rwkv(w):
    D = torch.float64
    one = torch.ones(1, len(w), dtype=D)
    cell = RwkvCell(torch.tensor([w], dtype=D), one, one, one)
    return GatedModel(cell, torch.ones(2, len(w), dtype=D), torch.zeros(2, dtype=D))


def test_units_of_four_times_u_are_found():
    with mock.patch.object(decays, "WITHIN", 4), pytest.raises(AssertionError):
        test_what_is_kept_is_within_two_units_in_the_last_place("float64", rounded.HIGH)


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("share", [0.0, rounded.HIGH, rounded.LOW])
def test_what_is_kept_is_within_two_units_in_the_last_place(name, share):
    fmt, above = FORMATS[name], 0
    for w in ([-30.0, -3.0, 0.5], [-12.0, -1.0, 1.5], [-20.25, -7.5, 2.25]):
        kept = decays.kept_off(gated.network(gated.stored_in(rwkv(w), fmt)), 0, fmt, share)
        if kept is None:  # float64 has no number so near
            assert name == "float64" and share != 0
            continue
        with mpmath.workdps(60):
            for x, f in zip(w, kept, strict=True):
                exact = mpmath.exp(-mpmath.exp(x))
                unit = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(exact, 2)) + 1 - fmt.p)
                assert abs(f - exact) < 2 * unit
                above += f > 1
    assert (above > 0) == (share > 0 and name != "float64")


def test_more_than_two_units_are_refused():
    fmt = FORMATS["bfloat16"]
    net = gated.network(rwkv([-30.0, -3.0]))
    assert decays.kept_off(net, 0, fmt, 1.99) is not None and decays.kept_off(net, 0, fmt, 2.01) is None


def test_stored_numbers_are_kept_as_they_are():
    net = gated.network(drawn(random.Random(1)))
    assert decays.kept_off(net, 0, FORMATS["bfloat16"], rounded.HIGH) == net.tables[0][0].near.mid.tolist()


# ---- what is infinite


def test_infinite_factors_are_right_where_numpy_says_so():
    right = 0
    for rows in product((-1.0, 0.0, 2.0), repeat=4):
        V = np.array(rows).reshape(2, 2)
        for signs in product((-1.0, 0.0, 1.0), repeat=2):
            factors = np.array([x * np.inf if x else 7.0 for x in signs])
            if not any(signs):
                continue
            with np.errstate(invalid="ignore"):
                logits = np.array([sum(v * x for v, x in zip(row, factors, strict=True)) for row in V])
            is_right = bool(logits[0] > logits[1])
            assert decays.is_right_beyond(V, np.array(signs), 0) == is_right
            right += is_right
    assert right > 0


def grows(V):
    """A state that is doubled by each token, and one that stays."""
    cell = DiagonalCell(stored([2.0, 0.5]), stored([[1.0, 0.5]]), stored([1.0, 1.0]))
    return GatedModel(cell, stored(V), stored([0.0, 0.0]))


@pytest.mark.parametrize(("V", "wrong"), [([[1.0, 1.0], [0.0, 0.0]], 16), ([[1.0, 0.0], [-1.0, 0.0]], None)])
def test_a_state_that_overflows_is_wrong_unless_all_logits_say_so(V, wrong):
    """2^16 - 1 is infinite in float16, which torch's run says, too."""
    model, line = grows(V), OrbitQuestion((), 0, lambda t: 0)
    found = decays.refuted(gated.network(model), line, None, FORMATS["float16"], 0.0, NEVER)
    ran = model.half()(torch.zeros(1, 40, dtype=torch.long))[0]
    is_right = (ran[:, 0] > ran[:, 1]).tolist()
    assert (None if all(is_right) else is_right.index(False) + 1) == wrong
    assert (found and found.at) == wrong and (found is None or found.by is None)


def test_nothing_is_infinite_in_a_format_that_saturates():
    line = OrbitQuestion((), 0, lambda t: 0)
    assert (
        decays.refuted(gated.network(grows([[1.0, 1.0], [0.0, 0.0]])), line, None, FORMATS["e4m3"], 0.0, NEVER) is None
    )


# ---- verdicts


def margin_in_digits(case, fmt, share, t):
    """The margin after t tokens with 60 digits, where what is kept is 1 + share u times what it is."""
    with mpmath.workdps(60):
        f, a, r = (
            [mpmath.mpf(x.mid().str(40, radius=False)) for x in table.balls]
            for table in gated.network(gated.stored_in(case.model, fmt)).tables[0]
        )
        f = [mpmath.mpf(float(x * (1 + share * fmt.u))) for x in f]
        y = [r[i] * a[i] * (f[i] ** t - 1) / (f[i] - 1) for i in range(2)]
        V, b = case.model.readout.weight.tolist(), case.model.readout.bias.tolist()
        logits = [sum(v * x for v, x in zip(row, y, strict=True)) + c for row, c in zip(V, b, strict=True)]
        return logits[0] - logits[1]


def test_a_gate_that_may_be_above_1_is_refuted_after_hundreds_of_millions_of_tokens():
    case, fmt = crafted(103), FORMATS["float32"]
    net = gated.network(gated.stored_in(case.model, fmt))
    assert case.family == "mamba first" and case.oracle() is None
    assert decays.refuted(net, asked(case), None, fmt, 0.0, NEVER) is None
    found = decays.refuted(net, asked(case), None, fmt, rounded.HIGH, NEVER)
    assert found.at > 10**8 and margin_in_digits(case, fmt, rounded.HIGH, found.at) < 0
    assert margin_in_digits(case, fmt, rounded.HIGH, found.at - 1000) > 0


def test_a_state_that_helps_until_it_is_infinite_is_refuted():
    case, fmt = crafted(FAMILIES.index("rwkv first") + 19 * 6), FORMATS["float32"]
    net = gated.network(gated.stored_in(case.model, fmt))
    found = decays.refuted(net, asked(case), None, fmt, rounded.HIGH, NEVER)
    assert found.by is None and margin_in_digits(case, fmt, rounded.HIGH, found.at - 1) > fmt.largest


def sums_up(a, pushes):
    """A state that keeps all of itself and adds a, beside one that settles; the right class is helped."""
    cell = DiagonalCell(stored([0.5, 1.0]), stored([[1.0, a]]), stored([1.0, 0.5]))
    return GatedModel(cell, stored([[1.0, pushes], [0.0, -pushes]]), stored([0.0, 0.0]))


FAR_SUMS = [("float32", 2.0**-5, 130), ("bfloat16", 3 * 2.0**-100, 220), ("float64", 2.0**-10, 1030)]


@pytest.mark.parametrize(("name", "a", "bits"), FAR_SUMS)
def test_a_sum_that_helps_until_it_is_infinite_is_refuted_there(name, a, bits):
    """0 times an infinite number is NaN: as soon as it is no number, and not one token before."""
    fmt, line = FORMATS[name], OrbitQuestion((), 0, lambda t: 0)
    model = sums_up(a, 1.0)
    model.readout.weight.data[1, 1] = 0.0
    found = decays.refuted(gated.network(model), line, None, fmt, 0.0, NEVER)
    most = Fraction(fmt.largest) * (1 + Fraction(fmt.u) * Fraction(decays.BEYOND))
    before = found.at - 1 - (found.at >> (decays.BITS - 20))  # as far as that many bits tell lengths apart
    assert before * Fraction(a) / 2 <= most < found.at * Fraction(a) / 2
    assert found.at.bit_length() > bits and found.by is None
    assert decays.refuted(gated.network(model), line, min(before, 10**30), fmt, 0.0, NEVER) is None
    assert decays.refuted(gated.network(sums_up(a, 1.0)), line, None, fmt, 0.0, NEVER) is None  # inf beats -inf
    assert decays.refuted(gated.network(sums_up(0.0, 1.0)), line, None, fmt, 0.0, NEVER) is None


def test_a_sum_that_is_not_asked_far_enough_is_found():
    line, net = OrbitQuestion((), 0, lambda t: 0), gated.network(sums_up(2.0**-5, 1.0))
    net.V[1, 1] = 0.0
    with planted(decays.Decays, "overflows", "TWICE / Fraction(y)", "1 / 2 / Fraction(y)"):
        assert decays.refuted(net, line, None, FORMATS["float32"], 0.0, NEVER) is None


def test_a_length_that_was_not_asked_is_not_judged():
    case, fmt = crafted(103), FORMATS["float32"]
    net = gated.network(gated.stored_in(case.model, fmt))
    wrong = decays.refuted(net, asked(case), None, fmt, rounded.HIGH, NEVER).at
    assert decays.refuted(net, asked(case), wrong // 2, fmt, rounded.HIGH, NEVER) is None
    assert decays.refuted(net, asked(case), None, fmt, rounded.HIGH, looks(1).deadline()) is None


@pytest.mark.deep
def test_a_certificate_names_the_run():
    case = crafted(103)
    found = certify(Homogeneous(case.model, case.task, None), Rounded(FORMATS["float32"]), Effort(budget=looks(4000)))
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == 211748449
    assert not found.counterexample["is_first"] and found.extra["right_to"] > 10**6
    assert found.counterexample["evaluation"] == rounded.SAID_KEEPS_HIGH + contract.EXACTLY_KEPT
