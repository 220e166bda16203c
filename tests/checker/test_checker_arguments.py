"""Of several arguments the first that shows something is enough, and one that finds a lie ends them."""

import pytest

from tests.planted import planted
from verify.checker import arguments
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal


def refused(reason, exit_code):
    raise Refusal(reason, exit_code)


def ended(*ends):
    """What comes of arguments that end so, each asked for in its turn, and how many were asked."""
    asked = []
    ways = (asked.append(end) or (lambda end=end: refused(*end) if isinstance(end, tuple) else end) for end in ends)
    try:
        return arguments.first_shown(ways), len(asked)
    except Refusal as refusal:
        return (str(refusal), refusal.exit_code), len(asked)


OPEN, OTHER, LIE = ("open", NOT_CHECKABLE), ("another", NOT_CHECKABLE), ("a lie", FAILS)


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ((OPEN, 5, LIE), (5, 2)),
        ((OPEN, LIE, 5), (LIE, 2)),
        ((OPEN, OTHER), (OPEN, 2)),
        ((), (("", NOT_CHECKABLE), 0)),
    ],
)
def test_the_first_argument_that_says_something_decides(ends, found):
    assert ended(*ends) == found


def test_a_lie_that_is_passed_over_is_seen():
    with planted(arguments, "first_shown", "refusal.exit_code != NOT_CHECKABLE", "False"):
        assert ended(OPEN, LIE, 5) == (5, 3)
