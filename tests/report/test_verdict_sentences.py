"""What is printed: one sentence first, no infinity, the dtype in the one line, quiet and verbose, narrow screens."""

from dataclasses import replace

import pytest
from command import run
from models.selection import first

from constructions import relation_counting
from verify import certify
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import reading_of
from verify.report.console import screen
from verify.report.meaning import sentence
from verify.tasks.histogram.rounded.verdict import certify as in_format

pytest_plugins = ["pytester"]
LINES = (
    "histogram --model dot --T 3 --L 3",
    "histogram --model bos --T 3 --L 3 --as-printed",
    "histogram --model dot --T 3 --L 3 --precision bfloat16",
    "histogram --model dot --T 3 --L 2 --method exhaustive",
    "parity --T 3 --L 3",
    "parity --T 3 --L 3 --precision s4 --method exhaustive",
    "count01 --N 3 --max-digits 3 --max-noise 3",
    "contextual --length 8 --regions 1",
    "bidirectional --length 6 --regions 1",
    "modular --P 5 --precision float32",
    "addition --digits 2 --base 3",
    "language 1* --length 3",
    "language 1* --length 3 --bits 3",
    "inductive --task modular --model rnn --modulus 3 --length 3",
)


def test_what_is_printed_stands_as_it_is(capsys):
    for text in (":smile:", "[bold]x[/bold]", "a:x:b"):
        screen().print(text, markup=False)
        assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.parametrize("line", first(9, LINES))
def test_a_sentence_says_first_what_the_verdict_means(line, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    code, out, err = run(capsys, *line.split())
    head, *_, last = out.splitlines()
    begins = {0: "The answer is right on", 1: "The answer is wrong", 3: "It is not decided whether"}
    words = {0: "PROVED", 1: "REFUTED", 3: "UNKNOWN"}
    assert head.startswith(begins[code]) and head.endswith(".") and last.startswith(words[code])
    assert err == "" and " inf" not in out and " nan" not in out


def test_no_margin_is_infinite_where_there_is_no_other_class(capsys):
    for model in ("dot", "bos+sftm"):
        code, out, _ = run(capsys, "histogram", "--model", model, "--T", "3", "--L", "1")
        assert code == 0 and "inf" not in out and "margin at least" not in out
    certificate = certify(relation_counting.dot(T=3, L=1))
    assert "inf" not in f"{certificate} {sentence(certificate)}" and "margin" not in str(certificate)


def test_one_line_names_the_format_that_everything_is_rounded_to():
    model = relation_counting.dot(T=3, L=2)
    assert str(certify(model, reading="bfloat16")).endswith("reading bfloat16, any order")
    assert str(certify(model, method="exhaustive")).endswith("reading bit-exact in float32")
    assert str(certify(model, reading="s6")).endswith("bit-exact in s6")
    wrong = relation_counting.bos(T=3, L=2, as_printed=True)
    assert str(certify(wrong, reading="float32")).endswith(", in float32, any order")
    assert str(certify(wrong)).endswith("predicted 2")


def test_sums_in_float32_and_results_rounded_once_are_said():
    """Readings that allow less than any order in the format alone: neither the line nor the sentence claims that."""
    found = in_format(relation_counting.dot(T=3, L=2), fmt=FORMATS["bfloat16"], accumulate=FORMATS["float32"])
    said = sentence(found), str(found)
    assert ", in bfloat16 with sums in float32 and in any order of evaluation;" in said[0]
    assert said[1].endswith("reading bfloat16 with sums in float32, any order")
    once = replace(found, reading=reading_of("bfloat16", "float32", "once").name)
    assert ", in bfloat16 with sums in float32, each result rounded once;" in sentence(once)
    assert str(once).endswith("reading bfloat16 with sums in float32, each result rounded once")


def test_quiet_is_one_line_and_verbose_has_every_field(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    line = ("histogram", "--model", "dot", "--T", "3", "--L", "3")
    assert (
        run(capsys, *line, "--quiet")[1]
        == "PROVED histogram: all inputs (27), margin at least 0.499999, reading real\n"
    )
    plain, full = run(capsys, *line)[1], run(capsys, *line, "--verbose")[1]
    assert "argument" not in plain and "argument        vertices" in full
    code, _, err = run(capsys, *line, "--quiet", "--json")
    assert code == 2 and err.count("\n") == 1 and "Keep one" in err


@pytest.mark.parametrize("columns", [24, 40, 60, 100])
def test_reports_fold_on_narrow_screens(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in ("histogram --model dot --T 3 --L 4", "histogram --model bos --T 3 --L 3 --as-printed"):
        _, out, _ = run(capsys, *line.split())
        assert max(map(len, out.splitlines())) <= columns
        assert {"PROVED", "REFUTED"} & set(out.split())


def test_a_failure_under_pytest_is_printed_once(pytester, monkeypatch):
    for name in ("CI", "BUILD_NUMBER"):  # where pytest's own summary repeats whole messages
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(
        "from constructions import relation_counting\n"
        "def test_it(assert_proved):\n"
        "    assert_proved(relation_counting.bos(T=3, L=2, as_printed=True))\n"
    )
    out = pytester.runpytest_inprocess("-q", "--no-summary", "-p", "no:cacheprovider").stdout.str()
    shown = pytester.runpytest_inprocess("-q", "--show-capture=no", "-p", "no:cacheprovider").stdout.str()
    assert "During handling" not in out + shown
    assert shown.count("counterexample:") == shown.count("replay:") == 1
