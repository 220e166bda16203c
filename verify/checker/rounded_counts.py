"""What roundings do to a histogram model's linear forms, slot by slot: costs beside each weight (docs/checker.md).

Errors are sums over the slots as the numbers are. So they are taken off the terms of the forms over which real
arithmetic minimises, and each input has its own. A row of lin has its weights by position: costs are a share of them.
"""

from collections.abc import Mapping, Sequence

from flint import arb, arb_mat, fmpq_mat, fmpz_mat

from verify.checker.ball_rows import most_of
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import Numbers, chosen
from verify.checker.mathematics import FINEST, Model
from verify.checker.reading import NOT_CHECKABLE, Weights, require
from verify.checker.roundoff import FLUSHED, Reach, Roundoff, exact, largest

SPARE = 2  # of what is rounded after another rounding: of sums of weights, which are at most this far above 1


FINE = 150  # bits after the point of a number that is rounded
TOO_FAR = "a softmax is too far off in the format"
FACTORS = ("x", "W_Q", "W_K", "W_1", "W_2")


class CountRoundings:
    """Bounds, in the units of a model's integers, on what is computed of the scores, weights, sums and logits.

    The numbers of the model are those in the middle of what each may be as a factor, which are given as `factors`.
    """

    def __init__(self, on: Roundoff, W: Numbers, factors: dict[str, Reach], model: Model, root: arb) -> None:
        self.on, self.fmt, self.W, self.factors, self.model = on, on.fmt, W, factors, model
        self.few = arb(2) ** -(self.fmt.factors or 0) * bool(self.fmt.factors)  # what reading does to a number
        self.slots = model.L + len(model.V) - model.T
        if model.is_linear:
            self.share = self._of_positions()
            self.largest = largest(exact(W["A"]).size) * (1 + self.share)
        else:
            self.weights = [[self._weight(t, s) for s in range(len(model.V))] for t in range(model.T)]
            self.off, self.most = self._of_pairs(root)
            self.largest = largest(arb_mat(fmpz_mat(self.most))) / (model.D[0] or 1)
        self.slot, self.rest, top = self._read_by_neurons()
        self.kept = self._read_by_logits(top)

    def _of_pairs(self, root: arb) -> tuple[list[list[int]], list[list[int]]]:
        """Of each token for each other one, how far off its weight is, and how large it is at most."""
        model, (q, k) = self.model, (self._read_by(name) for name in ("W_Q", "W_K"))
        scores = self.on.scores(chosen(q, range(model.T)), k, root)
        errors = self._shares(scores) if model.is_softmax else self._of_weights(scores)
        off = [[_above(x) for x in row] for row in errors]
        return off, [[max(abs(a), abs(b)) + e for (a, b), e in zip(*rows, strict=True)]
                     for rows in zip(self.weights, off, strict=True)]  # fmt: skip

    def _of_positions(self) -> arb:
        """Weights of positions: by which share of itself one is off at most, as it is read.

        They are the same for all inputs, and so is what rounding makes of them.
        """
        A, found = self.W["A"], [arb(0)]
        if not self.model.is_softmax:
            require(all(x >= 0 for x in A.entries()), "weights below 0 are not followed", NOT_CHECKABLE)
            of_factor = zip(self.factors["A"].error.entries(), A.entries(), strict=True)
            return largest(arb_mat([[e / x if x != 0 else arb(0) for e, x in of_factor]]))
        g = self.fmt.growth(self.slots + 1)
        for row, tilts in zip(A.tolist(), self.on.tilts(exact(A)), strict=True):
            a, powers = largest(arb_mat([tilts])), [arb(x - max(row)).exp() for x in row]
            require(bool(a < 0.5) and bool(g < 0.5), TOO_FAR, NOT_CHECKABLE)
            off = (1 + 2 * a / (1 - a)) * (1 + g / (1 - g)) * (1 + self.fmt.growth(3)) - 1
            for p in [power / sum(powers, arb(0)) for power in powers]:
                found += [abs(y - p) / p for y in self._ends(p, p * off)]
        return largest(arb_mat([found]))

    def _read_by(self, name: str) -> Reach:
        """Queries or keys, as the products with each other read them: between the ends of what each may be, rounded."""
        found, real = self.on.product(self.factors["x"], self.factors[name]), (self.W["x"] * self.W[name]).table()
        off = [[most_of(abs(arb(y) - x) for y in self._ends(arb(x), e)) for x, e in zip(*rows, strict=True)]
               for rows in zip(real, found.error.tolist(), strict=True)]  # fmt: skip
        error = arb_mat([[x.upper() for x in row] for row in off])
        size = arb_mat([[abs(arb(x)) for x in row] for row in real]) + error
        is_exact = found.unit is not None and bool(largest(error) == 0)
        return Reach(size, error, found.unit if is_exact else None, None, True)

    def _ends(self, x: arb, error: arb) -> list[arb]:
        """The ends of numbers around x, themselves and as factors: rounding keeps their order."""
        ends = [(x - error).lower(), (x + error).upper()]
        if self.fmt.factors is None:
            return ends
        few, scale = BinaryFormat(self.fmt.factors, self.fmt.least, self.fmt.most), arb(2) ** FINE
        whole = [-_above(1 - ends[0] * scale), _above(ends[1] * scale + 1)]
        return ends + [arb(few.closest(n, FINE)) for n in whole]

    def _weight(self, t: int, s: int) -> tuple[int, int]:
        of_row = self.model.scores[t]
        return self.model.weight(of_row[s] - (max(of_row) if self.model.is_softmax else 0))

    def _of_weights(self, scores: Reach) -> list[list[arb]]:
        """Scores that are weights, times D: off, and then read as factors."""
        D = arb(self.model.D[1])
        real = [[abs(arb(x << self.model.bits)) for x in row] for row in self.model.scores[: self.model.T]]
        return [[e * D * (1 + self.few) + w * self.few for w, e in zip(*rows, strict=True)]
                for rows in zip(real, scores.error.tolist(), strict=True)]  # fmt: skip

    def _shares(self, scores: Reach) -> list[list[arb]]:
        """Exponentials, each off by a share a, over a sum of them that is off by the mean of all a, and rounded.

        The token itself and BOS are always in the sum, beside which other keys' errors are as small as their weights.
        And a - mean is the sum of p_j (a - a_j), p the weights, over the slots but its own: so many that the rest is at
        most (1 - p) (a + the largest).
        """
        fmt, N, T, found = self.fmt, self.slots, self.model.T, list[list[arb]]()
        g = fmt.growth(N + 1)
        require(bool(g < 0.5), TOO_FAR, NOT_CHECKABLE)
        d = (1 + g / (1 - g)) * (1 + fmt.growth(3)) * (1 + self.few)
        for t, shares in enumerate(self.on.tilts(scores)):
            low, e = ([arb(self._weight(t, s)[i]) for s in range(len(shares))] for i in (0, 1))
            always, worst, top = [t, *range(T, len(e))], largest(arb_mat([shares])), largest(arb_mat([e]))
            others = largest(arb_mat([[a * w for a, w in zip(shares, e, strict=True)]]))
            known = sum((shares[s] * e[s] for s in always), arb(0)) + (N - len(always)) * others
            least = sum((low[s] for s in always), arb(0))
            mean = worst.min(known / least) if least > 0 else worst
            require(bool(mean < 0.5), TOO_FAR, NOT_CHECKABLE)
            row = []
            for a, below, w in zip(shares, low, e, strict=True):
                moved = (a + mean).min((1 - below / (below + (N - 1) * top)) * (a + worst)) / (1 - mean)
                row.append(w * ((1 + moved) * d - 1))
            found.append(row)
        return found

    def _read_by_neurons(self) -> tuple[list[list[int]], list[list[int]], arb]:
        """Beside a slot's weight, and beside D, what is lost of each pre-activation: x' rounded and read, and W_1. And
        the largest of these."""
        fmt, model, N, (E, off, *_), weights = self.fmt, self.model, self.slots, self.factors["x"], self.factors["W_1"]
        d, V = E.ncols(), largest(E)
        mixed = fmt.growth(5 * N + 12)  # the sum of weighed values, divided before or after, and that with the residual
        grown = (1 + mixed) * (1 + self.few) * (1 + fmt.growth(d + 3))
        flushed = (arb(2 * FLUSHED * N) * V + 10 * (N + 4)) * SPARE * fmt.tiny * grown
        slack = (grown - 1) * weights.size + weights.error
        of_slots = E * slack + off * grown * weights.size
        lost = arb_mat([[flushed] * d]) * weights.size
        sizes = largest(E * weights.size)
        b_1 = [abs(arb(b)) for b in self.W["b_1"].entries()]
        of_bias = [b * fmt.growth(d + 3) + (2 * d + 8) * fmt.tiny * grown for b in b_1]
        weight = arb(2 * SPARE) if model.is_softmax else self.largest
        top = 1 + weight * N
        size = (top * (V + sizes) + largest(arb_mat([b_1]))) * 4 * grown
        require(fmt.holds(size), "a sum may overflow in the format", NOT_CHECKABLE)
        one = arb(model.one) ** 2
        slot = [[_above(x * one) for x in row] + [0] for row in of_slots.tolist()]
        rest = [[_above((x + y + z) * one) for x, y, z in zip(row, lost.entries(), of_bias, strict=True)] + [0]
                for row in of_slots.tolist()[: model.T]]  # fmt: skip
        return slot, rest, size

    def _read_by_logits(self, top: arb) -> list[list[int]]:
        """Of each neuron and class what is lost beside its value, but for the value's own reading; of b_2 last."""
        fmt, W_2, p = self.fmt, self.factors["W_2"], self.W["W_2"].nrows()
        grown = 1 + fmt.growth(p + 3)
        whole = top * (1 + largest(W_2.size)) * p + largest(exact(self.W["b_2"]).size)
        require(fmt.holds(4 * whole), "a logit may overflow in the format", NOT_CHECKABLE)
        rows = [[(e + (grown - 1) * w) * (1 + self.few) for w, e in zip(*pair, strict=True)]
                for pair in zip(W_2.size.tolist(), W_2.error.tolist(), strict=True)]  # fmt: skip
        rows.append([(grown - 1) * abs(arb(b)) + (2 * p + 8) * fmt.tiny * grown for b in self.W["b_2"].entries()])
        return [[_above(x * self.model.one) for x in row] for row in rows]

    def slopes(self, right: int, other: int, slopes: Sequence[int]) -> list[int]:
        """Of (logit of right - the other) by each neuron's value, as it is before it is read, and by D: at least."""
        lost = [row[right] + row[other] for row in self.kept]
        read = [_above(abs(n) * self.few) for n in slopes[:-1]] + [0]
        return [n - x - y for n, x, y in zip(slopes, lost, read, strict=True)]

    def costs(self, t: int, u: Sequence[int], n: Mapping[int, int]) -> tuple[list[int], int]:
        """What a form with coefficients n, and so u of each token, may be less: by token in a slot, and in any case."""
        rest = sum(abs(x) * self.rest[t][i] for i, x in n.items())
        always, found = 0 if self.model.is_softmax else rest * self.model.D[1], list[int]()
        rest *= self.model.is_softmax
        summed = [sum(abs(x) * slot[i] for i, x in n.items()) for slot in self.slot]
        if self.model.is_linear:  # of a slot's weight, whatever it is
            lost = [self.share * abs(x) + (1 + self.share) * y for x, y in zip(u, summed, strict=True)]
            return [_above(x) + rest for x in lost], always
        for x, y, off, most, weight in zip(u, summed, self.off[t], self.most[t], self.weights[t], strict=True):
            found.append(off * abs(x) + most * y + weight[1] * rest)
        return found, always


def _above(x: arb) -> int:
    """A whole number that is at least x."""
    found = x.upper().ceil().unique_fmpz()
    require(found is not None, "a bound whose digits do not show", NOT_CHECKABLE)
    return int(found)  # type: ignore[arg-type]


def rounded_model(fmt: BinaryFormat, w: Weights, W: Numbers, margins: Sequence[float], root: arb) -> Model:
    """A model that attends, whose forms are those of what is computed."""
    on, T = Roundoff(fmt), W["E"].nrows()
    x = fmpq_mat(W["E"].tolist() + (W["e_BOS"].tolist() if "e_BOS" in W else []))
    names = FACTORS if w.repeated["parameters"].get("model", "").endswith("+sftm") else (*FACTORS, "A")
    read = {name: on.centred(M) for name, M in (W | {"x": x}).items() if name in names}
    rows = {name: [[int(y.p) / int(y.q) for y in row] for row in M.tolist()] for name, (M, _) in read.items()}
    of_tokens = {"E": rows["x"][:T]} | ({"e_BOS": rows["x"][T:]} if "e_BOS" in W else {})
    model = Model(w._replace(matrices=w.matrices | rows | of_tokens), margins, FINEST)
    middle, factors = {name: M for name, (M, _) in read.items()}, {name: x for name, (_, x) in read.items()}
    model.roundings = CountRoundings(on, W | middle, factors, model, root)
    return model
