"""Three different ways of not getting a construction, and how a message shows what was asked for."""

from __future__ import annotations

import math


class BadInput(ValueError):
    """An argument breaks a rule: the message names it, its value, the rule and a way out."""


class ProvedImpossible(BadInput):
    """No weights of the asked shape can do it, and there is a proof: `claim` is the id of the claim that it is.

    >>> ProvedImpossible("W-5", "p=1: one neuron cannot count here. Use --p 4.").claim
    'W-5'
    """

    def __init__(self, claim: str, reason: str) -> None:
        super().__init__(reason)
        self.claim = claim


class NotKnown(BadInput):
    """No construction is known for the asked shape; nobody says that none exists."""


def shown(value: object, most: int = 60) -> str:
    """The value as one short line for a message: long texts are cut, and so are integers.

    >>> shown("a" * 100, 30), shown(-(10**5000))
    ("'aaaaaaaaa... (102 characters)", '-(an integer of about 5001 digits)')
    """
    if isinstance(value, int) and value.bit_length() > 128:
        digits = int(value.bit_length() * math.log10(2)) + 1
        return f"{'-' if value < 0 else ''}(an integer of about {digits} digits)"
    text = repr(value)
    if len(text) <= most:
        return text
    end = f"... ({len(text)} characters)"
    return text[: max(1, most - len(end))] + end
