"""The stored numbers of a recurrent network, and one step of it in whatever kind of numbers is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from flint import arb, ctx

from constructions.errors import BadInput
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import Format
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.kinds import stored

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

NEVER = Deadline.never()
BITS = 128  # of what a sigmoid is multiplied by
STEPS_AT_A_TIME = 64  # in floats, before the clock is looked at


@dataclass(frozen=True)
class RecurrentLayer:
    """Shapes: W_x (gates hidden, inputs), W_h (gates hidden, hidden), b_x and b_h (gates hidden,)."""

    W_x: Array
    W_h: Array
    b_x: Array
    b_h: Array

    @property
    def terms(self) -> Array:
        """How many terms the sum W_x x + b_x + W_h h + b_h has in each row."""
        return nonzeros(self.W_x, self.b_x) + nonzeros(self.W_h, self.b_h)


@dataclass(frozen=True)
class BallVector:
    """A vector of numbers that are not stored: in balls of many bits, and in balls of float64 `near` them."""

    balls: tuple[arb, ...]
    near: Ball

    @classmethod
    def of(cls, balls: Sequence[arb]) -> BallVector:
        return cls(tuple(balls), Ball.around(balls))


@dataclass(frozen=True)
class Network:
    """Layers of one kind, the vectors of the tokens (tokens, inputs), and the readout V (classes, hidden), b."""

    kind: str
    activation: str
    layers: tuple[RecurrentLayer, ...]
    tokens: Array
    V: Array
    b: Array
    tables: tuple[tuple[BallVector, ...], ...] = ()  # of gated decays: what each token keeps, adds and reads
    W: Array | None = None  # of neurons after gated decays, and what each token adds to them
    U: tuple[Array, ...] = ()
    sigmoids: BallVector | None = None  # by which each is multiplied, in an evaluation that computes it low or high
    candidates: BallVector | None = None  # the same for the tanh of a GRU
    has_more_rows: bool = False  # of zeros in W than the model: what is infinite there is NaN in this network alone

    @classmethod
    def of(cls, model: AnyModel) -> Network:
        """Raises: BadInput for weights that are not finite, or of a dtype that float64 does not hold."""
        state = stored(model)
        layers = tuple(
            RecurrentLayer(*(state[f"cell.{name}_l{k}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
            for k in range(model.layers)
        )
        tokens = state.get("embedding.weight", np.eye(model.inputs))
        return cls(model.kind, model.activation, layers, tokens, state["readout.weight"], state["readout.bias"])

    @classmethod
    def of_linear(cls, model: AnyModel) -> Network:
        """h' = A h + B, as an RNN without an activation and without an input.

        Raises: BadInput for weights that are not finite, or of a dtype that float64 does not hold.
        """
        state = stored(model)
        A, B, V = state["cell.A"], state["cell.B"], state["readout.weight"]
        layer = RecurrentLayer(np.zeros((len(B), 1)), A, np.zeros(len(B)), B)
        return cls("rnn", "none", (layer,), np.zeros((1, 1)), V, state["readout.bias"])

    @classmethod
    def of_gated(cls, model: AnyModel, tables: Sequence[Sequence[Sequence[arb]]]) -> Network:
        """h' = f(x) h + a(x), and y = r(x) h, or neurons of y, which is read; tables are f, a and r of each token.

        All vectors get the length of the longest: further states stay 0, and further neurons are 0.
        """
        state = stored(model)
        tokens, V, b = np.zeros((model.inputs, 0)), state["readout.weight"], state["readout.bias"]
        size = max(model.hidden, V.shape[1])
        longer = [[[*row, *[arb(0)] * (size - len(row))] for row in table] for table in tables]
        known = tuple(tuple(map(BallVector.of, table)) for table in zip(*longer, strict=True))
        V = _padded(V, len(V), size)
        if "layer.W" not in state:
            return cls("gated", "none", (), tokens, V, b, known)
        U = _padded(state["layer.U"], model.inputs, size)
        W = state["layer.W"]
        W, has_more_rows = _padded(W, size, size), len(W) < size
        return cls("gated", "none", (), tokens, V, b, known, W, tuple(U), has_more_rows=has_more_rows)

    @property
    def hidden(self) -> int:
        return int(self.V.shape[1])

    @property
    def parts(self) -> int:
        """How many vectors the state of one layer has: what is read of it, and for an LSTM c, for gated decays h."""
        return 2 if self.kind in ("lstm", "gated") else 1

    @property
    def size(self) -> int:
        """How many numbers the state has."""
        return self.parts * max(1, len(self.layers)) * self.hidden

    @property
    def read(self) -> slice:
        """Where the last layer's h stands in the state."""
        start = self.size - self.parts * self.hidden
        return slice(start, start + self.hidden)

    def is_beyond(self, state: Sequence[Sequence[float] | Array]) -> bool:
        """Whether a run of this network is not one of the model's from this state on."""
        return self.has_more_rows and not all(np.isfinite(x).all() for x in state)

    def askew(self, fmt: Format, *, sigmoids: float, candidates: float = 0.0) -> Network:
        """The network whose sigmoids, and tanh of a GRU, are 1 + a share of u times their value.

        That is within 2 units in the last place: one of v is more than u |v|, and |share| is below 2. So what is near 1
        may be above it.
        """
        with ctx.workprec(BITS):
            by = [BallVector.of([1 + arb(x) * arb(fmt.u)] * self.hidden) for x in (sigmoids, candidates)]
        return replace(self, sigmoids=by[0], candidates=by[1] if candidates else None)

    def is_same(self, other: Network) -> bool:
        """Whether the stored numbers are those of another network of the same shape."""
        pairs = [(self.tokens, other.tokens), (self.V, other.V), (self.b, other.b)]
        for own, layer in zip(self.layers, other.layers, strict=True):
            pairs += [(own.W_x, layer.W_x), (own.W_h, layer.W_h), (own.b_x, layer.b_x), (own.b_h, layer.b_h)]
        return all(np.array_equal(x, y) for x, y in pairs)

    def rounded(self, fmt: Format) -> Network:
        """The network with every stored number rounded once.

        Raises: BadInput where one of them overflows.
        """

        def to(x: Array) -> Array:
            y = rounded(x, fmt)
            if not np.isfinite(y).all():
                raise BadInput(f"precision={fmt.name}: a weight of {np.abs(x).max():g} overflows. Use a wider format.")
            return y

        layers = tuple(RecurrentLayer(to(a.W_x), to(a.W_h), to(a.b_x), to(a.b_h)) for a in self.layers)
        return replace(self, layers=layers, tokens=to(self.tokens), V=to(self.V), b=to(self.b))


@dataclass(frozen=True)
class Later:
    """Another evaluation of the same network, which a run takes from so many tokens on, or a few more."""

    net: Network
    after: int


def _padded(x: Array, rows: int, columns: int) -> Array:
    """The matrix with further rows and columns of zeros."""
    return np.pad(x, ((0, rows - x.shape[0]), (0, columns - x.shape[1])))


X = TypeVar("X")  # a vector


class CellNumbers(Protocol[X]):
    """Operations on vectors of one kind: floats, balls, balls with derivatives, or bounds on rounding."""

    def linear(self, W: Array, x: X | Array, b: Array, terms: Array) -> X:
        """W x + b; x may be a plain vector, which is exact.

        `terms` counts, row by row, the terms of the whole sum that a kernel may compute it in.
        """

    def known(self, x: BallVector) -> X: ...

    def whole(self, x: X, y: X) -> X:
        """x + y, two parts of a sum whose `terms` are those of both."""

    def add(self, x: X, y: X) -> X: ...

    def multiply(self, x: X, y: X) -> X: ...

    def blend(self, z: X, n: X, h: X) -> X:
        """(1 - z) n + z h."""

    def tanh(self, x: X) -> X: ...

    def sigmoid(self, x: X) -> X: ...

    def relu(self, x: X) -> X: ...

    def cut(self, x: X, start: int, stop: int) -> X:
        """Entries from start to stop."""


State = list[X]  # the vectors of all layers: h, and for an LSTM h and c


def step(net: Network, state: Sequence[X], token: int, on: CellNumbers[X]) -> State[X]:
    """The state after one more token."""
    if net.kind == "gated":
        keep, add, read = map(on.known, net.tables[token])
        h = on.add(on.multiply(keep, state[1]), add)
        y = on.multiply(read, h)
        if net.W is not None:
            y = on.relu(on.linear(net.W, y, net.U[token], nonzeros(net.W, net.U[token])))
        return [y, h]
    after: State[X] = []
    x: X | Array = net.tokens[token]
    for k, layer in enumerate(net.layers):
        own = state[net.parts * k : net.parts * (k + 1)]
        new = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}[net.kind](net, layer, x, own, on)
        after += new
        x = new[0]
    return after


def nonzeros(W: Array, b: Array) -> Array:
    """How many terms W x + b has in each row: a product with the weight 0 is 0, and adding 0 is exact.

    >>> nonzeros(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.0, 2.0])).tolist()
    [1, 1]
    """
    count: Array = (W != 0).sum(1) + (b != 0)
    return count


def _parts(layer: RecurrentLayer, x: X | Array, h: X, on: CellNumbers[X]) -> tuple[X, X]:
    """W_x x + b_x and W_h h + b_h."""
    n = layer.terms
    return on.linear(layer.W_x, x, layer.b_x, n), on.linear(layer.W_h, h, layer.b_h, n)


def _rnn(net: Network, layer: RecurrentLayer, x: X | Array, own: Sequence[X], on: CellNumbers[X]) -> State[X]:
    a = on.whole(*_parts(layer, x, own[0], on))
    if net.activation == "none":
        return [a]
    return [on.relu(a) if net.activation == "relu" else on.tanh(a)]


def _sigmoid(net: Network, x: X, on: CellNumbers[X]) -> X:
    return on.sigmoid(x) if net.sigmoids is None else on.multiply(on.known(net.sigmoids), on.sigmoid(x))


def _lstm(net: Network, layer: RecurrentLayer, x: X | Array, own: Sequence[X], on: CellNumbers[X]) -> State[X]:
    """i, f, g, o = gates; c' = f c + i g; h' = o tanh(c')."""
    H = net.hidden
    a = on.whole(*_parts(layer, x, own[0], on))
    i, f, o = (_sigmoid(net, on.cut(a, k * H, k * H + H), on) for k in (0, 1, 3))
    g = on.tanh(on.cut(a, 2 * H, 3 * H))
    c = on.add(on.multiply(f, own[1]), on.multiply(i, g))
    return [on.multiply(o, on.tanh(c)), c]


def _gru(net: Network, layer: RecurrentLayer, x: X | Array, own: Sequence[X], on: CellNumbers[X]) -> State[X]:
    """r, z = gates; n = tanh(W x + b + r (W h + b)); h' = (1 - z) n + z h."""
    H, (h,) = net.hidden, own
    a, u = _parts(layer, x, h, on)
    r, z = (_sigmoid(net, on.whole(on.cut(a, k * H, k * H + H), on.cut(u, k * H, k * H + H)), on) for k in (0, 1))
    n = on.tanh(on.add(on.cut(a, 2 * H, 3 * H), on.multiply(r, on.cut(u, 2 * H, 3 * H))))
    n = n if net.candidates is None else on.multiply(on.known(net.candidates), n)
    return [on.blend(z, n, h)]


class Floats:
    """float64 as it runs, without any bound; vectors along the last axis."""

    def linear(self, W: Array, x: Array, b: Array, terms: Array) -> Array:
        return x @ W.T + b

    def known(self, x: BallVector) -> Array:
        return x.near.mid

    def whole(self, x: Array, y: Array) -> Array:
        return x + y

    def add(self, x: Array, y: Array) -> Array:
        return x + y

    def multiply(self, x: Array, y: Array) -> Array:
        return x * y

    def blend(self, z: Array, n: Array, h: Array) -> Array:
        return (1 - z) * n + z * h

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def sigmoid(self, x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0.0)

    def cut(self, x: Array, start: int, stop: int) -> Array:
        return x[..., start:stop]


def vectors(net: Network, state: Array) -> State[Array]:
    """The state's vectors, from all numbers along the last axis."""
    H = net.hidden
    return [state[..., k * H : (k + 1) * H] for k in range(net.size // H)]


def float_step(net: Network, state: Array, token: int) -> Array:
    """One step in float64."""
    return np.concatenate(step(net, vectors(net, state), token, Floats()), axis=-1)


def orbit(net: Network, tokens: Sequence[int], state: Array | None = None, until: Deadline = NEVER) -> Array:
    """The states before the first and after each token, as far as time reaches: shape (len(tokens) + 1, size)."""
    states = np.empty((len(tokens) + 1, net.size))
    states[0] = 0.0 if state is None else state
    with np.errstate(all="ignore"):
        for t, token in enumerate(tokens):
            if t % STEPS_AT_A_TIME == 0 and until.is_up():
                return states[: t + 1]
            states[t + 1] = float_step(net, states[t], token)
    return states
