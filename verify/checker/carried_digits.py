"""The second layer of an adder, from its means to the digit, and small sums of balls (docs/checker.md)."""

from collections.abc import Sequence
from functools import reduce

from flint import arb, arb_mat, fmpq_mat

from verify.checker.adder import AdderLayer, InSteps
from verify.checker.ball_rows import least_of

Balls = list[arb]
Ends = tuple[arb, arb]


class NeuronSteps:
    """What is computed of a layer's neurons and after them, in balls.

    Of whatever is read of a stream, and of the products with W_1 and b_1 of what is read, before these are rounded.
    """

    def __init__(self, steps: InSteps, layer: AdderLayer, stream: Balls, z: Balls) -> None:
        self.W_2 = layer.W_2
        self.off_z = steps.off(stream, layer.W_1, [*map(arb, layer.b_1.entries())])
        self.z = around(z, self.off_z)
        self.h = [*map(max_0, self.z)]
        self.apart, self.off = steps.apart(stream), steps.off(self.h, layer.W_2, stream)
        self.left = around(added(stream, product(self.h, layer.W_2)), self.off)

    def lost(self, v: fmpq_mat, on: Sequence[int]) -> arb:
        """What these steps may take from (stream after them) v, which goes through the neurons that are on.

        The stream that is added may be another reading of it than the neurons'.
        """
        gains = (self.W_2 * v).entries()
        lost = sum((abs(arb(gains[a])) * self.off_z[a] for a in on), arb(0))
        of_stream = zip(v.entries(), self.apart, self.off, strict=True)
        return sum((abs(arb(g)) * (x + y) for g, x, y in of_stream), lost)


def ahead(steps: InSteps, x: Balls, means: list[Ends], W_O: fmpq_mat, right: int) -> arb:
    """How far the right logit is at least above all others, of x + means W_O.

    Neurons that are on make it affine in the means, and so least at one end of each. What the four sums round is
    another term of each: those before a neuron that is on go through it.
    """
    layer, W_out, found = steps.model.layers[-1], steps.model.W_out, list[arb]()
    read, b_1, b_out = [a.union(b) for a, b in means], layer.b_1.entries(), steps.model.b_out.entries()
    off = steps.off(read, W_O, x)
    stream = around(added(x, product(read, W_O)), off)
    after = NeuronSteps(steps, layer, stream, added(product(stream, layer.W_1), [*map(arb, b_1)]))
    off_logits = steps.off(after.left, W_out, [*map(arb, b_out)])
    on = [a for a, y in enumerate(after.z) if y >= 0]
    for other in {*range(W_out.ncols())} - {right}:
        difference = fmpq_mat([[W_out[m, right] - W_out[m, other]] for m in range(W_out.nrows())])
        direction, gains, gap = difference, (layer.W_2 * difference).entries(), arb(b_out[right] - b_out[other])
        for a, (gain, y) in enumerate(zip(gains, after.z, strict=True)):
            if a in on:
                direction += gain * fmpq_mat([[layer.W_1[m, a]] for m in range(len(x))])
            gap += gain * (arb(b_1[a]) if a in on else max_0(y))
        of_means = zip(means, (W_O * direction).entries(), strict=True)
        gap += product(x, direction)[0] - off_logits[right] - off_logits[other] - after.lost(difference, on)
        gap -= sum((abs(arb(g)) * e for g, e in zip(direction.entries(), off, strict=True)), arb(0))
        found.append(sum((least_of([g * a, g * b]).lower() for (a, b), g in of_means), gap))
    return least_of(found).lower()


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
