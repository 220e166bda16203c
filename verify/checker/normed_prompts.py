"""Prompts of Count01 models whose attention reads a layer norm: all of a region, or a wrong one, are run in balls.

A token's layer norm is the same wherever it stands, so that scores and values are tables of numbers by token, here of
balls; each head's mean is a quotient of two sums over the prompt's tokens (docs/checker.md).
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from flint import arb, arb_mat, ctx, fmpq_mat

from verify.checker.any_order import still_due
from verify.checker.ball_rows import least_of
from verify.checker.exponentials import BITS
from verify.checker.prompts import EQUALS, SHAPES, Domain, PromptRegion
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import PromptsCertificate
from verify.checker.statement import claimed_margin, compare, is_close
from verify.checker.wrong_prompts import counted

MOST = 1 << 16  # prompts

Lines = list[list[arb]]  # of the sum of weights and of each difference of logits: coefficients of 1, n0, n1, n2


class NormedPrompts:
    """A model in balls of so many bits. `norm` are its gain, its bias and its epsilon."""

    def __init__(self, numbers: dict[str, list[fmpq_mat]], norm: Sequence[fmpq_mat], skip: bool, bits: int) -> None:
        self.bits = bits
        with ctx.workprec(bits):
            (E,), (W_out,), (b_out,) = ([*map(arb_mat, numbers[name])] for name in ("E", "W_out", "b_out"))
            heads = [*zip(*([*map(arb_mat, numbers[name])] for name in SHAPES[1:5]), strict=True)]
            seen = arb_mat([_normal(row, *map(arb_mat, norm)) for row in E.tolist()])
            own = (E * W_out).tolist()
            self.scores = [(seen * W_Q * (seen * W_K).transpose()).tolist() for W_Q, W_K, _, _ in heads]
            self.values = [(seen * W_V * W_O * W_out).tolist() for _, _, W_V, W_O in heads]
            self.constants = [[b + x * int(skip) for b, x in zip(b_out.tolist()[0], row, strict=True)] for row in own]

    def gaps(self, cell: PromptRegion, prompts: Iterator[tuple[int, int, int]]) -> Iterator[list[arb]]:
        """(due logit) - (each other one) for prompts read after one token."""
        with ctx.workprec(self.bits):
            rivals = [j for j in range(len(self.constants[0])) if j != cell.due]
            heads = [self._lines(h, cell, rivals) for h in range(len(self.scores))]
            at = self.constants[cell.last]
            for n in prompts:
                row, found = (1, *n), [at[cell.due] - at[j] for j in rivals]
                for lines in heads:
                    below, *above = (sum((a * k for a, k in zip(line, row, strict=True)), arb(0)) for line in lines)
                    found = [x + y / below for x, y in zip(found, above, strict=True)]
                yield found

    def _lines(self, h: int, cell: PromptRegion, rivals: Sequence[int]) -> Lines:
        """BOS, "=" and the last token are read once, each digit as often as it is there."""
        read = ((0, EQUALS, *([] if cell.last == EQUALS else [cell.last])), (1,), (2,), (3,))
        score, V, top = self.scores[h][cell.last], self.values[h], self.scores[h][cell.last][0].mid()
        weights = [(x - top).exp() for x in score]
        found = [[sum((weights[t] for t in tokens), arb(0)) for tokens in read]]
        for j in rivals:
            found.append([sum((weights[t] * (V[t][cell.due] - V[t][j]) for t in tokens), arb(0)) for tokens in read])
        return found


def _normal(row: Sequence[arb], gain: arb_mat, bias: arb_mat, eps: arb_mat) -> list[arb]:
    """(x - mean) / sqrt(variance + eps), times the gain, plus the bias."""
    centre = sum(row, arb(0)) / len(row)
    moved = [x - centre for x in row]
    root = (sum((x * x for x in moved), arb(0)) / len(row) + eps[0, 0]).sqrt()
    return [x / root * a + b for x, a, b in zip(moved, gain.entries(), bias.entries(), strict=True)]


def triples(domain: Domain, is_more: bool) -> Iterator[tuple[int, int, int]]:
    """The prompts of one side of a bounded region."""
    lo, hi, m, M, total = domain
    spare = (hi or 0) + (hi or 0) + (M or 0) if total is None else total
    for n0 in range(lo, _least(hi, spare - lo - m) + 1):
        for n1 in range(n0 + 1 if is_more else lo, min(_least(hi, spare - n0 - m), spare if is_more else n0) + 1):
            for n2 in range(m, _least(M, spare - n0 - n1) + 1):
                yield n0, n1, n2


def _least(top: int | None, spare: int) -> int:
    return spare if top is None else min(top, spare)


def prove(
    numbers: dict[str, list[fmpq_mat]],
    norm: Sequence[fmpq_mat],
    skip: bool,
    cells: Sequence[PromptRegion],
    domain: Domain,
    c: PromptsCertificate,
    off: float,
) -> None:
    """Every prompt has the margin, less what roundings may do, in balls of 128 or 1024 bits. Raises: Refusal."""
    require(c["margin"] is not None and "margin_scaled" not in c, "margin_scaled: is not checked", NOT_CHECKABLE)
    margin = claimed_margin(c)
    _, hi, _, M, total = domain
    require(total is not None or hi is not None and M is not None, "layer norm: a region without end", NOT_CHECKABLE)
    number = sum(1 for _ in islice((n for cell in cells for n in triples(domain, cell.is_more)), MOST + 1))
    require(number <= MOST, f"layer norm is checked on up to {MOST} prompts", NOT_CHECKABLE)
    compare(c, {"inputs_covered": str(number)})
    due = arb(still_due(margin, off))
    models = [NormedPrompts(numbers, norm, skip, bits) for bits in BITS[:2]]
    for cell in cells:
        is_shown = any(_holds(on, cell, domain, due) for on in models)
        require(is_shown, "margin: is not shown on all prompts", NOT_CHECKABLE)


def _holds(on: NormedPrompts, cell: PromptRegion, domain: Domain, margin: arb) -> bool:
    """A comparison of balls is true only of all their numbers. Raises: Refusal where a prompt has less."""
    found = [x for row in on.gaps(cell, triples(domain, cell.is_more)) for x in row]
    require(not any(x < margin for x in found), "margin: a prompt has less")
    return all(x >= margin for x in found)


def refute(
    numbers: dict[str, list[fmpq_mat]],
    norm: Sequence[fmpq_mat],
    skip: bool,
    cell: PromptRegion,
    prompts: int | None,
    c: PromptsCertificate,
) -> None:
    """One prompt decides: a difference of its logits is below zero, and the least is the margin. Raises: Refusal."""
    case = c["counterexample"]
    compare(c, {"margin_exact": None})
    counted(c, prompts)
    for bits in BITS:
        n = case["n0"], case["n1"], case["n2"]
        (row,) = NormedPrompts(numbers, norm, skip, bits).gaps(cell, iter([n]))
        require(not all(x > 0 for x in row), f"counterexample: {case['input']} is answered rightly")
        with ctx.workprec(bits):
            gap = least_of(row)
            if any(x < 0 for x in row) and is_close(c["margin"], gap):
                return
    require(any(x < 0 for x in row), "counterexample: too near to a tie, or no number", NOT_CHECKABLE)
    raise Refusal(f"margin: is {c['margin']}, of {gap}, which does not show", NOT_CHECKABLE)
