"""Linear state spaces, ReLU networks with a repeating state, and rotations, re-checked (docs/checker.md).

The first two are run in exact fractions. A rotation h' = e^(i omega) h + 1 has h_t = c - c e^(i omega t) with
c = 1/(1 - e^(i omega)), so a difference of two logits is E + |w| cos(arg w + omega t).
"""

from collections.abc import Callable, Mapping

from flint import acb, arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker import recurrent, steady
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, WORDS, read_tensors, require, tables_of
from verify.checker.records import LineCertificate, LineParameters, SavedLeap
from verify.checker.recurrent import (
    MOST_STATE,
    PERIODS,
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
from verify.checker.steady import MOST_TURN, Due, FractionSteps, SteadyTurns, is_at_least

KINDS = ("ssm", "decay")
MOST_STEPS, MOST_BITS = 100_000, 1 << 14
MOST_WORK = 1 << 34  # bits of all states, times the numbers of one
ROTATION_BITS = 400


def exact(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Runs the network in fractions: to the length, to the first wrong one, or until a state comes again or turns
    change it steadily.
    """
    net = stepped(weights, said)
    with ctx.workprec(steady.BITS):
        _decide(net, c, said, due_of(net.V.nrows(), said), leaps_of(c, said))


def _decide(net: FractionSteps, c: LineCertificate, said: LineParameters, due: Due, leaps: list[SavedLeap]) -> None:
    verdict, length = c["verdict"], c["length"]
    if verdict == "REFUTED":
        n, margin, wrong = first_wrong(c, due, said)
        gaps, rows = _Walk(net, due, fmpq(0)).last_gaps(leaps, n)
        require(wrong in gaps, "counterexample: predicts no class")
        require(is_at_least(_fraction(margin), gaps[wrong]), f"counterexample: the margin at length {n} is another")
        predicts(gaps, wrong, rows)
        return
    positive_margin(c)
    walk = _Walk(net, due, _fraction(c["margin"]))
    if length != "all":
        require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
        require("repeats" not in c, "repeats: is said of proofs for all lengths")
        walk.run(leaps, length)
        return
    require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
    if "repeats" not in c:
        walk.run(leaps, None)
        return
    repeats = c["repeats"]
    assert isinstance(repeats, list)
    require(len(repeats) == 2, f"repeats: must be two lengths, not {len(repeats)}")
    first, again = repeats
    period = said.get("modulus", 1)
    is_right = type(first) is type(again) is int and (0 if period > 1 else 1) < first < again
    require(is_right and (again - first) % period == 0, f"repeats: {first!r} and {again!r} are no turns of {period}")
    early = [leap for leap in leaps if leap["after"] < first]
    before = walk.reached(early, first)
    is_same = before == walk.reached(leaps[len(early) :], again)
    require(is_same, f"repeats: the states after {first} and {again} tokens differ")


def leaps_of(c: LineCertificate, said: LineParameters) -> list[SavedLeap]:
    """Turns that are taken at once, in their order; their lengths fit the answers."""
    leaps, period = c.get("leaps", []), said.get("modulus", 1)
    for leap in leaps:
        t, k = leap["after"], leap["turn"]
        is_turn = (0 if period > 1 else 1) <= t and 0 < k <= MOST_TURN and k % period == 0
        require(is_turn and said["task"] in PERIODS, f"leaps: {k} tokens after {t} are no turn")
    ends = [None if x["turns"] is None else x["after"] + x["turn"] * x["turns"] for x in leaps]
    is_in_order = all(end is not None and end <= x["after"] for end, x in zip(ends, leaps[1:], strict=False))
    require(is_in_order, "leaps: not one after the other")
    return leaps


class _Walk:
    """The state after t tokens; the right class wins by `least` after each, and by more than 0."""

    def __init__(self, net: FractionSteps, due: Due, least: fmpq) -> None:
        self.net, self.due, self.least, self.h, self.t, self.left = net, due, least, net.start(), 0, MOST_WORK

    def run(self, leaps: list[SavedLeap], until: int | None) -> SteadyTurns | None:
        """Goes on until so many tokens, None for ever; the last turns are returned where they go to the end."""
        for leap in leaps:
            self._step(leap["after"], until)
            turns = SteadyTurns(self.net, self.h, self.t, leap["turn"], self.due)
            tokens = None if until is None else until - self.t
            if leap["turns"] is not None:
                tokens = leap["turn"] * leap["turns"]
                self._end(self.t + tokens, until)
            turns.keep_sides(tokens)
            turns.win(tokens, self.least)
            if leap["turns"] is None:
                return turns
            self.h, self.t = turns.after(leap["turns"]), self.t + leap["turn"] * leap["turns"]
        require(until is not None, "lines whose turns change the state steadily are not checked", NOT_CHECKABLE)
        self._step(until or 0, until)
        return None

    def reached(self, leaps: list[SavedLeap], t: int) -> fmpq_mat:
        """The state after so many tokens."""
        require(self.run(leaps, t) is None, "leaps: turns without an end lead to no state")
        return self.h

    def _end(self, t: int, until: int | None) -> None:
        require(until is None or t <= until, f"leaps: go beyond {until} tokens")

    def _step(self, to: int, until: int | None) -> None:
        self._end(to, until)
        require(to - self.t <= MOST_STEPS, f"{to - self.t} steps are too many to run", NOT_CHECKABLE)
        while self.t < to:
            self.h, self.t = self.net.step(self.h), self.t + 1
            numbers = [(x.p.bit_length(), x.q.bit_length()) for x in self.h.entries()]
            self.left -= len(numbers) * sum(map(sum, numbers))
            is_short = all(below < MOST_BITS for _, below in numbers) and self.left >= 0
            require(is_short, f"the fractions after {self.t} tokens are too long", NOT_CHECKABLE)
            gaps = self.net.gaps(self.h, self.due(self.t)).values()
            is_right = all(x >= self.least and x > 0 for x in gaps)
            require(is_right, f"length {self.t}: the right class does not win by {self.least}")

    def last_gaps(self, leaps: list[SavedLeap], n: int) -> tuple[Mapping[int, fmpq | arb], Mapping[int, object]]:
        """The margins after n tokens, before which all are right, and what is the same only where these are."""
        turns = self.run(leaps, n - 1)
        if turns is None:
            exactly = self.net.gaps(self.net.step(self.h), self.due(n))
            return exactly, exactly
        turns.keep_sides(n - self.t)
        forms = turns.forms_at(n - self.t)
        gaps = {j: turns.value(form, (n - 1 - self.t) // turns.k) for j, form in forms.items()}
        return gaps, {j: (form.c0, form.c1) for j, form in forms.items()}


def stepped(weights: bytes, said: LineParameters) -> FractionSteps:
    """The steps and the readout."""
    if said.get("model") in KINDS:
        rows = _read(weights, said, {"cell.A", "cell.B", "readout.weight", "readout.bias"})
        A, B = _rational(rows["cell.A"]), _rational([[x] for x in rows["cell.B"][0]])
        V, b = _rational(rows["readout.weight"]), _rational([[x] for x in rows["readout.bias"][0]])
        d = B.nrows()
        require(A.nrows() == A.ncols() == V.ncols() == d and V.nrows() == b.nrows(), "shapes do not fit", UNREADABLE)
        require(said.get("units") == d, f"parameters: units is {said.get('units')!r}, and the file has {d}")
        return FractionSteps(A, B, V, b)
    net = network(weights, said)
    is_relu = net.kind == "rnn" and net.activation == "relu" and len(net.layers) == 1
    require(is_relu, "repeats: the states of this network are no fractions")
    layer = net.layers[0]
    given = _of_balls(layer.W_x) * _column(net.x) + _column(layer.b_x) + _column(layer.b_h)
    return FractionSteps(_of_balls(layer.W_h), given, _of_balls(net.V), _column(net.b), True)


def as_layer(weights: bytes, said: LineParameters) -> StoredNetwork:
    """A state space as a recurrent layer without an activation."""
    rows = _read(weights, said, {"cell.A", "cell.B", "readout.weight", "readout.bias"})
    A, B, V, b = (rows[name] for name in ("cell.A", "cell.B", "readout.weight", "readout.bias"))
    d = len(A)
    is_whole = {len(row) for row in (*A, B[0], *V)} == {d} and len(V) == len(b[0]) and said.get("units") == d
    require(is_whole and d <= MOST_STATE, "shapes do not fit, or the state is too large", UNREADABLE)
    layer = StoredLayer(arb_mat(d, 1), matrix(A), [arb(0)] * d, vector(B))
    return StoredNetwork("rnn", "none", [layer], [arb(0)], matrix(V), vector(b), ([arb(0)],))


def for_ever(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Right at every length, by the saved ellipsoids."""
    net = as_layer(weights, said)
    recurrent.for_ever(net, c, due_of(len(net.b), said))


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
    require(c["counterexample"].get("is_first") is True, "counterexample: only a first one is checked", NOT_CHECKABLE)
    require(c.get("right_to") == n - 1, "counterexample: must be the first")
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


def wrong_after(c: LineCertificate, due: Callable[[int], int | None], said: LineParameters) -> tuple[int, float, int]:
    """The length of a counterexample, its margin, 0 for none, and the class that wins, -1 where that is open.

    It is the first, or says in which evaluations it is wrong: else no `right_to` is on trust.
    """
    case = c["counterexample"]
    is_first = case.get("is_first", True) or "evaluation" not in case
    of_number = c if c["margin"] is not None else c | {"margin": 0.0}
    n, margin, wrong = (first_wrong if is_first else wrong_at)(of_number, due, said, may_be_open=True)
    require(is_first or c["right_to"] < n - 1, "right_to: all shorter lengths are right, and it is not the first")
    return n, margin, wrong


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
            require(is_at_least(arb(margin), gaps[wrong]), f"counterexample: the margin at length {n} is {gaps[wrong]}")
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
                    for g in (self.gap(r, j), self.gap(last, j)):
                        is_known = bool(g < margin or g <= 0)
                        what = f"class {r - 1} does not win over {j} by {margin} at lengths {r} and {last}"
                        require(bool(g >= margin and g > 0), what, FAILS if is_known else NOT_CHECKABLE)
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
        too_far = f"lengths {r}, {r + self.m}, ...: the state turns too far for class {r - 1} over {j} to show"
        require(is_clear, too_far, NOT_CHECKABLE)
