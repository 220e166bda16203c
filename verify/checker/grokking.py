"""Certificates about addition modulo P by a decoder in the layout of the grokking checkpoints (docs/checker.md).

The layout says what is computed, so no traced program is believed: its operations are written here, and followed on
every pair as those of a module are, in balls.
"""

import math

from flint import arb, arb_mat, ctx

from verify.checker import module, rounded_module
from verify.checker.ball_rows import least_of
from verify.checker.graphs import Follower
from verify.checker.layout_program import EMBEDDING, LENGTH, LayoutProgram, layout_of
from verify.checker.module import BITS, TRACED
from verify.checker.module_contract import is_rounded, stated
from verify.checker.questions import MOST_INPUTS, Answered, InputsPart, Statement, Tokens
from verify.checker.reading import FAILS, NOT_CHECKABLE, Tensors, require, rows_of
from verify.checker.records import LayoutPairsCertificate
from verify.checker.rounded_module import RoundedStatement
from verify.checker.statement import certificate_of, compare, header
from verify.checker.table import IN_DTYPE, walk

SHARE = 0.9  # of an embedding's variance: the fewest frequencies that have it are named
NEAR = 2.0**-30  # how far a share in float64 may be off
BITS_OF_SHARES = 256
MOST_KEPT = 10**8  # numbers times errors of all inputs whose errors are kept: about a minute


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("modular", weights, certificate, LayoutPairsCertificate)
    verdict, formats, assumed = stated(c) if is_rounded(c) else (header(c), None, TRACED)
    trusted = walk(c, f"grokking, {verdict.lower()}{IN_DTYPE * (formats is not None)}")
    tensors, P = layout_of(weights), c["parameters"]["P"]
    program = LayoutProgram(tensors)
    require(program.tokens == P + 1 and program.classes >= P > 1, f"P: the file has {program.tokens} tokens")
    require(P * P <= MOST_INPUTS, f"more than {MOST_INPUTS} pairs are not decided again", NOT_CHECKABLE)
    numbers = sum(math.prod(shape) for _, shape, _ in tensors.values())
    sizes = {"lengths": [LENGTH], "positions": [-1], "classes": P, "stored_numbers": numbers}
    compare(c["parameters"], sizes)
    compare(c, {"assumptions": assumed})
    said = program.of_pairs(P)
    exact, c = Statement(said, tensors), _with_equals(c, P)
    least = noted(exact)
    if formats is None:
        module.judge(c, verdict, exact)
    else:
        rounded = RoundedStatement(said, tensors, *formats)
        rounded.most_kept = MOST_KEPT // program.computed**2
        trusted += rounded_module.judge(c, verdict, rounded)
    check_differences(c["margin_per_difference"], exact, least, P)
    with ctx.workprec(BITS_OF_SHARES):
        check_spectrum(c, tensors, P)
    return verdict, [*dict.fromkeys(trusted)]


def _with_equals(c: LayoutPairsCertificate, P: int) -> LayoutPairsCertificate:
    """The certificate with "=" behind each pair."""
    found = c.copy()
    found["wrong_inputs"] = [[*pair, P] for pair in c["wrong_inputs"]]
    for name in ("tightest", "counterexample"):
        case = c[name]
        if case is not None:
            ended = case.copy()
            ended["input"] = [*case["input"], P]
            found[name] = ended
    return found


def noted(statement: Statement) -> dict[Tokens, arb]:
    """The least gap of each pair, once it is followed."""
    least, answered = dict[Tokens, arb](), statement.answer

    def answer(
        follower: Follower, part: InputsPart, tokens: Tokens, due: list[int], logits: list[dict[int, arb]]
    ) -> Answered:
        found = answered(follower, part, tokens, due, logits)
        least[tokens] = least_of(found.gaps)
        return found

    statement.answer = answer
    return least


def check_differences(said: list[float | None], statement: Statement, least: dict[Tokens, arb], P: int) -> None:
    """No pair has in real arithmetic a smaller margin than what is said of its a - b."""
    require(len(said) == P, "margin_per_difference: must have a margin for each a - b")

    def due(tokens: Tokens) -> float | None:
        return said[(tokens[0] - tokens[1]) % P]

    left = [(a, b, P) for a in range(P) for b in range(P) if due((a, b)) is not None]
    for bits in BITS:
        with ctx.workprec(bits):
            missing = statement.only(tokens for tokens in left if tokens not in least)
            for _ in missing.decided(bits, None) if missing.size else ():
                pass  # what it decides is noted
            false = [tokens for tokens in left if least[tokens] < arb(due(tokens))]
            require(not false, f"margin_per_difference: {[*false[:1]]} has less", FAILS)
            left = [tokens for tokens in left if not least[tokens] >= arb(due(tokens))]
        for tokens in left:
            del least[tokens]
    require(not left, f"margin_per_difference: that of {left[:1]} does not show", NOT_CHECKABLE)


def check_spectrum(c: LayoutPairsCertificate, tensors: Tensors, P: int) -> None:
    """The fewest frequencies with nine tenths of the embedding's variance, those with the largest shares first."""
    dtype, shape, raw = tensors[EMBEDDING]
    E = arb_mat([row[:P] for row in rows_of(EMBEDDING, dtype, shape, raw)]).transpose()
    turns = [[arb(2 * k * x % (2 * P)) / P for x in range(P)] for k in range(1, P // 2 + 1)]
    waves = [arb_mat([[f(y) for y in row] for row in turns]) * E for f in (arb.cos_pi, arb.sin_pi)]
    both = zip(*(wave.tolist() for wave in waves), strict=True)
    energy = [sum((x * x for row in rows for x in row), arb(0)) * (1 if 2 * k == P else 2)
              for k, rows in enumerate(both, 1)]  # fmt: skip
    total, named, shares = sum(energy, arb(0)), c["frequencies"], c["frequency_shares"]
    share = [x / total for x in energy] if total > 0 else energy
    require(all(x.rad() < NEAR for x in share), "frequency_shares: do not show", NOT_CHECKABLE)
    is_list = len({*named}) == len(named) and all(1 <= k <= P // 2 for k in named)
    require(is_list and [*shares] == [*map(str, named)], "frequencies: are none, or others than those with shares")
    for k in named:
        said = shares[str(k)]
        is_near = isinstance(said, float) and bool(abs(share[k - 1] - said) < NEAR)
        require(is_near, f"frequency_shares: {k} has another share")
    own = [share[k - 1] for k in named]
    are_sorted = all(x > y - NEAR for x, y in zip(own, own[1:], strict=False))
    others = [x for k, x in enumerate(share, 1) if k not in named]
    are_most = all(x < own[-1] + NEAR if own else x < NEAR for x in others)
    is_enough = sum(own[:-1], arb(0)) < SHARE + NEAR and (sum(own, arb(0)) > SHARE - NEAR or not total > 0)
    require(bool(are_sorted and are_most and is_enough), "frequencies: are not the fewest with nine tenths")
