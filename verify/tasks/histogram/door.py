"""How `verify.certify` decides a histogram model, and the command that does the same."""

from __future__ import annotations

from constructions import checkpoint
from constructions.histogram import HistogramTransformer
from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How
from verify.tasks.histogram.every_reading import problem
from verify.tasks.histogram.problem import Histogram


def posed(
    module: HistogramTransformer, how: How, *, L: int | None = None, claim: str | None = None
) -> tuple[Histogram, How]:
    """The model on all T^L sequences."""
    return problem(module, L=L, claim=claim), how


def command(module: HistogramTransformer, folder: str, certificate: Certificate, **options: object) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    checkpoint.save(module, path, claim=None, construction=None)
    words = ["verify", "histogram", "--weights", path, "--L", str(certificate.parameters["L"])]
    return words + options_of(options)
