"""Circuits in floating point and in real arithmetic, against runs in any order, enumeration, and planted faults."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from circuit_machine_oracle import LooseMachine
from circuit_oracle import gate_values
from test_circuit_files import EPFL, ISCAS, path_of
from test_circuit_proofs import inputs, mutate, random_circuit

from constructions.circuit import Circuit, Gate, decompose
from constructions.circuit_files import read_circuit
from constructions.circuit_simulation import build
from verify import circuit_attention, circuit_rounding
from verify.balls import Ball
from verify.certificate import READING_DTYPE, READING_REAL, Verdict
from verify.circuit import smallest_bits
from verify.circuit_attention import Attention, BallRows, ScoreError, Undecided, attention
from verify.circuit_dtype import Reading, certify
from verify.circuit_forward import next_tokens, runs_of, stored_weights
from verify.circuit_rounding import RoundedSteps
from verify.circuit_steps import NONE
from verify.formats import FORMATS, format_named
from verify.rounded_reduction import Arithmetic
from verify.rounding import rounded

COARSE = ("p4", "p5", "p6", "bfloat16", "float16", "e4m3", "e5m2", "p14")
KERNELS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def rough(model, rng):
    """Weights that no format holds: nearly those of the theorem."""
    for weights in model.state_dict().values():
        weights *= 1 + 0.02 * torch.from_numpy(np.random.default_rng(rng.randrange(10**6)).normal(size=weights.shape))


def random_transformer(rng):
    """A small circuit and its transformer, as built, mutated or rough."""
    decomposition = decompose(random_circuit(rng, rng.randrange(1, 4), rng.randrange(1, 4)))
    model = build(decomposition.circuit, s=rng.choice([1, 2, 2, 3, 4, 5]))
    kind = rng.choice(["built", "mutated", "rough"])
    for _ in range(rng.choice([1, 2]) if kind == "mutated" else 0):
        mutate(model, rng)
    if kind == "rough":
        rough(model, rng)
    return decomposition, model


def escaped(seed):
    """How many readouts of loose runs were compared with their ends, and how many lie outside."""
    rng = random.Random(seed)
    decomposition, model = random_transformer(rng)
    fmt = format_named(rng.choice(COARSE))
    reading = Reading(fmt, FORMATS["float32"] if fmt.p < 14 and rng.random() < 0.4 else None)
    W, n, N = stored_weights(model, fmt), model.n, model.n + model.T - 1
    if not model.T:
        return 0, 0
    with np.errstate(all="ignore"):
        try:
            steps = RoundedSteps(W, n, model.lanes, reading.arithmetic)
            p = np.arange(n - 1, N)
            ends = np.array([(low, high) for _, low, high in steps.cases(p)])
        except Undecided:
            return 0, 0
    plain, known = {name: w.tolist() for name, w in W.items()}, [p, *steps.nodes(p)]
    compared = outside = 0
    for bits in inputs(n):
        tokens = decomposition.circuit.evaluate(bits)
        for drift in (0, 0, 1, -1):
            machine = LooseMachine(fmt, reading.accumulate or fmt, rng, drift)
            g = machine.readouts(plain, tokens[:N])
            for i, position in enumerate(p.tolist()):
                case = sum((0 if node[i] == NONE else tokens[node[i]]) << 3 - j for j, node in enumerate(known))
                low, high = ends[case, :, i]
                compared += np.isfinite(high - low)
                outside += not low <= g[position] <= high
    return compared, outside


@pytest.mark.parametrize("part", range(4))
def test_every_readout_of_a_loose_run_is_between_its_ends(part):
    total = np.array([escaped(f"{part} {seed}") for seed in range(15)]).sum(0)
    assert total[0] > 500 and total[1] == 0


@pytest.mark.deep
@pytest.mark.parametrize("part", range(20))
def test_every_readout_of_a_loose_run_is_between_its_ends_at_length(part):
    assert sum(escaped(f"deep {part} {seed}")[1] for seed in range(200)) == 0


def rough_addresses(rng, fmt):
    """Queries and keys like the theorem's, most of them a little off; some positions have two of each."""
    k, N = rng.randrange(1, 5), rng.randrange(2, 9)
    B, off = rng.choice([0.5, 1.5, 3.75, 7.875, 16.0]), rng.choice([0.0, 0.02, 0.2])
    normal = np.random.default_rng(rng.randrange(10**6)).normal

    def rows(numbers, scale):
        position = np.repeat(np.arange(N), [rng.choice([1, 1, 2]) for _ in range(N)])
        signs = 2.0 * (np.array(numbers)[position, None] >> np.arange(k) & 1) - 1
        vectors = np.stack([signs * scale, np.full_like(signs, -scale if scale > 1 else 1)], 2).reshape(-1, 2 * k)
        vectors = rounded(vectors * (1 + off * normal(size=vectors.shape)), fmt)
        return BallRows(Ball(vectors, np.zeros_like(vectors)), position)

    queries = rows([rng.randrange(p + 1) for p in range(N)], 1.0)
    return queries, rows(range(N), B), N


def attention_escaped(seed):
    """How many loose softmaxes were compared with their leak, and how many leak more or retrieve another position."""
    rng = random.Random(seed)
    fmt = format_named(rng.choice(COARSE))
    at = Reading(fmt, FORMATS["float32"] if fmt.p < 14 and rng.random() < 0.4 else None).arithmetic
    queries, keys, N = rough_addresses(rng, fmt)
    try:
        with np.errstate(all="ignore"):
            found = attention(at, queries, keys, N)
    except Undecided:
        return 0, 0
    compared = outside = 0
    for q, p in zip(queries.vectors.mid.tolist(), queries.position.tolist(), strict=True):
        clear = found.clear[p]
        if clear == NONE:
            continue
        chosen = {r: rng.choice(np.flatnonzero(keys.position == r)) for r in range(p + 1)}
        for spread in (0, 1):
            machines = [LooseMachine(fmt, at.inner, rng, -spread if r == clear else spread) for r in chosen]
            S = [machine.dot(q, keys.vectors.mid[chosen[r]].tolist()) for r, machine in enumerate(machines)]
            e = [m.exp(m.stored(m.result(s - S[clear], at.inner))) for s, m in zip(S, machines, strict=True)]
            compared += 1
            outside += max(S) > S[clear] or sum(e) - 1 > found.leak[p]
    return compared, outside


@pytest.mark.parametrize("part", range(4))
def test_every_loose_softmax_leaks_no_more_than_its_bound(part):
    total = np.array([attention_escaped(f"{part} {seed}") for seed in range(250)]).sum(0)
    assert total[0] > 500 and total[1] == 0


def without(name):
    """A score error that lacks one of its parts."""
    old = ScoreError.of.__func__
    return classmethod(lambda cls, at, q, k: replace(old(cls, at, q, k), **{name: 0.0}))


def no_leak(at, queries, keys, positions):
    found = attention(at, queries, keys, positions)
    return Attention(found.clear, np.zeros(positions))


PLANTED = {
    "the leak is zero": (circuit_rounding, "attention", no_leak),
    "small terms do not count": (circuit_rounding, "small_sum", lambda at, size, terms: 0 * size),
    "growth is a quarter": (Arithmetic, "growth", lambda self, n, m=1, old=Arithmetic.growth: old(self, n, m) / 4),
    "results are not rounded": (Arithmetic, "result", lambda self, x: x),
    "what is stored is not rounded before a sum": (Arithmetic, "product_and", Arithmetic.product),
    "the retrieved position has all the weight": (
        circuit_rounding,
        "weights",
        lambda at, found, old=circuit_rounding.weights: old(at, Attention(found.clear, 0 * found.leak)),
    ),
}
PLANTED_IN_SOFTMAX = {
    "scores are exact": (ScoreError, "of", without("absolute")),
    "scores are stored exactly": (ScoreError, "of", without("relative")),
    "exponentials are exact": (circuit_attention, "exponentials", lambda at, total, others: total),
    "differences are exact": (ScoreError, "of_difference", lambda self, at, top: (0 * np.asarray(top), 1.0)),
    "tables leak nothing": (circuit_attention, "table", lambda *a, old=circuit_attention.table: (old(*a)[0], 0.0)),
    "lanes leak a tenth": (
        circuit_attention,
        "by_addresses",
        lambda *a, old=circuit_attention.by_addresses: (old(*a)[0], old(*a)[1] / 10),
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_bound_that_is_too_small_is_caught(fault, monkeypatch):
    where, name, wrong = PLANTED[fault]
    monkeypatch.setattr(where, name, wrong)
    assert any(escaped(f"{part} {seed}")[1] for part in range(10) for seed in range(15))


@pytest.mark.parametrize("fault", PLANTED_IN_SOFTMAX)
def test_a_leak_that_is_too_small_is_caught(fault, monkeypatch):
    where, name, wrong = PLANTED_IN_SOFTMAX[fault]
    monkeypatch.setattr(where, name, wrong)
    assert any(attention_escaped(f"{part} {seed}")[1] for part in range(4) for seed in range(250))
