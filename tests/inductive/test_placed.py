"""Selective counting without BOS in one layer: every verdict against an independent run of every string."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
from command import as_json, run
from models import counting_decoders as models
from models.selection import first
from oracles import decoder as oracle
from oracles.inductive import right
from planted import planted

from constructions.decoder_arrays import DecoderArrays
from constructions.errors import BadInput
from constructions.inductive import positioned
from constructions.inductive.lanes import LOUD
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.inductive import noisy, placed
from verify.tasks.inductive.task import Counting

STYLES = ("built", "changed", "nudged", "quiet", "table", "fitted", "near", "drawn")
BUILT = STYLES[:5]
EMBEDDINGS = ("ape", "spe", "sine")


def decoder(seed, style):
    """A task and a decoder of one layer of equal weights over tokens and positions: built, spoilt, or drawn."""
    rng = random.Random(f"placed {seed}")
    K, C, P, m = rng.randint(1, 3), rng.randint(1, 4), rng.randint(3, 6), rng.choice([0, 2])
    if style in BUILT:
        task = Task.of("selective", types=K, max_count=C)
        layernorm = rng.random() < 0.5 or style == "quiet"
        pe = rng.choice({"quiet": ("ape", "spe"), "table": ("ape",)}.get(style, EMBEDDINGS))
        if style == "table":  # more shifts than polynomials have degrees
            K, P = min(K, 2), 11
            task = Task.of("selective", types=K, max_count=C)
        model = positioned(K=K, C=C, pe=pe, layernorm=layernorm, positions=P)
        spoilt = {"changed": models.changed, "nudged": models.nudged, "quiet": quiet, "table": bent}
        return task, spoilt[style](rng, model) if style in spoilt else model
    sizes = {"types": K, "max_count": C} | ({"modulus": m} if m else {})
    task = Task.of("selective-modular" if m else "selective", **sizes)
    for more in range(100):
        model = models.decoder(8000 * seed + 8 * more, task, positions=P, layers=1, style=style)
        if model.pe in EMBEDDINGS and not model.has_bos:
            break
    attention = model.blocks[0].attention
    with torch.no_grad():
        for value in (attention.W_Q, attention.b_Q):
            if value is not None:
                value.zero_()
    if style in ("fitted", "near"):
        models.fit(model, task)
    return task, model


def quiet(rng, model):
    """The decoder with less in the lanes that hold LayerNorm's divisor, so that it moves with token and position."""
    share, block = 2.0 ** -rng.randint(8, 18), model.blocks[0]
    with torch.no_grad():
        model.W_E[:, (model.W_E.abs() == LOUD).all(0)] *= share
        for W in (block.attention.W_V, block.mlp.W_in, model.W_U):
            W *= share
    return model


def bent(rng, model):
    """The decoder with some positions a little off."""
    with torch.no_grad():
        for _ in range(rng.randint(1, 3)):
            model.W_pos[rng.randrange(len(model.W_pos))] += rng.choice([-0.3, -0.1, -0.03, 0.03, 0.1, 0.3])
    return model


def decide(seed, style=None):
    """What is proved of a decoder against all strings at every shift: "proved", "wrong", or "open"."""
    style = style or STYLES[seed % len(STYLES)]
    task, model = decoder(seed, style)
    assert placed.applies(DecoderArrays.of(model), task), seed
    found = placed.decide(DecoderArrays.of(model), task, None, Real(), 30.0)
    wrong, least, scaled = truth(task, model)
    loose = 1e-6 if model.pe == "sine" else 1e-9  # loud lanes hide waves from float64
    assert found.length < wrong, f"WRONG PROVED: {seed}"
    if found.length < model.positions:
        assert style != "built", seed
        return "open" if wrong == math.inf else "wrong"
    assert found.margin <= least + loose * (1 + abs(least)), seed
    assert found.margin_scaled <= scaled + loose * (1 + abs(scaled)), seed
    return "proved"


def truth(task, model):
    """The shortest wrong length, the least margin, and the least of length times margin, of all strings and shifts."""
    m, wrong, least, scaled = oracle.stored(model), math.inf, math.inf, math.inf
    for shift in range(model.positions):
        n = model.positions - shift
        strings = np.array(list(itertools.product(range(task.K), repeat=n)))
        answers = [right(task.name, string, m=task.m, C=task.C) for string in strings.tolist()]
        due = np.array([[-1 if c is None else c for c in row] for row in answers])
        margins = oracle.margins_of(m, strings, shift, due, 1e-4 if model.pe == "sine" else 1e-6).min(0)
        least, scaled = min(least, margins.min()), min(scaled, (margins * np.arange(1, n + 1)).min())
        wrong = min([wrong, *(np.flatnonzero(~(margins > 0)) + 1)])
    return wrong, least, scaled


@pytest.mark.parametrize("seeds", first(1, [range(18), *(range(i, i + 60) for i in range(0, 600, 60))]))
@pytest.mark.deep
def test_every_string(seeds):
    assert {decide(seed) for seed in seeds} >= {"proved", "wrong"}


FAULTS = (  # where, what it says, what it says wrongly there, the decoders that show it
    (placed, "parts", "left.max((0, 1))", "0 * left.max((0, 1))", "quiet"),
    (placed, "window", "own, mean = table[n - 1 :]", "own, mean = 0 * table[n - 1 :]", "fitted"),
    (
        placed,
        "window",
        "places, n, 0).mean(-1)\n    size",
        "places, n, 0).max(-1)\n    size",
        "built",
    ),
    (placed, "window", "for i in range(1, len(G))", "for i in range(2, len(G))", "fitted"),
    (placed, "rows", "more * others.own + rest", "rest", "nudged"),
    (placed, "cells_of", "min(task.C or 1, n)", "1", "changed"),
    (placed, "of_lengths", "PlacedCells(t, k, np.repeat(lengths, sizes))", "PlacedCells(t, k, k)", "built"),
    (placed, "of_lengths", "np.repeat(np.arange(len(lengths)), sizes)", "0 * t", "built"),
    (placed, "window", "left.max(0, keepdims=True)", "0 * left.max(0, keepdims=True)", "table"),
    (placed, "decide", "if not least > 0:", "if False:", "changed"),
)


@pytest.mark.parametrize("fault", first(2, [(fault,) for fault in FAULTS]))
def test_planted_faults_are_caught(fault):
    owner, name, says, wrongly, style = fault
    with planted(owner, name, says, wrongly), pytest.raises((AssertionError, IndexError, RuntimeError)):
        for seed in range(400):
            decide(seed, style)


def test_lengths_together_are_as_lengths_apart(monkeypatch):
    for style in STYLES:
        task, model = decoder(3, style)
        found = []
        for together in (1, 3, 8):
            monkeypatch.setattr(placed, "TOGETHER", together)
            found.append(placed.decide(DecoderArrays.of(model), task, None, Real(), 30.0))
        assert len({each.length for each in found}) == 1, style
        for name in ("margin", "margin_scaled"):
            numbers = [getattr(each, name) for each in found]
            assert numbers == pytest.approx([numbers[0]] * 3, rel=1e-9), style


def test_columns_that_are_alike_share_their_error():
    at, x = noisy.Allowed(), noisy.Noisy(np.array([[1.0, 2.0]]), np.array([[0.5, 0.25]]))
    W = np.array([[1.0, 1.0, 3.0], [2.0, 2.0, 0.0]])
    found = noisy.product_of_alike(at, x, noisy.Noisy.exact(W), "hidden")
    apart = noisy.product(at, found, noisy.Noisy.exact(np.array([[1.0], [-1.0], [0.0]])))
    assert found.mid.tolist() == [[5.0, 5.0, 3.0]] and (found.noise >= np.array([1.0, 1.0, 1.5])).all()
    assert apart.noise.item() < 1e-12


def test_command(capsys):
    sizes = ("inductive", "--task", "selective", "--layers", "1", "--types", "3", "--max-count", "3")
    for pe in EMBEDDINGS:
        code, found = as_json(capsys, *sizes, "--pe", pe, "--positions", "12")
        assert code == 0 and found["claim"] == "C-T10"
        assert (found["length"], found["longest"]) == ("all", 12)
        assert found["parameters"]["layers"] == 1 and found["parameters"]["neurons"] == 15
    code, found = as_json(capsys, *sizes, "--pe", "ape", "--positions", "6", "--precision", "float32")
    assert code == 0 and "short string" in found["argument"]
    for more, expected in (
        (("--pe", "ape", "--heads", "2"), 2), (("--pe", "sine", "--positions", "9999"), 3), (("--pe", "nope",), 2),
    ):  # fmt: skip
        code, out, err = run(capsys, *sizes, *more)
        assert code == expected and (out + err).count("\n") == 1, more
    code, out, _ = run(capsys, "inductive", "--task", "selective-modular", "--layers", "1", "--pe", "ape")
    assert code == 3 and "with 2" in out
    with pytest.raises(BadInput, match="positions say"):
        positioned(K=2, C=2, pe="nope")


@pytest.mark.parametrize("huge", [1e200, 1e308])
def test_what_overflows_is_not_proved(huge):
    task = Task.of("selective", types=2, max_count=3)
    for layernorm in (False, True):
        model = positioned(K=2, C=3, layernorm=layernorm, positions=6)
        with torch.no_grad():
            model.W_pos[2], model.W_E[0] = huge, -huge
        assert certify(Counting(model, task)).verdict is not Verdict.PROVED


def in_dtype(seed):
    """What is proved in float32 of a decoder, against its run on all strings at every shift."""
    task, model = decoder(seed, ("built", "changed", "nudged")[seed % 3])
    model, found = (
        model.float(),
        placed.decide(DecoderArrays.of(model.float()), task, None, reading_of("float32"), 30.0),
    )
    for shift in range(model.positions) if found.length else ():
        n = min(model.positions - shift, found.length)
        strings = torch.tensor(list(itertools.product(range(task.K), repeat=n)))
        with torch.no_grad():
            said = model(strings, shift=shift).double()
        for string, logits in zip(strings.tolist(), said, strict=True):
            for i, due in enumerate(right(task.name, string, m=task.m, C=task.C)):
                rest = [float(x) for c, x in enumerate(logits[i]) if c != due]
                assert due is None or not rest or logits[i, due] - max(rest) >= found.margin, f"WRONG PROVED: {seed}"
    return found.length == model.positions


@pytest.mark.parametrize("seeds", first(1, [range(6), *(range(i, i + 60) for i in range(6, 246, 60))]), ids=str)
def test_every_string_in_float32(seeds):
    assert any([in_dtype(seed) for seed in seeds])


def test_a_margin_that_drifts_away_is_not_proved():
    """A count that is read with a margin of 2^-20 at 5 positions: proved in float64, and lost in float32."""
    task, model = Task.of("selective", types=2, max_count=2), positioned(K=2, C=2, layernorm=False, positions=5)
    with torch.no_grad():
        model.W_U[:, 2] = model.W_U[:, 1] + (model.W_U[:, 2] - model.W_U[:, 1]) * 2.0**-20
    single = positioned(K=2, C=2, layernorm=False, positions=5, dtype=torch.float32)
    with torch.no_grad():
        single.W_U.copy_(model.W_U)
    assert placed.decide(DecoderArrays.of(model), task, None, reading_of("float64"), 5.0).length == 5
    found = placed.decide(DecoderArrays.of(single), task, None, reading_of("float32"), 5.0).length
    says = "(lost(longest) if least > lost(longest) else lost(n))"
    for fault in ("0.0", "lost(1) * 1e-6"):
        with planted(placed, "decide", says, fault):
            assert placed.decide(DecoderArrays.of(single), task, None, reading_of("float32"), 5.0).length > found < 5
    assert certify(Counting(single, task), reading_of("bfloat16"), Effort(0.2)).verdict is Verdict.UNKNOWN
