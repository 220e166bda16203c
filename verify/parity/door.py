"""How `verify.certify` decides a parity model, and the command that does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from constructions import parity
from constructions.parity import ParityTransformer
from verify.arithmetic.readings import Reading, options_of
from verify.certificate import CERTIFIED, Certificate
from verify.decide import Effort, decide
from verify.parity.task import Parity


def certify(
    module: ParityTransformer,
    *,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    budget: float = 30.0,
    seed: int = 0,
    claim: str | None = None,
) -> Certificate:
    """Decides the model on all T^L sequences."""
    return decide(Parity(module, claim), reading, method, Effort(budget, seed))


def command(module: ParityTransformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    Path(path).write_bytes(parity.as_bytes(module))
    return ["verify", "parity", "--weights", path, "--L", str(module.L), *options_of(options)]
