"""What certificates of all tasks have in common: whose they are, and how their fields are compared."""

import hashlib
import math
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction

from flint import arb

from verify.checker.reading import NOT_CHECKABLE, C, as_text, read_certificate, recorded, require, whole
from verify.checker.records import Margined

ULPS = 4  # within which a float stands for an exact number


def certificate_of(task: str, weights: bytes, certificate: bytes, record: Callable[..., C]) -> C:
    """The certificate of a task about this file, as a record whose fields `table.walk` is to check. Raises: Refusal."""
    c = read_certificate(certificate)
    require(c.get("task") == task, f"task: {as_text(c.get('task'))[:80]} is not {task}")
    require(c.get("weights_sha256") == hashlib.sha256(weights).hexdigest(), "weights_sha256: is another file's")
    return recorded(c, record)


def verdict_of(c: Mapping[str, object]) -> str:
    """What the certificate claims."""
    verdict = c.get("verdict")
    require(verdict != "UNKNOWN", "the certificate itself says UNKNOWN, which claims nothing", NOT_CHECKABLE)
    require(verdict in ("PROVED", "REFUTED"), f"verdict: {as_text(verdict)[:80]} is none")
    return str(verdict)


def header(c: Mapping[str, object]) -> str:
    """The verdict of a proof, or of a wrong input, in real arithmetic."""
    reading, method = c.get("reading"), c.get("method")
    is_checked = (as_text(reading), as_text(method)) == ('"real"', '"certified"')
    known = f"the reading {as_text(reading)[:80]} by {as_text(method)[:80]} is not checked"
    require(is_checked, known, NOT_CHECKABLE)
    verdict = verdict_of(c)
    compare(c, {"inputs_covered": "1"} if verdict == "REFUTED" else {})
    return verdict


def compare(found: Mapping[str, object], expected: Mapping[str, object]) -> None:
    for name, value in expected.items():
        said, due = as_text(found.get(name)), as_text(value)
        require(said == due, f"{name}: is {said[:80]}, must be {due[:300]}")


def stands_for(x: float, exact: Fraction) -> bool:
    """Whether a float is within a few of its last places; nothing but 0 stands for 0, where these places are wide.

    The largest float and its negative stand for all beyond them.
    """
    most = Fraction(sys.float_info.max)
    exact = max(-most, min(exact, most))
    is_near = abs(Fraction(x) - exact) <= ULPS * math.ulp(x) and (x == 0) == (exact == 0)
    return is_near and str(x) != "-0.0"


def is_close(x: float | None, ball: arb) -> bool:
    """Whether a margin that is not above zero is shown to be a number in the ball, to nine digits.

    The negative of the largest float stands for all below it.

    Raises: Refusal where no number in the ball has it.
    """
    if x == -sys.float_info.max and ball <= arb(x):
        return True
    apart, room = abs(ball - arb(x or 0)), arb(abs(x or 0)) * arb(2) ** -29 + arb(2) ** -1000
    require(x is not None and x <= 0 and not apart > room, f"margin: is {x}, must be {ball}")
    return bool(apart <= room)


def claimed_margin(c: Margined) -> float:
    """The margin of a proof."""
    margin = c["margin"] or 0.0
    require(margin > 0, "margin: must be above zero")
    return margin


def check_counts(said: Mapping[str, str] | None, total: int) -> int:
    """How many answers are wrong, where it is said: that is trusted, and that the numbers fit is not."""
    if said is None:
        return 0
    right, wrong = (whole(said[name], f"counts.{name}") for name in ("right", "wrong"))
    require(wrong > 0 and right + wrong == total, "counts: do not add up")
    return wrong
