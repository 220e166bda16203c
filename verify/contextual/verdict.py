"""Contextual counting: decides a model on every valid string of a domain and every prompt."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from constructions.contextual.transformer import ContextualCountingTransformer
from constructions.errors import BadInput
from verify.certificate import CERTIFIED, EXHAUSTIVE, READING_BIT_EXACT, READING_REAL, Certificate, Verdict
from verify.contextual.cells import CellProof, Cells
from verify.contextual.runs import candidates, counterexample, judge
from verify.contextual.stream import StoredContextual
from verify.contextual.task import Domain, answers, parse
from verify.decide import BUG, EVERY_INPUT
from verify.judged import check_judged, check_whole_number

FEW_STRINGS = 3000  # decided one by one where cells leave something open
LARGEST_RUN = 2_000_000
MOST_CANDIDATES, MOST_TOKENS = 400, 10**6  # strings tried against undecided cells, and their tokens
ASSUMES = (
    "encoder x' = x + softmax(x W_Q (x W_K)^T, causal) x W_V W_O, x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; "
    "logits = softmax(P U_Q (x'' U_K)^T) x'' U_V W_out + b_out",
    "the weights are the stored numbers, exactly; the prompts are 1..R, and a region that is not there counts 0",
    "right means: the right class has strictly the largest logit",
)


def domain_of(
    module: ContextualCountingTransformer,
    N: int,
    *,
    regions: int | None = None,
    exactly: bool = False,
    zeros: int | None = None,
) -> Domain:
    """The strings to judge a model on; without BOS the empty string is left out, as there is nothing to attend to.

    Raises: BadInput for impossible sizes, or counts that the model has no class for.
    """
    check_judged(module, ContextualCountingTransformer)
    check_whole_number("length", N)
    R = module.R if regions is None else regions
    check_whole_number("regions", R)
    domain = Domain(N, R, R if exactly else 0, 0 if module.has_bos else 1, zeros)
    classes = len(module.b_out)
    if R and classes <= N - 2:
        raise BadInput(f"length={N}: the model has classes 0 to {classes - 1}; use --length {classes + 1} or less")
    return domain


def certify(
    module: ContextualCountingTransformer, domain: Domain, *, claim: str | None = None, **named: Any
) -> Certificate:
    """PROVED, REFUTED or UNKNOWN in the reading "real", from the stored weights alone.

    Claim: B-2.1, B-2.2, B-3.4. `named` are further parameters for the certificate.
    Raises: BadInput for weights that are not finite.

    >>> from constructions.contextual_counting import build
    >>> module = build(64, 3)
    >>> certify(module, domain_of(module, 64)).verdict.value
    'PROVED'
    """
    started = time.perf_counter()
    stored = StoredContextual.of(module)
    with np.errstate(invalid="ignore", over="ignore"):  # such cells stay open
        found = compared(decided(module, stored, domain, claim, named), module, stored, domain)
    return replace(found, seconds=time.perf_counter() - started)


def compared(
    certificate: Certificate, module: ContextualCountingTransformer, stored: StoredContextual, domain: Domain
) -> Certificate:
    """The proof, or UNKNOWN where a run of the module contradicts it."""
    from verify.contextual.agreement import contradiction

    if certificate.verdict is not Verdict.PROVED:
        return certificate
    disagrees = contradiction(module, stored, domain, certificate.tightest)
    if disagrees is None:
        return certificate
    return replace(
        certificate,
        verdict=Verdict.UNKNOWN,
        margin=None,
        tightest=None,
        inputs_covered=0,
        reason=f"{disagrees}: {BUG}",
    )


def decided(
    module: ContextualCountingTransformer,
    stored: StoredContextual,
    domain: Domain,
    claim: str | None,
    named: dict[str, Any],
) -> Certificate:
    """The certificate of `certify`, without the time."""
    proof = CellProof(stored, domain)
    cells = list(proof.decide())
    tightest = min(cells, key=lambda c: float(c.margin.min()))
    where = {
        "prompt": tightest.r,
        "count": int(tightest.margin.argmin()),
        "regions": [tightest.fewest, tightest.most],
    }
    margin, method = float(tightest.margin.min()), "cells of strings"
    found = reason = None
    judged = [(cells, domain)]
    if not margin > 0:
        found = find_failure(module, stored, proof, cells, domain)
        if found is None and are_few(domain):
            margin, method, where = strings_margin(stored, proof, domain), "string by string", {}
        if domain.zeros is None:  # strings without 0 are a telling part of the domain
            only_ones = replace(domain, zeros=0)
            judged.append((list(CellProof(stored, only_ones).decide()), only_ones))
    verdict = Verdict.REFUTED if found else Verdict.PROVED if margin > 0 else Verdict.UNKNOWN
    if verdict is Verdict.UNKNOWN:
        reason = f"undecided at prompt {tightest.r}, count {tightest.margin.argmin()}, and no failing string found"
    lengths = {str(M): right_lengths(judged, M) for M in range(domain.fewest, domain.most + 1)}
    return certificate(
        module,
        domain,
        verdict,
        READING_REAL,
        method,
        claim,
        named,
        margin=margin if verdict is Verdict.PROVED else failing_margin(module, found) if found else None,
        tightest=(where or None) if verdict is Verdict.PROVED else None,
        counterexample=found,
        assumptions=ASSUMES,
        reason=reason,
        extra={"right_lengths": lengths},
    )


def certificate(
    module: ContextualCountingTransformer,
    domain: Domain,
    verdict: Verdict,
    reading: str,
    argument: str,
    claim: str | None,
    named: dict[str, Any],
    *,
    method: str = CERTIFIED,
    extra: dict[str, Any] | None = None,
    **fields: Any,
) -> Certificate:
    """The certificate with what all readings share."""
    return Certificate(
        verdict,
        claim,
        "contextual counting",
        parameters(module, domain) | named,
        reading,
        method,
        domain.strings() * module.R if verdict is Verdict.PROVED else int(verdict is Verdict.REFUTED),
        argument=argument,
        extra={"domain": str(domain), **(extra or {})},
        **fields,
    )


def parameters(module: ContextualCountingTransformer, domain: Domain) -> dict[str, Any]:
    """What the certificate says of the model and its domain."""
    return {
        "length": domain.N,
        "regions": domain.R,
        "exactly": domain.fewest == domain.R,
        "zeros": domain.zeros,
        "prompts": module.R,
        "dtype": str(module.dtype).removeprefix("torch."),
    }


def find_failure(
    module: ContextualCountingTransformer,
    stored: StoredContextual,
    proof: CellProof,
    cells: list[Cells],
    domain: Domain,
) -> dict[str, Any] | None:
    """A string that real arithmetic shows to be wrong: among candidates, and among all where they are few."""
    few = domain.enumerate() if are_few(domain) else iter(())
    for tokens in chain(islice(candidates(cells, domain), 1 + min(MOST_CANDIDATES, MOST_TOKENS // domain.N)), few):
        judged = judge(stored, proof.readout, tokens)
        if judged.wrong.any():
            return counterexample(module, tokens, int(judged.wrong.argmax()))
    return None


def are_few(domain: Domain) -> bool:
    """Whether the strings can be decided one by one."""
    return 4**domain.N <= LARGEST_RUN and domain.strings() <= FEW_STRINGS


def strings_margin(stored: StoredContextual, proof: CellProof, domain: Domain) -> float:
    """The smallest margin over all strings, or a number that is not positive where one is undecided."""
    return min(float(judge(stored, proof.readout, tokens).margin.min()) for tokens in domain.enumerate())


def right_lengths(judged: list[tuple[list[Cells], Domain]], M: int) -> tuple[int | None, int | None]:
    """For M regions: the largest length up to which every string is right, and the smallest at which some is not.

    The first of the domains is the whole one, the others are parts of it, where wrong strings may be found too. A
    wrong cell has strings of every length from its shortest on, so where the two numbers meet the set of lengths is
    exact. None: no such length up to N.
    """
    domain = judged[0][1]
    right, wrong = domain.N, domain.N + 1
    base = 2 * M + (domain.zeros or 0)
    shortest = max(domain.shortest, base)
    for cells, part in judged:
        for c in (c for c in cells if c.fewest <= M <= c.most):
            unproved, lost = np.nonzero(~(c.margin > 0))[0], np.nonzero(c.wrong)[0]
            if len(unproved) and part is domain:
                right = min(right, max(base + int(unproved[0]), shortest) - 1)
            if len(lost):
                wrong = min(wrong, max(base + int(lost[0]), shortest))
    return right if right >= shortest else None, wrong if wrong <= domain.N else None


def exhaustive(
    module: ContextualCountingTransformer, domain: Domain, *, claim: str | None = None, **named: Any
) -> Certificate:
    """Runs the module itself on every string of the domain.

    Raises: BadInput where these are too many.
    """
    started = time.perf_counter()
    check_judged(module, ContextualCountingTransformer)
    if 4**domain.N > LARGEST_RUN:
        raise BadInput(f"length={domain.N}: running every string is for lengths up to 10; use the proof")
    by_length: dict[int, list[list[int]]] = {}
    for tokens in domain.enumerate():
        by_length.setdefault(len(tokens), []).append(tokens)
    failure, least = None, float("inf")
    for strings in by_length.values():
        right = torch.tensor([answers(tokens, module.R) for tokens in strings])
        with torch.no_grad():
            logits = module(torch.tensor(strings, dtype=torch.long).reshape(len(strings), -1)).double()
        own = logits.gather(-1, right[..., None])
        others = logits.scatter(-1, right[..., None], -torch.inf)
        lost = ~((own > others).all(dim=-1))
        least = min(least, float((own - others.amax(-1, keepdim=True)).min()))
        if lost.any():
            i, prompt = (int(x) for x in lost.nonzero()[0])
            failure = counterexample(module, strings[i], prompt)
            break
    run = certificate(
        module,
        domain,
        Verdict.REFUTED if failure else Verdict.PROVED,
        READING_BIT_EXACT,
        EVERY_INPUT,
        claim,
        named,
        method=EXHAUSTIVE,
        margin=failing_margin(module, failure) if failure else least,
        counterexample=failure,
        assumptions=("this torch kernel, all strings of one length in one batch",),
    )
    return replace(run, seconds=time.perf_counter() - started)


def failing_margin(module: ContextualCountingTransformer, found: dict[str, Any]) -> float | None:
    """The margin at a counterexample as the module computes it; None where it is no number, or hides the failure."""
    with torch.no_grad():
        logits = module(torch.tensor(parse(found["string"]), dtype=torch.long)).double()[found["prompt"] - 1]
    right = found["expected"]
    others = torch.cat([logits[:right], logits[right + 1 :]])
    margin = float(logits[right] - others.max()) if len(others) else float("nan")
    return margin if margin <= 0 and margin != float("-inf") else None
