"""How `verify.certify` decides a Count01 model, and the command that does the same."""

from __future__ import annotations

from constructions.count01 import Count01Transformer, save
from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How
from verify.frame.judged import check_whole_number
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01

BOUNDS = ("max_digits", "max_noise", "max_length")


def posed(
    module: Count01Transformer,
    how: How,
    *,
    labels: str = "majority-ones",
    max_digits: int | None = None,
    max_noise: int | None = None,
    max_length: int | None = None,
    claim: str | None = None,
) -> tuple[Count01, How]:
    """The model on every prompt of a domain, or on the domain on which it turns out right."""
    for name, bound in zip(BOUNDS, (max_digits, max_noise, max_length), strict=True):
        if bound is not None:
            check_whole_number(name, bound)
    domain = PromptDomain(max_digits, max_noise, max_length)
    return Count01.of(module, labels, domain, method=how.method, reading=how.reading, claim=claim), how


def command(module: Count01Transformer, folder: str, certificate: Certificate, **options: object) -> list[str]:
    """Writes the weights, and returns the command line that decides them again."""
    path = f"{folder}/weights.safetensors"
    save(module, path)
    words = ["verify", "count01", "--weights", path, "--labels", certificate.parameters["labels"]]
    for name in BOUNDS:
        if options.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(options[name])]
    return words + options_of(options)
