"""How `verify.certify` decides a bidirectional contextual counting model, and the command that does the same."""

from __future__ import annotations

from pathlib import Path

from constructions.contextual import bidirectional
from constructions.contextual.bidirectional import BidirectionalContextualTransformer
from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How
from verify.tasks.contextual.bidirectional.task import Bidirectional


def posed(
    module: BidirectionalContextualTransformer,
    how: How,
    *,
    length: int | None = None,
    regions: int | None = None,
    claim: str | None = None,
) -> tuple[Bidirectional, How]:
    """The model on every valid string of up to `length` tokens, and every prompt."""
    return Bidirectional.of(module, length=length, regions=regions, claim=claim), how


def command(
    module: BidirectionalContextualTransformer, folder: str, certificate: Certificate, **options: object
) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    Path(path).write_bytes(bidirectional.as_bytes(module))
    words = ["verify", "bidirectional", "--weights", path, "--length", str(certificate.parameters["length"])]
    return [*words, "--on-regions", str(certificate.parameters["regions"]), *options_of(options)]
