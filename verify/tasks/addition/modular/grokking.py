"""`verify modular --weights` for a trained model in the layout of the grokking checkpoints: judged as any module is.

Its own: which frequencies the embedding holds, the least margin for each a - b, and the pairs that fail.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from constructions.errors import BadInput, shown
from verify.commands.request import Request, decided, publish

if TYPE_CHECKING:
    from torch import Tensor

    from constructions.decoder import Decoder
    from verify.frame.certificate import Certificate
    from verify.module.problem import ModuleProblem

LAYOUT = "embed.W_E"  # a name that only this layout has


def read(path: str) -> dict[str, Tensor] | None:
    """The tensors of a file in the grokking layout, None for a file of another one.

    Raises: BadInput where the file cannot be read.
    """
    from constructions.files import read_tensors
    from constructions.layouts import PROGRESS_MEASURES, likeness

    weights, _ = read_tensors(path, "weightproof")
    if not any(name.endswith(LAYOUT) for name in weights):
        return None
    found = likeness(weights)
    if found is not None and (not found.is_exact or found.layout is not PROGRESS_MEASURES):
        raise BadInput(f"weights={shown(path, 200)}: is no checkpoint of progress-measures. {found.said}")
    return weights


def judge(request: Request, weights: Mapping[str, Tensor], P: int) -> int:
    """Decides all P^2 pairs, prints and saves; the exit code."""
    from safetensors.torch import save

    problem, decoder = problem_of(weights, P)
    certificate = decided(request, problem)
    found = findings(problem, decoder, P)
    certificate = about_pairs(certificate, found, P)
    stored = save({name: value.detach().cpu().clone().contiguous() for name, value in weights.items()})
    extra = certificate.extra
    said = facts(extra["frequency_shares"], extra["margin_per_difference"], extra.get("wrong_inputs") or [])
    return publish(request, certificate, stored, said)


def problem_of(weights: Mapping[str, Tensor], P: int) -> tuple[ModuleProblem, Decoder]:
    """The checkpoint as a problem: tokens a b =, read at =, the classes 0..P-1.

    Raises: BadInput for another P than the file's, or tensors that do not fit.
    """
    from constructions.decoder import from_progress_measures
    from verify.module.inputs import tokens
    from verify.module.problem import ModuleProblem
    from verify.module.task import Task

    decoder = from_progress_measures(weights)
    vocabulary, classes = decoder.W_E.shape[0], decoder.W_U.shape[1]
    if vocabulary != P + 1 or classes < P:
        raise BadInput(
            f"weights: {vocabulary} tokens and {classes} logits, but P={P} asks {P + 1} tokens, the last one for =, "
            f"and {P} logits or more; name --P {vocabulary - 1} if the file was trained for it"
        )
    if decoder.W_pos is None or len(decoder.W_pos) < 3:
        raise BadInput("weights: pos_embed.W_pos has fewer than 3 positions; a b = takes three")
    task = Task(tokens([P, P, [P]]), lambda t: (t[:, 0] + t[:, 1]) % P, -1, range(P))
    return ModuleProblem(decoder, task), decoder


def findings(problem: ModuleProblem, decoder: Decoder, P: int) -> dict[str, object]:
    """Frequencies of the embedding, and a lower bound on the least margin for each a - b, in real arithmetic."""
    import torch

    from verify.arithmetic.readings import Real
    from verify.frame.clock import Deadline
    from verify.tasks.addition.modular.rotation import by_difference, spectrum

    shares = spectrum(decoder.W_E[:P].detach().double().numpy())
    pairs = [(a, b) for a in range(P) for b in range(P)]
    judge, lows = problem.judge(3, Real()), []
    for start in range(0, len(pairs), 4096):
        tokens = torch.tensor([[a, b, P] for a, b in pairs[start : start + 4096]])
        answers = problem.given.answers(tokens, problem.columns(3))
        lows.append(judge.bounds(tokens, answers, Deadline.never()).low)
    least = by_difference(P, pairs, torch.cat(lows).numpy())
    return {
        "frequencies": list(shares.found),
        "frequency_shares": {str(w): shares.shares[w - 1] for w in shares.found},
        "margin_per_difference": [float(x) if math.isfinite(x) else None for x in least],
    }


def about_pairs(certificate: Certificate, found: Mapping[str, object], P: int) -> Certificate:
    """The certificate with pairs [a, b] for inputs, and what was found."""
    extra = {**certificate.extra, **found}
    extra["wrong_inputs"] = [row[:2] for row in extra.get("wrong_inputs", [])]
    wrong, tightest = (
        None if shown is None else {**shown, "input": list(shown["input"])[:2]}
        for shown in (certificate.counterexample, certificate.tightest)
    )
    if wrong is not None:
        for key in ("expected", "predicted"):
            value = wrong.get(key)
            wrong[key] = value[0] if isinstance(value, list) and len(value) == 1 else value
    parameters = {"P": P, **certificate.parameters}
    return dataclasses.replace(
        certificate, task="modular", extra=extra, parameters=parameters, counterexample=wrong, tightest=tightest
    )


def facts(
    shares: Mapping[str, float], by_difference: Sequence[float | None], wrong: Sequence[Sequence[int]]
) -> list[tuple[str, str]]:
    """Lines of the report."""
    from verify.arithmetic.outward import below

    named = ", ".join(f"{w} ({100 * share:.1f} %)" for w, share in shares.items())
    lines = [("frequencies", f"{named} of the embedding's variance")]
    known = [(x, d) for d, x in enumerate(by_difference) if x is not None]
    if known:
        low, at = min(known)
        high, best = max(known)
        lines.append(("by a - b", f"least margin {below(low)} at {at}, largest {below(high)} at {best}"))
    if wrong:
        shown = ", ".join(f"{a}+{b}" for a, b in wrong[:8])
        lines.append(("pairs", f"wrong: {shown}{', ...' if len(wrong) > 8 else ''}"))
    return lines
