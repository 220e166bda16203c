"""A wrong length of gated decays in a format by one run, whose every number is in the certificate (docs/checker.md).

Of each step these are what the token keeps of each state, adds and reads, the products with the states, their sums,
which are the next states, and what is read of these.
"""

from flint import arb, ctx

from verify.checker.closed_lines import is_right
from verify.checker.computed_decays import BITS, ComputedStates
from verify.checker.computed_tables import StoredCell, gates
from verify.checker.formats import BinaryFormat, named
from verify.checker.linear import first_wrong, wrong_at
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import StoredNetwork, due_of, matrix, vector
from verify.checker.rounded_runs import OFF, ReplayedRun, Rows, check_run


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length: one run that the reading allows answers wrongly there."""
    fmt = named(said)
    with ctx.workprec(BITS):
        net = StoredCell.of(weights, said, fmt)
        due, is_first = due_of(len(net.b), said), c["counterexample"]["is_first"]
        n, _, wrong = (first_wrong if is_first else wrong_at)(c, due, said, may_tie=True)
        require(is_first or c["right_to"] < n - 1, "right_to: all shorter lengths are right, and it is not the first")
        check_run(c, due(n) or 0, wrong, n)
        GatedRun(net, fmt).follow(c["run"]["numbers"], c["run"]["logits"])
        if is_first:
            is_right(ComputedStates(net, fmt), due, said, n - 1, arb(0))


class GatedRun:
    """Numbers that are read one after the other, each of which must be a result that the reading allows."""

    def __init__(self, net: StoredCell, fmt: BinaryFormat) -> None:
        require("layer.W" not in net.rows, "runs with neurons are not followed", NOT_CHECKABLE)
        self.net, self.fmt = net, fmt
        self.tables = [table[0].value for table in gates(net, fmt)]
        V, b = matrix(net.V), vector([net.b])
        self.on = ReplayedRun(StoredNetwork("rnn", "none", [], [], V, b), fmt)

    def follow(self, rows: Rows, logits: list[float]) -> None:
        """Each row has the numbers of one step, from the state 0; the logits are those after the last one."""
        on, read = self.on, [float(r) for r in self.tables[2]]
        h = y = [0.0] * len(read)
        for row in rows:
            on.left = iter(row)
            keep, add = self._kept(), self._added()
            require(on.take(len(read)) == read, "run: a number by which is read is not the stored one")
            h = on.plus(on.times(keep, h), add)
            y = on.times(read, h)
            require(next(on.left, None) is None, "run: a step has more numbers than it computes")
        on.left = iter(logits)
        on.sums([(self.net.V, y, self.net.b)])
        require(next(on.left, None) is None, "run: has more logits than classes")

    def _kept(self) -> list[float]:
        """The next numbers, which exp may be computed as, or which are stored."""
        keep, found = self.tables[0], self.on.take(len(self.tables[0]))
        if self.net.kind == "s4":
            require(all(x == y for x, y in zip(keep, found, strict=True)), "run: a number that is kept is not stored")
        else:
            self.on.are_near(keep, found)
        return found

    def _added(self) -> list[float]:
        """The next numbers: stored ones, or products of two, of which a softplus may be off by 2 u at least."""
        rows, add = self.net.rows, self.tables[1]
        if self.net.kind == "rwkv":
            return self.on.times(rows["k"][0], rows["v"][0])
        found, share = self.on.take(len(add)), OFF * self.fmt.u if self.net.kind == "mamba" else arb(0)
        is_near = all(abs(x - y) <= share * abs(y) for x, y in zip(found, add, strict=True))
        require(is_near, "run: a number that is added is none that may be computed")
        return found
