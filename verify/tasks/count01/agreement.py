"""Inputs of a proof, run through the module: does float evaluation contradict what was proved?

A run can tell where the reading "dtype, any order" is proved on the run's own input in the module's dtype: then every
order of evaluation gives the right token, and a wrong one means that the module is not what was proved about, or that
the proof is wrong.
"""

from __future__ import annotations

from typing import Any

from constructions.count01 import TOKENS, Count01Transformer
from verify.arithmetic.any_order import Arithmetic
from verify.arithmetic.formats import KERNELS, format_of
from verify.arithmetic.torch_settings import lowered
from verify.tasks.count01.boxes import decide_boxes
from verify.tasks.count01.runs import describe, replay
from verify.tasks.count01.task import EOS, EQUALS, Domain, answer

LONGEST_RUN = 2048  # digits
Prompt = tuple[tuple[int, int, int], int]


def contradiction(
    model: Count01Transformer, labels: str, domain: Domain, tightest: dict[str, Any] | None
) -> str | None:
    """Runs prompts of the domain, and says what contradicts the proof. None where all agree, or none can tell."""
    fmt = format_of(model.dtype)
    if fmt.name not in KERNELS or lowered(fmt) or model.has_norm or model.scale != 1:
        return None
    for n, last in prompts(domain, tightest):
        due = answer(n[0], n[1], labels) if last == EQUALS else EOS
        found = replay(model, n, last, due)
        if found["fails"] and decide_boxes(model, labels, around(n), Arithmetic.of(fmt)).is_proved:
            return f"the module answers {found['predicted']} at {describe(n, last, due)}"
    return None


def prompts(domain: Domain, tightest: dict[str, Any] | None) -> list[Prompt]:
    """The tightest prompt where it is one, and the shortest ones with a tie and with one more 1."""
    low, _, noise = domain.origin
    found: list[Prompt] = [((low, low, noise), EQUALS), ((low, low + 1, noise), EQUALS)]
    at = (tightest or {}).get("at")
    if isinstance(at, list | tuple) and all(isinstance(x, int) for x in at) and tightest is not None:
        n0, n1, n2 = at
        found.insert(0, ((n0, n1, n2), TOKENS.index(str(tightest["last"]))))
    return [(n, last) for n, last in found if n in domain and sum(n) <= LONGEST_RUN and last in domain.lasts]


def around(n: tuple[int, int, int]) -> Domain:
    """The smallest domain that holds these counts."""
    return Domain(max(n[0], n[1]), n[2], min_digits=min(n[0], n[1]), min_noise=n[2])
