"""Right answers that are written with torch operations: which ones occur on a product of token sets.

`expected` is traced on one input as a graph of ATen operations. On a cell each whole number of the graph may be one of
a set (`sets`), on a single input one number alone. A function that Python decides (`if`, `.tolist()`), an operation
that is not listed, or sets that grow too large have no chart: the function is asked input by input.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verify.engine.capture import given
from verify.engine.dependence import MOVES
from verify.module.automaton import Automaton, Chart, Mask, parts_by
from verify.module.sets import FOLDS, NotTraced, Sets, moved, pointwise

FEW_PARTS = 8  # into which a position's tokens are parted where none leaves one answer
SPLITS, SETTLED = 64, 0.05  # after so many splits so large a share of the inputs has one answer
CHECKED = 64  # inputs on which the graph is compared with the function itself
ROUNDED_ONCE = frozenset(  # operations on floats that give the same number however they are called
    f"aten.{name}"
    for name in (
        "add", "sub", "rsub", "mul", "div", "neg", "abs", "floor", "ceil", "trunc", "round", "where", "maximum",
        "minimum", "clamp", "clamp_min", "clamp_max", "eq", "ne", "lt", "le", "gt", "ge", "_to_copy", "remainder",
        "fmod",
    )
)  # fmt: skip
LIKE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")


def graph_of(expected: Callable[[Tensor], object], length: int) -> torch.fx.GraphModule:
    """The function on one input of some length, as operations without side effects.

    Raises: NotTraced.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(tokens: Tensor) -> Tensor:
        return torch.as_tensor(expected(tokens))

    before = logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            trace = make_fx(torch.func.functionalize(function), tracing_mode="fake", _allow_non_fake_inputs=True)
            found: torch.fx.GraphModule = trace(torch.zeros(1, length, dtype=torch.long))
            found.graph.eliminate_dead_code()
            return found
    except Exception as error:  # whatever the user's code raises
        raise NotTraced(str(error)) from None
    finally:
        logging.disable(before)


class Traced:
    """A function of tokens on the inputs of a product of token sets.

    Raises: NotTraced where its answers on cells are not known.
    """

    def __init__(self, expected: Callable[[Tensor], object], sets: Sequence[Sequence[int]]) -> None:
        self.sets = [torch.tensor(list(allowed)) for allowed in sets]
        self.expected, self.graph = expected, graph_of(expected, len(sets))
        self.values = torch.unique(torch.cat(self.sets))
        width = max(map(len, self.sets))
        whole = np.zeros((len(sets), width), dtype=bool)
        for place, allowed in enumerate(self.sets):
            whole[place, : len(allowed)] = True
        try:
            self._answers(whole[None])
            self._check(whole)
        except (RuntimeError, TypeError, IndexError, KeyError, ValueError, AttributeError) as error:
            raise NotTraced(str(error)) from None  # a graph that cannot be followed

    def function(self, tokens: Tensor) -> Tensor:
        """The right labels of inputs."""
        return torch.as_tensor(self.expected(tokens)).reshape(-1)

    @property
    def identity(self) -> bytes:
        """What answers depend on: the operations with what they are called with, and the tensors that they read."""
        called = [
            (str(node), node.op, str(node.target), str(node.args), str(node.kwargs)) for node in self.graph.graph.nodes
        ]
        read = [getattr(self.graph, node.target) for node in self.graph.graph.nodes if node.op == "get_attr"]
        return str((called, [(part.dtype, part.tolist()) for part in read])).encode()

    def _check(self, whole: Mask) -> None:
        """Compares some inputs, each a cell, with the function itself."""
        rng = np.random.default_rng(0)
        ranks = np.stack([rng.integers(len(allowed), size=CHECKED) for allowed in self.sets], 1)
        masks = np.zeros((CHECKED, *whole.shape), dtype=bool)
        np.put_along_axis(masks, ranks[..., None], True, -1)
        found = self._answers(masks)
        tokens = torch.stack([allowed[torch.from_numpy(ranks[:, i])] for i, allowed in enumerate(self.sets)], 1)
        try:
            right = self.function(tokens)
        except Exception as error:  # whatever the user's code raises
            raise NotTraced(str(error)) from None
        if right.shape != (CHECKED,) or bool((found.may.sum(-1) != 1).any()):
            raise NotTraced("several answers on one input")
        if not torch.equal(found.values[found.least], right.to(found.values.dtype)):
            raise NotTraced("another answer for one input than for many")

    def _answers(self, masks: NDArray[np.bool_]) -> Sets:
        """The labels that may occur on each of some cells: masks (cells, positions, ranks)."""
        may = torch.zeros(len(masks), 1, len(self.sets), len(self.values), dtype=torch.bool)
        for place, allowed in enumerate(self.sets):
            at = torch.searchsorted(self.values, allowed)
            may[:, 0, place, at] = torch.from_numpy(masks[:, place, : len(allowed)])
        found = Run(self.graph)(Sets(self.values, may))
        if found.values.is_floating_point() or found.may[0, ..., 0].numel() != 1:
            raise NotTraced("no whole number for each input")
        return Sets(found.values.long(), found.may.flatten(1, -2).any(1).expand(len(masks), -1))

    def answers(self, cell: Mask) -> list[int]:
        """The labels that may occur on a cell, a mask (positions, ranks in the position's set)."""
        found = self._answers(cell[None])
        return found.values[found.may[0]].tolist()

    def split(self, cell: Mask) -> tuple[int, list[Mask]]:
        """A position, and parts of its tokens after which few answers are left: masks over its ranks.

        The position at which the largest share of tokens leaves one answer, by that answer and the rest; where none
        does anywhere, the one whose halves have fewest answers, by what each token leaves, or in halves.
        """
        listed = [(place, rank) for place in np.flatnonzero(cell.sum(1) > 1) for rank in np.flatnonzero(cell[place])]
        places, ranks = np.array(listed).T
        alone = np.repeat(cell[None], len(listed), 0)
        rows = np.arange(len(listed))
        alone[rows, places] = False
        alone[rows, places, ranks] = True
        found = self._answers(alone).may.numpy()
        is_one = found.sum(1) == 1
        shares = {int(place): float(is_one[places == place].mean()) for place in dict.fromkeys(places.tolist())}
        chosen = max(shares, key=lambda place: (shares[place], -self._halves(cell, place) if not is_one.any() else 0))
        at = places == chosen
        keys = [
            row.tobytes() if one or not is_one.any() else b"" for row, one in zip(found[at], is_one[at], strict=True)
        ]
        if 1 < len(set(keys)) <= (FEW_PARTS if not is_one.any() else len(keys)):
            return chosen, parts_by(keys, ranks[at], cell.shape[1])
        return chosen, [half[chosen] for half in parts_in_two(cell, chosen)]

    def settles(self) -> bool:
        """Whether a few splits, of the largest cells first, leave one answer to some share of the inputs."""
        whole = np.zeros((len(self.sets), max(map(len, self.sets))), dtype=bool)
        for place, allowed in enumerate(self.sets):
            whole[place, : len(allowed)] = True
        left, settled = [whole], 0.0
        for _ in range(SPLITS):
            if not left:
                break
            cell = left.pop(int(np.argmax([sizes(part) for part in left])))
            place, masks = self.split(cell)
            for mask in masks:
                part = cell.copy()
                part[place] = mask
                if len(self.answers(part)) == 1:
                    settled += sizes(part)
                elif bool((part.sum(1) > 1).any()):
                    left.append(part)
        return settled >= SETTLED * sizes(whole)

    def _halves(self, cell: Mask, place: int) -> int:
        """How many answers the halves of a position's tokens have together."""
        return int(self._answers(np.stack(parts_in_two(cell, place))).may.sum())


def sizes(cell: Mask) -> float:
    """How many inputs a cell has, nearly."""
    return float(np.prod(cell.sum(1), dtype=np.float64))


def parts_in_two(cell: Mask, place: int) -> list[Mask]:
    """A cell with the lower and with the upper half of a position's tokens."""
    allowed = np.flatnonzero(cell[place])
    found = []
    for ranks in (allowed[: len(allowed) // 2], allowed[len(allowed) // 2 :]):
        part = cell.copy()
        part[place] = False
        part[place, ranks] = True
        found.append(part)
    return found


def chart_of(expected: Callable[[Tensor], object], sets: Sequence[Sequence[int]]) -> Chart | Traced | None:
    """What answers occur on cells: of an automaton, or of a function of torch operations; None for any other one.

    >>> chart = chart_of(lambda t: (t.amax(1) - t.amin(1)) % 3, [range(4)] * 3)
    >>> chart.answers(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0]], dtype=bool))
    [0, 1, 2]
    >>> chart_of(lambda t: torch.tensor([max(row) for row in t.tolist()]), [range(4)] * 3) is None
    True
    """
    if isinstance(expected, Automaton):
        return Chart(expected, sets)
    try:
        return Traced(expected, sets)
    except NotTraced:
        return None


class Run:
    """A graph on sets."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = module

    def __call__(self, tokens: Sets) -> Sets:
        found: dict[torch.fx.Node, object] = {}
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                found[node] = tokens
            elif node.op == "get_attr":
                found[node] = getattr(self.module, node.target)
            elif node.op == "output":
                result = found[node.args[0]]
                return Sets.exactly(result) if isinstance(result, Tensor) else cast(Sets, result)
            else:
                found[node] = self._call(node, *given(node, found))
        raise AssertionError("a graph without an output")

    def _call(self, node: torch.fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        name = str(node.target)
        if name == "<built-in function getitem>":
            return args[0][args[1]]
        base = name.split(".")[1] if name.startswith("aten.") else name
        operation: Callable[..., Tensor] = node.target  # type: ignore[assignment]
        if base in LIKE:
            return operation(torch.zeros_like(node.args[0].meta["val"], device="cpu"), *args[1:], **kwargs)  # type: ignore[union-attr]
        if not any(isinstance(x, Sets) for x in flat(args)):
            return operation(*args, **kwargs)
        if base in FOLDS:
            return FOLDS[base](node, *args, **kwargs)
        if name in MOVES and base != "_to_copy":
            return moved(operation, *args, **kwargs)
        is_pointwise = torch.Tag.pointwise in getattr(operation, "tags", ()) or base in ("_to_copy", "floor_divide")
        is_float = any(value.dtype.is_floating_point for value in values_of(node))
        if not is_pointwise or is_float and f"aten.{base}" not in ROUNDED_ONCE:
            raise NotTraced(name)
        return pointwise(operation, args, kwargs)


def flat(args: Iterable[object]) -> list[object]:
    return [part for x in args for part in (x if isinstance(x, list | tuple) else [x])]


def values_of(node: torch.fx.Node) -> list[Tensor]:
    """Stand-ins for what an operation reads and gives."""
    nodes = [node, *node.all_input_nodes]
    return [n.meta["val"] for n in nodes if isinstance(n.meta.get("val"), Tensor)]
