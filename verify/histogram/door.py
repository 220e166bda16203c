"""How `verify.certify` decides a histogram model, and the command that does the same."""

from __future__ import annotations

from typing import Any

from constructions import checkpoint
from constructions.histogram import HistogramTransformer
from verify.arithmetic.readings import Reading, options_of
from verify.certificate import CERTIFIED, Certificate
from verify.decide import Effort, decide
from verify.histogram.every_reading import problem


def certify(
    module: HistogramTransformer,
    *,
    L: int | None = None,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    budget: float = 30.0,
    seed: int = 0,
    claim: str | None = None,
) -> Certificate:
    """Decides the model on all T^L sequences."""
    effort = Effort(budget, seed)
    return decide(problem(module, L=L, claim=claim), reading, method, effort)


def command(module: HistogramTransformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    checkpoint.save(module, path, claim=None, construction=None)
    words = ["verify", "histogram", "--weights", path, "--L", str(certificate.parameters["L"])]
    return words + options_of(options)
