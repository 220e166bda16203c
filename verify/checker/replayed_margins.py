"""What a certificate says of the margin of an evaluation, and what the evaluation has."""

import math
from collections.abc import Sequence

from verify.checker.reading import NOT_CHECKABLE, Refusal, require


def least(gaps: Sequence[float]) -> float | None:
    """The least of some differences, None where one of them is no number."""
    return None if any(map(math.isnan, gaps)) else min(gaps)


def check_margin(said: float | None, found: float | None, has_exp: bool) -> None:
    """A margin that is infinite or no number is said as null: JSON has neither.

    Another exp within the contract may be off by a last place, which decides nothing here.

    Raises: Refusal where the run is right, or has another margin.
    """
    close = NOT_CHECKABLE if has_exp and _is_near(said, found) else 1
    if found is not None and found > 0:
        raise Refusal("counterexample: the evaluation that is named is right", close)
    is_same = said == (None if found in (None, -math.inf) else found)
    require(is_same, f"margin: is {said}, and the evaluation that is named has {found}", close)


def _is_near(said: float | None, found: float | None) -> bool:
    return said is not None and found is not None and abs(said - found) <= 2.0**-20 * max(1.0, abs(found))
