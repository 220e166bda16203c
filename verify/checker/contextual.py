"""Certificates about the causal encoder that counts the ones of regions: cells of strings (docs/checker.md)."""

from collections.abc import Sequence
from functools import partial

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.any_order import HALF, contract, opened, still_due
from verify.checker.ball_rows import PRECISION, Ends, mean
from verify.checker.computed_regions import CausalMeans, Computed, ComputedRegions, show_by_steps
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import of_regions
from verify.checker.named_shapes import read_shapes
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, Refusal, as_text, require
from verify.checker.records import StringsCertificate
from verify.checker.region_bags import Bag
from verify.checker.region_decoder import SHAPES, RegionDecoder
from verify.checker.region_strings import BOS, CLOSE, ONE, OPEN, TOKENS, ZERO, Strings, counts
from verify.checker.replay import replay_of
from verify.checker.roundoff import Roundoff
from verify.checker.statement import certificate_of, claimed_margin, compare
from verify.checker.wrong_strings import gaps_from_the_left, gaps_in_dtype, refute

MOST_COORDINATES, MOST_COMPARED = 4, 10**6  # of the attention, whose box has corners; and logits of cells, in a dtype
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
    p = c["parameters"]
    N, R, zeros = p["length"], p["regions"], p["zeros"]
    if fmt:
        W = {name: Roundoff(fmt).rounded(x) for name, x in W.items()}
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
    compare(c, {"assumptions": assumed, "domain": strings.in_words})
    if verdict == "REFUTED":
        refute(c, strings, model.decoder.R, gaps_in_dtype(c, fmt, W, has_bos, True) if fmt else model.gaps)
        return verdict, trusted
    margin = claimed_margin(c)
    compare(c, {"inputs_covered": str(strings.number() * model.decoder.R)})
    if fmt is None:
        _check_lengths(c["right_lengths"], strings)
    computed = partial(gaps_from_the_left, replay_of({}, p, fmt), W, has_bos=has_bos, is_causal=True) if fmt else None
    by_steps = _must_show(model, strings, margin, fmt, sizes["h"], computed)
    return verdict, trusted + [HALF] * by_steps


def _must_show(
    model: "Causal", strings: Strings, margin: float, fmt: BinaryFormat | None, h: int, computed: Computed | None
) -> bool:
    """Shows the margin on all strings. Whether that is half of it, by steps, as one bound on all roundings is too much.

    Raises: Refusal where nothing shows it.
    """
    try:
        off = of_regions(Roundoff(fmt), model.W, strings.N + 1) if fmt else 0.0
        due = fmpq(*still_due(margin, off).as_integer_ratio())
    except Refusal:
        if fmt is None or h > MOST_COORDINATES:
            raise
        half = fmpq(*margin.as_integer_ratio()) / 2
        show_by_steps(model.proves(strings, half, fmt), strings, model.gaps, half, computed)
        return True
    show_by_steps(model.proves(strings, due), strings, model.gaps, due, None)
    return False


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
        self.W, self.decoder, self.has_bos = W, RegionDecoder(W), has_bos
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

    def proves(self, strings: Strings, margin: fmpq, fmt: BinaryFormat | None = None) -> bool:
        """Whether all prompts are answered by the margin on all strings; in a format, in every order."""
        N, most, decoder, computed = strings.N, strings.most, self.decoder, ComputedRegions(self.W, strings.N + 1, fmt)
        kinds = [(BOS, 0)] * self.has_bos + [((CLOSE, OPEN)[m % 2], m) for m in range(1, 2 * most + 1)]
        kinds += [(t, m) for m in range(2 * most + 1) for t in (ZERO, ONE) if N - m - m % 2 > 0]
        if fmt is None:
            ends = [self.ends(t, m, N) for t, m in kinds]
        else:
            compared = N * decoder.R * decoder.classes
            require(compared <= MOST_COMPARED, "so many logits are not compared in a dtype", NOT_CHECKABLE)
            ends = CausalMeans(computed, self.has_bos, N).ends(decoder, kinds)
        values = [[x[decoder.R + i] for x in ends] for i in range(decoder.g)]
        is_sure = [BOS] if self.has_bos else [ZERO] if strings.zeros else [CLOSE] if strings.fewest else [*range(4)]
        always = [i for i, (t, _) in enumerate(kinds) if t in is_sure]
        for r in range(1, decoder.R + 1):
            weights = computed.weights(decoder, [x[r - 1] for x in ends], [0] * len(ends), always)

            def shown(low: int, high: int, r: int = r, weights: Sequence[Ends] = weights) -> bool:
                spare = N - 2 * low - (strings.zeros or 0)
                boxes = (
                    (k, computed.mean(Bag.of_cell(kinds, strings, r, low, high, k), weights, values))
                    for k in range(spare + 1 if r <= low else 1)
                )
                return all(computed.shows(decoder, k, box, margin) for k, box in boxes)

            for low, high in ((strings.fewest, min(r - 1, most)), (max(r, strings.fewest), most)):
                if low <= high and not shown(low, high) and not all(shown(M, M) for M in range(low, high + 1)):
                    return False
        return True
