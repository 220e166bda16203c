"""Any module whose last operation is a linear layer: its readout and hidden numbers are read off the captured graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch
from flint import arb, ctx, fmpq
from torch import Tensor, nn

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import ONE, Key
from verify.changes.boxes import hidden_of
from verify.changes.changeable import Changeable, ChangeableReadout, Decide, Questions, check_listed
from verify.engine import exact
from verify.engine.balls import Arithmetic
from verify.engine.capture import Graph, capture
from verify.engine.run import enclose
from verify.frame import clock
from verify.frame.tracing import load_tracer

EXACT_BITS = 4096  # that hold sums of products of stored numbers exactly, where the module divides by powers of two
KEEPS_ROWS = {
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "reshape.default", "clone.default", "alias.default"),
        *("detach.default", "contiguous.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims"),
        *("select.int", "slice.Tensor", "expand.default", "_to_copy.default"),
    )
}  # what may follow the readout, as long as the last axis stays what it is: each row is still a row of logits
Node = Any  # torch.fx.Node, whose arguments are of many types


def changeable(
    module: nn.Module,
    length: int,
    questions: Callable[[], Iterable[Questions]],
    decide: Decide,
    file: Callable[[nn.Module], bytes],
    shortest: int | None = None,
) -> Changeable:
    """The module on questions of one length; `decide` is a verdict on a module of the same type.

    A module whose readout is the same at all lengths is traced at the `shortest`, and at its own where it has to be.
    Raises: BadInput for a module that cannot be captured, or whose last operation is no linear layer of its own.
    """
    load_tracer()
    began = clock.wall()
    graph = capture(module, shortest or length)
    trace_takes = (clock.wall() - began) * length / graph.length if graph.length < length else 0.0
    readout, read = readout_of(graph)
    known = {name for name, _ in module.named_parameters()}
    for name in (readout.weight, readout.bias):
        if name is not None and name not in known:
            raise BadInput(f"module: {name} is the readout and no parameter. Make it a torch.nn.Parameter.")

    @lru_cache(maxsize=1)  # positions of one sequence are asked for one after the other
    def rows(tokens: tuple[int, ...], bits: int) -> exact.Array | None:
        asked = (found.hidden_graph, None) if read is None or graph.length < length else (graph, read)
        return exact_rows(asked[0], torch.tensor(tokens), bits, asked[1])

    def enclosed(tokens: Tensor, position: int, bits: int) -> list[arb]:
        row = row_of(rows(tuple(tokens.tolist()), bits), position)
        if row is None:
            row = enclosed_row(found.hidden_graph, tokens, position)
        return row if readout.bias is None else [*row, arb(1)]

    def terms(tokens: Tensor, position: int) -> list[dict[Key, fmpq]] | None:
        numbers = enclosed(tokens, position, EXACT_BITS)
        return [{ONE: as_rational(x)} for x in numbers] if all(x.is_exact() for x in numbers) else None

    def every() -> Questions:
        return listed(questions(), len(readout.of(module)))

    def posed(changed: nn.Module) -> Changeable:
        return changeable(changed, length, questions, decide, file, shortest)

    found = Changeable(module, readout, length, every, decide, file, enclosed, terms, posed, trace_takes=trace_takes)
    return found


def row_of(rows: exact.Array | None, position: int) -> list[arb] | None:
    """The row at a position, None where none are known."""
    return None if rows is None else list(rows[position])


def enclosed_row(graph: Graph, tokens: Tensor, position: int) -> list[arb]:
    """One row of the output in balls, by float64."""
    mid, rad = enclose(graph, Arithmetic(), hidden_of)(tokens[None], torch.tensor([[position]]))
    return [arb(m, r) for m, r in zip(mid[0].tolist(), rad[0].tolist(), strict=True)]


def exact_rows(graph: Graph, tokens: Tensor, bits: int, at: Node = None) -> exact.Array | None:
    """The rows of the output, or of another node, in balls of so many bits; None where an operation is not known."""
    if exact.is_covered(graph):
        with suppress(exact.Undecidable), ctx.workprec(bits):
            found = exact.evaluate(graph, tokens, at)
            return found.reshape(-1, found.shape[-1])
    return None


def as_rational(x: arb) -> fmpq:
    """The number of a ball without a radius."""
    mantissa, exponent = x.mid().man_exp()
    return fmpq(int(mantissa)) * fmpq(2) ** int(exponent)


def listed(parts: Iterable[Questions], columns: int) -> Questions:
    """All questions in one.

    Raises: BadInput where there are too many.
    """
    found: list[Questions] = []
    for part in parts:
        found.append(part)
        check_listed(sum(map(len, found)), columns, part.tokens.shape[1], "inputs")
    columns_of = zip(*((q.tokens, q.position, q.right) for q in found), strict=True)
    return Questions(*(torch.cat(column) for column in columns_of))


def readout_of(graph: Graph) -> tuple[ChangeableReadout, Node]:
    """The linear layer whose rows the module returns, by the names of its parameters, and the node that it reads.

    None for the node where the layer's rows are not the output as it is, so that others may come of it.

    Raises: BadInput where something else comes last, or the layer's numbers are used elsewhere.
    """
    node: Node = graph.program.output_node().all_input_nodes[-1]
    last, bias = node, None
    while True:
        name, args = str(node.target), node.args
        if name == "aten.linear.default":
            read = args[0] if node is last else None
            return _named(graph, args[1], True, args[2] if len(args) > 2 else None), read
        if name == "aten.addmm.default" and bias is None:
            return _named(graph, *_factor(args[2]), args[0]), None
        if name == "aten.mm.default":
            return _named(graph, *_factor(args[1]), bias), None
        if name == "aten.add.Tensor" and bias is None and _is_bias(node):
            node, bias = args
        elif name in KEEPS_ROWS and node.meta["val"].shape[-1] == args[0].meta["val"].shape[-1] and _is_row_kept(node):
            node = args[0]
        else:
            raise BadInput(f"module: ends in {name}, not in a linear layer, whose numbers could be changed alone.")


def _is_row_kept(node: Node) -> bool:
    """Whether an operation leaves the last axis alone, which it does not where it chooses along it."""
    chosen = node.args[1] if str(node.target) in ("aten.select.int", "aten.slice.Tensor") and len(node.args) > 1 else 0
    axes = len(node.args[0].meta["val"].shape)
    is_same_dtype = node.meta["val"].dtype == node.args[0].meta["val"].dtype
    return is_same_dtype and chosen % axes != axes - 1


def _is_bias(node: Node) -> bool:
    """Whether a sum adds a stored vector to rows of its length, once."""
    other = node.args[1]
    shapes = [x.meta["val"].shape for x in node.args if isinstance(x, torch.fx.Node)]
    return len(shapes) == 2 and other.op == "placeholder" and shapes[1] == shapes[0][-1:] and not node.kwargs


def _factor(node: Node) -> tuple[Node, bool]:
    """A stored matrix, and whether it is read transposed."""
    if str(node.target) in ("aten.permute.default", "aten.t.default", "aten.transpose.int"):
        return node.args[0], True
    return node, False


def _named(graph: Graph, weight: Node, is_transposed: bool, bias: Node | None) -> ChangeableReadout:
    """The readout of these stored tensors, each of which is used for nothing else."""
    for node in (weight, bias):
        if node is None:
            continue
        if node.op != "placeholder" or node.name not in graph.names:
            raise BadInput("module: its last linear layer is computed, not stored. Only stored numbers can be changed.")
        if len(node.users) > 1:
            raise BadInput(
                f"module: {graph.names[node.name]} is the readout and is used elsewhere too, as a tied embedding is. "
                "Give the readout numbers of its own."
            )
    return ChangeableReadout(graph.names[weight.name], None if bias is None else graph.names[bias.name], is_transposed)
