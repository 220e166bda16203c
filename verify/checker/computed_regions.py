"""Strings with regions as a format computes them, each step on what the ones before have computed (docs/checker.md).

Without a format nothing is rounded. Ends are whole numbers over 2^BITS.
"""

from collections.abc import Callable, Sequence
from itertools import product

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.ball_rows import BITS, PRECISION, Ends, below, least_of
from verify.checker.exponentials import BITS as DIGITS
from verify.checker.formats import ULPS, BinaryFormat
from verify.checker.forwards import Numbers, given, read_by_prompts, seen
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, require
from verify.checker.region_bags import Bag
from verify.checker.region_decoder import RegionDecoder
from verify.checker.region_strings import CLOSE, ONE, OPEN, ZERO, Strings
from verify.checker.roundoff import Reach, Roundoff, exact

HALF = arb(1) / 2
NOT_SHOWN = "margin: is not shown on all strings"
Gaps = Callable[[str, int], list[list[arb]]]  # of a string, for each prompt, in so many bits
Computed = Callable[[str], list[list[arb]]]  # the same in one order of a dtype


class ComputedRegions:
    """What a format makes of a model's steps, on strings of so many places at most. Raises: Refusal where it fails."""

    def __init__(self, W: Numbers, slots: int, fmt: BinaryFormat | None) -> None:
        self.W, self.slots, self.fmt = W, slots, fmt

    # ---- attention

    def arguments(self, ends: Sequence[Ends], errors: Sequence[int], always: Sequence[int]) -> list[Ends]:
        """The ends of computed exponentials' logarithms, up to one number for all, by those of scores and their errors.

        The maximum m that is subtracted is no score above the largest end, nor below some one of those of which one is
        `always` there. So a difference is rounded by a share of at most |score| + |m|; exp and what it becomes as a
        factor add a share of it. If these are exact and the largest, they are m: an exact score equal to m leaves 0.
        """
        fmt = self.fmt
        if fmt is None:
            return [*ends]
        wide = [(low - e, high + e) for (low, high), e in zip(ends, errors, strict=True)]
        most = max(high for _, high in wide)
        least = min(wide[i][0] for i in always)
        share = -below(-fmt.growth(2))
        more = -below(-(2 * ULPS * fmt.u + 2 * fmt.growth(2) + 4 * fmt.tiny))

        def moved(low: int, high: int) -> Ends:
            if low == high == least == most:
                return low, high
            off = (share * (max(abs(low), abs(high)) + max(abs(least), abs(most))) >> BITS) + 1 + more
            return low - off, high + off

        return [moved(*pair) for pair in wide]

    def weights(
        self, decoder: RegionDecoder, ends: Sequence[Ends], errors: Sequence[int], always: Sequence[int]
    ) -> list[Ends]:
        """Ends of computed exponentials, the largest of all being 1: below the normal numbers, from 0 to twice them."""
        found = decoder.weights(self.arguments(ends, errors, always))
        if self.fmt is None:
            return found
        normal = 2 * self.fmt.tiny * max(high for _, high in found)
        return [(low * int(low >= normal), high * (1 + int(not high >= normal))) for low, high in found]

    def mean(self, bag: Bag, weights: Sequence[Ends], values: Sequence[Sequence[Ends]]) -> list[Ends]:
        """The ends of each coordinate of what attention computes of the positions of a bag."""
        box = []
        for ends in values:
            low, high = bag.lowest(weights, [a for a, _ in ends]), bag.lowest(weights, [-b for _, b in ends])
            off = self._off(bag, weights, ends) if self.fmt else 0
            box.append((low - off, off - high))
        return box

    def _off(self, bag: Bag, weights: Sequence[Ends], values: Sequence[Ends]) -> int:
        """How far a mean is off: n terms other than 0 are rounded as shares, factors, products and in n - 1 sums.

        Each by a share of the mean of |v|. Where values have one sign, and no share of one is below the normal numbers,
        nothing underflows.
        """
        fmt, n = self.fmt, self.slots
        assert fmt is not None
        sizes = [max(abs(a), abs(b)) for a, b in values]
        valued = bag.kinds & {i for i, size in enumerate(sizes) if size}
        with ctx.workprec(PRECISION):
            most, one = arb(max(sizes)) / arb(2) ** BITS, max(high for _, high in weights)
            require(fmt.holds(4 * n * (1 + most)), "a softmax may overflow in the format", NOT_CHECKABLE)
            if not valued:
                return 0
            as_factors = (1 + (arb(2) ** -fmt.factors if fmt.factors else 0)) ** 2  # a share, and a value
            share = (1 + fmt.growth(bag.most(valued) + 4)) * as_factors / (1 - self._of_total(bag, weights)) - 1
            off = share * -bag.lowest(weights, [-size for size in sizes])
            signs = {(values[i][0] > 0) - (values[i][1] < 0) for i in valued}
            least = least_of(
                arb(min(map(abs, values[i]))) / arb(2) ** BITS * (arb(weights[i][0]) / one) for i in valued
            )
            lightest = least_of(arb(weights[i][0]) / one for i in valued)
            is_normal = len(signs) == 1 and 0 not in signs and bool(least.min(lightest) > 2 * (n + 1) * fmt.tiny)
            return -below(-off, 0) + (0 if is_normal else -below(-4 * n * fmt.tiny * (1 + most)))

    def _of_total(self, bag: Bag, weights: Sequence[Ends]) -> arb:
        """By which share of itself the computed sum of weights is off.

        As any sum of n terms; or, as J of them are exactly 1 and the others add up to T: a partial sum with m ones is
        m + x, x >= 0, and the whole number m is one of the format. So rounding to nearest, or flushing, at most doubles
        x, in n - 1 sums: the computed total is J to J + 2^(n - 1) T.
        """
        fmt, n = self.fmt, self.slots
        assert fmt is not None
        one = max(high for _, high in weights)
        ones = {i for i, (low, high) in enumerate(weights) if low == high == one}
        found = fmt.growth(n) + 4 * n * fmt.tiny
        J, others = bag.fewest(ones), [weights[i][1] for i in bag.kinds - ones]
        if J and n <= 2**fmt.p:
            found = found.min(arb(2) ** n * n * max(others, default=0) / one / J)
        require(bool(found < HALF), "a softmax is too far off in the format", NOT_CHECKABLE)
        return found

    # ---- what comes after it

    def ranges(
        self, decoder: RegionDecoder, own: fmpq_mat, boxes: Sequence[Sequence[Ends]], x: Reach | None
    ) -> list[list[Ends]]:
        """The ends of all prompts' scores of positions and of their values, by the boxes of their attention's outputs.

        `own` is what stands there, which x bounds as it is computed.
        """
        found, tops = list[list[Ends]](), list[list[arb]]()
        with ctx.workprec(PRECISION):
            for row, box in zip(own.table(), boxes, strict=True):
                stream, corners = arb_mat(fmpq_mat([[*row]])), arb_mat(
                    [[arb(y) / arb(2) ** BITS for y in corner] for corner in product(*box)])  # fmt: skip
                found.append(decoder.ranges(stream, corners))
                tops += [decoder.tops(stream, corners)] * (self.fmt is not None)
            if self.fmt is None or x is None:
                return found
            rows = zip(found, self._seen(x, arb_mat([*map(_sizes, boxes)]), arb_mat(tops)), strict=True)
            return [[(a - e, b + e) for (a, b), e in zip(*both, strict=True)] for both in rows]

    def _seen(self, x: Reach, sizes: arb_mat, tops: arb_mat) -> list[list[int]]:
        """How far all prompts' scores and values are off; `tops` are the largest numbers of neurons before ReLU."""
        assert self.fmt is not None
        on = Roundoff(self.fmt)
        scores, values = seen(on, on.total([(given(Reach(sizes, sizes)), self.W["W_O"])], [x]), self.W, tops)
        both = zip(scores.error.transpose().tolist(), values.error.tolist(), strict=True)
        return [[-below(-e) for e in [*a, *b]] for a, b in both]

    def lost(self, box: Sequence[Ends]) -> list[fmpq]:
        """How far logits are off of a box of means."""
        assert self.fmt is not None
        with ctx.workprec(PRECISION):
            sizes = arb_mat([_sizes(box)])
            found = read_by_prompts(Roundoff(self.fmt), given(Reach(sizes, sizes)), self.W)
            return [fmpq(-below(-e), 1 << BITS) for e in found.error.entries()]

    def shows(self, decoder: RegionDecoder, k: int, box: Sequence[Ends], margin: fmpq) -> bool:
        """Whether class k leads all others by the margin, wherever in the box the prompts' mean is."""
        return decoder.shows(k, box, margin, self.lost if self.fmt else None)


def _sizes(box: Sequence[Ends]) -> list[arb]:
    return [arb(max(abs(a), abs(b))) / arb(2) ** BITS for a, b in box]


class CausalMeans:
    """What the attention of the causal encoder computes, where positions are told by token and delimiters."""

    def __init__(self, computed: ComputedRegions, has_bos: bool, N: int) -> None:
        W, self.computed, self.has_bos, self.N = computed.W, computed, has_bos, N
        assert computed.fmt is not None
        on, x = Roundoff(computed.fmt), exact(W["E"])
        q, k, v = (on.total([(x, W[name])], []) for name in ("W_Q", "W_K", "W_V"))
        self.off = [[-below(-e) for e in row] for row in on.scores(q, k).error.tolist()]
        scores = ((W["E"] * W["W_Q"]) * (W["E"] * W["W_K"]).transpose()).tolist()
        self.scores = [[(below(arb(s)), -below(-arb(s))) for s in row] for row in scores]
        both = zip(zip(*(W["E"] * W["W_V"]).tolist(), strict=True), v.error.transpose().tolist(), strict=True)
        self.values = [[(below(arb(y) - e), -below(-arb(y) - e)) for y, e in zip(*rows, strict=True)] for rows in both]

    def ends(self, decoder: RegionDecoder, kinds: Sequence[tuple[int, int]]) -> list[list[Ends]]:
        """Those of all prompts' scores of tokens after so many delimiters, themselves included, and of their values."""
        own = fmpq_mat([self.computed.W["E"].table()[t] for t, _ in kinds])
        boxes = [self.box(decoder, t, m) for t, m in kinds]
        return self.computed.ranges(decoder, own, boxes, exact(own))

    def box(self, decoder: RegionDecoder, token: int, m: int) -> list[Ends]:
        """The ends of the output at a token after m delimiters, itself included, in strings of up to N tokens."""
        tokens, own = 4 + self.has_bos, [token] * (token < OPEN)
        ends, errors = self.scores[token][:tokens], self.off[token][:tokens]
        weights = self.computed.weights(decoder, ends, errors, [4 if self.has_bos else token])
        counted = [((m + 1) // 2, [OPEN]), (m // 2, [CLOSE])]
        room = max(0, self.N - m - m % 2 - len(own)) * (token < 4)
        bag = Bag([*own, *[4] * self.has_bos], [], [x for x in counted if x[0]], [ZERO, ONE], room)
        return self.computed.mean(bag, weights, [row[:tokens] for row in self.values])


def show_by_steps(is_shown: bool, strings: Strings, gaps: Gaps, margin: fmpq, computed: Computed | None) -> None:
    """What cells do not show, strings one by one may in real arithmetic, which says nothing of a dtype's orders.

    Of many strings the shortest ones may be below the margin, which is false then, and else not checkable. In a dtype
    the string that real arithmetic has nearest is `computed` in one order, which may have less than is said.
    """
    if is_shown:
        return
    is_known = one_by_one(strings.shortest_ones, gaps, margin) if computed is None else True
    require(is_known and strings.are_few, NOT_SHOWN, NOT_CHECKABLE)
    if computed is None:
        return
    nearest = min(strings.every(), key=lambda text: min(float(x) for row in gaps(text, DIGITS[0]) for x in row))
    has_less = any(x < 2 * margin for row in computed(nearest) for x in row)
    raise Refusal(NOT_SHOWN, FAILS if has_less else NOT_CHECKABLE)


def one_by_one(strings: Strings, gaps: Gaps, margin: fmpq) -> bool:
    """Whether each string by itself is answered by the margin. Raises: Refusal where one has less."""
    found = (x for text in strings.every() for row in gaps(text, DIGITS[0]) for x in row)
    unshown = [x for x in found if not x >= margin]  # a ball may hold the margin, and then says nothing
    require(not any(x < margin for x in unshown), NOT_SHOWN)
    return not unshown
