"""The task: a causal model that knows positions, the strings it is judged on, and what is right."""

from __future__ import annotations

from dataclasses import dataclass

from verify.arithmetic.formats import Format
from verify.frame.clock import Deadline
from verify.tasks.contextual.bidirectional.task import OnStrings
from verify.tasks.contextual.positional import MODEL
from verify.tasks.contextual.positional.proof import PositionalProof


@dataclass(frozen=True)
class Positional(OnStrings):
    """One causal model with positions: a `Decidable`.

    >>> from constructions.contextual_with_positions_arrays import build
    >>> from verify.frame.decide import certify
    >>> certify(Positional.of(build(16, 2, "alibi"))).verdict.value
    'PROVED'
    """

    task = "contextual counting with positions"
    judges = MODEL
    is_causal = True
    computes = (
        "x = E + positions; x' = x + softmax(rot(x W_Q) rot(x W_K)^T - slope (i - j), causal) x W_V W_O; "
        "x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; z = softmax(P U_Q (x'' U_K)^T) x'' U_V; "
        "logits = (z + ReLU(z W_3 + b_3) W_4 + b_4) W_out + b_out"
    )

    def proof(self, fmt: Format | None, until: Deadline) -> PositionalProof:
        return PositionalProof(self.weights, self.domain.N, self.domain.R, fmt, until)

    def positions(self) -> dict[str, object]:
        return {"slope": float(self.module.slope)}
