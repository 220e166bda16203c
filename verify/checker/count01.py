"""Certificates about Count01: forms in three counts at vertices and rays, or quotients on boxes (docs/checker.md)."""

from collections.abc import Iterator
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any

from flint import arb, ctx, fmpq

from verify.checker.boxes import Box, all_positive
from verify.checker.exponentials import BITS, Sum, scaled, sign_of
from verify.checker.prompts import (
    EQUALS,
    PromptModel,
    PromptRegion,
    difference_at,
    in_dtype,
    less,
    read_count01,
    sign_at,
)
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.roundoff import contract, opened, still_due
from verify.checker.statement import certificate_of, check_counts, compare, is_close

TOKENS = ("BOS", "0", "1", "2", "=", "4", "5", "EOS")
FOUR, FIVE, EOS = 5, 6, 7
LONGEST = 1 << 16  # digits, where their number is bounded
MOST_HEADS = 4  # whose sums are multiplied out
INPUTS_ARE = "triples (n0, n1, n2) {}; each triple stands for every order of its digits"


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("count01", weights, certificate)
    (verdict, fmt, trusted), (numbers, sizes) = opened("count01", c), read_count01(weights)
    p, domain = c["parameters"], _domain(c["parameters"])
    numbers, off = in_dtype(numbers, sizes["skip"], fmt, _longest(domain))
    model = PromptModel(numbers, sizes["skip"])
    require(model.classes >= len(TOKENS), f"weights: {model.classes} classes, fewer than tokens")
    compare(p, {k: v for k, v in sizes.items() if k != "d_h" and k in p})
    lasts = (EQUALS,) if p.get("semantic_only") else (EQUALS, FOUR, FIVE)
    read = "after =" if p.get("semantic_only") else "times the last tokens =, 4, 5"
    compare(c, {"region": _region(domain), "inputs_are": INPUTS_ARE.format(read)})
    alike = "the same product of two numbers is computed alike at every position"
    compare(c, {"assumptions": [*contract(p, softmax=", normalises, then weighs the values"), alike] if fmt else []})
    cells = [
        PromptRegion(last, is_more, _due(last, is_more, p["labels"])) for last in lasts for is_more in (True, False)
    ]
    if verdict == "REFUTED":
        _refute(model, cells, domain, c)
    else:
        size = _size(domain)
        compare(c, {"inputs_covered": "infinite" if size is None else str(size * len(lasts))})
        _prove(model, cells, domain, c | {"margin": still_due(c["margin"], off)} if fmt else c)
    return verdict, trusted


Domain = tuple[int, int | None, int, int | None, int | None]  # n0 and n1 from, to; n2 from, to; all three at most


def _domain(p: dict[str, Any]) -> Domain:
    """The prompts that the parameters name."""
    domain = p.get("min_digits", 0), p["max_digits"], p.get("min_noise", 0), p["max_noise"], p["max_length"]
    lo, hi, m, M, total = domain
    is_some = (hi is None or hi >= lo) and (M is None or m <= M) and (total is None or total >= 2 * lo + m)
    require(is_some and p.get("semantic_only", True), "parameters: no prompts are so")
    is_known = p["labels"] in ("majority-ones", "thesis")
    require(is_known and (total or 0) <= LONGEST, f"parameters: unknown labels, or more than {LONGEST} digits")
    return domain


def _longest(domain: Domain) -> int | None:
    """The most digits of a prompt, None where there is no limit."""
    _, hi, _, M, total = domain
    return total if hi is None or M is None else min(2 * hi + M, 2 * hi + M if total is None else total)


def _size(domain: Domain) -> int | None:
    """How many triples there are, None for infinitely many."""
    lo, hi, m, M, total = domain
    if total is None:
        return None if hi is None or M is None else (hi - lo + 1) ** 2 * (M - m + 1)
    spare = total - 2 * lo - m
    digits, noise = (spare if top is None else top - least for top, least in ((hi, lo), (M, m)))
    found = 0
    for both in range(min(2 * digits, spare) + 1):
        found += (min(both, digits) - max(0, both - digits) + 1) * (min(noise, spare - both) + 1)
    return found


def _region(domain: Domain) -> str:
    """The domain in words."""
    lo, hi, m, M, total = domain
    parts = []
    for name, least, top in (("n0, n1", lo, hi), ("n2", m, M)):
        low = f"{least} <= {name}" if least else name
        parts += [f"all {low}"] if top is None and total is None else [f"{low} <= {top}"] if top is not None else []
    return ", ".join(parts + [f"n0 + n1 + n2 <= {total}"] * (total is not None))


def _due(last: int, is_more: bool, labels: str) -> int:
    if last != EQUALS:
        return EOS
    return FOUR if is_more == (labels == "majority-ones") else FIVE


def _prove(model: PromptModel, cells: list[PromptRegion], domain: Domain, c: dict[str, Any]) -> None:
    margin, times_sum = c["margin"], c.get("margin_scaled")
    require((margin is None) != (times_sum is None), "margin: either it, or margin_scaled")
    claimed = fmpq(*(margin or times_sum or 0.0).as_integer_ratio())
    require(claimed > 0, "margin: must be above zero")
    lo, hi, m, M, total = domain
    for cell, rival in product(cells, range(model.classes)):
        if rival == cell.due:
            continue
        if len(model.scores) == 1 and total is None:
            N, D = model.form(cell, rival)
            one: list[Sum] = [{fmpq(0): fmpq(1)}, {}, {}, {}]
            form = [less(n, d, claimed) for n, d in zip(N, one if margin is None else D, strict=True)]
            is_shown = all(sign_of(scaled(form, row)) >= 0 for row in _ends(cell.is_more, domain))
        else:
            require(_size(domain) is not None and margin is not None, "region: must be bounded", NOT_CHECKABLE)
            tops = [total if top is None else top for top in (hi, M)]
            quotients = [model.quotient(h, cell, rival) for h in range(len(model.scores))]
            box = Box(lo, tops[0] or 0, m, tops[1] or 0, total)
            is_shown = all_positive(quotients, model.constant(cell, rival) - claimed, box, cell.is_more)
        what = f"after {TOKENS[cell.last]}, n1 {'>' if cell.is_more else '<='} n0, class {rival}"
        require(is_shown, f"margin: is not shown {what}")


def _ends(is_more: bool, domain: Domain) -> Iterator[tuple[int, int, int, int]]:
    """The vertices (1, n0, n1, n2) of one side, and the rays (0, ...) along which it goes on: linear forms that are not
    negative there are not negative on it."""
    lo, hi, m, M, _ = domain
    step = int(is_more)
    if hi is not None and hi - lo < step:
        return
    first = (lo, lo + 1) if is_more else (lo, lo)
    ends = [first] if hi is None else [first, (lo, hi) if is_more else (hi, lo), (hi - step, hi)]
    for n0, n1 in ends:
        for n2 in (m,) if M is None else (m, M):
            yield 1, n0, n1, n2
    if hi is None:
        yield from ((0, 1, 1, 0), (0, 0, 1, 0) if is_more else (0, 1, 0, 0))
    if M is None:
        yield 0, 0, 0, 1


def _refute(model: PromptModel, cells: list[PromptRegion], domain: Domain, c: dict[str, Any]) -> None:
    """One prompt decides: its least difference of logits, in digits, and a tie of one head exactly."""
    case, (lo, hi, m, M, total) = c["counterexample"], domain
    n0, n1, n2 = n = [case[name] for name in ("n0", "n1", "n2")]
    is_in = lo <= min(n0, n1) and m <= n2 and (hi is None or max(n0, n1) <= hi) and (M is None or n2 <= M)
    require(is_in and (total is None or sum(n) <= total), "counterexample: is not in the region")
    read = [x for x in cells if TOKENS[x.last] == case["last"] and x.is_more == (n1 > n0)]
    require(len(read) == 1, f"counterexample: is not read after {case['last']}")
    cell = read[0]
    digits = [token for token, k in zip("012", n, strict=True) for _ in range(k)] if sum(n) <= 60 else []
    tokens = ["BOS", *digits, "=", *([] if cell.last == EQUALS else [case["last"]])]
    due = {"input": [*n, case["last"]], "tokens": tokens if sum(n) <= 60 else None, "expected": TOKENS[cell.due]}
    compare(case, due | {"margin": c["margin"]})
    rivals, row = [j for j in range(model.classes) if j != cell.due], (1, *n)
    require(len(model.scores) <= MOST_HEADS, f"more than {MOST_HEADS} heads are not run exactly", NOT_CHECKABLE)
    sign = min(sign_at(model, cell, j, row) for j in rivals)
    require(sign <= 0, f"counterexample: {case['input']} is answered rightly")
    compare(c, {"margin_exact": None if sign else "0"})
    _counted(c, _size(domain), len({x.last for x in cells}))
    for bits in BITS:
        gap = reduce(arb.min, (difference_at(model, cell, j, row, bits) for j in rivals))
        with ctx.workprec(bits):
            if is_close(c["margin"], gap):
                return
    raise Refusal(f"margin: is {c['margin']}, must be {gap}")


def _counted(c: dict[str, Any], size: int | None, lasts: int) -> None:
    """How many prompts are wrong is trusted; that the numbers fit is not."""
    require(("counts" in c) == ("wrong_share" in c), "counts: come with wrong_share")
    if "counts" in c:
        require(size is not None, "counts: of infinitely many")
        wrong = check_counts(c, (size or 0) * lasts)
        compare(c, {"wrong_share": str(Fraction(wrong, (size or 0) * lasts))})
