"""Selective tasks on all strings by saved ellipsoids round states, one of which every token leads to from each.

Each graph shows the answers to some types: their counts belong to an ellipsoid, and of the other types any string is
allowed. The checker follows all tokens from the start on, as far as some answer is still judged, with the counts up to
C + 1: one computed step leads from ellipsoid to ellipsoid. So by induction each state is in one of them that was met
with the state's counts, at every length.
"""

from flint import arb, arb_mat, ctx

from verify.checker.closed_sets import least_gap
from verify.checker.computed_orders import exact
from verify.checker.computed_strings import EXACTLY
from verify.checker.formats import BinaryFormat
from verify.checker.one_string import RightClasses
from verify.checker.reading import NOT_CHECKABLE, Refusal, recorded, require
from verify.checker.records import GraphsFound, LineCertificate, LineParameters, SavedGraph
from verify.checker.recurrent import (
    GATES,
    StoredNetwork,
    Vector,
    ellipsoids,
    leads,
    length_of,
    network,
    on_ball,
    positive_margin,
    step,
)  # fmt: skip
from verify.checker.rounded import BITS, box_of, computed_gaps, rounding_of_step, stored_network
from verify.checker.rounded_boxes import ComputedBoxes

MOST_WORK = 32_000_000  # steps times the numbers of a state to the third power
MOST_PLACES = 1_000_000  # ellipsoids with counts


def proved(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks every graph, and that together they show the answers to all types."""
    margin, found = positive_margin(c), recorded(c["sets_found"], GraphsFound)
    graphs = found["graphs"]
    require(said["model"] in GATES, f"ellipsoids of {said['model']!r} are not checked", NOT_CHECKABLE)
    with ctx.workprec(BITS):
        net, fmt = (network(weights, said), EXACTLY) if c["reading"] == "real" else stored_network(weights, said)
        due = RightClasses.of_all(c, said, len(net.tokens), len(net.b))
        sizes = [len(graph["then"]) for graph in graphs]
        require(found["sets"] == sum(sizes), "sets_found: another number of sets")
        work = sum(sizes) * due.types * net.size**3
        require(work <= MOST_WORK, "sets_found: more ellipsoids than are followed", NOT_CHECKABLE)
        shown = sorted(t for graph in graphs for t in graph["judged"])
        require(shown == [*range(due.types)], "sets_found: does not show the answers to each type, or to some twice")
        for graph in graphs:
            GraphOfStates(net, fmt, due, graph).check(margin)


class GraphOfStates:
    """Ellipsoids {P_i + L_i e : |e| <= 1}, the start first, and which one each token leads to from each."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat, due: RightClasses, graph: SavedGraph) -> None:
        self.net, self.fmt, self.due, self.then = net, fmt, due, graph["then"]
        self.judged: set[int] = {*graph["judged"]}
        self.followed, self.won = set[tuple[int, int]](), set[tuple[int, int, int]]()
        self.on = ComputedBoxes(net, None if fmt is EXACTLY else fmt)
        self.centres, self.shapes = ellipsoids(graph, net.size)
        is_whole = len(self.then) == len(self.centres) and all(len(row) == due.types for row in self.then)
        require(is_whole, "sets_found: an ellipsoid has no place for each token to lead to")

    def check(self, margin: arb) -> None:
        require(all(x == 0 for x in self.centres[0]), "sets_found: the start is not in the first ellipsoid")
        queue = [(0, (0,) * self.due.types)]
        met = {*queue}
        for i, before in queue:
            require(len(queue) <= MOST_PLACES, "sets_found: more counts than are followed", NOT_CHECKABLE)
            for token in range(self.due.types):
                counts = self._counted(before, token)
                right = self.due.of(counts[token]) if token in self.judged else None
                if right is not None:
                    self._wins(i, token, right, margin)
                if min(counts[t] for t in self.judged) >= self.due.C:  # no later answer is judged
                    continue
                j = self.then[i][token]
                require(0 <= j < len(self.then), f"sets_found: token {token} leads from {i} to no ellipsoid")
                self._leads(i, token, j)
                if (j, counts) not in met:
                    met.add((j, counts))
                    queue.append((j, counts))

    def _counted(self, counts: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The counts after one more token, of the types that are judged, up to one that is not."""
        n = min(counts[token] + 1, self.due.C + 1) if token in self.judged else 0
        return (*counts[:token], n, *counts[token + 1 :])

    def _leads(self, i: int, token: int, j: int) -> None:
        """One computed step leads from an ellipsoid to another, asked once."""
        if (i, token) not in self.followed:
            here, there = ((self.centres[k], self.shapes[k]) for k in (i, j))
            near = self.net.reading(token)
            leads(near, lambda box: self._rounding(near, box), here, there, i)
            self.followed.add((i, token))

    def _wins(self, i: int, token: int, right: int, margin: arb) -> None:
        """The right class has the margin after this token on boxes, or by the derivatives over one; asked once."""
        if (i, token, right) in self.won:
            return
        self.won.add((i, token, right))
        P, L, near = self.centres[i], self.shapes[i], self.net.reading(token)
        before = box_of(P, [[length_of(row) for row in L.tolist()]])
        if not (
            self._wins_by_slopes(P, L, near, before, right, margin) or self._wins_on_box(before, token, right, margin)
        ):
            what = f"sets_found: from {i} the token {token} is not shown to be answered by {right} with the margin"
            raise Refusal(what, NOT_CHECKABLE)

    def _rounding(self, near: StoredNetwork, box: Vector) -> Vector:
        """How far a computed step may be off: not at all in real arithmetic."""
        return [arb(0)] * near.size if self.fmt is EXACTLY else rounding_of_step(near, box, self.fmt)

    def _wins_on_box(self, before: Vector, token: int, right: int, margin: arb) -> bool:
        after = self.on.step([(exact(x.lower()), exact(x.upper())) for x in before], token)
        others = (j for j in range(len(self.net.b)) if j != right)
        return all(least_gap(self.on, after, right, j) >= exact(margin) > 0 for j in others)

    def _wins_by_slopes(
        self, P: Vector, L: arb_mat, near: StoredNetwork, before: Vector, right: int, margin: arb
    ) -> bool:
        after = step(near, on_ball(before, L.tolist(), P))
        assert after.slope is not None
        delta = self._rounding(near, before)
        box = [(v - e).union(v + e) for v, e in zip(after.value, delta, strict=True)]
        found = computed_gaps(
            self.net, self.fmt, after.centre, box, [arb_mat(after.slope)], right, "a string", is_ball=True
        )
        for j, (gap, reach) in found.items():
            rows = zip(self.net.V.tolist()[right], self.net.V.tolist()[j], delta[self.net.read :], strict=False)
            if not gap - reach - sum((abs(a - b) * e for a, b, e in rows), arb(0)) >= margin:
                return False
        return True
