"""A graph run on balls: the module called on one input, for many inputs at once."""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE
from verify.engine.balls import Arithmetic, Ball, Computed, Unsure, Whole
from verify.engine.capture import CREATING, Graph, computed_in, constant, given, is_exact_constant
from verify.engine.dtypes import ANY, cast, is_float, truth
from verify.engine.rules import RULES, cover_of
from verify.engine.rules.movement import MOVES, record_move

ENTRIES_AT_ONCE = 2**22
Finished = TypeVar("Finished", bound=tuple[Tensor, ...])


def evaluate(graph: Graph, stored: Mapping[str, object], tokens: Tensor, at: Arithmetic) -> Ball:
    """The module's output on one input (length,), enclosed; `stored` as `enclosed_weights` makes it."""
    values: dict[torch.fx.Node, object] = {}
    asserted: list[Tensor] = []
    last_use = _last_uses(graph)
    for node in graph.program.nodes:
        if node.op == "placeholder":
            values[node] = stored[node.name] if node.name in stored else tokens.unsqueeze(0)
        elif node.op == "output":
            return where_all_hold(at, typing.cast(Ball, values[node.all_input_nodes[-1]]), asserted)
        elif condition(node) is not None:
            asserted.append(holds(node, values))
            if not is_assertion(node):
                values[node] = call(node, values, at, tokens.device)
        else:
            values[node] = call(node, values, at, tokens.device)
        for done in last_use.get(node, ()):
            del values[done]
    raise AssertionError("a graph without an output")


def is_assertion(node: torch.fx.Node) -> bool:
    """Whether a node makes the module fail where a truth value is false."""
    return str(node.target).startswith("aten._assert_async")


def condition(node: torch.fx.Node) -> torch.fx.Node | None:
    """What the module fails without: a truth value that is asserted, or the computed rows of an embedding."""
    if is_assertion(node):
        return node.args[0]  # type: ignore[return-value]
    is_computed = str(node.target) == "aten.embedding.default" and node.args[1].op != "placeholder"  # type: ignore[union-attr]
    return node.args[1] if is_computed else None  # type: ignore[return-value]


def holds(node: torch.fx.Node, values: Mapping[torch.fx.Node, object]) -> Tensor:
    """Whether the module surely does not fail at a node with a condition: true, or rows of 0 or more."""
    where = condition(node)
    assert where is not None
    if is_assertion(node):
        found = truth(Arithmetic(), typing.cast(Computed, values[where]))
        held = found.value & found.known
    else:
        held = typing.cast(Tensor, values[where]) >= 0
    return held.all()


def where_all_hold(at: Arithmetic, x: Ball, conditions: list[Tensor]) -> Ball:
    """The ball, of no number where a condition may be false."""
    if not conditions:
        return x
    none = torch.where(torch.stack(conditions).all(), 0.0, torch.nan).to(x.mid.dtype)
    out = Ball(x.mid, x.radius + none, x.norm, x.infinite)
    return at.record(out, (x,), none.expand(x.mid.shape), lambda slope: (slope,), is_same=True)


def call(node: torch.fx.Node, values: Mapping[torch.fx.Node, object], at: Arithmetic, device: torch.device) -> object:
    """One operation on the values before it."""
    args, kwargs = given(node, values)
    if node.target is operator.getitem:
        return args[0][args[1]]
    name = str(node.target)
    if name.startswith("aten._assert"):
        return None
    if name in CREATING:
        return created(node, args, kwargs, at, device)
    dtype, value = computed_in(node), node.meta["val"]
    if isinstance(value, Tensor) and not is_float(value.dtype) and is_exact_constant(node):
        return constant(node).to(device)
    inputs = [values[n] for n in node.all_input_nodes]
    if not is_float(dtype) and all(isinstance(value, Tensor) for value in inputs):
        return plain(node, args, kwargs, device)
    return covered(node, name, at, args, _without_options(kwargs))


def covered(
    node: torch.fx.Node, name: str, at: Arithmetic, args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """An operation by its rule in the dtype in which torch computes it, its arguments cast to that before."""
    dtype = computed_in(node)
    cover = cover_of(name, dtype)
    assert cover is not None and dtype is not None, f"{name} on {dtype}: refused at capture"
    rule = cover.rule if cover.is_of_intervals else RULES[name]
    if cover.dtypes is ANY:  # the truth of numbers of any dtype
        return cast(at, rule(at, *args, **kwargs), node.meta["val"].dtype)
    args = [x if i in cover.aside else cast_all(at, x, dtype) for i, x in enumerate(args)]
    told = {"dtype": dtype} if cover.is_of_intervals or name == "aten._to_copy.default" else {}
    out = rule(at, *args, **kwargs, **told)
    if at.tape is not None and rule in MOVES:
        record_move(at, rule, args, kwargs, out)
    return out


def cast_all(at: Arithmetic, x: object, dtype: torch.dtype) -> object:
    """An argument cast to a dtype, each tensor of a list; Python's numbers stay as they are."""
    if isinstance(x, list | tuple):
        return [cast_all(at, part, dtype) for part in x]
    return cast(at, x, dtype) if isinstance(x, Ball | Tensor | Unsure | Whole) else x


def plain(node: torch.fx.Node, args: Sequence[object], kwargs: Mapping[str, object], device: torch.device) -> object:
    """An operation on whole numbers or truth values, as torch computes it."""
    name = str(node.target)
    if name in ("aten.view.default", "aten._unsafe_view.default"):
        return typing.cast(Tensor, args[0]).reshape(typing.cast(list[int], args[1]))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": device}
    return node.target(*args, **kwargs)  # type: ignore[operator]


def created(
    node: torch.fx.Node, args: Sequence[object], kwargs: Mapping[str, object], at: Arithmetic, device: torch.device
) -> object:
    """A constant tensor in the module's own dtype: a ball where it holds floats."""
    shaped = [a.meta["val"].shape if isinstance(a, torch.fx.Node) else None for a in node.args]
    args = [a if shape is None else torch.zeros(shape, device=device) for a, shape in zip(args, shaped, strict=True)]
    value = node.meta["val"]
    kwargs = {**kwargs, "dtype": value.dtype}
    if "device" in kwargs:
        kwargs["device"] = device
    made = node.target(*args, **kwargs)  # type: ignore[operator]
    return at.tensor(made) if made.is_floating_point() else made


OPTIONS = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit")


def _without_options(kwargs: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in kwargs.items() if name not in OPTIONS}


def _last_uses(graph: Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    last: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.program.nodes:
        for before in node.all_input_nodes:
            last[before] = node
    uses: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node, user in last.items():
        if user.op != "output":
            uses.setdefault(user, []).append(node)
    return uses


def enclosed_weights(graph: Graph, at: Arithmetic, device: torch.device | str = "cpu") -> dict[str, Ball | Tensor]:
    """The stored tensors as the arithmetic reads them: whole numbers as they are, floats as balls."""
    assert at.is_real or not graph.around, "a dtype rounds what has moved once more"
    return {
        name: moved(at.tensor(value.to(device)), graph.around.get(name))
        if value.is_floating_point()
        else value.to(device)
        for name, value in graph.stored.items()
    }


def moved(stored: Ball, around: Tensor | None) -> Ball:
    """A stored tensor whose numbers may each be so far from where they are."""
    if around is None:
        return stored
    return Ball(stored.mid, (stored.radius + around.to(stored.mid.device)) * ENLARGE, infinite=stored.infinite)


def enclose(
    graph: Graph, at: Arithmetic, finish: Callable[[Ball, Tensor, Tensor], Finished], device: torch.device | str = "cpu"
) -> Callable[[Tensor, Tensor], Finished]:
    """A function of tokens (N, length) and answers (N, ...) that runs each input and finishes its output.

    The graph is interpreted under vmap: no row can depend on another.
    """
    stored = enclosed_weights(graph, at, device)

    def one(tokens: Tensor, answers: Tensor) -> Finished:
        return finish(evaluate(graph, stored, tokens, at), tokens, answers)

    many = torch.vmap(one)
    at_once = max(1, min(16384, ENTRIES_AT_ONCE // graph.widest))

    def run(tokens: Tensor, answers: Tensor) -> Finished:
        with torch.no_grad():
            parts = [
                many(*part) for part in zip(torch.split(tokens, at_once), torch.split(answers, at_once), strict=True)
            ]
        return typing.cast(Finished, tuple(torch.cat(column) for column in zip(*parts, strict=True)))

    return run
