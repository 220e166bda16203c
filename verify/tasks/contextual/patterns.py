"""The document's Figure 5 as theorems: three bias tokens, judged on other lengths and numbers of regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from constructions.contextual.transformer import ContextualCountingTransformer
from constructions.contextual_counting import bias_count, build
from constructions.errors import BadInput
from verify.frame.certificate import Certificate, Verdict
from verify.tasks.contextual.accuracy import PairShare, share
from verify.tasks.contextual.cells import CellProof
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.contextual.verdict import certify, domain_of

LONGEST = 4096  # the zeros are tried one by one


@dataclass(frozen=True)
class BiasRow:
    """One bias token on one family of strings; `due` is the verdict that the claim says."""

    bias: str
    strings: str
    due: Verdict
    certificate: Certificate


def figure5(N: int, R: int, keys: str = "onehot", dtype: torch.dtype = torch.float32) -> Iterator[BiasRow]:
    """Each bias in its own setting, on shorter strings, and with one region less.

    Claim: B-3.4 (Fig. 5, Sec. 3.4). Departure: bias 0 is right on strings with its number of zeros, whatever their
        length and regions; the document's strings have half zeros on average, so its green dots are approximate.
        Half of the digits are zeros here: that number falls with the length and hardly with the regions.
    Raises: BadInput where there is no shorter setting.

    >>> [(row.bias, row.due.value) for row in figure5(16, 2)][:3]
    [('BOS', 'PROVED'), ('BOS', 'PROVED'), ('BOS', 'PROVED')]
    """
    shorter = N * 300 // 512  # the document's T = 300 against 512
    if R < 2 or shorter < 2 * R + 2 or N > LONGEST:
        raise BadInput(f"--length {N} --regions {R}: --figure5 needs 2 regions, room for them, and at most {LONGEST}")
    for bias in ("BOS", "]", "0"):
        module = build(N, R, bias=bias, keys=keys, dtype=dtype)
        zeros = bias_count(N, R, bias) if bias == "0" else None
        half = bias_count(shorter, R, "0") if bias == "0" else None
        for strings, length, regions, number in (
            (f"length {N}, {R} regions", N, R, zeros),
            (f"length {shorter}, {R} regions", shorter, R, half),
            (f"length {N}, {R - 1} regions", N, R - 1, zeros),
        ):
            domain = domain_of(module, length, regions=regions, exactly=True, zeros=number)
            described = strings if number is None else f"{strings}, {number} zeros"
            due = Verdict.PROVED if bias != "]" or regions == R else Verdict.REFUTED
            if bias == "0" and length == shorter:
                due = Verdict.REFUTED
            yield BiasRow(bias, described, due, certify(module, domain, claim="B-3.4"))


@dataclass(frozen=True)
class AccuracyRow:
    """How often one bias token is right on random strings of one length and number of regions."""

    bias: str
    length: int
    regions: int
    share: PairShare


def accuracies(
    N: int, R: int, keys: str, dtype: torch.dtype, advance: Callable[[float], None]
) -> Iterator[AccuracyRow]:
    """The accuracy of each bias token in its own setting, on shorter strings, and with one region less, exactly.

    Claim: B-3.4 (Fig. 5).
    """
    settings = ((N, R), (N * 300 // 512, R), (N, R - 1))
    for i, (bias, (length, regions)) in enumerate(product(("BOS", "]", "0"), settings)):

        def told(done: float, i: int = i) -> None:
            advance((i + done) / (3 * len(settings)))

        module = build(N, R, bias=bias, keys=keys, dtype=dtype)
        yield AccuracyRow(bias, length, regions, share(module, length, regions, by_zeros=bias == "0", advance=told))


def verdict_of(rows: Iterable[BiasRow]) -> Verdict:
    """PROVED where every row came out as due, REFUTED where one is decided the other way, else UNKNOWN."""
    others = {row.certificate.verdict for row in rows if row.certificate.verdict is not row.due}
    if not others:
        return Verdict.PROVED
    return Verdict.UNKNOWN if others == {Verdict.UNKNOWN} else Verdict.REFUTED


def right_zeros(
    module: ContextualCountingTransformer, N: int, R: int, advance: Callable[[float], None]
) -> tuple[list[int], list[int]]:
    """The numbers of zeros on which every string of up to N tokens and R regions is right, and those with a wrong one.

    In neither list: numbers that the cells leave open.
    """
    stored = StoredContextual.of(module)
    right, wrong = [], []
    for zeros in range(N + 1):
        with np.errstate(invalid="ignore", over="ignore"):
            cells = list(CellProof(stored, domain_of(module, N, regions=R, zeros=zeros)).decide())
        if all((c.margin > 0).all() for c in cells):
            right.append(zeros)
        elif any(c.wrong.any() for c in cells):
            wrong.append(zeros)
        advance(zeros / N)
    return right, wrong
