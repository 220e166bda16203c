"""What a certificate about a module in a format must assume of evaluations (docs/precision.md)."""

from verify.checker import module
from verify.checker.any_order import READING, reading_of
from verify.checker.formats import BinaryFormat, format_of
from verify.checker.reading import NOT_CHECKABLE, as_text, require
from verify.checker.records import TokensVerdict

ONCE = "each result rounded once"
OF_FACTORS = BinaryFormat(11, -126, 127, 11)  # in tf32: any result may be a factor, or kept with float32's 2p + 2 bits
MOST_OF_FEW_BITS = 16  # of formats whose sums in a wider one make LayerNorm one operation
FUNCTIONS = "exp, log, log1p, expm1, erf, tanh, sigmoid, sin, cos, roots within 8 u of their value; GELU, SiLU of |x|"
LARGEST_SO_FAR = (
    "softmax subtracts the largest score so far and may rescale by later ones; exp within 8 u of its sums' format"
)
MEAN_OF_SQUARES = "the mean of squares (one pass, two passes, Welford)"
ASSUMED = {
    "plain": [
        "each operation is rounded to nearest, or kept with 2p + 2 bits; sums in any order, products fused or not",
        FUNCTIONS,
        f"LayerNorm's variance within gamma_(4d+16) of {MEAN_OF_SQUARES}",
        LARGEST_SO_FAR,
    ],
    "wider sums": [
        "an operation reads each result rounded to nearest, or kept with 2p + 2 bits; sums in float32, in any order",
        "LayerNorm is one operation in float32, its variance within gamma_(4d+16) of it; softmax is one, or several",
        LARGEST_SO_FAR,
        FUNCTIONS,
    ],
    ONCE: [
        "each operation on tensors is computed in float32, sums in any order, and its result rounded once, to nearest",
        "softmax and LayerNorm are one operation each; "
        "attention's scores and weights are rounded once or kept in float32",
        "RMSNorm, GroupNorm, log-softmax, powers and variances are several operations, each rounded or kept wider",
        "exp, log, erf, tanh, sigmoid, sin, cos and roots within 8 u of float32 of their value, before that rounding",
        "stored numbers are rounded to the dtype, Python's numbers to float32 or kept",
        f"LayerNorm's variance within gamma_(4d+16) of float32 of {MEAN_OF_SQUARES}",
    ],
}


def is_rounded(c: TokensVerdict) -> bool:
    """Whether a certificate is about a format."""
    return as_text(c.get("reading")) in map(as_text, (READING, ONCE))


def stated(c: TokensVerdict) -> tuple[str, tuple[BinaryFormat, BinaryFormat], list[str]]:
    """The verdict, the formats of results and of sums, and what such a certificate must assume of evaluations."""
    (verdict, fmt), accumulate = reading_of({**c, "reading": READING}), c["parameters"].get("accumulate")
    assert fmt is not None
    fmt = OF_FACTORS if fmt.factors else fmt
    is_once, has_few = c["reading"] == ONCE, accumulate is not None and fmt.p <= MOST_OF_FEW_BITS and not fmt.factors
    require(not is_once or has_few and accumulate == "float32", "parameters: such sums are not rounded once")
    require(not has_few or accumulate == "float32", "parameters: sums in another format than float32", NOT_CHECKABLE)
    kind = ONCE if is_once else "wider sums" if has_few else "plain"
    return verdict, (fmt, format_of(accumulate) or fmt), [*module.TRACED, *ASSUMED[kind]]
