"""What is printed of a bound is itself a bound: printed <= certified <= exact, and outwards for shares."""

import re
from contextlib import redirect_stdout
from decimal import Decimal
from fractions import Fraction
from io import StringIO

import mpmath
import numpy as np
import pytest
from command import run
from hypothesis import assume, example, given
from hypothesis import strategies as st
from models.circuits import path_of
from models.random_models import random_model
from models.selection import first
from oracles import histogram as oracle

from constructions import inventory_counting, relation_counting
from constructions.contextual_counting import build
from verify.arithmetic.outward import about, above, below, value
from verify.frame.certificate import Certificate, Verdict, rounded_margin
from verify.report.certificate import weights_fact
from verify.tasks.contextual.verdict import certify as certify_contextual
from verify.tasks.contextual.verdict import domain_of
from verify.tasks.histogram.bounds.command import ends
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.report import print_certificate

NUMBER = r"(-?[\d.]+(?:e[+-]\d+)?|inf)"
EXACT_TO = mpmath.mpf(10) ** -40  # what 60 digits leave open


def exact_margins(module):
    """The least margin of each count over all inputs, with 60 digits; plain Python."""
    w, least = oracle.weights_of(module), {}
    with mpmath.workdps(60):
        for batch in oracle._batches(module.T, module.L):
            for sequence in batch.tolist():
                for position, token in enumerate(sequence):
                    k = sequence.count(token)
                    logits = oracle._logits60(module, w, sequence, position)
                    right = logits.pop(k - module.first_count)
                    margin = right - max(logits) if logits else mpmath.inf
                    least[k] = min(margin, least.get(k, mpmath.inf))
    return least


def is_at_most(text, exact):
    with mpmath.workdps(60):
        return text == "inf" or mpmath.mpf(text) <= exact + EXACT_TO


def shown(certificate, module, capsys):
    capsys.readouterr()
    print_certificate(certificate, [weights_fact(module)])
    return capsys.readouterr().out


@given(st.integers(0, 10**6))
@example(seed=198)  # a single class, which has no rivals
@example(2)
def test_printed_margins_are_at_most_certified_ones_and_those_at_most_exact_ones(seed):
    module = random_model(seed)
    assume(module.T**module.L <= 64)
    certificate = certify(module, budget=0.5)
    assume(certificate.verdict is Verdict.PROVED)
    check_against_the_oracle(certificate, module)


def check_against_the_oracle(certificate, module):
    out = StringIO()
    with redirect_stdout(out):
        print_certificate(certificate, [weights_fact(module)])
    exact = exact_margins(module)
    assert not re.search(r"\binf\b", out.getvalue())
    if np.isinf(certificate.margin):
        assert "margin" not in out.getvalue()
        return
    (last,) = re.findall(rf"margin at least {NUMBER}$", out.getvalue(), re.M)
    assert Decimal(last) <= Decimal(certificate.margin)
    assert is_at_most(last, min(exact.values()))
    rows = re.findall(rf"^(\d+) +{NUMBER} +[█#]", out.getvalue(), re.M)
    assert rows
    for k, text in rows:
        certified = certificate.margin_per_count[int(k) - 1]
        assert text == "inf" or Decimal(text) <= Decimal(certified)
        assert is_at_most(text, exact[int(k)]) and (np.isinf(certified) or is_at_most(repr(certified), exact[int(k)]))


@pytest.mark.parametrize("build_model", [relation_counting.dot, relation_counting.bos_sftm, inventory_counting.lin])
def test_constructions_print_bounds_of_their_exact_margins(build_model):
    module = build_model(T=3, L=3)
    check_against_the_oracle(certify(module), module)


def test_readmes_first_example(capsys):
    """The exact margin is -19/2 + 59316415/33554432 sqrt(32), a little below 1/2."""
    exact = -Fraction(19, 2) + Fraction(59316415, 33554432) * Fraction(np.sqrt(32.0))
    code, out, _ = run(capsys, "histogram", "--model", "dot", "--T", "32", "--L", "10")
    (printed,) = re.findall(rf"margin at least {NUMBER}$", out, re.M)
    assert code == 0 and Fraction(printed) < exact < Fraction(1, 2)
    assert "margin about 0.5" in out


@pytest.mark.deep
def test_a_bracket_of_shares_holds_the_exact_share(capsys):
    for seed in range(60):
        module = random_model(seed)
        if module.T**module.L > 64:
            continue
        certificate = certify(module, budget=0.0)
        if certificate.error_share is None or certificate.error_share[0] == certificate.error_share[1]:
            continue
        (found,) = re.findall(rf"share between {NUMBER} and {NUMBER} ", shown(certificate, module, capsys))
        low, high = map(Fraction, found)
        assert low <= certificate.error_share[0] <= oracle.error_share(module) <= certificate.error_share[1] <= high
    thirds = certificate_with(error_share=(Fraction(1, 3), Fraction(2, 3)))
    assert "share between 0.333333 and 0.666667 " in shown(thirds, module, capsys)


def certificate_with(**fields):
    fields = {"verdict": Verdict.UNKNOWN, "margin": None, "reason": "the budget ended"} | fields
    return Certificate(
        claim=None, task="histogram", parameters={"T": 3, "L": 2}, reading="real", method="certified",
        inputs_covered=0, **fields
    )  # fmt: skip


@pytest.mark.parametrize("form", ["rich", "json", "csv", "markdown"])
def test_tables_round_margins_down(form, capsys):
    code, out, _ = run(capsys, "frontier", "histogram", "--model", "bos+sftm", "--T", "5", "--L", "4", "--format", form)
    from constructions.fewer_dimensions import sphere

    module = sphere(T=5, L=4, d=3, model="bos+sftm")
    certified = certify(module).margin
    numbers = [x for x in re.findall(r"\d\.\d+(?:e-\d+)?", out)]
    assert code == 0 and any(
        Fraction(x) <= Fraction(certified) < Fraction(x) + Fraction(1, 1000) * Fraction(x) for x in numbers
    )
    proved = certificate_with(verdict=Verdict.PROVED, margin=0.49999999, reason=None)
    assert rounded_margin(proved) == 0.4999


@pytest.mark.deep
def test_contextual_prints_at_most_what_is_certified(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for a table with one line a row
    code, out, _ = run(capsys, "contextual", "--length", "8", "--regions", "2")
    module = build(8, 2)
    certified = certify_contextual(module, domain_of(module, 8)).margin
    (printed,) = re.findall(rf"margin at least {NUMBER}$", out, re.M)
    assert code == 0 and Fraction(printed) <= Fraction(certified)
    code, out, _ = run(capsys, "contextual", "--length", "20", "--regions", "2", "--figure5")
    bounds = re.findall(rf"margin at least {NUMBER}$", out, re.M)
    assert bounds and Fraction(bounds[0]) <= Fraction(certify_contextual(build(20, 2), domain_of_exactly(20)).margin)


def domain_of_exactly(N):
    return domain_of(build(N, 2), N, regions=2, exactly=True)


@pytest.mark.parametrize("name", first(1, ["halfadder", "c17"]))
def test_a_circuit_prints_at_most_its_distance(capsys, name):
    _, out, _ = run(capsys, "circuit", str(path_of(name)), "--precision", "bfloat16", "--json")
    certified = float(re.findall(r'"margin": ([\d.e-]+)', out)[0])
    _, out, _ = run(capsys, "circuit", str(path_of(name)), "--precision", "bfloat16")
    (printed,) = re.findall(rf"g stays at least {NUMBER} from 1/2", out)
    assert Fraction(printed) <= Fraction(certified)


def test_a_circuits_margin_of_zero_is_said_in_words():
    from verify.tasks.circuit.report import _margin_fact

    ((name, text),) = _margin_fact(None)
    assert name == "margin" and "e-308" not in text and "1/2 itself" in text
    assert list(_margin_fact(0.0)) == []


@pytest.mark.parametrize(
    ("tightest", "shown_as"),
    [
        ({"towards": [1, 1, 0], "limit": "0"}, "infimum 0"),
        ({"towards": [1, 1, 0]}, "no larger bound"),
        (None, "no larger"),
    ],
)
def test_an_infimum_of_zero_is_printed_where_it_is_proved(tightest, shown_as):
    from verify.tasks.count01.report import _margin_fact

    ((_, text),) = _margin_fact(certificate_with(verdict=Verdict.PROVED, margin=0.0, reason=None, tightest=tightest))
    assert shown_as in text


def test_uniform_attentions_infimum_is_zero_and_proved_so(capsys):
    _, out, _ = run(capsys, "count01", "--construction", "uniform")
    assert "positive on every input, with infimum 0" in out and "limit=0" in out
    _, out, _ = run(capsys, "count01", "--construction", "uniform", "--max-digits", "9", "--max-noise", "9")
    assert re.search(r"^margin +at least 0\.0", out, re.M) and "infimum" not in out


def test_a_limit_that_is_exclusive_is_rounded_up(capsys):
    import sympy

    from bounds.count01 import noise_threshold

    _, out, _ = run(capsys, "bounds", "--N", "10,200", "--format", "csv")
    for row in out.splitlines()[1:]:
        _, N, limit, largest = row.split(",")
        assert sympy.Rational(limit) >= noise_threshold(int(N)) and int(largest) < Fraction(limit)


def test_least_coherence_is_a_lower_bound(capsys):
    import sympy

    from bounds.coherence import best_known_lower_bound

    _, out, _ = run(capsys, "bounds", "--T", "16,33", "--L", "5,10", "--coherence", "--format", "csv")
    for row in out.splitlines()[1:]:
        T, d, least = (row.rsplit(",", 7)[i] for i in (1, 5, 6))
        if int(d) < int(T):
            assert sympy.Rational(least) <= best_known_lower_bound(int(T), int(d))[0]
    assert ends(sympy.Rational(1, 7)) == (Fraction(1, 7), Fraction(1, 7))


def test_a_figures_label_is_a_bound():
    from verify.tasks.histogram.drawings.histogram import margins

    certificate = certify(relation_counting.dot(T=4, L=3))
    (axes,) = margins(certificate).axes
    labels = " ".join(text.get_text() for text in axes.get_legend().get_texts())
    (printed,) = re.findall(rf"at least {NUMBER}", labels)
    assert Fraction(printed) <= Fraction(certificate.margin)


def test_notebooks_show_bounds():
    certificate = certify(relation_counting.dot(T=32, L=10))
    cells = re.findall(r"<td>(\d+)</td><td>([\d.]+)</td>", certificate._repr_html_())
    assert len(cells) == 10
    assert all(Fraction(text) <= Fraction(certificate.margin_per_count[int(k) - 1]) for k, text in cells)


FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.fractions() | st.integers(-(10**40), 10**40)


@given(FINITE, st.integers(1, 12))
def test_directions(x, digits):
    low, high = below(x, digits), above(x, digits)
    assert Fraction(low) <= Fraction(x) <= Fraction(high)
    assert (low == high) == (about(x, digits) == low)
    assert value(float(x), digits=digits).startswith("about ")


def test_a_tightest_margin_says_about_unless_it_is_known_exactly(capsys):
    from verify.report.certificate import print_report

    for exact, said in ((None, "margin=about 0.5"), ("1/2", "margin=0.5"), ("1/2 + 1/8*sqrt(2)", "margin=about 0.5")):
        proved = certificate_with(
            verdict=Verdict.PROVED, margin=0.5, margin_exact=exact, reason=None, tightest={"margin": 0.5}
        )
        print_report(proved)
        assert re.search(rf"^tightest +{said}$", capsys.readouterr().out, re.M)
