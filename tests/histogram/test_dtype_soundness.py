"""What is proved in a dtype holds in every evaluation of it: torch's kernels in many guises, and the simulator.

For every cell, a token and its count, the certified margin is compared with the margin of every sequence of that
cell as it was computed: no run may fall below what was certified, let alone fail where something was proved.
"""

from __future__ import annotations

import itertools
import shutil
from contextlib import nullcontext
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch
from models.fitted import fitted
from models.random_models import random_model
from models.selection import every, first
from oracles.worst_exponentials import exponentials

from constructions import inventory_counting, relation_counting
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify import repair
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import ORDERS, Evaluation
from verify.arithmetic.formats import FORMATS, format_named
from verify.frame.certificate import Verdict
from verify.tasks.histogram.rounded.cells import RoundedReadout, cell_margins
from verify.tasks.histogram.rounded.directed import Directed
from verify.tasks.histogram.rounded.forward import margins, rounded_model
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.rounded.verdict import certify, is_finite, rounded_module
from verify.tasks.histogram.runs import run_margins
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.vertices import chunks

CHUNK = 100
CHUNKS = [(start, CHUNK) for start in range(0, 600, CHUNK)]
KERNELS = ("float64", "float32", "bfloat16", "float16")
SIMULATED = (*KERNELS, "tf32", "e4m3", "e5m2", "p5", "p12", "p30")


@cache
def all_sequences(T, L):
    return np.array(np.meshgrid(*[range(T)] * L)).reshape(L, -1).T.astype(np.int64).copy()


def model_for(seed):
    """T, L <= 4: random, of small integers, a construction, or a mutated one; some with close scores."""
    module = random_model(seed)
    while module.L > 4:
        seed += 600_000
        module = random_model(seed)
    return close_scores(module, seed) if seed % 7 == 0 and module.is_softmax and not module.is_linear else module


def close_scores(module, seed):
    """Scores come from a first coordinate near 6, so their rounding shows; the neurons read a second one of +-1."""
    g = torch.Generator().manual_seed(seed)
    model = HistogramTransformer("dot+sftm", T=module.T, L=module.L, d=4, p=1, dtype=torch.float64)
    with torch.no_grad():
        model.E[:, 0] = 6 + torch.rand(module.T, generator=g) / 8
        model.E[:, 1] = torch.arange(module.T) % 2 * 2.0 - 1
        model.W_Q[0, 0] = model.W_K[0, 0] = 1 + float(torch.rand(1, generator=g))
        model.W_1[1], model.b_1[:] = 1, 2
        model.W_2[0], model.b_2[0] = torch.arange(module.L), 8  # count 1 is proved
    return model


class Certified:
    """The certified margin of every (sequence, position), -inf where nothing is certified."""

    def __init__(self, module, fmt, accumulate=None):
        self.fmt, self.accumulate = fmt, accumulate
        self.stored = rounded_model(StoredModel.of(module), Evaluation(fmt))
        self.tokens = all_sequences(self.stored.T, self.stored.L)
        T, L = self.stored.T, self.stored.L
        self.cells = np.full((L, T, L), -np.inf)
        if is_finite(self.stored):
            with np.errstate(all="ignore"):
                reduction = RoundedReduction(self.stored, RoundedArithmetic.of(fmt, accumulate))
                for row, found in zip(reduction.rows, cell_margins(reduction), strict=True):
                    self.cells[list(row.positions)] = found
        counts = (self.tokens[:, :, None] == self.tokens[:, None, :]).sum(-1)
        self.margins = self.cells[np.arange(L), self.tokens, counts - 1]

    @property
    def is_proved(self):
        return bool((self.cells > 0).all())

    @property
    def proves_something(self):
        return bool((self.cells > 0).any())

    def broken_by(self, run):
        """Pairs of a proved cell whose computed margin (n, L) is below the certified one; NaN is below."""
        return int(((self.margins > 0) & ~(run >= self.margins)).sum())

    def simulated(self, evaluation):
        return margins(self.stored, self.tokens, evaluation)


def evaluations(fmt, accumulate, rng, n):
    """Random settings of the simulator; every order comes up."""
    orders = rng.permutation(len(ORDERS))
    for i in range(n):
        flags = rng.integers(0, 2, 3).astype(bool)
        yield Evaluation(
            fmt, accumulate, ORDERS[orders[i % len(ORDERS)]], *(bool(f) for f in flags), seed=int(rng.integers(1000))
        )


def permuted(module, rng):
    """The same model with embedding and hidden coordinates in another order."""
    module = deepcopy(module)
    d, p = rng.permutation(module.d), rng.permutation(module.p)
    with torch.no_grad():
        module.E.copy_(module.E[:, d])
        module.W_1.copy_(module.W_1[d][:, p])
        module.b_1.copy_(module.b_1[p])
        module.W_2.copy_(module.W_2[p])
        if module.has_bos:
            module.e_BOS.copy_(module.e_BOS[d])
        if not module.is_linear:
            inner = rng.permutation(module.d)
            module.W_Q.copy_(module.W_Q[d][:, inner])
            module.W_K.copy_(module.W_K[d][:, inner])
    return module


def transposed(module):
    """The same model with every matrix stored column by column."""
    module = deepcopy(module)
    for parameter in module.parameters():
        if parameter.ndim == 2:
            parameter.data = parameter.data.t().contiguous().t()
    return module


def torch_runs(certified, module, rng, device="cpu"):
    """Computed margins of all sequences, from torch in several guises."""
    tokens = torch.from_numpy(certified.tokens).to(device)
    copy = rounded_module(module, certified.stored, certified.fmt).to(device)

    def run(model, batch):
        return run_margins(model, batch, module.first_count).cpu().numpy()

    yield run(copy, tokens)
    yield run(permuted(copy, rng), tokens)
    yield run(transposed(copy), tokens)
    size = int(rng.integers(1, 8))
    yield np.concatenate([run(copy, tokens[i : i + size]) for i in range(0, len(tokens), size)])
    if not module.is_linear:
        places = rng.permutation(module.L)
        back = np.argsort(places)
        yield run(copy, tokens[:, places].contiguous())[:, back]
        yield run(permuted(transposed(copy), rng), tokens.flip(0)[:, places])[::-1][:, back]


def check_in_torch(seed, device="cpu"):
    rng = np.random.default_rng(seed)
    module = model_for(seed)
    certified = Certified(module, FORMATS[KERNELS[seed // 6 % 4]])
    if not certified.proves_something:
        return False
    for run in torch_runs(certified, module, rng, device):
        assert not certified.broken_by(run), (seed, certified.fmt.name)
    return True


def check_in_the_simulator(seed, n=3):
    """Whether something was certified; fails where a run falls below it."""
    certified, found = broken_in_the_simulator(seed, n)
    assert not found, (seed, found)
    return certified.proves_something


def broken_in_the_simulator(seed, n):
    """The certificate of a model in one of the formats, and the evaluations that break it."""
    rng = np.random.default_rng(seed)
    module = model_for(seed)
    fmt = format_named(SIMULATED[seed // 6 % len(SIMULATED)])
    can_widen = fmt.p < 24 and fmt.name != "tf32"
    accumulate = FORMATS["float32"] if can_widen and seed % 3 == 0 else None
    certified = Certified(module, fmt, accumulate)
    if not certified.proves_something:
        return certified, []
    runs = evaluations(fmt, accumulate, rng, n)
    off = seed // 2 % 3 - 1 if fmt.p <= 30 and module.is_softmax else 0
    with exponentials(off) if off else nullcontext():
        return certified, [e for e in runs if certified.broken_by(certified.simulated(e))]


@pytest.mark.parametrize(("start", "models"), first(1, [(0, 20), (20, 20), *CHUNKS]))
def test_torch_never_falls_below_a_certified_margin(start, models):
    assert sum(check_in_torch(seed) for seed in range(start, start + models)) > models // 4


@pytest.mark.parametrize(("start", "models"), first(1, [(0, 40), *CHUNKS]))
def test_no_simulated_order_falls_below_a_certified_margin(start, models):
    assert sum(check_in_the_simulator(seed) for seed in range(start, start + models)) > models // 5


@pytest.mark.parametrize("models", first(1, [3, 80]))
@pytest.mark.parametrize("name", ["tf32", "bfloat16"])
@pytest.mark.deep
def test_no_directed_evaluation_falls_below_a_certified_margin(name, models):
    """Every sum in its worst order; a factor of tf32 is one number for all logits, rounded or not."""
    compared = 0
    rounding = (True, False) if name == "tf32" else (True,)
    for seed in range(models):
        certified = Certified(model_for(seed), format_named(name))
        n, p = np.nonzero(certified.margins > 0)
        n, p = n[:20], p[:20]
        right = (certified.tokens[n] == certified.tokens[n, p][:, None]).sum(1) - certified.stored.first_count
        for rival, rounds in itertools.product(range(certified.stored.classes), rounding):
            i = np.flatnonzero(right != rival)
            if not len(i):
                continue
            directed = Directed(Evaluation(certified.fmt), rounds_factors=rounds)
            rivals = np.full(len(i), rival)
            run = directed.margins(certified.stored, certified.tokens[n[i]], p[i], rivals)
            assert (run >= certified.margins[n[i], p[i]]).all(), seed
            compared += len(i)
    assert compared > 10 * models


def test_weights_far_below_the_largest_of_their_row():
    """The largest score of the table is not in the sequence, where small weights become the largest ones."""
    assert check_in_torch(1101) and check_in_torch(2231)


@pytest.mark.parametrize("seeds", first(1, [[3, 4], range(2, 40)]))
@pytest.mark.deep
def test_many_neurons_are_proved_by_splitting_every_cell(seeds):
    """Repaired models, whose neurons trade off against each other so that ranges prove hardly any cell."""
    proved = 0
    for seed in seeds:
        for name in ("float32", "p18"):
            module, rng = repair(fitted(seed), reading=name).module, np.random.default_rng(seed)
            if module is None:
                continue
            certified = Certified(module, format_named(name))
            open_before = (ranges_alone(certified) <= 0).sum()
            runs = [certified.simulated(e) for e in evaluations(certified.fmt, None, rng, 6)]
            assert not any(certified.broken_by(run) for run in runs), (seed, name)
            proved += certified.is_proved and open_before > certified.stored.T
    assert proved > 0


def ranges_alone(certified):
    """The cells' margins where none is split."""
    reduction = RoundedReduction(certified.stored, RoundedArithmetic.of(certified.fmt, None))
    readout = RoundedReadout(reduction)
    return np.array([readout.margins(row, tables) for row in reduction.rows for tables in chunks(reduction, row)])


@pytest.mark.deep
@pytest.mark.parametrize("start", range(600, 6000, CHUNK))
def test_thousands_more(start):
    for seed in range(start, start + CHUNK):
        check_in_torch(seed)
        check_in_the_simulator(seed, n=6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("start", range(0, 600, CHUNK))
def test_a_gpu_never_falls_below_a_certified_margin(start):
    for seed in range(start, start + CHUNK):
        check_in_torch(seed, "cuda")


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("gcc") is None, reason="torch.compile needs a compiler")
def test_compiled_models_never_fall_below_a_certified_margin():
    proofs = 0
    for seed in range(96):
        module = model_for(seed)
        certified = Certified(module, FORMATS[KERNELS[seed // 6 % 4]])
        if not certified.proves_something or proofs >= 16:
            continue
        proofs += 1
        copy = rounded_module(module, certified.stored, certified.fmt)
        torch._dynamo.reset()  # after eight models of one class torch would silently stop compiling them
        compiled = torch.compile(copy)
        run = run_margins(compiled, torch.from_numpy(certified.tokens), module.first_count).numpy()
        assert not certified.broken_by(run), (seed, certified.fmt.name)
    assert proofs == 16


def squeezed(seed):
    """Five operations on long significands, and a threshold raised until the certified margin is all but used up."""
    rng = np.random.default_rng(seed)
    fmt = format_named(("float32", "float16", "bfloat16", "p12", "p30", "float64", "e4m3", "e5m2")[seed % 8])
    module = HistogramTransformer("lin", T=2, L=1, d=1, p=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for W in (module.E, module.A, module.W_1, module.W_2[:, :1]):
            W.copy_(torch.from_numpy(1 + rng.random(tuple(W.shape))))
        module.E[1] = module.E[0]
    low, high = 0.0, 64.0
    for _ in range(40):
        module.b_2.data[0] = -(low + high) / 2
        low, high = ((low + high) / 2, high) if Certified(module, fmt).is_proved else (low, (low + high) / 2)
    module.b_2.data[0] = -low
    return Certified(module, fmt), module


def failures_of_squeezed(seed, n=8):
    """Evaluations in which a model that is all but refutable, yet proved, answers wrongly."""
    certified, module = squeezed(seed)
    assert certified.is_proved
    rng = np.random.default_rng(seed)
    runs = evaluations(certified.fmt, None, rng, n)
    wrong = [e for e in runs if not (certified.simulated(e) > 0).all()]
    if certified.fmt.name in KERNELS:
        wrong += [run for run in torch_runs(certified, module, rng) if not (run > 0).all()]
    return wrong


@pytest.mark.parametrize("seed", first(2, range(40)))
def test_models_at_the_edge_of_what_is_provable_are_right(seed):
    assert not failures_of_squeezed(seed)


def quartered(monkeypatch):
    whole = RoundedArithmetic.growth
    monkeypatch.setattr(RoundedArithmetic, "growth", lambda *args: whole(*args) / 4)


def called_exact(monkeypatch):
    monkeypatch.setattr(RoundedArithmetic, "is_representable", lambda self, size, *rest: np.ones(np.shape(size), bool))


def softmax_called_exact(monkeypatch):
    monkeypatch.setattr(RoundedReduction, "_softmax", lambda self, scores, exponentials, own, N: exponentials)


@pytest.mark.parametrize("bug", first(1, [quartered, called_exact, softmax_called_exact]))
def test_a_planted_bug_in_the_bound_is_found(bug, monkeypatch):
    """The comparison above can fail: each of these bugs is caught by the models above."""
    bug(monkeypatch)
    assert any(broken_in_the_simulator(seed, 3)[1] for seed in range(600))


@pytest.mark.deep
def test_a_quartered_bound_proves_wrong_models(monkeypatch):
    quartered(monkeypatch)
    assert any(failures_of_squeezed(seed, 16) for seed in range(40))


def everywhere_right(certified, n=10):
    """No simulated evaluation falls below what is certified."""
    runs = evaluations(certified.fmt, None, np.random.default_rng(n), n)
    return not any(certified.broken_by(certified.simulated(e)) for e in runs)


@pytest.mark.parametrize("name", every(2, SIMULATED))
@pytest.mark.parametrize("is_right", [True, False])
def test_sharp_attention_to_very_negative_scores(name, is_right):
    """Scores -50 and -35: the second weight is 0.9999997, though both exponentials are below 1e-15."""
    module = HistogramTransformer("dot+sftm", T=2, L=2, d=1, p=1, dtype=torch.float64)
    with torch.no_grad():
        module.E[:, 0] = torch.tensor([1.0, 0.7])
        module.W_Q.fill_(-50)
        module.W_K.fill_(1)
        module.W_1.fill_(1)
        module.b_1.fill_(-1)  # the neuron reads 0.7 at (0, 1), and 1 at (0, 0)
        module.W_2[0] = torch.tensor([0.0, 1.0])
        module.b_2[0] = 0.85 if is_right else 0.2
    certified = Certified(module, format_named(name))
    assert everywhere_right(certified)
    if not is_right:
        assert not certified.cells[0, 0, 0] > 0
    elif certified.fmt.p >= 24:
        assert certified.cells[0, 0].min() > 0


@pytest.mark.parametrize("name", every(2, SIMULATED))
@pytest.mark.parametrize("scale", every(3, [1e2, 1e5, 1e30, 1e300]))
def test_scores_whose_exponential_overflows(name, scale):
    module = inventory_counting.dot_sftm(T=3, L=3, dtype=torch.float64, as_printed=True)
    with torch.no_grad():
        module.W_Q *= scale
    certified = Certified(module, format_named(name))
    assert everywhere_right(certified)
    assert not certified.is_proved  # the attention is one-hot or NaN: the own neuron reads 1 for every count


@pytest.mark.parametrize("name", every(2, SIMULATED))
@pytest.mark.parametrize("scale", every(3, [2.0**-14, 2.0**-6, 1.0, 2.0**-140, 2.0**-126, 2.0**-1022, 2.0**-1060]))
def test_flushed_subnormals(name, scale):
    """A readout at the lower end of the format: what flushing takes is not proved."""
    module, fmt = relation_counting.bos(T=3, L=3, d=4, dtype=torch.float64), format_named(name)
    with torch.no_grad():
        module.W_2 *= scale
        module.b_2 *= scale
    certified = Certified(module, fmt)
    flushed = certified.simulated(Evaluation(fmt, flush=True))
    assert everywhere_right(certified) and not certified.broken_by(flushed)
    if scale < Evaluation(fmt).stored.tiny / 8:
        assert not certified.proves_something and not (flushed > 0).any()
    if scale == 1 and fmt.p >= 8:
        assert certified.is_proved


@pytest.mark.parametrize("name", every(2, SIMULATED))
def test_weights_that_are_not_finite_or_overflow(name):
    fmt = format_named(name)
    for value in (float("nan"), float("inf")):
        module = relation_counting.bos(T=3, L=3, d=4, dtype=torch.float64)
        module.W_2.data[0, 0] = value
        with pytest.raises(BadInput, match="W_2"):
            certify(module, fmt=fmt)
    module = relation_counting.bos(T=3, L=3, d=4, dtype=torch.float64)
    with torch.no_grad():
        module.W_1 *= 1e300
    certified = Certified(module, fmt)
    assert everywhere_right(certified)
    if not fmt.saturates:
        assert not certified.is_proved
        assert certify(module, fmt=fmt, budget=1).verdict is not Verdict.PROVED
