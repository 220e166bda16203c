"""What a certificate about a module carries for `verify check`: its graphs, the inputs and the right answers."""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from verify.engine.capture import Graph
from verify.frame.certificate import Certificate
from verify.module.automaton import largest, smallest, sum_modulo
from verify.module.inputs import Product
from verify.module.problem import ModuleProblem
from verify.module.recurrence import StepGraph
from verify.module.recurrent import RecurrentProblem

MOST_INPUTS = 1 << 18
MOST_STATES = 1 << 16  # of an automaton
TOO_MANY: dict[str, object] = {
    "reason": f"more than {MOST_INPUTS} inputs that are no product of token sets with a rule that has a name"
}
RULES: dict[str, Callable[[Tensor], Tensor]] = {"largest token": largest, "smallest token": smallest}
NOWHERE = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")  # what no number depends on


def program(problem: ModuleProblem) -> dict[str, object]:
    """The statement about a module in full, as JSON: what is run, on which inputs, and which class is right.

    Tensors of the state dict are named; those that are not in it are written out.
    """
    given = problem.given
    is_large = sum(part.candidates for part in given.inputs.parts) > MOST_INPUTS
    if is_large and not _is_by_cells(problem):
        return TOO_MANY
    stored = problem.module.state_dict()
    parts = []
    for part in given.inputs.parts:
        is_product = isinstance(part, Product) and part.where is None
        if is_product and isinstance(part, Product):
            inputs = {"sets": [*map(list, part.sets)]}
        else:
            inputs = {"rows": [row for batch in part.batches() for row in batch.tolist()]}
        parts.append({**inputs, "positions": [*given.positions(part.length)]})
    return {
        "graphs": [as_json(graph, stored) for graph in problem.graphs.values()],
        "inputs": parts,
        "classes": None if given.classes is None else [*given.classes],
        "answers": {"rule": _named_rule(problem)} if is_large else _answers(problem),
    }


def _named_rule(problem: ModuleProblem) -> str | None:
    """The name of the rule that the task's own answers are."""
    return next((name for name, rule in RULES.items() if problem.given.expected is rule), None)


def _is_by_cells(problem: ModuleProblem) -> bool:
    """Whether the checker can look for cells itself: one product of token sets, one answer, a rule with a name."""
    parts = problem.given.inputs.parts
    is_product = len(parts) == 1 and isinstance(parts[0], Product) and parts[0].where is None
    return is_product and len(problem.given.positions(parts[0].length)) == 1 and _named_rule(problem) is not None


def _answers(problem: ModuleProblem) -> dict[str, object]:
    """A rule with a name where it gives the right answer of every input, else all answers in order."""
    given, found = problem.given, list[tuple[Tensor, Tensor]]()
    for part in given.inputs.parts:
        columns = problem.columns(part.length)
        for tokens in part.batches():
            if len(tokens):
                places = given.answers(tokens, columns)
                found.append((tokens, places if given.classes is None else torch.tensor(given.classes)[places]))
    top = max(int(labels.max()) for _, labels in found) if found else 0
    rules = dict(RULES)
    rules[f"sum of the tokens modulo {top + 1}"] = sum_modulo(top + 1)
    for name, rule in rules.items():
        if all(labels.shape[1] == 1 and torch.equal(rule(tokens), labels[:, 0]) for tokens, labels in found):
            return {"rule": name}
    return {"table": [row for _, labels in found for row in labels.tolist()]}


def of_step(step: StepGraph, weights: nn.Module) -> dict[str, object]:
    """One step of a recurrent cell, whose stored tensors are named as in the state dict of `weights`, a part of it.

    Its state has so many `numbers`, which a node `state` reads from a place on; the output is the next state, and then
    the logits.
    """
    path = next(name for name, part in step.whole.named_modules() if part is weights) + "."
    stored = {f"{path}{name}": value for name, value in weights.state_dict().items()}
    state = {name: where.start for name, (where, _) in step.parts.items()}
    return {"step": as_json(step.graph, stored, state, path), "numbers": step.size}


def of_cell(problem: RecurrentProblem, certificate: Certificate) -> dict[str, object]:
    """The step of a cell, its first state, its tokens, and the states of the automaton on what a certificate speaks of.

    `steps` says where each token leads from a state, and is empty where the strings end. Nothing is said of proofs for
    all lengths, nor where there are too many states.
    """
    given, case = problem.given, certificate.counterexample
    said = problem.length if case is None else case["length"]
    length = said if isinstance(said, int) else 0
    numbers, steps, depth = {given.expected.start: 0}, list[list[int]](), [0]
    for place in (queue := [given.expected.start]) if length else ():
        row = list[int]()
        for token in given.vocabulary if depth[len(steps)] < length else ():
            after = given.expected.after(place, token)
            if after not in numbers:
                numbers[after] = len(queue)
                queue.append(after)
                depth.append(depth[len(steps)] + 1)
            row.append(numbers[after])
        steps.append(row)
        if len(queue) > MOST_STATES:
            return {}
    own = {"start": problem.graph.first.tolist(), "tokens": [*given.vocabulary], "steps": steps}
    answers = [given.due(place, problem.graph.classes) for place in numbers]
    return {**of_step(problem.graph, problem.module), **own, "answers": answers} if steps else {}


def as_json(
    graph: Graph, stored: Mapping[str, Tensor], state: Mapping[str, int] | None = None, path: str = ""
) -> dict[str, object]:
    """The operations of a graph in order, and which of them is its output.

    Where in a `state` some inputs begin is said of them; `path` is left out of the names of stored tensors.
    """
    output = _said(graph).index(graph.program.output_node().all_input_nodes[-1])
    return {"length": graph.length, "output": output, "nodes": [*_nodes(graph, stored, state or {}, path)]}


def _nodes(
    graph: Graph, stored: Mapping[str, Tensor], state: Mapping[str, int], path: str
) -> Iterator[dict[str, object]]:
    number: dict[torch.fx.Node, int] = {}
    for i, node in enumerate(_said(graph)):
        number[node] = i
        value = node.meta.get("val")
        said = {"shape": None, "dtype": None}
        if isinstance(value, Tensor):
            said = {"shape": list(value.shape), "dtype": _named(value.dtype)}  # type: ignore[dict-item]
        if node.op == "placeholder":
            is_state = node.name in state
            at = {"op": "state", "at": state[node.name]} if is_state else _placeholder(graph, node, stored, path)
            yield {**at, **said}
            continue
        name = "getitem" if node.target is operator.getitem else str(node.target)
        kwargs = {key: x for key, x in node.kwargs.items() if key not in NOWHERE and x is not None}
        args = node.args[:1] if name == "aten._assert_async.msg" else node.args  # what it says if it fails is left out
        yield {"op": name, "args": _argument(args, number), "kwargs": _argument(kwargs, number), **said}


def _said(graph: Graph) -> list[torch.fx.Node]:
    """The operations, and what they read: tokens and stored tensors. Numbers that it was called with are in them."""
    nodes = [node for node in graph.program.nodes if node.op != "output"]
    return [node for node in nodes if node.op != "placeholder" or isinstance(node.meta.get("val"), Tensor)]


def _placeholder(graph: Graph, node: torch.fx.Node, stored: Mapping[str, Tensor], path: str) -> dict[str, object]:
    value = graph.stored.get(node.name)
    if value is None:
        return {"op": "tokens"}
    own = stored.get(graph.names[node.name])
    if own is not None and own.dtype == value.dtype and own.shape == value.shape:
        return {"op": "stored", "name": graph.names[node.name].removeprefix(path)}
    raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return {"op": "stored", "data": base64.b64encode(raw).decode()}


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _argument(x: object, number: Mapping[torch.fx.Node, int]) -> object:
    """What an operation is called with: {"node": i} stands for the value of node i."""
    if isinstance(x, torch.fx.Node):
        return {"node": number[x]}
    if isinstance(x, Mapping):
        return {key: _argument(value, number) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_argument(value, number) for value in x]
    if isinstance(x, float) and not math.isfinite(x):
        return {"number": str(x)}
    return _named(x) if isinstance(x, torch.dtype) else x if isinstance(x, int | float | str | None) else str(x)
