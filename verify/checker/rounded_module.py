"""Certificates about any module in a format of floats: every evaluation of the contract, in balls (docs/checker.md)."""

from flint import arb, ctx

from verify.checker import captured_cells, module
from verify.checker.formats import BinaryFormat
from verify.checker.graphs import BYTES, Follower, TracedGraph
from verify.checker.module import AnswersSeen
from verify.checker.module_contract import MOST_OF_FEW_BITS, is_rounded, stated
from verify.checker.questions import MOST_INPUTS, Answered, InputsPart, Statement, Tokens
from verify.checker.reading import FAILS, NOT_CHECKABLE, Tensors, read_tiles, require
from verify.checker.records import ModuleCertificate, TokensVerdict
from verify.checker.rounded_graphs import RoundedFollower
from verify.checker.rounded_norms import RoundedKernels
from verify.checker.statement import certificate_of, compare
from verify.checker.table import IN_DTYPE, walk


class RoundedStatement(Statement):
    """What a certificate says is run in a format; errors that are kept move two logits together."""

    def __init__(self, found: object, tensors: Tensors, fmt: BinaryFormat, inner: BinaryFormat) -> None:
        super().__init__(found, tensors)
        self.fmt, self.inner, self.are_kept = fmt, inner, False
        self.most_kept = MOST_INPUTS  # inputs whose errors are kept
        self.follow, self.answer = self.rounded, self.answered

    @property
    def bits(self) -> int:
        return 64 if self.fmt.p <= 24 else 128

    @property
    def has_few_bits(self) -> bool:
        return self.inner != self.fmt and self.fmt.p <= MOST_OF_FEW_BITS and not self.fmt.factors

    def rounded(self, graph: TracedGraph, bits: int) -> Follower:
        return RoundedFollower(graph, bits, RoundedKernels(self.fmt, self.inner, self.are_kept, self.has_few_bits))

    def answered(
        self, follower: Follower, part: InputsPart, tokens: Tokens, due: list[int], logits: list[dict[int, arb]]
    ) -> Answered:
        assert isinstance(follower, RoundedFollower)
        found = follower.found
        if not found.moved:
            return Answered.of(tokens, due, logits)
        rows = [self.logits(found.mid, row, part) for row in (found.mid.balls[0], *found.moved.values())]
        middle, *moves = (Answered.of(tokens, due, row).gaps for row in rows)
        gaps = [
            m + off.union(-off) for m, *gs in zip(middle, *moves, strict=True) for off in [sum(map(abs, gs), arb(0))]
        ]
        return Answered(tokens, due, logits, gaps)


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("module", weights, certificate, ModuleCertificate)
    said: object = c.get("parameters")
    if isinstance(said, dict) and "state" in said:
        return captured_cells.check(weights, certificate)
    if not is_rounded(c):
        return module.check(weights, certificate)
    verdict, formats, assumed = stated(c)
    tensors, _ = read_tiles(weights, BYTES)
    require("program" in c, "program: is missing; the certificate was not saved by verify module", NOT_CHECKABLE)
    trusted = walk(c, f"module, {verdict.lower()}{IN_DTYPE}")
    statement = RoundedStatement(c["program"], tensors, *formats)
    module.check_parameters(c, statement, assumed)
    trusted = [*dict.fromkeys([*trusted, *judge(c, verdict, statement)])]
    return verdict, [*trusted, f"that {statement.words} is right"]


def judge(c: TokensVerdict, verdict: str, statement: RoundedStatement) -> list[str]:
    """Decides every input, and what the certificate says of them; what is taken on trust. Raises: Refusal."""
    require(statement.size <= MOST_INPUTS, f"more than {MOST_INPUTS} inputs in a dtype", NOT_CHECKABLE)
    named = [x["input"] for x in (c["tightest"], c["counterexample"]) if x is not None]
    margin = c["margin"] or 0.0 if verdict == "PROVED" else 0.0
    tally, left = _decide(statement, margin, {*map(tuple, named)}, verdict == "PROVED")
    if verdict == "PROVED":
        require(not tally.wrong, "program: an input is wrong in every order")
        what = f"roundings are bounded by more than half of the margin of {[*map(list, left[:1])]}"
        require(not left, what, NOT_CHECKABLE)
    is_open = any(tuple(tokens) in left for tokens in named)
    require(
        {*map(tuple, named)} <= {*tally.seen},
        "an input is none of those that are covered",
        NOT_CHECKABLE if is_open else FAILS,
    )
    trusted = list[str]()
    if verdict == "PROVED":
        module.check_proved(c, statement)
    else:
        compare(c, {"inputs_covered": "1"})
        module.check_counts(c, statement, tally, left)
        trusted += [f"whether {len(left)} inputs that roundings leave open are right"] * bool(left)
        found = tally.seen[tuple(c["counterexample"]["input"])]
        is_open = not any(gap <= 0 for gap in found.gaps) and not all(gap > 0 for gap in found.gaps)
        require(not is_open, "counterexample: whether it is wrong is open", NOT_CHECKABLE)
        module.check_wrong(c["counterexample"], None, found)
        is_bound = c["margin"] is None or c["margin"] <= 0 and not all(gap > arb(c["margin"]) for gap in found.gaps)
        require(is_bound, f"margin: the counterexample has another than {c['margin']}")
    if c["tightest"] is not None:
        has_half = _has(tally.seen[tuple(c["tightest"]["input"])], c["tightest"]["margin"] or 0.0)
        require(has_half is not False, "tightest: has not its margin")
        require(has_half or verdict == "REFUTED", "tightest: half of its margin is not shown", NOT_CHECKABLE)
        trusted += ["tightest"] * (has_half is None)
    return trusted


def _has(found: Answered, margin: float) -> bool | None:
    """Whether every evaluation is right by half of a margin; False where a gap is less than all of it, None if open."""
    if any(gap < arb(margin) or gap <= 0 for gap in found.gaps):
        return False
    return True if all(gap > 0 and 2 * gap >= arb(margin) for gap in found.gaps) else None


def _decide(
    statement: RoundedStatement, margin: float, kept: set[Tokens], is_proof: bool
) -> tuple[AnswersSeen, list[Tokens]]:
    """Follows every input, errors in its balls first, and those that this leaves open with their errors kept."""
    are_right, wrong, seen, wanted, left = 0, set[Tokens](), dict[Tokens, Answered](), None, dict[int, Tokens]()
    for statement.are_kept in (False, True):
        left = {}
        with ctx.workprec(statement.bits):
            for number, tokens, found in statement.decided(statement.bits, wanted):
                has_it = None if found is None else _has(found, margin)
                if found is not None and tokens in kept:
                    seen[tokens] = found
                if found is not None and any(gap <= 0 for gap in found.gaps):
                    wrong.add(tokens)
                elif has_it is None:
                    left[number] = tokens
                else:
                    require(has_it, f"margin: {[*tokens]} has not the margin {margin}")
                    are_right += 1
                if is_proof and (wrong or left and statement.are_kept):
                    break
        if not left or wrong and is_proof or len(left) > statement.most_kept:
            break
        wanted = {*left}
    return AnswersSeen(are_right, len(wrong), wrong, seen), [*left.values()]
