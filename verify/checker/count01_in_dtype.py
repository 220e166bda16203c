"""Proofs about Count01 in a dtype: by boxes of what a format computes, or by one bound for all (docs/checker.md)."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from flint import fmpq, fmpq_mat

from verify.checker.any_order import HALF
from verify.checker.boxes import Box
from verify.checker.computed_prompts import ComputedPrompts
from verify.checker.formats import BinaryFormat
from verify.checker.prompts import Domain, PromptRegion, in_dtype
from verify.checker.reading import NOT_CHECKABLE, Refusal, require

Numbers = dict[str, list[fmpq_mat]]


def prove(
    formats: tuple[BinaryFormat, BinaryFormat],
    numbers: Numbers,
    skip: bool,
    cells: Sequence[PromptRegion],
    domain: Domain,
    margin: float | None,
    in_real: Callable[[dict[int, float]], None],
) -> list[str]:
    """Shows the margin in every order; or `in_real` shows what one bound on all roundings leaves of it, by the last
    token; or half of the margin is shown in every order. Returns what of it is on trust. Raises: Refusal."""
    lo, hi, m, M, total = domain
    most, noise = (total if x is None else x for x in (hi, M))
    if margin is None or most is None or noise is None:
        raise Refusal("region: must be bounded, and have a margin", NOT_CHECKABLE)
    require(margin > 0, "margin: must be above zero")
    box, classes, lasts = Box(lo, most, m, noise, total), range(numbers["b_out"][0].ncols()), {x.last for x in cells}
    model = cache(lambda last: ComputedPrompts(*formats, numbers, skip, last))

    def shown(least: fmpq) -> bool:
        return all(model(x.last).proves(x, [j for j in classes if j != x.due], box, least) for x in cells)

    whole, longest = fmpq(*margin.as_integer_ratio()), 2 * most + noise
    with suppress(Refusal):  # one bound for all may do without what is not followed
        if shown(whole):
            return []
    try:
        off = in_dtype(numbers, skip, formats[0], longest if total is None else min(longest, total), [*lasts])[1]
        in_real(off)
    except Refusal as found:
        if found.exit_code != NOT_CHECKABLE or not shown(whole / 2):
            raise
        return [HALF]
    return []
