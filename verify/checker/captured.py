"""One step of a recurrent network as torch.export traced it, followed from token to token (docs/checker.md).

In real arithmetic its numbers are balls; in a format they are what any evaluation of the contract computes.
"""

from collections.abc import Callable, Mapping, Sequence

from flint import arb

from verify.checker import whole_blocks
from verify.checker.arrays import FLOAT, Array, Open, each
from verify.checker.formats import BinaryFormat
from verify.checker.graphs import BYTES, Follower, TracedGraph, base_of, read_graph
from verify.checker.moved import MovedArray, around
from verify.checker.operations import total
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_tiles, require
from verify.checker.records import Node
from verify.checker.rounded_graphs import RoundedFollower
from verify.checker.rounded_lines import Gaps, TokenFollower, differences
from verify.checker.rounded_norms import RoundedKernels
from verify.checker.rounded_results import check_widths

State = Array | MovedArray
PRODUCTS, AFTER_A_BIAS = ("mm", "bmm", "matmul", "mv", "dot", "linear"), ("addmm", "baddbmm")
HIDDEN = ("scaled_dot_product_attention", "conv")  # with matrix products within
MOST_ERRORS = 200  # that a state carries on
NEAR = arb(2) ** -40  # how wide differences of logits may be, as a share of them, that are compared with others


def of_program(weights: bytes, program: object, more: Sequence[str] = ()) -> tuple[TracedGraph, int]:
    """The graph of one step in a certificate that says `more`, and how many numbers its state has. Raises: Refusal."""
    if not isinstance(program, dict) or {*program} != {"step", "numbers", *more} or type(program["numbers"]) is not int:
        raise Refusal("program: is no step and the numbers of its state")
    tensors, _ = read_tiles(weights, BYTES)
    return read_graph(program["step"], tensors), program["numbers"]


class CapturedStep:
    """A step whose state has so many numbers: they are the first ones of the output, and logits are the others.

    In a format it is any evaluation, in boxes or with errors that `are_kept` by themselves, or `as_run` the one that
    keeps every result exactly and rounds factors of matrix products to nearest.
    """

    def __init__(
        self,
        graph: TracedGraph,
        numbers: int,
        bits: int,
        fmt: BinaryFormat | None = None,
        *,
        as_run: bool = False,
        are_kept: bool = False,
    ) -> None:
        self.graph, self.run_in, fmt = graph, fmt if as_run else None, None if as_run else fmt
        shape = graph.nodes[graph.output]["shape"] or []
        is_row = len(shape) == 2 and shape[0] == 1 and 0 < numbers <= shape[1] - 2
        require(graph.length == 1 and is_row, "program: a step gives a state and logits")
        self.numbers, self.classes = numbers, shape[1] - numbers
        self.kernels = None if fmt is None else RoundedKernels(fmt, fmt, are_kept, False)
        self.followed = Follower(graph, bits) if fmt is None else RoundedFollower(graph, bits, self.at)
        self.state, self.whole = self.start([0.0] * numbers), self.start([])
        if self.run_in is not None:
            check_widths(graph, self.followed.uses, self.run_in)
        call, finish = self.followed.call, self.followed.finish

        def called(i: int, node: Node, values: dict[int, object], tokens: Sequence[Sequence[int]]) -> object:
            if node["op"] == "state":
                return self._part(node)
            if self.run_in is None:
                return call(i, node, values, tokens)
            found = call(i, node, self._factors(i, node, values), tokens)
            is_stored = node["op"] == "stored" and isinstance(found, Array) and found.kind == FLOAT
            return each(self._near, found) if is_stored else found

        def finished(values: Mapping[int, object]) -> Array:
            found = values[graph.output]
            require(isinstance(found, Array | MovedArray), "program: the output is no tensor")
            assert isinstance(found, Array | MovedArray)
            self.whole = found
            return finish(values)

        self.followed.call, self.followed.finish = called, finished

    @property
    def at(self) -> RoundedKernels:
        assert self.kernels is not None
        return self.kernels

    def _near(self, x: arb) -> arb:
        assert self.run_in is not None
        return whole_blocks.as_factor(x, self.run_in)

    def _factors(self, i: int, node: Node, values: dict[int, object]) -> dict[int, object]:
        """The same, what a matrix product multiplies rounded."""
        base, uses = base_of(node), self.followed.uses[i]
        require(not base.startswith(HIDDEN), "program: matrix products within an operation", NOT_CHECKABLE)
        factors = uses[1:3] if base in AFTER_A_BIAS else uses[:2] if base in PRODUCTS else []
        return values | {j: each(self._near, x) for j in factors for x in [values[j]] if isinstance(x, Array)}

    def start(self, numbers: Sequence[float]) -> State:
        """A state of such numbers."""
        found = Array(FLOAT, (1, len(numbers)), [[*map(arb, numbers)]])
        return found if self.kernels is None else self.at.number(found)

    def _part(self, node: Node) -> State:
        """The numbers of the state that a node reads."""
        first, shape = node["at"], tuple(node["shape"] or ())
        size = Array(FLOAT, shape, []).size
        is_there = type(first) is int and first >= 0 and first + size <= self.numbers and node["dtype"] is not None
        require(is_there, "program: such a part of the state is not there")
        return _cut(self.state, shape, first, first + size)

    def after(self, state: State, token: int) -> tuple[Callable[[int], Gaps], State]:
        """Between which numbers differences of logits are after one more token, and the state there."""
        self.state = state
        if isinstance(self.followed, RoundedFollower):
            self.followed.fixed.clear()  # what no token decides may round otherwise after another token
        try:
            balls = self.followed.output([[token]]).balls[0][self.numbers :]
        except Open:
            raise Refusal("a comparison in the step is open", NOT_CHECKABLE) from None
        later = _cut(self.whole, (1, self.numbers), 0, self.numbers)
        read = self.followed.found if isinstance(self.followed, RoundedFollower) else None
        if read is None or not read.moved:
            return lambda k: differences([*balls], range(self.classes), k), later
        logits = _cut(read, (self.classes,), self.numbers, self.numbers + self.classes)
        return lambda k: self._gaps(logits, k), self._with_fewer(later)

    def _gaps(self, logits: State, k: int) -> Gaps:
        """Between which numbers (logit k) - (each other) is, which errors move together."""
        assert isinstance(logits, MovedArray)
        middle = logits.mid.balls[0]
        found = dict[int, arb]()
        for j in range(self.classes):
            off = total([abs(row[k] - row[j]) for row in logits.moved.values()])
            found[j] = around(middle[k] - middle[j], off)
        return {j: (gap.lower(), gap.upper()) for j, gap in found.items() if j != k}

    def _with_fewer(self, state: State) -> State:
        """The same state with the MOST_ERRORS largest errors, and what all others may move it by for each number."""
        assert isinstance(state, MovedArray)
        sizes = {i: float(total([*map(abs, row)]).mid()) for i, row in state.moved.items()}
        kept = {*sorted(sizes, key=lambda i: -sizes[i])[:MOST_ERRORS]}
        rest = [state.moved[i] for i in state.moved if i not in kept]
        if not rest:
            return state
        off = [total([abs(row[j]) for row in rest]).upper() for j in range(self.numbers)]
        fewer = MovedArray(state.mid, {i: state.moved[i] for i in kept}, state.is_stored)
        return self.at.errors.widened(fewer, Array(FLOAT, state.mid.shape, [off]))

    def follower(self, state: State | None = None) -> TokenFollower:
        """What is known after one token, two tokens, and so on, from a state, or the state 0."""
        now = self.start([0.0] * self.numbers) if state is None else state

        def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
            gaps, later = self.after(now, token)
            return gaps, self.follower(later)

        return follow


def _cut(x: State, shape: tuple[int, ...], first: int, end: int) -> State:
    """Some numbers of a row."""
    if isinstance(x, MovedArray):
        moved = {i: row[first:end] for i, row in x.moved.items()}
        return MovedArray(Array(FLOAT, shape, [row[first:end] for row in x.mid.balls]), moved, x.is_stored)
    return Array(FLOAT, shape, [row[first:end] for row in x.balls])


def beside(follow: TokenFollower, same: TokenFollower, own: TokenFollower) -> TokenFollower:
    """What is followed, refused where the graph in real arithmetic, `same`, is not what another step gives, `own`."""

    def step(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        (gaps, later), (exact, later_same), (due, later_own) = follow(token), same(token), own(token)

        def shown(k: int) -> Gaps:
            known, wanted = exact(k), due(k)
            require({*known} == {*wanted}, "program: has other classes than the file")
            for j, (low, high) in known.items():
                least, most = wanted[j]
                require(not (high < least or most < low), "program: is no step of the network in the file")
                is_near = all(b - a <= NEAR * (1 + abs(a)) for a, b in ((low, high), (least, most)))
                require(bool(is_near), "program: whether it is the file's network does not show", NOT_CHECKABLE)
            return gaps(k)

        return shown, beside(later, later_same, later_own)

    return step
