"""Strings with regions that are answered wrongly: one is run, in balls or in the arithmetic of a dtype."""

import re
from collections.abc import Callable

from flint import arb, fmpq_mat

from verify.checker.ball_rows import least_of
from verify.checker.exponentials import BITS as DIGITS
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import StringsCertificate
from verify.checker.region_strings import BOS, TOKENS, Strings, counts
from verify.checker.replay import Replay, replay_of
from verify.checker.reruns import of_strings
from verify.checker.statement import compare

LONGEST = 1024  # token of a string that is run


def refute(c: StringsCertificate, strings: Strings, prompts: int, gaps: Callable[[str, int], list[list[arb]]]) -> None:
    """One string decides, in balls: at the prompt some other logit is at least the due one."""
    case = c["counterexample"]
    text, prompt, due = case["input"], case["prompt"], counts(case["input"], prompts)
    require(strings.has(text) and 1 <= prompt <= prompts, f"counterexample: {text[:80]!r} and prompt {prompt} are none")
    named = {"string": text, "length": len(text), "expected": due[prompt - 1], "all_expected": due}
    compare(case, named | {"regions": re.findall(r"\[[01]*\]", text)} if "regions" in case else named)
    margin = c["margin"] or 0.0
    require(len(text) <= LONGEST, f"strings of more than {LONGEST} tokens are not run", NOT_CHECKABLE)
    for bits in DIGITS:
        row = gaps(text, bits)[prompt - 1]
        require(not all(x > 0 for x in row), f"counterexample: {text[:80]!r} is answered rightly at prompt {prompt}")
        if any(x <= 0 for x in row):
            is_above = all(x > margin for x in row)
            said = f"margin: is {c['margin']}, must be at least {float(least_of(row))}, and not above zero"
            require(margin <= 0 and not is_above, said)
            if any(x <= margin for x in row):
                return
    raise Refusal("the sign of a difference of logits, or the margin, does not show", NOT_CHECKABLE)


def gaps_in_dtype(
    c: StringsCertificate, fmt: BinaryFormat, W: dict[str, fmpq_mat], has_bos: bool, is_causal: bool
) -> Callable[[str, int], list[list[arb]]]:
    """Computed differences of logits, sums from left to right; whether other orders are wrong is not asked."""
    require(c["margin"] is None or c["margin"] <= 0, "margin: is above zero")
    c["margin"] = 0.0  # the rest of it is torch's

    def gaps(text: str, bits: int) -> list[list[arb]]:
        found = gaps_from_the_left(replay_of(c["counterexample"], c["parameters"], fmt), W, text, has_bos, is_causal)
        is_right = all(x > 0 for x in found[c["counterexample"]["prompt"] - 1])
        require(not is_right, "counterexample: sums from left to right are right", NOT_CHECKABLE)
        return found

    return gaps


def gaps_from_the_left(
    on: Replay, W: dict[str, fmpq_mat], text: str, has_bos: bool, is_causal: bool
) -> list[list[arb]]:
    """For each prompt (due logit) - (each other one), as one evaluation has them."""
    rows = of_strings(on, W, [BOS] * has_bos + [TOKENS.index(x) for x in text], is_causal)
    due = counts(text, len(rows))
    return [[arb(row[k]) - arb(x) for j, x in enumerate(row) if j != k] for row, k in zip(rows, due, strict=True)]
