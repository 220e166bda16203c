"""Reading "dtype, any order" against an emulation that rounds every operation and sums in random orders."""

import math
import random
import re
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from clocks import looks
from models.selection import every
from oracles.contextual import counts, random_model, valid_strings

from constructions.contextual.transformer import CLOSE, ONE, OPEN, from_state_dict
from constructions.contextual_counting import KEYS, build
from constructions.errors import BadInput
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS, format_of_bits
from verify.arithmetic.softmax import total_error
from verify.frame.certificate import READING_DTYPE, Verdict
from verify.frame.clock import TimeIsUp
from verify.tasks.contextual import cells as contextual_cells
from verify.tasks.contextual import rounding, stream
from verify.tasks.contextual.dtype import RoundedCells, round_weights
from verify.tasks.contextual.rounding import Queries, lowest_bit
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.contextual.verdict import certify, domain_of, exhaustive


class Machine:
    """Scalar arithmetic in a format: each result rounded, or kept wider, or flushed, at random; sums in any order."""

    def __init__(self, fmt, rng):
        self.fmt, self.rng = fmt, rng

    def rounded(self, x):
        if x == 0:
            return 0.0
        if abs(x) < self.fmt.tiny and self.rng.random() < 0.5:
            return 0.0
        fraction, exponent = math.frexp(x)
        return math.ldexp(round(math.ldexp(fraction, self.fmt.p)), exponent - self.fmt.p)

    def sum(self, terms):
        terms = list(terms)
        self.rng.shuffle(terms)
        while len(terms) > 1:
            i = self.rng.randrange(len(terms) - 1)
            terms[i : i + 2] = [self.rounded(terms[i] + terms[i + 1])]
        return terms[0] if terms else 0.0

    def dot(self, x, y):
        return self.sum([self.rounded(a * b) for a, b in zip(x, y, strict=True) if a * b])

    def times(self, x, W):
        return [self.dot(x, column) for column in zip(*W, strict=True)]

    def attend(self, q, keys, values):
        scores = [self.dot(q, key) for key in keys]
        weights = [self.rounded(math.exp(self.rounded(s - max(scores)))) for s in scores]
        total = self.sum(weights)
        shares = [self.rounded(w / total) for w in weights]
        return [self.dot(shares, column) for column in zip(*values, strict=True)]

    def plus(self, x, y):
        return [self.rounded(a + b) if a and b else a + b for a, b in zip(x, y, strict=True)]

    def run(self, model, text):
        """The decoder's outputs and the logits of every prompt."""
        W = {name: weight.double().tolist() for name, weight in model.named_parameters()}
        x = [W["E"][t] for t in [4] * model.has_bos + ["01[]".index(c) for c in text]]
        q, k, v = ([self.times(y, W[name]) for y in x] for name in ("W_Q", "W_K", "W_V"))
        stream = []
        for i in range(len(x)):
            y = self.plus(x[i], self.times(self.attend(q[i], k[: i + 1], v[: i + 1]), W["W_O"]))
            hidden = [max(0.0, z) for z in self.plus(self.times(y, W["W_1"]), W["b_1"])]
            stream.append(self.plus(y, self.plus(self.times(hidden, W["W_2"]), W["b_2"])))
        keys, values = [self.times(y, W["U_K"]) for y in stream], [self.times(y, W["U_V"]) for y in stream]
        outputs = [self.attend(self.times(prompt, W["U_Q"]), keys, values) for prompt in W["P"]]
        return outputs, [self.plus(self.times(o, W["W_out"]), W["b_out"]) for o in outputs]


def is_right(logits, right):
    return all(logits[right] > logit for i, logit in enumerate(logits) if i != right)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("p", [12, 16])
def test_proved_models_are_right_in_every_order(p, keys):
    fmt, rng = format_of_bits(p), random.Random(p)
    model = round_weights(build(6, 2, keys=keys, dtype=torch.float64, u=fmt.u), fmt)
    certificate = certify(model, domain_of(model, 6), fmt=fmt)
    assert certificate.reading == READING_DTYPE
    assert certificate.verdict is Verdict.PROVED or (keys == "convex" and p == 12)
    if certificate.verdict is Verdict.PROVED:
        machine = Machine(fmt, rng)
        for text in rng.sample(list(valid_strings(6, 2)), 150):
            for logits, right in zip(machine.run(model, text)[1], counts(text, 2), strict=True):
                assert is_right(logits, right), text


@pytest.mark.deep
def test_computed_outputs_lie_in_their_cells():
    """The intervals themselves, for constructions and for mutated models, whatever their verdict."""
    rng = random.Random(5)
    strings = list(valid_strings(6, 2, 1))
    told = []
    for seed in [*range(1, 40, 3), *range(2, 40, 4)]:
        p = rng.choice([10, 14, 20])
        fmt = format_of_bits(p)
        model = round_weights(random_model(seed, 6), fmt)
        domain = domain_of(model, 6, regions=2)
        machine = Machine(fmt, rng)
        with np.errstate(all="ignore"):
            proof = RoundedCells(StoredContextual.of(model), domain, fmt)
            bounds = {
                (r, M): proof.outputs(proof.weigh(r - 1), r, M, M, np.arange(6 - 2 * M + 1 if r <= M else 1))
                for r in range(1, model.R + 1)
                for M in range(3)
            }
        for text in rng.sample(strings, 25):
            outputs = machine.run(model, text)[0]
            for r, (output, k) in enumerate(zip(outputs, counts(text, model.R), strict=True), 1):
                low, high = (bound[k] for bound in bounds[r, text.count("[")])
                for a, x, b in zip(low, output, high, strict=True):
                    if not (math.isnan(a) or math.isnan(b)):
                        assert a <= x <= b, (seed, text, r)
                        told.append(b - a < 0.25)
    assert sum(told) > len(told) / 4  # the intervals say something


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_torch_agrees_where_the_dtype_is_proved(dtype, device):
    model = build(8, 2, dtype=getattr(torch, dtype))
    found = certify(model, domain_of(model, 8), fmt=FORMATS[dtype])
    assert found.verdict is Verdict.PROVED
    assert exhaustive(model, domain_of(model, 8)).verdict is Verdict.PROVED
    for n in range(2, 7):
        strings = list(valid_strings(n, 2, n))
        tokens = torch.tensor([["01[]".index(symbol) for symbol in text] for text in strings], device=device)
        with torch.no_grad():
            logits = model.to(device)(tokens).double().cpu()
        due = torch.tensor([counts(text, 2) for text in strings])[..., None]
        others = logits.scatter(-1, due, -torch.inf).amax(-1, keepdim=True)
        assert found.margin <= (logits.gather(-1, due) - others).min()


@pytest.mark.deep
def test_the_documents_setting_and_beyond():
    """N = 512, R = 4 in float64, float32 and 17 bits; N = 4096, R = 32 in float32; and not where bits are too few."""
    for dtype, keys in (("float64", "onehot"), ("float64", "convex"), ("float32", "onehot"), ("float32", "convex")):
        model = build(512, 4, keys=keys, dtype=getattr(torch, dtype))
        assert certify(model, domain_of(model, 512), fmt=FORMATS[dtype]).verdict is Verdict.PROVED, (dtype, keys)
    for bits, verdict in ((17, Verdict.PROVED), (14, Verdict.UNKNOWN)):
        fmt = format_of_bits(bits)
        model = round_weights(build(512, 4, dtype=torch.float64, u=fmt.u), fmt)
        assert certify(model, domain_of(model, 512), fmt=fmt).verdict is verdict
    model = build(4096, 32, dtype=torch.float32)
    assert certify(model, domain_of(model, 4096), fmt=FORMATS["float32"]).verdict is Verdict.PROVED


def limits():
    """The page's table: (keys, R, dtype, largest N proved or None)."""
    page = (Path(__file__).parents[2] / "docs" / "contextual.md").read_text()
    for keys, R, *cells in re.findall(r"\| (onehot|convex), (\d) \| (\w+) \| (\w+) \| (\w+) \|", page):
        for dtype, N in zip(("bfloat16", "float16", "float32"), cells, strict=True):
            yield keys, int(R), dtype, None if N == "none" else int(N)


def is_proved(keys, R, dtype, N):
    model = build(N, R, keys=keys, dtype=getattr(torch, dtype))
    cells = RoundedCells(StoredContextual.of(model), domain_of(model, N), FORMATS[dtype])
    with np.errstate(all="ignore"):
        return all((c.margin > 0).all() for c in cells.decide())


@pytest.mark.parametrize(("keys", "R", "dtype", "N"), every(16, limits()))
def test_the_limits_on_the_page(keys, R, dtype, N):
    if N is not None:
        assert is_proved(keys, R, dtype, N)
    if dtype != "float32":
        following = range(2 * R if N is None else N + 1, 48)
        assert not any(is_proved(keys, R, dtype, further) for further in following)
    else:
        assert not is_proved(keys, R, dtype, N + N // 50 + 1)


def test_a_failing_run_refutes():
    """bfloat16 has too few bits for 200 counts: the module itself is shown to fail."""
    model = build(200, 1, dtype=torch.bfloat16)
    certificate = certify(model, domain_of(model, 200), fmt=FORMATS["bfloat16"])
    assert certificate.verdict is Verdict.REFUTED
    found = certificate.counterexample
    assert found["all_module_answers"] != found["all_expected"] or found["expected"] == found["module_answers"]


def test_more_bits_than_the_format_are_refused():
    with pytest.raises(BadInput, match="round the weights first"):
        model = build(64, 2, dtype=torch.float32)
        certify(model, domain_of(model, 64), fmt=format_of_bits(8))


def test_the_total_of_ones_and_small_terms():
    """The bound 16 (J+1)^2 tau against random summation trees, in the format itself and in wider ones."""
    rng = random.Random(1)
    for _ in range(400):
        bits = rng.choice([8, 9, 11, 14])
        J, small = rng.randint(1, 60), [rng.random() * 2.0 ** -rng.randint(12, 20) for _ in range(rng.randint(1, 30))]
        machine = Machine(format_of_bits(bits), rng)
        total = machine.sum([1.0] * J + [machine.rounded(x) for x in small])
        at = RoundedArithmetic.of(format_of_bits(8))
        bound = float(total_error(at, J + len(small), J, sum(small) * (1 + 2.0**-7), True, is_one_format=True))
        assert J <= total <= J * (1 + bound) or abs(total - J - sum(small)) <= bound * (J + sum(small))


def widened(model, lanes=1):
    """The same model with more lanes of the residual stream, all zero."""
    wider = {name: W.clone() for name, W in model.state_dict().items()}
    for name in ("E", "P", "W_O", "W_2", "b_2"):
        wider[name] = torch.nn.functional.pad(wider[name], (0, lanes))
    for name in ("W_Q", "W_K", "W_V", "W_1", "U_Q", "U_K", "U_V"):
        wider[name] = torch.nn.functional.pad(wider[name], (0, 0, 0, lanes))
    return from_state_dict(wider)


def stream_overflow(model):
    model.E[1, -1], model.b_2[-1] = 65504, 30000  # in a lane that nobody reads


def query_overflow(model):
    model.P *= 2.0**9
    model.U_Q *= 2.0**9
    model.U_K *= 2.0**-16


def encoder_query_overflow(model):
    model.W_Q.zero_()
    model.E[:, -1], model.W_Q[-1, 0] = 256, 256
    model.W_K *= 2.0**-10


def encoder_score_overflow(model):
    model.W_Q *= 2.0**7
    model.W_K.zero_()
    model.W_K[[2, 3, 4], 0] = 512


@pytest.mark.parametrize(
    "spoil",
    every(8, [stream_overflow, query_overflow, encoder_query_overflow, encoder_score_overflow]),
    ids=lambda f: f.__name__,
)
@torch.no_grad()
def test_an_overflow_on_the_way_is_never_proved(spoil):
    """The mathematics of these weights is right, but float16 turns infinity times zero into NaN."""
    model = widened(build(6, 1, dtype=torch.float16))
    fmt, tokens = FORMATS["float16"], torch.tensor([OPEN, ONE, CLOSE, 0, 1])
    assert certify(model, domain_of(model, 6), fmt=fmt).verdict is Verdict.PROVED
    spoil(model)
    assert certify(model, domain_of(model, 6)).verdict is Verdict.PROVED
    assert certify(model, domain_of(model, 6), fmt=fmt).verdict is not Verdict.PROVED
    assert model(tokens).isnan().any()


@torch.no_grad()
def test_an_overflow_in_float32_is_never_proved():
    model = widened(build(6, 1, dtype=torch.float32), 2)
    for name in ("W_Q", "W_K"):
        getattr(model, name).zero_()
    model.E[:, -2], model.W_Q[-2, 0] = 2.0**65, 2.0**63
    model.E[2:, -1], model.W_K[-1, 0] = 2.0**-60, 2.0**-60
    assert certify(model, domain_of(model, 6), fmt=FORMATS["float32"]).verdict is not Verdict.PROVED


@torch.no_grad()
def test_a_sum_that_is_normalised_last_may_overflow_first():
    """Four values of 2^14 sum up to 65536 before they are divided by their number."""
    model = build(9, 4, bias="]", dtype=torch.float16)
    domain = domain_of(model, 9, exactly=True)
    assert certify(model, domain, fmt=FORMATS["float16"]).verdict is Verdict.PROVED
    model.U_V *= 2.0**14
    model.W_out *= 2.0**-14
    assert certify(model, domain, fmt=FORMATS["float16"]).verdict is Verdict.UNKNOWN


def test_too_many_pairs_of_classes_stay_undecided(monkeypatch):
    """A readout that is no staircase is compared pair by pair, up to a limit; beyond it nothing is said."""
    model = build(40, 1, dtype=torch.float64)
    with torch.no_grad():
        model.b_out[7] -= 1.0  # line 7 is nowhere the highest
    assert certify(model, domain_of(model, 40)).verdict is Verdict.REFUTED
    model = build(40, 1, dtype=torch.float64)
    with torch.no_grad():
        model.W_out[0, 40], model.b_out[40] = model.W_out[0, 38], model.b_out[38] - 1.0  # a class that is never due
    assert certify(model, domain_of(model, 40)).verdict is Verdict.PROVED
    monkeypatch.setattr(contextual_cells, "MOST_PAIRS", 100)
    assert certify(model, domain_of(model, 40)).verdict is Verdict.UNKNOWN


def test_a_certificate_says_once_how_its_weights_are_read():
    """Those of a dtype are rounded to it; in real arithmetic they are the stored ones."""
    module = build(4, 1, dtype=torch.float32)
    for fmt, said in ((FORMATS["float32"], "weights rounded once to float32"), (None, "the weights are the stored")):
        about = [x for x in certify(module, domain_of(module, 4), fmt=fmt).assumptions if "weights" in x]
        assert len(about) == 1 and about[0].startswith(said)


def tables(rng):
    """Two factors of few bits each, many of them 0."""
    n, m, k = rng.integers(1, 7, 3)
    X, W = (rng.integers(-9, 10, shape) * 2.0 ** rng.integers(-6, 7, shape) for shape in ((n, m), (m, k)))
    return X * (rng.random((n, m)) < 0.6), W * (rng.random((m, k)) < 0.6)


def are_exact(X, W, fmt):
    """Whether the sums of each row and column keep to fmt.p bits above the last bit of all their products."""
    for row in X.tolist():
        for column in W.T.tolist():
            terms = [Fraction(a) * Fraction(b) for a, b in zip(row, column, strict=True) if a * b]
            last = min((Fraction(t.numerator & -t.numerator, t.denominator) for t in terms), default=Fraction(1))
            yield sum(map(abs, terms)) < 2**fmt.p * last


def tables_in_blocks(monkeypatch):
    """A block of one row says what all rows together do, and 0 where every partial sum is exact."""
    rng, fmt, told = np.random.default_rng(2), format_of_bits(8), []
    for _ in range(60):
        X, W = tables(rng)
        whole = rounding.table_error(X, W, fmt)
        with monkeypatch.context() as patched:
            patched.setattr(stream, "PIECE", 1)
            assert np.allclose(rounding.table_error(X, W, fmt), whole, rtol=1e-12, atol=0)
        exact = np.reshape(list(are_exact(X, W, fmt)), whole.shape)
        assert np.array_equal(whole == 0, exact)
        told.append(exact.mean())
    assert 0.1 < np.mean(told) < 0.9


def test_tables_in_blocks_are_those_of_the_whole(monkeypatch):
    tables_in_blocks(monkeypatch)


@pytest.mark.parametrize(
    "fault",
    [
        ("table_error", "out[at + rounded]", "out[rounded]"),
        ("lowest_bit_of_products", ".min(axis=0,", ".max(axis=0,"),
        ("table_error", "range(0, len(X), step)", "range(0, len(X) - 1, step)"),
    ],
    ids=str,
)
def test_faults_in_blocks_of_tables_are_seen(fault, monkeypatch):
    with planted(rounding, *fault), pytest.raises((AssertionError, ValueError)):
        tables_in_blocks(monkeypatch)


def peak(compute):
    """The most bytes that were held at a time."""
    tracemalloc.start()
    try:
        compute()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_table_of_all_products_is_held():
    n, rng = 96, np.random.default_rng(1)
    X, W = rng.normal(size=(2, n, n))
    assert peak(lambda: rounding.table_error(X, W, FORMATS["float32"])) < n**3 * 8 / 4
    assert peak(lambda: (lowest_bit(X)[:, :, None] + lowest_bit(W)[None]).min(axis=1)) > n**3 * 8


def test_the_prompts_are_asked_once_and_by_the_clock(monkeypatch):
    model = build(12, 3, dtype=torch.float32)
    proof = RoundedCells(StoredContextual.of(model), domain_of(model, 12), FORMATS["float32"])
    asked = []
    of = Queries.of
    monkeypatch.setattr(Queries, "of", lambda *given: asked.append(given) or of(*given))
    monkeypatch.setattr(stream, "PIECE", 1)
    proof.seen  # noqa: B018
    assert len(asked) == 1 and len(proof.kinds.tokens) > 1
    with pytest.raises(TimeIsUp):
        of(proof.stored, proof.fmt, looks(2).deadline())
