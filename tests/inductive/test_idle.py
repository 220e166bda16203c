"""What no matrix reads, and what adds nothing, is left out in real arithmetic: no bound changes by it, and what is no
number is met wherever it stands."""

import math

import numpy as np
import pytest
from planted import planted

from constructions.decoder_arrays import DecoderArrays, NormArrays
from constructions.inductive.two_layers import unmarked
from verify.arithmetic.readings import Real
from verify.counting.tasks import Task
from verify.tasks.inductive import marked, noisy, uniform
from verify.tasks.inductive.noisy import Allowed, Noisy

AT = Allowed()
TASK = Task.of("selective", types=2, max_count=2)


def rows(rng, n, d):
    mid, own, *shared = rng.normal(size=(4, n, d))
    return Noisy(mid, abs(own) * 1e-3, {"a": shared[0] * 1e-3, "b": shared[1] * 1e-4 * (np.arange(d) == 1)})


def alike(some, every):
    """Whether rows have the same midpoints and, up to roundings, the same errors."""
    same = [np.allclose(some.mid, every.mid, rtol=1e-12), np.allclose(some.own, every.own, rtol=1e-8, atol=1e-300)]
    return all(same) and all(np.allclose(some.shared.get(q, 0.0), G, rtol=1e-8) for q, G in every.shared.items())


def check(seed):
    rng = np.random.default_rng(seed)
    x, y = rows(rng, 4, 6), rows(rng, 4, 3)
    layer = NormArrays(rng.normal(size=6), rng.normal(size=6), 1e-5)
    W, out = (M * rng.choice([0.0, 1.0], len(M))[:, None] for M in rng.normal(size=(2, 6, 3)))
    b = rng.choice([0.0, 1.0], 6) if seed % 2 else None
    lanes = noisy.lanes_read(AT, layer, W)
    every = noisy.layer_norm(AT, x, layer, "s")
    assert alike(noisy.layer_norm(AT, x, layer, "s", lanes), every.each(lambda a: a[..., lanes])), seed
    assert len(lanes) == max(1, int((W != 0).any(1).sum()))
    dense = noisy.product(AT, y, Noisy.exact(out.T))
    dense = noisy.plus(AT, x, dense if b is None else noisy.plus(AT, dense, Noisy.exact(b)))
    assert alike(uniform.written(AT, x, y, out.T, b), dense), seed


def test_rows_are_as_with_all_lanes():
    for seed in range(20):
        check(seed)


@pytest.mark.parametrize(
    ("owner", "name", "says", "wrongly"),
    [
        (noisy, "layer_norm", "total(x.own)", "total(x.own[..., lanes])"),
        (noisy, "layer_norm", "total(G) / d for", "total(G[..., lanes]) / d for"),
        (uniform, "written", "(b is not None and b != 0)", "False"),
    ],
)
def test_planted_faults_are_caught(owner, name, says, wrongly):
    with planted(owner, name, says, wrongly), pytest.raises(AssertionError):
        test_rows_are_as_with_all_lanes()


@pytest.mark.parametrize("layernorm", [False, True])
def test_proofs_are_as_with_all_neurons(layernorm, monkeypatch):
    model = DecoderArrays.of(unmarked(K=2, C=2, positions=6, layernorm=layernorm))
    lean = marked.decide(model, TASK, 6, Real(), 30.0)
    assert uniform.without_idle(AT, model).blocks[0].mlp.W_in.shape[1] == 1 < model.blocks[0].mlp.W_in.shape[1]
    monkeypatch.setattr(uniform, "without_idle", lambda at, model: model)
    whole = marked.decide(model, TASK, 6, Real(), 30.0)
    assert lean.length == whole.length == 6 and lean.margin == pytest.approx(whole.margin, rel=1e-9)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("layernorm", [False, True])
def test_what_is_no_number_is_met_where_nothing_reads_it(wrong, layernorm):
    built = unmarked(K=2, C=2, positions=3, layernorm=layernorm)
    for name, x in built.weights.items():
        for place in {0, x.size - 1}:
            kept = x.flat[place]
            x.flat[place] = wrong
            model = DecoderArrays.of(built)
            if marked.applies(model, TASK):
                assert not marked.decide(model, TASK, 3, Real(), 30.0).length, (name, place)
            x.flat[place] = kept
