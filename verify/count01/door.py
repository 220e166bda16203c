"""How `verify.certify` decides a Count01 model, and the command that does the same."""

from __future__ import annotations

from typing import Any

from constructions.count01 import Count01Transformer, save
from constructions.errors import BadInput
from verify.arithmetic.readings import ConstantBits, Reading, Rounded, options_of
from verify.certificate import CERTIFIED, EXHAUSTIVE, Certificate
from verify.count01 import bits, verdict
from verify.count01.task import Region
from verify.decide import running
from verify.judged import check_whole_number

BOUNDS = ("max_digits", "max_noise", "max_length")


def certify(
    module: Count01Transformer,
    *,
    labels: str = "majority-ones",
    max_digits: int | None = None,
    max_noise: int | None = None,
    max_length: int | None = None,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    claim: str | None = None,
) -> Certificate:
    """Decides the model on every prompt of a region, or finds the region on which it is right."""
    for name, bound in zip(BOUNDS, (max_digits, max_noise, max_length), strict=True):
        if bound is not None:
            check_whole_number(name, bound)
    region = Region(max_digits, max_noise, max_length)
    if method == EXHAUSTIVE:
        if isinstance(running(reading, method), ConstantBits):
            raise BadInput("method=exhaustive: constant-bit arithmetic runs all strings itself. Use certified.")
        return verdict.exhaustive(module, labels, region, claim=claim)
    if method != CERTIFIED:
        raise BadInput(f"method={method!r}: a Count01 model is decided by certified or exhaustive.")
    if isinstance(reading, ConstantBits):
        return bits.certify(module, labels, region, reading.s, claim=claim)
    fmt, accumulate = (reading.format, reading.accumulate) if isinstance(reading, Rounded) else (None, None)
    return verdict.certify(module, labels, region, fmt=fmt, accumulate=accumulate, claim=claim)


def command(module: Count01Transformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    save(module, path)
    words = ["verify", "count01", "--weights", path, "--labels", certificate.parameters["labels"]]
    for name in BOUNDS:
        if options.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(options[name])]
    return words + options_of(options)
