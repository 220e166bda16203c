"""Bidirectional contextual counting: proved, agreed with by every run, and refuted where the weights are spoilt."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from itertools import count

import numpy as np
import pytest
import torch
from command import as_json, run
from models.selection import every

from constructions.contextual.bidirectional import SHAPES, as_bytes, from_state_dict
from constructions.contextual_positions import block_length, build
from constructions.contextual_with_positions_arrays import build as with_positions
from constructions.errors import BadInput
from constructions.model_arrays import module_of
from verify import certify
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.readings import Real
from verify.frame import decide
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget
from verify.frame.decide import Effort
from verify.tasks.contextual.bidirectional import proof as proofs
from verify.tasks.contextual.bidirectional.proof import Proof
from verify.tasks.contextual.bidirectional.task import Bidirectional
from verify.tasks.contextual.exact import margins as exact_margins
from verify.tasks.contextual.positional.task import Positional
from verify.tasks.contextual.task import StringDomain


def oracle(string, R):
    """The ones of each region, in plain Python."""
    parts = [part.split("]")[0].count("1") for part in string.split("[")[1:]]
    return (parts + [0] * R)[:R]


def weights(module):
    return {name: getattr(module, name).double().numpy() for name in SHAPES}


def drawn(N, R, n, seed=0):
    rng, problem = random.Random(seed), Bidirectional(None, StringDomain(N, R))
    return [problem.draw(rng) for _ in range(n)]


@pytest.mark.parametrize("reading", ["real", "float64", "float32"])
def test_64_tokens_and_3_regions_are_proved(reading):
    fmt = None if reading == "real" else format_named(reading)
    dtype = torch.float32 if reading == "float32" else torch.float64
    module = build(64, 3, dtype=dtype, u=None if fmt is None else fmt.u)
    assert module.W_Q.shape[1] == (6 if dtype is torch.float32 else 2)
    found = certify(module, reading=reading)
    assert found.verdict is Verdict.PROVED
    for tokens in drawn(64, 3, 40):
        with torch.no_grad():
            said = module(torch.tensor([list(tokens)], dtype=torch.long)).argmax(-1).tolist()[0]
        assert said == oracle("".join("01[]"[t] for t in tokens), 3)


def test_every_string_is_run():
    module = build(7, 2)
    found = certify(module, method="exhaustive")
    assert found.verdict is Verdict.PROVED and found.inputs_covered == StringDomain(7, 2).strings() * 2


@pytest.mark.parametrize("seed", every(2, range(8)))
def test_what_is_proved_of_shaken_weights_holds_on_every_string(seed):
    """The certified margin of each prompt and count is below that of every string, in exact arithmetic or as run."""
    torch.manual_seed(seed)
    module = build(5, 2)
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_1", "U_K", "E"):
            W = getattr(module, name)
            W += 0.02 * seed / 8 * torch.randn_like(W) * (W != 0) * W.abs()
        if seed % 2:
            module.W_V[:5] += 0.01 * torch.randn_like(module.W_V[:5])
    fmt = FORMATS["float64"] if seed % 3 == 0 else None
    with np.errstate(all="ignore"):
        proof = Proof(weights(module), 5, 2, fmt)
        cells = [proof.cells(r) for r in (1, 2)]
    assert any((cell.margin > 0).any() for cell in cells)
    for tokens in StringDomain(5, 2).enumerate():
        right = oracle("".join("01[]"[t] for t in tokens), 2)
        with torch.no_grad():
            logits = module(torch.tensor([tokens], dtype=torch.long))[0]
        for r, k in enumerate(right):
            ran = float(logits[r, k] - torch.cat([logits[r, :k], logits[r, k + 1 :]]).max())
            certified = cells[r].margin[k]
            assert not certified > 0 or ran >= certified - 1e-12, (tokens, r)


def test_ranges_hold_what_strings_compute():
    """The encoder's scalar of every position of random strings lies in the range of its kind."""
    module = build(20, 3)
    with np.errstate(all="ignore"):
        proof = Proof(weights(module), 20, 3, None)
        rows, m = proof.kinds
        low, high = proof.attended.lower[:, 0], proof.attended.upper[:, 0]
    where = {(int(r), int(k)): i for i, (r, k) in enumerate(zip(rows, m, strict=True))}
    for tokens in drawn(20, 3, 200):
        row = torch.tensor([4, *tokens])
        x = module.E[row] + module.positions[: len(row)]
        y = torch.softmax((x @ module.W_Q) @ (x @ module.W_K).T, -1) @ (x @ module.W_V)
        count = 0
        for place, token in enumerate(row.tolist()):
            count += token in (2, 3)
            i = where[token * 21 + place, count]
            assert low[i] - 1e-12 <= float(y[place, 0]) <= high[i] + 1e-12
    spread = (high - low)[[i for (r, _), i in where.items() if r // 21 == 1]]
    assert 0 < spread.max() < 2e-3


@pytest.mark.parametrize("N", [1, 2, 5])
@pytest.mark.parametrize("R", [0, 1, 2])
def test_the_kinds_are_those_that_strings_have(N, R):
    proof = Proof(weights(build(5, 2)), N, R, None)
    seen = {(4 * (N + 1), 0)}
    for tokens in StringDomain(N, R).enumerate():
        m = np.cumsum(np.isin(tokens, (2, 3))).tolist()
        seen |= {(token * (N + 1) + place, m[place - 1]) for place, token in enumerate(tokens, 1)}
    assert list(zip(*(part.tolist() for part in proof.kinds), strict=True)) == sorted(seen)


def test_some_rows_at_a_time_have_the_ranges_of_all(monkeypatch):
    whole = Proof(weights(build(8, 2)), 8, 2, None)
    monkeypatch.setattr(proofs, "STEPS", 3000)
    monkeypatch.setattr(proofs, "KINDS", 7)
    parts = Proof(weights(build(8, 2)), 8, 2, None)
    for a, b in ((whole.attended, parts.attended), *zip(whole.seen, parts.seen, strict=True)):
        assert np.allclose(a.lower, b.lower, rtol=0, atol=1e-13) and np.allclose(a.upper, b.upper, rtol=0, atol=1e-13)
        assert a.mid.shape == b.mid.shape


@pytest.mark.parametrize("positions", ["before and after", "rope"])
@pytest.mark.parametrize("is_spoilt", [False, True])
def test_a_search_ends_when_the_clock_does(positions, is_spoilt, monkeypatch):
    """At any look: the verdict of the whole search, or open with the way out; and then only a few looks are left."""
    monkeypatch.setattr(proofs, "STEPS", 9000)
    module = build(8, 2) if positions == "before and after" else with_positions(8, 2, positions)
    if is_spoilt:
        module = module_of(module)
        with torch.no_grad():
            module.b_out[3] += 1
    problem = (Bidirectional if positions == "before and after" else Positional).of(module)

    def at_a_look(number):
        ticks = count()
        found = decide.certify(problem, Real(), Effort(Budget(30.0, lambda: next(ticks) * 30.0 / number)))
        return found, next(ticks)

    whole, looks = at_a_look(10**6)
    assert whole.verdict is (Verdict.REFUTED if is_spoilt else Verdict.PROVED) and looks > 8
    for number in (1, looks - 2, looks + 1):
        cut, asked = at_a_look(number)
        is_cut = cut.verdict is Verdict.UNKNOWN and re.search("the budget of 30 s ended.*; raise it", cut.reason)
        assert (is_cut if number < looks else cut.verdict is whole.verdict) and asked <= number + 3, number


@pytest.mark.parametrize("spoil", ["weak", "swapped", "blind", "readout"])
def test_spoilt_weights_are_refuted_by_a_string_that_fails(spoil):
    module = build(12, 2)
    with torch.no_grad():
        if spoil == "weak":
            module.positions[:, -2] *= 2.0**-12  # attends to what follows almost as to what came before
        elif spoil == "swapped":
            module.W_V[[2, 3]] = module.W_V[[3, 2]].clone()
        elif spoil == "blind":
            module.W_K[:, 0] = 0  # digits weigh as much as delimiters
        else:
            module.b_out[3] += 1
    found = certify(module)
    assert found.verdict is Verdict.REFUTED
    string, prompt = found.counterexample["string"], found.counterexample["prompt"]
    right = oracle(string, 2)
    assert found.counterexample["expected"] == right[prompt - 1]
    assert bool(
        exact_margins(weights(module), ["01[]".index(c) for c in string], right, is_causal=False)[prompt - 1] <= 0
    )


def test_the_exact_judge_agrees_with_the_module():
    module = build(9, 2)
    for tokens in drawn(9, 2, 20):
        right = oracle("".join("01[]"[t] for t in tokens), 2)
        logits = module(torch.tensor([list(tokens)], dtype=torch.long))[0]
        for r, margin in enumerate(exact_margins(weights(module), list(tokens), right, is_causal=False)):
            ran = float(logits[r, right[r]] - torch.cat([logits[r, : right[r]], logits[r, right[r] + 1 :]]).max())
            assert abs(float(margin.mid()) - ran) < 1e-9


def test_as_few_coordinates_as_the_dtype_allows():
    assert [block_length(getattr(torch, name)) for name in ("float64", "float32", "bfloat16")] == [128, 16, 16]
    assert build(127, 2).W_Q.shape[1] == 2 and build(128, 2).W_Q.shape[1] == 3
    with pytest.raises(BadInput, match="coordinates=1"):
        build(64, 3, coordinates=1, dtype=torch.float32)
    exact = [Fraction(x) for x in build(127, 2).positions[:, -1].tolist()]
    assert exact == [Fraction(2) ** (8 * j) for j in range(128)]


def test_the_command(capsys, tmp_path):
    sizes = ("--length", "20", "--regions", "2")
    assert run(capsys, "bidirectional", *sizes, "--save", str(tmp_path / "kept"))[0] == 0
    assert run(capsys, "bidirectional", "--precision", "p24")[0] == 0
    code, out = as_json(capsys, "bidirectional", *sizes)
    assert code == 0 and (out["verdict"], out["claim"]) == ("PROVED", "W-19") and out["parameters"]["coordinates"] == 1
    kept = str(tmp_path / "kept" / "weights.safetensors")
    code, out = as_json(capsys, "bidirectional", "--weights", kept, "--length", "12", "--on-regions", "1")
    assert code == 0 and out["inputs_covered"] == str(StringDomain(12, 1).strings() * 2)
    for argv in (("--length", "0"), ("--length", "2000"), ("--regions", "65"), ("--weights", kept, "--regions", "2"),
                 ("--weights", kept, "--length", "21"), ("--precision", "tf32"), ("--precision", "s6"),
                 ("--method", "exhaustive"), ("--length", "8", "--coordinates", "0")):  # fmt: skip
        code, out, err = run(capsys, "bidirectional", *argv)
        assert code == 2 and err.count("\n") == 1, argv


def test_modules_and_files_that_are_not_judged(tmp_path):
    module = build(6, 1)
    weights = dict(module.state_dict())
    assert from_state_dict(weights).longest == 6 and as_bytes(module)
    for change in ({"E": weights["E"][:, :3]}, {"E": weights["E"].float()}, {"b_out": weights["b_out"] * torch.nan}):
        with pytest.raises(BadInput):
            from_state_dict(weights | change)
    with pytest.raises(BadInput):
        from_state_dict({name: W for name, W in weights.items() if name != "positions"})
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(BadInput):
        certify(module)
