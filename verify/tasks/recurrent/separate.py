"""Block invariants of any recurrent network whose units see one type each: the sets of states of a block at a time.

What a unit sees, it sees itself or through the units that its step reads. Where that is one type at most, the units of
a type and those that see none are a network of their own, with two tokens: this type, and any other. Its sets of
states, one for each count and last token, say where the whole network's state may be after any string.
"""

from __future__ import annotations

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.slack import Array
from verify.counting.tasks import Task
from verify.frame.clock import Deadline
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.network import Network, RecurrentLayer
from verify.tasks.recurrent.sets import ClosedSets, Trained, ends_of, last_token

OWN, OTHER = 0, 1  # the two tokens of a block

Ends = tuple[Array, Array]


def prove(net: Network, task: Task, at: RoundedArithmetic | None, until: Deadline) -> BlockProof:
    """A margin of every judged answer of every string, or why none is found; `at` is None for real arithmetic."""
    K, is_periodic = len(net.tokens), task.m is not None
    if len(net.layers) != 1 or K < 2 or not np.array_equal(net.tokens, np.eye(K)):
        return BlockProof(None, "no proof is known for a network of this shape")
    seen = seen_types(net)
    if (seen.sum(1) > 1).any():
        return BlockProof(None, "units see several types, and no other proof is known")
    found: list[ClosedSets] = []
    for i in range(K):
        block = last_token(Trained(_block(net, seen, i), task, at, is_periodic, types=1), until)
        if isinstance(block, str):
            return BlockProof(None, f"of the units of type {i} {block}")
        found.append(block)
    whole = Trained(net, task, at, is_periodic)
    cases = [(i, n) for i in range(K) for n in sorted({n for (n,), _ in found[i].cases})]
    due = [whole.due(tuple(n if k == i else 0 for k in range(K)), i) for i, n in cases]
    judged = [(i, n, c) for (i, n), c in zip(cases, due, strict=True) if c is not None and (n or is_periodic)]
    low, high = (np.stack(e) for e in zip(*(_state(net, seen, found, i, n) for i, n, _ in judged), strict=True))
    margin = float(whole.margins((low, high), np.array([c for *_, c in judged])).min())
    if not margin > 0:
        return BlockProof(None, "the blocks' sets do not separate the logits")
    return BlockProof(margin, None, {"sets": sum(len(block.cases) for block in found), **ends_of(found)})


def seen_types(net: Network) -> np.ndarray:
    """Which types each unit sees (H, K), through any number of steps."""
    layer, H = net.layers[0], net.hidden
    reads = (layer.W_h.reshape(-1, H, H) != 0).any(0) | np.eye(H, dtype=bool)
    seen: np.ndarray = (layer.W_x.reshape(-1, H, len(net.tokens)) != 0).any(0)
    while True:
        more = (reads.astype(float) @ seen.astype(float)) > 0
        if (more == seen).all():
            return seen
        seen = more


def _units(seen: np.ndarray, i: int) -> np.ndarray:
    """The units that see no type but i."""
    others = np.arange(seen.shape[1]) != i
    return np.flatnonzero(~seen[:, others].any(1))


def _block(net: Network, seen: np.ndarray, i: int) -> Network:
    """The units that see no type but i, as a network that reads a 1 at tokens of this type, and a 0 at others."""
    layer, own = net.layers[0], _units(seen, i)
    rows = np.concatenate([k * net.hidden + own for k in range(len(layer.W_h) // net.hidden)])
    parts = RecurrentLayer(layer.W_x[rows][:, [i]], layer.W_h[rows][:, own], layer.b_x[rows], layer.b_h[rows])
    tokens = np.array([[1.0], [0.0]])
    return Network(net.kind, net.activation, (parts,), tokens, net.V[:, own], net.b)


def _state(net: Network, seen: np.ndarray, found: list[ClosedSets], i: int, n: int) -> Ends:
    """The ends of the whole state after a token of type i that brought its count to n."""
    low, high = np.zeros(net.size), np.zeros(net.size)
    for k in (*(k for k in range(len(found)) if k != i), i):  # units that see no type are last as block i has them
        block, own = found[k], _units(seen, k)
        token, counts = (OWN, (n,)) if k == i else (OTHER, None)
        rows = [r for r, (c, w) in enumerate(block.cases) if w == (token,) and counts in (None, c)]
        places = np.concatenate([part * net.hidden + own for part in range(net.parts)])
        low[places], high[places] = block.low[rows].min(0), block.high[rows].max(0)
    return low, high
