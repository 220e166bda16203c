"""Every claim that has a builder, a bound and a verifier: the tasks' own, from their folders, and the kernel's."""

from typing import TYPE_CHECKING

from verify.frame import registry
from verify.frame.claim import Claim, Ending, Kind

if TYPE_CHECKING:
    CLAIMS: tuple[Claim, ...]

__all__ = ["CLAIMS", "Claim", "Ending", "Kind"]


def __getattr__(name: str) -> tuple[Claim, ...]:
    """CLAIMS is looked up when it is asked for: a task's claims are made of what this package defines."""
    if name != "CLAIMS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from verify.claims import kernel

    return tuple(claim for part in (*registry.parts("claims"), kernel) for claim in part.CLAIMS)
