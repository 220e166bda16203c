"""Certificates about histogram models in constant-bit arithmetic: every sequence, by the sums that it leads to."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

from verify.checker.constant_bits import LeftToRight, Slot, ahead, opened_in_bits
from verify.checker.reading import Weights, require, whole
from verify.checker.records import CountsCertificate
from verify.checker.statement import compare, stands_for


class HistogramInBits:
    """A histogram model whose numbers are whole numbers over 2^s."""

    def __init__(self, w: Weights, s: int) -> None:
        self.p, self.first, self.at = w.repeated["parameters"], w.first_count or 0, LeftToRight(s)
        at, self.W = self.at, {name: self.at.matrix(rows) for name, rows in w.matrices.items()}
        E, bos = self.W["E"], self.W.get("e_BOS", [])
        self.is_softmax, self.context, self.tokens = self.p["model"].endswith("+sftm"), bos + E, range(self.p["T"])
        self.bos = range(len(bos))
        if "A" not in self.W:
            root, keys = at.stored(math.sqrt(self.p["d"])), [at.affine(x, self.W["W_K"]) for x in self.context]
            queries = [at.affine(x, self.W["W_Q"]) for x in E]
            self.scores = [[at.divided(at.dot(q, k), root) for k in keys] for q in queries]

    def places(self, token: int, position: int, given: Sequence[int] | None = None) -> list[list[Slot]]:
        """What may stand where a token asks at a position; with `A` it stands there, else anywhere."""
        found = [[Slot((0,), (self.scores[token][i],), (self.context[i],))] for i in self.bos]
        for j in range(self.p["L"]):
            fixed = (token,) if "A" in self.W and j == position else self.tokens
            place = []
            for t in fixed if given is None else (given[j],):
                score = self.W["A"][position][j] if "A" in self.W else self.scores[token][t + len(self.bos)]
                place.append(Slot((int(t == token),), (score,), (self.W["E"][t],)))
            found.append(place)
        return found

    def logits(self, token: int, places: list[list[Slot]]) -> Iterator[tuple[int, list[int], int]]:
        """Counts of the token and logits where it asks, and how many sequences have both."""
        at, W = self.at, self.W
        if self.is_softmax:
            mixed = at.means(places, lambda _: True)
        else:
            plain = [[(x.mark, [at.times(x.scores[0], y) for y in x.values[0]]) for x in place] for place in places]
            mixed = ((*key, n) for key, n in at.sums(plain, lambda _: True).items())
        for (count,), row, n in mixed:
            x = [*map(at.plus, W["E"][token], row)]
            hidden = [max(y, 0) for y in at.affine(x, W["W_1"], W["b_1"][0])]
            if count:
                yield count, at.affine(hidden, W["W_2"], W["b_2"][0]), n


def check(w: Weights, c: CountsCertificate, s: int, claims: Sequence[str]) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    verdict, trusted = opened_in_bits("histogram", c, s, "class")
    model, p = HistogramInBits(w, s), w.repeated["parameters"]
    claim, (T, L) = w.repeated["claim"], (p["T"], p["L"])
    compare(c, w.repeated | {"claim": claim if claim in claims else None, "parameters": p | {"precision": f"s{s}"}})
    if verdict == "REFUTED":
        _refute(model, c)
        return verdict, trusted
    compare(c, {"inputs_covered": str(T**L), "counts": {"right": str(T**L), "wrong": "0"}, "wrong_pairs": "0"})
    compare(c, {"error_share": [0.0, 0.0]})
    positions, pairs, least = range(L) if "A" in model.W else range(1), 0, math.inf
    for token, position in product(range(T), positions):
        for count, row, n in model.logits(token, model.places(token, position)):
            least = min(least, ahead(row, count - model.first))
            pairs += n if "A" in model.W else n * count
    require(pairs == T**L * L, "some logits are no numbers, a softmax being 0 / 0")
    has_margin = c["margin"] is None if least == math.inf else c["margin"] is not None
    require(has_margin and (c["margin"] is None or 0 < c["margin"] <= least / model.at.one), "margin: is not shown")
    return verdict, trusted


def _refute(model: HistogramInBits, c: CountsCertificate) -> None:
    """One input is run."""
    case, T, L, first = c["counterexample"], model.p["T"], model.p["L"], model.first
    tokens, position = case["tokens"], case["position"]
    is_input = len(tokens) == L and max(tokens) < T and position < L
    require(is_input, f"counterexample: must have {L} tokens below {T} and one of their positions")
    token, count = tokens[position], tokens.count(tokens[position])
    rows = [row for _, row, _ in model.logits(token, model.places(token, position, tokens))]
    gap = min((ahead(row, count - first) for row in rows), default=None)
    require(gap is None or gap <= 0, "counterexample: is answered rightly")
    best = [k + first for row in rows for k, x in enumerate(row) if x == max(row)]
    others = [k for k in best if k != count]
    compare(case, {"input": tokens, "expected": count, "is_tie": len(best) > 1})
    compare(case, {"predicted": others[0] if rows else None, "module_predicts": best[0] if rows else first})
    compare(c, {"margin": None if gap is None else gap / model.at.one})
    share, pairs = c["error_share"], T**L * L
    require(share is None or len(share) == 2, "error_share: must be two shares")
    if (said := c.get("wrong_pairs")) is not None:
        wrong = whole(said, "wrong_pairs")
        is_near = share is not None and all(stands_for(x, Fraction(wrong, pairs)) for x in share)
        require(0 < wrong <= pairs and is_near, "error_share: does not fit wrong_pairs")
