"""Certificates about Count01: forms in three counts at vertices and rays, or quotients on boxes (docs/checker.md)."""

from functools import partial

from flint import arb, fmpq

from verify.checker import count01_in_bits, count01_in_dtype, normed_prompts
from verify.checker.any_order import contract, due_beside, opened
from verify.checker.ball_rows import most_of
from verify.checker.boxes import Box, all_positive, ends
from verify.checker.constant_bits import bits_of, opened_in_bits
from verify.checker.exponentials import Sum, scaled, sign_of
from verify.checker.formats import format_of
from verify.checker.prompts import (
    EQUALS,
    TOKENS,
    Domain,
    PromptModel,
    PromptRegion,
    in_dtype,
    less,
    read_count01,
    rounded_once,
)
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import PromptsCertificate, SavedRegions
from verify.checker.replay import replay_of
from verify.checker.roundoff import Roundoff
from verify.checker.statement import certificate_of, compare
from verify.checker.wrong_prompts import refute, run_again, wrong_prompt

FOUR, FIVE, EOS = 5, 6, 7
LONGEST = 1 << 16  # digits, where their number is bounded
NORMED = "LayerNorm in one pass, two or by running means, its weight and bias folded into one product and sum or not"
INPUTS_ARE = "triples (n0, n1, n2) {}; each triple stands for every order of its digits"


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("count01", weights, certificate, PromptsCertificate)
    s, (numbers, sizes), fmt = bits_of(c), read_count01(weights), None
    if s is None:
        verdict, fmt, trusted = opened("count01", c)
    else:
        verdict, trusted = opened_in_bits("count01", c, s, "token")
    require("norm" not in numbers or s is None, "layer norm is not run in constant bits", NOT_CHECKABLE)
    p, domain = c["parameters"], _domain(c["parameters"])
    lasts = (EQUALS,) if p.get("semantic_only") else (EQUALS, FOUR, FIVE)
    if fmt and (verdict == "REFUTED" or "norm" not in numbers):
        on = Roundoff(fmt.of_one_run if verdict == "REFUTED" else fmt)
        numbers, off = rounded_once(numbers, on), dict.fromkeys(lasts, 0.0)
    else:
        numbers, off = in_dtype(numbers, sizes["skip"], fmt, _longest(domain), lasts)
    model = PromptModel(numbers, sizes["skip"])
    require(model.classes >= len(TOKENS), f"weights: {model.classes} classes, fewer than tokens")
    compare(p, {k: v for k, v in sizes.items() if k != "d_h" and k in p})
    read = "after =" if p.get("semantic_only") else "times the last tokens =, 4, 5"
    strings = f"strings of digits, each read after ={', 4 and 5' * (len(lasts) > 1)}"
    compare(c, {"region": _region(domain), "inputs_are": INPUTS_ARE.format(read) if s is None else strings})
    norm = numbers.pop("norm", None)
    norms = [] if norm is None else [NORMED]
    alike = "the same product of two numbers is computed alike at every position"
    of_format = [*contract(p, softmax=", normalises, then weighs the values"), *norms, alike] if fmt else []
    compare(c, {} if s is not None else {"assumptions": of_format})
    cells = [
        PromptRegion(last, is_more, _due(last, is_more, p["labels"])) for last in lasts for is_more in (True, False)
    ]
    size = domain_size(domain)
    prompts = None if size is None else size * len(lasts)
    if norm is not None and verdict == "PROVED":
        normed_prompts.prove(numbers, norm, sizes["skip"], cells, domain, c, float(most_of(map(arb, off.values()))))
    elif norm is not None and fmt is None:
        normed_prompts.refute(numbers, norm, sizes["skip"], wrong_prompt(cells, domain, c)[0], prompts, c)
    elif s is not None:
        in_bits = count01_in_bits.PromptsInBits(numbers, sizes["skip"], s)
        if verdict == "PROVED":
            count01_in_bits.prove(in_bits, cells, domain, _longest(domain), c)
        else:
            count01_in_bits.refute(in_bits, *wrong_prompt(cells, domain, c), c, s)
    elif verdict == "REFUTED":
        cell, tokens = wrong_prompt(cells, domain, c)
        if fmt:
            run_again(replay_of(c["counterexample"], p, fmt), numbers, norm, sizes["skip"], cell, tokens, c)
        else:
            refute(model, cell, prompts, c)
    else:
        compare(c, {"inputs_covered": "infinite" if prompts is None else str(prompts)})
        in_real = partial(_prove, model, cells, domain, c)
        if fmt is None:
            in_real(off)
        else:
            formats = fmt, format_of(p.get("accumulate")) or fmt
            trusted += count01_in_dtype.prove(formats, numbers, sizes["skip"], cells, domain, c["margin"], in_real)
    return verdict, trusted


def _domain(p: SavedRegions) -> Domain:
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


def domain_size(domain: Domain) -> int | None:
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


def _prove(
    model: PromptModel, cells: list[PromptRegion], domain: Domain, c: PromptsCertificate, off: dict[int, float]
) -> None:
    margin, times_sum = c["margin"], c.get("margin_scaled")
    require((margin is None) != (times_sum is None), "margin: either it, or margin_scaled")
    said = margin or times_sum or 0.0
    require(said > 0, "margin: must be above zero")
    require(margin is not None or not any(off.values()), "margin_scaled: is that of real arithmetic")
    lo, hi, m, M, total = domain
    for cell, rival in ((x, j) for x in cells for j in range(model.classes) if j != x.due):
        due, code = due_beside(said, off[cell.last])
        claimed = fmpq(*due.as_integer_ratio())
        if len(model.scores) == 1 and total is None:
            N, D = model.form(cell, rival)
            one: list[Sum] = [{fmpq(0): fmpq(1)}, {}, {}, {}]
            form = [less(n, d, claimed) for n, d in zip(N, one if margin is None else D, strict=True)]
            is_shown = all(sign_of(scaled(form, row)) >= 0 for row in ends(cell.is_more, domain))
        else:
            require(domain_size(domain) is not None and margin is not None, "region: must be bounded", NOT_CHECKABLE)
            tops = [total if top is None else top for top in (hi, M)]
            quotients = [model.quotient(h, cell, rival) for h in range(len(model.scores))]
            box = Box(lo, tops[0] or 0, m, tops[1] or 0, total)
            is_shown = all_positive(quotients, model.constant(cell, rival) - claimed, box, cell.is_more)
        what = f"after {TOKENS[cell.last]}, n1 {'>' if cell.is_more else '<='} n0, class {rival}"
        require(is_shown, f"margin: is not shown {what}", code)
