"""What a certificate in the reading "dtype, any order" says: format, contract, what is due of its margin."""

from collections.abc import Mapping, Sequence
from math import inf, nextafter

from verify.checker.formats import TF32, BinaryFormat, format_of, in_words
from verify.checker.reading import FAILS, NOT_CHECKABLE, as_text, require
from verify.checker.records import FormatSaid
from verify.checker.statement import compare, header, verdict_of
from verify.checker.table import IN_DTYPE, TABLES, walk

READING = "dtype, any order"
HALF = "half of the margin"  # what is not shown of it where `still_due` is asked step by step
MATRIX_PRODUCTS = {
    "float32": "float32 matrix products are float32: torch.set_float32_matmul_precision is at 'highest'",
    "tf32": "float32 matrix products are float32 or tf32: torch.set_float32_matmul_precision is not at 'medium'",
}


def still_due(margin: float, off: float, is_stepwise: bool = False) -> float:
    """What real arithmetic must show: the margin, up to what the roundings may do, and no less than that.

    Where other steps' roundings are in what it shows already, half of the margin: the other half is on trust (HALF).

    Raises: Refusal where this leaves less than half of the margin: then nothing is decided.
    """
    require(2 * off <= margin, f"roundings are bounded by {off:.3g}, more than half of the margin", NOT_CHECKABLE)
    return max(off, half_of(margin) if is_stepwise else margin - off)


def half_of(margin: float) -> float:
    """Half of a margin, rounded up: what is above 0 has a half that is, and the least number is its own."""
    return max(margin / 2, margin - margin / 2)


def due_beside(margin: float, off: float) -> tuple[float, int]:
    """As `still_due`; where that is less than half, what leaves half of the margin beside what the roundings may do.

    With the exit code of what does not show it: a margin that is missed by more than they may do is false.
    """
    if 2 * off <= margin:
        return still_due(margin, off), FAILS
    return nextafter(half_of(margin) + off, inf), NOT_CHECKABLE


def opened(task: str, c: Mapping[str, object]) -> tuple[str, BinaryFormat | None, list[str]]:
    """The verdict, the format of one in a dtype, and the fields taken on trust. Raises: Refusal."""
    verdict, fmt = reading_of(c)
    is_followed = fmt is None or fmt.factors is None or task != "placed"
    require(is_followed, "parameters: factors of fewer bits are not followed", NOT_CHECKABLE)
    kind = f"{task}, {verdict.lower()}{IN_DTYPE * (fmt is not None)}"
    require(kind in TABLES, "wrong inputs in a dtype are not checked", NOT_CHECKABLE)
    if fmt is not None and verdict == "REFUTED":
        case = c.get("counterexample")
        is_named = isinstance(case, dict) and "run_as" in case or "counterexample.run_as" not in TABLES[kind]
        require(is_named, "a wrong input whose evaluation is not named is not run again", NOT_CHECKABLE)
        compare(c, {"inputs_covered": "1"})
    return verdict, fmt, walk(c, kind)


def reading_of(c: Mapping[str, object]) -> tuple[str, BinaryFormat | None]:
    """The verdict, and the format of one in a dtype; None in real arithmetic."""
    if as_text(c.get("reading")) != as_text(READING):
        return header(c), None
    require(as_text(c.get("method")) == '"certified"', "method: is not checked in a dtype", NOT_CHECKABLE)
    verdict, p = verdict_of(c), c.get("parameters")
    said = [p.get("precision"), p.get("accumulate")] if isinstance(p, dict) else [None] * 2
    fmt, inner = format_of(said[0]), format_of(said[0] if said[1] is None else said[1])
    if said[0] == "tf32" and said[1] in (None, "float32"):
        fmt = inner = TF32
    known = fmt is not None and inner is not None
    require(known, "parameters: the precision or accumulate is not checked", NOT_CHECKABLE)
    assert fmt is not None and inner is not None
    is_wider = inner.p >= fmt.p and inner.least <= fmt.least and inner.most >= fmt.most
    require(is_wider, "parameters: sums in a narrower format are not checked", NOT_CHECKABLE)
    return verdict, fmt


def contract(p: FormatSaid, sums: str = "", more: Sequence[str] = (), softmax: str = "", small: str = "") -> list[str]:
    """What a certificate in a dtype must say of its evaluations."""
    name = in_words(p["precision"])
    inner = in_words(p.get("accumulate") or ("float32" if name == "tf32" else name))
    inside, products = f"every operation in {name}", MATRIX_PRODUCTS.get(name)
    if name == "tf32":
        name, inside = inner, f"factors of matrix products rounded to {TF32.factors} bits, everything else in {inner}"
    elif inner != name:
        inside = f"what is inside a matrix product or a softmax in {inner}, stored in {name}"
    of_exp = f"exp is within 2 units in the last place of its value, and exp(0) = 1{small}"
    return [
        f"weights rounded once to {name}; {inside}, to nearest or keeping more bits",
        *([products] if products else []),
        f"sums in any order, fused or not; subnormals kept or flushed{sums}",
        *more,
        f"softmax subtracts the maximum{softmax}; {of_exp}",
    ]
