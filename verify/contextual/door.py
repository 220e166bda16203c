"""How `verify.certify` decides a contextual counting model, and the command that does the same."""

from __future__ import annotations

from typing import Any

from constructions.contextual.transformer import ContextualCountingTransformer, save
from verify.arithmetic.readings import Reading, options_of
from verify.certificate import CERTIFIED, Certificate
from verify.contextual.verdict import ContextualCounting, domain_of
from verify.decide import Effort, decide


def certify(
    module: ContextualCountingTransformer,
    *,
    length: int | None = None,
    regions: int | None = None,
    exactly: bool = False,
    zeros: int | None = None,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    budget: float = 30.0,
    seed: int = 0,
    claim: str | None = None,
) -> Certificate:
    """Decides the model on every valid string of up to `length` tokens, and every prompt."""
    N = len(module.b_out) - 1 if length is None else length
    domain = domain_of(module, N, regions=regions, exactly=exactly, zeros=zeros)
    return decide(ContextualCounting(module, domain, claim), reading, method, Effort(budget, seed))


def command(module: ContextualCountingTransformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    save(module, path)
    words = ["verify", "contextual", "--weights", path, "--on-length", str(certificate.parameters["length"])]
    words += ["--on-regions", str(certificate.parameters["regions"])] + ["--exactly"] * bool(options.get("exactly"))
    words += [] if options.get("zeros") is None else ["--zeros", str(options["zeros"])]
    return words + options_of(options)
