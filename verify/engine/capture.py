"""A module as a graph of ATen operations, for one input of a fixed length; what cannot be judged is refused at once."""

from __future__ import annotations

import hashlib
import logging
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.fx.node import Argument
from torch.overrides import TorchFunctionMode

from constructions.errors import BadInput
from constructions.uncollected import uncollected
from verify.engine.complex_numbers import as_pairs
from verify.engine.complex_numbers import stored as as_stored
from verify.engine.decompositions import DECOMPOSITIONS
from verify.engine.dtypes import ANY, FLOATS, is_float, is_whole, widens
from verify.engine.rules import RULES, cover_of
from verify.engine.rules.activations import known_factors
from verify.engine.rules.pointwise import known_power

if TYPE_CHECKING:
    from torch.export import ExportedProgram

KEPT_WHOLE = ("scaled_dot_product_attention", "linear", "silu", "baddbmm", "softplus", "elu", "_fused_rms_norm")
CREATING = (
    "aten.full.default",
    "aten.full_like.default",
    "aten.zeros_like.default",
    "aten.ones_like.default",
    "aten.scalar_tensor.default",
    "aten.arange.start_step",
    "aten.arange.default",
    "aten.arange.start",
    "aten.zeros.default",
    "aten.ones.default",
    "aten.new_zeros.default",
    "aten.new_ones.default",
    "aten.new_full.default",
    "aten.eye.default",
    "aten.empty.memory_format",
)


Named = dict[str, object]  # arguments by their names


@dataclass(frozen=True)
class Graph:
    """The operations of a module on one input of `length` tokens, and the tensors that they read.

    `names` gives for each stored tensor its name in the state dict. `around` says, for tensors whose numbers may be
    others, how far each may be from what is stored: then a bound holds for all of these modules at once.
    """

    program: torch.fx.Graph
    stored: dict[str, Tensor]
    names: dict[str, str]
    length: int
    around: dict[str, Tensor] = field(default_factory=dict)

    @property
    def calls(self) -> Iterator[torch.fx.Node]:
        return (node for node in self.program.nodes if node.op == "call_function")

    @property
    def output(self) -> Tensor:
        """A stand-in for the output, with its shape and dtype."""
        value: Tensor = self.program.output_node().all_input_nodes[-1].meta["val"]
        return value

    @cached_property
    def operations(self) -> dict[str, int]:
        """How often each operation occurs."""
        counts: dict[str, int] = {}
        for node in self.calls:
            if node.target is not operator.getitem:
                counts[str(node.target)] = counts.get(str(node.target), 0) + 1
        return dict(sorted(counts.items()))

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of the operations, their arguments and shapes: the same for the same computation."""
        numbers = {node: f"%{i}" for i, node in enumerate(self.program.nodes)}
        lines = []
        for node in self.program.nodes:
            arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: numbers[n])
            shape = getattr(node.meta.get("val"), "shape", None)
            name = self.names.get(node.name, "") if node.op == "placeholder" else str(node.target)
            lines.append(f"{numbers[node]} {node.op} {name} {arguments} {None if shape is None else tuple(shape)}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def coarsest(self) -> torch.dtype:
        """The coarsest dtype that floating-point numbers are stored or computed in; float32 where there are none."""
        computed = (_dtype(node) for node in self.calls)
        floats = [d for d in (*(v.dtype for v in self.stored.values()), *computed) if d is not None and is_float(d)]
        return min(floats, key=lambda dtype: torch.finfo(dtype).bits, default=torch.float32)

    @cached_property
    def widest(self) -> int:
        """The number of entries of the largest intermediate tensor."""
        return max(
            (value.numel() for node in self.calls if isinstance(value := node.meta.get("val"), Tensor)), default=1
        )


def longest_sum(graph: Graph) -> int:
    """How many products the longest sum of a matrix product has."""
    sums = re.compile(r"aten\.(mm|bmm|matmul|linear|addmm|baddbmm)\.")
    factors = [
        node.args[1 if "addmm" in str(node.target) or "baddbmm" in str(node.target) else 0]
        for node in graph.calls
        if sums.match(str(node.target))
    ]
    return max((int(x.meta["val"].shape[-1]) for x in factors if isinstance(x, torch.fx.Node)), default=0)


def capture(module: nn.Module, length: int, *, is_real: bool = True, arguments: Named | None = None) -> Graph:
    """Traces module(tokens) on one input of `length` tokens, shape (1, length).

    Raises: BadInput, with every reason and the source line of each, for what no rule covers.
    """
    training = [name or type(module).__name__ for name, part in module.named_modules() if part.training]
    if training:
        raise BadInput(f"module: {training[0]} is in training mode. Call module.eval() first.")
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.is_floating_point() and bool(torch.isnan(value.detach().float()).any()):
            raise BadInput(f"module: {name} has a NaN entry; nothing can be proved about it")
    with uncollected():
        program = _export(module, length, arguments or {})
        as_pairs(program.graph)
    refused = list(_refusals(program, is_real))
    if refused:
        raise BadInput("module: cannot be judged: " + "; ".join(dict.fromkeys(refused)))
    stored, names = {}, {}
    for spec in program.graph_signature.input_specs:
        if spec.target is not None:
            name = spec.arg.name
            value = program.state_dict.get(spec.target, program.constants.get(spec.target))
            assert isinstance(value, Tensor), spec
            stored[name], names[name] = as_stored(value.detach()), spec.target
    return Graph(program.graph, stored, names, length)


def _export(module: nn.Module, length: int, arguments: Named) -> ExportedProgram:
    from torch.export import default_decompositions, export
    from torch.fx._lazy_graph_module import _use_lazy_graph_module as written_when_run  # the code of graphs between

    table = default_decompositions()
    for name in KEPT_WHOLE:
        if hasattr(torch.ops.aten, name):  # older versions of torch have no fused norms
            table.pop(getattr(torch.ops.aten, name).default, None)  # type: ignore[no-untyped-call]
    for target, decomposition in DECOMPOSITIONS.items():
        table[target] = decomposition
    example = torch.zeros(1, length, dtype=torch.long)
    before = logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)  # what matters is one line of ours
        quiet, numbers = redirect_stderr(StringIO()), StoredNumbers(module)
        with warnings.catch_warnings(), torch.no_grad(), numbers, quiet, written_when_run(True):
            warnings.simplefilter("ignore")  # what matters is refused below
            program: ExportedProgram = export(module, (example,), arguments or None, strict=False).run_decompositions(
                table
            )
            return program
    except BadInput:
        raise
    except Exception as error:  # torch.export raises errors of many classes
        raise BadInput(f"module: torch.export cannot trace it: {_reason(error)}") from None
    finally:
        logging.disable(before)


class StoredNumbers(TorchFunctionMode):
    """Lets a module read its buffers of one number as Python numbers, bool(self.flag), while it is traced.

    Such a number is as fixed as the code: a forward that changes the buffer is refused afterwards.
    """

    READS: ClassVar[dict[Any, Callable[[Any], Any]]] = {
        Tensor.__bool__: bool,
        Tensor.__int__: int,
        Tensor.__float__: float,
        Tensor.__index__: operator.index,
        Tensor.item: lambda number: number,
    }

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.stored = {name: value.item() for name, value in module.named_buffers() if value.numel() == 1}

    def __torch_function__(
        self, function: Callable[..., object], types: object, args: Sequence[Tensor] = (), kwargs: Named | None = None
    ) -> object:
        if function in self.READS:
            for name, number in self.stored.items():
                if self.module.get_buffer(name) is args[0]:  # while it is traced, a stand-in for the number
                    return self.READS[function](number)
        if function is torch._assert_async and len(args) == 1:  # without a message, export leaves it out
            return function(args[0], "false")
        return function(*args, **(kwargs or {}))


def _reason(error: Exception) -> str:
    """The first line that says something, with the error's class where the user's own code raised it, and its line."""
    text = str(error).strip() or type(error).__name__
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[:200]
    if type(error).__name__.startswith("GuardOnDataDependent") or "data-dependent" in text.lower():
        line = "a branch, or a Python number, depends on the data (if, .item(), .tolist())"
    place, is_own = "", False
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        is_own = _is_the_users(file)
        if is_own:
            place = f" at {file}:{step.tb_lineno}"
        step = step.tb_next
    name = type(error).__name__
    return (f"{name}: {line}" if is_own and line != name else line) + place


def _is_the_users(file: str) -> bool:
    return not re.search(r"[/\\](torch|sympy)[/\\]|[/\\]verify[/\\](engine|module)[/\\]|<|contextlib\.py", file)


def source_line(node: torch.fx.Node) -> str:
    """The innermost line of the user's code that made a node: file:line and the line itself."""
    trace = node.meta.get("stack_trace") or ""
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    own = [frame for frame in frames if _is_the_users(frame[0])]
    return f"{own[-1][0]}:{own[-1][1]}: {own[-1][2].strip()}" if own else "no source line"


def _refusals(program: ExportedProgram, is_real: bool) -> Iterator[str]:
    signature = program.graph_signature
    for name in signature.buffers_to_mutate.values():
        yield f"the forward changes the buffer {name}, so one call depends on those before"
    computed: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder" or node.op == "output":
            continue
        if _is_computed(node, computed):
            computed.add(node)
        reason = _refusal(node, is_real) or _refusal_of_whole(node, computed)
        if reason:
            yield f"{reason} ({source_line(node)})"
    outputs = [spec for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    if len(outputs) != 1:
        yield f"the forward returns {len(outputs)} tensors; return the logits alone"
    elif not program.call_spec.out_spec.is_leaf():
        yield f"the forward returns a {program.call_spec.out_spec.type.__name__}; return the tensor of logits alone"
    value = next(iter(program.graph.output_node().args[0][-1:]), None)
    dtype = getattr(getattr(value, "meta", {}).get("val"), "dtype", None)
    if dtype is not None and not dtype.is_floating_point:
        yield f"the forward returns {dtype}, not logits; leave argmax to the verifier"


def _refusal(node: torch.fx.Node, is_real: bool) -> str | None:
    """Why a node cannot be judged, None where it can."""
    if node.op != "call_function":
        return f"{node.op} {node.target} is no tensor operation"
    if node.target is operator.getitem:
        return None
    name, tags = str(node.target), getattr(node.target, "tags", ())
    if "autocast" in name:
        return "autocast changes dtypes by its own rules; convert the module instead"
    if name.startswith("aten._assert"):
        return None
    if name == "aten._local_scalar_dense.default":
        return "a Python number (.item(), .tolist()) depends on the data"
    is_sdpa = name == "aten.scaled_dot_product_attention.default"
    if "dropout" in name or (torch.Tag.nondeterministic_seeded in tags and not is_sdpa):
        return f"{name} is random"
    dtype = _dtype(node)
    inputs = [_dtype(argument) for argument in node.all_input_nodes]
    floats = {d for d in inputs if d is not None and d.is_floating_point}
    if any(d is not None and d not in ANY for d in (dtype, *inputs)):
        unknown = next(d for d in (dtype, *inputs) if d is not None and d not in ANY)
        return f"{name}: {'complex numbers have' if unknown.is_complex else f'{unknown} has'} no rule"
    if name == CAST and floats and dtype not in floats:
        if not is_float(dtype) and is_exact_constant(node):
            return None
        if is_float(dtype) and dtype is not None and all(widens(d, dtype) for d in floats):
            return None
        if dtype is not None and dtype == _own_format(node.graph) and all(widens(dtype, d) for d in floats):
            return None
        return f"casts a computed {min(map(str, floats))} to {dtype}, which rounds it; keep one dtype"
    if name in CREATING:
        return _refusal_of_constant(node, name)
    if not is_float(computed_in(node)):
        return None  # whole numbers and truth values: as torch computes them, or see _refusal_of_whole
    if name not in RULES:
        return f"{name} has no rule"
    if cover_of(name, computed_in(node)) is None:
        return _not_covered(node)
    if name == "aten.pow.Tensor_Scalar" and not known_power(node.args[1]):
        return f"{name} with exponent {node.args[1]} has no rule"
    if not known_factors(name, node.args[1:]):
        return f"{name} with the factors {node.args[1:]} has no rule"
    if name == "aten._fused_rms_norm.default" and (len(node.args) < 4 or node.args[3] is None):
        return f"{name} with eps=None depends on the dtype; name eps"
    if name == "aten.native_layer_norm.default" and len(node.args[1]) != 1:  # type: ignore[arg-type]
        return f"{name} over several axes has no rule"
    if is_sdpa:
        dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        if dropout:
            return f"{name} with dropout has no rule"
        is_causal = node.args[5] if len(node.args) > 5 else node.kwargs.get("is_causal", False)
        scale = node.kwargs.get("scale")
        if is_causal and scale is not None and not float(scale) >= LEAST_SCALE:  # type: ignore[arg-type]
            return f"{name} multiplies the -inf of is_causal by the scale {scale}, which is no number; give a mask"
    if name == "aten.div.Tensor_mode":
        return f"{name} of computed floats has no rule"
    return _refusal_of_formats(node)


CAST = "aten._to_copy.default"
LEAST_SCALE = 2.0**-126  # of scores with a causal mask: a lesser one may be 0 in float32


def _own_format(graph: torch.fx.Graph) -> torch.dtype | None:
    """The narrowest format of the stored numbers: what was computed wider is rounded back to it."""
    stored = [_dtype(node) for node in graph.nodes if node.op == "placeholder"]
    floats = [dtype for dtype in stored if dtype is not None and is_float(dtype)]
    return min(floats, key=lambda dtype: torch.finfo(dtype).bits, default=None)


NORMS = (
    "aten.native_layer_norm.default",
    "aten.native_group_norm.default",
    "aten._fused_rms_norm.default",
    "aten._native_batch_norm_legit_no_training.default",
)


def _refusal_of_formats(node: torch.fx.Node) -> str | None:
    """Why the floats that go in do not have the format of the result: a wider one would be rounded.

    Formats may widen. Stored and created numbers without axes are read as they are, as Python's numbers are, and so are
    the stored weights of a norm.
    """
    name, to = str(node.target), computed_in(node)
    assert to is not None
    for before in node.all_input_nodes:
        dtype = _dtype(before)
        if dtype is None or dtype not in FLOATS or widens(dtype, to):
            continue
        is_number = _is_stored(before) and before.meta["val"].ndim == 0 and name not in WRITES
        if not is_number and not (name in NORMS and before.op == "placeholder"):
            return f"casts a computed {dtype} to {to} in {name}, which rounds it; keep one dtype"
    return None


WRITES = ("aten.copy.default", "aten.select_scatter.default", "aten.slice_scatter.default")


def _is_stored(node: torch.fx.Node) -> bool:
    moves = str(node.target) in ("aten.clone.default", "aten.lift_fresh_copy.default", "aten.alias.default")
    return node.op == "placeholder" or is_exact_constant(node) or (moves and _is_stored(node.all_input_nodes[0]))


def _not_covered(node: torch.fx.Node) -> str:
    return f"{node.target} on {str(computed_in(node)).removeprefix('torch.')} is not covered"


COMPARISON = re.compile(r"aten\.(gt|ge|lt|le|eq|ne)\.")
FIRST = re.compile(r"aten\.(argmax|argmin)\.")
TRUTH = re.compile(r"aten\.(any|all|logical_and|logical_or|logical_xor|logical_not)\.")


def computed_in(node: torch.fx.Node) -> torch.dtype | None:
    """The dtype to which torch casts the arguments of an operation: that of its result, save where that is a truth."""
    if "computed_in" not in node.meta:
        name = str(node.target)
        if COMPARISON.match(name):
            node.meta["computed_in"] = torch.result_type(*(_stand_in(x) for x in node.args[:2]))
        else:
            node.meta["computed_in"] = torch.bool if TRUTH.match(name) else _dtype(node)
    found: torch.dtype | None = node.meta["computed_in"]
    return found


def _stand_in(x: object) -> Any:
    """A tensor of the dtype and as many axes as a node's value; a Python number as it is."""
    value = x.meta["val"] if isinstance(x, torch.fx.Node) else x
    return torch.empty([1] * value.ndim, dtype=value.dtype) if isinstance(value, Tensor) else value


PLACES = re.compile(r"aten\.(index|embedding|gather|index_select)\.")


def _is_computed(node: torch.fx.Node, computed: set[torch.fx.Node]) -> bool:
    """Whether whole numbers or truth values depend on computed floats: they may not be sure."""
    dtype = _dtype(node)
    if dtype is None or dtype.is_floating_point or is_exact_constant(node):
        return False
    floats = any(is_float(_dtype(before)) for before in node.all_input_nodes)
    return floats or is_float(computed_in(node)) or any(before in computed for before in node.all_input_nodes)


def _refusal_of_whole(node: torch.fx.Node, computed: set[torch.fx.Node]) -> str | None:
    """Why an operation on whole numbers or truth values that depend on computed floats cannot be judged."""
    value, name = node.meta.get("val"), str(node.target)
    if isinstance(value, Tensor) and not all(isinstance(size, int) for size in value.shape):
        return f"{name}: the size of what it gives depends on the data"
    given = [before for before in node.all_input_nodes if before in computed]
    if node.target is operator.getitem or name.startswith("aten._assert") or name in CREATING:
        return None
    cover = cover_of(name, computed_in(node))
    aside = () if cover is None or name.startswith("aten.where") else cover.aside
    if any(x in computed for i in aside for x in _nodes(node.args[i : i + 1])):
        what = "a mask" if "attention" in name else "a choice of places"
        return f"{name}: {what} depends on computed floats"
    if PLACES.match(name) and given and cover is None:
        return f"{name}: a choice of places depends on computed floats"
    if node not in computed or name == "aten._to_copy.default" and not given:
        return None
    if cover is None:
        return _not_covered(node)
    numbers = [x for x in node.args if isinstance(x, float)]
    if not is_float(computed_in(node)) and not all(map(is_whole, numbers)):
        return f"{name} of whole numbers and {numbers[0]} is not covered"
    is_exact = TRUTH.match(name) or FIRST.match(name)
    if not is_float(computed_in(node)) and not is_exact and any(_is_rounded(x) for x in node.all_input_nodes):
        return f"casts computed floats to {computed_in(node)} in {name}, which rounds them; keep one dtype"
    return None


def _nodes(x: Argument) -> list[torch.fx.Node]:
    """The nodes in an argument, in lists too."""
    found: list[torch.fx.Node] = []
    torch.fx.node.map_arg(x, found.append)
    return found


def _is_rounded(node: torch.fx.Node) -> bool:
    return is_float(_dtype(node))


EXACT = re.compile(r"aten\.(triu|tril|view|expand|permute|unsqueeze|squeeze|slice|select|clone|alias|cat|neg|flip)\.")


def is_exact_constant(node: torch.fx.Node) -> bool:
    """Whether a tensor is made of created constants by moving numbers alone: nothing in it was ever rounded."""
    if node.op != "call_function":
        return False
    name = str(node.target)
    if name in CREATING:
        return True
    value = _dtype(node)
    is_whole = value is not None and not value.is_floating_point
    moves = is_whole or EXACT.match(name) is not None or name in ("aten._to_copy.default", "aten.where.self")
    return moves and all(is_exact_constant(before) for before in node.all_input_nodes)


def given(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An operation's arguments, and those by name, with the values of the nodes that they name."""
    return torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])


def constant(node: torch.fx.Node) -> Tensor:
    """The value of an exact constant, as torch computes it in the module's own dtypes."""
    if "constant" not in node.meta:
        is_created = str(node.target) in CREATING

        def value(x: torch.fx.Node) -> Tensor:
            return torch.zeros(x.meta["val"].shape) if is_created else constant(x)

        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
        kwargs = {key: x for key, x in kwargs.items() if key not in ("device", "pin_memory")}
        if is_created:
            kwargs["dtype"] = node.meta["val"].dtype
        node.meta["constant"] = node.target(*args, **kwargs)  # type: ignore[operator]
    found: Tensor = node.meta["constant"]
    return found


def _refusal_of_constant(node: torch.fx.Node, name: str) -> str | None:
    if name.startswith("aten.empty"):
        return f"{name}: its numbers are anything"
    steps = cast(Sequence[float], node.args)
    if name.startswith("aten.arange") and is_float(_dtype(node)) and not all(float(a).is_integer() for a in steps):
        return f"{name} with a fractional step has no rule"
    return None


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return value.dtype if isinstance(value, Tensor) else None
