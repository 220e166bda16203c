"""Linear state spaces in real arithmetic, at any length, in closed form (docs/checker.md).

h' = A h + B from 0 is h_t = (1 - A^t) (1 - A)^-1 B. With eigenvalues l_i of A, which balls tell apart, and v_i the
part of B along each, h_t = sum of v_i (1 - l_i^t) / (1 - l_i). So a difference of two logits is E - sum of
|w_i| |l_i|^t cos(arg w_i + t arg l_i). Along t = low, low + k, ... each |l_i|^t moves one way, and each angle evenly,
by k arg l_i less whole circles.
"""

from flint import acb, acb_mat, arb, ctx

from verify.checker import closed_lines
from verify.checker.linear import exact, stepped
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import due_of
from verify.checker.rounded_lines import Gaps

BITS, MOST_UNITS = 600, 24


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line in fractions, and where these would be too long, or too many, in closed form."""
    try:
        exact(weights, c, said)
    except Refusal as refusal:
        if refusal.exit_code != NOT_CHECKABLE or "leaps" in c or "repeats" in c:
            raise
        in_closed_form(weights, c, said)


def in_closed_form(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """The same, at any length."""
    with ctx.workprec(BITS):
        net = stepped(weights, said)
        rows = [(*row, *b) for row, b in zip(net.V.tolist(), net.b.tolist(), strict=True)]
        A, B, V = (acb_mat(x.tolist()) for x in (net.A, net.B, net.V))
        states = TurningStates(A, B, V, [arb(x) for x in net.b.entries()])
        closed_lines.decide_line(states, rows, due_of(net.V.nrows(), said), c, said)


class TurningStates:
    """The parts of the states along eigenvectors X, and what V h + b is between two lengths."""

    def __init__(self, A: acb_mat, B: acb_mat, V: acb_mat, b: list[arb]) -> None:
        require(A.nrows() <= MOST_UNITS, f"{A.nrows()} units are too many for a closed form", NOT_CHECKABLE)
        self.rates, self.X = _eigenvalues(A)
        parts = _solved(self.X, B)
        places = [x / (1 - rate) for x, rate in zip(parts, self.rates, strict=True)]
        require(all(x.is_finite() for x in places), "an eigenvalue may be 1", NOT_CHECKABLE)
        self.turns = 1 + any(x.imag == 0 and not x.real > 0 for x in self.rates)
        shown = V * self.X
        self.W = [[shown[j, i] * place for i, place in enumerate(places)] for j in range(shown.nrows())]
        self.b, self.work = b, 16 * V.nrows() * V.ncols()

    def gaps(self, low: int, high: int | None, k: int, right: int) -> Gaps:
        moved = [_moved(rate, low, high, k) for rate in self.rates]
        gaps = {j: self._gap(moved, right, j) for j in range(len(self.b)) if j != right}
        return {j: (x, x) for j, x in gaps.items()}

    def _gap(self, moved: list[tuple[arb, arb]], right: int, j: int) -> arb:
        along = [x - y for x, y in zip(self.W[right], self.W[j], strict=True)]
        return _sum(moved, along, self.b[right] - self.b[j])

    def values(self, low: int, high: int, k: int) -> list[arb]:
        """V h + b itself, number by number."""
        moved = [_moved(rate, low, high, k) for rate in self.rates]
        return [_sum(moved, along, b) for along, b in zip(self.W, self.b, strict=True)]


def _solved(X: acb_mat, B: acb_mat) -> list[acb]:
    """X^-1 B. Raises: Refusal where balls do not show that X has an inverse."""
    try:
        return X.solve(B).entries()
    except ZeroDivisionError:
        raise Refusal("the eigenvectors of the matrix are not told apart", NOT_CHECKABLE) from None


def _sum(moved: list[tuple[arb, arb]], along: list[acb], b: arb) -> arb:
    for (size, angle), w in zip(moved, along, strict=True):
        b += w.real - abs(w) * size * (_angle(w) + angle).cos()
    return b


def _eigenvalues(A: acb_mat) -> tuple[list[acb], acb_mat]:
    """The eigenvalues of a real matrix, and its eigenvectors.

    The conjugate of one is one of them: where its ball meets no other, itself, which then is real.
    """
    try:
        found, X = A.eig(right=True)
    except ValueError:
        raise Refusal("the eigenvalues of the matrix are not told apart", NOT_CHECKABLE) from None
    return [acb(x.real) if _is_alone(x, i, found) else x for i, x in enumerate(found)], X


def _is_alone(x: acb, i: int, every: list[acb]) -> bool:
    return not any(x.conjugate().overlaps(y) for j, y in enumerate(every) if j != i)


def _moved(rate: acb, low: int, high: int | None, k: int) -> tuple[arb, arb]:
    """|l^t| and arg l^t at t = low, low + k, .., high, or all of these from low on."""
    size, step = abs(rate), _less_circles(k * _angle(rate))
    require(high is not None or bool(size < 1), "an eigenvalue may be 1 or more", NOT_CHECKABLE)
    if rate.contains(0):
        require(bool(size < 1), "an eigenvalue may be 0, or not", NOT_CHECKABLE)
        return arb(0).union(size**low), arb(0, 4)
    first, sizes = _less_circles(low * _angle(rate)), size**low
    if high is None:
        return arb(0).union(sizes), first if step == 0 else arb(0, 4)
    return sizes.union(size**high), first.union(first + (high - low) // k * step)


def _angle(x: acb) -> arb:
    """arg x, or one that is whole circles off, without a jump where x is near a number below 0."""
    return (-x).arg() + arb.pi() if x.real < 0 else x.arg()


def _less_circles(x: arb) -> arb:
    """An angle less the nearest number of circles."""
    circle = 2 * arb.pi()
    turns = (x / circle + arb(0.5)).mid().floor().unique_fmpz()
    require(turns is not None, "an angle is not known", NOT_CHECKABLE)
    return x - circle * arb(turns)
