"""How `verify.certify` decides a contextual counting model, and the command that does the same."""

from __future__ import annotations

from typing import Any

from constructions.contextual.transformer import ContextualCountingTransformer, save
from constructions.errors import BadInput
from verify.arithmetic.readings import ConstantBits, Reading, Rounded, options_of
from verify.certificate import CERTIFIED, EXHAUSTIVE, Certificate
from verify.contextual import dtype, verdict
from verify.decide import running


def certify(
    module: ContextualCountingTransformer,
    *,
    length: int | None = None,
    regions: int | None = None,
    exactly: bool = False,
    zeros: int | None = None,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    claim: str | None = None,
) -> Certificate:
    """Decides the model on every valid string of up to `length` tokens, and every prompt."""
    N = len(module.b_out) - 1 if length is None else length
    domain = verdict.domain_of(module, N, regions=regions, exactly=exactly, zeros=zeros)
    if isinstance(reading, ConstantBits):
        raise BadInput(f"reading={reading}: contextual counting has no constant-bit arithmetic. Use real, or a dtype.")
    if method == EXHAUSTIVE:
        running(reading, method)
        return verdict.exhaustive(module, domain, claim=claim)
    if method != CERTIFIED:
        raise BadInput(f"method={method!r}: a contextual counting model is decided by certified or exhaustive.")
    if isinstance(reading, Rounded):
        return dtype.certify_in(module, domain, reading.format, claim=claim)
    return verdict.certify(module, domain, claim=claim)


def command(module: ContextualCountingTransformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    save(module, path)
    words = ["verify", "contextual", "--weights", path, "--on-length", str(certificate.parameters["length"])]
    words += ["--on-regions", str(certificate.parameters["regions"])] + ["--exactly"] * bool(options.get("exactly"))
    words += [] if options.get("zeros") is None else ["--zeros", str(options["zeros"])]
    return words + options_of(options)
