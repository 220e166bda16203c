"""Contextual counting proofs against enumeration: random and mutated models, planted faults, exact sets of lengths."""

import itertools
import re
from itertools import count
from unittest import mock

import numpy as np
import pytest
import torch
from models.selection import first
from oracles.contextual import counts, float_margins, margins, random_model, valid_strings

from constructions.contextual_counting import BIASES, KEYS, build
from constructions.errors import BadInput
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, Rounded
from verify.frame import decide
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget
from verify.frame.decide import Effort
from verify.tasks.contextual import proof as contextual
from verify.tasks.contextual.cells import CellProof, PromptCells
from verify.tasks.contextual.runs import judge
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.contextual.task import StringDomain, answers, parse
from verify.tasks.contextual.verdict import ContextualCounting, certify, domain_of, exhaustive


def worst_margin(model, N, regions):
    groups = itertools.groupby(valid_strings(N, regions, 0 if model.has_bos else 1), len)
    return min(float(float_margins(model, list(texts)).min()) for _, texts in groups)


@pytest.mark.parametrize("seeds", first(1, [range(12), *(range(i, i + 60) for i in range(0, 240, 60))]))
def test_verdicts_agree_with_enumeration(seeds):
    """With and without the fallback on enumeration, PROVED never contradicts a wrong string, nor REFUTED none."""
    seen = set()
    for seed in seeds:
        N = 3 + seed % 3
        model = random_model(seed, N)
        domain = domain_of(model, N, regions=2)
        margin = worst_margin(model, N, 2)
        certificate = certify(model, domain)
        if margin > 1e-9:
            assert certificate.verdict is Verdict.PROVED, seed
        elif margin < -1e-9:
            assert certificate.verdict is Verdict.REFUTED, seed
        if certificate.verdict is Verdict.REFUTED and seed % 6 == 0:
            found = certificate.counterexample
            true = float(margins(model, found["string"])[found["prompt"] - 1])
            assert true <= certificate.margin <= true + 1e-9 * max(1.0, -true), seed
        seen.add(certificate.verdict)
        with np.errstate(all="ignore"):
            cells = list(CellProof(StoredContextual.of(model), domain).decide())
        if all((c.margin > 0).all() for c in cells):
            assert margin > -1e-12, seed
            assert min(float(c.margin.min()) for c in cells) <= margin + 1e-9, seed
        if any(c.wrong.any() for c in cells):
            assert margin < 1e-9, seed
    assert seen >= {Verdict.PROVED, Verdict.REFUTED}


def test_every_cell_bounds_its_strings():
    """Cell by cell: no string has less margin than its cell is proved to have; in a wrong cell all are wrong."""
    for seed in range(1, 60, 2):
        model = random_model(seed, 5)
        domain = domain_of(model, 5, regions=2)
        with np.errstate(all="ignore"):
            cells = list(CellProof(StoredContextual.of(model), domain).decide())
        for _, group in itertools.groupby(valid_strings(5, 2, domain.shortest), len):
            texts = list(group)
            for text, row in zip(texts, float_margins(model, texts).tolist(), strict=True):
                for c in cells:
                    if c.fewest <= text.count("[") <= c.most:
                        k = counts(text, model.R)[c.r - 1]
                        assert c.margin[k] <= max(0.0, row[c.r - 1]) + 1e-9, (seed, text)
                        assert not c.wrong[k] or row[c.r - 1] <= 1e-9, (seed, text)


@pytest.mark.parametrize("seeds", first(1, [range(8), range(8, 24)]), ids=str)
def test_single_strings_against_long_arithmetic(seeds):
    for seed in seeds:
        model = random_model(seed, 6)
        stored = StoredContextual.of(model)
        proof = CellProof(stored, domain_of(model, 6, regions=2))
        for text in ("1", "[1]", "0[01]1[1]", "[11]0", "1[][1]"):
            judged = judge(proof, parse(text))
            for lower, wrong, true in zip(judged.margin, judged.wrong, margins(model, text), strict=True):
                assert lower <= max(0, true), (seed, text)
                assert not wrong or true <= 0, (seed, text)


@pytest.mark.parametrize("keys", first(1, KEYS))
@pytest.mark.parametrize("bias", first(1, BIASES))
def test_every_string_through_the_module(bias, keys):
    """All valid strings of up to 9 tokens: the module's own answers, for the domain that each bias is right on."""
    zeros = 2 if bias == "0" else None
    model = build(9, 2, bias=bias, keys=keys, zeros=zeros, dtype=torch.float64)
    domain = domain_of(model, 9, exactly=bias == "]", zeros=zeros)
    assert certify(model, domain).verdict is Verdict.PROVED
    run = exhaustive(model, domain)
    assert run.verdict is Verdict.PROVED
    texts = [t for t in valid_strings(9, 2, domain.shortest) if domain.has(parse(t))]
    assert run.inputs_covered == 2 * len(texts)


@pytest.mark.parametrize("N", first(1, [6, 7, 8]))
@pytest.mark.parametrize("bias", ["BOS", "]"])
def test_the_set_of_lengths_is_the_true_one(bias, N):
    model = build(N, 3, bias=bias, dtype=torch.float64)
    certificate = certify(model, domain_of(model, N))
    true = {}
    for text in valid_strings(N, 3, 0 if model.has_bos else 1):
        is_wrong = bool((float_margins(model, [text]) <= 0).any())
        true.setdefault((text.count("["), len(text)), []).append(is_wrong)
    for M, (right, wrong) in certificate.extra["right_lengths"].items():
        assert (right or 0) + 1 == (wrong or N + 1) or right is None, M
        for (regions, length), wrongs in true.items():
            if regions == int(M):
                assert any(wrongs) == (wrong is not None and length >= wrong), (M, length)


def test_bias_zero_is_right_on_no_length():
    model = build(8, 2, bias="0", zeros=2, dtype=torch.float64)
    certificate = certify(model, domain_of(model, 8))
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.extra["right_lengths"] == {"0": (None, 1), "1": (None, 2), "2": (None, 4)}
    for length in range(1, 7):  # one wrong string of each length, without a 0
        assert float(float_margins(model, ["1" * length]).min()) < 0


@pytest.mark.deep
def test_planted_faults_are_found():
    """One weight changed enough to matter at N = 512, R = 4: each is refuted by a string that is truly wrong."""
    faults = [
        ("W_V", (3, 0), 0.0),
        ("W_1", (5, 1), 0.0),
        ("b_1", (2,), 0.0),
        ("P", (2, 8), 0.0),
        ("U_K", (0, 4), 0.0),
        ("U_V", (1, 0), 0.5),
        ("W_out", (0, 300), 0.0),
        ("b_out", (511,), 1e6),
        ("U_K", (9, 3), 0.0),
    ]
    for name, at, value in faults:
        model = build(512, 4, dtype=torch.float64)
        with torch.no_grad():
            assert getattr(model, name)[at] != value
            getattr(model, name)[at] = value
        certificate = certify(model, domain_of(model, 512))
        found = certificate.counterexample
        assert certificate.verdict is Verdict.REFUTED, name
        assert found["all_expected"] == counts(found["string"], 4)
        assert float(float_margins(model, [found["string"]]).min()) < 1e-9, name


def test_ties_and_bad_numbers_prove_nothing():
    model = build(8, 2, dtype=torch.float64)
    with torch.no_grad():
        model.W_out.zero_()
        model.b_out.zero_()
    assert certify(model, domain_of(model, 8)).verdict is Verdict.REFUTED
    for value in (float("inf"), float("nan")):
        broken = build(8, 2)
        with torch.no_grad():
            broken.E[0, 0] = value
        with pytest.raises(BadInput, match="NaN or infinity"):
            certify(broken, domain_of(broken, 8))
    for name, value in (("E", 1e200), ("W_K", 1e300), ("U_K", -1e308), ("b_out", 1e300)):
        huge = build(16, 2, dtype=torch.float64)
        with torch.no_grad():
            getattr(huge, name).view(-1)[0] = value
        assert certify(huge, domain_of(huge, 16)).verdict is not Verdict.PROVED or name in ("W_K", "U_K")


def test_a_rounded_half_leak_is_not_proved(monkeypatch):
    """A temperature too low for the length is refuted, and not only because strings are few."""
    monkeypatch.setattr(contextual, "FEW_STRINGS", 0)
    model = build(64, 2, dtype=torch.float64)
    with torch.no_grad():
        model.U_K /= 30
    certificate = certify(model, domain_of(model, 64))
    assert certificate.verdict is Verdict.REFUTED
    assert float(float_margins(model, [certificate.counterexample["string"]]).min()) < 0


def test_weights_come_back_from_disk_and_are_judged_alike(tmp_path):
    from constructions.contextual.transformer import load, save

    path = str(tmp_path / "m.safetensors")
    model = build(64, 3, bias="]", keys="convex")
    save(model, path)
    again = load(path)
    first, second = (certify(m, domain_of(m, 64, exactly=True)) for m in (model, again))
    assert first.verdict is second.verdict is Verdict.PROVED and first.margin == second.margin
    torch.save({"E": torch.zeros(5, 2)}, tmp_path / "m.pt")
    with pytest.raises(BadInput, match="missing"):
        load(str(tmp_path / "m.pt"))


def test_domains_count_their_strings():
    for N, R, fewest, shortest, zeros in itertools.product((1, 4, 6), (0, 1, 2), (0, 1), (0, 1), (None, 0, 2)):
        if fewest > R or 2 * fewest + (zeros or 0) > N:
            continue
        domain = StringDomain(N, R, fewest, shortest, zeros)
        texts = [t for t in valid_strings(N, R, shortest) if t.count("[") >= fewest]
        texts = [t for t in texts if zeros is None or t.count("0") == zeros]
        assert domain.strings() == len(texts) == len(list(domain.enumerate()))
        for text in texts:
            assert answers(parse(text), 2) == counts(text, 2)


@pytest.mark.parametrize(
    ("text", "where"),
    [("[0[1]]", "position 3.*position 1"), ("01]", "position 3"), ("0[1", "position 2.*never closed"),
     ("[1]2", "position 4"), ("[1]0[", "position 5"), ("]", "position 1")],
)  # fmt: skip
def test_malformed_strings_are_refused_with_the_position(text, where):
    with pytest.raises(BadInput, match=where):
        parse(text)


def moved(N, R, share):
    """A built model, its numbers moved at random."""
    model, drawn = build(N, R), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for W in model.parameters():
            W *= 1 + share * torch.randn(W.shape, generator=drawn)
    return model


def at_a_look(problem, reading, number):
    """The certificate where the time is up at this look at the clock, and how many looks there were."""
    ticks = count()
    effort = Effort(Budget(30.0, lambda: next(ticks) * 30.0 / number))
    return decide.certify(problem, reading, effort), next(ticks)


@pytest.mark.parametrize("reading", [Real(), Rounded(FORMATS["float32"])], ids=["real", "float32"])
@pytest.mark.parametrize("share", [0.0, 0.02])
def test_a_search_ends_when_the_clock_does(reading, share):
    """At any look: the verdict of the whole search, or open with the way out; and then only a few looks are left."""
    model = moved(10, 3, share)
    problem = ContextualCounting(model, domain_of(model, 10))
    whole, looks = at_a_look(problem, reading, 10**6)
    assert whole.verdict is (Verdict.REFUTED if share else Verdict.PROVED)
    for number in (1, 4, looks // 2, looks - 2):
        cut, asked = at_a_look(problem, reading, number)
        assert cut.verdict is whole.verdict or (
            cut.verdict is Verdict.UNKNOWN
            and re.fullmatch(
                "the budget of 30 s ended with .* of 12 pairs .* and no failing string found; raise it", cut.reason
            )
        ), number
        assert asked <= number + 6
        for M, (right, wrong) in cut.extra.get("right_lengths", {}).items():
            known = whole.extra["right_lengths"][M]
            assert right is None or right <= known[0], number
            assert wrong is None or known[1] is None or wrong >= known[1], number


def test_cells_that_were_not_reached_are_not_taken_for_proved():
    """A planted fault: what was decided in time is taken for all that there is."""
    model = build(10, 3)
    with torch.no_grad():
        model.U_K[:, 2] = 0.0  # the last prompt looks everywhere
    problem = ContextualCounting(model, domain_of(model, 10))
    assert at_a_look(problem, Real(), 10**6)[0].verdict is Verdict.REFUTED
    assert {at_a_look(problem, Real(), number)[0].verdict for number in (1, 4, 6, 8)} == {Verdict.UNKNOWN}
    is_one = property(lambda decided: bool(decided.cells))
    with (
        mock.patch.object(contextual.CellsInTime, "are_all", is_one),
        mock.patch.object(decide, "_compared", lambda finding, *_: finding),
    ):
        assert at_a_look(problem, Real(), 6)[0].verdict is Verdict.PROVED


def test_a_margin_that_is_no_number_is_no_margin():
    """Wherever its cell stands among the others, and wherever it stands in its cell."""
    for place, column in itertools.product(range(3), range(2)):
        margins = np.ones((3, 2))
        margins[place, column] = np.nan
        cells = [PromptCells(r, 1, 1, margin, margin < 0) for r, margin in enumerate(margins, 1)]
        assert not contextual.CellsInTime(cells, 3).margin > 0
    assert contextual.CellsInTime(cells[:2], 2).margin == 1.0
