"""The registry: every claim that has a builder, a bound and a verifier, one literal table per task."""

from verify.claims import (
    addition,
    circuit,
    contextual,
    count01,
    histogram,
    inductive_ceilings,
    inductive_transformers,
    kernel,
    modular,
    module,
    parity,
    recurrent,
)
from verify.claims.claim import Claim, Ending, Kind

CLAIMS: tuple[Claim, ...] = (
    *histogram.CLAIMS,
    *count01.CLAIMS,
    *circuit.CLAIMS,
    *contextual.CLAIMS,
    *modular.CLAIMS,
    *module.CLAIMS,
    *addition.CLAIMS,
    *parity.CLAIMS,
    *inductive_transformers.CLAIMS,
    *inductive_ceilings.CLAIMS,
    *recurrent.CLAIMS,
    *kernel.CLAIMS,
)

__all__ = ["CLAIMS", "Claim", "Ending", "Kind"]
