"""How the numbers of a Count01 model are changed: its readout, on every prompt of a box of counts."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

import torch

from constructions import count01
from constructions.count01 import Count01Transformer
from constructions.errors import BadInput
from verify.arithmetic.readings import Reading
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, check_listed, of_kind
from verify.frame.judged import check_whole_number
from verify.tasks.count01.task import EOS, EQUALS, PromptDomain, answer, kinds, multiplicities
from verify.tasks.count01.verdict import Count01

AFTER = 3  # tokens of a prompt besides its digits: BOS, = and an answer


def load(path: str) -> Count01Transformer:
    """The model of a file."""
    return count01.load(path)


def changeable(
    module: Count01Transformer,
    *,
    max_digits: int | None = None,
    max_noise: int | None = None,
    labels: str | None = None,
) -> Changeable:
    """The model on every prompt with so many digits at most.

    A prompt's answer does not depend on the order of its digits, nor on what comes later, so that all are written
    sorted and filled up to one length.
    Raises: BadInput where a bound is missing.
    """
    if max_digits is None or max_noise is None:
        raise BadInput("max_digits, max_noise: missing. A Count01 model is changed on a box of counts; give both.")
    for name, bound in (("max_digits", max_digits), ("max_noise", max_noise)):
        check_whole_number(name, bound)
        if bound < 0:
            raise BadInput(f"{name}={bound}: must be at least 0.")
    domain, right = PromptDomain(max_digits, max_noise), labels or "majority-ones"
    length = 2 * max_digits + max_noise + AFTER

    def questions() -> Iterator[Questions]:
        number = len(domain.lasts) * domain.size()
        check_listed(number, len(module.W_out) + 1, length, f"max_digits={max_digits}, max_noise={max_noise}")
        digits = range(max_digits + 1)
        triples = list(product(digits, digits, range(max_noise + 1)))
        for last in domain.lasts:
            due = [answer(n0, n1, right) if last == EQUALS else EOS for n0, n1, _ in triples]
            ends = torch.tensor([multiplicities(n, last) for n in triples]).cumsum(1)
            places = torch.arange(length).expand(len(triples), length).contiguous()
            tokens = torch.tensor([*kinds(last), last])[torch.searchsorted(ends, places, right=True)]
            yield Questions(tokens, ends[:, -1] - 1, torch.tensor(due))

    def problem(changed: Count01Transformer, reading: Reading) -> Count01:
        return Count01.of(changed, right, domain, reading=reading)

    judged = of_kind(Count01Transformer, problem, count01.as_bytes)
    return captured.changeable(deepcopy(module).eval(), length, questions, *judged)
