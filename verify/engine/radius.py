"""One radius for a whole domain: how far a run is from real arithmetic, on any input of a product of token sets.

The mean value form (`mean_value`) bounds the difference of two evaluations of a graph whose numbers lie in given balls.
Here the balls are hulls over the whole domain, and the two evaluations are of the same input: a run in a format, sums
in any order, and the exact one. So a number that is a function of one position's token is taken from a table, of all
its tokens, and is off by what its ball says there; every other operation adds its own rounding, times the slopes of
what follows, which are enclosed over the hulls. The result is one number for each logit.

LayerNorm has no slope over a hull in which its vectors may be constant. There the radius is one for the inputs on which
sqrt(variance + eps) is large enough, which the run itself says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, U
from verify.engine.balls import Arithmetic, Ball, Norm, Step, length
from verify.engine.capture import Graph, given
from verify.engine.margins import Question
from verify.engine.mean_value import difference
from verify.engine.rules.normalisation import deviation, layer_norm
from verify.engine.run import call, enclosed_weights
from verify.engine.tables import NoRadius, Tabled, Tables

MOST_ENTRIES = 2**26  # numbers of all slopes that are followed at once
MOST_SLOPES = 4096  # outputs whose slopes are followed
Hulled = Ball | Tensor | list["Hulled"]
Floors = Mapping[torch.fx.Node, float]


def radii(
    graph: Graph,
    question: Question,
    tables: Tables,
    fmt: Format,
    accumulate: Format | None,
    floors: Floors,
    found: list[Tabled],
) -> tuple[Tensor, dict[torch.fx.Node, float]]:
    """Bounds, for each answer position and class, |logit of a run - logit in real arithmetic|.

    The bounds hold for inputs on which sqrt(variance + eps) of every vector of a LayerNorm, in one of the two
    evaluations, is at least what `floors` say, or is computed so by float64; what it then is at least in both is
    returned besides.
    `found` are the tables' balls.
    Raises: NoRadius.
    """
    at = Arithmetic(fmt, accumulate, has_norms=True, tape=[])
    assert at.tape is not None
    stored, tabled = enclosed_weights(graph, at), dict(zip(tables.frontier, found, strict=True))
    values: dict[torch.fx.Node, object] = {}
    both: dict[torch.fx.Node, float] = {}
    for node in graph.program.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            values[node] = stored.get(node.name, torch.zeros(1, graph.length, dtype=torch.long))
        elif node in tabled:
            values[node] = _hulls(tabled[node], at)
        elif node in tables.tabled:
            continue
        elif node in tables.norms:
            args, _ = given(node, values)
            floor = least_deviation(floors[node], args[0])
            both[node] = max(0.0, (floor - _apart(at.tape, args[0], graph)) * (1 - 8 * U))
            values[node] = layer_norm(at, *args, least=both[node])
        else:
            values[node] = call(node, values, at, torch.device("cpu"))
    output = cast(Ball, values[node.all_input_nodes[-1]])
    every = torch.arange(output.mid.numel(), dtype=torch.float64).reshape(output.mid.shape)
    places = question.logits(Ball(every)).mid
    return _differences(at.tape, output, places.reshape(-1), graph).reshape(places.shape), both


def _differences(tape: list[Step], output: Ball, places: Tensor, graph: Graph) -> Tensor:
    """How far each of some numbers of a step's result, counted through, differ between two evaluations."""
    if len(places) > MOST_SLOPES:
        raise NoRadius(f"{len(places)} numbers are asked for")
    every = torch.arange(output.mid.numel(), dtype=torch.float64).reshape(output.mid.shape)

    def one(place: Tensor) -> Tensor:
        return difference(tape, output, (every == place).double(), apart=2.0)

    at_once = max(1, MOST_ENTRIES // (16 * graph.widest))
    with torch.no_grad():
        found: Tensor = torch.vmap(one, chunk_size=at_once)(places)
    return found


def _apart(tape: list[Step], x: Ball, graph: Graph) -> float:
    """How far sqrt(variance + eps) of any vector differs between two evaluations: it is 1/sqrt(d)-Lipschitz."""
    off = _differences(tape, x, torch.arange(x.mid.numel(), dtype=torch.float64), graph).reshape(x.mid.shape)
    root = math.sqrt(x.mid.shape[-1])
    most = float((length(off) / root).amax()) * ENLARGE
    return most if most == most else math.inf


def least_deviation(computed: float, x: Ball) -> float:
    """Less than sqrt(variance + eps) of a vector of x, where a run in float64 has computed at least so much for it."""
    at, d, size = Arithmetic(FORMATS["float64"]), x.mid.shape[-1], float(x.size.amax())
    square = torch.tensor(computed * computed, dtype=torch.float64)
    off = at.off_in_variance(d) * size * size + at.lost_in_sums(4 * d) + 32 * U * square
    least = float(deviation(square, off * ENLARGE, 0.0)[1])
    return least if least > 0 else 0.0


def _hulls(found: Tabled, at: Arithmetic) -> Hulled:
    """The hulls of tables (ranks, ...) over the ranks; whole numbers where all ranks have the same."""
    if isinstance(found, list):
        return [_hulls(part, at) for part in found]
    if isinstance(found, dict):
        return hull(found["mid"], found["rad"], at)
    if not bool((found == found[:1]).all()):
        raise NoRadius("whole numbers or truth values depend on tokens")
    return found[0]


def hull(mid: Tensor, rad: Tensor, at: Arithmetic) -> Ball:
    """The hull of balls over their first axis: one step, off by twice the largest radius between two evaluations."""
    low, high = (mid - rad).amin(0), (mid + rad).amax(0)
    middle = (low + high) / 2
    far = torch.maximum((mid - middle + rad).amax(0), (middle - mid + rad).amax(0)) * ENLARGE + LOST
    norm = Norm(length((mid - middle).abs() + rad).amax(0) * ENLARGE) if middle.ndim else None
    return at.record(Ball(middle, far, norm), (), 2 * rad.amax(0) * ENLARGE + LOST, lambda slope: ())
