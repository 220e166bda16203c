"""Certificates about encoders that know positions and count the ones of regions: kinds of places (docs/checker.md)."""

from collections.abc import Sequence
from functools import cached_property, partial

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.any_order import HALF, contract, opened
from verify.checker.ball_rows import Ends, below, mean
from verify.checker.computed_regions import ComputedRegions, show_by_steps
from verify.checker.contextual import CONTRACT, MOST_COORDINATES
from verify.checker.formats import BinaryFormat
from verify.checker.named_shapes import read_shapes
from verify.checker.places import OffAtPlaces, Places, Row
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, require
from verify.checker.records import StringsCertificate
from verify.checker.region_bags import Bag
from verify.checker.region_decoder import SHAPES, RegionDecoder
from verify.checker.region_strings import BOS, ONE, TOKENS, Strings, counts
from verify.checker.replay import replay_of
from verify.checker.roundoff import Roundoff
from verify.checker.statement import certificate_of, claimed_margin, compare
from verify.checker.wrong_strings import gaps_from_the_left, gaps_in_dtype, refute

MOST_PLACES = 128
PLACED = SHAPES | {"positions": "places d", "W_Q": "d e", "W_K": "d e"}
TURNED = {"cosines": "places pairs", "sines": "places pairs", "slope": ""}
FED = {"W_3": "g q", "b_3": "q", "W_4": "q g", "b_4": "g"}
TASKS = {  # which tensors there are, and the model in words
    "contextual counting with positions": (
        PLACED | TURNED | FED,
        "x = E + positions; x' = x + softmax(rot(x W_Q) rot(x W_K)^T - slope (i - j), causal) x W_V W_O; "
        "x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; z = softmax(P U_Q (x'' U_K)^T) x'' U_V; "
        "logits = (z + ReLU(z W_3 + b_3) W_4 + b_4) W_out + b_out",
    ),
    "contextual counting, bidirectional": (
        PLACED,
        "x = E + positions; x' = x + softmax(x W_Q (x W_K)^T) x W_V W_O, attending before and after; "
        "x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; logits = softmax(P U_Q (x'' U_K)^T) x'' U_V W_out + b_out",
    ),
}
STORED = "the weights are the stored numbers, exactly"
RIGHT = "right means: the right class has strictly the largest logit; a region that is not there counts 0"


def check(weights: bytes, certificate: bytes, task: str) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c, (shapes, computes) = certificate_of(task, weights, certificate, StringsCertificate), TASKS[task]
    (verdict, fmt, trusted), (W, sizes, dtype), p = opened("placed", c), read_shapes(weights, shapes), c["parameters"]
    N, R, is_causal, prompts = p["length"], p["regions"], "slope" in W, W["P"].nrows()
    is_model = sizes["tokens"] == 5 and 0 < N < sizes["places"] and sizes.get("pairs", 0) * 2 in (0, sizes["e"])
    require(is_model, "the file holds no model of such strings", UNREADABLE)
    is_checkable, strings = N < MOST_PLACES and sizes["h"] <= MOST_COORDINATES, Strings(N, R)
    require(is_checkable, "so many places, or coordinates of the attention, are not decided again", NOT_CHECKABLE)
    own = {"slope": as_float(W["slope"][0, 0])} if is_causal else {"coordinates": sizes["e"] - 1}
    compare(p, own | {"prompts": prompts, "dtype": dtype})
    W = {name: Roundoff(fmt).rounded(x) for name, x in W.items()} if fmt else W
    evaluated = contract(p, *CONTRACT) if fmt else [STORED]
    compare(c, {"assumptions": [computes, *evaluated, RIGHT], "domain": strings.in_words})
    if verdict == "REFUTED":
        gaps = gaps_in_dtype(c, fmt, W, True, is_causal) if fmt else Placed(W, N, R, None).gaps
        refute(c, strings, prompts, gaps)
        return verdict, trusted
    model = Placed(W, N, R, fmt)
    compare(c, {"inputs_covered": str(strings.number() * prompts)})
    margin = fmpq(*claimed_margin(c).as_integer_ratio()) / (1 + (fmt is not None))
    computed = partial(gaps_from_the_left, replay_of({}, p, fmt), W, has_bos=True, is_causal=is_causal) if fmt else None
    show_by_steps(model.proves(margin), strings, model.gaps, margin, computed)
    return verdict, trusted + [HALF] * (fmt is not None)


class Placed:
    """Places are told by their token and number, and by how many delimiters there are up to them."""

    def __init__(self, W: dict[str, fmpq_mat], N: int, R: int, fmt: BinaryFormat | None) -> None:
        self.W, self.off, self.is_causal, self.N = W, OffAtPlaces(W, N + 1, fmt), "slope" in W, N
        self.computed = ComputedRegions(W, N + 1, fmt)
        self.decoder, self.places = RegionDecoder(W), Places(N, 2 * min(R, N // 2) + 1)
        self.rows = self.places.rows
        self.index = {row: i for i, row in enumerate(self.rows)}
        self.x = fmpq_mat([[W["E"][t, i] + W["positions"][j, i] for i in range(W["E"].ncols())] for t, j in self.rows])
        both = ((self.x * W[name]).table() for name in ("W_Q", "W_K"))
        queries, keys = (fmpq_mat([*map(self._turned, self.rows, x)]) for x in both)
        self.scores, self.values = (queries * keys.transpose()).table(), self.x * W["W_V"]

    def _turned(self, row: Row, x: Sequence[fmpq]) -> list[fmpq]:
        """A query or key, turned by the angles of its place."""
        if not self.is_causal:
            return [*x]
        found, (_, j) = list[fmpq](), row
        for i, (first, second) in enumerate(zip(x[::2], x[1::2], strict=True)):
            c, s = self.W["cosines"][j, i], self.W["sines"][j, i]
            found += [first * c - second * s, first * s + second * c]
        return found

    def score(self, row: Row, other: Row) -> fmpq:
        found = self.scores[self.index[row]][self.index[other]]
        return found - self.W["slope"][0, 0] * (row[1] - other[1]) if self.is_causal else found

    def gaps(self, text: str, bits: int) -> list[list[arb]]:
        """For each prompt (due logit) - (each other one)."""
        rows = [(BOS, 0), *((TOKENS.index(x), j) for j, x in enumerate(text, 1))]
        x, v = self.x.table(), self.values.table()
        with ctx.workprec(bits):
            points = []
            for i, row in enumerate(rows):
                seen = rows[: i + 1] if self.is_causal else rows
                values = arb_mat(fmpq_mat([v[self.index[other]] for other in seen]))
                points.append(mean([arb(self.score(row, other)) for other in seen], values))
            own = arb_mat(fmpq_mat([x[self.index[row]] for row in rows]))
            return self.decoder.gaps(own, arb_mat(points), counts(text, self.decoder.R))

    def attended(self, row: Row) -> dict[int, list[Ends]]:
        """The ends of each coordinate of the attention's output, by the delimiters up to the place.

        A mean is a sum of weights times values over the sum of the weights, each between its ends.
        """
        seen = [other for other in self.rows if not self.is_causal or other[1] <= row[1]]
        ends = [(below(s), -below(-s)) for s in (arb(self.score(row, other)) for other in seen)]
        ends = self.computed.arguments(ends, self.off.of_scores(row, seen), [0])
        weights = dict(zip(seen, self.decoder.weights(ends), strict=True))
        low = self.places.least(row, {other: w for other, (w, _) in weights.items()})
        high = self.places.least(row, {other: -w for other, (_, w) in weights.items()})
        require(min(low.values(), default=1) > 0, "a string's weights are too small to be compared", NOT_CHECKABLE)

        def least_mean(i: int, sign: int) -> dict[int, int]:
            values = {other: below(arb(sign * self.values[self.index[other], i])) for other in seen}
            sums = self.places.least(row, {other: min(w * values[other] for w in weights[other]) for other in seen})
            return {m: x // (-high[m] if x >= 0 else low[m]) for m, x in sums.items()}

        found: dict[int, list[Ends]] = {m: [] for m in low}
        for i, off in enumerate(self.off.of_mean(self.values.ncols())):
            least, most = least_mean(i, 1), least_mean(i, -1)
            found = {m: [*x, (least[m] - off, off - most[m])] for m, x in found.items()}
        return found

    @cached_property
    def kinds(self) -> tuple[list[tuple[int, int]], list[list[Ends]]]:
        """Tokens with the delimiters up to them, and the ends of all prompts' scores of them and of their values."""
        listed = [(row, m, box) for row in self.rows for m, box in self.attended(row).items()]
        rows = [row for row, _, _ in listed]
        own = fmpq_mat([self.x.table()[self.index[row]] for row in rows])
        ends = self.computed.ranges(self.decoder, own, [box for _, _, box in listed], self.off.stream(rows))
        return [(row[0], m) for row, m, _ in listed], ends

    def proves(self, margin: fmpq) -> bool:
        """Whether all prompts are answered by the margin on all strings.

        They have BOS, k ones of the prompt's region, and up to N - k others.
        """
        (kinds, ends), decoder = self.kinds, self.decoder
        values = [[x[decoder.R + i] for x in ends] for i in range(decoder.g)]
        for r in range(1, decoder.R + 1):
            weights = self.computed.weights(decoder, [x[r - 1] for x in ends], [0] * len(ends), [0])
            ones = [i for i, kind in enumerate(kinds) if kind == (ONE, 2 * r - 1)]
            others = [i for i, kind in enumerate(kinds) if kind[0] != BOS and i not in {*ones}]
            for k in range(max(0, self.N - 2 * r) + 1 if ones else 1):
                bag = Bag([0], [], [(k, ones)] if k else [], others, self.N - k)
                if not self.computed.shows(decoder, k, self.computed.mean(bag, weights, values), margin):
                    return False
        return True


def as_float(x: fmpq) -> float:
    """A stored number as it is."""
    return int(x.p) / int(x.q)
