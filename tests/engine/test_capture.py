"""What is captured and enclosed, and what is refused with the user's line."""

import numpy as np
import pytest
import torch
from models.selection import every, first
from torch import nn

from constructions.errors import BadInput
from tests.models.small_modules import CLASSES, JUDGED, REFUSED, VOCABULARY, Body
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.formats import FORMATS
from verify.engine import exact
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.engine.margins import Question
from verify.engine.run import enclose

LENGTH = 3


def made(build):
    torch.manual_seed(0)
    return build().eval()


@pytest.mark.parametrize("name", first(2, JUDGED))
def test_modules_that_are_judged(name):
    """The exact balls (flint) lie in the float64 balls, and float64 and float32 runs in those of their reading."""
    module = made(JUDGED[name])
    graph = capture(module, LENGTH)
    tokens = torch.tensor([[0, 0, 0], [4, 1, 2], [3, 3, 1], [2, 0, 4]])

    def output(ball, tokens, answers):
        return ball.mid, ball.radius

    assert exact.is_covered(graph) or name == "group norm"
    for at in (Arithmetic(), Arithmetic(has_norms=True)):
        mid, rad = (x.squeeze(1).numpy() for x in enclose(graph, at, output)(tokens, tokens))
        assert np.isfinite(rad).all() and rad.max() < 1e-9
        if exact.is_covered(graph):
            from flint import arb, ctx

            with ctx.workprec(160):
                for i, row in enumerate(tokens[:2]):
                    for m, r, true in zip(
                        mid[i].reshape(-1), rad[i].reshape(-1), exact.evaluate(graph, row).reshape(-1), strict=True
                    ):
                        assert abs(arb(m) - true) <= arb(r)
    at = Arithmetic(FORMATS["float32"], has_norms=True)
    mid, rad = (x.squeeze(1) for x in enclose(graph, at, output)(tokens, tokens))
    with torch.no_grad():
        for i, row in enumerate(tokens):
            run = module(row[None])[0].double()
            assert ((run - mid[i]).abs() <= rad[i]).all()
    assert torch.isfinite(rad).all() and rad.max() < 1


@pytest.mark.parametrize("name", every(15, REFUSED))
def test_modules_that_are_refused(name):
    build, message = REFUSED[name]
    with pytest.raises(BadInput, match=message) as refused:
        capture(made(build), LENGTH)
    assert "\n" not in str(refused.value)
    if name not in ("argmax", "a tuple", "a dict", "a changed buffer", "a changed flag", "autocast"):
        assert "small_modules.py:" in str(refused.value)


def test_training_mode_is_refused():
    module = made(lambda: Body(nn.Dropout(0.5)))
    module.body.train()
    with pytest.raises(BadInput, match="body is in training mode"):
        capture(module, LENGTH)


def test_rms_norm_without_eps_takes_that_of_its_own_dtype():
    """nn.RMSNorm(eps=None) is captured with the epsilon of the stored dtype, or refused: never converted before."""
    torch.manual_seed(0)
    module = Body(nn.RMSNorm(8, eps=None)).eval()
    with torch.no_grad():
        module.embed.weight.mul_(1e-4)  # so that eps shows
    try:
        graph = capture(module, LENGTH)
    except BadInput as refused:
        assert "eps" in str(refused)
        return
    tokens = torch.tensor([[1, 2, 3]])
    mid, rad = enclose(graph, Arithmetic(), lambda b, t, a: (b.mid, b.radius))(tokens, tokens)
    with torch.no_grad():
        run = module(tokens).double()
    assert ((mid.squeeze(1) - run).abs() <= rad.squeeze(1) + 1e-5).all()


def test_a_row_masked_everywhere():
    """SDPA gives 0 there, softmax NaN, which decides nothing."""
    mask = torch.tensor([[True, True], [False, False]])

    class Sdpa(Body):
        def through(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    class Written(Body):
        def through(self, x):
            return torch.softmax((x @ x.transpose(-2, -1)).masked_fill(~mask, -torch.inf), -1) @ x

    question = Question((1,), None)
    tokens, answers = torch.tensor([[1, 2]]), torch.tensor([[0]])
    torch.manual_seed(0)
    low, high = enclose(capture(Sdpa().eval(), 2), Arithmetic(), question)(tokens, answers)
    assert torch.isfinite(low).all() and torch.isfinite(high).all()
    low, high = enclose(capture(Written().eval(), 2), Arithmetic(), question)(tokens, answers)
    assert not (low > 0).any() and not (high <= 0).any()


def test_the_scale_of_sdpa_is_the_exact_root():
    """1/sqrt(d) as two float64 factors would be off; the exact root lies in the ball of 128 bits."""
    from flint import arb, ctx

    class Sdpa(Body):
        def through(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    torch.manual_seed(0)
    graph = capture(Sdpa().eval().double(), 2)
    assert graph.operations["aten.scaled_dot_product_attention.default"] == 1
    with ctx.workprec(200):
        x = exact.balls(graph.stored["p_embed_weight"])[[1, 2]]
        scores = exact.product(x, x.T) / arb(8).sqrt()
        mixed = exact.product(exact.softmax(scores, -1, arb(0)), x)
        weight, bias = (exact.balls(graph.stored[f"p_out_{part}"]) for part in ("weight", "bias"))
        expected = exact.product(mixed, weight.T) + bias
        got = exact.evaluate(graph, torch.tensor([1, 2]))[0]
        assert all(
            a.overlaps(b) and a.rad() < 1e-50 for a, b in zip(got.reshape(-1), expected.reshape(-1), strict=True)
        )


def test_the_digest_names_the_computation():
    def digest(build, length=LENGTH):
        return capture(made(build), length).digest

    norm = digest(JUDGED["layer norm"])
    assert norm == digest(JUDGED["layer norm"])
    assert norm != digest(JUDGED["layer norm"], 2) != digest(JUDGED["rms norm"], 2)
    assert VOCABULARY > CLASSES


@pytest.mark.parametrize("value, low, high", [("0.25", 0.25, 0.25), ("1e-400", 0, 5e-324), ("-1e-400", -5e-324, 0)])
def test_ends_of_exact_margins_keep_their_sign(value, low, high):
    from flint import arb, ctx

    with ctx.workprec(300):
        x = arb(value)
        assert float_below(x) <= low + 1e-16 and float_above(x) >= high - 1e-16
        assert (float_below(x) > 0) <= bool(x > 0) and (float_above(x) <= 0) == bool(x <= 0)
    assert float_below(arb(0)) == 0 == float_above(arb(0))
