"""A decoder's states and the spread of its scores, beside numpy that reads the stored tensors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from models.selection import every

from constructions.decoder import Decoder
from constructions.decoder_model import initialised
from constructions.inductive import ape, load, selective
from tests.planted import planted
from verify.tasks.inductive import traced as module
from verify.tasks.inductive.traced import principal_components, traced

TRAINED = str(Path(__file__).parents[1] / "data" / "inductive" / "modular_rope_l4.safetensors")
MODELS = [
    *(initialised(Decoder(vocabulary=3, d=8, n_heads=2, n_layers=2, positions=9, pe=pe, bos=bos), seed=3, std=0.5)
      for pe in ("nope", "ape", "rope", "sine", "spe") for bos in (False, True)),
    selective(K=3, C=3, pe="ape", positions=9),
    ape(task="modular", N=9, m=3, positions=9),
]  # fmt: skip


def stored(model):
    return {name: x.detach().double().numpy() for name, x in model.named_parameters()}


def normed(x, weight, bias):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias


def embedded(model, token, identity):
    """The stream of a token at a position id that counts from 1."""
    x = stored(model)["W_E"][token]
    if model.pe == "spe":
        return np.append(x, identity)
    if model.pe == "ape":
        return x + stored(model)["W_pos"][identity - 1]
    if model.pe == "sine":
        angle = identity * 10_000.0 ** (-np.arange(0, len(x), 2) / len(x))
        return x + np.stack([np.sin(angle), np.cos(angle)], axis=1).ravel()[: len(x)]
    return x


def parts(model, i, x, ids):
    """Queries, keys and values of one layer, head by head, by the stored tensors."""
    W, at = stored(model), f"blocks.{i}."
    if isinstance(model.norm, torch.nn.LayerNorm):
        x = normed(x, W[at + "norm_1.weight"], W[at + "norm_1.bias"])
    heads = model.blocks[i].attention.n_heads
    out = []
    for name in "QKV":
        y = x @ W[f"{at}attention.W_{name}"] + W.get(f"{at}attention.b_{name}", 0)
        y = y.reshape(len(x), heads, -1).transpose(1, 0, 2)
        if model.pe == "rope" and name != "V":
            half = y.shape[2] // 2
            angle = np.array(ids)[:, None] * 10_000.0 ** (-np.arange(half) / half)
            a, b = y[..., :half], y[..., half:]
            y = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=2)
        out.append(y)
    return out


def attention_by_hand(model, tokens):
    """The first layer's attention, entry by entry."""
    kinds = ([model.vocabulary] if model.has_bos else []) + list(tokens)
    ids = range(1, len(kinds) + 1)
    x = np.stack([embedded(model, t, p) for t, p in zip(kinds, ids, strict=True)])
    q, k, _ = parts(model, 0, x, ids)
    out = np.zeros((len(q), len(kinds), len(kinds)))
    for h in range(len(q)):
        for n in range(len(kinds)):
            scores = np.array([q[h, n] @ k[h, j] / np.sqrt(q.shape[2]) for j in range(n + 1)])
            weights = np.exp(scores - scores.max())
            out[h, n, : n + 1] = weights / weights.sum()
    return x, q, out


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.pe}-{m.has_bos}")
def test_states_are_those_of_the_stored_tensors(model):
    tokens = [0, 2, 1, 0, 0, 2] if model.vocabulary > 2 else [0] * 6
    layers = traced(model, torch.tensor(tokens))
    x, q, attention = attention_by_hand(model, tokens)
    assert np.allclose(layers[0].before, x) and np.allclose(layers[0].attention, attention)
    assert np.allclose(layers[0].queries, q.transpose(1, 0, 2).reshape(len(x), -1))
    with torch.no_grad():
        logits = model.double()(torch.tensor(tokens)).numpy()
        end = model.norm(torch.tensor(layers[-1].after)).numpy() @ stored(model)["W_U"] + stored(model).get("b_U", 0)
    assert np.allclose(logits, end[model.has_bos :])
    for before, after in zip(layers, layers[1:], strict=False):
        assert np.array_equal(before.after, after.before)


def test_neurons_lead_from_attention_to_the_output():
    model = MODELS[2]
    layer, W = traced(model, torch.tensor([0, 1, 2, 0]))[0], stored(MODELS[2])
    _, _, v = parts(model, 0, layer.before, range(1, 5))
    mixed = (layer.attention @ v).transpose(1, 0, 2).reshape(4, -1)
    middle = layer.before + mixed @ W["blocks.0.attention.W_O"] + W["blocks.0.attention.b_O"]
    assert np.allclose(middle + layer.hidden @ W["blocks.0.mlp.W_out"] + W["blocks.0.mlp.b_out"], layer.after)


def worst_spread(model):
    """How far the spreads are from those over all pairs of ids that two tokens can have, one by one."""
    found, kinds, P, worst = module.spread_of_scores(model), model.vocabulary + model.has_bos, model.positions, 0.0
    bos = model.vocabulary if model.has_bos else None
    for asking in range(kinds):
        for seen in range(kinds):
            scores = []
            for p in range(1, P + 1):
                for r in range(1, p + 1):
                    if p == r and asking != seen:
                        continue
                    if bos is not None and ((asking == bos and p != r) or (seen != bos and r == 1)):
                        continue
                    x = np.stack([embedded(model, asking, p), embedded(model, seen, r)])
                    q, k, _ = parts(model, 0, x, (p, r))
                    scores.append([q[h, 0] @ k[h, 1] for h in range(len(q))])
            if not scores:
                assert np.isnan(found[:, asking, seen]).all()
                continue
            worst = max(worst, float(np.abs(np.std(scores, axis=0) - found[:, asking, seen]).max()))
    return worst


@pytest.mark.parametrize("model", every(2, MODELS[2:10]), ids=lambda m: f"{m.pe}-{m.has_bos}")
def test_the_spread_is_over_all_ids_that_two_tokens_can_have(model):
    assert worst_spread(model) < 1e-9


def test_a_spread_over_other_pairs_is_noticed():
    with planted(module, "spread_of_scores", ", -1)", ", 0)"):
        assert worst_spread(MODELS[4]) > 1e-3


def test_components_are_eigenvectors_of_the_covariance():
    states = np.random.default_rng(0).normal(size=(30, 5)) * [1, 5, 2, 0.1, 3]
    found, shares = principal_components(states)
    sizes, directions = np.linalg.eigh(np.cov(states.T))
    for i in (1, 2):
        own = (states - states.mean(0)) @ directions[:, -i]
        assert np.allclose(found[:, i - 1], own) or np.allclose(found[:, i - 1], -own)
    assert np.allclose(shares, sizes[:-3:-1] / sizes.sum())
    assert principal_components(np.ones((4, 3)))[1].tolist() == [0, 0]
    assert principal_components(np.arange(3.0)[:, None])[0][:, 1].tolist() == [0, 0, 0]


def test_a_trained_model_looks_at_bos_by_turns():
    layer = traced(load(TRAINED), torch.zeros(100, dtype=torch.long))[2]
    looks = layer.attention[:, 30:90, 0]
    assert looks.max(axis=1).min() > 0.4 and (looks.argmax(axis=0) == 0).mean() == pytest.approx(0.5, abs=0.2)
