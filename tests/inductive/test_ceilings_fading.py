"""What a decoder answers on long a^n stays within the bound that its weights give, and settles when it says so."""

import pytest
import torch
from models.selection import first

from constructions.decoder import Decoder
from constructions.errors import BadInput, NotKnown
from verify.tasks.inductive.ceilings.fading import GELU_SLOPE, Fading, fading
from verify.tasks.inductive.ceilings.random_models import random_decoder
from verify.tasks.inductive.impossible import ARGUMENTS, stored_bos_fades


def differences(logits, best):
    return logits[..., best : best + 1] - logits


@pytest.mark.parametrize("seed", range(36))
def test_the_logits_of_long_strings_are_within_the_bound(seed):
    model = random_decoder(seed, pe=("nope", "rope")[seed % 2], bos=True, vocabulary=1, std=0.1 + seed % 4 / 10)
    found = fading(model)
    limit = torch.tensor([float(value) for value in found.logits], dtype=torch.float64)
    best = int(limit.argmax())
    with torch.no_grad():
        run = model(torch.zeros(300, dtype=torch.long))
    n = torch.arange(1, 301, dtype=torch.float64)[:, None]
    bound = torch.tensor([float(r) for r in found.reach], dtype=torch.float64) * (1 + n.log()) ** found.power / n
    assert ((differences(run, best) - differences(limit, best)).abs() <= bound * (1 + 1e-9) + 1e-9).all()
    if found.settled is not None and found.settled <= 300:
        assert (run.argmax(-1)[found.settled - 1 :] == found.answer).all()
        failing = found.failing_length(10)
        assert failing <= 301 and (failing == 301 or run[failing - 1].argmax() != (failing - 1) % 10)


def test_the_limit_is_what_a_alone_gives_without_bos():
    model = random_decoder(7, pe="nope", bos=True, vocabulary=1)
    alone = Decoder(vocabulary=1, d=8, d_head=4, d_mlp=16, n_heads=2, n_layers=len(model.blocks), pe="nope",
                    layernorm=isinstance(model.norm, torch.nn.LayerNorm), classes=10, activation="relu")  # fmt: skip
    weights = dict(model.state_dict())
    weights["W_E"] = weights["W_E"][:1]
    alone.load_state_dict(weights)
    limit = torch.tensor([float(value) for value in fading(model).logits], dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(alone(torch.tensor([0]))[0], limit, rtol=1e-12, atol=1e-12)


def test_a_bound_cannot_be_much_smaller_than_one_head_needs():
    """One head without scores: the share of BOS is 1/(n + 1), and the bound 1/n is within a factor of 2 of it."""
    model = Decoder(vocabulary=1, d=1, d_mlp=0, pe="nope", bos=True, layernorm=False, attention_bias=False, classes=2)
    with torch.no_grad():
        model.W_E.copy_(torch.tensor([[0.0], [1.0]]))
        for name, W in model.named_parameters():
            if name.endswith(("W_V", "W_O")):
                W.fill_(1.0)
        model.W_U.copy_(torch.tensor([[0.0, 1.0]]))
    tied = fading(model)
    assert tied.answer is tied.settled is tied.failing_length(2) is None  # both logits are 0 in the limit
    assert float(tied.reach[1]) == pytest.approx(1, rel=1e-12)
    with torch.no_grad():
        model.W_E[0] = -0.01
    found = fading(model)
    run = model(torch.zeros(400, dtype=torch.long)).argmax(-1)
    last = 1 + int(torch.nonzero(run != found.answer)[-1])
    assert last < found.settled <= 2 * last


def test_a_gelu_is_never_steeper_than_the_bound_says():
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64, requires_grad=True)
    for approximate in ("none", "tanh"):
        (slope,) = torch.autograd.grad(torch.nn.functional.gelu(x, approximate=approximate).sum(), x)
        assert 1.12 < slope.max() < float(GELU_SLOPE) - 1e-4 and slope.min() > -0.2


@pytest.mark.parametrize(
    "model, message",
    [
        (random_decoder(0, pe="sine", bos=True), "pe=sine"),
        (random_decoder(0, pe="rope"), "bos=False"),
    ],
)
def test_models_that_the_argument_does_not_speak_of_are_refused(model, message):
    with pytest.raises(BadInput, match=message):
        fading(model)
    with pytest.raises(BadInput, match="token=5"):
        fading(random_decoder(0, pe="nope", bos=True), token=5)


def test_a_stored_model_gets_a_length_at_which_it_is_wrong_at_the_latest():
    decided = 0
    for seed in range(12):
        model = random_decoder(seed, pe=("nope", "rope")[seed % 2], bos=True, vocabulary=1, std=0.2)
        try:
            found = stored_bos_fades(model, 10)
        except NotKnown as error:
            assert "no length up to 10^30" in str(error)
            continue
        failing = found.witness["length"]
        assert found.holds
        if failing < model.positions:
            with torch.no_grad():
                answers = model(torch.zeros(failing, dtype=torch.long)).argmax(-1)
            assert (answers != torch.arange(failing) % 10).any()
            decided += 1
    assert decided >= 3
    with pytest.raises(BadInput, match="10 classes"):
        stored_bos_fades(model, 3)


def test_a_failing_length_is_the_settled_one_or_the_next():
    assert Fading((), 3, (), 0, 14).failing_length(10) == 15
    assert Fading((), 3, (), 0, 15).failing_length(10) == 15


@pytest.mark.parametrize("name", first(3, ["C-I1", "C-I2", "C-I8", "C-I3", "C-I4", "C-I6"]))
def test_the_arguments_hold_with_another_seed(name):
    found = ARGUMENTS[name](3)
    assert found.holds and found.claim == name
