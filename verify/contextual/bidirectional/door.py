"""How `verify.certify` decides a bidirectional contextual counting model, and the command that does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from constructions.contextual import bidirectional
from constructions.contextual.bidirectional import BidirectionalContextualTransformer
from verify.arithmetic.readings import Reading, options_of
from verify.certificate import CERTIFIED, Certificate
from verify.contextual.bidirectional.task import Bidirectional
from verify.decide import Effort, decide


def certify(
    module: BidirectionalContextualTransformer,
    *,
    length: int | None = None,
    regions: int | None = None,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    budget: float = 30.0,
    seed: int = 0,
    claim: str | None = None,
) -> Certificate:
    """Decides the model on every valid string of up to `length` tokens, and every prompt."""
    problem = Bidirectional.of(module, length=length, regions=regions, claim=claim)
    return decide(problem, reading, method, Effort(budget, seed))


def command(
    module: BidirectionalContextualTransformer, folder: str, certificate: Certificate, **options: Any
) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    Path(path).write_bytes(bidirectional.as_bytes(module))
    words = ["verify", "bidirectional", "--weights", path, "--on-length", str(certificate.parameters["length"])]
    return [*words, "--on-regions", str(certificate.parameters["regions"]), *options_of(options)]
