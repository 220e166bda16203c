"""What each reading takes for granted, in one text for all tasks; docs/precision.md says it in full."""

from __future__ import annotations

from dataclasses import dataclass

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import Format
from verify.arithmetic.torch_settings import assumed

STORED = "the weights are the stored numbers, exactly"

EVERY = "every run that the reading allows"  # of those which a wrong answer may be of
EXACTLY_KEPT = "every result kept exactly, and factors of matrix products rounded"
ARGUMENT_RUN = "one run of those that the reading allows"
TRACED = ("torch.export traced the module faithfully", "the module is called on a batch of one input")


@dataclass(frozen=True)
class Contract:
    """The assumptions on a kernel in the reading "dtype, any order", beyond the rounding of each operation.

    `scores` says how scores are scaled, `normalised` when softmax divides, `sums` what one sum keeps to, `products`
    in which order a chain of matrix products is taken; empty where the proof covers every way. `is_exp_small` says
    that a result of exp below the smallest normal number lies between 0 and twice the exact value.
    """

    scores: str = ""
    normalised: str = ""
    sums: str = ""
    products: str = ""
    is_exp_small: bool = False

    def text(self, fmt: Format, accumulate: Format | None = None) -> tuple[str, ...]:
        """The sentences that a certificate carries.

        Raises: BadInput for an accumulation with fewer bits than the format.

        >>> from verify.arithmetic.formats import FORMATS
        >>> for sentence in Contract().text(FORMATS["bfloat16"], FORMATS["float32"]):
        ...     print(sentence)
        weights rounded once to bfloat16; what is inside a matrix product or a softmax in float32, stored in bfloat16,
        to nearest or keeping more bits
        sums in any order, fused or not; subnormals kept or flushed
        softmax subtracts the maximum; exp is within 2 units in the last place of its value, and exp(0) = 1
        """
        softmax = "softmax subtracts the maximum" + (f", {self.normalised}" if self.normalised else "")
        small = ", and results below the smallest normal number lie between 0 and twice the exact value"
        orders = "sums in any order, fused or not; subnormals kept or flushed"
        return (
            rounding(fmt, accumulate),
            *assumed(fmt),
            orders + (f"; {self.sums}" if self.sums else ""),
            *(sentence for sentence in (self.scores, self.products) if sentence),
            f"{softmax}; exp is within 2 units in the last place of its value, and exp(0) = 1"
            + (small if self.is_exp_small else ""),
        )


def rounding(fmt: Format, accumulate: Format | None) -> str:
    """Which operations round to which format.

    >>> from verify.arithmetic.formats import FORMATS
    >>> rounding(FORMATS["float16"], None)
    'weights rounded once to float16; every operation in float16, to nearest or keeping more bits'
    """
    arithmetic = RoundedArithmetic.of(fmt, accumulate)
    inner, stored = arithmetic.inner.name, arithmetic.stored.name
    inside = f"what is inside a matrix product or a softmax in {inner}, stored in {stored}"
    if fmt.name == "tf32":
        inside = "factors of matrix products rounded to 11 bits, everything else in float32"
    elif arithmetic.inner is arithmetic.stored:
        inside = f"every operation in {fmt.name}"
    return f"weights rounded once to {stored}; {inside}, to nearest or keeping more bits"


def constant_bits(s: int) -> str:
    """The machine of s bits in one line."""
    return (
        f"constant-bit arithmetic, s={s}: weights and every operation rounded to multiples of 2^-{s}, ties to the "
        f"smaller magnitude, saturating at 2^{s} - 2^-{s}; sums from left to right; softmax subtracts no maximum"
    )
