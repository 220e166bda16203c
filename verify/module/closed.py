"""Sets of states that every token of a recurrent cell maps into each other: a proof for all strings of all lengths.

Strings are run in floats, and states that lie close together are taken for one where the automaton's states are the
same: where that ends, a finite graph stands for all strings. Round each node P_v lies an ellipsoid
X_v = {P_v + s_v L_v e : |e| <= 1}; floats find the matrices L_v and sizes s_v, and a proof does not trust them.

Lemma. Let y be the step's output for the midpoint P_u, and let it differ from that by G (x - P_u) and at most e for all
x of the box round X_u (`StepGraph.slopes`). Let |I - M L_v| <= beta < 1. If

    |M (y - P_v + [-e, e])| + s_u |M G L_u| <= (1 - beta) s_v      (l2 norms)

then the step maps X_u into X_v. Proof: as that of `verify.tasks.recurrent.chain`, L_v^-1 = (M L_v)^-1 M. So all strings
end in the set of their node, by induction over their tokens. A gap of two logits is right on X_u by at least its value
at P_u, less s_u |g L_u| and the error, g the row of slopes.

One token: only the cycle in which the graph ends has sets, as large as the lemma allows. The tokens before are followed
as points in balls of many bits, until a state lies in the set of its place on the cycle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.balls import Ball
from verify.arithmetic.margins import margins_of
from verify.arithmetic.norms import LOST, frobenius, length, spectral_norm
from verify.arithmetic.slack import ENLARGE, Array, gamma
from verify.frame.clock import Deadline
from verify.module.followed import LONGEST, Tokens, one_token
from verify.module.recurrence import Precise, StepGraph

NEAR_OF_ONE = tuple(2.0**-k for k in (14, 20, 30, 8))  # states closer than this are one, relative to their size
NEAR_OF_MANY = tuple(2.0**-k for k in (3, 5, 7, 9, 12, 16, 24))  # few states for strings that grow in number
MOST_NODES, MOST_NUMBERS = 4096, 1 << 22
RATES = (0.25, 0.6, 0.9, 0.98, 0.998)  # of squares, by which a step may stretch the ellipsoids
TURNS, LARGEST = 600, 1e18
ROUNDS, HOPELESS, AT_A_TIME = 5, 4.0, 128  # tries to let ellipsoids grow, by less than this factor each
PATIENCE = 4096  # rounds in which the sizes round a short cycle settle
FLOOR = 2.0**-30  # the least size of an ellipsoid
MOST_DOUBLINGS, NEWTON = 40, 3  # of the sizes of sets round a cycle, and its rounds there
TINY = 2.0**-40  # a box so narrow that slopes on it are those of its middle
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Nodes:
    """States (V, size) with the automaton's, a string that leads there, and the edges between them under each token."""

    states: Array
    places: list[Hashable]
    strings: list[Tokens]
    source: Whole
    token: Whole
    target: Whole


@dataclass(frozen=True)
class Closed:
    """All strings are right by the margin, which `tightest` comes nearest to; so many sets and steps show it.

    The sets are s_v L_v: `shapes` (V, size, size) and `sizes` (V,).
    """

    margin: float
    tightest: Tokens
    shapes: Array
    sizes: Array
    steps: int

    @property
    def sets(self) -> int:
        return len(self.sizes)


def closed(graph: StepGraph, until: Deadline) -> Closed | str:
    """Sets that are mapped into each other and right, or why none are shown to be."""
    reason, is_line = "no finite number of states stands for all strings", len(graph.task.vocabulary) == 1
    for near in NEAR_OF_ONE if is_line else NEAR_OF_MANY:
        nodes = explored(graph, near, until)
        if isinstance(nodes, str):
            return nodes
        if nodes is None and is_line and not until.is_up():
            continue
        if nodes is None:
            break
        has_before = is_line and graph.has_digits and nodes.target[-1] > 0  # else the start is the middle of its set
        nodes = cycle_of(graph, nodes) if has_before else nodes
        reason = f"the sets round {len(nodes.states)} states are not shown to be mapped into each other"
        for proof in _proofs(graph, nodes, until):
            found = _entered(graph, nodes, proof, until) if has_before and isinstance(proof, Closed) else proof
            if isinstance(found, Closed):
                return found
            reason = found
        if until.is_up():
            break
    return reason


def explored(graph: StepGraph, near: float, until: Deadline) -> Nodes | str | None:
    """The float states of all strings, those that lie closer taken for one; None where they are too many.

    A string that is wrong in floats ends it: no sets are right.
    """
    task = graph.task
    most = min(MOST_NODES, MOST_NUMBERS // graph.size**2)
    states, places = [graph.first], [task.expected.start]
    strings: list[Tokens] = [()]
    of_place: dict[object, list[int]] = {task.expected.start: [0]}
    edges: list[tuple[int, int, int]] = []
    frontier = [0]
    while frontier:
        K, n = len(task.vocabulary), len(frontier)
        mids = np.tile(np.array([states[u] for u in frontier]), (K, 1))
        tokens = np.repeat(task.vocabulary, n).tolist()
        out, _ = graph.enclosed(mids, np.zeros_like(mids), tokens)
        grown = []
        for row, token in enumerate(tokens):
            u, x = frontier[row % n], out[row, : graph.size]
            place = task.expected.after(places[u], token)
            known = of_place.setdefault(place, [])
            due = task.due(place, graph.classes)
            if not np.isfinite(x).all() or due is not None and not margins_of(out[row, graph.size :], due) > 0:
                return f"a run in floats is wrong after {len(strings[u]) + 1} tokens"
            v = _nearest(x, states, known, near)
            if v is None:
                v = len(states)
                states.append(x)
                places.append(place)
                strings.append((*strings[u], token))
                known.append(v)
                grown.append(v)
            edges.append((u, token, v))
        if len(states) > most or until.is_up():
            return None
        frontier = grown
    source, token_, target = (np.array(column, dtype=np.int64) for column in zip(*edges, strict=True))
    return Nodes(np.array(states), places, strings, source, token_, target)


def cycle_of(graph: StepGraph, nodes: Nodes) -> Nodes:
    """The states of one token that come again, brought nearer to a cycle by Newton's method."""
    first = int(nodes.target[-1])
    found = Nodes(
        nodes.states[first:], nodes.places[first:], nodes.strings[first:], nodes.source[first:] - first,
        nodes.token[first:], nodes.target[first:] - first,
    )  # fmt: skip
    for _ in range(NEWTON):
        y, J = _steps(graph, found)
        off = y[:, : graph.size] - found.states[found.target]
        whole, moved = np.eye(graph.size), np.zeros(graph.size)  # of a turn, as the first state is moved, and if not
        for slope, r in zip(J, off, strict=True):
            whole, moved = slope @ whole, slope @ moved + r
        try:
            more = [np.linalg.solve(np.eye(graph.size) - whole, moved)]
        except np.linalg.LinAlgError:
            return found
        for slope, r in zip(J[:-1], off[:-1], strict=True):
            more.append(slope @ more[-1] + r)
        found = replace(found, states=found.states + np.array(more))
    return found


def _steps(graph: StepGraph, nodes: Nodes) -> tuple[Array, Array]:
    """What follows on each edge's source, and its slopes there, in floats."""
    E, S = len(nodes.source), graph.size
    unit = np.broadcast_to(np.eye(S, S + graph.classes), (E, S, S + graph.classes)).copy()
    y, J, _, _ = graph.slopes(nodes.states[nodes.source], np.full((E, S), TINY), nodes.token.tolist(), unit)
    return y, J


def _largest(graph: StepGraph, nodes: Nodes, proof: Closed, until: Deadline) -> Closed:
    """The proof with sets as large as doubling leaves them a proof."""
    for _ in range(MOST_DOUBLINGS):
        larger = _checked(graph, nodes, proof.shapes, 2 * proof.sizes)
        if not isinstance(larger, Closed) or until.is_up():
            break
        proof = larger
    return proof


def _entered(graph: StepGraph, nodes: Nodes, proof: Closed, until: Deadline) -> Closed | str:
    """The proof with the tokens before its cycle, or why the orbit is not shown to enter it."""
    proof = _largest(graph, nodes, proof, until)
    begin, k = len(nodes.strings[0]), len(nodes.states)
    M, beta = _inverse(proof.shapes)

    def is_in(t: int, state: Precise) -> bool:
        v = (t - begin) % k
        off = Ball.around(state) - Ball.exact(nodes.states[v])
        least = float(length((Ball.exact(M[v]) @ off[:, None])[:, 0])) * ENLARGE
        return t >= begin and bool(beta[v] < 0.5) and least / (1 - float(beta[v])) * ENLARGE <= proof.sizes[v]

    before = one_token(graph, LONGEST, until, is_in)
    if not before.has_entered:
        why = before.stuck or f"the answer after {before.right_to + 1} tokens is wrong"
        return f"the sets round its cycle of {k} states are not shown to be entered: {why}"
    is_less = before.margin < proof.margin
    return replace(proof, margin=before.margin, tightest=before.tightest) if is_less else proof


def _nearest(x: Array, states: list[Array], known: list[int], near: float) -> int | None:
    if not known:
        return None
    apart = np.abs(np.array([states[v] for v in known]) - x).max(1)
    best = int(apart.argmin())
    return known[best] if apart[best] <= near * max(1.0, float(np.abs(x).max())) else None


def _proofs(graph: StepGraph, nodes: Nodes, until: Deadline) -> Iterator[Closed | str]:
    """Ellipsoids of one rate after another, with sizes that grow until the lemma holds at every edge."""
    y, J = _steps(graph, nodes)
    if not (np.isfinite(y).all() and np.isfinite(J).all()):
        yield "the slopes of a step are not bounded"
        return
    for rate in RATES:
        L = _shapes(nodes, J, rate, until)
        if until.is_up():
            return
        if L is None:
            continue
        sizes = _sizes(nodes, y[:, : graph.size], J, L, rate)
        if sizes is None:
            continue
        for _ in range(ROUNDS):
            found = _checked(graph, nodes, L, sizes)
            if isinstance(found, Closed | str):
                yield found
                break
            if not (found <= HOPELESS * sizes).all() or until.is_up():
                break
            sizes = np.maximum(sizes, found * (1 + 2.0**-4))


def _shapes(nodes: Nodes, J: Array, rate: float, until: Deadline) -> Array | None:
    """L_v with L_v L_v^T at least J L_u L_u^T J^T / rate for each edge u -> v: then |L_v^-1 J L_u|^2 <= rate in floats.

    W = L L^T is I + the sum of J W J^T / rate over the edges into v, iterated; None where that grows without bound.
    """
    V, S = nodes.states.shape
    W = np.broadcast_to(np.eye(S), (V, S, S)).copy()
    for _ in range(TURNS):
        moved = J @ W[nodes.source] @ np.swapaxes(J, 1, 2) / rate
        after = np.broadcast_to(np.eye(S), (V, S, S)).copy()
        np.add.at(after, nodes.target, moved)
        if not np.abs(after).max() < LARGEST or until.is_up():
            return None
        is_still = np.abs(after - W).max() <= 2.0**-10 * np.abs(after).max()
        W = after
        if is_still:
            break
    else:
        return None
    try:
        return np.asarray(np.linalg.cholesky((W + np.swapaxes(W, 1, 2)) / 2), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def _sizes(nodes: Nodes, y: Array, J: Array, L: Array, rate: float) -> Array | None:
    """s_v a little larger than what the lemma asks for without curvature, in floats; None where they grow."""
    inverse = np.linalg.inv(L)[nodes.target]
    stretch = np.linalg.norm(inverse @ J @ L[nodes.source], 2, axis=(1, 2))
    apart = np.linalg.norm((inverse @ (y - nodes.states[nodes.target])[..., None])[..., 0], axis=1)
    more = 1 + (1 - rate**0.5) / 4
    sizes = np.full(len(nodes.states), FLOOR)
    for _ in range(max(PATIENCE, 100 * len(sizes))):
        asked = np.full(len(sizes), FLOOR)
        np.maximum.at(asked, nodes.target, (apart + stretch * sizes[nodes.source]) * more + FLOOR)
        if not (asked < LARGEST).all():
            return None
        if (asked <= sizes * (1 + 2.0**-20)).all():
            return np.asarray(np.maximum(sizes, asked))
        sizes = np.maximum(sizes, asked)
    return None


def _checked(graph: StepGraph, nodes: Nodes, L: Array, sizes: Array) -> Closed | Array | str:
    """The proof, or the sizes (V,) that the lemma asks for, or that logits are not separated."""
    asked, low = _asked(graph, nodes, L, sizes)
    if not (asked <= sizes).all():
        return asked
    tightest = int(low.argmin())
    if not low[tightest] > 0:
        return f"{len(sizes)} sets of states are mapped into each other, and do not separate the logits"
    return Closed(float(low[tightest]), _string(nodes, tightest), L, sizes, len(nodes.source))


def _asked(graph: StepGraph, nodes: Nodes, L: Array, sizes: Array) -> tuple[Array, Array]:
    """The sizes (V,) that the lemma asks for, and lower bounds (E,) on the margin over each edge's source."""
    S, task = graph.size, graph.task
    M, beta = _inverse(L)
    rows = np.sqrt((L**2).sum(-1)) * (1 + gamma(S + 8)) + LOST
    width = (rows * sizes[:, None] * ENLARGE + LOST) * ENLARGE
    right = [task.due(place, graph.classes) for place in nodes.places]
    asked, lows = np.zeros(len(sizes)), list[Array]()
    for start in range(0, len(nodes.source), AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        u, v, tokens = nodes.source[part], nodes.target[part], nodes.token[part].tolist()
        due = [right[i] for i in v]
        y, G, radius, error = graph.slopes(nodes.states[u], width[u], tokens, _seeds(S, graph.classes, due))
        slopes = Ball(G, radius) @ Ball.exact(L[u])
        stretch = spectral_norm(Ball.exact(M[v]) @ slopes[:, :S])
        off = Ball(y[:, :S], error[:, :S]) - Ball.exact(nodes.states[v])
        moved = length((Ball.exact(M[v]) @ off[..., None])[..., 0])
        least = (moved + stretch * sizes[u] * ENLARGE) * ENLARGE
        least = np.where(beta[v] < 0.5, least / (1 - beta[v]) * ENLARGE, np.inf)
        np.maximum.at(asked, v, np.where(np.isnan(least), np.inf, least))
        lows.append(_gaps(y[:, S:], slopes[:, S:], error[:, S:], sizes[u], due))
    return asked, np.concatenate(lows)


def _inverse(L: Array) -> tuple[Array, Array]:
    """M close to L^-1, and beta (V,) with |I - M L| <= beta."""
    M = np.asarray(np.linalg.inv(L), dtype=np.float64)
    return M, frobenius(Ball.exact(np.eye(L.shape[-1])) - Ball.exact(M) @ Ball.exact(L))


def _string(nodes: Nodes, edge: int) -> Tokens:
    """A string whose last token is that of an edge."""
    return (*nodes.strings[nodes.source[edge]], int(nodes.token[edge]))


def _seeds(S: int, C: int, due: list[int | None]) -> Array:
    """Rows of the next state, and then of the right logit less each other: (edges, S + C, S + C)."""
    seeds = np.broadcast_to(np.eye(S + C), (len(due), S + C, S + C)).copy()
    seeds[:, S:, S:] *= -1
    for i, right in enumerate(due):
        if right is None:
            seeds[i, S:] = 0.0
        else:
            seeds[i, S:, S + right] += 1.0
    return seeds


def _gaps(logits: Array, slopes: Ball, error: Array, sizes: Array, due: list[int | None]) -> Array:
    """A lower bound on the least gap of each edge, infinite where none is judged; NaN is none."""
    right = np.array([r or 0 for r in due])
    rows = np.arange(len(right))
    value = Ball.exact(logits[rows, right][:, None]) - Ball.exact(logits)
    reach = (length(slopes) * sizes[:, None] * ENLARGE + error + LOST) * ENLARGE
    low = np.nextafter(value.lower - reach, -np.inf)
    low = np.where(np.isnan(low), -np.inf, low)
    low[rows, right] = np.inf
    return np.where([r is None for r in due], np.inf, low.min(1))
