"""Separability: every yes on all triples, every no by its combination, the checker on both, and planted faults."""

import json
import random
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb_mat, ctx
from models.selection import first

from bounds.count01_heads import separates
from constructions.count01 import BOS, EQUALS, ONE, TWO, ZERO, Count01Transformer, load, save
from constructions.count01_heads import counting_pair, interval_pair, uniform_head
from constructions.errors import BadInput
from tests.oracles.heads import Oracle, box
from verify.checker import determinants, joint_heads, lone_heads
from verify.checker import heads as checker
from verify.checker.reading import Refusal
from verify.commands.cli import main
from verify.tasks.count01.heads import everywhere, separability
from verify.tasks.count01.heads.joint import joint
from verify.tasks.count01.heads.phase import decided
from verify.tasks.count01.layer_norm import cone, laws
from verify.tasks.count01.layer_norm.laws import Law, law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers

MODELS = Path(__file__).parents[1] / "data" / "count01"
LAWS = ("d-train", "d-val", "d-test")
UNBOUNDED = law_named("unbounded")


def numbers(name):
    return model_numbers(load(str(MODELS / f"{name}.safetensors")))


def right_everywhere(oracle, heads, w, b, triples):
    """Whether w . r + b has the sign of n1 - n0 - 1/2 (0 is allowed where n1 <= n0): float64, and balls near zero."""
    score, exact_w = np.full(len(triples), float(b)), [[Fraction(x) for x in part] for part in w]
    for h, part in zip(heads, exact_w, strict=True):
        score = score + oracle.outputs(h, triples) @ np.array([float(x) for x in part])
    more = triples[:, 1] > triples[:, 0]
    size = 1e-9 * sum(abs(float(x)) for part in exact_w for x in part) + 1e-9 * abs(float(b))
    for i in np.flatnonzero(np.abs(score) <= size):
        with ctx.workprec(300):
            total = ball_of(b)
            for h, part in zip(heads, exact_w, strict=True):
                r = oracle.exact_outputs(h, tuple(int(x) for x in triples[i]))
                total += sum(ball_of(x) * y for x, y in zip(part, r, strict=True))
        score[i] = 1 if total > 0 else -1
    return bool(np.where(more, score > 0, score <= 0).all())


def ball_of(x):
    from flint import arb

    return arb(Fraction(x).numerator) / Fraction(x).denominator


def excluded(oracle, heads, rows, more):
    """Whether the turned outputs (r, 1) have a positive combination to zero, by signs of minors in balls."""
    with ctx.workprec(400):
        Z = []
        for n, is_more in zip(rows, more, strict=True):
            r = [x for h in heads for x in oracle.exact_outputs(h, tuple(n), bits=400)]
            Z.append([(1 if is_more else -1) * x for x in [*r, ball_of(1)]])
        minors = [arb_mat(Z[:k] + Z[k + 1 :]).det() * (-1) ** k for k in range(len(Z))]
    return any(more) and (all(x > 0 for x in minors) or all(x < 0 for x in minors))


@pytest.mark.deep
@pytest.mark.parametrize("name", first(1, ["a16_s0", "a16_s2"]))
def test_sixteen_heads_and_three_boxes_leave_nothing_open(name):
    model, oracle = numbers(name), Oracle(MODELS / f"{name}.safetensors")
    separators = 0
    for law in map(law_named, LAWS):
        found = [separability.separability(head, law) for head in model.heads]
        for h, answer in enumerate(found):
            c = answer.certificate
            assert answer.is_separable is (c["kind"] != "gordan")
            if c["kind"] == "gordan":
                assert len(c["rows"]) == 4 and excluded(oracle, [h], [row[1:] for row in c["rows"]], c["more_ones"])
            elif law.name == "d-test" and separators < 3:
                separators += 1
                assert right_everywhere(oracle, [h], [c["w"]], Fraction(c["b"]), box(151, 200, 200))
    assert separators


@pytest.mark.deep
@pytest.mark.parametrize("name", ["a16_s0", "a16_s1", "a16_s2", "a4_s0", "a4_s1", "a4_s2", "a4_s3", "wide_s0"])
def test_every_separator_is_right_on_every_triple(name):
    model, oracle, triples = numbers(name), Oracle(MODELS / f"{name}.safetensors"), box(151, 200, 200)
    for h, head in enumerate(model.heads):
        answer = separability.separability(head, law_named("d-test"))
        if answer.is_separable:
            c = answer.certificate
            assert right_everywhere(oracle, [h], [c["w"]], Fraction(c["b"]), triples)


def small_model(seed, d_h):
    """A model of one head with small whole numbers, where ties and dependent values are common."""
    g = random.Random(seed)
    model = Count01Transformer(d=8, heads=1, d_h=d_h)
    with torch.no_grad():
        model.E.copy_(torch.eye(8))
        for t, k in product(range(8), range(d_h)):
            model.W_V[0, t, k] = g.randint(-3, 3) / 2
        scores = torch.tensor([g.choice([0.0, 0.0, 0.5, 1.0, 2.0, -1.0]) for _ in range(8)]).double()
        model.W_Q[0, 4, 0], model.W_K[0, :, 0] = 1, scores
    return model


def programme_says(model, law):
    """Separable or not by a linear programme over every triple of a small box, in float64; None near the boundary."""
    from scipy.optimize import linprog

    triples = law.triples
    W = {name: p.detach().numpy() for name, p in model.named_parameters()}
    w = np.exp(W["W_K"][0, :, 0])[[0, 1, 2, 3, 4]]
    counts = np.column_stack([np.ones(len(triples)), triples, np.ones(len(triples))]) * w
    r = (counts / counts.sum(axis=1, keepdims=True)) @ W["W_V"][0][[0, 1, 2, 3, 4]]
    Z = np.column_stack([r, np.ones(len(r))])
    more = triples[:, 1] > triples[:, 0]
    above = np.column_stack([-Z[more], np.ones(more.sum())])
    A = np.concatenate([above, np.column_stack([Z[~more], np.zeros((~more).sum())])])
    bounds = [(-1, 1)] * Z.shape[1] + [(None, 1)]
    answer = linprog(np.append(np.zeros(Z.shape[1]), -1), A_ub=A, b_ub=np.zeros(len(A)), bounds=bounds)
    return True if -answer.fun > 1e-7 else False if -answer.fun < 1e-10 else None


@pytest.mark.parametrize("d_h", first(1, [1, 3, 2]))
def test_small_heads_agree_with_a_programme_over_all_triples(d_h):
    seen = set()
    for seed in range(12):
        model = small_model(seed, d_h)
        for law in (law_named("box:0:4:3"), law_named("box:2:3:0"), law_named("box:1:5:6")):
            found = separability.separability(model_numbers(model).heads[0], law).is_separable
            said = programme_says(model, law)
            assert found is not None and (said is None or found is said), (seed, law)
            seen.add(found)
        everywhere = separability.separability(model_numbers(model).heads[0], UNBOUNDED).is_separable
        assert everywhere is not None and (not everywhere or found)
    assert seen == {True, False} or d_h == 3


@pytest.mark.deep
def test_pairs_are_decided_and_some_separate_only_together():
    model, oracle, law = numbers("a16_s2"), Oracle(MODELS / "a16_s2.safetensors"), law_named("d-test")
    single = [separability.separability(head, law) for head in model.heads]
    together = joint(model, (0, 4), law, single)
    c = together.certificate
    assert not single[0].is_separable and not single[4].is_separable and together.is_separable
    assert right_everywhere(oracle, [0, 4], c["w"], Fraction(c["b"]), box(151, 200, 200))
    apart = joint(model, (0, 3), law, single)
    assert apart.is_separable is False
    assert excluded(oracle, [0, 3], apart.certificate["rows"], apart.certificate["more_ones"])


def test_a_built_pair_separates_only_together():
    model = model_numbers(counting_pair())
    for law in (law_named("box:0:9:9"), law_named("d-test"), UNBOUNDED):
        assert [separability.separability(head, law).is_separable for head in model.heads] == [False, False]
    law = law_named("box:0:9:9")
    single = [separability.separability(head, law) for head in model.heads]
    assert joint(model, (0, 1), law, single).is_separable


@pytest.mark.parametrize("M", [2, 8])
def test_an_interval_pair_is_right_where_one_of_its_heads_is(M):
    """By enumeration in fractions: each head's own sign, both heads' sum, and what any line makes of one head."""
    model, low, n = interval_pair(M=M), (M - 1, 2 * M - 2), range(3 * M)
    values = [[Fraction(float(model.E[t, 2 + h])) for t in (ZERO, ONE, TWO, BOS, EQUALS)] for h in (0, 1)]
    for n0, n1, n2 in product(range(5), range(5), n):
        sums = [v[0] * n0 + v[1] * n1 + v[2] * n2 + v[3] + v[4] for v in values]
        assert (sum(sums) > 0) == (n1 > n0)
        right = [(x > 0) == (n1 > n0) for x in sums]
        assert right[0] or n2 > low[0]
        assert right[1] or not low[0] <= n2 <= low[1]
    heads = model_numbers(model).heads
    for noise, expected in ((M - 1, [True, False]), (2 * M - 2, [False, False])):
        law = law_named(f"box:0:{8 * M}:{noise}")
        assert [separability.separability(head, law).is_separable for head in heads] == expected


@pytest.mark.parametrize(
    "model, noise, alone",
    [("counting-pair", 9, [False, False]), ("interval-pair", 7, [True, False]), ("interval-pair", 14, [False, False])],
)
def test_an_extraction_says_which_head_separates_alone(model, noise, alone, capsys):
    line = ["heads", "--construction", model, "--law", f"box:0:60:{noise}", "--extract", "0,1"]
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["separable_alone"] == alone
    assert main(line) == 0
    said = ", ".join(f"head {h} {'separates' if yes else 'does not separate'}" for h, yes in enumerate(alone))
    assert f"alone     {said}" in capsys.readouterr().out


@pytest.mark.parametrize("M", [0, 3, True, 4096, 8.0])
def test_an_interval_pair_of_another_size(M):
    with pytest.raises(BadInput, match="power of two from 2 to 1024"):
        interval_pair(M=M)


def test_layer_norm_and_scaled_scores_are_what_torch_runs(tmp_path):
    g = torch.Generator().manual_seed(0)
    model = Count01Transformer(d=6, heads=3, d_h=2, norm=True, scale=2)
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.randn(W.shape, generator=g))
    save(model, str(tmp_path / "m.safetensors"))
    again = load(str(tmp_path / "m.safetensors"))
    assert again.has_norm and again.scale == 2
    oracle, law = Oracle(tmp_path / "m.safetensors"), law_named("box:0:4:4")
    triples = box(0, 4, 4)
    string = torch.tensor([[0, 1, 2, 2, 3, 4]])
    assert np.allclose(model(string)[0, -1], oracle.logits(np.array([[1, 2, 1]]), range(3))[0])
    from verify.tasks.count01.layer_norm.accuracy import whole_model

    logits = oracle.logits(triples, range(3))
    expected = np.where(triples[:, 1] > triples[:, 0], 5, 6)
    assert int(whole_model(model_numbers(model), law, "majority-ones").right.sum()) == int(
        (logits.argmax(axis=1) == expected).sum()
    )
    for head in model_numbers(model).heads:
        assert separability.separability(head, law).is_separable is not None


def saved(tmp_path, name, law):
    folder = tmp_path / "out"
    assert main(["heads", str(MODELS / f"{name}.safetensors"), "--law", law, "--json", "--save", str(folder)]) == 0
    return (folder / "weights.safetensors").read_bytes(), json.loads((folder / "certificate.json").read_text())


def accepted(weights, certificate):
    try:
        checker.check(weights, json.dumps(certificate).encode())
    except Refusal:
        return False
    return True


def test_the_checker_accepts_both_kinds_and_refuses_forgeries(tmp_path, capsys):
    weights, certificate = saved(tmp_path, "a4_s1", "box:3:20:20")
    text = json.dumps(certificate)
    kinds = {json.dumps(x)[:20] for x in certificate["heads"]}
    assert kinds and '"gordan"' in text and '"separator"' in text and '"tight"' in text
    assert accepted(weights, certificate)
    assert main(["check", str(tmp_path / "out")]) == 0
    refused = 0
    for h, key in product(range(4), ("certificate", "certificate_unbounded")):
        for forged in forgeries(json.loads(text), h, key):
            refused += not accepted(weights, forged)
    assert refused >= 16


def forgeries(c, h, key):
    """The certificate with one head's answer turned, or another's certificate put in its place."""
    answer = "separable" if key == "certificate" else "separable_unbounded"
    turned = json.loads(json.dumps(c))
    turned["heads"][h][answer] = not turned["heads"][h][answer]
    yield turned
    for other in range(len(c["heads"])):
        if c["heads"][other][answer] != c["heads"][h][answer]:
            swapped = json.loads(json.dumps(turned))
            swapped["heads"][h][key] = c["heads"][other][key]
            yield swapped
            break


def test_planted_a_corner_dropped_is_caught(monkeypatch):
    """Planted: without the corner that binds, a head with these ratios is said to separate, and the formula differs."""
    box_, whole = law_named("box:2:6:5"), Law._box_corners
    cases = [  # the corner that binds, and a head just outside the diagram
        ((2, 2, 5), (Fraction(1), Fraction(5)), (-1, 1, Fraction(1, 2))),
        ((2, 3, 5), (Fraction(1), Fraction(5)), (-1, 1, -1)),
    ]
    for corner, ratios, values in cases:
        assert not separates(ratios, values, (2, 6, 5))
        assert not decided(*ratios, [Fraction(v) for v in values], box_)
        gone = {corner, (corner[0] + 4, corner[1] + 4, 5), (5, 6, 5), (2, 6, 5)} if corner[1] > corner[0] else {corner}
        monkeypatch.setattr(Law, "_box_corners", lambda self, gone=gone: [c for c in whole(self) if c not in gone])
        assert decided(*ratios, [Fraction(v) for v in values], box_)
        monkeypatch.setattr(Law, "_box_corners", whole)


def test_planted_the_sign_of_kappa_is_caught(monkeypatch):
    """Planted: with the constant's sign turned, kappa = -1/2 is refused, and kappa = 1/4 is not."""

    def answers():
        out = []
        for offset in (-0.5, 0.25):
            values = {"BOS": [offset, 0], "0": [-1, 0], "1": [1, 0], "2": [0, 1], "=": [0, 0]}
            head = model_numbers(uniform_head(values, [1, 1])).heads[0]
            out.append(separability.separability(head, UNBOUNDED).is_separable)
        return out

    assert answers() == [True, False]
    turned = tuple(
        cone.Constraint((-c.row[0], *c.row[1:]), c.is_more_ones, c.is_strict) if c.row == (1, 0, 0, 0) else c
        for c in laws.UNBOUNDED
    )
    monkeypatch.setattr(laws, "UNBOUNDED", turned)
    assert answers() != [True, False]


def test_planted_bos_left_out_is_caught(monkeypatch):
    """Planted: the constant line without BOS and "=" decides some small head otherwise."""
    honest, law = {}, law_named("box:0:4:3")
    for seed in range(40):
        honest[seed] = separability.separability(model_numbers(small_model(seed, 1)).heads[0], law).is_separable
    monkeypatch.setattr(separability, "LINES", ((4,), (1,), (2,), (3,)))
    found = {s: separability.separability(model_numbers(small_model(s, 1)).heads[0], law).is_separable for s in honest}
    wrong = [s for s in honest if found[s] != honest[s]]
    assert wrong and any(programme_says(small_model(s, 1), law) is not found[s] for s in wrong)


def test_planted_the_sign_of_a_minor_is_caught(tmp_path, capsys, monkeypatch):
    """Planted: without alternating signs of minors, a combination that excludes nothing is taken for one."""
    weights, certificate = saved(tmp_path, "a4_s1", "box:3:20:20")
    real = determinants.sign_of_determinant
    for module in (lone_heads, joint_heads):
        monkeypatch.setattr(module, "sign_of_determinant", lambda rows: -real(rows) if real(rows) and rows[0] else 0)
    for module in (lone_heads, determinants):
        monkeypatch.setattr(module, "sign_of", lambda s: 1)
    assert not accepted(weights, certificate)


def test_all_pairs_of_a_small_model_are_checked(tmp_path, capsys):
    weights, certificate = saved(tmp_path, "a4_s0", "box:3:14:10")
    assert len(certificate["pairs"]) == len(list(combinations(range(4), 2)))
    assert accepted(weights, certificate)
    forged = json.loads(json.dumps(certificate))
    for pair in forged["pairs"]:
        if pair["certificate"]["kind"] == "joint separator":
            pair["certificate"]["b"] = str(Fraction(pair["certificate"]["b"]) + 10**6)
            assert not accepted(weights, forged)
            break


def on_all_of_n3(name, heads):
    model = numbers(name)
    single = [separability.separability(head, UNBOUNDED) for head in model.heads]
    assert not any(single[h].is_separable for h in heads)
    return joint(model, heads, UNBOUNDED, single), model, single


def test_several_heads_are_decided_on_all_of_n3(tmp_path, capsys):
    """Two trained heads separate all of N^3 together, each of them on no large box alone."""
    together, model, _ = on_all_of_n3("a4_s0", (0, 1))
    assert together.is_separable and together.certificate["kind"] == "joint tight"
    for law in (law_named("box:0:9:9"), law_named("d-test")):
        single = [separability.separability(head, law) for head in model.heads]
        assert joint(model, (0, 1), law, single).is_separable
    apart, _, _ = on_all_of_n3("a4_s0", (0, 2))
    oracle = Oracle(MODELS / "a4_s0.safetensors")
    assert apart.is_separable is False
    assert excluded(oracle, [0, 2], apart.certificate["rows"], apart.certificate["more_ones"])


@pytest.mark.deep
def test_the_checker_re_checks_pairs_on_all_of_n3(tmp_path, capsys):
    weights, certificate = saved(tmp_path, "a4_s0", "unbounded")
    kinds = [pair["certificate"]["kind"] for pair in certificate["pairs"]]
    assert kinds.count("joint tight") == 2 and kinds.count("joint gordan") == 4
    assert accepted(weights, certificate)
    for k, pair in enumerate(certificate["pairs"][:2]):
        forged = json.loads(json.dumps(certificate))
        if pair["separable"]:
            for ray in forged["pairs"][k]["certificate"]["rays"]:
                ray["sign"] *= -1
        else:
            forged["pairs"][k]["certificate"]["more_ones"][0] ^= True
        assert not accepted(weights, forged)
        forged = json.loads(json.dumps(certificate))
        forged["pairs"][k]["separable"] = not pair["separable"]
        forged["pairs"][k]["certificate"] = certificate["pairs"][(k + 1) % 6]["certificate"]
        assert not accepted(weights, forged)


def test_planted_a_side_left_out_of_the_polynomial_is_caught(monkeypatch):
    """Planted: asking n1 > n0 twice and n1 <= n0 never, a pair that some triples exclude is said to separate."""
    apart, model, _ = on_all_of_n3("a4_s0", (0, 2))
    pair = [model.heads[h] for h in (0, 2)]
    assert apart.is_separable is False and everywhere.positive_polynomial(pair, (0, 2)).is_separable is None
    whole = everywhere._sides

    def more_ones_twice(heads, at):
        side, _ = whole(heads, at)
        return [side, [{power: x * -1 for power, x in column.items()} for column in side]]

    monkeypatch.setattr(everywhere, "_sides", more_ones_twice)
    assert everywhere.positive_polynomial(pair, (0, 2)).is_separable


@pytest.mark.parametrize(("name", "heads"), [("a4_s1", "1"), ("a4_s1", "0,3"), ("norm_s0", "2"), ("norm_s0", "0,1")])
def test_an_extracted_model_answers_and_ends_on_every_triple(name, heads, tmp_path, capsys):
    """With layer norm and without: 0 wrong after "=" and after the answer, by the verifier and by torch on strings."""
    argv = ["heads", str(MODELS / f"{name}.safetensors"), "--law", "box:0:8:6", "--extract", heads]
    assert main([*argv, "--save", str(tmp_path / "out"), "--json"]) == 0
    small = load(str(tmp_path / "out" / "weights.safetensors"))
    assert small.heads == heads.count(",") + 1 and small.has_norm is (name == "norm_s0")
    for n0, n1, n2 in ((0, 0, 6), (8, 8, 0), (7, 8, 6), (3, 2, 1)):
        prompt = torch.tensor([0, *[1] * n0, *[2] * n1, *[3] * n2, 4])
        due = 5 if n1 > n0 else 6
        assert small.next_logits(prompt).argmax() == due
        assert small.next_logits(torch.cat([prompt, torch.tensor([due])])).argmax() == 7
