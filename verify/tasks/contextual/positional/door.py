"""How `verify.certify` decides a contextual counting model with positions, and the command that does the same."""

from __future__ import annotations

from pathlib import Path

from constructions.contextual import positional
from constructions.contextual.positional import PositionalContextualTransformer
from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How
from verify.tasks.contextual.positional.task import Positional


def posed(
    module: PositionalContextualTransformer,
    how: How,
    *,
    length: int | None = None,
    regions: int | None = None,
    claim: str | None = None,
) -> tuple[Positional, How]:
    """The model on every valid string of up to `length` tokens, and every prompt."""
    return Positional.of(module, length=length, regions=regions, claim=claim), how


def command(
    module: PositionalContextualTransformer, folder: str, certificate: Certificate, **options: object
) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    Path(path).write_bytes(positional.as_bytes(module))
    words = ["verify", "contextual", "--weights", path, "--length", str(certificate.parameters["length"])]
    return [*words, "--on-regions", str(certificate.parameters["regions"]), *options_of(options)]
