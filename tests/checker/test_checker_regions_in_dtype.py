"""Strings with regions in a format: no evaluation has a smaller margin than what is shown, and each bound is needed."""

import json
import math
import random
from fractions import Fraction
from unittest import mock

import pytest
import torch
from flint import fmpq, fmpq_mat
from models.selection import first
from oracles import regions_in_format as oracle
from oracles.contextual import counts, valid_strings
from test_checker_real import outcome

from constructions.contextual.transformer import as_bytes
from constructions.contextual_counting import build
from constructions.contextual_positions import build as before_and_after
from constructions.contextual_with_positions import build as placed
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import computed_regions, contextual, forwards
from verify.checker.ball_rows import BITS
from verify.checker.computed_regions import CausalMeans, ComputedRegions
from verify.checker.formats import BinaryFormat
from verify.checker.placed import Placed
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.checker.region_bags import Bag
from verify.checker.region_decoder import RegionDecoder
from verify.checker.region_strings import Strings
from verify.checker.roundoff import exact
from verify.tasks.contextual.verdict import certify, domain_of

P, LEAST, MOST = 11, -14, 15
FORMAT, N, R = BinaryFormat(P, LEAST, MOST), 4, 1
MODELS = {
    "causal": lambda: build(N, R, dtype=torch.float16),
    "two regions": lambda: build(N, 2, dtype=torch.float16),
    "without BOS": lambda: build(N, R, bias="]", dtype=torch.float16),
    "ape": lambda: placed(3, R, "ape", dtype=torch.float16),
    "rope": lambda: placed(3, R, "rope", has_mlp=True, dtype=torch.float16),
    "alibi": lambda: placed(3, R, "alibi", dtype=torch.float16),
    "before and after": lambda: before_and_after(3, R, dtype=torch.float16),
}


def drawn(name, draw):
    """A model of few bits, some numbers of which are moved, as fractions; and whether it has BOS."""
    module = MODELS[name]()
    W = {key: x.detach().double().reshape(-1, x.shape[-1] if x.ndim else 1) for key, x in module.state_dict().items()}
    has_bos = bool(W.pop("bos", torch.ones(1)).any())
    for _ in range(draw.randrange(4)):
        x = W[draw.choice([key for key in W if key not in ("cosines", "sines", "slope")])].view(-1)
        x[draw.randrange(len(x))] += draw.choice([-1, 1]) * 2.0 ** -draw.randint(3, 9)
    rows = {key: [[Fraction(FORMAT.nearest(y)) for y in row] for row in x.tolist()] for key, x in W.items()}
    tiny = Fraction(2) ** LEAST
    return {key: [[y if abs(y) >= tiny else Fraction(0) for y in row] for row in x] for key, x in rows.items()}, has_bos


def as_matrices(W):
    return {key: fmpq_mat([[fmpq(y.numerator, y.denominator) for y in row] for row in x]) for key, x in W.items()}


def prover(W, has_bos, fmt=FORMAT):
    """What says whether a margin is shown on all strings of the model, and these strings."""
    M = as_matrices(W)
    if "positions" in W:
        model = Placed(M, 3, R, fmt)
        return model.proves, valid_strings(3, R)
    strings, model = Strings(N, len(W["P"]), int(not has_bos), 2 * int(not has_bos)), contextual.Causal(M, has_bos)
    return lambda margin: model.proves(strings, margin, fmt), filter(strings.has, valid_strings(N, len(W["P"])))


def shown(proves):
    """The largest margin that is shown, up to an eighth of it; None where none is."""
    low, high = fmpq(0), fmpq(2)
    if not proves(fmpq(1, 10**9)):
        return None
    while high - low > high / 8:
        middle = (low + high) / 2
        low, high = (middle, high) if proves(middle) else (low, middle)
    return Fraction(int(low.p), int(low.q))


def least(W, has_bos, texts, draw, few=None):
    """The least gap of one evaluation of each string."""
    gaps = []
    for text in texts:
        on = oracle.Evaluation(draw, P if few is None else 24, LEAST if few is None else -126, few)
        rows = oracle.logits(on, W, text, "positions" not in W or "slope" in W, has_bos)
        for row, k in zip(rows, counts(text, len(rows)), strict=True):
            gaps.append(min(row[k] - y for j, y in enumerate(row) if j != k))
    return min(gaps)


def compared(name, seed, fmt=FORMAT):
    """The margin that is shown, and the least one of evaluations; None where none is shown."""
    draw = random.Random(f"{name} {seed}")
    W, has_bos = drawn(name, draw)
    try:
        proves, texts = prover(W, has_bos, fmt)
        margin = shown(proves)
    except Refusal:
        return None
    texts = [*texts]
    some = texts if len(texts) < 10 else draw.sample(texts, 10)
    return margin and (margin, least(W, has_bos, some, draw, fmt.factors))


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 20) for i in range(1, 201, 20))]), ids=str)
@pytest.mark.parametrize("name", first(1, MODELS))
def test_no_evaluation_has_less_than_what_is_shown(name, seeds):
    found = [x for x in (compared(name, seed) for seed in seeds) if x]
    assert all(shown <= computed for shown, computed in found)
    assert len(seeds) == 1 or found


def test_a_margin_that_no_evaluation_has_is_seen():
    """The test above can fail: the margin of real arithmetic alone is one that evaluations have not."""
    draw = random.Random(0)
    W, has_bos = drawn("causal", draw)
    proves, texts = prover(W, has_bos, None)
    assert shown(proves) > least(W, has_bos, [*texts][-8:], draw) * Fraction(9, 10)


# ---- each bound is needed

ONE_HALF_PLACE = 2.0**-11  # of the numbers from 1 to 2
UNIT = 1 << BITS
ZEROS = {name: [[0.0]] for name in ("E", "W_O", "W_1", "b_1", "W_2", "b_2", "P", "U_Q", "U_K", "U_V", "W_out", "b_out")}


def computed(slots=3, **given):
    """The roundings of a model with these tensors, each a number or rows, and its decoder."""
    W = {name: fmpq_mat([[fmpq(*float(y).as_integer_ratio()) for y in row] for row in x])
         for name, x in (ZEROS | given).items()}  # fmt: skip
    return ComputedRegions(W, slots, FORMAT), RegionDecoder(W)


def whole(x):
    """A number, or both ends of one, in whole numbers over 2^BITS."""
    low, high = x if isinstance(x, tuple) else (x, x)
    return int(Fraction(low) * UNIT), int(Fraction(high) * UNIT)


def mean_has(number, values, scores, bag, slots=3):
    """Whether a number is in the mean of values, whose scores these are, the first being there always."""
    at, decoder = computed(slots)
    weights = at.weights(decoder, [*map(whole, scores)], [0] * len(scores), [0])
    ((low, high),) = at.mean(bag, weights, [[*map(whole, values)]])
    return low <= Fraction(number) * UNIT <= high


def weight_has(share, score):
    """Whether the weight of a score beside one of 0 may be this share of it."""
    at, decoder = computed()
    one, (low, high) = at.weights(decoder, [whole(0), whole(score)], [0, 0], [0])
    return one[0] == one[1] and low <= Fraction(share) * one[0] <= high


def many(n, at_most=False):
    """One position of the first kind, and so many of another."""
    return Bag([0], [], [], [1], n) if at_most else Bag([0], [], [(n, [1])], [], 0)


def reach_of_a_neuron():
    """1 + t - 1 - s is below 0, but 1 + t is rounded up."""
    t, s = 1.25 * ONE_HALF_PLACE, 1.5 * ONE_HALF_PLACE
    lanes = {"E": [[1.0, t, -s, 0.0]], "W_1": [[1.0], [1.0], [1.0], [0.0]], "b_1": [[-1.0]], "W_O": [[0.0] * 4]}
    lanes |= {"W_2": [[0, 0, 0, 1.0]], "b_2": [[0.0] * 4], "P": [[0.0] * 4], "U_Q": [[0.0]] * 4, "U_K": [[0.0]] * 4}
    at, decoder = computed(U_V=[[0.0], [0.0], [0.0], [1.0]], **lanes)
    ((_, (low, high)),) = at.ranges(decoder, at.W["E"], [[(0, 0)]], exact(at.W["E"]))
    return low <= 0.5 * ONE_HALF_PLACE * UNIT <= high


def is_swallowed():
    """Logits 1 + 2^-12 and 1, of which the first is rounded to the other."""
    at, decoder = computed(W_out=[[1.0, 1.0]], b_out=[[0.5 * ONE_HALF_PLACE, 0.0]])
    return not at.shows(decoder, 0, [(UNIT, UNIT)], fmpq(1, 10**9))


def in_the_box(name="causal"):
    """Whether what attention computes of each position of each string is in its box."""
    draw = random.Random(7)
    W, has_bos = drawn(name, draw)
    for key in ("W_Q", "W_K", "W_V"):
        W[key] = [[Fraction(draw.randrange(-12, 13), 8) for _ in row] for row in W[key]]
    M = as_matrices(W)
    means, decoder = CausalMeans(ComputedRegions(M, N, FORMAT), has_bos, N - 1), RegionDecoder(M)
    boxes = {}
    for text in valid_strings(N - 1, R, int(not has_bos)):
        on, tokens = oracle.Evaluation(draw, P, LEAST), [oracle.BOS] * has_bos + ["01[]".index(x) for x in text]
        q, k, v = ([on.row(W["E"][t], W[name]) for t in tokens] for name in ("W_Q", "W_K", "W_V"))
        for i, t in enumerate(tokens):
            kind = t, sum(x in (2, 3) for x in tokens[: i + 1])
            boxes[kind] = boxes.get(kind) or means.box(decoder, *kind)
            mean = on.attend(q[i], k[: i + 1], v[: i + 1])
            if not all(low <= x * UNIT <= high for x, (low, high) in zip(mean, boxes[kind], strict=True)):
                return False
    return True


FAR = 100 + 2.0**-5  # half-way between two numbers of the format
CASES = {  # a fault, and what one evaluation makes
    "sums of weights are rounded": (ComputedRegions, "_of_total", "fmt.growth(n) +", "0 * fmt.growth(n) +",
        lambda: mean_has(1, (1, 0), (0, (-7.67, -7.65)), many(60), 61)),
    "small weights move a sum of ones": (ComputedRegions, "_of_total", "arb(2) ** n * n", "arb(0)",
        lambda: mean_has(1 / (1 + 8 * 2.0**-10), (1, 0), (0, (-7.63, -7.62)), many(8), 9)),
    "shares are rounded": (ComputedRegions, "_off", "bag.most(valued) + 4", "0",
        lambda: mean_has(FORMAT.nearest(1 / 3), (1, 0), (0, 0), many(2))),
    "products are flushed": (ComputedRegions, "_off", "0 if is_normal else", "0 if True else",
        lambda: mean_has(0, (2.0**-14, 0), (0, 0), many(1))),
    "values that cancel may underflow": (ComputedRegions, "_off", "len(signs) == 1", "True",
        lambda: mean_has(2.0**-15, (2.0**-9, -(2.0**-9)), (0, 0), many(1))),
    "weights are flushed": (ComputedRegions, "weights", "low * int(low >= normal)", "low",
        lambda: weight_has(0, -12)),
    "weights are doubled": (ComputedRegions, "weights", "1 + int(not high >= normal)", "1",
        lambda: weight_has(2 * math.exp(-12), -12)),
    "differences are rounded": (ComputedRegions, "arguments", "(share *", "(0 *",
        lambda: computed()[0].arguments([whole(0), whole(-FAR)], [0, 0], [0])[1][1] >= -100 * UNIT),
    "only a maximum that is known is subtracted exactly": (ComputedRegions, "arguments", "== least == most", "",
        lambda: len({*computed()[0].arguments([whole((-1, 1)), whole(0.5)], [0, 0], [0])[1]}) == 2),
    "scores are off": (ComputedRegions, "arguments", "high + e)", "high)",
        lambda: computed()[0].arguments([whole(0), whole(-1)], [0, UNIT], [0])[1][1] >= 0),
    "a neuron that is off may be computed as on": (forwards, "seen", "not t + e <= 0", "not t <= 0", reach_of_a_neuron),
    "logits are rounded": (ComputedRegions, "shows", "self.lost if self.fmt", "None if self.fmt", is_swallowed),
    "there is room for digits": (CausalMeans, "box", "max(0, self.N", "min(0, self.N", in_the_box),
    "delimiters are there": (CausalMeans, "box", "(m // 2, [CLOSE])", "(0, [CLOSE])", in_the_box),
    "the own token is there": (CausalMeans, "box", "Bag([*own,", "Bag([", lambda: in_the_box("without BOS")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_bound_is_needed(name):
    owner, function, right, wrong, case = CASES[name]
    assert case()
    with planted(owner, function, right, wrong):
        if owner is forwards:
            with mock.patch.object(computed_regions, "seen", forwards.seen):
                assert not case()
        else:
            assert not case()


def test_what_only_roundings_make_right_is_not_called_false():
    """A value of (1 + 2^-7)^2 is 1 + 2^-6 as a factor of bfloat16: every order is right by 1, real arithmetic wrong."""
    module = build(1, 1, dtype=torch.bfloat16)
    with torch.no_grad():
        for W in module.parameters():
            W.zero_()
        module.E[:, 0] = module.U_V[0, 0] = 1 + 2.0**-7
        module.W_out[0, 1], module.b_out[0], module.b_out[1] = 2.0**15, 1.0, -(2.0**15) - 2.0**9
    file = as_bytes(module)
    said = json.loads(certify(module, domain_of(module, 1), fmt=FORMATS["bfloat16"]).about(file).to_json())
    said |= {"verdict": "PROVED", "margin": 1.0, "reason": None, "inputs_covered": "3"}
    assert outcome(file, json.dumps(said)) == (NOT_CHECKABLE, computed_regions.NOT_SHOWN)
