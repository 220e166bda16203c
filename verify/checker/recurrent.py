"""Recurrent networks on one line of tokens in real arithmetic, re-checked from the stored numbers (docs/checker.md).

The prover's floats are not used: the state is followed from 0 in balls of hundreds of bits until it is within the
saved ellipsoids, and one step is then shown to lead from each of them into the next.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, WORDS, Refusal, read_tensors, require, tables_of
from verify.checker.records import LineCertificate, LineParameters, SavedEllipsoids
from verify.checker.statement import compare

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
PARTS = {"rnn": 1, "gru": 1, "lstm": 2}
PERIODS = ("modular", "first-homogeneous")
BITS = (256, 1024, 4096, 16384)
RING_BITS = 128
MOST_STEPS = 200_000
MOST_WORK = 1 << 29  # of steps with 256 bits: half a minute
MOST_STATE = 256
FACTORS = [arb(2) ** (k / 4) for k in range(-12, 13)]


@dataclass(frozen=True)
class StoredLayer:
    W_x: arb_mat
    W_h: arb_mat
    b_x: list[arb]
    b_h: list[arb]


@dataclass(frozen=True)
class StoredNetwork:
    """The stored numbers, exactly; `x` is the input of every step, and what `tokens` has of the first one."""

    kind: str
    activation: str
    layers: list[StoredLayer]
    x: list[arb]
    V: arb_mat
    b: list[arb]
    tokens: tuple[list[arb], ...] = ()

    @cached_property
    def rows(self) -> list[object]:
        """What each class reads; where it is the same, so are the logits."""
        return [tuple(map(float, (*row, b))) for row, b in zip(self.V.tolist(), self.b, strict=True)]

    def reading(self, token: int) -> "StoredNetwork":
        """The same network at a step that reads this token; where it knows one only, all are the same to it."""
        return replace(self, x=self.tokens[token if len(self.tokens) > 1 else 0])

    @property
    def hidden(self) -> int:
        return int(self.V.ncols())

    @property
    def size(self) -> int:
        return PARTS[self.kind] * self.hidden * len(self.layers)

    @property
    def work(self) -> int:
        """Of a step, in products: a gate takes about as long as 128."""
        return len(self.layers) * GATES[self.kind] * self.hidden * (self.hidden + 128)

    def spending(self, bits: int) -> Callable[[int], None]:
        """Takes the work of so many steps off what there may be. Raises: Refusal where that is more."""
        left = MOST_WORK * BITS[0]

        def spend(steps: int) -> None:
            nonlocal left
            left -= steps * self.work * bits
            require(left >= 0, "turns take too long", NOT_CHECKABLE)

        return spend

    @property
    def read(self) -> int:
        """Where the last layer's h starts in the state."""
        return PARTS[self.kind] * self.hidden * (len(self.layers) - 1)


Vector = list[arb]
Slopes = list[list[arb]]  # one row of derivatives by the state for each entry
Reach = Callable[[Vector], arb]
Ellipsoid = tuple[Vector, arb_mat]  # {P + L e : |e| <= 1}


@dataclass(frozen=True)
class DualNumbers:
    """Numbers on a set {P + L e}, their derivatives by e, and the numbers at its centre.

    `reach(v)` bounds |v e| over the set's e: over the unit ball it is the length of v, which is too little over a box.
    Derivatives are None where only one point is asked for.
    """

    value: Vector
    slope: Slopes | None
    centre: Vector
    reach: Reach


def point(x: Vector) -> DualNumbers:
    """One point: nothing is reached beside it, and nothing asks how far."""
    return DualNumbers(x, None, x, lambda v: arb("inf"))


def on_ball(value: Vector, slope: Slopes, centre: Vector) -> DualNumbers:
    """{P + L e : |e| <= 1}: |v e| <= |v| by Cauchy and Schwarz."""
    return DualNumbers(value, slope, centre, length_of)


def on_box(value: Vector, slope: Slopes, centre: Vector, sizes: Vector) -> DualNumbers:
    """{P + L e : |e_j| <= sizes_j}: |v e| <= sum of |v_j| sizes_j."""
    return DualNumbers(
        value, slope, centre, lambda v: sum((abs(x) * r for x, r in zip(v, sizes, strict=True)), arb(0)).upper()
    )


def network(data: bytes, said: LineParameters) -> StoredNetwork:
    tensors, about = read_tensors(data)
    kind, activation = str(about.get("model")), str(about.get("activation"))
    require(kind in GATES and activation in ("tanh", "relu"), f"the metadata name no network: {about}", UNREADABLE)
    rows = tables_of(tensors, ())
    layers, k = [], 0
    while f"cell.weight_hh_l{k}" in rows:
        names = [f"cell.{name}_l{k}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        require(all(name in rows for name in names), f"layer {k} is not whole", UNREADABLE)
        W_x, W_h, b_x, b_h = (rows[name] for name in names)
        layers.append(StoredLayer(matrix(W_x), matrix(W_h), vector(b_x), vector(b_h)))
        k += 1
    require(k > 0 and {"readout.weight", "readout.bias"} <= {*rows}, "the file holds no network", UNREADABLE)
    V, embedding = matrix(rows["readout.weight"]), rows.get("embedding.weight")
    H, inputs = V.ncols(), layers[0].W_x.ncols()
    require(len(rows) == 4 * k + 2 + (embedding is not None), "the file holds other tensors", UNREADABLE)
    for i, layer in enumerate(layers):
        shapes = ((layer.W_x, H if i else inputs), (layer.W_h, H))
        is_right = all((W.nrows(), W.ncols()) == (GATES[kind] * H, n) for W, n in shapes)
        is_right = is_right and len(layer.b_x) == len(layer.b_h) == GATES[kind] * H
        require(is_right, f"layer {i} has other shapes than a {kind} of {H} units", UNREADABLE)
    one_hot = [[float(i == j) for j in range(inputs)] for i in range(inputs)]
    tokens = tuple([arb(v) for v in row] for row in embedding or one_hot)
    require(len(tokens[0]) == inputs and V.nrows() == len(rows["readout.bias"][0]), "shapes do not fit", UNREADABLE)
    net = StoredNetwork(kind, activation, layers, tokens[0], V, vector(rows["readout.bias"]), tokens)
    require(net.size <= MOST_STATE, f"{net.size} numbers of state are too many to check", NOT_CHECKABLE)
    dtype = WORDS[tensors["readout.weight"][0]][0]
    shape: dict[str, object] = {"model": kind, "units": H, "layers": k, "dtype": dtype}
    shape |= {"activation": activation} if kind == "rnn" else {}
    compare(said, shape)
    return net


def matrix(rows: list[list[float]]) -> arb_mat:
    return arb_mat(len(rows), len(rows[0]), [arb(x) for row in rows for x in row])


def vector(rows: list[list[float]]) -> Vector:
    return [arb(x) for x in rows[0]]


def due_of(classes: int, said: LineParameters) -> Callable[[int], int | None]:
    """The right class after t tokens."""
    task = said.get("task")
    if task == "modular":
        m = said.get("modulus")
        require(type(m) is int and 2 <= m <= classes, f"modulus: {m!r} with {classes} classes")
        return lambda t: (t - 1) % m  # type: ignore[operator]
    if task == "vanilla":
        M = said.get("vocabulary")
        require(type(M) is int and 1 <= M < classes, f"vocabulary: {M!r} with {classes} classes")
        return lambda t: t if t <= M else None  # type: ignore[operator]
    require(task == "first-homogeneous" and classes >= 2, f"task {task!r} is not checked", NOT_CHECKABLE)
    return lambda t: int(t == 1)


# ---- one step


def _linear(W: arb_mat, x: DualNumbers, b: Vector) -> DualNumbers:
    value = _affine(W, x.value, b)
    if x.slope is None:
        return point(value)
    product = W * arb_mat(len(x.slope), len(x.slope[0]), [s for row in x.slope for s in row])
    slope = [[product[i, j] for j in range(product.ncols())] for i in range(product.nrows())]
    return _narrowed(DualNumbers(value, slope, _affine(W, x.centre, b), x.reach))


def _affine(W: arb_mat, x: Vector, b: Vector) -> Vector:
    column = W * arb_mat(len(x), 1, x)
    return [column[i, 0] + b[i] for i in range(len(b))]


def _narrowed(x: DualNumbers) -> DualNumbers:
    """By the mean value theorem, numbers are as near those at the centre as their slopes reach on the set."""
    assert x.slope is not None
    value = []
    for v, row, c in zip(x.value, x.slope, x.centre, strict=True):
        reach = x.reach(row)
        value.append(v.intersection((c - reach).union(c + reach)))
    return DualNumbers(value, x.slope, x.centre, x.reach)


def _map(x: DualNumbers, f: Callable[[arb], arb], slope_of: Callable[[arb, arb], arb]) -> DualNumbers:
    """f of each entry; slope_of(entry, f(entry)) is the derivative."""
    value = [f(v) for v in x.value]
    if x.slope is None:
        return point(value)
    factors = [slope_of(v, y) for v, y in zip(x.value, value, strict=True)]
    slope = [[factor * s for s in row] for factor, row in zip(factors, x.slope, strict=True)]
    return DualNumbers(value, slope, [f(v) for v in x.centre], x.reach)


def _add(x: DualNumbers, y: DualNumbers) -> DualNumbers:
    value = [a + b for a, b in zip(x.value, y.value, strict=True)]
    if x.slope is None or y.slope is None:
        return point(value)
    slope = [[s + t for s, t in zip(r, q, strict=True)] for r, q in zip(x.slope, y.slope, strict=True)]
    return _narrowed(DualNumbers(value, slope, [a + b for a, b in zip(x.centre, y.centre, strict=True)], x.reach))


def _times(x: DualNumbers, y: DualNumbers) -> DualNumbers:
    value = [a * b for a, b in zip(x.value, y.value, strict=True)]
    if x.slope is None or y.slope is None:
        return point(value)
    rows = zip(x.value, y.value, x.slope, y.slope, strict=True)
    slope = [[a * t + b * s for s, t in zip(r, q, strict=True)] for a, b, r, q in rows]
    return DualNumbers(value, slope, [a * b for a, b in zip(x.centre, y.centre, strict=True)], x.reach)


def _sigmoid(x: DualNumbers) -> DualNumbers:
    """Its derivative y (1 - y) is 1/4 - (y - 1/2)^2."""
    return _map(x, logistic, lambda v, y: (arb(1) / 4 - (y - arb(1) / 2) ** 2).max(arb(0)))


def logistic(x: arb) -> arb:
    """Increasing, so its ends are the values at the ends: e^x / (1 + e^x) without overflow."""

    def at(v: arb) -> arb:
        e = (-abs(v)).exp()
        return 1 / (1 + e) if v >= 0 else e / (1 + e)

    return at(x.lower()).union(at(x.upper()))


def _tanh(x: DualNumbers) -> DualNumbers:
    """Increasing; tanh(v) = 2 sigmoid(2 v) - 1."""
    return _map(x, lambda v: 2 * logistic(2 * v) - 1, lambda v, y: (1 - y * y).max(arb(0)))


def _relu(x: DualNumbers) -> DualNumbers:
    def at(v: arb) -> arb:
        return v.lower().max(arb(0)).union(v.upper().max(arb(0)))

    def slope(v: arb, y: arb) -> arb:
        return arb(1) if v > 0 else arb(0) if v < 0 else arb(0).union(arb(1))

    return _map(x, at, slope)


ACTIVATIONS: dict[str, Callable[[DualNumbers], DualNumbers]] = {
    "tanh": _tanh,
    "relu": _relu,
    "none": lambda x: x,
}  # the last of state spaces


def _cut(x: DualNumbers, start: int, stop: int) -> DualNumbers:
    slope = None if x.slope is None else x.slope[start:stop]
    return DualNumbers(x.value[start:stop], slope, x.centre[start:stop], x.reach)


def _join(parts: list[DualNumbers]) -> DualNumbers:
    value = [v for part in parts for v in part.value]
    if parts[0].slope is None:
        return point(value)
    slope, centre = ([y for part in parts for y in getattr(part, name) or []] for name in ("slope", "centre"))
    return DualNumbers(value, slope, centre, parts[0].reach)


def step(net: StoredNetwork, state: DualNumbers) -> DualNumbers:
    """The state after one more token."""
    H, parts, after = net.hidden, PARTS[net.kind], list[DualNumbers]()
    none = None if state.slope is None else [[arb(0)] * net.size for _ in net.x]
    x = DualNumbers(net.x, none, net.x, state.reach)
    for k, layer in enumerate(net.layers):
        own = [_cut(state, (parts * k + i) * H, (parts * k + i + 1) * H) for i in range(parts)]
        a, u = _linear(layer.W_x, x, layer.b_x), _linear(layer.W_h, own[0], layer.b_h)
        if net.kind == "gru":
            r, z = (_sigmoid(_add(_cut(a, i * H, i * H + H), _cut(u, i * H, i * H + H))) for i in (0, 1))
            n = _tanh(_add(_cut(a, 2 * H, 3 * H), _times(r, _cut(u, 2 * H, 3 * H))))
            rest = _map(z, lambda v: 1 - v, lambda v, y: arb(-1))
            new = [_add(_times(rest, n), _times(z, own[0]))]
        elif net.kind == "lstm":
            gates = _add(a, u)
            i, f, o = (_sigmoid(_cut(gates, j * H, j * H + H)) for j in (0, 1, 3))
            c = _add(_times(f, own[1]), _times(i, _tanh(_cut(gates, 2 * H, 3 * H))))
            new = [_times(o, _tanh(c)), c]
        else:
            new = [ACTIVATIONS[net.activation](_add(a, u))]
        after, x = after + new, new[0]
    return _join(after)


def margins(net: StoredNetwork, h: Vector, right: int) -> list[arb]:
    """(right logit) - (each other)."""
    column = net.V * arb_mat(len(h), 1, h)
    logits = [column[i, 0] + net.b[i] for i in range(len(net.b))]
    return [logits[right] - y for j, y in enumerate(logits) if j != right]


# ---- the orbit


def follow(
    net: StoredNetwork,
    steps: int,
    due: Callable[[int], int | None],
    margin: arb,
    is_told: Callable[[Vector], bool] | None = None,
    narrow: float = 2.0**-30,
) -> Vector:
    """The state after so many tokens, in balls of radii up to `narrow`; the right class wins by `margin`, and by more
    than 0, after each.

    With `is_told`, not after the last one, whose state is then known so well that this says yes.
    """
    reason = ""
    for bits in BITS:
        is_short = steps <= MOST_STEPS and steps * net.work * bits <= MOST_WORK * BITS[0]
        require(is_short, reason or f"{steps} steps are too many to follow", NOT_CHECKABLE)
        with ctx.workprec(bits):
            state, reason = point([arb(0)] * net.size), ""
            for t in range(1, steps + 1):
                state = step(net, state)
                if not all(v.rad() <= narrow for v in state.value):
                    reason = f"the state after {t} tokens is not known well enough with {bits} bits"
                    break
                if is_told is not None and t == steps:
                    if not is_told(state.value):
                        reason = f"the margin at length {t} is not known well enough with {bits} bits"
                else:
                    right = due(t)
                    require(right is not None, f"length {t}: has no right class")
                    found = margins(net, state.value[net.read : net.read + net.hidden], right or 0)
                    if any(y < margin or y <= 0 for y in found):
                        raise Refusal(f"length {t}: the right class does not win by {margin}")
                    if not all(y >= margin and y > 0 for y in found):
                        reason = f"length {t}: the margin is not known well enough with {bits} bits"
                        break
            if not reason:
                return state.value
    raise Refusal(reason, NOT_CHECKABLE)


class Follow(Protocol):
    """`follow`, or what says the same in another way."""

    def __call__(
        self,
        net: StoredNetwork,
        steps: int,
        due: Callable[[int], int | None],
        margin: arb,
        is_told: Callable[[Vector], bool] | None = None,
        /,
    ) -> Vector: ...


def positive_margin(c: LineCertificate) -> arb:
    margin = c["margin"]
    require(type(margin) is float and margin > 0, f"margin: {margin!r} must be a number above zero")
    require(c.get("counterexample") is None, "counterexample: must be null")
    return arb(margin)


def finite(net: StoredNetwork, c: LineCertificate, due: Callable[[int], int | None], reach: Follow) -> None:
    length = c["length"]
    assert length != "all"
    require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
    reach(net, length, due, positive_margin(c))


def refuted(net: StoredNetwork, c: LineCertificate, due: Callable[[int], int | None], reach: Follow) -> None:
    """Right before, and wrong at the counterexample's length; a tie is wrong."""
    case, margin = c["counterexample"], c["margin"]
    n = case["length"]
    require(type(n) is int and n > 0 and c.get("inputs_covered") == "1", "counterexample: has no length")
    require(c["length"] == "all" or n <= c["length"], "counterexample: is longer than the lengths that are judged")
    require(case.get("is_first") is True, "counterexample: only a first one is checked", NOT_CHECKABLE)
    require(c.get("right_to") == n - 1, "counterexample: must be the first")
    shown = case["input"]
    require(is_line(shown, n), "counterexample: its input is not so many tokens 0")
    require(type(margin) is float and margin <= 0, f"margin: {margin!r} must be zero or negative")
    right = due(n)
    require(right is not None, "counterexample: has no right class")
    said = 1 if c["parameters"].get("modulus") else 0
    require(case.get("expected") == (right or 0) + said, "counterexample: another answer is expected")
    predicted = case.get("predicted", "")
    require(predicted is not None, "counterexample: the class that is predicted is not said", NOT_CHECKABLE)
    require(type(predicted) is int and 0 <= predicted - said < len(net.b), "counterexample: predicts no class")
    assert isinstance(predicted, int)
    require(predicted - said != right, "counterexample: predicts the right class")
    place = predicted - said - int(predicted - said > (right or 0))

    def gaps_of(state: Vector) -> list[arb]:
        return margins(net, state[net.read : net.read + net.hidden], right or 0)

    def is_told(state: Vector) -> bool:
        worst = gaps_of(state)[place]
        return bool(worst <= arb(margin)) or bool(worst > arb(margin))

    state = reach(net, n, due, arb(0), is_told)
    with ctx.workprec(BITS[-1]):
        found = gaps_of(state)
    worst = found[place]
    require(bool(worst <= arb(margin)), f"counterexample: the margin at length {n} is {worst}, not at most {margin}")
    gaps = dict(zip((j for j in range(len(net.b)) if j != right), found, strict=True))
    predicts(gaps, predicted - said, net.rows)


def is_line(shown: object, n: int) -> bool:
    """Whether an input is n tokens 0, as a list or in words."""
    if isinstance(shown, list):
        return len(shown) == n and all(type(token) is int and token == 0 for token in shown)
    return bool(shown == f"token 0, {n} times")


def predicts(gaps: Mapping[int, fmpq | arb], j: int, rows: Sequence[object] | Mapping[int, object]) -> None:
    """No class surely has a larger logit than j, or may have one: where `rows` are alike, logits are the same."""
    for k, gap in gaps.items():
        is_same = rows[k] == rows[j]
        require(is_same or not gap < gaps[j], f"counterexample: class {k} is predicted rather than {j}")
        is_shown = is_same or bool(gap >= gaps[j])
        require(is_shown, f"counterexample: whether class {k} or {j} is predicted does not show", NOT_CHECKABLE)


# ---- the ring of ellipsoids


def for_ever(net: StoredNetwork, c: LineCertificate, due: Callable[[int], int | None]) -> None:
    """Follows the state into the ring, and checks that the ring is mapped into itself and right.

    E_i = {P_i + L_i e : |e| <= 1}. With J the derivatives over E_i, r = |L_next^-1 (f(P_i) - P_next)|
    and |L_next^-1 J L_i| <= 1 - r, one step leads from E_i into the next.
    """
    ring, margin = ring_of(c, net.size), positive_margin(c)
    entered = follow(net, ring.entry, due, margin)
    with ctx.workprec(RING_BITS):
        P, L = ring.ellipsoids[ring.place]
        off = arb_mat(net.size, 1, [x - p for x, p in zip(entered, P, strict=True)])
        length = length_of(L.solve(off).entries())
        what = f"invariant: the state after {ring.entry} tokens may be outside ellipsoid {ring.place}"
        require(bool(length <= 1), what, FAILS if length > 1 else NOT_CHECKABLE)
        for i, here, after, t in ring.steps():
            leads(net, lambda box: [arb(0)] * len(box), here, after, i)
            right = due(t)
            require(right is not None, "invariant: a state without a right class")
            what = f"invariant: class {right} is not shown to win by {ring.margin} on all of ellipsoid {i}"
            found = gaps_beside(net, here[0], [here[1]], right or 0, is_ball=True).values()
            require(all(bool(gap - reach >= ring.margin) for gap, reach in found), what, NOT_CHECKABLE)


class Ring(NamedTuple):
    """Ellipsoids {P + L e : |e| <= 1} that a line's states pass in turn, from that at `place` on after `entry` tokens.

    The right class wins by `margin` on each.
    """

    entry: int
    place: int
    margin: arb
    ellipsoids: list[Ellipsoid]

    def steps(self) -> Iterator[tuple[int, Ellipsoid, Ellipsoid, int]]:
        """Each ellipsoid with the next one, and after how many tokens it is met first."""
        k = len(self.ellipsoids)
        for i, here in enumerate(self.ellipsoids):
            yield i, here, self.ellipsoids[(i + 1) % k], self.entry + (i - self.place) % k


def ring_of(c: LineCertificate, size: int) -> Ring:
    """The saved ring of a proof for all lengths."""
    period = c["parameters"].get("modulus", 1)
    require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
    require(c["parameters"]["task"] in PERIODS, "parameters: the task does not go on for ever")
    require("invariant" in c, "invariant: no ring is saved, and its turns are not followed at once", NOT_CHECKABLE)
    ring = c["invariant"]
    entry, place, k = ring["entry"], ring["place"], len(ring["centres"])
    require(entry > (0 if period > 1 else 1), f"invariant: enters after {entry!r} tokens")
    require(place < k and k % period == 0, f"invariant: {k} states and a period {period}")
    require(0 <= ring["rate"] <= 1, f"invariant: a rate of {ring['rate']!r}")
    require(ring["margin"] >= c["margin"], "invariant: its margin is less than that of the certificate")
    return Ring(entry, place, arb(ring["margin"]), [*zip(*ellipsoids(ring, size), strict=True)])


def ellipsoids(ring: SavedEllipsoids, size: int) -> tuple[list[Vector], list[arb_mat]]:
    k = len(ring["centres"])
    require(len(ring["shapes"]) == len(ring["exponents"]) == k, "invariant: lists of different lengths")
    centres, shapes = [], []
    for centre, rows, e in zip(ring["centres"], ring["shapes"], ring["exponents"], strict=True):
        is_whole = [len(row) for row in rows] == list(range(1, size + 1)) and len(centre) == size
        require(is_whole and type(e) is int and abs(e) < 2000, "invariant: an ellipsoid has another size")
        require(all(type(x) is float for row in [centre, *rows] for x in row), "invariant: entries must be numbers")
        scale = arb(2) ** e
        entries = [arb(row[j]) * scale if j < len(row) else arb(0) for row in rows for j in range(size)]
        centres.append([arb(x) for x in centre])
        shapes.append(arb_mat(size, size, entries))
    return centres, shapes


def length_of(x: Vector) -> arb:
    """An upper bound on the l2 norm."""
    total = arb(0)
    for v in x:
        total += v * v
    return total.upper().sqrt().upper()


def leads(
    net: StoredNetwork,
    rounding: Callable[[Vector], Vector],
    before: Ellipsoid,
    after: Ellipsoid,
    i: int,
) -> None:
    """One computed step, which is off by `rounding` of what holds the numbers before, leads from {P + L e} into
    {Q + M e}.
    """
    (P, L), (Q, M), n = before, after, net.size
    widths = map(length_of, L.tolist())
    box = [(p - w).union(p + w) for p, w in zip(P, widths, strict=True)]
    image, inverse = step(net, on_ball(box, L.tolist(), P)), M.inv()
    off = inverse * arb_mat(n, 1, [a - b for a, b in zip(image.centre, Q, strict=True)])
    away = [y for row in off.tolist() for y in row]
    room = 1 - length_of(away)
    require(bool(room > 0), f"invariant: the image of centre {i} may be outside the next ellipsoid", NOT_CHECKABLE)
    slope = image.slope
    assert slope is not None
    A = inverse * arb_mat([[v.mid() for v in row] for row in slope])
    D = [(delta + length_of([v.rad() for v in row])).upper() for delta, row in zip(rounding(box), slope, strict=True)]
    columns = [[row[j] * D[j] for row in inverse.tolist()] for j in range(n)]
    by_length = [length_of(g) for g in columns]
    is_covered = any(_is_covered(A, columns, weights, room) for weights in (D, by_length))
    is_covered = is_covered or _is_covered(A, [*columns, away], [*by_length, length_of(away)], arb(1))
    require(is_covered, f"invariant: one step may lead from ellipsoid {i} out of the next", NOT_CHECKABLE)


def _is_covered(A: arb_mat, columns: list[Vector], weights: Vector, room: arb) -> bool:
    """Whether |A e + sum of x_j times the columns| <= room for all |e| <= 1 and |x_j| <= 1.

    v (A e + K d) is at most |A^T v| + |K^T v| <= sqrt((1 + q) |A^T v|^2 + (1 + 1/q) |K^T v|^2), where K has the columns
    over sqrt(w_j), and the w_j > 0, in proportion to the weights, add up to 1.
    """
    n = A.nrows()
    total = sum(weights, arb(0)).upper()
    G = A * A.transpose()
    square = arb_mat(n, n)
    for g, weight in zip(columns, weights, strict=True):
        if weight > 0:
            square += arb_mat([[a * b * (total / weight) for b in g] for a in g])
        elif not all(x == 0 for x in g):
            return False
    traces = [sum((x[i, i] for i in range(n)), arb(0)).mid() for x in (G, square)]
    best = (
        (traces[1] / traces[0]).sqrt() if traces[0] > 0 and traces[1] > 0 else arb(2) ** (-64 if traces[0] > 0 else 64)
    )
    for factor in FACTORS:
        q = best * factor
        whole = G * (1 + q) + square * (1 + 1 / q)
        gap = [[room * room * int(a == b) - whole[a, b] for b in range(n)] for a in range(n)]
        if is_positive_definite(gap):
            return True
    return False


def is_positive_definite(A: list[list[arb]]) -> bool:
    """Gaussian elimination in balls with pivots above zero."""
    n = len(A)
    for j in range(n):
        if not A[j][j] > 0:
            return False
        for i in range(j + 1, n):
            factor = A[i][j] / A[j][j]
            for m in range(j + 1, n):
                A[i][m] -= factor * A[j][m]
    return True


def gaps_beside(
    net: StoredNetwork, centre: Vector, generators: Sequence[arb_mat], right: int, *, is_ball: bool
) -> dict[int, tuple[arb, arb]]:
    """(right logit) - (each other) at the centre, and how far it may be from that on centre + G x.

    The x of each G have |x| <= 1 where `is_ball`, and |x_j| <= 1 otherwise.
    """
    first, found, rows = net.read, dict[int, tuple[arb, arb]](), net.V.tolist()
    values = iter(margins(net, centre[first : first + net.hidden], right))
    for j, row in enumerate(rows):
        if j != right:
            apart = [arb(0)] * first + [x - y for x, y in zip(rows[right], row, strict=True)]
            v = arb_mat([apart + [arb(0)] * (net.size - len(apart))])
            along = [(v * G).entries() for G in generators]
            reach = sum((length_of(x) if is_ball else sum(map(abs, x), arb(0)) for x in along), arb(0))
            found[j] = next(values), reach
    return found
