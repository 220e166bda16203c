"""Count01 in constant-bit arithmetic: every string of digits, by the sums that it leads to (docs/checker.md)."""

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

from flint import fmpq_mat

from verify.checker.constant_bits import Label, LeftToRight, Slot, ahead
from verify.checker.prompts import EQUALS, TOKENS, Domain, PromptRegion
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import PromptsCertificate
from verify.checker.reruns import floats
from verify.checker.statement import compare

DIGITS = (1, 2, 3)
LONGEST = 100  # digits of a string


class PromptsInBits:
    """A model whose numbers are whole numbers over 2^s; the last token of a prompt asks."""

    def __init__(self, numbers: dict[str, list[fmpq_mat]], skip: bool, s: int) -> None:
        self.at, self.skip = LeftToRight(s), skip
        self.W = {name: [self.at.matrix(floats(x)) for x in parts] for name, parts in numbers.items()}
        (self.E,), (self.W_out,), ((self.b_out,),) = (self.W[name] for name in ("E", "W_out", "b_out"))
        self.keys, self.values = ([[self.at.affine(x, W) for W in self.W[name]] for x in self.E]
                                  for name in ("W_K", "W_V"))  # fmt: skip
        # what the heads read is multiplied by W_O dimension by dimension, in each of them head by head
        self.order = [(h, e) for e in range(len(self.W["W_O"][0])) for h in range(len(self.W["W_O"]))]

    def places(self, prompt: Sequence[Sequence[int]]) -> list[list[Slot]]:
        """The tokens that may stand in each place; one of them stands in the last."""
        queries = [self.at.affine(self.E[prompt[-1][0]], W) for W in self.W["W_Q"]]
        return [[self._slot(queries, t) for t in tokens] for tokens in prompt]

    def _slot(self, queries: Sequence[Sequence[int]], t: int) -> Slot:
        scores = tuple(map(self.at.dot, queries, self.keys[t]))
        return Slot(tuple(int(t == digit) for digit in DIGITS), scores, tuple(self.values[t]))

    def logits(self, prompt: Sequence[Sequence[int]], most: Label) -> Iterator[tuple[Label, list[int], int]]:
        """Counts of the digits, at most so many, and logits, and how many prompts have both."""
        at, size = self.at, len(self.W["W_O"][0])

        def fits(label: Label) -> bool:
            return all(n <= top for n, top in zip(label, most, strict=True))

        for label, read, n in at.means(self.places(prompt), fits):
            columns = zip(*(self.W["W_O"][h][e] for h, e in self.order), strict=True)
            written = [at.dot([read[h * size + e] for h, e in self.order], column) for column in columns]
            own = self.E[prompt[-1][0]]
            stream = [*map(at.plus, own, written)] if self.skip else written
            yield label, at.affine(stream, self.W_out, self.b_out), n


def prove(
    model: PromptsInBits, cells: Sequence[PromptRegion], domain: Domain, longest: int | None, c: PromptsCertificate
) -> None:
    """Every prompt of the domain is answered by the margin."""
    require(longest is not None and longest <= LONGEST, "so many digits are not followed again", NOT_CHECKABLE)
    lo, hi, m, M, total = domain
    top, noise, longest = (longest or 0 if x is None else x for x in (hi, M, longest))
    lasts, strings, least = {cell.last for cell in cells}, 0, math.inf
    for n0, n1, n2 in product(range(lo, top + 1), range(lo, top + 1), range(m, noise + 1)):
        if total is None or n0 + n1 + n2 <= total:
            strings += math.comb(n0 + n1 + n2, n2) * math.comb(n0 + n1, n0)
    compare(c, {"inputs_covered": str(strings)})
    left = strings * len(lasts)
    for last, n in product(lasts, range(2 * lo + m, longest + 1)):
        prompt = [(0,), *[DIGITS] * n, (EQUALS,), *[(last,)] * (last != EQUALS)]
        for label, row, number in model.logits(prompt, (top, top, noise)):
            if min(label[:2]) >= lo and label[2] >= m:
                due = [cell.due for cell in cells if cell.last == last and cell.is_more == (label[1] > label[0])]
                left, least = left - number, min(least, ahead(row, *due))
    require(left == 0, "some logits are no numbers, a softmax being 0 / 0")
    require(0 < (c["margin"] or 0) <= least / model.at.one, f"margin: is {c['margin']}, must be at most {least}")


def refute(model: PromptsInBits, cell: PromptRegion, tokens: Sequence[str], c: PromptsCertificate, s: int) -> None:
    """One prompt is run."""
    prompt = [(TOKENS.index(t),) for t in tokens]
    rows = [row for _, row, _ in model.logits(prompt, (len(tokens),) * 3)]
    gap = reduce(min, (ahead(row, cell.due) for row in rows), math.inf)
    require(not rows or gap <= 0, "counterexample: is answered rightly")
    first = rows[0].index(max(rows[0])) if rows else 0
    named = TOKENS[first] if first < len(TOKENS) else f"class {first}"
    said = [x / model.at.one for x in rows[0]] if rows else [None] * len(model.b_out)
    compare(c["counterexample"], {"predicted": named if rows else "NaN", "logits": said, "fails": True})
    compare(c["counterexample"], {"replayed": f"constant-bit arithmetic, s={s}"})
    compare(c, {"margin": gap / model.at.one if rows else None, "margin_exact": None})
