"""Linear state spaces, ReLU networks with a repeating state, and rotations, re-checked (docs/checker.md).

The first two are run in exact fractions. A rotation h' = e^(i omega) h + 1 has h_t = c - c e^(i omega t) with
c = 1/(1 - e^(i omega)), so a difference of two logits is E + |w| cos(arg w + omega t).
"""

from collections.abc import Callable

from flint import acb, arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, Refusal, read_tensors, require, tables_of
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import (
    MOST_STATE,
    StoredLayer,
    StoredNetwork,
    due_of,
    is_line,
    matrix,
    network,
    positive_margin,
    predicts,
    vector,
)

KINDS = ("ssm", "decay")
MOST_STEPS, MOST_BITS = 100_000, 1 << 14
ROTATION_BITS = 400

Step = Callable[[fmpq_mat], fmpq_mat]


def exact(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Runs the network in fractions: to the length, to the first wrong one, or until a state comes again."""
    start, step, V, b = _stepped(weights, said)
    due, verdict, length = due_of(V.nrows(), said), c["verdict"], c["length"]
    if verdict == "REFUTED":
        n, margin, wrong = first_wrong(c, due, said)
        h = _run(start, step, V, b, n - 1, due, fmpq(0))
        gaps = _gaps(V, b, step(h), due(n))
        require(gaps[wrong] <= _fraction(margin), f"counterexample: the margin at length {n} is {gaps[wrong]}")
        require(gaps[wrong] == min(gaps.values()), "counterexample: another class is predicted")
        return
    positive_margin(c)
    least = _fraction(c["margin"])
    if length != "all":
        require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
        _run(start, step, V, b, length, due, least)
        return
    require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
    repeats = c["repeats"]
    assert isinstance(repeats, list)
    first, again = repeats
    period = said.get("modulus", 1)
    is_right = type(first) is type(again) is int and (0 if period > 1 else 1) < first < again
    require(is_right and (again - first) % period == 0, f"repeats: {first!r} and {again!r} are no turns of {period}")
    before = _run(start, step, V, b, first, due, least)
    after = _run(before, step, V, b, again - first, lambda t: due(t + first), least)
    require(before == after, f"repeats: the states after {first} and {again} tokens differ")


def _stepped(weights: bytes, said: LineParameters) -> tuple[fmpq_mat, Step, fmpq_mat, fmpq_mat]:
    """The first state, a step, and the readout."""
    if said.get("model") in KINDS:
        rows = _read(weights, said, {"cell.A", "cell.B", "readout.weight", "readout.bias"})
        A, B = _rational(rows["cell.A"]), _rational([[x] for x in rows["cell.B"][0]])
        V, b = _rational(rows["readout.weight"]), _rational([[x] for x in rows["readout.bias"][0]])
        d = B.nrows()
        require(A.nrows() == A.ncols() == V.ncols() == d and V.nrows() == b.nrows(), "shapes do not fit", UNREADABLE)
        require(said.get("units") == d, f"parameters: units is {said.get('units')!r}, and the file has {d}")
        return fmpq_mat(d, 1), lambda h: A * h + B, V, b
    net = network(weights, said)
    is_relu = net.kind == "rnn" and net.activation == "relu" and len(net.layers) == 1
    require(is_relu, "repeats: the states of this network are no fractions")
    layer = net.layers[0]
    W = _of_balls(layer.W_h)
    given = _of_balls(layer.W_x) * _column(net.x) + _column(layer.b_x) + _column(layer.b_h)

    def step(h: fmpq_mat) -> fmpq_mat:
        return fmpq_mat(h.nrows(), 1, [max(fmpq(0), x) for row in (W * h + given).tolist() for x in row])

    return fmpq_mat(net.hidden, 1), step, _of_balls(net.V), _column(net.b)


def as_layer(weights: bytes, said: LineParameters) -> StoredNetwork:
    """A state space as a recurrent layer without an activation."""
    rows = _read(weights, said, {"cell.A", "cell.B", "readout.weight", "readout.bias"})
    A, B, V, b = (rows[name] for name in ("cell.A", "cell.B", "readout.weight", "readout.bias"))
    d = len(A)
    is_whole = {len(row) for row in (*A, B[0], *V)} == {d} and len(V) == len(b[0]) and said.get("units") == d
    require(is_whole and d <= MOST_STATE, "shapes do not fit, or the state is too large", UNREADABLE)
    layer = StoredLayer(arb_mat(d, 1), matrix(A), [arb(0)] * d, vector(B))
    return StoredNetwork("rnn", "none", [layer], [arb(0)], matrix(V), vector(b), ([arb(0)],))


def _read(weights: bytes, said: LineParameters, names: set[str]) -> dict[str, list[list[float]]]:
    tensors, about = read_tensors(weights)
    require(about == {"model": said.get("model")}, f"the metadata name another network: {about}")
    require({*tensors} == names, f"the file must hold {', '.join(sorted(names))}", UNREADABLE)
    dtype = WORDS[tensors["readout.weight"][0]][0]
    require(said.get("dtype") == dtype and said.get("layers") == 1, f"parameters: the file has one layer in {dtype}")
    return tables_of(tensors, ("cell.B", "cell.omega"))


def _fraction(x: float) -> fmpq:
    return fmpq(*x.as_integer_ratio())


def _rational(rows: list[list[float]]) -> fmpq_mat:
    return fmpq_mat(len(rows), len(rows[0]), [_fraction(x) for row in rows for x in row])


def _of_balls(x: arb_mat) -> fmpq_mat:
    """A matrix of numbers that are exact."""
    return fmpq_mat(x.nrows(), x.ncols(), [_of_ball(v) for row in x.tolist() for v in row])


def _column(x: list[arb]) -> fmpq_mat:
    return fmpq_mat(len(x), 1, [_of_ball(v) for v in x])


def _of_ball(x: arb) -> fmpq:
    mantissa, exponent = x.mid().man_exp()
    return fmpq(int(mantissa)) * fmpq(2) ** int(exponent)


def _gaps(V: fmpq_mat, b: fmpq_mat, h: fmpq_mat, right: int | None) -> dict[int, fmpq]:
    """(right logit) - (logit j) for each other class j."""
    require(right is not None, "a length has no right class")
    logits = [x for row in (V * h + b).tolist() for x in row]
    return {j: logits[right or 0] - x for j, x in enumerate(logits) if j != right}


def _run(
    h: fmpq_mat, step: Step, V: fmpq_mat, b: fmpq_mat, steps: int, due: Callable[[int], int | None], least: fmpq
) -> fmpq_mat:
    """The state after so many tokens; the right class wins by `least` after each, and by more than 0."""
    require(steps <= MOST_STEPS, f"{steps} steps are too many to run", NOT_CHECKABLE)
    for t in range(1, steps + 1):
        h = step(h)
        is_short = all(int(x.q).bit_length() < MOST_BITS for row in h.tolist() for x in row)
        require(is_short, f"the fractions after {t} tokens are too long", NOT_CHECKABLE)
        gaps = _gaps(V, b, h, due(t)).values()
        require(all(x >= least and x > 0 for x in gaps), f"length {t}: the right class does not win by {least}")
    return h


def first_wrong(
    c: LineCertificate,
    due: Callable[[int], int | None],
    said: LineParameters,
    *,
    may_tie: bool = False,
    may_be_open: bool = False,
) -> tuple[int, float, int]:
    """The length of a counterexample that is the first, its margin, and the class that wins there, -1 for none said."""
    n, margin, wrong = wrong_at(c, due, said, may_tie=may_tie, may_be_open=may_be_open)
    is_first = c["counterexample"].get("is_first") is True and c.get("right_to") == n - 1
    require(is_first, "counterexample: must be the first")
    return n, margin, wrong


def wrong_at(
    c: LineCertificate,
    due: Callable[[int], int | None],
    said: LineParameters,
    *,
    may_tie: bool = False,
    may_be_open: bool = False,
) -> tuple[int, float, int]:
    """The length of a counterexample, its margin, and the class that wins there, or the right one that ties."""
    case, margin = c["counterexample"], c["margin"]
    n = case["length"]
    require(type(n) is int and n > 0 and c.get("inputs_covered") == "1", "counterexample: has no length")
    require(c["length"] == "all" or n <= c["length"], "counterexample: is longer than the lengths that are judged")
    shown = case["input"]
    require(is_line(shown, n), "counterexample: its input is not so many tokens 0")
    require(type(margin) is float and margin <= 0, f"margin: {margin!r} must be zero or negative")
    right, first = due(n), int("modulus" in said)
    require(right is not None and case.get("expected") == right + first, "counterexample: another answer is expected")
    predicted = case.get("predicted", "")
    if predicted is None and may_be_open:
        return n, margin, -1
    require(predicted is not None, "counterexample: the class that is predicted is not said", NOT_CHECKABLE)
    is_other = type(predicted) is int and predicted >= first and (predicted - first != right or may_tie and margin == 0)
    require(is_other, "counterexample: predicts no other class")
    assert isinstance(predicted, int)
    return n, margin, predicted - first


def of_rotation(weights: bytes, said: LineParameters) -> dict[str, list[list[float]]]:
    """The angle of a rotation's file, and its readout."""
    rows = _read(weights, said, {"cell.omega", "readout.weight", "readout.bias"})
    omega, V = rows.pop("cell.omega"), rows["readout.weight"]
    is_whole = len(omega[0]) == said.get("units") == 1 and {len(row) for row in V} == {2}
    require(is_whole and len(V) == len(rows["readout.bias"][0]), "the file holds no rotation", UNREADABLE)
    return rows | {"omega": omega}


def rotation(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Right up to a length of any size, or first wrong at one, in closed form."""
    with ctx.workprec(ROTATION_BITS):
        rows = of_rotation(weights, said)
        omega, V, b = arb(rows["omega"][0][0]), rows["readout.weight"], rows["readout.bias"][0]
        m = said.get("modulus")
        require(said.get("task") == "modular" and type(m) is int and 2 <= m <= len(b), "parameters: no modular task")
        found = _Circle(omega, [acb(*row) for row in V], [arb(x) for x in b], int(str(m)))
        if c["verdict"] == "REFUTED":
            n, margin, wrong = first_wrong(c, due_of(len(b), said), said)
            found.check(n - 1, arb(0))
            require(0 <= wrong < len(b), "counterexample: predicts no class")
            gaps = {j: found.gap(n, j) for j in range(len(b)) if j != (n - 1) % found.m}
            require(bool(gaps[wrong] <= arb(margin)), f"counterexample: the margin at length {n} is {gaps[wrong]}")
            predicts(gaps, wrong, [(*row, x) for row, x in zip(V, b, strict=True)])
            return
        margin_of_all, length = positive_margin(c), c["length"]
        require(length != "all", "length: no rotation by a stored angle counts at every length")
        assert length != "all"
        require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
        found.check(length, margin_of_all)


class _Circle:
    """Where a rotation's states stand, and how the logits' differences move with them."""

    def __init__(self, omega: arb, V: list[acb], b: list[arb], m: int) -> None:
        self.omega, self.V, self.b, self.m = omega, V, b, m
        self.centre = 1 / (1 - acb(0, omega).exp())

    def gap(self, t: int, j: int) -> arb:
        """(right logit) - (logit j) after t tokens."""
        right = (t - 1) % self.m
        h = self.centre - self.centre * acb(0, self.omega * t).exp()
        d = self.V[right] - self.V[j]
        return d.real * h.real + d.imag * h.imag + self.b[right] - self.b[j]

    def check(self, length: int, margin: arb) -> None:
        """The right class wins by the margin, and by more than 0, at 1..length.

        Along t = r, r + m, ... the angle moves evenly; on an arc without pi, E + |w| cos is least at one of its ends.
        """
        for r in range(1, min(self.m, length) + 1):
            last = r + (length - r) // self.m * self.m
            for j in range(len(self.b)):
                if j != r - 1:
                    is_right = all(bool(g >= margin and g > 0) for g in (self.gap(r, j), self.gap(last, j)))
                    require(is_right, f"class {r - 1} does not win over {j} by {margin} at lengths {r} and {last}")
                    self._check_arc(r, (last - r) // self.m, j, margin)

    def _check_arc(self, r: int, turns: int, j: int, margin: arb) -> None:
        d = self.V[r - 1] - self.V[j]
        w = -(acb(d.real, -d.imag) * self.centre)
        E = (acb(d.real, -d.imag) * self.centre).real + self.b[r - 1] - self.b[j]
        least = E - abs(w)
        if turns == 0 or bool(least >= margin and least > 0):
            return
        two_pi = 2 * arb.pi()
        step = self.m * self.omega
        step -= two_pi * arb(round(float(step / two_pi)))
        start = ((-w).arg() + arb.pi() if w.real < 0 else w.arg()) + self.omega * r
        start -= two_pi * arb(round(float(start / two_pi)))
        stop = start + turns * step
        is_clear = all(bool(abs(x) < arb.pi()) for x in (start, stop))
        if not is_clear:
            raise Refusal(f"lengths {r}, {r + self.m}, ...: the state turns too far for class {r - 1} over {j}")
