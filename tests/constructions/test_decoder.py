"""The reference decoder: its positions, its answer rows, and checkpoints of other layouts against their own code."""

import math

import numpy as np
import pytest
import torch

from constructions.decoder import (
    Decoder,
    from_hf_gpt2,
    from_nanogpt,
    from_progress_measures,
    from_transformer_lens,
    initialised,
)
from constructions.decoder_model import POSITIONAL, Rotation
from constructions.errors import BadInput
from constructions.files import read_tensors
from tests.models import checkpoints
from tests.oracles import decoder_layouts

TOKENS = [5, 0, 3]


def same(model, expected, tokens=TOKENS):
    with torch.no_grad():
        got = model(torch.tensor([tokens]))[0].numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11)


def arrays(weights):
    return {name: value.numpy() for name, value in weights.items()}


@pytest.mark.parametrize("layers", [1, 2])
def test_progress_measures(layers):
    weights = checkpoints.progress_measures(layers=layers, classes=9)
    model = from_progress_measures(weights)
    same(model, decoder_layouts.progress_measures(arrays(weights), TOKENS))
    assert model.unused == tuple(f"blocks.{i}.attn.mask" for i in range(layers))
    assert "blocks.0.attn.mask" in repr(model)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("normalization", ["LN", "LNPre", "none"])
def test_transformer_lens(activation, normalization):
    weights = checkpoints.transformer_lens(has_norms=normalization == "LN", layers=2)
    model = from_transformer_lens(weights, activation=activation, normalization=normalization)
    same(model, decoder_layouts.transformer_lens(arrays(weights), TOKENS, activation, normalization))


def test_transformer_lens_guesses_nothing():
    with pytest.raises(BadInput, match="activation=None"):
        from_transformer_lens(checkpoints.transformer_lens())
    with pytest.raises(BadInput, match="LNPre"):
        from_transformer_lens(checkpoints.transformer_lens(has_norms=False), activation="relu")
    with pytest.raises(BadInput, match="normalization='none'"):
        from_transformer_lens(checkpoints.transformer_lens(), activation="relu", normalization="none")


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("is_tied", [True, False])
def test_gpt2_layouts(has_bias, is_tied):
    for is_out_in, load, activation in ((True, from_nanogpt, "gelu"), (False, from_hf_gpt2, "gelu_tanh")):
        weights = checkpoints.gpt2(is_out_in, has_bias=has_bias, is_tied=is_tied)
        expected = decoder_layouts.gpt2(arrays(weights), TOKENS, 2, activation, is_out_in)
        same(load(weights, n_heads=2), expected)
        same(load({f"_orig_mod.{name}": value for name, value in weights.items()}, n_heads=2), expected)


def test_the_two_gpt2_layouts_are_told_apart():
    with pytest.raises(BadInput, match=r"c_attn.weight has shape \(8, 24\)"):
        from_nanogpt(checkpoints.gpt2(False), n_heads=2)
    with pytest.raises(BadInput, match="n_heads=3: must divide d=8"):
        from_hf_gpt2(checkpoints.gpt2(False), n_heads=3)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.pop("unembed.W_U"), "unembed.W_U is missing"),
        (lambda w: w.update({"blocks.0.attn.b_Q": torch.zeros(6)}), "blocks.0.attn.b_Q: not part"),
        (lambda w: w.update({"blocks.2.mlp.b_in": torch.zeros(6)}), "not 0, 1, 2"),
        (lambda w: w.update({"embed.W_E": w["embed.W_E"].float()}), "all must have one dtype"),
        (lambda w: w["embed.W_E"].fill_(torch.nan), "infinite or NaN"),
        (lambda w: w.update({"blocks.0.attn.mask": torch.ones(3, 3)}), "no causal mask"),
        (lambda w: w.update({"blocks.0.attn.W_O": torch.zeros(6, 8).double()}), r"has shape \(6, 8\)"),
        (lambda w: w.update({"pos_embed.W_pos": torch.zeros(8, 3).double()}), r"has shape \(8, 3\)"),
        (lambda w: w.update({"config": 3}), "no tensor"),
    ],
)
def test_files_that_are_refused(change, message):
    weights = checkpoints.progress_measures()
    change(weights)
    with pytest.raises(BadInput, match=message):
        from_progress_measures(weights)


@pytest.mark.parametrize("entry", [None, "model", "state_dict"])
def test_a_state_dict_is_found_inside_a_checkpoint(tmp_path, entry):
    weights = checkpoints.progress_measures()
    torch.save(weights if entry is None else {entry: weights, "epoch": 3, "losses": [0.5]}, tmp_path / "run.pt")
    read = read_tensors(tmp_path / "run.pt", "none")[0]
    assert set(read) == set(weights) and torch.equal(read["embed.W_E"], weights["embed.W_E"])


@pytest.mark.parametrize("pe", POSITIONAL)
@pytest.mark.parametrize("bos", [False, True])
def test_one_row_is_that_row(pe, bos):
    model = initialised(
        Decoder(vocabulary=6, d=8, n_heads=2, n_layers=2, pe=pe, bos=bos, positions=12), seed=3, std=0.7
    )
    tokens = torch.randint(0, 6, (5, 4), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        full = model(tokens, shift=3)
        for position in (-1, 0, 2):
            one = model(tokens, shift=3, position=position)
            assert torch.allclose(one, full[:, position], rtol=1e-12, atol=1e-13)
        assert torch.allclose(model(tokens[:, :2], shift=3), full[:, :2], rtol=1e-12, atol=1e-13)  # causal


def test_rope_depends_on_distances_only():
    rotation = Rotation(20, 6, torch.float64)
    q, k = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = [(rotation(q[None], s + 4) @ rotation(k[None], s).T).item() for s in (0, 5, 11)]
    assert max(scores) - min(scores) < 1e-12
    turned = rotation(torch.eye(6, dtype=torch.float64)[:1], 4)[0]  # the first pair turns by one radian per position
    assert turned[0].item() == pytest.approx(math.cos(5)) and turned[3].item() == pytest.approx(math.sin(5))


def test_sine_and_spe_know_the_position():
    sine = Decoder(vocabulary=2, d=5, pe="sine", positions=30)
    for p in (1, 17):
        for i in range(5):
            wave = p / 10_000 ** (2 * (i // 2) / 5)
            if i < 4:
                assert sine.W_pos[p - 1, i].item() == pytest.approx(math.cos(wave) if i % 2 else math.sin(wave))
    spe = Decoder(vocabulary=2, d=5, pe="spe", positions=30)
    assert spe.embed(torch.tensor([[0, 1, 1]]), shift=7)[0, :, -1].tolist() == [8.0, 9.0, 10.0]


def test_sizes_are_checked():
    for arguments, message in (
        ({"d": 6, "n_heads": 4}, "n_heads=4: must divide d=6"),
        ({"d": 6, "pe": "alibi"}, "pe='alibi'"),
        ({"d": 0}, "d=0"),
        ({"d": 3, "pe": "rope"}, "d_head=3"),
        ({"d": 6, "activation": "silu"}, "activation='silu'"),
    ):
        with pytest.raises(BadInput, match=message):
            Decoder(vocabulary=3, **arguments)
    with pytest.raises(BadInput, match="shift=27"):
        Decoder(vocabulary=3, d=4, positions=30)(torch.tensor([[0, 1, 2, 1]]), shift=27)
