"""A graph run in plain float64: operations as torch computes them, elementary functions by our own tables.

Torch is trusted with operations that IEEE 754 says, in whatever order it sums; not with functions of its own. A graph
that needs one of these without a table is not run so.
Numbers that are a function of one position's token are taken from tables.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from verify.arithmetic import elementary
from verify.engine.capture import CREATING, Graph, constant, given, is_exact_constant
from verify.engine.rules.pointwise import CUBE, ROOT_2_OVER_PI, logistic
from verify.engine.run import ENTRIES_AT_ONCE
from verify.engine.tables import NoRadius, Rows, Tabled, Tables, Taken

Run = Callable[..., object]
AT_ONCE = 2048


def softmax(x: Tensor, dim: int, *options: object) -> Tensor:
    """Softmax, the largest score subtracted; NaN where every score is -inf."""
    below = x - x.amax(dim, keepdim=True)
    e = elementary.exp(below)
    return e / e.sum(dim, keepdim=True)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) v."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    return softmax(scores, -1) @ v


def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, None, Tensor]:
    """LayerNorm over the last axis by two passes, and at the third place sqrt(variance + eps)."""
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    y = c / s
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, None, s


def tanh(x: Tensor) -> Tensor:
    return 2 * logistic(2 * x) - 1


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return x * logistic(2 * ROOT_2_OVER_PI * (x + CUBE * x * x * x))
    return x * (1 + elementary.erf(x * 0.7071067811865476)) / 2


OWN: dict[str, Run] = {
    "aten._softmax.default": softmax,
    "aten.softmax.int": softmax,
    "aten._safe_softmax.default": softmax,
    "aten.scaled_dot_product_attention.default": attention,
    "aten.native_layer_norm.default": layer_norm,
    "aten.exp.default": elementary.exp,
    "aten.erf.default": elementary.erf,
    "aten.tanh.default": tanh,
    "aten.sigmoid.default": logistic,
    "aten.gelu.default": gelu,
    "aten.silu.default": lambda x: x * logistic(x),
    "aten.sin.default": elementary.sine,
    "aten.cos.default": elementary.cosine,
}


FOREIGN = frozenset(
    f"aten.{name}"
    for name in (
        "log.default", "log1p.default", "expm1.default", "pow.Scalar", "_log_softmax.default", "elu.default",
        "softplus.default",
    )
)  # fmt: skip
POWERS = (0.5, -0.5, 1, -1, 2, 3)  # which torch takes by roots, products and quotients


def is_foreign(node: torch.fx.Node) -> bool:
    """Whether torch computes an operation by a function of a library, for which there is no table here."""
    is_power = str(node.target) == "aten.pow.Tensor_Scalar"
    return str(node.target) in FOREIGN or (is_power and node.args[1] not in POWERS)


def computed(node: torch.fx.Node, values: Mapping[torch.fx.Node, object], device: torch.device) -> object:
    """One operation on numbers in float64 and whole numbers in their own dtypes."""
    args, kwargs = given(node, values)
    if node.target is operator.getitem:
        return args[0][args[1]]
    name, dtype = str(node.target), kwargs.get("dtype")
    if name.startswith("aten._assert"):
        return None  # it holds in the tables
    if is_exact_constant(node):
        made = constant(node).to(device)
        return made.double() if made.is_floating_point() else made
    if name in OWN:
        return OWN[name](*args, **{key: x for key, x in kwargs.items() if key not in ("dtype",)})
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point and name not in CREATING:
        kwargs = {**kwargs, "dtype": torch.float64}
    if "device" in kwargs:
        kwargs = {**kwargs, "device": device}
    if name in ("aten.view.default", "aten._unsafe_view.default"):
        return args[0].reshape(args[1])
    found = node.target(*args, **kwargs)  # type: ignore[operator]
    return found.double() if isinstance(found, Tensor) and found.is_floating_point() else found


class Plain:
    """A graph as a function of many inputs at once, by vmap: no row can depend on another.

    Shapes: tokens (N, length); the output (N, ...), and for each LayerNorm that is not in tables the least
    sqrt(variance + eps) of each input (N, norms).
    """

    def __init__(self, graph: Graph, tables: Tables, found: list[Tabled], device: str = "cpu") -> None:
        self.graph, self.tables, self.device = graph, tables, torch.device(device)
        self.rows, self.at_once = Rows(tables, found, device), max(1, min(AT_ONCE, ENTRIES_AT_ONCE // graph.widest))
        self.norms = tables.norms
        foreign = [str(node.target) for node in graph.calls if node not in tables.tabled and is_foreign(node)]
        if foreign:
            raise NoRadius(f"{foreign[0]} has no table in float64")
        self.stored = {
            name: (value.double() if value.is_floating_point() else value).to(device)
            for name, value in graph.stored.items()
        }
        self.run = torch.vmap(self._one)

    def __call__(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            found = [self.run(part, self.rows(part)) for part in torch.split(tokens, self.at_once)]
        outputs, deviations = zip(*found, strict=True)
        return torch.cat(outputs), torch.cat(deviations)

    def _one(self, tokens: Tensor, rows: list[Taken]) -> tuple[Tensor, Tensor]:
        values: dict[torch.fx.Node, object] = dict(zip(self.tables.frontier, rows, strict=True))
        deviations = []
        for node in self.graph.program.nodes:
            if node.op == "output":
                break
            if node in values or node in self.tables.tabled:
                continue
            if node.op == "placeholder":
                values[node] = self.stored.get(node.name, tokens.unsqueeze(0))
                continue
            values[node] = found = computed(node, values, self.device)
            if node in self.norms:
                deviations.append(cast(list[Tensor], found)[2].amin())
        output = cast(Tensor, values[node.all_input_nodes[-1]])
        return output, torch.stack(deviations) if deviations else output.new_zeros(0)
