"""What a claim is: a statement, its source, its kind, and where its builder, bound and verifier live."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BEHRENS = "Behrens, Biggio, Zdeborova: Counting in Small Transformers"
COUNT01 = "Do Attention Heads Compete or Cooperate during Counting?"
GOLKAR = "Golkar et al.: Contextual Counting: A Mechanistic Study of Transformers on a Quantitative Task"
FRAKNOI = "Fraknoi: Solving Mathematical Problems with Transformers"


class Kind(StrEnum):
    """What the claim's command shows, and so the outcome that it promises."""

    BUILT = "built and proved"
    IMPOSSIBLE = "impossible"
    SEARCHED = "found by search at listed sizes"
    SAMPLED = "sampled"


@dataclass(frozen=True)
class Claim:
    """One proposition: its statement and source, and where its builder, bound and verifier live.

    The three places are "module:function" strings, so that listing the claims imports none of them.
    """

    id: str
    statement: str
    source: str
    builder: str
    bound: str
    verifier: str
    command: str
    kind: Kind = Kind.BUILT
