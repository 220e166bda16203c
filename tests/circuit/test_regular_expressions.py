"""Regular expressions against Python's re and against sets of strings: the same language, or one line that says why."""

from __future__ import annotations

import itertools
import random
import re
import warnings

import pytest

from constructions import regular_language
from constructions.circuits import expression_size
from constructions.circuits.automata_lib import DFA
from constructions.errors import BadInput
from constructions.regular_language import from_regex
from tests.planted import planted

LENGTH = 5
ALPHABETS = ("01", "0", "a-]", "ab^", "$.{", "(|)", "\\ n", "0_é", "x2,", "\n0", "&~[")


def strings(alphabet, length=LENGTH):
    return ["".join(s) for n in range(length + 1) for s in itertools.product(alphabet, repeat=n)]


def read(regex, alphabet):
    """The automaton, None where the expression is refused."""
    try:
        return from_regex(regex, alphabet)
    except BadInput as error:
        assert "\n" not in str(error) and len(str(error)) < 300 and "regular expression" in str(error)
        return None


def by_re(regex, alphabet, length=LENGTH):
    """The strings that Python matches whole, None where it cannot read the expression."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            matcher = re.compile(regex)
    except (re.error, Warning, OverflowError, RecursionError):
        return None
    return {s for s in strings(alphabet, length) if matcher.fullmatch(s)}


def language(automaton, length=LENGTH):
    return {s for s in strings(automaton.alphabet, length) if automaton.accepts(s)}


QUANTIFIERS = ("*", "+", "?", "{0}", "{1}", "{2}", "{3}", "{0,}", "{1,}", "{2,}", "{,0}", "{,1}", "{,2}", "{0,0}",
               "{0,1}", "{0,2}", "{1,1}", "{1,2}", "{2,2}", "{2,3}", "{00}", "{02}")  # fmt: skip
ESCAPES = ("\\d", "\\D", "\\s", "\\S", "\\w", "\\W", "\\n", "\\.", "\\\\", "\\{", "\\$", "\\^", "\\-", "\\]")


def random_class(rng, alphabet):
    inside = "".join(rng.choice([*alphabet, "-", "^", "\\]", "\\d", "\\W", "0-9", "a-c", "z"]) for _ in range(3))
    return f"[{rng.choice(['', '', '^'])}{inside}]"


def random_regex(rng, alphabet, depth):
    """Text that re reads too, with no infix sign but |."""
    kind = rng.randrange(8) if depth else rng.randrange(3)
    if kind == 0:
        return rng.choice([rng.choice(alphabet), rng.choice(ESCAPES), ".", "()"])
    if kind == 1:
        return random_class(rng, alphabet)
    if kind == 2:
        return re.escape(rng.choice(alphabet))
    parts = [random_regex(rng, alphabet, depth - 1) for _ in range(rng.choice([1, 2, 2, 3]))]
    if kind in (3, 4):
        return "".join(parts)
    if kind == 5:
        return f"({'|'.join(parts)})"
    inner = parts[0] if len(parts[0]) == 1 and rng.random() < 0.5 else f"({parts[0]})"
    return inner + rng.choice(QUANTIFIERS)


def compare(regex, alphabet):
    """Whether the expression was read, and then that it means what Python says, to which & and ^ are no signs."""
    automaton = read(regex, alphabet)
    if automaton is None or set(re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "", regex, flags=re.DOTALL)) & set("&^"):
        return False
    wanted = by_re(regex, alphabet)
    assert wanted is not None and language(automaton) == wanted, (regex, alphabet)
    return True


def test_well_formed_expressions_mean_what_re_says():
    rng, compared = random.Random(11), 0
    for _ in range(500):
        alphabet = rng.choice(ALPHABETS)
        compared += compare(random_regex(rng, alphabet, 3), alphabet)
    assert compared > 230


def test_any_text_means_what_re_says_or_is_refused():
    """Texts of signs, and well-formed ones with a sign changed."""
    rng, compared = random.Random(12), 0
    signs = [*"01()()|*+?{},.[]^-\\$x2 dDsSwWbBAZ:=!<", "{2}", "{0}", "[0-1]", "(?:", "(0)", "\\1", "\\x30", "[^", "[]"]
    for number in range(3000):
        alphabet = rng.choice(ALPHABETS)
        if number % 2:
            regex = "".join(rng.choice([*signs, *alphabet * 2]) for _ in range(rng.randrange(1, 8)))
        else:
            regex = random_regex(rng, alphabet, 2)
            at = rng.randrange(len(regex) + 1)
            regex = regex[:at] + rng.choice(signs) + regex[at + rng.randrange(2) :]
        compared += compare(regex, alphabet)
    assert compared > 350


# ---- with intersection and shuffle: sets of strings


def cut(found):
    return {s for s in found if len(s) <= LENGTH}


def times(part, least, most):
    """The strings of a part repeated: as long as a string is short enough, more empty parts change nothing."""
    found, power = set(), {""}
    for n in range((most if most is not None else least + LENGTH) + 1):
        if n >= least:
            found |= power
        power = cut(s + t for s in power for t in part)
    return found


def shuffled(s, t):
    if not s or not t:
        return {s + t}
    return {s[0] + rest for rest in shuffled(s[1:], t)} | {t[0] + rest for rest in shuffled(s, t[1:])}


def random_language(rng, depth):
    """An expression, always in parentheses, and its strings."""
    kind = rng.randrange(7) if depth else rng.randrange(2)
    if kind == 0:
        symbol = rng.choice("01")
        return symbol, {symbol}
    if kind == 1:
        return rng.choice([(".", {"0", "1"}), ("()", {""}), ("[2]", set()), ("[^0]", {"1"})])
    (left, L), (right, R) = random_language(rng, depth - 1), random_language(rng, depth - 1)
    if kind == 2:
        return f"({left}|{right})", L | R
    if kind == 3:
        return f"({left}&{right})", L & R
    if kind == 4:
        return f"({left}^{right})", cut(s for a in L for b in R if len(a + b) <= LENGTH for s in shuffled(a, b))
    if kind == 5:
        return f"({left}{right})", cut(a + b for a in L for b in R)
    least = rng.randrange(4)
    most = rng.choice([None, least, least + 1])
    return f"(({left}){{{least},{'' if most is None else most}}})", times(L, least, most)


def test_intersections_and_shuffles_mean_sets_of_strings():
    rng, seen = random.Random(13), set()
    for _ in range(800):
        regex, wanted = random_language(rng, 3)
        automaton = read(regex, "01")
        if automaton is not None:
            assert language(automaton) == wanted, regex
            seen.add(regex)
    assert len(seen) > 400


# ---- by hand


@pytest.mark.parametrize("count", QUANTIFIERS)
def test_every_repetition(count):
    parts = ["0", "(0*)", "(01)", "()", "(0|()1)", "(0{0})", "[01]", "((0?){2})", "(0{2,3})"]
    assert [part for part in parts if not compare(part + count, "01")] == []


@pytest.mark.parametrize(
    "regex, says",
    [
        ("^0", "Anchors are not supported"), ("0$", "anchors are not supported"), ("0^", "shuffle"), ("|0", "union"),
        ("0|", "union"), ("(0|)", "union"), ("0||1", "union"), ("0&", "intersection"), ("*0", "repeats nothing"),
        ("(+0)", "repeats nothing"), ("{2}", "repeats nothing"), ("0**", "Use parentheses"), ("0+?", "lazy"),
        ("0*?", "lazy"), ("0??", "lazy"), ("0{2}?", "lazy"), ("0*+", "possessive"), ("0{2}{3}", "repetition of a"),
        ("0{", "Write"), ("0{}", "repetition"), ("0{,}", "repetition"), ("0{ 2}", "repetition"), ("0{-1}", "repet"),
        ("0{\u0662}", "repetition"), ("0{3,2}", "at least 3"), ("0{100001}", "more than"), ("(?:0)", "not supported"),
        ("(?=0)0", "not supported"), ("(?i)0", "not supported"), ("(?P<a>0)", "not supported"), (r"(0)\1", "supported"),
        (r"\b0", "not supported"), (r"\A0", "not supported"), (r"0\Z", "not supported"), (r"\x30", "not supported"),
        (r"\u0030", "not supported"), ("0\\", "not closed"), ("[", "not closed"), ("[0", "not closed"),
        ("[]", "unterminated"), ("[^]", "unterminated"), ("[1-0]", "bad character range"), ("[[01]", "in a class"),
        ("[0--1]", "in a class"), ("[0&&1]", "in a class"), ("[[:digit:]]", "in a class"), (r"[\d-1]", "range"),
        (r"[\q]", "bad escape"), ("(0", "not closed"), ("0)", "closes nothing"), ("2", "not in the alphabet"),
        ("0 1", "not in the alphabet"), (r"\n", "not in the alphabet"), ("0|1&0", "side by side"),
        ("0^1|0", "side by side"), ("(" * 200 + "0" + ")" * 200, "more than 100 parentheses"),
        ("0{" + "9" * 5000 + "}", "more than"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(regex, says):
    with pytest.raises(BadInput) as caught:
        from_regex(regex)
    assert says in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_an_alphabet_of_many_symbols_has_few_states(monkeypatch):
    """Each state looks at every symbol: 20,000 states at 2,000 symbols would take gigabytes."""
    assert [expression_size.most_states(n) for n in (1, 50, 2000, 2_000_000)] == [20_000, 20_000, 500, 0]
    monkeypatch.setattr(expression_size, "MOST_ARROWS", 1500)
    alphabet = "".join(chr(ord("a") + i) for i in range(25))
    for regex, says in (("a{40}", "at most 60 are built"), ("(a|b)*a(a|b){5}", "more than 60 states")):
        with pytest.raises(BadInput, match=says):
            from_regex(regex, alphabet)
    assert len(from_regex(".*ab", alphabet).step) == 3


@pytest.mark.parametrize("regex, wanted", [("", {""}), ("()", {""}), ("()*", {""}), ("[2]", set()), ("[2]*", {""})])
def test_almost_nothing(regex, wanted):
    assert language(from_regex(regex)) == wanted


def test_the_command_says_what_is_true(capsys):
    from command import run

    code, out, _ = run(capsys, "language", "1{0}", "--length", "1", "--input", "1")
    assert code == 0 and "outputs accept=0\n" in out
    code, _, err = run(capsys, "language", "^1", "--length", "1")
    assert code == 2 and err.count("\n") == 1 and "Anchors" in err


KINDS = ("0*1", "(0|1)*", "((0|1)&(0))1", "01&10", "(01&10)|1*", "((0|1)(01&10))|(0|1)*", "0{2,}1?", "(0*1)^(10)")


def test_the_automaton_is_the_one_that_automata_lib_makes_of_subsets(monkeypatch):
    """Also where strings lead to states that accept nothing, whose arrows automata-lib leaves out or keeps."""
    found = {regex: from_regex(regex) for regex in KINDS}
    assert {any(-1 in row for row in each.step) for each in found.values()} == {True, False}
    monkeypatch.setattr(regular_language, "deterministic", lambda nfa, what: DFA.from_nfa(nfa))
    assert found == {regex: from_regex(regex) for regex in KINDS}


@pytest.mark.parametrize(
    "room, name, right, wrong",
    [
        (expression_size, "deterministic", "if subset & nfa.final_states", "if nfa.initial_state in subset"),
        (expression_size, "deterministic", "number[following] = len(subsets)", "number[following] = 0"),
        (regular_language, "_canonical", "if q not in traps", "if q in traps"),
    ],
)
def test_faults_in_the_automaton_are_caught(room, name, right, wrong):
    due = {regex: language(from_regex(regex)) for regex in KINDS}
    with planted(room, name, right, wrong), pytest.MonkeyPatch.context() as patch:
        patch.setattr(regular_language, name, getattr(room, name))
        assert due != {regex: language(from_regex(regex)) for regex in KINDS}
