"""Count01 in real arithmetic with one head: exact linear inequalities in (n0, n1, n2), no bound needed.

With D(n) = sum over tokens of n_t e^{score_t} > 0, every difference of two logits times D is linear in
(n0, n1, n2) with coefficients that are sums of exponentials of rationals. On a polyhedron with integer
vertices and rays it is positive on all integer points if and only if it is positive at every vertex and
not negative along any ray, and each of these signs is decidable (verify.arithmetic.exact_reals).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from flint import arb, ctx

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import (
    Combination,
    Undecided,
    exponentials,
    first_nonpositive,
    float_below,
    float_of,
    precisions,
    total,
)
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import check_finite, fractions
from verify.tasks.count01.task import (
    EQUALS,
    FIVE,
    FOUR,
    Prompt,
    PromptDomain,
    Side,
    SideCell,
    Triple,
    cells,
    kinds,
    multiplicities,
)

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

FAR = 64  # steps along a ray, where a run looks at what the proof says of all of it
BITS = 256  # of a margin
MOST_BITS = 1 << 14  # for several heads, where no theorem says that more bits end the search


@dataclass(frozen=True, eq=False)
class ExactModel:
    """A model as exact numbers: scores per head, what each token contributes to each logit, and the rest.

    Logits after `last` are (constant[last][j] + sum over heads of the weighted mean of values[head][t][j])
    / scale, where token t weighs exp(scores[head][last][t]) and scale > 0.
    """

    classes: int
    scores: tuple[dict[int, list[Fraction]], ...]
    values: tuple[list[list[Combination]], ...]
    constant: dict[int, list[Combination]]
    scale: Combination

    @property
    def heads(self) -> int:
        return len(self.scores)


def exact_model(model: Count01Model, seen: Array | None = None) -> ExactModel:
    """The stored numbers of a module, as they are; `seen` (8, d) is what the attention reads in place of the tokens.

    Raises: BadInput for a weight that is NaN or infinite.
    """
    check_plain(model, may_have_norm=seen is not None)
    check_finite(model.named_parameters())
    E, W_out, lasts = fractions(model.E), fractions(model.W_out), (EQUALS, FOUR, FIVE)
    read = E if seen is None else np.vectorize(Fraction, otypes=[object])(seen)
    b_out = fractions(model.b_out).tolist()
    scores, values = [], []
    for h in range(model.heads):
        W_Q, W_K, W_V, W_O = (fractions(W[h]) for W in (model.W_Q, model.W_K, model.W_V, model.W_O))
        found = read[list(lasts)] @ W_Q @ (read @ W_K).T
        scores.append(dict(zip(lasts, found.tolist(), strict=True)))
        values.append([[exponentials({0: x}) for x in row] for row in read @ W_V @ W_O @ W_out])
    residual = E @ W_out
    constant = {
        last: [exponentials({0: b + (r if model.has_skip else 0)}) for r, b in zip(residual[last], b_out, strict=True)]
        for last in lasts
    }
    return ExactModel(len(b_out), tuple(scores), tuple(values), constant, exponentials({0: 1}))


def check_plain(model: Count01Model, *, may_have_norm: bool = False) -> None:
    """Raises BadInput for layer norm or scaled scores, which this proof does not speak of."""
    has_norm = model.has_norm and not may_have_norm
    if has_norm or model.scale != 1:
        what = "layer norm" if has_norm else f"scores divided by sqrt({model.scale})"
        raise BadInput(
            f"weights: {what} is decided in the reading real, or run by --method exhaustive; leave --precision out"
        )


@dataclass(frozen=True)
class CountForm:
    """D(n) times (expected logit - rival logit) and D(n), as linear forms: constant, then n0, n1, n2."""

    cell: SideCell
    rival: int
    difference: tuple[Combination, Combination, Combination, Combination]
    normaliser: tuple[Combination, Combination, Combination, Combination]

    def moved(self, origin: Triple) -> CountForm:
        """Rewrites the form in counts from an origin."""
        if not any(origin):
            return self
        difference, normaliser = (
            (value_at(line, (1, *origin)), *line[1:]) for line in (self.difference, self.normaliser)
        )
        return CountForm(self.cell, self.rival, difference, normaliser)

    def at(self, n: Triple) -> Combination:
        return value_at(self.difference, (1, *n))

    def along(self, ray: Triple) -> Combination:
        return value_at(self.difference[1:], ray)

    def quotient(self, n: Triple) -> arb:
        """difference / normaliser."""
        with ctx.workprec(BITS):
            return self.at(n).ball(BITS) / value_at(self.normaliser, (1, *n)).ball(BITS)


def value_at(line: Iterable[Combination], numbers: Iterable[int]) -> Combination:
    """The sum of multiples of a form's coefficients."""
    return total(c * k for c, k in zip(line, numbers, strict=True) if k)


@lru_cache(maxsize=4)
def forms(model: ExactModel, labels: str, lasts: tuple[int, ...]) -> list[CountForm]:
    """One linear form per cell after these tokens and rival; only for one head."""
    assert model.heads == 1
    out = []
    for cell in cells(labels, lasts):
        weights = {t: exponentials({model.scores[0][cell.last][t]: 1}) for t in kinds(cell.last)}
        values, constant, normaliser = model.values[0], model.constant[cell.last], by_count(weights)
        for rival in range(model.classes):
            if rival == cell.expected:
                continue
            offset = constant[cell.expected] - constant[rival]
            term = {t: w * (values[t][cell.expected] - values[t][rival] + offset) for t, w in weights.items()}
            out.append(CountForm(cell, rival, by_count(term), normaliser))
    return out


def by_count(term: dict[int, Combination]) -> tuple[Combination, Combination, Combination, Combination]:
    """The constant part (every token that is there once), then the parts of 0, 1 and 2."""
    first, zero, one, two, *rest = term.values()
    return total([first, *rest]), zero, one, two


def vertices(side: Side, domain: PromptDomain) -> Iterator[Triple]:
    """The vertices of one side of a domain without max_length: all integer."""
    A, step = domain.max_digits, sum(side.base)  # step: 1 on the side n1 >= n0 + 1, else 0
    if A is not None and step > A:
        return
    ends = [(0, 0)] if A is None else [(0, 0), (0, A - step), (A - step, 0)]
    for a, b in dict.fromkeys(ends):
        for c in dict.fromkeys((0, domain.max_noise or 0)):
            yield side.at(a, b, c)


def rays(side: Side, domain: PromptDomain) -> Iterator[Triple]:
    """The directions in which one side of a domain is unbounded."""
    if domain.max_digits is None:
        yield from ((1, 1, 0), side.away)
    if domain.max_noise is None:
        yield (0, 0, 1)


@dataclass(frozen=True)
class ExactFailure:
    """An input on which the expected token's logit is not strictly largest, and against which rival."""

    n: Triple
    last: int
    expected: int
    rival: int
    margin: float
    margin_exact: str | None = None


@dataclass(frozen=True)
class Decision:
    """The outcome for one head on a domain: a failure per failing form, and a lower bound on the margin.

    `telling` is the tightest corner, and a prompt along the tightest ray.
    """

    failures: tuple[ExactFailure, ...]
    margin: float | None
    tightest: dict[str, object] | None
    has_infimum_zero: bool = False  # along some ray the margin tends to exactly 0
    margin_scaled: float | None = None  # a lower bound on margin times normaliser, which no ray lessens
    telling: tuple[Prompt, ...] = ()


Ends = dict[tuple[int, int, int, int], Combination]  # of a form: (1, n) at a vertex, (0, ray) along a ray


def forms_on(model: ExactModel, labels: str, domain: PromptDomain) -> list[tuple[CountForm, Ends]]:
    """Every form that has vertices in the domain, in counts from its origin, with what it is at its ends."""
    moved, found = domain.moved, []
    for form in forms(model, labels, domain.lasts):
        corners = list(vertices(form.cell.side, moved))
        if corners:
            form = form.moved(domain.origin)
            numbers = [(1, *v) for v in corners] + [(0, *ray) for ray in rays(form.cell.side, moved)]
            found.append((form, {at: value_at(form.difference, at) for at in numbers}))
    return found


def fails(ends: Ends) -> bool:
    """Whether a form is not positive at a vertex, or negative along a ray."""
    return any(value.sign() < at[0] for at, value in ends.items())


def failures(model: ExactModel, labels: str, domain: PromptDomain) -> tuple[ExactFailure, ...]:
    """A small failure of every form that fails on a domain without max_length, the simplest first.

    Raises: Undecided when a failing count has more than 2^22 bits.
    """
    return _failures(forms_on(model, labels, domain), domain, model.scale)


def _failures(
    listed: list[tuple[CountForm, Ends]], domain: PromptDomain, scale: Combination
) -> tuple[ExactFailure, ...]:
    found = (smallest_failure(form, domain.moved, scale) for form, ends in listed if fails(ends))
    return tuple(sorted((replace(one, n=plus(one.n, domain.origin)) for one in found), key=simplicity))


def decide(model: ExactModel, labels: str, domain: PromptDomain) -> Decision:
    """Decides one head on a domain without max_length, bounded or not; exact and complete.

    Raises: Undecided when a failing count has more than 2^22 bits.
    """
    listed, origin = forms_on(model, labels, domain), domain.origin
    found = _failures(listed, domain, model.scale)
    if found:
        return Decision(found, None, None)
    low, tightest, scaled, has_zero = None, None, None, False
    telling: dict[str, tuple[float, Prompt]] = {}
    normalisers: dict[tuple[SideCell, tuple[int, int, int, int]], arb] = {}
    scale = model.scale.ball(BITS)
    for form, ends in listed:
        for at, value in ends.items():
            kind, n = "at" if at[0] else "towards", (at[1], at[2], at[3])
            ball = value.ball(BITS)
            if kind == "at":
                least = float_below(ball / scale)
                scaled = least if scaled is None else min(scaled, least)
            is_zero = kind == "towards" and value.is_zero  # exactly: there the infimum is 0
            has_zero |= is_zero
            if (form.cell, at) not in normalisers:
                normalisers[form.cell, at] = value_at(form.normaliser, at).ball(BITS)
            with ctx.workprec(BITS):
                quotient = ball / normalisers[form.cell, at]
            margin = 0.0 if is_zero else max(0.0, float_below(quotient / scale))
            if kind not in telling or margin < telling[kind][0]:
                run = n if kind == "at" else (FAR * n[0], FAR * n[1], FAR * n[2])
                telling[kind] = margin, (plus(run, origin), form.cell.last)
            if low is None or margin < low or (is_zero and margin == low):
                low = margin
                tightest = {
                    kind: list(n if kind == "towards" else plus(n, origin)),
                    **({"limit": "0"} if is_zero else {}),
                    "last": form.cell.last,
                    "expected": form.cell.expected,
                    "rival": form.rival,
                }
    return Decision((), low, tightest, has_zero, scaled, tuple(prompt for _, prompt in telling.values()))


def holds(model: ExactModel, labels: str, domain: PromptDomain) -> bool:
    """Whether one head is right on a domain without max_length; exact and complete, as `decide`."""
    return not any(fails(ends) for _, ends in forms_on(model, labels, domain))


def plus(n: Iterable[int], origin: Triple) -> Triple:
    a, b, c = (x + y for x, y in zip(n, origin, strict=True))
    return a, b, c


def simplicity(failure: ExactFailure) -> tuple[int, Triple, int]:
    return sum(failure.n), failure.n, failure.last


def smallest_failure(form: CountForm, domain: PromptDomain, scale: Combination) -> ExactFailure:
    """A failing triple of a failing form that no single coordinate can shrink further."""
    side, step = form.cell.side, sum(form.cell.side.base)

    def fails(a: int, b: int, c: int) -> bool:
        return form.at(side.at(a, b, c)).sign() <= 0

    generators = ((1, 1, 0), side.away, (0, 0, 1))
    A, B = domain.max_digits, domain.max_noise
    largest = (None if A is None else A - step, None if A is None else A - step, B)
    candidates = []
    for i, (generator, most) in enumerate(zip(generators, largest, strict=True)):
        k = first_nonpositive(form.at(side.base), form.along(generator))
        if k is not None and (most is None or k <= most):
            point = [0, 0, 0]
            point[i] = k
            candidates.append(point)
    if not candidates:  # it takes two directions at once: start from a failing vertex and shrink it
        ends = [(0, 0), (0, (A or 0) - step), ((A or 0) - step, 0)]
        a, b = next((a, b) for a, b in ends if fails(a, b, B or 0))
        candidates.append([a, b, B or 0])
    point = min(candidates, key=lambda p: (sum(side.at(*p)), p))
    for i in (2, 1, 0):
        without = side.at(*(0 if j == i else x for j, x in enumerate(point)))
        k = first_nonpositive(form.at(without), form.along(generators[i]))
        point[i] = point[i] if k is None else k
    n = side.at(*point)
    zero = form.at(n).sign() == 0
    margin = 0.0 if zero else float_of(form.quotient(n) / scale.ball(BITS))
    return ExactFailure(n, form.cell.last, form.cell.expected, form.rival, margin, "0" if zero else None)


def largest_noise(model: ExactModel, labels: str, max_digits: int | None, *, is_semantic: bool = False) -> int | None:
    """The exact largest n2 up to which every n0, n1 <= max_digits is right; None: any, -1: not even 0.

    Raises: Undecided when the limit has more than 2^22 bits.
    """
    limit: int | None = None
    for form in forms(model, labels, PromptDomain(is_semantic=is_semantic).lasts):
        domain = PromptDomain(max_digits=max_digits, max_noise=0)
        if any(form.along(r).sign() < 0 for r in rays(form.cell.side, domain)):
            return -1
        slope = form.along((0, 0, 1))
        for v in vertices(form.cell.side, domain):
            k = first_nonpositive(form.at(v), slope)
            limit = _tighter(limit, None if k is None else k - 1)
    return limit


def largest_digits(model: ExactModel, labels: str, max_noise: int | None, *, is_semantic: bool = False) -> int | None:
    """The exact largest A: all n0, n1 <= A with n2 <= max_noise are right; None: any, -1: not even 0.

    Raises: Undecided when the limit has more than 2^22 bits.
    """
    limit: int | None = None
    for form in forms(model, labels, PromptDomain(is_semantic=is_semantic).lasts):
        side, step = form.cell.side, sum(form.cell.side.base)
        if max_noise is None and form.along((0, 0, 1)).sign() < 0:
            return -1
        for c in dict.fromkeys((0, max_noise or 0)):
            for ray in ((1, 1, 0), side.away):
                k = first_nonpositive(form.at(side.at(0, 0, c)), form.along(ray))
                limit = _tighter(limit, None if k is None else k + step - 1)
    return limit


def _tighter(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def margin_at(model: ExactModel, n: Triple, last: int, expected: int) -> tuple[int, int, arb]:
    """(sign, rival, value) of the expected logit over the best other at one input, for any number of heads.

    Raises: Undecided when 2^14 bits do not show it (with several heads an exact tie can do that).
    """
    rivals = [j for j in range(model.classes) if j != expected]
    for bits in precisions():
        balls = logit_differences(model, n, last, expected, bits)
        if all(balls[j] > 0 for j in rivals):
            return (
                1,
                min(rivals, key=lambda j: float(balls[j].mid())),
                min((balls[j] for j in rivals), key=lambda ball: float(ball.lower())),
            )
        for j in rivals:
            if balls[j] < 0:
                return -1, j, balls[j]
        undecided = [j for j in rivals if not balls[j] > 0]
        ties = [j for j in undecided if is_tie(model, n, last, expected, j)]
        if ties:
            return 0, ties[0], arb(0)
        if bits > MOST_BITS and model.heads > 1:
            break
    raise Undecided(f"n = {n} after token {last}: too close to a tie of several heads to decide")


def logit_differences(model: ExactModel, n: Triple, last: int, expected: int, bits: int) -> list[arb]:
    """Enclosures of (expected logit - logit j) * scale for every j."""
    with ctx.workprec(bits):
        out = [(model.constant[last][expected] - c).ball(bits) for c in model.constant[last]]
        for h in range(model.heads):
            weights = [
                exponentials({model.scores[h][last][t]: k}).ball(bits)
                for t, k in zip(kinds(last), multiplicities(n, last), strict=True)
            ]
            D = sum(weights, arb(0))
            for j in range(model.classes):
                values = ((model.values[h][t][expected] - model.values[h][t][j]).ball(bits) for t in kinds(last))
                out[j] += sum((w * v for w, v in zip(weights, values, strict=True)), arb(0)) / D
        return out


def is_tie(model: ExactModel, n: Triple, last: int, expected: int, rival: int) -> bool:
    """Whether two logits are exactly equal, by expanding the common denominator of all heads.

    Answers False for more than four heads, where the expansion would be too long: then nothing is claimed.
    """
    if model.heads > 4:
        return False
    numerator = model.constant[last][expected] - model.constant[last][rival]
    denominator = exponentials({0: 1})
    for h in range(model.heads):
        weights = [
            exponentials({model.scores[h][last][t]: k})
            for t, k in zip(kinds(last), multiplicities(n, last), strict=True)
        ]
        D = total(weights)
        N = total(
            w * (model.values[h][t][expected] - model.values[h][t][rival])
            for w, t in zip(weights, kinds(last), strict=True)
        )
        numerator = numerator * D + denominator * N
        denominator = denominator * D
    return numerator.is_zero
