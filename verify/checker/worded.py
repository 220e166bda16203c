"""Tasks with number words: their inputs are lines, each of which is run, in real arithmetic or in a format.

The words 0..M are the tokens 0..M, then comes the token that is counted, and where there is a helper another one.
"""

from typing import NamedTuple

from flint import arb, ctx

from verify.checker import block_shapes, rounded_runs
from verify.checker.followers import Way, way_of
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import positive_margin
from verify.checker.rounded import BITS, stored_network
from verify.checker.rounded_lines import ComputedLine, TokenFollower

STARTED = ("shifted", "helper", "helper-shifted")  # their inputs begin with a word, which `length` does not count
TASKS = ("succession", *STARTED)
MOST_TOKENS = 30_000  # of all lines together, but for their first words


class WordedLine(NamedTuple):
    """A longest input, and the right class after each of its tokens."""

    tokens: list[int]
    right: list[int]


def lines_of(said: LineParameters) -> list[WordedLine]:
    """All longest inputs up to the length that is judged."""
    task, M, length = said["task"], said["vocabulary"], said["length"]
    most = M - (task == "shifted")
    require(type(length) is int and 1 <= length <= most, f"length: {length!r}, and the words end at {most}")
    assert length != "all"
    too_long = "the lines are too long to run"
    require(M <= MOST_TOKENS, too_long, NOT_CHECKABLE)
    if task == "succession":
        words = range(1, min(length, M - 1) + 1)  # none where no word has a next one
        lines = [([M + 1] * length, [*range(1, length + 1)]), ([*words], [k + 1 for k in words])]
    else:
        starts = {"shifted": range(1, M + 1), "helper": range(1), "helper-shifted": range(M + 1)}[task]
        fillers = [M + 1] if task == "shifted" else [M + 1, M + 2]
        pairs = [(k, filler) for k in starts for filler in (fillers if k < M else fillers[:1])]
        after = {k: min(length, M - k) for k in starts}
        require(len(fillers) * sum(after.values()) <= MOST_TOKENS, too_long, NOT_CHECKABLE)
        lines = [([k, *[filler] * after[k]], [*range(k, k + after[k] + 1)]) for k, filler in pairs]
    return [WordedLine(*line) for line in lines if line[0]]


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof of all lines, or the shortest wrong one."""
    lines = lines_of(said)
    largest = said["vocabulary"] + 1 + said["task"].startswith("helper")
    with ctx.workprec(BITS):
        way, tokens, classes = way_of(weights, c, said)
        fits = classes > said["vocabulary"] and (tokens == 1 or tokens > largest)
        require(fits, f"parameters: {classes} classes and {tokens} tokens are not the task's")
        if c["verdict"] == "PROVED":
            total, margin = sum(len(line.tokens) for line in lines), positive_margin(c)
            require(c.get("inputs_covered") == str(total), f"inputs_covered: must be {total}")
            for line in lines:
                _right_to(way, line, len(line.tokens), margin)
            return
        line, n, wrong = _wrong_line(c, lines, said)
        require(wrong < classes, "counterexample: predicts no class")
        if "run" in c:
            net, fmt = stored_network(weights, said)
            rounded_runs.replay(net, fmt, c, line.right[n - 1], wrong, line.tokens[:n])
        is_first = c["counterexample"]["is_first"]
        for other in lines:
            if is_first and ("run" in c or other is not line):
                _right_to(way, other, min(n - 1, len(other.tokens)), arb(0))
        if said["model"] in block_shapes.KINDS and c["reading"] != "real":
            shorter = c.get("right_to", -1) + (said["task"] in STARTED)
            way(lambda follow: _computed(line, follow).wrong(n, shorter, c["margin"], wrong))
        elif "run" not in c:
            require(is_first, "counterexample: only a first one is checked", NOT_CHECKABLE)
            way(lambda follow: _computed(line, follow).wrong(n, n - 1, c["margin"], wrong))


def _computed(line: WordedLine, follow: TokenFollower) -> ComputedLine:
    return ComputedLine(lambda t: line.right[t - 1], follow, line.tokens)


def _right_to(way: Way, line: WordedLine, steps: int, margin: arb) -> None:
    way(lambda follow: _computed(line, follow).right_to(steps, margin))


def _wrong_line(c: LineCertificate, lines: list[WordedLine], said: LineParameters) -> tuple[WordedLine, int, int]:
    """A line, after how many of its tokens it is wrong, and the class that is predicted there, -1 for none said."""
    case, margin, is_started = c["counterexample"], c["margin"], said["task"] in STARTED
    tokens = case["input"]
    found = [line for line in lines if type(tokens) is list and tokens and line.tokens[: len(tokens)] == tokens]
    require(bool(found) and c.get("inputs_covered") == "1", "counterexample: is no input of the task")
    n, right = len(tokens), found[0].right[len(tokens) - 1]
    due = {"length": n - is_started, "expected": right} | ({"start": tokens[0]} if is_started else {})
    for name in ("length", "expected", "start"):
        require(case.get(name) == due.get(name), f"counterexample: {name} must be {due.get(name)}")
    require(margin <= 0, f"margin: {margin!r} must be zero or negative")
    wrong, right_to = -1 if case["predicted"] is None else case["predicted"], c.get("right_to", -1)
    may_tie = "run" in c and margin == 0
    require(wrong != right or may_tie, "counterexample: predicts the right class")
    all_right = n - 1 - is_started
    require(right_to == all_right if case["is_first"] else right_to < all_right, "right_to: is not one less")
    return found[0], n, wrong
