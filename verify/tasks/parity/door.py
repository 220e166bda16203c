"""How `verify.certify` decides a parity model, and the command that does the same."""

from __future__ import annotations

from pathlib import Path

from constructions import parity
from constructions.parity import ParityTransformer
from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How
from verify.tasks.parity.task import Parity


def posed(module: ParityTransformer, how: How, *, claim: str | None = None) -> tuple[Parity, How]:
    """The model on all T^L sequences."""
    return Parity(module, claim), how


def command(module: ParityTransformer, folder: str, certificate: Certificate, **options: object) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    Path(path).write_bytes(parity.as_bytes(module))
    return ["verify", "parity", "--weights", path, "--L", str(module.L), *options_of(options)]
