"""`verify contextual`: exit codes, JSON, bad input, single strings, Figure 5, impossibilities, bounds."""

from collections import Counter
from dataclasses import replace

import command
import pytest
import torch
from models.selection import every
from oracles.contextual import float_margins

from bounds import contextual_counting as bounds
from constructions import contextual_fewest_neurons
from constructions.contextual_counting import build, gate, line
from verify.frame.certificate import Verdict
from verify.tasks.contextual import impossible
from verify.tasks.contextual.impossible import is_between, middle_weights, random_logits
from verify.tasks.contextual.patterns import BiasRow, verdict_of
from verify.tasks.contextual.task import parse
from verify.tasks.contextual.verdict import certify, domain_of, exhaustive


def run(capsys, *argv):
    return command.run(capsys, "contextual", *argv)


def as_json(capsys, *argv):
    return command.as_json(capsys, "contextual", *argv)


def test_the_documents_setting(capsys):
    code, out, err = run(capsys, "--length", "512", "--regions", "4")
    assert code == 0 and err == "" and "PROVED" in out and "B-2.1+2.2" in out


@pytest.mark.parametrize(
    ("argv", "verdict"),
    [
        (("--bias", "]", "--exactly"), "PROVED"),
        (("--bias", "]"), "REFUTED"),
        (("--bias", "]", "--exactly", "--length", "40"), "PROVED"),
        (("--bias", "]", "--exactly", "--on-regions", "1"), "REFUTED"),
        (("--bias", "0"), "REFUTED"),
        (("--bias", "0", "--zeros", "29"), "PROVED"),
        (("--keys", "convex", "--dtype", "float64"), "PROVED"),
        (("--precision", "float32"), "PROVED"),
        (("--precision", "p9"), "UNKNOWN"),
    ],
)
def test_verdicts_and_exit_codes(capsys, argv, verdict):
    code, result = as_json(capsys, "--built-for", "64", "--regions", "3", *argv)
    assert result["verdict"] == verdict
    assert code == {"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3}[verdict]
    found = result["counterexample"]
    assert (found is not None) == (verdict == "REFUTED")
    if found:
        assert found["all_expected"][found["prompt"] - 1] == found["expected"] != found["module_answers"]


def test_saved_weights_are_judged_without_their_builder(capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    assert run(capsys, "--length", "40", "--regions", "2", "--save", path)[0] == 0
    code, result = as_json(capsys, "--weights", path)
    assert code == 0 and result["parameters"]["construction"] == "file" and result["parameters"]["length"] == 40


BAD_COMMANDS = [
    ("--length", "0"),
    ("--regions", "0"),
    ("--length", "-3"),
    ("--bias", "1"),
    ("--keys", "layernorm"),
    ("--precision", "float7"),
    ("--length", "99999999"),
    ("--weights", "missing.safetensors"),
    ("--weights", "missing.safetensors", "--length", "4"),
    ("--input", "[[1]]"),
    ("--input", "1]"),
    ("--input", "[1"),
    ("--input", "", "--bias", "]"),
    ("--impossible", "2.6"),
    ("--impossible", "2.3", "--bias", "]"),
    ("--figure5", "--exactly"),
    ("--figure5", "--length", "8"),
    ("--method", "exhaustive"),
    ("--method", "sampled", "--precision", "float32"),
    ("--precision", "s4"),
    ("--precision", "bfloat16", "--accumulate", "float32"),
    ("--accumulate", "float32"),
    ("--input", "1", "--save", "folder"),
    ("--zeros", "-1"),
    ("--zeros", "513"),
    ("--calibrated-zeros", "3"),
    ("--on-regions", "-1"),
    ("--built-for", "512", "--length", "600"),
    ("--exactly", "--on-regions", "300"),
    ("--save", "/nowhere/m.safetensors"),
    ("--length", "4096", "--dtype", "float16", "--regions", "200"),
]


@pytest.mark.parametrize("argv", BAD_COMMANDS, ids=" ".join)
def test_bad_input_is_one_line_and_exit_2(capsys, argv):
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and "Traceback" not in err


def test_sampling_refutes_with_a_short_string_and_never_proves(capsys):
    sampled = ("--length", "40", "--regions", "3", "--method", "sampled", "--seed", "1")
    code, result = as_json(capsys, *sampled)
    assert code == 3 and result["verdict"] == "UNKNOWN" and result["samples"] == 1000
    code, result = as_json(capsys, *sampled, "--bias", "]")
    assert code == 1 and result["margin"] <= 0 and len(result["counterexample"]["string"]) < 12


def test_one_string(capsys):
    code, out, _ = run(capsys, "--input", "[0][101]0[1]1[]0", "--length", "16")
    assert code == 0 and [int(row.split()[-1]) for row in out.splitlines()] == [0, 2, 1, 0]
    code, result = as_json(capsys, "--input", "[11][][]", "--length", "16", "--bias", "]")
    assert code == 1 and result["counts"][0] == 3 and result["right"][0] == 2


@pytest.mark.deep
def test_figure_5(capsys):
    code, result = as_json(capsys, "--figure5", "--length", "40", "--regions", "3")
    assert code == 0
    verdicts = [row["verdict"] for row in result["rows"]]
    assert result["verdict"] == "PROVED"
    assert verdicts == ["PROVED"] * 3 + ["PROVED", "PROVED", "REFUTED"] + ["PROVED", "REFUTED", "PROVED"]
    assert all(pair == [40, None] for pair in result["sets"]["BOS"].values())
    for M, (right, wrong) in result["sets"]["]"].items():
        count = bounds.first_wrong_count(3, int(M)) if int(M) else 0
        if count is None:
            assert [right, wrong] == [40, None]
        else:
            last = 2 * int(M) + count - 1
            assert [right, wrong] == [last if last >= 1 else None, max(1, last + 1)]
    assert 17 in result["sets"]["0"]["right_zeros"]
    for zeros in result["sets"]["0"]["right_zeros"]:
        count = bounds.first_wrong_count(17, zeros) if zeros else 1
        assert count is None or zeros + 2 + count > 40  # no room for the first wrong count


def test_figure_5_ends_as_its_rows_say():
    rows = [BiasRow("BOS", "all", Verdict.PROVED, certify(module, domain_of(module, 6))) for module in [build(6, 2)]]
    assert verdict_of(rows) is Verdict.PROVED
    assert verdict_of([replace(rows[0], due=Verdict.REFUTED)]) is Verdict.REFUTED
    is_open = replace(rows[0], certificate=replace(rows[0].certificate, verdict=Verdict.UNKNOWN, reason="open"))
    assert verdict_of([is_open]) is Verdict.UNKNOWN


@pytest.mark.parametrize("which", every(3, ["2.1+2.2", "2.3", "2.4", "2.5", "B-2.3", "B-D.3", "W-11"]))
def test_impossibilities(capsys, which):
    code, result = as_json(capsys, "--impossible", which, "--seed", "1")
    assert code == 0 and result["holds"] and result["argument"] and result["witness"]
    assert result["verdict"] == "IMPOSSIBLE" and result["claim"] in ("B-2.3", "B-2.4", "B-2.5", "B-D.3", "W-11")


def test_random_bidirectional_models_see_no_order_and_causal_ones_do():
    """The property of B-2.3 on longer permuted strings; the same models with a mask tell them apart."""
    first, second = torch.tensor(parse("[1]0[01][]1")), torch.tensor(parse("[]01[10]1[]"))
    assert first.sort().values.tolist() == second.sort().values.tolist()
    for seed in range(300, 360):
        assert torch.allclose(random_logits(first, seed, "nope"), random_logits(second, seed, "nope"), atol=1e-9)
        assert not torch.allclose(
            random_logits(first, seed, "causal"), random_logits(second, seed, "causal"), atol=1e-6
        )
        alibi = random_logits(first, seed, "alibi")
        assert torch.allclose(alibi, random_logits(first.flip(0), seed, "alibi"), atol=1e-9)
        assert not torch.allclose(alibi, random_logits(second, seed, "alibi"), atol=1e-6)


def test_exchanged_regions_have_the_same_neighbourhoods():
    """The heart of B-D.3: as bags, windows of `gap` tokens are those of the string with its ones exchanged."""
    for gap in (1, 4, 9):
        strings = [" " * gap + text for text in impossible.swapped(gap, (3, 7))]
        bags = [Counter(text[i : i + gap + 1] for i in range(len(text) - gap)) for text in strings]
        assert bags[0] == bags[1] and strings[0] != strings[1]
        assert bags[0] != Counter(text[i : i + 2 * gap + 2] for text in strings[:1] for i in range(len(text) - gap))


@pytest.mark.parametrize("fault", ["no slope", "no exchange"])
def test_a_check_of_fading_that_should_fail_fails(fault, monkeypatch):
    if fault == "no slope":
        monkeypatch.setattr(impossible, "LEAST_SLOPE", -1e-3)
        monkeypatch.setattr(impossible, "FADING", 10)
    else:
        monkeypatch.setattr(impossible, "swapped", lambda gap: ("[1]", "[1]"))
    assert not impossible.far_context(0).holds


def test_no_attention_only_score_prefers_the_middle():
    assert all(is_between(middle_weights(seed)) for seed in range(1000, 1200))
    assert not is_between(torch.tensor([0.0, 1.0, 0.5]))


@pytest.mark.parametrize("R", [1, 2, 3, 4, 7])
def test_fewest_neurons(R):
    """W-11: proved, run on every short string, and broken by one neuron less."""
    model = contextual_fewest_neurons.build(128, R)
    p = contextual_fewest_neurons.neurons(R)
    assert p == bounds.neurons(R) and int((model.W_1 != 0).sum()) == p
    assert certify(model, domain_of(model, 128)).verdict is Verdict.PROVED
    short = contextual_fewest_neurons.build(7, R)
    assert exhaustive(short, domain_of(short, 7)).verdict is Verdict.PROVED
    if p:
        with torch.no_grad():
            model.W_2[p - 1] = 0
        found = certify(model, domain_of(model, 128)).counterexample
        assert found is not None and float(float_margins(model, [found["string"]]).min()) < 1e-9


def test_bounds_are_what_the_builder_uses():
    for bos in (True, False):
        for j in range(1, 40):
            A, c = line(j, bos)
            assert bounds.line(j, bos) == (A, c)
            assert A * bounds.position(j, bos) - c == 1 and A * bounds.position(j + 1, bos) - c == -1
            assert A * bounds.position(1, bos) - c < gate(j)


def test_bounds_bound_the_certified_margin():
    model = build(100, 3, dtype=torch.float64)
    margin = certify(model, domain_of(model, 100)).margin
    assert 0.9 * float(bounds.margin(98, 1)) < margin < float(bounds.margin(98, 1))


def test_causal_ranks():
    for L in (2, 5, 9):
        triangle = torch.ones(L, L, dtype=torch.float64).tril()
        assert int(torch.linalg.matrix_rank(triangle)) == bounds.causal_rank(L)
        assert int(torch.linalg.matrix_rank(triangle - 1)) == bounds.causal_rank(L, softmax=True)
