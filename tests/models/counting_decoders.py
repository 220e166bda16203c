"""Decoders that count well, nearly, or not at all, by seed: drawn, fitted, built and changed, or made to tie."""

from __future__ import annotations

import random

import numpy as np
import torch

from constructions.decoder import Decoder
from constructions.decoder_model import POSITIONAL
from constructions.errors import BadInput, NotKnown
from constructions.inductive import ape, selective, spe, started, with_layernorm
from verify.counting.tasks import NUMBER_WORDS, SELECTIVE, Task

ALIKE = 8
STYLES = ("drawn", "fitted", "near", "built", "changed", "tied")


def task_of(rng, *, is_homogeneous, words=6, types=None):
    """A task with small sizes: at most so many number words, and as many types as asked."""
    if is_homogeneous:
        name = rng.choice([*NUMBER_WORDS, "modular", "modular", "first-homogeneous"])
        sizes = {"vocabulary": rng.randint(2, words)} if name in NUMBER_WORDS else {}
        return Task.of(name, **sizes, **({"modulus": rng.randint(2, 4)} if name == "modular" else {}))
    name = rng.choice([*SELECTIVE, "first-heterogeneous"])
    sizes = {"max_count": rng.randint(1, 4)} if name in SELECTIVE else {}
    sizes |= {"modulus": rng.randint(2, 3)} if name == "selective-modular" else {}
    return Task.of(name, types=types or rng.randint(1, 3), **sizes)


def decoder(seed, task, *, positions, layers=None, style=None):
    """A decoder of one or two layers for a task; ALIKE seeds in a row have one shape, if they are drawn."""
    rng = random.Random(seed)
    style = style or rng.choice(STYLES)
    if style in ("built", "changed", "nudged"):
        model = built(rng, task, positions)
        if model is not None:
            return {"built": lambda rng, model: model, "changed": changed, "nudged": nudged}[style](rng, model)
        style = "fitted"
    std = rng.choice([0.2, 0.6, 1.5])
    model = drawn(rng, random.Random(f"shape {seed // ALIKE}"), task, positions, layers, std)
    if style == "tied":
        with torch.no_grad():
            model.W_U[:] = model.W_U[:, :1] if rng.random() < 0.5 else 0.0
    if style in ("fitted", "near"):
        fit(model, task)
    if style == "near":
        balance(model, task, rng)
    return model


def drawn(rng, shape, task, positions, layers, std):
    model = Decoder(
        vocabulary=task.vocabulary, d=shape.choice([5, 8]), d_head=shape.choice([2, 4]), n_heads=shape.randint(1, 2),
        n_layers=layers or shape.randint(1, 2), d_mlp=shape.choice([0, 6, 12, 12]), classes=task.classes,
        positions=positions, pe=shape.choice(POSITIONAL), bos=shape.random() < 0.5, layernorm=shape.random() < 0.5,
        activation=shape.choice(["relu", "gelu", "gelu_tanh"]), attention_bias=shape.random() < 0.5,
        unembedding_bias=shape.random() < 0.3,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            value.copy_(value + 0.2 * noise if value.ndim == 1 else std * noise)
            if rng.random() < 0.1 and name.endswith(("W_Q", "b_Q")):
                value.zero_()
    return model.eval()


def examples(model, task):
    """Some inputs (shift, tokens) of the task."""
    room = model.positions - model.has_bos
    if task.is_homogeneous:
        return [(0, line.tokens) for line in task.lines(room - 1, room=room)]
    rng = random.Random(0)
    return [(0, tuple(rng.choices(range(task.K), k=min(6, room)))) for _ in range(8)]


def features(model, task):
    """The last stream at each judged position of the examples, and what is right there."""
    rows, labels = [], []
    with torch.no_grad():
        for shift, tokens in examples(model, task):
            x = model.embed(torch.tensor([tokens]), shift)
            for block in model.blocks:
                x = block(x, shift, None)
            for row, right in zip(model.norm(x)[0, int(model.has_bos) :], task.answers(tokens), strict=True):
                if right is not None:
                    rows.append(row.numpy())
                    labels.append(right)
    return np.array(rows), np.array(labels)


def fit(model, task):
    """Chooses the readout by least squares, so that many answers are right."""
    X, y = features(model, task)
    W = np.linalg.lstsq(X, np.eye(task.classes)[y], rcond=1e-9)[0]
    with torch.no_grad():
        model.W_U.copy_(torch.from_numpy(W))
        if model.b_U is not None:
            model.b_U.zero_()


def balance(model, task, rng):
    """Moves the readout towards noise until the least margin of the examples is as near 0 as float64 tells."""
    X, y = features(model, task)
    good = model.W_U.detach().numpy().copy()
    bad = good + np.random.default_rng(rng.randrange(2**31)).normal(size=good.shape) * (1 + abs(good).max())

    def least(t):
        logits = X @ (good + t * (bad - good))
        own = logits[np.arange(len(y)), y]
        logits[np.arange(len(y)), y] = -np.inf
        return (own - logits.max(1)).min()

    low, high = 0.0, 1.0
    if (least(low) > 0) == (least(high) > 0):
        return
    for _ in range(rng.choice([20, 40, 60])):
        middle = (low + high) / 2
        low, high = (middle, high) if (least(middle) > 0) == (least(0.0) > 0) else (low, middle)
    with torch.no_grad():
        model.W_U.copy_(torch.from_numpy(good + rng.choice([low, high]) * (bad - good)))


def built(rng, task, positions):
    """A construction, None where there is none of this task."""
    layernorm, pe = rng.random() < 0.5, rng.choice(POSITIONAL)
    try:
        if task.name in SELECTIVE:
            return selective(K=task.K, C=task.C, m=task.m, pe=pe, layernorm=layernorm, positions=positions)
        if task.name in NUMBER_WORDS and (bos := rng.random() < 0.5 or task.name in ("vanilla", "succession")):
            return started(task=task.name, M=task.M, pe=pe, bos=bos, layernorm=layernorm, positions=positions)
        if task.name == "modular" and rng.random() < 0.5:
            return selective(K=1, C=positions - 1, m=task.m, pe=pe, layernorm=layernorm, positions=positions)
        if task.name in ("vanilla", "modular", "first-homogeneous"):
            build = rng.choice([ape, spe])
            N = min(n for n in (task.M, positions) if n is not None)
            model = build(task=task.name, N=N, m=task.m, positions=positions)
            return with_layernorm(model) if layernorm else model
    except (BadInput, NotKnown):
        pass
    return None


def nudged(rng, model, size=None):
    """The model with noise on all that its one layer of equal weights reads and writes, but for biases."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    size = size or rng.choice([1e-3, 1e-2, 5e-2])
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(("W_E", "W_V", "W_O", "W_in", "W_out", "W_U")):
                value += size * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return model


def changed(rng, model):
    """One matrix of the model with a few entries changed a little or a lot."""
    name, value = rng.choice([(n, v) for n, v in model.named_parameters() if v.numel()])
    with torch.no_grad():
        flat = value.view(-1)
        for _ in range(rng.randint(1, 3)):
            i = rng.randrange(len(flat))
            flat[i] = flat[i] * rng.choice([0.0, -1.0, 0.5, 1.01]) + rng.choice([0.0, 1e-9, 0.01, -0.3])
    return model
