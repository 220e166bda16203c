"""The exit code 1 is for what is shown to be false; what a bound, no number or our own arithmetic leaves open has 3."""

import ast
import re
from fractions import Fraction
from pathlib import Path

import pytest
from flint import arb, fmpq

from verify.checker import boxes, kinds, mathematics, operations, statement
from verify.checker.arrays import array
from verify.checker.ball_rows import least_of, most_of
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal

CHECKER = Path(kinds.__file__).parent
OPEN = "is not shown to|may lead|may be outside|may leave|does not show|do not show|is too |are too "
"""What a message says of a statement that is not shown to be false."""


CALLED = re.compile(r"(require|Refusal)\(.*(" + OPEN + r").*\"\)$", re.M)
"""A refusal that says so, and has the code for what is false."""


def test_what_is_open_is_never_called_false():
    sources = [file.read_text() for file in CHECKER.glob("*.py")]
    assert sum(len(re.findall(OPEN, source)) for source in sources) > 60
    named = "sets_found: does not show the answers to each type, or to some twice"  # a list that is compared
    called = [found[0] for source in sources for found in CALLED.finditer(source)]
    assert len(called) == 1 and named in called[0]
    assert CALLED.search('require(x > 0, "a step may lead out")')


@pytest.mark.parametrize("error", [ZeroDivisionError, OverflowError, MemoryError])
def test_arithmetic_that_fails_says_nothing_of_the_statement(monkeypatch, error):
    def fails(*_):
        raise error("of ours")

    monkeypatch.setitem(kinds.TASKS, "parity", fails)
    with pytest.raises(Refusal, match=f"not followed .{error.__name__}: of ours") as refused:
        kinds.check(b"", b'{"task": "parity"}')
    assert refused.value.exit_code == NOT_CHECKABLE


def test_a_power_that_is_too_high_is_not_followed():
    assert operations.power(array(2), 64).rows[0][0] == 2**64
    for n in (65, -65):
        with pytest.raises(Refusal, match="too high") as refused:
            operations.power(array(2), n)
        assert refused.value.exit_code == NOT_CHECKABLE


def test_a_margin_is_false_where_no_number_of_the_ball_has_it():
    assert statement.is_close(-0.5, arb(-0.5, 1e-12)) and statement.is_close(0.0, arb(0))
    assert statement.is_close(-0.0, arb(0)) and not statement.is_close(-0.0, arb(0, 1))  # a tie
    assert not statement.is_close(-0.5, arb(-0.5, 1)) and not statement.is_close(-0.5, arb("nan"))
    for x in (-0.51, 0.5, None):
        with pytest.raises(Refusal) as refused:
            statement.is_close(x, arb(-0.5, 1e-12))
        assert refused.value.exit_code == FAILS
    assert statement.stands_for(-1.7976931348623157e308, -(Fraction(2) ** 2000))
    assert not statement.stands_for(1.7976931348623157e308, -(Fraction(2) ** 2000))


def test_a_tie_with_what_is_claimed_is_no_lie():
    """(n1 - n0) / (n0 + n1 + n2 + 1) is 1/4 or more where n1 is above n0, in a box with at most three tokens."""
    one = {fmpq(0): fmpq(1)}
    zero: mathematics.Sum = {}
    quotient = [([zero, {fmpq(0): fmpq(-1)}, one, zero], [one, one, one, one])]
    box = boxes.Box(0, 3, 0, 3, 3)
    assert boxes.all_positive(quotient, fmpq(-1, 5), box, True)
    assert not boxes.all_positive(quotient, fmpq(-1, 3), box, True)
    with pytest.raises(Refusal, match="does not show") as refused:
        boxes.all_positive(quotient, fmpq(-1, 4), box, True)
    assert refused.value.exit_code == NOT_CHECKABLE


BALLS, NUMBERS = {"arb", "lower", "upper", "mid"}, {"float", "exact", "int", "below", "ceiling"}


def takes_balls(source):
    """Whether Python's min or max is given what makes balls and does not turn them into other numbers."""

    def name(node):
        return getattr(node.func, "id", None) or getattr(node.func, "attr", None) if isinstance(node, ast.Call) else ""

    def makes(node):
        inner = [] if name(node) in NUMBERS else ast.iter_child_nodes(node)
        return name(node) in BALLS or any(map(makes, inner))

    calls = (node for node in ast.walk(ast.parse(source)) if name(node) in ("min", "max"))
    return any(isinstance(node.func, ast.Name) and any(map(makes, node.args)) for node in calls)


def test_the_least_of_balls_is_not_taken_by_python():
    """Its min and max drop what is no number, unless that comes first, and of two balls that meet take either."""
    assert (
        min(arb(1), arb("nan")) == 1 and least_of([arb(1), arb("nan")]).is_nan() and most_of([arb("nan"), 1]).is_nan()
    )
    met = [arb(1, 0.5), arb(0.75, 0.5)]
    assert not min(met) <= 0.5 and least_of(met).lower() <= 0.25 and most_of(reversed(met)).upper() >= 1.5
    for source in ("min(leak, (leak / 2).upper())", "max(x.lower() for x in bounds)", "min(arb(x) / 2 for x in y)"):
        assert takes_balls(source)
    assert not takes_balls("max(float(x.mid()) for x in scores)") and not takes_balls("min(exact(a.lower()), b)")
    assert not [file.name for file in CHECKER.glob("*.py") if takes_balls(file.read_text())]
