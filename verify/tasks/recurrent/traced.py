"""The step of a recurrent network that torch traced, as `verify check` follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verify.frame.certificate import Certificate, Verdict
from verify.tasks.recurrent.kinds import is_residual

if TYPE_CHECKING:
    from verify.frame.decide import Decidable


def program(problem: Decidable, certificate: Certificate) -> dict[str, object]:
    """The traced step where `verify check` follows it; else nothing.

    That is so of layers round cells up to a length, and of proofs about whole blocks in a format.
    """
    from verify.tasks.recurrent.selective import Selective
    from verify.tasks.recurrent.task import Homogeneous

    is_proof = certificate.verdict is Verdict.PROVED
    if isinstance(problem, Homogeneous | Selective):
        if not is_residual(problem.model) or not is_proof or certificate.reading == "real":
            return {}
        from verify.module.program import of_step  # loads torch's tracer

        return {"program": of_step(problem.step, problem.model)}
    from verify.module.recurrent import RecurrentProblem

    if not isinstance(problem, RecurrentProblem) or is_proof and problem.length is None:
        return {}
    from verify.module.program import of_step

    return {"program": of_step(problem.graph, problem.module)}
