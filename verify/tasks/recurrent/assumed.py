"""What a verdict about a recurrent network takes for granted, in each reading."""

from __future__ import annotations

import torch

from constructions.errors import BadInput
from verify.arithmetic.contract import STORED, rounding
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Rounded
from verify.arithmetic.torch_settings import assumed


def assumptions(
    reading: Reading, network: str, *, run: str, functions: str, right: str, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The assumptions of a reading: `network` is its formula, `run` how torch runs it, `right` what right means.

    `more` are further ones of torch's runs.
    `functions` are the elementary functions that are within 2 units in the last place.
    Raises: BadInput for constant-bit arithmetic, which recurrent networks do not have.
    """
    if isinstance(reading, ConstantBits):
        raise BadInput("precision=sN: recurrent networks have no constant-bit reading. Use real, a format, or pN.")
    if isinstance(reading, Kernel):
        return network, f"torch {torch.__version__} on {run}", *more, right
    if isinstance(reading, Rounded):
        return (
            network,
            rounding(reading.format, reading.accumulate),
            *assumed(reading.format),
            "sums in any order, fused or not; subnormals kept or flushed",
            f"{functions} within 2 units in the last place of {'its' if functions.endswith('is') else 'their'} value",
            right,
        )
    return f"{network}, in real arithmetic", STORED, right
