"""Multisets that a saved tree decides one by one: their inputs are run together, or bounded where they are many."""

from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from math import factorial, prod

from flint import fmpz_mat

from verify.checker.leaves import IN_REAL, At, Leaf, Region, Work, fillings, held_by, is_right_by
from verify.checker.reading import NOT_CHECKABLE, require

DIRECT = 1 << 8  # inputs of one multiset that are run rather than bounded
AT_ONCE = 1 << 8  # inputs that are run together


class Run:
    """Inputs at one position that are decided by their exact pre-activations, many at once.

    A row of `mixed` says for each token with which weight it is mixed in, and `inputs` how many inputs that are.
    """

    def __init__(self, leaf: Leaf, at: At) -> None:
        self.leaf, self.at = leaf, at
        self.mixed: list[list[int]] = []
        self.inputs: list[tuple[int, Region]] = []

    @cached_property
    def exact(self) -> tuple[fmpz_mat, list[int], list[int]]:
        """D times the pre-activations: what one unit of weight on each token adds, all else, and their error."""
        at, model = self.at, self.at.model
        t, T = at.cell.t, model.T
        rests = [row + b for row, b in zip(model.V[t], model.biases, strict=True)]
        u = [[x + rest * model.is_softmax for x, rest in zip(row, rests, strict=True)] for row in model.V]
        base = [rest * model.D[0] + sum(w[0] * u[s][i] for w, s in at.fixed) for i, rest in enumerate(rests)]
        error = [abs(rest) * (model.D[1] - model.D[0]) for rest in rests]
        error = [e + sum((b - a) * abs(u[s][i]) for (a, b), s in at.fixed) for i, e in enumerate(error)]
        if model.is_linear:
            widths = [sum(b - a for a, b in at.weights)] * T
        else:
            widths = [(b - a) * (model.L - 1) for a, b in at.weights[:T]]
        error = [e + max(width * abs(u[s][i]) for s, width in enumerate(widths)) for i, e in enumerate(error)]
        terms = u[:T] if model.is_linear else [[at.weights[s][0] * x for x in u[s]] for s in range(T)]
        return fmpz_mat(terms), base, error

    def settle(self, region: Region, work: Work) -> int:
        """How many pairs of one multiset at this position are wrong, beside those that are left to be run."""
        at, leaf = self.at, self.leaf
        if _arrangements(at, region) <= DIRECT:
            orders = [
                shares(_classes_of(at, group.slots), tuple(n for _, n in held_by(group))) for group in region.groups
            ]
            work.more(prod(map(len, orders)))
            return self.add(region, orders)
        work.more(1)
        if leaf.is_right(region):
            return 0
        if leaf.is_wrong(region):
            return leaf.cell.ways(region, leaf.k)
        weights = {slot: at.weights[slot][0] for group in region.groups for slot in group.slots}
        mean = sum(weights.values())
        slot = max(weights, key=lambda m: abs(len(weights) * weights[m] - mean))  # whose weight stands out most
        return sum(self.settle(part, work) for part in fillings(region, slot))

    def add(self, region: Region, orders: list[list[tuple[tuple[int, ...], int]]]) -> int:
        cell, held = self.leaf.cell, [held_by(group) for group in region.groups]
        for choice in product(*orders):
            row, ways = [0] * cell.model.T, 1
            for (weights, n), symbols in zip(choice, held, strict=True):
                ways *= n
                for weight, (node, _) in zip(weights, symbols, strict=True):
                    row[cell.t if node == -1 else cell.others[node]] += weight
            for slot, node in region.filled:
                row[cell.t if node == -1 else cell.others[node]] += self.at.weight(slot)[0]
            self.mixed.append(row)
            self.inputs.append((ways, region))
        return self.decide() if len(self.mixed) >= AT_ONCE else 0

    def decide(self) -> int:
        """How many pairs of the inputs so far are wrong; the inputs are forgotten."""
        if not self.mixed:
            return 0
        require(not self.leaf.model.roundings, IN_REAL, NOT_CHECKABLE)
        leaf, model, wrong = self.leaf, self.leaf.model, 0
        terms, base, error = self.exact
        values = (fmpz_mat(self.mixed) * terms).tolist()
        on = [[max(0, int(z) + b) for z, b in zip(row, base, strict=True)] for row in values]
        slopes = [[row[leaf.right] - row[c] for row in model.W_2] for c in leaf.others]
        ahead = (fmpz_mat(on) * fmpz_mat(slopes).transpose()).tolist() if slopes else [[]] * len(on)
        errors = [sum(abs(n) * e for n, e in zip(slope, error, strict=True)) for slope in slopes]
        for row, z, (ways, region), mixed in zip(ahead, on, self.inputs, self.mixed, strict=True):
            claimed, off = leaf.margin * z[-1], leaf.margin * error[-1]
            if all(x - e - claimed - off >= model.need for x, e in zip(row, errors, strict=True)):
                continue
            if not any(x + e <= 0 for x, e in zip(row, errors, strict=True)):
                tokens = self._an_order(region, mixed)
                if is_right_by(model, tokens, self.at.position, Fraction(leaf.margin, model.one)):
                    continue
            wrong += ways
        self.mixed, self.inputs = [], []
        return wrong

    def _an_order(self, region: Region, mixed: list[int]) -> list[int]:
        """An input of a multiset in which each token has this weight."""
        leaf, at = self.leaf, self.at
        t, others = leaf.cell.t, leaf.cell.others
        parts = [region]
        while parts:
            part = parts.pop()
            group = next((group for group in part.groups if len(_classes_of(at, group.slots)) > 1), None)
            if group is not None:
                parts += fillings(part, group.slots[0])
                continue
            row = [0] * leaf.model.T
            for slot, node in part.filled:
                row[t if node == -1 else others[node]] += at.weight(slot)[0]
            for group in part.groups:
                for node, n in held_by(group) if group.slots else []:
                    row[t if node == -1 else others[node]] += n * at.weight(group.slots[0])[0]
            if row == mixed:
                return leaf.an_input(at, part)
        raise AssertionError("a row that no order has")


def _classes_of(at: At, slots: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The different weights of these slots, and how many have each."""
    weights = [a for a, _ in at.of_group(slots)]
    return tuple((a, weights.count(a)) for a in sorted({*weights}))


def _arrangements(at: At, region: Region) -> int:
    """At least the number of inputs that a multiset stands for, slots of equal weight taken together."""
    found = 1
    for group in region.groups:
        if len(_classes_of(at, group.slots)) > 1:
            found *= factorial(len(group.slots)) // prod(factorial(n) for _, n in held_by(group))
    return found


@lru_cache(maxsize=1 << 12)
def shares(classes: tuple[tuple[int, int], ...], counts: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """With which weights symbols can be held, so many times each, and in how many ways.

    Slots come as their different weights, and how many have each of them.
    """
    if not classes:
        return [((0,) * len(counts), 1)]
    (weight, size), *rest = classes
    found = []
    for taken in product(*(range(n + 1) for n in counts)):
        if sum(taken) != size:
            continue
        ways = factorial(size)
        for n in taken:
            ways //= factorial(n)
        left = tuple(n - m for n, m in zip(counts, taken, strict=True))
        for sums, more in shares(tuple(rest), left):
            found.append((tuple(x + weight * m for x, m in zip(sums, taken, strict=True)), ways * more))
    return found
