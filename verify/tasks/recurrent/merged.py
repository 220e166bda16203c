"""A network on all strings, as a finite graph: states that mean the same and lie close together are one.

Strings over several tokens have infinitely many states, and where a network forgets how it came to a state, they gather
in a few small clouds. In floats, states are taken from the start on, shortest strings first; a state that lies near
an earlier one with the same counts and the same last token is taken for it. Every node gets an ellipsoid round its
state, so large that each step leads from it into the ellipsoid of the node that the step's state was taken for. Nothing
of this is trusted: the proof is the lemma of `chain` at every edge, from the state 0 on, and the margin of every node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from verify.arithmetic.margins import margins_of
from verify.arithmetic.norms import LOST
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.chain import Ellipsoids, Rules, derivative, excess, margins
from verify.tasks.recurrent.invariant import of_graph
from verify.tasks.recurrent.network import float_step
from verify.tasks.recurrent.search import jacobians, noise
from verify.tasks.recurrent.sets import Trained

NEAR = tuple(2.0**-k for k in range(2, 11))  # how near states are taken for one, relative to the largest of each number
MOST_NODES = 6000
MOST_NUMBERS = 256  # numbers in a state: beyond, one look takes longer than a budget
MOST_ENTRIES = 1 << 23  # of all ellipsoids' matrices
AT_A_TIME = 1 << 19  # entries of the matrices that are checked together
PASSES, ROUNDS, ROOM = 24, 8, 1.002
WIDEST = 2.0  # of an ellipsoid that is still worth its steps


@dataclass
class MergedStates:
    """Nodes with their states (n, N), counts and last token, -1 at the start; edges (from, token, to)."""

    states: list[Array]
    keys: list[tuple[tuple[int, ...], int]]
    depth: list[int]
    edges: list[tuple[int, int, int]] = field(default_factory=list)

    def string(self, node: int) -> tuple[int, ...]:
        """The tokens that lead to a node's state."""
        first = {j: (i, x) for i, x, j in reversed(self.edges)}
        tokens = []
        while node:
            node, token = first[node]
            tokens.append(token)
        return tuple(reversed(tokens))

    def saved(self, chain: Ellipsoids, K: int) -> list[dict[str, object]]:
        """The nodes' ellipsoids and edges for a certificate."""
        then = [[-1] * K for _ in self.states]
        for i, x, j in self.edges:
            then[i][x] = j
        return of_graph(chain, [*range(K)], then)


def graph(trained: Trained, near: float, most: int, until: Deadline) -> MergedStates | None:
    """The states that strings lead to, those within `near` of an earlier one left out; None where they are too many."""
    net = trained.net
    found = MergedStates([np.zeros(net.size)], [((0,) * trained.K, -1)], [0])
    same: dict[tuple[tuple[int, ...], int], Cloud] = {}
    scale, layer = np.full(net.size, 2.0**-6), [0]
    while layer:
        before = np.array([found.states[i] for i in layer])
        grown: list[int] = []
        for x in range(trained.K):
            after = float_step(net, before, x)
            scale = np.maximum(scale, np.abs(after).max(0))
            for i, state in zip(layer, after, strict=True):
                counts = trained.counted(found.keys[i][0], x)
                if trained.is_over(counts):
                    continue
                cloud = same.setdefault((counts, x), Cloud())
                j = cloud.near(state, scale, near)
                if j is None:
                    j = len(found.states)
                    found.states.append(state)
                    found.keys.append((counts, x))
                    found.depth.append(found.depth[i] + 1)
                    cloud.add(j, state)
                    grown.append(j)
                found.edges.append((i, x, j))
        layer = grown
        if len(found.states) > most or until.is_up() or not np.isfinite(scale).all():
            return None
    return found


@dataclass
class Cloud:
    """Nodes with the same counts and last token, and their states, the first of so many rows."""

    nodes: list[int] = field(default_factory=list)
    states: Array = field(default_factory=lambda: np.empty((0, 0)))

    def near(self, state: Array, scale: Array, near: float) -> int | None:
        """The nearest node, if it is within `near`."""
        if not self.nodes:
            return None
        off = (np.abs(self.states[: len(self.nodes)] - state) / scale).max(1)
        place = int(off.argmin())
        return self.nodes[place] if off[place] <= near else None

    def add(self, node: int, state: Array) -> None:
        n = len(self.nodes)
        if n == len(self.states):
            room = np.empty((2 * n + 4, len(state)))
            room[:n] = self.states if n else 0.0
            self.states = room
        self.states[n] = state
        self.nodes.append(node)


def closed(trained: Trained, until: Deadline) -> BlockProof | tuple[int, ...]:
    """Ellipsoids on a graph whose edges are all steps, over ever smaller distances at which states are one.

    A tuple is a string whose last answer is wrong in floats, which proves nothing.
    """
    if trained.net.size > MOST_NUMBERS:
        return BlockProof(None, f"its states have {trained.net.size} numbers, and are merged up to {MOST_NUMBERS}")
    reason = "its states lie in no few small clouds"
    for near in NEAR:
        found = graph(trained, near, min(MOST_NODES, MOST_ENTRIES // trained.net.size**2), until)
        if found is None or until.is_up():
            break
        wrong = _first_wrong(trained, found)
        if wrong is not None:
            return found.string(wrong)
        proof = _proof(trained, found, until)
        if proof.reason is None:
            return proof
        reason = proof.reason
    return BlockProof(None, reason)


def _judged(trained: Trained, found: MergedStates) -> tuple[np.ndarray, list[int]]:
    """The nodes whose answer is judged, and the right classes."""
    due = [trained.due(counts, token) if token >= 0 else None for counts, token in found.keys]
    return np.array([j for j, d in enumerate(due) if d is not None]), [d for d in due if d is not None]


def _first_wrong(trained: Trained, found: MergedStates) -> int | None:
    """The first node whose answer is wrong in floats."""
    judged, right = _judged(trained, found)
    logits = np.array(found.states)[judged][:, trained.net.read] @ trained.net.V.T + trained.net.b
    wrong = judged[~(margins_of(logits, np.array(right)) > 0)]
    return int(wrong[0]) if len(wrong) else None


def _proof(trained: Trained, found: MergedStates, until: Deadline) -> BlockProof:
    """The lemma at every edge, and the margins; where an edge just fails, its ellipsoid gets a little more room."""
    states, L = np.array(found.states), np.zeros((len(found.states), trained.net.size, trained.net.size))
    room = np.full(len(found.edges), ROOM)
    for _ in range(ROUNDS):
        grown = _shapes(trained, found, L, room, until)
        if grown is None:
            return BlockProof(None, "ellipsoids round its states grow too large")
        chain, L = Ellipsoids.of(states, grown), grown
        over = _excess(trained, found, chain)
        if until.is_up():
            break
        if (over <= 1).all():
            margin = _margin(trained, found, chain)
            if margin > 0:
                return BlockProof(margin, None, {"sets": len(states), "graphs": found.saved(chain, trained.K)})
            return BlockProof(None, "ellipsoids round its states do not separate the logits")
        room = np.where(over > 1, room * np.minimum(over, 2.0) * ROOM, room)
    return BlockProof(None, "ellipsoids round its states are not mapped into each other")


def _parts(edges: np.ndarray, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each token with places of edges (from, token, to) that read it, so many that their matrices are few enough."""
    for x in np.unique(edges[:, 1]):
        own = np.flatnonzero(edges[:, 1] == x)
        most = max(1, AT_A_TIME // size**2)
        for k in range(0, len(own), most):
            yield int(x), own[k : k + most]


def _excess(trained: Trained, found: MergedStates, chain: Ellipsoids) -> Array:
    """The lemma's left-hand side at every edge."""
    edges, rules = np.array(found.edges), Rules(trained.at)
    over = np.full(len(edges), np.inf)
    for x, own in _parts(edges, trained.net.size):
        here, there = chain[edges[own, 0]], chain[edges[own, 2]]
        over[own] = excess(trained.net, x, here, there, rules, is_joint=True)
    return np.where(np.isnan(over), np.inf, over)


def _margin(trained: Trained, found: MergedStates, chain: Ellipsoids) -> float:
    """The least margin of all nodes whose answer is judged."""
    judged, right = _judged(trained, found)
    return float(margins(trained.net, chain[judged], right, Rules(trained.at)).low.min())


def _shapes(trained: Trained, found: MergedStates, L: Array, room: Array, until: Deadline) -> Array | None:
    """The ellipsoids' matrices (n, N, N), those of each layer from the ones before; None where they grow too large."""
    net, states, edges = trained.net, np.array(found.states), np.array(found.edges)
    J, off = np.empty((len(edges), net.size, net.size)), np.empty((len(edges), net.size))
    for x, own in _parts(edges, net.size):
        J[own] = jacobians(net, x, states[edges[own, 0]])
        off[own] = float_step(net, states[edges[own, 0]], x) - states[edges[own, 2]]
    layers = _layers(found)
    image = np.full_like(J, np.nan)
    for number in range(PASSES):
        before, L, added = L, L.copy(), _added(trained, found, L)
        for layer, into in layers:
            image[layer] = hold_images(J[layer] @ L[edges[layer, 0]], added[layer], off[layer], room[layer])
            for j, ends in into:
                root = _root(join([image[e] for e in ends if not np.isnan(image[e, 0, 0])]))
                if root is None or not np.abs(root).max() < WIDEST:
                    return None
                L[j] = root
        if until.is_up():
            return None
        if number and np.abs(L - before).max() <= 1e-4 * np.abs(L).max():
            break
    return L


def _layers(found: MergedStates) -> list[tuple[np.ndarray, list[tuple[int, list[int]]]]]:
    """The edges from nodes of each depth, and what they lead to, with all edges that lead there."""
    depth = np.array([found.depth[i] for i, _, _ in found.edges])
    into: dict[int, list[int]] = {}
    for e, (_, _, j) in enumerate(found.edges):
        into.setdefault(j, []).append(e)
    layers = [np.flatnonzero(depth == d) for d in range(depth.max() + 1)]
    return [(layer, [(j, into[j]) for j in sorted({found.edges[e][2] for e in layer})]) for layer in layers]


def _added(trained: Trained, found: MergedStates, L: Array) -> Array:
    """About how far each step (edge) is from its derivative at the node, number by number, and what rounding adds."""
    net, rules, edges = trained.net, Rules(trained.at), np.array(found.edges)
    states, added = np.array(found.states), np.empty((len(edges), net.size))
    for x, own in _parts(edges, net.size):
        i = edges[own, 0]
        here = Ellipsoids.of(states[i], L[i])
        varied = np.sqrt((derivative(net, x, here).rad ** 2).sum(-1)) * here.scales[:, None]
        added[own] = noise(net, x, states[i], rules) / np.sqrt(net.size) + varied
    return added


def hold_images(moved: Array, added: Array, off: Array, room: Array) -> Array:
    """Q of ellipsoids round the later states that hold one step from each: (1 + q) J Q J^T + (1 + 1/q) D."""
    far = np.linalg.norm(off, axis=-1) + LOST
    whole = added.sum(-1) + far
    A = moved @ np.swapaxes(moved, -1, -2)
    D = np.eye(off.shape[-1]) * added[:, None, :] + off[:, :, None] * (off / far[:, None])[:, None, :]
    q = np.clip(whole / (np.sqrt(np.trace(A, axis1=-2, axis2=-1)) + LOST), 2.0**-40, 2.0**40)
    grown: Array = (1 + q)[:, None, None] * A + ((1 + 1 / q) * whole)[:, None, None] * D
    return grown * room[:, None, None] ** 2


def join(Qs: list[Array]) -> Array:
    """A matrix that is at least each of them."""
    whole = Qs[0]
    for Q in Qs[1:]:
        scale = max(np.trace(whole), np.trace(Q))
        root = np.linalg.cholesky(whole + 1e-13 * scale * np.eye(len(whole)))
        half = np.linalg.solve(root, Q)
        inner = np.linalg.solve(root, half.T)
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        outer = root @ vectors
        whole = (outer * np.maximum(values, 1.0)) @ outer.T
    return whole


def _root(Q: Array) -> Array | None:
    """A lower triangular matrix with square Q; None where there is none."""
    try:
        Q = (Q + Q.T) / 2
        root: Array = np.linalg.cholesky(Q + 1e-12 * np.eye(len(Q)) * np.trace(Q))
    except np.linalg.LinAlgError:
        return None
    return root if np.isfinite(root).all() else None
