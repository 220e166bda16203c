"""What no weights can do: a statement, the argument for it, a witness, and checks that were run."""

from __future__ import annotations

from dataclasses import dataclass

IMPOSSIBLE = "IMPOSSIBLE"
SEEDS = 2**63  # torch takes seeds below it
UNKNOWN = "UNKNOWN"


def seeds(seed: int, number: int) -> list[int]:
    """The seeds of `number` random models, others for another seed, whatever its size.

    >>> seeds(1, 3), max(seeds(2**70, 3)) < SEEDS
    ([3, 4, 5], True)
    """
    return [(seed * number + i) % SEEDS for i in range(number)]


@dataclass(frozen=True)
class Impossibility:
    """An argument with its witness and the checks that were run; `holds` says whether all came out as it says."""

    claim: str
    statement: str
    argument: tuple[str, ...]
    witness: dict[str, object]
    checks: dict[str, object]
    holds: bool

    @property
    def verdict(self) -> str:
        """IMPOSSIBLE, or UNKNOWN where a check disagrees: then the argument shows nothing."""
        return IMPOSSIBLE if self.holds else UNKNOWN

    @property
    def exit_code(self) -> int:
        return 0 if self.holds else 3

    def to_dict(self) -> dict[str, object]:
        """The JSON object: the three keys of every impossible request, then the argument and its checks.

        >>> list(Impossibility("W-5", "no", (), {}, {}, True).to_dict())[:3]
        ['verdict', 'claim', 'reason']
        """
        return {
            "verdict": self.verdict,
            "claim": self.claim,
            "reason": self.statement,
            "argument": list(self.argument),
            "witness": self.witness,
            "checks": self.checks,
            "holds": self.holds,
        }
