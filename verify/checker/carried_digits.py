"""The second layer of an adder, from its means to the digit, and small sums of balls (docs/checker.md)."""

from collections.abc import Sequence
from functools import reduce

from flint import arb, arb_mat, fmpq_mat

from verify.checker.adder import InSteps

Balls = list[arb]
Ends = tuple[arb, arb]


def ahead(steps: InSteps, x: Balls, means: list[Ends], W_O: fmpq_mat, right: int) -> arb:
    """How far the right logit is at least above all others, of x + means W_O.

    Neurons that are on make it affine in the means, and so least at one end of each. What the four sums round is
    another term of each: those before a neuron that is on go through it.
    """
    layer, W_out, found = steps.model.layers[-1], steps.model.W_out, list[arb]()
    read, b_1, b_out = [a.union(b) for a, b in means], layer.b_1.entries(), steps.model.b_out.entries()
    off = steps.off(read, W_O, x)
    stream = around(added(x, product(read, W_O)), off)
    off_z = steps.off(stream, layer.W_1, [*map(arb, b_1)])
    z = around(added(product(stream, layer.W_1), [*map(arb, b_1)]), off_z)
    h = [*map(max_0, z)]
    off_last = steps.off(h, layer.W_2, stream)
    off_logits = steps.off(around(added(stream, product(h, layer.W_2)), off_last), W_out, [*map(arb, b_out)])
    for other in {*range(W_out.ncols())} - {right}:
        difference = fmpq_mat([[W_out[m, right] - W_out[m, other]] for m in range(W_out.nrows())])
        direction, gains, gap = difference, (layer.W_2 * difference).entries(), arb(b_out[right] - b_out[other])
        for a, (gain, y) in enumerate(zip(gains, z, strict=True)):
            if y >= 0:
                direction += gain * fmpq_mat([[layer.W_1[m, a]] for m in range(len(x))])
                gap -= abs(arb(gain)) * off_z[a]
            gap += gain * (arb(b_1[a]) if y >= 0 else max_0(y))
        of_means = zip(means, (W_O * direction).entries(), strict=True)
        gap += product(x, direction)[0] - off_logits[right] - off_logits[other]
        for way, errors in ((direction, off), (difference, off_last)):
            gap -= sum((abs(arb(g)) * e for g, e in zip(way.entries(), errors, strict=True)), arb(0))
        found.append(sum((least_of([g * a, g * b]) for (a, b), g in of_means), gap))
    return least_of(found)


def product(x: Balls, W: fmpq_mat) -> Balls:
    return (arb_mat([x]) * arb_mat(W)).entries() if x else [arb(0)] * W.ncols()


def around(x: Balls, off: Balls) -> Balls:
    """Balls that hold what is computed as well."""
    return [y + arb(0, e.upper()) for y, e in zip(x, off, strict=True)]


def max_0(x: arb) -> arb:
    """ReLU of all numbers of a ball."""
    return x if x >= 0 else arb(0) if x <= 0 else arb(0).union(x.upper())


def added(x: Sequence[arb], y: Sequence[arb]) -> Balls:
    return [a + b for a, b in zip(x, y, strict=True)]


def hull(found: Sequence[Balls]) -> Balls:
    """Whatever any of them may be."""
    return [reduce(arb.union, column) for column in zip(*found, strict=True)]


def least_of(found: Sequence[arb]) -> arb:
    return min(x.lower() for x in found)
