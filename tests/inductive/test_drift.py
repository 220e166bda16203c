"""What a dtype's logits drift: bounds hold what any order of evaluation makes of rows, layers and whole decoders."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from models import counting_decoders as models
from models.selection import first
from oracles import decoder as oracle
from oracles.operations import Rounded as RoundedField
from planted import planted

from constructions.decoder import Decoder
from constructions.decoder_arrays import DecoderArrays, NormArrays
from constructions.inductive import beside_bos, positioned, selective, unmixed
from verify.arithmetic.readings import reading_of
from verify.counting.tasks import Task
from verify.tasks.inductive import boxes, drift, noisy, placed
from verify.tasks.inductive.drift import Drift
from verify.tasks.inductive.noisy import Allowed, Noisy

P = 8
AT = Allowed(reading_of(f"p{P}").format)
FINE = Allowed(reading_of("float32").format)
NAME = "first-heterogeneous"


def near(x, p=P):
    """A fraction rounded to p bits, below the smallest normal number to 0."""
    x = Fraction(x)
    if abs(x) < Fraction(2) ** -126:
        return Fraction(0)
    unit = Fraction(2) ** (math.frexp(float(x))[1] - p)
    return round(x / unit) * unit


def summed(terms, p=P):
    total = Fraction(0)
    for term in terms:
        total = near(total + near(term, p), p)
    return total


def row_of(numbers, off=None):
    exact = Noisy.exact(np.array([[[float(x) for x in numbers]]]))
    off = np.array([[off or [0.0] * len(numbers)]])
    return Drift(exact, off, drift.mean_of(exact))


def moved(numbers, off, signs):
    return [Fraction(x) + sign * Fraction(e) for x, e, sign in zip(numbers, off, signs, strict=True)]


def column(numbers):
    return np.array([[float(x)] for x in numbers])


TINY = 2.0**-100
LINEAR = (  # row, what it is off by, signs, weights, bias
    ([1.0, 2.0], [0.5, 0.25], (1, -1), [1.0, -3.0], None),
    ([1.0] + [2.0**-9 * 0.99] * 20, [0.0] * 21, (1,) * 21, [1.0] * 21, None),
    ([TINY], [0.0], (1,), [TINY], None),
    ([2.0**-9 * 0.99], [0.0], (1,), [1.0], 1.0),
)


def linear_holds():
    for row, off, signs, weights, bias in LINEAR:
        b = None if bias is None else np.array([bias])
        found = drift.linear(AT, row_of(row, off), column(weights), b)
        exact = sum(Fraction(x) * Fraction(w) for x, w in zip(row, weights, strict=True)) + Fraction(bias or 0)
        computed = summed(x * Fraction(w) for x, w in zip(moved(row, off, signs), weights, strict=True))
        computed = computed if bias is None else near(computed + Fraction(bias))
        assert abs(computed - exact) <= Fraction(found.off.item())
        assert abs(Fraction(found.exact.mid.item()) - exact) <= Fraction(found.exact.noise.item())
    mean = drift.linear(AT, row_of([3.0, 1.0]), np.array([[1.0, 1.0], [-1.0, 2.0]]), np.ones(2))
    assert 4.25 <= mean.centre.item() < 5.25  # of (3, 6), no more than 3 + 1/2 + 1
    huge = drift.linear(AT, row_of([1e30]), column([1e30]), None)
    assert not bool(huge.off < math.inf)


def plus_holds():
    for x, y, a, b in ((1.0, 2.0**-9 * 0.99, 0.0, 0.0), (1.0, 1.0, 0.5, 0.0), (1.0, 1.0, 0.0, 0.5)):
        found = drift.plus(AT, row_of([x], [a]), row_of([y], [b]))
        assert abs(near(Fraction(x + a) + Fraction(y + b)) - Fraction(x) - Fraction(y)) <= Fraction(found.off.item())

    assert float(drift.plus(AT, row_of([1.0, 3.0]), row_of([0.0, 2.0])).centre.item()) >= 3


def streams_holds():
    """A token and a position whose sum is rounded; a token alone is not."""
    model = Decoder(vocabulary=2, d=2, positions=3, pe="ape", layernorm=False)
    with torch.no_grad():
        model.W_E[1], model.W_pos[2] = torch.tensor([1.0, 0.5]), torch.tensor([2.0**-8 * 0.75, 0.25])
    found = drift.streams(AT, DecoderArrays.of(model))
    for t, i, lane in itertools.product(range(2), range(3), range(2)):
        parts = [Fraction(W.item()) for W in (model.W_E[t, lane], model.W_pos[i, lane])]
        assert abs(near(sum(parts)) - sum(parts)) <= Fraction(float(found.off[t, i, lane]))
        assert abs(Fraction(float(found.exact.mid[t, i].mean()))) <= Fraction(float(found.centre[t, i, 0]))
    assert not drift.streams(AT, DecoderArrays.of(Decoder(vocabulary=2, d=2, pe="nope"))).off.any()
    wide = drift.mean_of(Noisy(np.array([[1.0, 2.0]]), np.array([[0.5, 0.5]])))
    assert wide.item() >= 2


def mean_holds():
    """One value forty times, its weight rounded once; small values after a large one; and rows that are off."""
    cases = (([1.0] * 40, 0.0), ([1.0, *[2.0**-8 * 0.99] * 40], 0.0), ([1.0] * 4, 0.5), ([2.0**-126] * 2, 0.0))
    for values, off in cases:
        n = len(values)
        kinds = sorted(set(values))
        exact = Noisy.exact(np.array([[[x] for x in kinds]]))
        found = drift.mean(AT, Drift(exact, np.full_like(exact.mid, off), drift.mean_of(exact)), n)
        weight = near(Fraction(1, n))
        computed = summed(weight * (Fraction(x) + Fraction(off)) for x in values)
        assert abs(computed - sum(map(Fraction, values)) / n) <= Fraction(found.off.item()), values


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def activated_holds():
    found = drift.activated(FINE, row_of([1.25], [0.25]), "gelu")
    assert gelu(1.5) - gelu(1.25) <= found.off.item()
    found = drift.activated(AT, row_of([4.0]), "gelu")
    assert abs(gelu(4.0) * (1 + 7 * AT.u) - gelu(4.0)) <= found.off.item()  # as far off as the contract allows
    assert float(drift.activated(AT, row_of([1.0], [0.5]), "relu").off.item()) >= 0.5


def normed(row, eps, passes, p):
    """LayerNorm in p bits, from the mean of squares less the square of the mean, or from distances; None for a root of
    a negative number."""
    d, m = len(row), near(summed(row, p) / len(row), p)
    if passes == 1:
        variance = near(near(summed((near(x, p) ** 2 for x in row), p) / d, p) - near(m * m, p), p)
    else:
        variance = near(summed((near(x - m, p) ** 2 for x in row), p) / d, p)
    square = near(variance + Fraction(eps), p)
    if square <= 0:
        return None
    root = near(Fraction(1 / math.sqrt(float(square))), p)
    if passes == 1:
        return [near(near(x * root, p) - near(m * root, p), p) for x in row]
    return [near(near(x - m, p) * root, p) for x in row]


NORMED = (  # row, off, signs
    ([3.0, -3.0, 0, 0, 0, 0, 0, 0], [0, 0.5, 0, 0, 0, 0, 0, 0], (1, -1, 1, 1, 1, 1, 1, 1)),
    ([3.0, -3.0, 0, 0, 0, 0, 0, 0], [0, 0, 0.5, 0, 0, 0, 0, 0], (1,) * 8),
    ([2.0, -2.0], [0.5, 0.0], (1, 1)),
    ([40.5, 39.0, 41.25, 40.0], [0.0] * 4, (1,) * 4),
    ([1.0, -1.0, 0.33, 0.71, -1.04], [0.0] * 5, (1,) * 5),
    ([2.0**-120, -(2.0**-120)], [0.0] * 2, (1,) * 2),
    ([1.0, -1.0], [3.0, 3.0], (-1, 1)),
)


def normalised_holds():
    for (row, off, signs), passes, eps, p in itertools.product(NORMED, (1, 2), (1e-5, 2.0**20), (8, 16, 24)):
        layer = NormArrays(np.ones(len(row)), np.zeros(len(row)), eps)
        found = drift.normalised(Allowed(reading_of(f"p{p}").format), row_of(row, off), layer)
        mean = sum(map(Fraction, row)) / len(row)
        s = math.sqrt(float(sum((Fraction(x) - mean) ** 2 for x in row) / len(row)) + eps)
        computed = normed(moved(row, off, signs), eps, passes, p)
        for i, bound in enumerate(found.off.flatten().tolist()):
            y = float(Fraction(row[i]) - mean) / s
            is_far = computed is None or abs(float(computed[i]) - y) > bound + abs(y) * 1e-14
            assert not is_far or not bound < math.inf, (row, i)


CHECKS = (linear_holds, plus_holds, streams_holds, mean_holds, activated_holds, normalised_holds)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_bound_holds_its_adversary(check):
    check()


FAULTS = (
    ("linear", "x.off @ np.abs(W) * (1 + gamma(d + 8)) +", "", linear_holds),
    ("linear", "(at.sums(k) + at.u) * terms", "at.u * terms", linear_holds),
    ("linear", "+ at.lost_in_sums(k)", "", linear_holds),
    ("linear", "(terms + np.abs(bias.mid)) * ENLARGE, d + 2", "terms, d + 2", linear_holds),
    ("linear", "at.checked(2 * terms, off * ENLARGE)", "off", linear_holds),
    ("plus", "x.off + y.off", "y.off", plus_holds),
    ("plus", "x.off + y.off", "x.off", plus_holds),
    ("plus", "at.u * sizes +", "", plus_holds),
    ("plus", "(x.centre + y.centre)", "y.centre", plus_holds),
    ("streams", "(at.u * exact.size + at.tiny) * ENLARGE if is_sum else", "", streams_holds),
    ("streams", 'model.pe in ("ape", "sine")', "True", streams_holds),
    ("mean_of", "x.noise + gamma", "gamma", streams_holds),
    ("linear", "mean_of(Noisy.exact(W))", "(0 * mean_of(Noisy.exact(W)))", linear_holds),
    ("linear", "(centre + mean_of(bias))", "centre", linear_holds),
    ("mean", "off = off +", "off =", mean_holds),
    ("mean", "weight + at.sums(n)", "at.u", mean_holds),
    ("mean", "at.sums(n) * (1 + weight)", "at.u", mean_holds),
    ("mean", "+ at.lost_in_sums(n)", "", mean_holds),
    ("activated", "STEEPEST * off", "off", activated_holds),
    ("activated", "ULPS * at.u * x.size", "at.u * x.size", activated_holds),
    ("activated", "off = x.off", "off = 0 * x.off", activated_holds),
    ("centred", "of_c = (off + of_mean)", "of_c = (off + 0 * of_mean)", normalised_holds),
    ("centred", "of_c = (off + of_mean)", "of_c = (0 * off + of_mean)", normalised_holds),
    ("centred", "np.square(low) + np.square(x.centre + of_mean)", "np.square(low)", normalised_holds),
    ("centred", "(1 + of_s) / (1 - moved) - 1", "of_s", normalised_holds),
    ("centred", "is_some = moved <= 0.25", "is_some = moved <= 9", normalised_holds),
    ("normalised", "quotient * c.of_s +", "", normalised_holds),
    ("normalised", "+ 8 * at.tiny", "+ 0 * at.tiny", normalised_holds),
)


@pytest.mark.parametrize("fault", [(fault,) for fault in FAULTS], ids=lambda fault: f"{fault[0][0]}: {fault[0][1]}")
def test_planted_faults_are_caught(fault):
    ((name, says, wrongly, check),) = fault
    with planted(drift, name, says, wrongly), pytest.raises(AssertionError):
        check()


def decoder(seed):
    """A decoder of one layer of equal weights on strings of few types, and a bound on its keys."""
    rng = random.Random(seed)
    K, n, layernorm = rng.randint(2, 3), rng.randint(2, 4), rng.random() < 0.5
    kind = rng.choice(["unmixed", "bos", "positioned", "selective", "drawn"])
    pe = rng.choice(["ape", "spe"])
    if kind == "unmixed":
        model = unmixed(K=K, N=n, layernorm=layernorm)
    elif kind == "bos":
        model = beside_bos(K=K, pe=pe, layernorm=layernorm, positions=n + 1)
    elif kind == "positioned":
        model = positioned(K=K, C=2, pe=pe, layernorm=layernorm, positions=n)
    elif kind == "selective":
        model = selective(K=K, C=2, layernorm=layernorm)
    else:
        model = models.drawn(rng, rng, Task.of(NAME, types=K), n + 1, 1, 0.4)
        with torch.no_grad():
            model.blocks[0].attention.W_Q.zero_()
            if model.blocks[0].attention.b_Q is not None:
                model.blocks[0].attention.b_Q.zero_()
    if rng.random() < 0.4:
        model = models.nudged(rng, model, 0.1)
    return model.eval(), K, n


def drifts(seeds):
    """Runs strings in a dtype, sums in random orders, and compares what each logit is off by; how many bounds there
    are."""
    known = 0
    for seed in seeds:
        rng = random.Random(seed)
        model, K, n = decoder(seed)
        p, smallest, dtype = rng.choice([(11, -14, "float16"), (24, -126, "float32")])
        model, at = model.to(getattr(torch, dtype)), Allowed(reading_of(dtype).format)
        exact = drift.stored(DecoderArrays.of(model), at)
        if exact is None:
            continue
        bound = drift.most(at, exact, n + int(model.has_bos)) / 2
        known += bound < math.inf
        m, string = oracle.stored(model), tuple(rng.randrange(K) for _ in range(n))
        shift = 0 if model.pe == "nope" else rng.randrange(model.positions - model.has_bos - n + 1)
        sure = oracle.slow(m, string, shift)
        said = oracle.slow(m, string, shift, RoundedField(p, rng, smallest), rng.choice([1, 2]))
        off = max(abs(a - b) for a, b in zip(said.flatten(), sure.flatten(), strict=True))
        assert not off > bound, seed
    return known


@pytest.mark.parametrize("seeds", first(1, [range(5), *(range(i, i + 40) for i in range(5, 405, 40))]), ids=str)
def test_whole_decoders_drift_no_further(seeds):
    assert drifts(seeds) >= len(seeds) // 2


def test_where_nothing_is_known():
    """A stored number that may be flushed, a query that may overflow, and LayerNorms that may divide by nothing."""
    at, model = Allowed(reading_of("float32").format), unmixed(K=2, N=3)
    assert drift.stored(DecoderArrays.of(model), at) and drift.most(at, DecoderArrays.of(model), 3) < math.inf
    with torch.no_grad():
        model.blocks[0].attention.W_K[0, 0] = 1e38
    assert not drift.most(at, drift.stored(DecoderArrays.of(model), at), 3) < math.inf
    with torch.no_grad():
        model.W_U[0, 0] = 1e-40
    changed = DecoderArrays.of(model)
    assert drift.stored(changed, at) is None and drift.by_length(changed, reading_of("float32")) is None
    assert drift.stored(DecoderArrays.of(unmixed(K=2, N=3)), Allowed(reading_of("tf32").format)) is None
    off = drift.normalised(at, row_of([1.0, 1.0], [0.5, 0.5]), NormArrays(np.ones(2), np.zeros(2), 1e-5)).off
    assert not bool((off < math.inf).any())


def loud(model, k):
    """The same function in real arithmetic: a last LayerNorm that is 2^k times as large, read 2^(6 - k) times."""
    with torch.no_grad():
        model.norm.weight *= 2.0**k
        model.W_U *= 2.0 ** (6 - k)
    return model


def faint(model):
    """The same function, nearly: a stream of small numbers, so that the last LayerNorm divides by a small one; and
    logits that float32 does not hold."""
    with torch.no_grad():
        for W in (model.W_E, model.blocks[0].attention.W_O, model.blocks[0].mlp.W_out):
            W *= 2.0**-8
        model.norm.weight *= 16
        model.W_U *= 2.0**126
    return model


def proved(proof, model, task, n, dtype):
    return proof.decide(DecoderArrays.of(model), task, n, reading_of(dtype), 10.0).length


def overflows():
    """Decoders whose last LayerNorm is no number in a dtype, with what says so."""
    counted = Task.of("selective", types=2, max_count=2)
    many = Task.of("selective", types=6, max_count=4)
    return (
        ("boxes", boxes, loud(selective(K=6, C=4, dtype=torch.float32), 127), many, 4, "float32",
         (noisy, "loudest", "2 * np.maximum(weight, 1) * (reach + 1)", "0 * (reach + 1)")),
        ("placed", placed, loud(positioned(K=2, C=2, positions=4), 127), counted, 4, "p50",
         (drift, "normalised", "at.checked(most, found * ENLARGE)", "found * ENLARGE")),
    )  # fmt: skip


@pytest.mark.parametrize("case", overflows(), ids=lambda case: case[0])
def test_what_overflows_at_the_end_is_not_proved(case):
    _, proof, model, task, n, dtype, fault = case
    with torch.no_grad():
        said = model.float()(torch.tensor(list(task.strings(n))))
    assert not bool(said.isfinite().all())
    model = model.to(torch.float32 if dtype == "float32" else torch.float64)
    assert proved(proof, model, task, n, dtype) == 0
    with planted(*fault):
        assert proved(proof, model, task, n, dtype) == n


def test_logits_that_overflow_are_not_bounded_before_their_division():
    """They do after it, by a number that is less than 1."""
    model, at = faint(unmixed(K=3, N=4)), Allowed(reading_of("p50").format)
    with torch.no_grad():
        said = model.float()(torch.tensor(list(Task.of(NAME, types=3, distinct_start=True).strings(4))))
    assert not bool(said.isfinite().all())
    assert not drift.undivided(at, DecoderArrays.of(model.double()), 4)[0] < math.inf
    with planted(drift, "undivided", "or not bool(np.isfinite(logits.off).all())", ""):
        assert drift.undivided(at, DecoderArrays.of(model), 4)[0] < math.inf
