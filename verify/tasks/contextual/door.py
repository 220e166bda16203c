"""How `verify.certify` decides a contextual counting model, and the command that does the same."""

from __future__ import annotations

from constructions.contextual.transformer import ContextualCountingTransformer, save
from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How
from verify.tasks.contextual.verdict import ContextualCounting, domain_of


def posed(
    module: ContextualCountingTransformer,
    how: How,
    *,
    length: int | None = None,
    regions: int | None = None,
    exactly: bool = False,
    zeros: int | None = None,
    claim: str | None = None,
) -> tuple[ContextualCounting, How]:
    """The model on every valid string of up to `length` tokens, and every prompt."""
    N = len(module.b_out) - 1 if length is None else length
    domain = domain_of(module, N, regions=regions, exactly=exactly, zeros=zeros)
    return ContextualCounting(module, domain, claim), how


def command(
    module: ContextualCountingTransformer, folder: str, certificate: Certificate, **options: object
) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    save(module, path)
    words = ["verify", "contextual", "--weights", path, "--length", str(certificate.parameters["length"])]
    words += ["--on-regions", str(certificate.parameters["regions"])] + ["--exactly"] * bool(options.get("exactly"))
    words += [] if options.get("zeros") is None else ["--zeros", str(options["zeros"])]
    return words + options_of(options)
