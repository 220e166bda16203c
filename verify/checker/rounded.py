"""Recurrent networks whose every operation rounds, in any order, re-checked at every length (docs/checker.md).

A computed state is c_t + d_t, c_t the state in real arithmetic. As long as it is within the box of c_t and |d_t|, one
more computed step has d_(t+1) = J d_t + e with J the derivatives in the middle of the box, |e| <= delta + (how much
the derivatives vary in the box) |d_t|, and delta what rounding adds. So d_t is a sum of vectors G_s x, |x_j| <= 1, one
G_s for each step before, until it is in the saved ellipsoids; there, the same holds of each step from one to the next.
"""

from collections.abc import Callable
from dataclasses import dataclass

from flint import arb, arb_mat, ctx

from verify.checker import formats, linear
from verify.checker.formats import BinaryFormat
from verify.checker.reading import FAILS, NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import (
    GATES,
    PARTS,
    PERIODS,
    StoredLayer,
    StoredNetwork,
    Vector,
    due_of,
    gaps_beside,
    is_positive_definite,
    leads,
    length_of,
    logistic,
    margins,
    network,
    on_box,
    point,
    positive_margin,
    ring_of,
    step,
)

BITS = 160
SHORT, LONG, MOST_WORK = 2000, 40_000, 2_500_000  # tokens, and these times numbers of the state to the power of three
NEW_ERRORS = 32  # that are followed on their own, and at most twice as many
SMALL = arb(2) ** -10  # of the newest errors: older ones that are less are no longer followed on their own

Due = Callable[[int], int | None]


@dataclass(frozen=True)
class ComputedBalls:
    """Exact numbers lie in the balls, and computed ones within `error` of them."""

    value: Vector
    error: Vector

    def sizes(self) -> Vector:
        return [(abs(v) + e).upper() for v, e in zip(self.value, self.error, strict=True)]


class Rounding:
    """How far computed vectors may be off."""

    def __init__(self, fmt: BinaryFormat) -> None:
        self.fmt = fmt

    def fits(self, layer: StoredLayer, x: Vector, h: Vector) -> None:
        """No partial sum of W_x x + b_x + W_h h + b_h overflows, in whatever order: not even all sizes together do."""
        columns = layer.W_x.ncols() + layer.W_h.ncols()
        for i, terms in enumerate(_terms(layer)):
            parts = [abs(W[i, j] * v) for W, y in ((layer.W_x, x), (layer.W_h, h)) for j, v in enumerate(y)]
            size = sum(parts, abs(layer.b_x[i]) + abs(layer.b_h[i])).upper()
            whole = (size + self.fmt.of_sum(size, terms, columns)).upper()
            require(self.fmt.holds(whole), "a partial sum may overflow", NOT_CHECKABLE)

    def linear(self, W: arb_mat, x: ComputedBalls, b: Vector, terms: list[int]) -> ComputedBalls:
        sizes, value, error = x.sizes(), [], []
        for i in range(W.nrows()):
            row = [(W[i, j], j) for j in range(W.ncols()) if W[i, j] != 0]
            value.append(sum((w * x.value[j] for w, j in row), b[i]))
            size = sum((abs(w) * sizes[j] for w, j in row), abs(b[i])).upper()
            own = sum((abs(w) * x.error[j] for w, j in row), arb(0))
            error.append((own + self.fmt.of_sum(size, terms[i], W.ncols())).upper())
        return self.checked(value, error)

    def checked(self, value: Vector, error: Vector) -> ComputedBalls:
        sizes = ((abs(v) + e).upper() for v, e in zip(value, error, strict=True))
        require(all(map(self.fmt.holds, sizes)), "a computed number may overflow", NOT_CHECKABLE)
        return ComputedBalls(value, error)

    def whole(self, x: ComputedBalls, y: ComputedBalls) -> ComputedBalls:
        """Two parts of one sum, whose rounding both parts count already."""
        return self.checked(_sum(x.value, y.value), [v.upper() for v in _sum(x.error, y.error)])

    def add(self, x: ComputedBalls, y: ComputedBalls) -> ComputedBalls:
        error = [
            (e + f + self.fmt.of_result((a + b).min(abs(v) + e + f).upper())).upper()
            for e, f, a, b, v in zip(x.error, y.error, x.sizes(), y.sizes(), _sum(x.value, y.value), strict=True)
        ]
        return self.checked(_sum(x.value, y.value), error)

    def times(self, x: ComputedBalls, y: ComputedBalls) -> ComputedBalls:
        error = [
            (e * b + f * a + self.fmt.of_result(a * b)).upper()
            for e, f, a, b in zip(x.error, y.error, x.sizes(), y.sizes(), strict=True)
        ]
        return self.checked([a * b for a, b in zip(x.value, y.value, strict=True)], error)

    def blend(self, z: ComputedBalls, n: ComputedBalls, h: ComputedBalls) -> ComputedBalls:
        """(1 - z) n + z h, or n + z (h - n).

        What operations round is bounded at computed z, n and h, of which one operation may read another form than the
        other one. What these are off by moves the blend by at most dz |h - n| + |1 - z| dn + |z| dh, at some z, n and h
        between.
        """
        h, none = self._reread(h), [arb(0)] * len(z.value)
        Z, N, K = (
            ComputedBalls([v + arb(0, e) for v, e in zip(x.value, x.error, strict=True)], none) for x in (z, n, h)
        )
        rest = self.add(ComputedBalls([arb(1)] * len(none), none), _minus(self._reread(Z)))
        apart = self.add(K, _minus(self._reread(N)))
        either = self.add(self.times(rest, N), self.times(Z, K)), self.add(N, self.times(Z, apart))
        parts = zip(*(x.error for x in (*either, z, n, h)), Z.value, K.value, N.value, strict=True)
        error = [
            (e.max(f) + dz * abs(x - y) + dn * abs(1 - v) + dh * abs(v)).upper() for e, f, dz, dn, dh, v, x, y in parts
        ]
        value = [(1 - v) * y + v * x for v, y, x in zip(z.value, n.value, h.value, strict=True)]
        return self.checked(value, error)

    def _reread(self, x: ComputedBalls) -> ComputedBalls:
        """Numbers that another operation may have read as they are kept, or rounded."""
        forms = zip(x.error, x.sizes(), strict=True)
        return ComputedBalls(x.value, [(e + self.fmt.apart(size)).upper() for e, size in forms])

    def function(self, x: ComputedBalls, f: Callable[[arb], arb], slope: Callable[[arb], arb]) -> ComputedBalls:
        """tanh or sigmoid; slope(y) bounds the derivative where the values of f are in y."""
        value, error = list[arb](), list[arb]()
        for v, e in zip(x.value, x.error, strict=True):
            y, around = f(v), f((v - e).union(v + e))
            moved = (slope(around).upper() * e + self.fmt.of_values(abs(around).upper())).upper()
            value, error = [*value, y], [*error, moved]
        return self.checked(value, error)

    def sigmoid(self, x: ComputedBalls) -> ComputedBalls:
        return self.function(x, logistic, lambda y: (y * (1 - y)).upper().min(arb(0.25)))

    def tanh(self, x: ComputedBalls) -> ComputedBalls:
        return self.function(x, lambda v: 2 * logistic(2 * v) - 1, lambda y: (1 - y * y).upper().min(arb(1)))

    def relu(self, x: ComputedBalls) -> ComputedBalls:
        """Zeros of what is surely not above zero are not off."""
        value = [v.lower().max(arb(0)).union(v.upper().max(arb(0))) for v in x.value]
        return ComputedBalls(value, [arb(0) if v + e <= 0 else e for v, e in zip(x.value, x.error, strict=True)])


def _minus(x: ComputedBalls) -> ComputedBalls:
    return ComputedBalls([-v for v in x.value], x.error)


def _sum(x: Vector, y: Vector) -> Vector:
    return [a + b for a, b in zip(x, y, strict=True)]


def _cut(x: ComputedBalls, start: int, stop: int) -> ComputedBalls:
    return ComputedBalls(x.value[start:stop], x.error[start:stop])


def rounding_of_step(net: StoredNetwork, box: Vector, fmt: BinaryFormat) -> Vector:
    """How far each number of a computed step is from the exact one, from computed numbers in the box."""
    on, H, parts, after = Rounding(fmt), net.hidden, PARTS[net.kind], list[ComputedBalls]()
    x = ComputedBalls(net.x, [arb(0)] * len(net.x))
    for k, layer in enumerate(net.layers):
        own = [ComputedBalls(box[i * H : i * H + H], [arb(0)] * H) for i in range(parts * k, parts * (k + 1))]
        on.fits(layer, x.sizes(), own[0].sizes())
        terms = _terms(layer)
        a, u = on.linear(layer.W_x, x, layer.b_x, terms), on.linear(layer.W_h, own[0], layer.b_h, terms)
        if net.kind == "gru":
            r, z = (on.sigmoid(on.whole(_cut(a, i * H, i * H + H), _cut(u, i * H, i * H + H))) for i in (0, 1))
            n = on.tanh(on.add(_cut(a, 2 * H, 3 * H), on.times(r, _cut(u, 2 * H, 3 * H))))
            new = [on.blend(z, n, own[0])]
        else:
            gates = on.whole(a, u)
            if net.kind == "lstm":
                i, f, o = (on.sigmoid(_cut(gates, j * H, j * H + H)) for j in (0, 1, 3))
                c = on.add(on.times(f, own[1]), on.times(i, on.tanh(_cut(gates, 2 * H, 3 * H))))
                new = [on.times(o, on.tanh(c)), c]
            else:
                new = [gates if net.activation == "none" else {"relu": on.relu, "tanh": on.tanh}[net.activation](gates)]
        after, x = after + new, new[0]
    return [e for part in after for e in part.error]


def _terms(layer: StoredLayer) -> list[int]:
    """How many terms the sum W_x x + b_x + W_h h + b_h has in each row."""
    count = []
    for i in range(layer.W_x.nrows()):
        weights = [W[i, j] for W in (layer.W_x, layer.W_h) for j in range(W.ncols())]
        count.append(sum(w != 0 for w in (*weights, layer.b_x[i], layer.b_h[i])))
    return count


def stored_in(net: StoredNetwork, fmt: BinaryFormat) -> StoredNetwork:
    """The network with every stored number rounded once."""

    def matrix(W: arb_mat) -> arb_mat:
        rows = fmt.of_weights([[float(x) for x in row] for row in W.tolist()])
        return arb_mat([[arb(x) for x in row] for row in rows])

    def vector(b: Vector) -> Vector:
        return [arb(x) for x in fmt.of_weights([[float(x) for x in b]])[0]]

    layers = [StoredLayer(matrix(y.W_x), matrix(y.W_h), vector(y.b_x), vector(y.b_h)) for y in net.layers]
    tokens = tuple(vector(x) for x in net.tokens)
    return StoredNetwork(net.kind, net.activation, layers, vector(net.x), matrix(net.V), vector(net.b), tokens)


def stored_network(
    weights: bytes, said: LineParameters, *, may_accumulate: bool = False, is_run: bool = False
) -> tuple[StoredNetwork, BinaryFormat]:
    """The numbers of the file, rounded once to the format that the certificate names, as one run may keep them."""
    fmt, model = formats.named(said, may_accumulate=may_accumulate), said.get("model")
    require(model in GATES or model in linear.KINDS, f"in a format {model!r} is not checked", NOT_CHECKABLE)
    read = network if model in GATES else linear.as_layer
    return stored_in(read(weights, said), fmt.of_one_run if is_run else fmt), fmt


def for_ever(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof of all lengths in a format."""
    require(said.get("model") in GATES, f"parameters: no recurrent model, but {said.get('model')!r}", NOT_CHECKABLE)
    require(c["verdict"] == "PROVED" and c["length"] == "all", "only proofs of all lengths are checked", NOT_CHECKABLE)
    fmt, net = formats.named(said), network(weights, said)
    due, ring, margin = due_of(len(net.b), said), ring_of(c, net.size), positive_margin(c)
    with ctx.workprec(BITS):
        net = stored_in(net, fmt)
        most = most_tokens(net.size)
        require(ring.entry <= most, f"a ring entered after more than {most} tokens", NOT_CHECKABLE)
        _enter(net, fmt, due, margin, ring.entry, *ring.ellipsoids[ring.place])
        for i, (P, L), after, t in ring.steps():
            leads(net, lambda box: rounding_of_step(net, box, fmt), (P, L), after, i)
            box = box_of(P, [[length_of(row) for row in L.tolist()]])
            _wins(net, fmt, P, box, [L], due(t), ring.margin, f"on ellipsoid {i}", is_ball=True)


def most_tokens(size: int) -> int:
    """How many tokens are followed, of so many numbers of a state."""
    return max(SHORT, min(LONG, MOST_WORK // size**3))


def box_of(centre: Vector, reaches: list[Vector]) -> Vector:
    """Balls round the centre that reach as far as all the reaches together."""
    none = [arb(0)] * len(centre)
    total = [sum(column, arb(0)).upper() for column in zip(none, *reaches, strict=True)]
    return [(v - r).union(v + r) for v, r in zip(centre, total, strict=True)]


def reach_of(G: arb_mat) -> Vector:
    """How far G x reaches in each entry, |x_j| <= 1."""
    return [sum(map(abs, row), arb(0)).upper() for row in G.tolist()]


def _diagonal(x: Vector) -> arb_mat:
    return arb_mat([[x[i] if i == j else arb(0) for j in range(len(x))] for i in range(len(x))])


def _enter(net: StoredNetwork, fmt: BinaryFormat, due: Due, margin: arb, entry: int, P: Vector, L: arb_mat) -> None:
    """The computed state after `entry` tokens is in {P + L e}, and the right class wins by the margin until then."""
    state, generators = [arb(0)] * net.size, list[arb_mat]()
    for t in range(1, entry + 1):
        state, generators = moved(net, fmt, state, generators)
        box = box_of(state, [reach_of(G) for G in generators])
        _wins(net, fmt, state, box, generators, due(t), margin, f"after {t} tokens", is_ball=False)
    inverse = L.inv()
    off = inverse * arb_mat(net.size, 1, [a - b for a, b in zip(state, P, strict=True)])
    room = 1 - length_of([x for row in off.tolist() for x in row])
    columns = [[row[j] for row in (inverse * G).tolist()] for G in generators for j in range(net.size)]
    is_in = bool(room > 0) and _within(columns, room)
    require(is_in, f"invariant: a computed state after {entry} tokens may be outside its ellipsoid", NOT_CHECKABLE)


def moved(
    net: StoredNetwork, fmt: BinaryFormat, state: Vector, generators: list[arb_mat]
) -> tuple[Vector, list[arb_mat]]:
    """The computed states after one more token: what `state` leads to, and how far all errors reach from there."""
    reaches = [reach_of(G) for G in generators]
    box = box_of(state, reaches)
    identity = [[arb(int(i == j)) for j in range(net.size)] for i in range(net.size)]
    apart = [(b.rad() + abs(b.mid() - s)).upper() for b, s in zip(box, state, strict=True)]
    slope = step(net, on_box(box, identity, state, apart)).slope
    assert slope is not None
    middle = arb_mat([[v.mid() for v in row] for row in slope])
    varied = [[v.rad() for v in row] for row in slope]
    delta = rounding_of_step(net, box, fmt)
    new = [
        (e + sum((v * a for v, a in zip(row, apart, strict=True)), arb(0))).upper()
        for e, row in zip(delta, varied, strict=True)
    ]
    if len(generators) >= 2 * NEW_ERRORS:
        old = zip(*reaches[:-NEW_ERRORS], strict=True)
        generators = [_diagonal([sum(column, arb(0)).upper() for column in old]), *generators[-NEW_ERRORS:]]
    kept, new = _joined([middle * G for G in generators], new)
    return step(net, point(state)).value, [*kept, _diagonal(new)]


def _joined(generators: list[arb_mat], new: Vector) -> tuple[list[arb_mat], Vector]:
    """Adds generators that are small beside the new errors to these."""
    kept = []
    for G in generators:
        reach = reach_of(G)
        if all(bool(r <= SMALL * e) for r, e in zip(reach, new, strict=True)):
            new = [(r + e).upper() for r, e in zip(reach, new, strict=True)]
        else:
            kept.append(G)
    return kept, new


def _within(columns: list[Vector], room: arb) -> bool:
    """Whether all sums of x_j times the columns, |x_j| <= 1, are at most `room` long.

    (sum of |v g_j|)^2 <= (sum of |g_j|) (sum of (v g_j)^2 / |g_j|) for every unit vector v.
    """
    n = len(columns[0])
    lengths = [length_of(g) for g in columns]
    total = sum(lengths, arb(0)).upper()
    if bool(total <= room):
        return True
    square = [[arb(0)] * n for _ in range(n)]
    for g, size in zip(columns, lengths, strict=True):
        if size > 0:
            for a in range(n):
                for b in range(n):
                    square[a][b] += g[a] * g[b] / size
    limit = room * room / total
    return is_positive_definite([[limit * int(a == b) - square[a][b] for b in range(n)] for a in range(n)])


def _wins(
    net: StoredNetwork, fmt: BinaryFormat, centre: Vector, box: Vector, generators: list[arb_mat], right: int | None,
    margin: arb, where: str, *, is_ball: bool,
) -> None:  # fmt: skip
    """The computed logit of the right class is above the others by the margin, on centre + G x.

    The x of each G have |x| <= 1 where `is_ball`, and |x_j| <= 1 otherwise.
    """
    require(right is not None, f"{where}: no class is right")
    found = computed_gaps(net, fmt, centre, box, generators, right or 0, where, is_ball=is_ball)
    for j, (gap, reach) in found.items():
        least = gap - reach
        what = f"{where}: class {right} is not shown to win over {j} by {margin}"
        require(bool(least >= margin and least > 0), what, NOT_CHECKABLE)


def computed_gaps(
    net: StoredNetwork, fmt: BinaryFormat, centre: Vector, box: Vector, generators: list[arb_mat], right: int,
    where: str, *, is_ball: bool,
) -> dict[int, tuple[arb, arb]]:  # fmt: skip
    """(right logit) - (each other) at the centre, and how far a computed one may be from it."""
    h, off = box[net.read : net.read + net.hidden], list[arb]()
    for i, b in enumerate(net.b):
        row = [(net.V[i, m], abs(h[m]).upper()) for m in range(net.hidden) if net.V[i, m] != 0]
        size = sum((abs(w) * x for w, x in row), abs(b)).upper()
        off.append(fmt.of_sum(size, len(row) + int(b != 0), net.hidden))
        require(fmt.holds((size + off[-1]).upper()), f"{where}: logit {i} may overflow", NOT_CHECKABLE)
    found = gaps_beside(net, centre, generators, right, is_ball=is_ball)
    return {j: (gap, reach + off[right] + off[j]) for j, (gap, reach) in found.items()}


def repeated(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks the saved states of a run in one format until one of them comes again.

    That torch computes just these is taken on trust; that each is one of the states that a kernel may compute from the
    one before, in some order, is not. Where the right class wins, it does so in every order of the readout's sums.
    """
    require(said.get("model") in GATES, f"parameters: no recurrent model, but {said.get('model')!r}", NOT_CHECKABLE)
    require("states" in c and c["verdict"] == "PROVED", "a run without its states is not repeated", NOT_CHECKABLE)
    net = network(weights, said)
    due, period, fmt = due_of(len(net.b), said), said.get("modulus", 1), BinaryFormat(*formats.NAMED[said["dtype"]])
    require(c["length"] == "all" and said["task"] in PERIODS, "parameters: the task does not go on for ever")
    require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
    margin, states = positive_margin(c), c["states"]
    repeats = c["repeats"]
    assert isinstance(repeats, dict)
    first, again = repeats["state_after"], repeats["comes_again_after"]
    is_right = type(first) is type(again) is int and (0 if period > 1 else 1) < first < again == len(states)
    is_right = is_right and {*repeats} == {"state_after", "comes_again_after"}
    require(is_right and (again - first) % period == 0, f"repeats: {first!r} and {again!r} are no turns of {period}")
    require(states[first - 1] == states[again - 1], f"repeats: the states after {first} and {again} tokens differ")
    with ctx.workprec(BITS):
        net = stored_in(net, fmt)  # which changes nothing, and refuses numbers that may be flushed
        before = [arb(0)] * net.size
        for t, numbers in enumerate(states, 1):
            is_state = len(numbers) == net.size and all(type(x) is float and fmt.nearest(x) == x for x in numbers)
            require(is_state, f"states: that after {t} tokens is none of the format's")
            image, delta = step(net, point(before)).value, rounding_of_step(net, before, fmt)
            before = [arb(x) for x in numbers]
            for x, y, e in zip(before, image, delta, strict=True):
                what = f"states: no order of a step leads to that after {t} tokens"
                require(bool(abs(x - y) <= e), what, FAILS if abs(x - y) > e else NOT_CHECKABLE)
            _is_won(net, fmt, before, due(t), margin, f"after {t} tokens")


def _is_won(net: StoredNetwork, fmt: BinaryFormat, state: Vector, right: int | None, margin: arb, where: str) -> None:
    """The right class wins in every order, and in one of them by the margin."""
    h = state[net.read : net.read + net.hidden]
    _wins(net, fmt, state, state, [], right, arb(0), where, is_ball=False)
    off = Rounding(fmt).linear(net.V, ComputedBalls(h, [arb(0)] * len(h)), net.b, [net.hidden + 1] * len(net.b)).error
    others = [j for j in range(len(net.b)) if j != right]
    for j, gap in zip(others, margins(net, h, right or 0), strict=True):
        most, what = gap + off[right or 0] + off[j], f"{where}: no order gives a margin of {margin}"
        require(bool(most >= margin), what, FAILS if most < margin else NOT_CHECKABLE)
