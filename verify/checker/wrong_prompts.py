"""Prompts of Count01 that are answered wrongly: one is run, exactly or in the evaluation that a certificate names."""

import math
from collections.abc import Sequence
from fractions import Fraction

from flint import ctx, fmpq_mat

from verify.checker.ball_rows import least_of
from verify.checker.exponentials import BITS
from verify.checker.prompts import EQUALS, TOKENS, Domain, PromptModel, PromptRegion, difference_at, sign_at
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import PromptsCertificate
from verify.checker.replay import Replay
from verify.checker.replayed_margins import check_margin, least
from verify.checker.reruns import of_prompt
from verify.checker.statement import check_counts, compare, is_close

MOST_HEADS = 4  # whose sums are multiplied out


def wrong_prompt(cells: list[PromptRegion], domain: Domain, c: PromptsCertificate) -> tuple[PromptRegion, list[str]]:
    """The side that a counterexample is on, and its tokens, where they are written."""
    case, (lo, hi, m, M, total) = c["counterexample"], domain
    n0, n1, n2 = n = [case[name] for name in ("n0", "n1", "n2")]
    is_in = lo <= min(n0, n1) and m <= n2 and (hi is None or max(n0, n1) <= hi) and (M is None or n2 <= M)
    require(is_in and (total is None or sum(n) <= total), "counterexample: is not in the region")
    read = [x for x in cells if TOKENS[x.last] == case["last"] and x.is_more == (n1 > n0)]
    require(len(read) == 1, f"counterexample: is not read after {case['last']}")
    (cell,) = read
    digits = [token for token, k in zip("012", n, strict=True) for _ in range(k)] if sum(n) <= 60 else []
    tokens = ["BOS", *digits, "=", *([] if cell.last == EQUALS else [case["last"]])]
    due = {"input": [*n, case["last"]], "tokens": tokens if sum(n) <= 60 else None, "expected": TOKENS[cell.due]}
    if c["reading"] == "real":
        compare(case, due | {"margin": c["margin"]})
        return cell, tokens
    said = case["tokens"]
    require(said is not None and sum(n) <= 60, "counterexample: a longer prompt is not run", NOT_CHECKABLE)
    assert said is not None
    compare(case, {name: due[name] for name in ("input", "expected")})
    in_order = [*said[:1], *sorted(said[1 : sum(n) + 1]), *said[sum(n) + 1 :]]
    require(in_order == tokens, "counterexample: its tokens are of another prompt")
    return cell, said


def run_again(
    on: Replay,
    W: dict[str, list[fmpq_mat]],
    norm: Sequence[fmpq_mat] | None,
    skip: bool,
    cell: PromptRegion,
    tokens: list[str],
    c: PromptsCertificate,
) -> None:
    """One prompt decides, in the evaluation that is named."""
    case, row = c["counterexample"], of_prompt(on, W, skip, [TOKENS.index(t) for t in tokens], norm)
    on.ended()
    require(not any(map(math.isnan, row)), "a logit is no number", NOT_CHECKABLE)
    check_margin(c["margin"], least([row[cell.due] - max(x for j, x in enumerate(row) if j != cell.due)]), True)
    said, first = [x if math.isfinite(x) else None for x in row], row.index(max(row))
    compare(case, {"predicted": TOKENS[first] if first < len(TOKENS) else f"class {first}", "fails": True})
    require(case["logits"] == said, "logits: are others in the evaluation that is named", NOT_CHECKABLE)


def refute(model: PromptModel, cell: PromptRegion, prompts: int | None, c: PromptsCertificate) -> None:
    """One prompt decides: its least difference of logits, in digits, and a tie of one head exactly."""
    case = c["counterexample"]
    n = [case[name] for name in ("n0", "n1", "n2")]
    rivals, row = [j for j in range(model.classes) if j != cell.due], (1, *n)
    require(len(model.scores) <= MOST_HEADS, f"more than {MOST_HEADS} heads are not run exactly", NOT_CHECKABLE)
    sign = min(sign_at(model, cell, j, row) for j in rivals)
    require(sign <= 0, f"counterexample: {case['input']} is answered rightly")
    compare(c, {"margin_exact": None if sign else "0"})
    counted(c, prompts)
    for bits in BITS:
        gap = least_of(difference_at(model, cell, j, row, bits) for j in rivals)
        with ctx.workprec(bits):
            if is_close(c["margin"], gap):
                return
    raise Refusal(f"margin: is {c['margin']}, of {gap}, which does not show", NOT_CHECKABLE)


def counted(c: PromptsCertificate, prompts: int | None) -> None:
    """How many prompts are wrong is trusted; that the numbers fit is not."""
    require(("counts" in c) == ("wrong_share" in c), "counts: come with wrong_share")
    if "counts" in c:
        require(prompts is not None, "counts: of infinitely many")
        wrong = check_counts(c.get("counts"), prompts or 0)
        compare(c, {"wrong_share": str(Fraction(wrong, prompts or 0))})
