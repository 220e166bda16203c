"""Recurrent networks with what people put round them: input projections, LSTM projections, LayerNorm, an MLP head."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from constructions.errors import BadInput, shown
from constructions.files import read_tensors, state_bytes
from constructions.recurrent.model import KINDS, METADATA_KEY, MOST_STATE, PART, as_layers

EPS = 1e-5  # of nn.LayerNorm, which a state dict does not say
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
}
OF_MINGRU = re.compile(r"(?:(.*)\.)?to_hidden_and_gate\.weight$")
SHRINKS = re.compile(r"(?:(.*)\.)?weight_hr_l(\d+)$")
FIRST = re.compile(r"(?:^|[._])(?:in|inp|input|inputs|encoder|embed|embedding)(?=[._]|$)")
HOW_TO_SAVE = (
    "Save the state dict of a module with one nn.RNN, nn.GRU, nn.LSTM or minGRU, at most one nn.Embedding, one "
    "nn.Linear before it (input_proj), one nn.LayerNorm after it (norm), and a head of nn.Linear layers (head.0, "
    "head.2, ..)"
)
State = Tensor | tuple[Tensor, Tensor]


class StackedModel(nn.Module):
    """Tokens, embedded or one-hot, an input projection, layers of cells, LayerNorm, and a head: one step at a time.

    `into` is what the input projection reads, and None where there is none; `shrunk` is nn.LSTM's proj_size; `head` are
    the widths between the cells and the classes. With one number as input, it is the constant 1.
    Shapes: forward(state, token (1,)) -> (state, logits (1, classes)).

    >>> model = StackedModel("lstm", hidden=4, shrunk=2, classes=3, head=(5,), norm=True)
    >>> model(model.start, torch.tensor([0]))[1].shape
    torch.Size([1, 3])
    """

    def __init__(
        self,
        kind: str,
        *,
        hidden: int,
        classes: int,
        inputs: int = 1,
        layers: int = 1,
        shrunk: int = 0,
        types: int | None = None,
        into: int | None = None,
        norm: bool = False,
        head: Sequence[int] = (),
        activation: str = "relu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.kind, self.hidden, self.classes, self.layers = kind, hidden, classes, layers
        self.inputs, self.shrunk, self.types, self.into, self.activation = inputs, shrunk, types, into, activation
        read = inputs if into is None else into
        self.embedding = None if types is None else nn.Embedding(types, read, dtype=dtype)
        self.input_proj = None if into is None else nn.Linear(into, inputs, dtype=dtype)
        more = {"proj_size": shrunk} if kind == "lstm" else {}
        cells: dict[str, Any] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM, "mingru": MinGRU}
        self.cell = cells[kind](inputs, hidden, layers, batch_first=True, dtype=dtype, **more)
        widths = (shrunk or hidden, *head, classes)
        self.norm = nn.LayerNorm(widths[0], eps=EPS, dtype=dtype) if norm else None
        self.head = nn.ModuleList(nn.Linear(a, b, dtype=dtype) for a, b in itertools.pairwise(widths))
        self.requires_grad_(False)
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        return self.head[0].weight.dtype  # type: ignore[return-value]

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self.types or (self.inputs if self.into is None else self.into)

    @property
    def start(self) -> State:
        """The state 0 of all layers."""
        h = torch.zeros(self.layers, 1, self.shrunk or self.hidden, dtype=self.dtype)
        return (h, torch.zeros(self.layers, 1, self.hidden, dtype=self.dtype)) if self.kind == "lstm" else h

    def forward(self, state: State, token: Tensor) -> tuple[State, Tensor]:
        if self.embedding is not None:
            x = self.embedding(token)
        elif self.vocabulary == 1:
            x = torch.ones(1, 1, dtype=self.dtype)
        else:
            x = nn.functional.one_hot(token, self.vocabulary).to(self.dtype)
        x = x if self.input_proj is None else self.input_proj(x)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
            y, state = self.cell(x[None], state)
        y = y[0] if self.norm is None else self.norm(y[0])
        for linear in self.head[:-1]:
            y = ACTIVATIONS[self.activation](linear(y))
        return state, self.head[-1](y)


class MinGRU(nn.Module):
    """minGRU (Feng et al. 2024): z = sigmoid(G x), n = g(W x), h' = h + z (n - h).

    g(a) is a + 1/2 from 0 on, and sigmoid(a) below. The rows of the weight are those of W, and then of G, without
    biases: the layout of minGRU-pytorch.
    Shapes: x (1, n, inputs), h (1, 1, units) -> (1, n, units), and the last of these.
    """

    def __init__(self, inputs: int, units: int, layers: int, batch_first: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.to_hidden_and_gate = nn.Linear(inputs, 2 * units, bias=False, dtype=dtype)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        said = []
        for t in range(x.shape[1]):
            n, gate = self.to_hidden_and_gate(x[:, t : t + 1]).chunk(2, dim=-1)
            n = torch.where(n >= 0, n + 0.5, torch.sigmoid(n))
            h = h + torch.sigmoid(gate) * (n - h)
            said.append(h)
        return torch.cat(said, dim=1), h


@dataclass(frozen=True)
class Found:
    """What stands beside the cells of a state dict, by its stem: layers before and after them."""

    embedding: str | None
    first: str | None
    norm: str | None
    head: tuple[str, ...]


def is_stacked(tensors: dict[str, Tensor]) -> bool:
    """Whether a state dict has cells, and something that `recurrent.model` does not read.

    >>> is_stacked({"rnn.weight_ih_l0": torch.zeros(2, 1), "out.weight": torch.zeros(2, 2), "out.bias": torch.zeros(2)})
    False
    """
    if any(OF_MINGRU.match(key) for key in tensors):
        return True
    others = {key: value for key, value in tensors.items() if not PART.match(key)}
    biases = [key for key, value in others.items() if value.dim() == 1 and key.endswith("bias")]
    return len(others) < len(tensors) and (len(biases) > 1 or any(SHRINKS.match(key) for key in others))


def is_stacked_file(path: str | Path) -> bool:
    """Whether a file holds such a state dict."""
    tensors, _ = read_tensors(path, METADATA_KEY)
    return is_stacked(as_layers(tensors, f"weights={str(path)!r}"))


def load(path: str | Path, *, kind: str | None = None, activation: str | None = None) -> StackedModel:
    """Reads a network whose file `is_stacked_file`.

    `activation` is what lies between the layers of the head.
    Raises: BadInput where the layers do not follow one another, or the file does not say which is which.
    """
    what = f"weights={str(path)!r}"
    tensors, header = read_tensors(path, METADATA_KEY)
    tensors = as_layers(tensors, what)
    cell = {name: value for key, value in tensors.items() if (name := _cell_name(key)) is not None}
    others = {key: value for key, value in tensors.items() if _cell_name(key) is None}
    stems = {key.removesuffix(_cell_name(key) or "") for key in tensors if _cell_name(key) is not None}
    reverse = next((key for key in tensors if key.endswith("_reverse")), None)
    if len(stems) > 1 or reverse is not None:
        found = ", ".join(sorted(stems)) if reverse is None else reverse
        raise BadInput(f"{what}: holds several recurrent networks, or a second direction ({found}). {HOW_TO_SAVE}.")
    layers, of_kind, hidden, inputs, shrunk = _sizes(cell, what)
    if kind is not None and kind != of_kind:
        raise BadInput(f"{what}: its cells are those of --model {of_kind}, not {kind}. Name --model {of_kind}.")
    for key, value in tensors.items():
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise BadInput(f"{what}: {key} is {value.dtype} or not finite. Save finite weights of one floating dtype.")
    beside = _beside(others, shrunk or hidden, inputs, what)
    widths = [others[f"{stem}.weight"].shape[0] for stem in beside.head]
    said = header.get("activation")
    activation = activation or (said if isinstance(said, str) else None)
    if len(widths) > 1 and activation not in ACTIVATIONS:
        named = ", ".join(beside.head)
        why = "a state dict does not say what lies between them" if activation is None else f"not {shown(activation)}"
        raise BadInput(
            f"{what}: the head has {len(widths)} linear layers ({named}), and {why}. Give --activation "
            f"{', '.join(ACTIVATIONS)}."
        )
    embedding = None if beside.embedding is None else others[f"{beside.embedding}.weight"]
    model = StackedModel(
        of_kind, hidden=hidden, classes=widths[-1], inputs=inputs, layers=layers, shrunk=shrunk,
        types=None if embedding is None else len(embedding),
        into=None if beside.first is None else others[f"{beside.first}.weight"].shape[1],
        norm=beside.norm is not None, head=widths[:-1], activation=activation or "relu",
        dtype=others[f"{beside.head[0]}.weight"].dtype,
    )  # fmt: skip
    stems_of = {"embedding": beside.embedding, "input_proj": beside.first, "norm": beside.norm}
    stems_of |= {f"head.{i}": stem for i, stem in enumerate(beside.head)}
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    state |= {f"cell.{name}": value for name, value in cell.items()}
    for own, stem in stems_of.items():
        parts = ("weight",) if own == "embedding" else ("weight", "bias")
        state |= {} if stem is None else {f"{own}.{part}": others[f"{stem}.{part}"] for part in parts}
    _check_shapes(model, state, what)
    model.load_state_dict(state)
    return model


def _check_shapes(model: StackedModel, state: dict[str, Tensor], what: str) -> None:
    due = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name, value in state.items():
        if due.get(name) != tuple(value.shape):
            raise BadInput(f"{what}: {name} has shape {tuple(value.shape)}, and must have {due.get(name)}.")
        if value.dtype != model.dtype:
            raise BadInput(f"{what}: {name} is {value.dtype}, the head {model.dtype}. Save one floating dtype.")


def _cell_name(key: str) -> str | None:
    """weight_ih_l0, weight_hr_l0, to_hidden_and_gate.weight and so on, None for what is no part of the cells."""
    if match := PART.match(key):
        return f"{match[2]}_{match[3]}_l{match[4]}"
    if OF_MINGRU.match(key):
        return "to_hidden_and_gate.weight"
    return f"weight_hr_l{match[2]}" if (match := SHRINKS.match(key)) else None


def _sizes(cell: dict[str, Tensor], what: str) -> tuple[int, str, int, int, int]:
    """Layers, kind, hidden units, inputs and the size of projections, 0 where there are none."""
    if "to_hidden_and_gate.weight" in cell:
        rows, read = cell["to_hidden_and_gate.weight"].shape if cell["to_hidden_and_gate.weight"].dim() == 2 else (1, 0)
        if len(cell) > 1 or rows % 2 or not rows * read or rows > MOST_STATE:
            raise BadInput(
                f"{what}: to_hidden_and_gate.weight is {rows}x{read}; rows must be twice the units, at most "
                f"{MOST_STATE // 2} of them, and no other cells beside it. {HOW_TO_SAVE}."
            )
        return 1, "mingru", rows // 2, read, 0
    layers = 1 + max(int(name.rpartition("_l")[2]) for name in cell)
    for name in (f"{part}_l{k}" for k in range(layers) for part in ("weight_ih", "weight_hh")):
        if name not in cell or cell[name].dim() != 2 or not cell[name].numel():
            raise BadInput(f"{what}: has no matrix {name}. {HOW_TO_SAVE}.")
    rows, read = cell["weight_hh_l0"].shape
    if "weight_hr_l0" in cell:
        shrunk, hidden = cell["weight_hr_l0"].shape if cell["weight_hr_l0"].dim() == 2 else (0, 0)
        kind = "lstm" if shrunk == read and rows == 4 * hidden and 0 < shrunk < hidden else None
    else:
        shrunk, hidden = 0, read
        kind = next((kind for kind, gates in KINDS.items() if rows == gates * hidden), None)
    if kind is None:
        raise BadInput(
            f"{what}: weight_hh_l0 is {rows}x{read}; rows must be 1, 3 or 4 times the units, and columns the units, or "
            f"what weight_hr_l0 projects them to. {HOW_TO_SAVE}."
        )
    if 2 * hidden * layers > MOST_STATE:
        raise BadInput(f"{what}: {layers} layers of {hidden} units; at most {MOST_STATE // 2} units are decided.")
    return layers, kind, hidden, cell["weight_ih_l0"].shape[1], shrunk


def _beside(others: dict[str, Tensor], width: int, inputs: int, what: str) -> Found:
    """Which layers stand before and after the cells, whose output has `width` numbers."""
    stems = dict.fromkeys(key.rpartition(".")[0] for key in others)
    shapes = {stem: _shape(others, stem) for stem in stems}
    linears = [stem for stem in stems if shapes[stem] == (2, 1)]
    norms, tables = ([stem for stem in stems if shapes[stem] == shape] for shape in ((1, 1), (2, None)))
    odd = [stem for stem in stems if stem not in (*linears, *norms, *tables)]
    named = ", ".join(sorted(others)) or "nothing"
    if odd or len(norms) > 1 or len(tables) > 1:
        raise BadInput(
            f"{what}: beside the cells there is {named}; {(odd or norms or tables)[-1]} is not read. {HOW_TO_SAVE}."
        )
    first = [stem for stem in linears if FIRST.search(stem) and others[f"{stem}.weight"].shape[0] == inputs]
    if len(first) > 1:
        raise BadInput(f"{what}: {' and '.join(first)} may both be the input projection. {HOW_TO_SAVE}.")
    head = _chain([stem for stem in linears if stem not in first], others, width, what)
    table = tables[0] if tables else None
    into = others[f"{first[0]}.weight"].shape[1] if first else inputs
    if table is not None and others[f"{table}.weight"].shape[1] != into:
        columns = others[f"{table}.weight"].shape[1]
        raise BadInput(f"{what}: {table}.weight has {columns} columns, and what reads it {into} inputs. {HOW_TO_SAVE}.")
    if norms and _comes_late(norms[0], head):
        raise BadInput(f"{what}: {norms[0]} stands inside the head; LayerNorm is read before it alone. {HOW_TO_SAVE}.")
    return Found(table, first[0] if first else None, norms[0] if norms else None, head)


def _shape(others: dict[str, Tensor], stem: str) -> tuple[int | None, int | None]:
    """How many axes weight and bias have; None for what is not there."""
    parts = [others.get(f"{stem}.{part}") for part in ("weight", "bias")]
    own = [key for key in others if key.rpartition(".")[0] == stem]
    if len(own) > sum(part is not None for part in parts):
        return None, None
    weight, bias = (None if part is None else part.dim() for part in parts)
    return weight, bias


def _chain(stems: list[str], others: dict[str, Tensor], width: int, what: str) -> tuple[str, ...]:
    """The layers of the head in the only order in which they follow one another, or in that of their numbers."""
    shapes = {stem: tuple(others[f"{stem}.weight"].shape) for stem in stems}

    def fits(order: Sequence[str]) -> bool:
        sizes = [width, *(shapes[stem][0] for stem in order)]
        return all(shapes[stem][1] == size for stem, size in zip(order, sizes, strict=False))

    orders = [order for order in itertools.permutations(stems) if fits(order)] if 0 < len(stems) <= 5 else []
    by_number = tuple(sorted(stems, key=_natural))
    if len(orders) == 1:
        return orders[0]
    if by_number in orders and len({re.sub(r"\d+", "#", stem) for stem in stems}) == 1:
        return by_number
    listed = ", ".join(f"{stem} ({shapes[stem][1]} to {shapes[stem][0]})" for stem in by_number) or "none"
    why = "may follow one another in several orders" if orders else f"do not follow one another from {width} numbers"
    raise BadInput(f"{what}: the linear layers after the cells, {listed}, {why}. {HOW_TO_SAVE}.")


def _natural(stem: str) -> list[Any]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", stem)]


def _comes_late(norm: str, head: tuple[str, ...]) -> bool:
    """Whether a norm's number says that it stands after a layer of the head."""
    same = [stem for stem in head if re.sub(r"\d+", "#", stem) == re.sub(r"\d+", "#", norm)]
    return any(_natural(stem) < _natural(norm) for stem in same)


def as_bytes(model: StackedModel) -> bytes:
    """The safetensors file of a model, its kind and the head's activation in the metadata."""
    return state_bytes(model, METADATA_KEY, {"activation": model.activation, "model": model.kind})
