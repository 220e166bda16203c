"""`verify count01` on domains with least counts, after = alone, with some heads, with layer norm."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from command import as_json, run
from models.selection import every

from constructions.count01 import Count01Transformer, documents, load, save, uniform, with_heads
from constructions.errors import BadInput
from tests.oracles.heads import EOS, EQUALS, FIVE, FOUR, Oracle, box
from verify.tasks.count01.layer_norm import bounding
from verify.tasks.count01.layer_norm.counting import wrong_inputs
from verify.tasks.count01.layer_norm.numbers import model_numbers
from verify.tasks.count01.real import exact_model, margin_at
from verify.tasks.count01.task import PromptDomain, triples
from verify.tasks.count01.verdict import certify

MODELS = Path(__file__).parents[1] / "data" / "count01"
ONES = "majority-ones"


def wrong_by_enumeration(path, listed, lasts):
    """How many (triple, last) an independent forward pass gets wrong, all heads together."""
    oracle = Oracle(path)
    heads, wrong = range(oracle.heads), 0
    more = listed[:, 1] > listed[:, 0]
    for last in lasts:
        due = np.where(more, FOUR, FIVE) if last == EQUALS else np.full(len(listed), EOS)
        right = np.ones(len(listed), dtype=bool)
        for expected, rival in product((FOUR, FIVE, EOS), range(8)):
            where = due == expected
            if rival != expected and where.any():
                right[where] &= oracle.sign(listed[where], heads, expected, rival, last) > 0
        wrong += int((~right).sum())
    return wrong


def test_a_domain_is_its_triples():
    for domain in (
        PromptDomain(5, 4, None, 2, 1),
        PromptDomain(6, 3, 9, 2, 1),
        PromptDomain(3, 3, None, 3, 3),
        PromptDomain(4, 4, 3, 2, 0),
    ):
        listed = list(triples(domain))
        assert len(listed) == domain.size() == len(set(listed))
        assert all(n in domain and min(n[:2]) >= domain.min_digits and n[2] >= domain.min_noise for n in listed)
    assert str(PromptDomain(200, 200, None, 151, 0)) == "151 <= n0, n1 <= 200, n2 <= 200"


@pytest.mark.parametrize("name", ["a4_s0", "a4_s2", "wide_s1"])
@pytest.mark.parametrize("is_semantic", [True, False])
def test_the_number_of_wrong_inputs_is_exact(name, is_semantic):
    path = MODELS / f"{name}.safetensors"
    domain = PromptDomain(26, 14, None, 17, 3, is_semantic=is_semantic)
    listed = np.array(list(triples(domain)))
    certificate = certify(load(str(path)), ONES, domain)
    wrong = wrong_by_enumeration(path, listed, domain.lasts)
    assert (certificate.verdict.value == "PROVED") == (wrong == 0)
    if wrong:
        assert certificate.extra["counts"]["wrong"] == str(wrong)
        assert certificate.counterexample["n0"] >= 17 and certificate.counterexample["n2"] >= 3


LARGER = PromptDomain(30, 26, 60)


def wrong_here(name):
    found = wrong_inputs(model_numbers(load(str(MODELS / f"{name}.safetensors"))), LARGER, ONES)
    return found.wrong


@pytest.mark.parametrize("name", every(2, ["a4_s2", "norm_s0"]))
def test_wrong_inputs_are_counted_by_boxes(name, monkeypatch):
    """Whole boxes, halves of them, and single triples below a largest length; planted: one corner of a box for all."""
    wrong = wrong_by_enumeration(MODELS / f"{name}.safetensors", np.array(list(triples(LARGER))), LARGER.lasts)
    assert wrong == wrong_here(name) > 0
    monkeypatch.setattr(bounding, "CORNERS", bounding.CORNERS[:1])
    assert wrong_here(name) != wrong


@pytest.mark.deep
def test_one_head_with_least_counts_agrees_with_single_triples():
    for model in (documents(3), documents(5), uniform()):
        exact = exact_model(model)
        for domain in (
            PromptDomain(7, 5, None, 4, 2),
            PromptDomain(7, 5, None, 4, 2, is_semantic=True),
            PromptDomain(2, 22, None, 0, 20),
        ):
            right = all(
                margin_at(exact, n, last, EOS if last != EQUALS else FOUR if n[1] > n[0] else FIVE)[0] > 0
                for n in triples(domain)
                for last in domain.lasts
            )
            assert (certify(model, ONES, domain).verdict.value == "PROVED") == right


@pytest.mark.deep
def test_a_trained_model_is_proved_and_another_is_wrong_on_sixteen(capsys):
    argv = ("count01", "--weights", str(MODELS / "wide_s0.safetensors"), "--semantic-only")
    code, result = as_json(capsys, *argv, "--max-digits", "60", "--max-noise", "60")
    assert code == 0 and result["inputs_covered"] == str(61**3) and result["parameters"]["semantic_only"] is True
    argv = ("count01", "--weights", str(MODELS / "a16_s2.safetensors"), "--semantic-only", "--min-digits", "151")
    code, result = as_json(capsys, *argv, "--max-digits", "200", "--max-noise", "200")
    assert code == 1 and result["counts"] == {"right": "502484", "wrong": "16"}
    assert result["wrong_share"] == "4/125625"


def test_some_heads_alone(tmp_path, capsys):
    model = load(str(MODELS / "a4_s0.safetensors"))
    save(with_heads(model, [2, 0]), str(tmp_path / "part.safetensors"))
    listed = box(3, 8, 5)
    argv = ("count01", "--weights", str(MODELS / "a4_s0.safetensors"), "--subset", "2,0", "--semantic-only")
    code, result = as_json(capsys, *argv, "--min-digits", "3", "--max-digits", "8", "--max-noise", "5")
    wrong = wrong_by_enumeration(tmp_path / "part.safetensors", listed, (EQUALS,))
    assert code == 1 and result["counts"]["wrong"] == str(wrong) and result["parameters"]["heads"] == 2
    with pytest.raises(BadInput, match="different heads"):
        with_heads(model, [4])


def test_layer_norm_and_scaled_scores(tmp_path, capsys):
    g = torch.Generator().manual_seed(3)
    model = Count01Transformer(d=6, heads=2, d_h=3, norm=True, scale=3)
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.randn(W.shape, generator=g))
    domain = PromptDomain(6, 5, None, 1, 0)
    found = wrong_inputs(model_numbers(model), domain, ONES)
    wrong = 0
    for n, last in product(triples(domain), domain.lasts):
        counts = torch.tensor([1, *n, 1, 0, 0, 0], dtype=torch.float64)
        counts[last] = 1
        due = EOS if last != EQUALS else FOUR if n[1] > n[0] else FIVE
        wrong += int(model.logits_at_counts(counts, last).argmax()) != due
    assert found.wrong == wrong > 0
    path = tmp_path / "norm.safetensors"
    save(model, str(path))
    code, result = as_json(capsys, "count01", "--weights", str(path), "--max-digits", "4", "--max-noise", "3")
    assert code == 1 and result["counterexample"]["fails"]
    for precision, said in (("float32", "scores divided"), ("s4", "layer norm")):
        code, out, err = run(capsys, "count01", "--weights", str(path), "--precision", precision, "--length", "3")
        assert code == 2 and said in err and out == ""


def scaled(keys, size):
    """The uniform weights with scores (size times a token's key) / 2 at "="; the first coordinate is what is mixed."""
    model, plain = Count01Transformer(d=3, scale=4), uniform()
    with torch.no_grad():
        model.E[:, 0], model.E[EQUALS, 1], model.E[:, 2] = plain.E[:, 0], 1, torch.tensor(keys)
        model.W_Q[0, 1, 0], model.W_K[0, 2, 0] = 1, size
        model.W_V[0, 0, 0] = model.W_O[0, 0, 0] = 1
        model.W_out[0], model.b_out[:] = plain.W_out[0], plain.b_out
    return model


def test_the_margin_of_listed_triples_is_the_least_one():
    """Against every triple; where ties are e^-600 away, floats see none of it, and digits do."""
    domain = PromptDomain(3, 2)
    model, least = scaled([0.3, 0.02, 0.0, 0.5, -0.2, 0.0, 0.0, 0.0], 1.0), float("inf")
    for n, last in product(triples(domain), domain.lasts):
        counts = torch.tensor([1, *n, 1, 0, 0, 0], dtype=torch.float64)
        counts[last] = 1
        logits = model.logits_at_counts(counts, last).tolist()
        due = EOS if last != EQUALS else FOUR if n[1] > n[0] else FIVE
        least = min(least, logits[due] - max(x for j, x in enumerate(logits) if j != due))
    certificate = certify(model, ONES, domain)
    assert certificate.verdict.value == "PROVED" and certificate.tightest["last"] == "="
    assert least - 1e-12 < certificate.margin <= least + 1e-15
    certificate = certify(scaled([0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], 1200.0), ONES, domain)
    assert certificate.verdict.value == "PROVED" and certificate.tightest["at"] == [3, 3, 2]
    assert abs(certificate.margin / (np.exp(-600) / 16) - 1) < 1e-12  # 5 over the tokens whose logit is 0


def test_other_trainers_names(tmp_path):
    model = load(str(MODELS / "a4_s1.safetensors"))
    lens = {
        "embed.W_E": model.E,
        **{f"blocks.0.attn.{name}": getattr(model, name) for name in ("W_Q", "W_K", "W_V", "W_O")},
        "unembed.W_U": model.W_out,
        "unembed.b_U": model.b_out,
        "blocks.0.attn.b_Q": torch.zeros(4, 2),
    }
    torch.save({name: W.detach() for name, W in lens.items()}, tmp_path / "lens.pt")
    from_lens = load(str(tmp_path / "lens.pt"))
    assert from_lens.scale == 2 and from_lens.has_skip and torch.equal(from_lens.W_V, model.W_V)

    d, heads = 6, 3
    attention = torch.nn.MultiheadAttention(d, heads, bias=False, batch_first=True, dtype=torch.float64)
    embedding, output = torch.nn.Embedding(8, d, dtype=torch.float64), torch.nn.Linear(d, 8, dtype=torch.float64)
    state = {f"attention.{k}": v for k, v in attention.state_dict().items()} | {"heads": torch.tensor(heads)}
    state |= {f"embedding.{k}": v for k, v in embedding.state_dict().items()}
    state |= {f"output.{k}": v for k, v in output.state_dict().items()}
    torch.save(state, tmp_path / "torch.pt")
    ours, tokens = load(str(tmp_path / "torch.pt")), torch.tensor([[0, 1, 2, 2, 3, 4]])
    x = embedding(tokens)
    expected = output(x + attention(x, x, x, need_weights=False)[0])[0, -1]
    assert torch.allclose(ours(tokens)[0, -1], expected)
    state["attention.in_proj_bias"] = torch.ones(3 * d)
    torch.save(state, tmp_path / "bias.pt")
    with pytest.raises(BadInput, match="not zero"):
        load(str(tmp_path / "bias.pt"))


@pytest.mark.parametrize(
    "argv",
    [
        ("--min-digits", "5"),
        ("--min-digits", "5", "--max-digits", "4", "--max-noise", "3"),
        ("--subset", "0"),
        ("--min-noise", "-1", "--max-digits", "3", "--max-noise", "3"),
        ("--precision", "s6", "--min-digits", "2"),
    ],
)
def test_bad_regions_are_one_line(capsys, argv):
    code, out, err = run(capsys, "count01", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1
