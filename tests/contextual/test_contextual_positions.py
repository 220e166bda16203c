"""Causal contextual counting with positions: proved, run on every string, and refuted where weights are spoilt."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from command import as_json, run
from models.selection import every
from oracles.contextual_positions import plain_margins

from constructions.contextual.positional import SHAPES, as_bytes, from_state_dict
from constructions.contextual_with_positions import PE, build, largest_slope, steps
from constructions.errors import BadInput
from constructions.nope_positions import token_before
from tests.planted import planted
from tests.some import some
from verify import certify
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS, format_named
from verify.frame.certificate import Verdict
from verify.tasks.contextual.bidirectional import spans
from verify.tasks.contextual.bidirectional.proof import StringProof
from verify.tasks.contextual.positional.proof import PositionalProof
from verify.tasks.contextual.positional.task import Positional
from verify.tasks.contextual.task import StringDomain

SHAKEN = ("W_Q", "W_K", "W_V", "W_1", "U_K", "E", "positions", "cosines", "sines", "slope", "W_3", "W_4", "b_3")
KINDS = [(pe, has_mlp) for pe in PE for has_mlp in (False, True)]


def oracle(string, R):
    """The ones of each region, in plain Python."""
    parts = [part.split("]")[0].count("1") for part in string.split("[")[1:]]
    return (parts + [0] * R)[:R]


def told(tokens):
    return "".join("01[]"[t] for t in tokens)


def weights(module):
    return {name: getattr(module, name).double().numpy() for name in SHAPES}


@pytest.mark.parametrize(("pe", "has_mlp"), KINDS)
@pytest.mark.parametrize("reading", ["real", "float64", "float32"])
def test_24_tokens_and_3_regions_are_proved(pe, has_mlp, reading):
    fmt = None if reading == "real" else format_named(reading)
    dtype = torch.float32 if reading == "float32" else torch.float64
    module = build(24, 3, pe, has_mlp=has_mlp, dtype=dtype, u=None if fmt is None else fmt.u)
    found = certify(module, reading=reading)
    assert found.verdict is Verdict.PROVED and (found.margin > 0.25) is has_mlp


@pytest.mark.parametrize(("pe", "has_mlp"), every(3, KINDS))
def test_every_string_is_run(pe, has_mlp):
    found = certify(build(6, 2, pe, has_mlp=has_mlp), method="exhaustive")
    assert found.verdict is Verdict.PROVED and found.inputs_covered == StringDomain(6, 2).strings() * 2


@pytest.mark.parametrize("N", [8, pytest.param(40, marks=pytest.mark.deep)])
def test_every_slope_below_the_largest_is_proved(N):
    for R in (1, 2, 3, 5):
        for part in (0.02, 0.999):
            assert certify(build(N, R, "alibi", slope=part * largest_slope(N, R))).verdict is Verdict.PROVED
        with pytest.raises(BadInput, match="overlap in BOS's share"):
            build(N, R, "alibi", slope=1.001 * largest_slope(N, R))


def test_beyond_the_largest_slope_regions_have_one_share_of_bos():
    """Two strings whose shares are the other way round than their regions: what the bound says, and why it is there."""
    N, R = 60, 3
    m = 1.5 * largest_slope(N, R)
    late = sum(math.exp(m * p) for p in (N - 5, N - 4, N - 3))  # region 2 begins at the end
    early = sum(math.exp(m * p) for p in (1, 2, 3, 4, 5))  # region 3 at the beginning
    assert late > early and largest_slope(N, R) == math.log(5 / 3) / N


@pytest.mark.parametrize("seed", every(4, range(12)))
def test_what_is_proved_of_shaken_weights_holds_on_every_string(seed):
    """The certified margin of each prompt and count is below that of every string, as a plain loop computes it."""
    torch.manual_seed(seed)
    pe, has_mlp = KINDS[seed % len(KINDS)]
    module = build(5, 2, pe, has_mlp=has_mlp)
    with torch.no_grad():
        for name in SHAKEN:
            W = getattr(module, name)
            W += 0.01 * (1 + seed % 4) * torch.randn_like(W) * (W != 0) * W.abs()
        module.W_Q[:5] += 0.02 * torch.randn_like(module.W_Q[:5])
        module.positions += 0.002 * torch.randn_like(module.positions)
        module.slope += 0.02 * (seed % 2)
    fmt = FORMATS["float64"] if seed % 3 == 0 else None
    with np.errstate(all="ignore"):
        proof = PositionalProof(weights(module), 5, 2, fmt)
        cells = [proof.cells(r) for r in (1, 2)]
    assert any((cell.margin > 0).any() for cell in cells)
    closest = math.inf
    for tokens in StringDomain(5, 2).enumerate():
        leads = plain_margins(weights(module), tokens, oracle(told(tokens), 2))
        for r, k in enumerate(oracle(told(tokens), 2)):
            certified = cells[r].margin[k]
            assert not certified > 0 or leads[r] >= certified - 1e-12, (tokens, r)
            closest = min(closest, leads[r] - certified)
    assert closest < 0.5  # the bound is near what runs


@pytest.mark.parametrize("pe", every(2, PE))
def test_the_exact_judge_and_the_module_agree_with_a_plain_loop(pe):
    module = build(9, 2, pe, has_mlp=True)
    problem = Positional.of(module)
    with torch.no_grad():
        module.slope += 0.01
    for tokens in ((2, 1, 0, 1, 3, 1), (1, 2, 3, 0, 2, 1, 1, 1, 3), (2, 3, 2, 1, 3, 0)):
        right = oracle(told(tokens), 2)
        logits = module(torch.tensor([list(tokens)], dtype=torch.long))[0]
        plain = plain_margins(weights(module), tokens, right)
        for r, (exact, lead) in enumerate(zip(problem.exact(tokens), plain, strict=True)):
            ran = float(logits[r, right[r]] - torch.cat([logits[r, : right[r]], logits[r, right[r] + 1 :]]).max())
            assert abs(float(exact.mid()) - lead) < 1e-9 and abs(ran - lead) < 1e-9


SPOILT = {
    "slope": lambda m: m.slope.fill_(0.7),
    "rotations": lambda m: m.cosines[1::2, -1].mul_(-1),
    "values": lambda m: m.W_V.copy_(m.W_V[[0, 1, 3, 2, *range(4, len(m.W_V))]]),
    "kept away": lambda m: m.W_K.mul_(0),
    "mlp": lambda m: m.b_4.add_(1),
    "readout": lambda m: m.b_out[3].add_(2),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_spoilt_weights_are_refuted_by_a_string_that_fails(spoil):
    module = build(10, 2, "alibi" if spoil in ("slope", "values") else "rope", has_mlp=spoil == "mlp")
    with torch.no_grad():
        SPOILT[spoil](module)
    found = certify(module)
    assert found.verdict is Verdict.REFUTED
    string, prompt = found.counterexample["string"], found.counterexample["prompt"]
    right = oracle(string, 2)
    assert found.counterexample["expected"] == right[prompt - 1]
    assert plain_margins(weights(module), ["01[]".index(c) for c in string], right)[prompt - 1] <= 0


def unsound():
    """How far a certified margin exceeds what a string has, of one model with everything in it."""
    torch.manual_seed(3)
    module = build(4, 1, "alibi", has_mlp=True)
    with torch.no_grad():
        module.slope.fill_(0.4)
        module.W_Q[:5, :2] += 0.3
        module.W_K[:5, :2] = 0.6 * torch.randn_like(module.W_K[:5, :2])
        angle = 0.9 * torch.arange(5)[:, None]
        module.cosines[:], module.sines[:] = angle.cos(), angle.sin()
        module.W_V[:2] += 0.2
        module.W_4[:, 1] *= 1.5
    with np.errstate(all="ignore"):
        cells = PositionalProof(weights(module), 4, 1, None)
        low, high = cells.attended.lower, cells.attended.upper
        down, up = cells.decoded(np.array([[0.3, 0.0]]), np.array([[0.5, 0.0]]))
        where = {(int(r), int(m)): i for i, (r, m) in enumerate(zip(*cells.kinds, strict=True))}
    W, worst = weights(module), 0.0
    for tokens in StringDomain(4, 1).enumerate():
        row, count = [4, *tokens], 0
        x = torch.tensor(W["E"][row])
        q, k = (module.rotated(x @ torch.tensor(W[name])) for name in ("W_Q", "W_K"))
        n = len(row)
        scores = q @ k.T - 0.4 * (torch.arange(n)[:, None] - torch.arange(n)).double()
        scores = scores.masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf)
        y = (torch.softmax(scores, -1) @ (x @ torch.tensor(W["W_V"]))).numpy()
        for place, token in enumerate(row):
            count += token in (2, 3)
            i = where[token * 5 + place, count]
            worst = max(worst, (y[place] - high[i]).max(), (low[i] - y[place]).max())
    for share in (0.3, 0.4, 0.5):
        z = np.array([share, 0.0])
        z = z + np.maximum(z @ W["W_3"] + W["b_3"], 0) @ W["W_4"] + W["b_4"]
        worst = max(worst, (z - up[0]).max(), (down[0] - z).max())
    return worst


PRODUCT = "product(queries, keys.T, self.fmt)"
HIDDEN = 'product(z, self.W["W_3"], self.fmt, self.W["b_3"])'
FAULTS = [
    (PositionalProof, "scored", f"total({PRODUCT}, -away, self.fmt)", PRODUCT),
    (PositionalProof, "scored", "distance < 0", "distance < -1"),
    (PositionalProof, "rotated", "-scaled(second, sines, self.fmt)", "scaled(second, sines, self.fmt)"),
    (PositionalProof, "decoded", f"relu({HIDDEN})", HIDDEN),
    (StringProof, "_extreme", "before[:, 0] = cost[:, BOS, 0]", "before[:, 0] = 0"),
]


def test_the_ranges_hold_what_strings_compute():
    assert unsound() < 1e-12


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[2][:30])
def test_a_planted_fault_is_found(fault):
    with planted(*fault):
        assert unsound() > 1e-6


def test_products_of_entries_hold_what_formats_compute():
    """Against float32 on the machine: the radius covers the rounding, and is 0 where a factor is a power of two."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(500).astype(np.float32) for _ in range(2))
    y[:100] = 2.0 ** rng.integers(-9, 9, 100)
    X, Y, fmt = Ball.exact(x.astype(float)), Ball.exact(y.astype(float)), FORMATS["float32"]

    def covers():
        found = spans.scaled(X, Y, fmt)
        assert (found.rad[:100] == 0).all()
        return (np.abs((x * y).astype(float) - found.mid) <= found.rad).all()

    assert covers()
    with planted(spans, "scaled", "rounding(size_x * size_y, terms, is_hard, fmt)", "0.0"):
        assert not covers()


def test_two_blocks_write_the_positions_that_one_has():
    for T, L in ((2, 4), (3, 9)):
        tokens = torch.randint(T, (50, L), generator=torch.Generator().manual_seed(L))
        before = torch.cat([0 * tokens[:, :1], tokens[:, :-1]], 1)
        model = token_before(T, L)
        assert torch.equal(model(tokens).argmax(-1), before)
        with torch.no_grad():
            stream = model.first(model.E[torch.cat([torch.full((50, 1), T), tokens], 1)])
        i = torch.arange(L + 1).double()
        assert torch.allclose(stream[:, :, T + 2], i.expand(50, -1)) and torch.allclose(stream[0, :, T + 3], i * i)
    for sizes in ((0, 4), (2, 0)):
        with pytest.raises(BadInput):
            token_before(*sizes)


def test_the_command(capsys, tmp_path):
    sizes = ("--length", "12", "--regions", "2")
    kept = str(tmp_path / "kept" / "weights.safetensors")
    asked = ("contextual", "--pe", "alibi", "--decoder-mlp", *sizes)
    assert run(capsys, *asked, "--save", str(tmp_path / "kept"))[0] == 0
    code, out = as_json(capsys, *asked)
    assert code == 0 and (out["verdict"], out["claim"], out["parameters"]["pe"]) == ("PROVED", "B-3.5", "alibi")
    code, out = as_json(capsys, "contextual", "--weights", kept, "--length", "9", "--on-regions", "1")
    assert code == 0 and out["inputs_covered"] == str(StringDomain(9, 1).strings() * 2)
    code, out, _ = run(capsys, "contextual", "--weights", kept, "--input", "[1]0[11]")
    assert code == 0 and "counted 2" in out
    for argv in some([("--pe", "alibi", "--slope", "1"), ("--slope", "0.1"), ("--pe", "rope", "--bias", "0"),
                 ("--weights", kept, "--pe", "ape"), ("--pe", "ape", "--length", "2000"),
                 ("--pe", "ape", "--zeros", "3"),
                 ("--weights", kept, "--exactly"), ("--pe", "alibi", "--slope", "nan"),
                 ("--figure5", "--pe", "rope"), ("--pe", "alibi", "--slope", "-1")]):  # fmt: skip
        code, out, err = run(capsys, "contextual", *argv)
        assert code == 2 and err.count("\n") == 1, argv


def test_sizes_and_files_that_do_not_fit():
    module = build(6, 1, "rope")
    tensors = dict(module.state_dict())
    assert from_state_dict(tensors).longest == 6 and as_bytes(module)
    for change in ({"E": tensors["E"][:, :3]}, {"slope": torch.zeros(1).double()}, {"W_Q": tensors["W_Q"][:, :4]}):
        with pytest.raises(BadInput):
            from_state_dict(tensors | change)
    with pytest.raises(BadInput):
        build(4000, 1, "rope")
    with pytest.raises(BadInput, match="pe='sine'"):
        build(6, 1, "sine")
    assert [steps(N) for N in (1, 2, 7)] == [[0, 1], [0, 1, 2], [0, 1, 3, 7]]
