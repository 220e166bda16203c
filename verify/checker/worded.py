"""Tasks with number words: their inputs are lines, each of which is run, in real arithmetic or in a format.

The words 0..M are the tokens 0..M, then comes the token that is counted, and where there is a helper another one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from flint import arb, ctx

from verify.checker import computed_gates, formats, gated, linear, rounded_runs
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.recurrent import BITS, GATES, StoredNetwork, margins, network, point, positive_margin, step
from verify.checker.rounded import BITS as FEW_BITS
from verify.checker.rounded import stored_network
from verify.checker.rounded_lines import ComputedLine, Follower, Gaps, either

STARTED = ("shifted", "helper", "helper-shifted")  # their inputs begin with a word, which `length` does not count
TASKS = ("succession", *STARTED)
MOST_TOKENS = 30_000  # of all lines together

Way = Callable[[Callable[[Follower], None]], None]  # decides a line by whatever follower shows it


class Line(NamedTuple):
    """A longest input, and the right class after each of its tokens."""

    tokens: list[int]
    right: list[int]


def lines_of(said: dict[str, Any]) -> list[Line]:
    """All longest inputs up to the length that is judged."""
    task, M, length = said["task"], said["vocabulary"], said["length"]
    most = M - (task == "shifted")
    require(type(length) is int and 1 <= length <= most, f"length: {length!r}, and the words end at {most}")
    if task == "succession":
        words = range(1, min(length, M - 1) + 1)  # none where no word has a next one
        lines = [([M + 1] * length, [*range(1, length + 1)]), ([*words], [k + 1 for k in words])]
    else:
        starts = {"shifted": range(1, M + 1), "helper": range(1), "helper-shifted": range(M + 1)}[task]
        fillers = [M + 1] if task == "shifted" else [M + 1, M + 2]
        pairs = [(k, filler) for k in starts for filler in (fillers if k < M else fillers[:1])]
        after = {k: min(length, M - k) for k in starts}
        lines = [([k, *[filler] * after[k]], [*range(k, k + after[k] + 1)]) for k, filler in pairs]
    found = [Line(*line) for line in lines if line[0]]
    require(sum(len(line.tokens) for line in found) <= MOST_TOKENS, "the lines are too long to run", NOT_CHECKABLE)
    return found


def decide(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks a proof of all lines, or the shortest wrong one."""
    lines = lines_of(said)
    largest = said["vocabulary"] + 1 + said["task"].startswith("helper")
    with ctx.workprec(FEW_BITS):
        way, tokens, classes = _way(weights, c, said)
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
        if "run" not in c:
            require(is_first, "counterexample: only a first one is checked", NOT_CHECKABLE)
            way(lambda gaps: _computed(line, gaps).wrong_in_every_order(n, c["margin"], wrong))


def _computed(line: Line, gaps: Follower) -> ComputedLine:
    return ComputedLine(lambda t: line.right[t - 1], gaps, line.tokens)


def _right_to(way: Way, line: Line, steps: int, margin: arb) -> None:
    way(lambda gaps: _computed(line, gaps).right_to(steps, margin))


def _wrong_line(c: dict[str, Any], lines: list[Line], said: dict[str, Any]) -> tuple[Line, int, int]:
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


def _way(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> tuple[Way, int, int]:
    """How lines are followed, and how many tokens the network knows and classes it has."""
    kind, is_real = said["model"], c["reading"] == "real"
    if kind in gated.KINDS and is_real:
        cell = gated.GatedCell.of(weights, said)
        return lambda line: line(gated.by_balls(cell)), len(cell.keep), len(cell.b)
    if kind in gated.KINDS:
        fmt = formats.named(said)
        stored = computed_gates.StoredCell.of(weights, said, fmt)
        tokens = len(computed_gates.gates(stored, fmt)[0])
        return lambda line: line(computed_gates.fading(stored, fmt)), tokens, len(stored.b)
    require(kind in GATES or kind in linear.KINDS, f"parameters: no recurrent model, but {kind!r}", NOT_CHECKABLE)
    if is_real:
        net = network(weights, said) if kind in GATES else linear.as_layer(weights, said)
        return lambda line: _in_more_digits(net, line), len(net.tokens), len(net.b)
    near, fmt = stored_network(weights, said)
    return lambda line: either(near, fmt, line), len(near.tokens), len(near.b)


def _in_more_digits(net: StoredNetwork, line: Callable[[Follower], None]) -> None:
    """Decides in balls of more and more bits."""
    for bits in BITS:
        try:
            with ctx.workprec(bits):
                line(by_balls(net))
            return
        except Refusal as refusal:
            if refusal.exit_code != NOT_CHECKABLE or bits == BITS[-1]:
                raise


def by_balls(net: StoredNetwork) -> Follower:
    """What balls of exact numbers say of the logits after one token, two tokens, and so on."""
    state = [arb(0)] * net.size

    def after(token: int) -> Callable[[int], Gaps]:
        state[:] = step(net.reading(token), point(state)).value

        def gaps(k: int) -> Gaps:
            others = (j for j in range(len(net.b)) if j != k)
            found = margins(net, state[net.read : net.read + net.hidden], k)
            return {j: (gap.lower(), gap.upper()) for j, gap in zip(others, found, strict=True)}

        return gaps

    return after
