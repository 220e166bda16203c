"""Certificates about the causal encoder that counts the ones of regions: cells of strings (docs/checker.md)."""

from collections.abc import Callable, Sequence

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.any_order import contract, opened, still_due
from verify.checker.exponentials import BITS as DIGITS
from verify.checker.forwards import of_regions
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, as_text, require
from verify.checker.records import StringsCertificate
from verify.checker.regions import (
    BOS,
    CLOSE,
    ONE,
    OPEN,
    PRECISION,
    SHAPES,
    TOKENS,
    ZERO,
    Bag,
    Ends,
    RegionDecoder,
    Strings,
    counts,
    mean,
    read_shapes,
)  # fmt: skip
from verify.checker.roundoff import Roundoff
from verify.checker.statement import certificate_of, claimed_margin, compare
from verify.checker.wrong_strings import gaps_in_dtype, refute

NOT_SHOWN = "margin: is not shown on all strings"
MOST_TOKENS, MOST_TERMS = 1 << 16, 10**7  # of a string, and cells of strings times kinds of positions
CAUSAL = SHAPES | {"W_Q": "d h", "W_K": "d h"}
FORMULA = (
    "encoder x' = x + softmax(x W_Q (x W_K)^T, causal) x W_V W_O, x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; "
    "logits = softmax(P U_Q (x'' U_K)^T) x'' U_V W_out + b_out"
)
REGIONS = "the prompts are 1..R, and a region that is not there counts 0"
RIGHT = "right means: the right class has strictly the largest logit"

CONTRACT = (
    "; a sum keeps to one format",
    ["matrix products in the order in which the module writes them"],
    ", normalises before or after weighing the values, by a quotient or a reciprocal",
    ", and results below the smallest normal number lie between 0 and twice the exact value",
)


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("contextual counting", weights, certificate, StringsCertificate)
    (verdict, fmt, trusted), (W, sizes, dtype) = opened("contextual", c), read_shapes(weights, CAUSAL, ["bos"])
    require(sizes["tokens"] == 5, f"E has {sizes['tokens']} rows", UNREADABLE)
    p, off = c["parameters"], 0.0
    N, R, zeros = p["length"], p["regions"], p["zeros"]
    if fmt:
        W = {name: Roundoff(fmt).rounded(x) for name, x in W.items()}
        off = of_regions(Roundoff(fmt), W, N + 1) if verdict == "PROVED" else 0.0
    has_bos = bool(sizes["bos"])
    model = Causal(W, has_bos)
    strings = Strings(N, R, R if p["exactly"] else 0, int(not has_bos), zeros)
    is_some = N > 0 and 2 * strings.fewest + (zeros or 0) <= N and p["exactly"] == (strings.fewest == R)
    require(is_some, "parameters: no strings are so")
    is_checkable = N <= MOST_TOKENS and N * model.decoder.R * (6 * strings.most + 3) <= MOST_TERMS
    require(is_checkable, "so many cells of strings are not decided again", NOT_CHECKABLE)
    compare(p, {"prompts": model.decoder.R, "dtype": dtype})
    stored = REGIONS if fmt else f"the weights are the stored numbers, exactly; {REGIONS}"
    assumed = [FORMULA, stored, RIGHT, *(contract(p, *CONTRACT) if fmt else [])]
    compare(c, {"assumptions": assumed, "domain": in_words(strings)})
    if verdict == "REFUTED":
        refute(c, strings, model.decoder.R, gaps_in_dtype(c, fmt, W, has_bos, True) if fmt else model.gaps)
        return verdict, trusted
    margin = fmpq(*still_due(claimed_margin(c), off).as_integer_ratio())
    compare(c, {"inputs_covered": str(strings.number() * model.decoder.R)})
    if fmt is None:
        _check_lengths(c["right_lengths"], strings)
    is_shown = model.proves(strings, margin)
    require(is_shown or strings.are_few and one_by_one(strings, model.gaps, margin), NOT_SHOWN)
    return verdict, trusted


def one_by_one(strings: Strings, gaps: Callable[[str, int], list[list[arb]]], margin: fmpq) -> bool:
    """Whether each string by itself is answered by the margin."""
    return all(x >= margin for text in strings.every() for row in gaps(text, DIGITS[0]) for x in row)


def in_words(strings: Strings) -> str:
    """The strings in words."""
    N, R, fewest, shortest, zeros = strings
    regions = f"exactly {R}" if fewest == R else f"{fewest} to {R}"
    of_zeros = "" if zeros is None else f", {zeros} zeros"
    return f"valid strings of length {shortest} to {N}, {regions} regions{of_zeros}"


def _check_lengths(found: object, strings: Strings) -> None:
    """For each number of regions, a length up to which all strings are right, where there is one, and none is wrong."""
    of_M = {str(M): [None, None] for M in range(strings.fewest, strings.most + 1)}
    known = {M: x for M, x in found.items() if type(x) is list} if isinstance(found, dict) else {}
    is_known = isinstance(found, dict) and {*found} == {*known} == {*of_M}
    require(is_known, "right_lengths: are not those of the numbers of regions")
    for M, listed in known.items():
        length = listed[0] if listed and type(listed[0]) is int and 0 <= listed[0] <= strings.N else None
        require(as_text(listed) == as_text([length, None]), f"right_lengths.{M}: is no length, or says what is wrong")


class Causal:
    """Positions see BOS, where there is one, and what stands before them; they are told by tokens and counts."""

    def __init__(self, W: dict[str, fmpq_mat], has_bos: bool) -> None:
        self.decoder, self.has_bos = RegionDecoder(W), has_bos
        self.scores = (W["E"] * W["W_Q"]) * (W["E"] * W["W_K"]).transpose()
        self.values, self.E = W["E"] * W["W_V"], W["E"].table()

    def attended(self, token: int, numbers: Sequence[int]) -> list[arb]:
        """The attention's output at a token that sees each token so many times."""
        seen = [t for t in range(5) if numbers[t]]
        values = arb_mat(fmpq_mat([self.values.table()[t] for t in seen]))
        return mean([arb(self.scores[token, t]) for t in seen], values, [numbers[t] for t in seen])

    def gaps(self, text: str, bits: int) -> list[list[arb]]:
        """For each prompt (due logit) - (each other one)."""
        tokens, numbers, points = [BOS] * self.has_bos + [TOKENS.index(x) for x in text], [0] * 5, []
        with ctx.workprec(bits):
            for t in tokens:
                numbers[t] += 1
                points.append(self.attended(t, numbers))
            own = arb_mat(fmpq_mat([self.E[t] for t in tokens]))
            return self.decoder.gaps(own, arb_mat(points), counts(text, self.decoder.R))

    def ends(self, token: int, m: int, N: int) -> list[Ends]:
        """Scores and values of a token after m delimiters, itself included, in strings of up to N tokens.

        With a zeros and b ones so far the attention is a quotient of forms in (a, b) above a positive one, which maps
        the triangle of all (a, b) onto that of its corners' images.
        """
        a, b, digits = int(token == ZERO), int(token == ONE), N - m - m % 2
        corners = [(a, b), (digits - b, b), (a, digits - a)] if token != BOS else [(0, 0)]
        with ctx.workprec(PRECISION):
            rest = [(m + 1) // 2, m // 2, int(self.has_bos)]
            points = arb_mat([self.attended(token, [x, y, *rest]) for x, y in corners])
            return self.decoder.ranges(arb_mat(fmpq_mat([self.E[token]])), points)

    def proves(self, strings: Strings, margin: fmpq) -> bool:
        """Whether all prompts are answered by the margin on all strings."""
        N, most, decoder = strings.N, strings.most, self.decoder
        kinds = [(BOS, 0)] * self.has_bos + [((CLOSE, OPEN)[m % 2], m) for m in range(1, 2 * most + 1)]
        kinds += [(t, m) for m in range(2 * most + 1) for t in (ZERO, ONE) if N - m - m % 2 > 0]
        ends = [self.ends(t, m, N) for t, m in kinds]
        values = [[x[decoder.R + i] for x in ends] for i in range(decoder.g)]
        for r in range(1, decoder.R + 1):
            weights = decoder.weights([x[r - 1] for x in ends])

            def shown(low: int, high: int, r: int = r, weights: Sequence[Ends] = weights) -> bool:
                spare = N - 2 * low - (strings.zeros or 0)
                return all(
                    decoder.decides(k, bag(kinds, strings, r, low, high, k), weights, values, margin)
                    for k in range(spare + 1 if r <= low else 1)
                )

            for low, high in ((strings.fewest, min(r - 1, most)), (max(r, strings.fewest), most)):
                if low <= high and not shown(low, high) and not all(shown(M, M) for M in range(low, high + 1)):
                    return False
        return True


def bag(kinds: Sequence[tuple[int, int]], strings: Strings, r: int, low: int, high: int, k: int) -> Bag:
    """The positions of all strings with low to high regions and k ones in region r."""
    at, zeros = {kind: i for i, kind in enumerate(kinds)}, strings.zeros
    always = [i for (t, m), i in at.items() if t == BOS or t in (OPEN, CLOSE) and m <= 2 * low]
    more = [[at[OPEN, 2 * M - 1], at[CLOSE, 2 * M]] for M in range(low + 1, high + 1)]
    digits = [(t, m) for t, m in kinds if t in (ZERO, ONE) and m <= 2 * high and (t, m) != (ONE, 2 * r - 1)]
    counted = [(k, [at[ONE, 2 * r - 1]])] if k else []
    counted += [(zeros, [at[x] for x in digits if x[0] == ZERO])] if zeros else []
    free = [at[x] for x in digits if zeros is None or x[0] == ONE]
    return Bag(always, more, counted, free, strings.N - 2 * low - (zeros or 0) - k)
