"""Certificates about any module: its graph followed on every input, in balls (docs/checker.md)."""

from collections.abc import Collection
from typing import NamedTuple

from flint import arb, ctx

from verify.checker import cells
from verify.checker.graphs import BYTES
from verify.checker.questions import MOST_INPUTS, Answered, Statement, Tokens
from verify.checker.reading import NOT_CHECKABLE, as_text, read_tiles, require, whole
from verify.checker.records import ModuleCertificate, ModuleInput, TokensVerdict
from verify.checker.statement import certificate_of, compare, header
from verify.checker.table import walk

BITS = (64, 256, 1024, 4096)
MOST_LISTED = 1000  # wrong inputs
TRACED = ["torch.export traced the module faithfully", "the module is called on a batch of one input"]
NEAR = arb(2) ** -20  # a class that is said to win may be so far below, as a share of the logits


class AnswersSeen(NamedTuple):
    """How many inputs are right with the margin and how many are wrong, those met that are wrong, and some logits."""

    right: int
    wrong: int
    met: set[Tokens]
    seen: dict[Tokens, Answered]


def _decide(statement: Statement, margin: float, kept: set[Tokens]) -> AnswersSeen:
    """Decides every input, very many by cells as far as these do; keeps the logits of some."""
    if statement.size <= MOST_INPUTS:
        return _one_by_one(statement, margin, kept)
    by_cells = cells.count(statement, margin)
    alone = _one_by_one(statement.only(by_cells.open), margin, set())
    some = _one_by_one(statement.only(kept), margin, kept)
    return AnswersSeen(by_cells.right + alone.right, by_cells.wrong + alone.wrong, some.met, some.seen)


def _one_by_one(statement: Statement, margin: float, kept: set[Tokens]) -> AnswersSeen:
    """Follows every input with more and more bits."""
    are_right, wanted, are_wrong, seen = 0, None, set[Tokens](), dict[Tokens, Answered]()
    for bits in BITS:
        left = set[int]()
        with ctx.workprec(bits):
            for number, _, found in statement.decided(bits, wanted):
                if found is None:
                    left.add(number)
                    continue
                gaps = found.gaps
                if found.tokens in kept:
                    seen[found.tokens] = found
                if all(gap > 0 and gap >= arb(margin) for gap in gaps):
                    are_right += 1
                elif any(gap <= 0 for gap in gaps):
                    are_wrong.add(found.tokens)
                else:
                    short = any(gap < arb(margin) for gap in gaps)
                    require(not short, f"margin: {[*found.tokens]} has not the margin {margin}")
                    left.add(number)
        if not left:
            break
        wanted = left
    return AnswersSeen(are_right, len(are_wrong), are_wrong, seen)


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("module", weights, certificate, ModuleCertificate)
    verdict = header(c)
    tensors, _ = read_tiles(weights, BYTES)
    require("program" in c, "program: is missing; the certificate was not saved by verify module", NOT_CHECKABLE)
    trusted, statement = walk(c, f"module, {verdict.lower()}"), Statement(c["program"], tensors)
    check_parameters(c, statement, TRACED)
    judge(c, verdict, statement)
    return verdict, [*trusted, f"that {statement.words} is right"]


def judge(c: TokensVerdict, verdict: str, statement: Statement) -> None:
    """Decides every input, and what the certificate says of them. Raises: Refusal."""
    named = [x["input"] for x in (c["tightest"], c["counterexample"]) if x is not None]
    margin = c["margin"] or 0.0 if verdict == "PROVED" else 0.0
    listed = c["wrong_inputs"] if statement.size > MOST_INPUTS else []
    tally = _decide(statement, margin, {*map(tuple, [*named, *listed])})
    require(all(tuple(tokens) in tally.seen for tokens in named), "an input is none of those that are covered")
    if verdict == "PROVED":
        require(not tally.wrong, "program: an input is wrong")
        require(tally.right == statement.size, "the margin of an input is open", NOT_CHECKABLE)
        check_proved(c, statement)
    else:
        check_counts(c, statement, tally)
        check_wrong(c["counterexample"], c["margin"], tally.seen[tuple(c["counterexample"]["input"])])
    _check_tightest(c, tally)


def check_proved(c: TokensVerdict, statement: Statement) -> None:
    """What a certificate says of a proof."""
    require(c["margin"] is None or c["margin"] > 0, "margin: is not above zero")
    compare(c, {"inputs_covered": str(statement.size), "wrong_inputs": []})
    compare(c, {"counts": {"right": str(statement.size), "wrong": "0", "undecided": "0"}})
    compare(c["tightest"] or {"margin": c["margin"]}, {"margin": c["margin"]})


def check_parameters(c: ModuleCertificate, statement: Statement, assumptions: list[str]) -> None:
    """The sizes in words, and how often each operation occurs."""
    first, said, parts = statement.parts[0].graph, c["parameters"]["positions"], statement.parts
    lengths, classes = [part.graph.length for part in parts], statement.classes
    for part in parts:
        n = part.graph.length
        due = [*range(n)] if said is None else [p % n for p in said if -n <= p < n]
        require(due == part.positions and (said is None or len(due) == len(said)), "positions: are others")
    width = first.nodes[first.output]["shape"] or []
    require(bool(width), "program: the output is no tensor")
    columns = width[-1] if classes is None else len(classes)
    compare(c["parameters"], {"lengths": lengths, "classes": columns, "stored_numbers": first.numbers})
    compare(c["graph"], {"operations": first.operations})
    require(len(c["graph"]["sha256"]) == len(statement.graphs), "graph: there must be one digest for each")
    compare(c, {"assumptions": assumptions})


def check_counts(c: TokensVerdict, statement: Statement, tally: AnswersSeen, left: Collection[Tokens] = ()) -> None:
    """No more right and wrong ones than there are, all of them where none is open; the wrong ones that are listed.

    Those that are `left` open here may be either.
    """
    right, wrong, open_ = (whole(c["counts"][name], f"counts.{name}") for name in ("right", "wrong", "undecided"))
    require(right + wrong + open_ == statement.size, "counts: do not add up")
    fits = right <= tally.right + len(left) and wrong <= tally.wrong + len(left)
    require(fits, f"counts: {tally.wrong} are wrong")
    listed, may_be = [tuple(tokens) for tokens in c["wrong_inputs"]], tally.met.union(left)
    require(len({*listed}) == len(listed) and may_be >= {*listed}, "wrong_inputs: one is right, or occurs twice")
    require(listed == sorted(listed, key=lambda tokens: (len(tokens), tokens)), "wrong_inputs: are not in order")
    most = min(wrong, MOST_LISTED)
    require(len(listed) == most if not open_ else len(listed) <= most, "wrong_inputs: are not all")


def check_wrong(said: ModuleInput, margin: float | None, found: Answered) -> None:
    """The counterexample is wrong, at least by the margin, and answered as it says."""
    one = len(found.due) == 1
    compare(said, {"expected": found.due[0] if one else found.due})
    predicted = [said["predicted"]] if one else said["predicted"]
    require(isinstance(predicted, list) and len(predicted) == len(found.due), "predicted: is one for each position")
    assert isinstance(predicted, list)
    for at, p in zip(found.logits, predicted, strict=True):
        require(type(p) is int and p in at, f"predicted: {as_text(p)[:20]} is no class")
        assert isinstance(p, int)
        beaten = any(x - at[p] > NEAR * (abs(x) + abs(at[p])) for x in at.values())
        require(not beaten, f"predicted: {p} is not the class with the largest logit")
    require(any(gap <= 0 for gap in found.gaps) and predicted != found.due, "counterexample: is right")
    is_bound = margin is None or margin <= 0 and any(gap <= arb(margin) for gap in found.gaps)
    require(is_bound, f"margin: the counterexample has another than {margin}")


def _check_tightest(c: TokensVerdict, tally: AnswersSeen) -> None:
    """The input named as the tightest has at least its margin."""
    if c["tightest"] is not None:
        margin, found = c["tightest"]["margin"], tally.seen[tuple(c["tightest"]["input"])]
        has_it = all(gap > 0 and gap >= arb(margin) for gap in found.gaps)
        require(margin is None or has_it, f"tightest: {[*found.tokens]} has not the margin {margin}")
