"""A recurrent network and a linear readout, as torch runs them, and how it is read from and written to a file."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from constructions.errors import BadInput, shown
from constructions.files import check_stated, read_tensors, state_bytes
from constructions.layouts import likeness
from constructions.recurrent.arrays import ACTIVATIONS as ACTIVATIONS
from constructions.recurrent.arrays import KINDS as KINDS
from constructions.recurrent.arrays import METADATA_KEY as METADATA_KEY

OF_CELL = re.compile(r"(?:(.*)\.)?((?:weight|bias)_(?:ih|hh))$")
PART = re.compile(r"(?:(.*)\.)?(weight|bias)_(ih|hh)_l(\d+)$")
HOW_TO_SAVE = "Save the state dict of a module with one nn.RNN, nn.GRU or nn.LSTM and one nn.Linear"
MOST_STATE = 1024


class RecurrentModel(nn.Module):
    """Layers of RNN, GRU or LSTM cells from the state 0, and logits = W h + b of the last layer's h at every token.

    Tokens are embedded where there is an embedding, and one-hot otherwise; with one input, it is the constant 1.
    Shapes: tokens (batch, n) -> logits (batch, n, classes).

    >>> RecurrentModel("lstm", hidden=3, classes=10)(torch.zeros(1, 5, dtype=torch.long)).shape
    torch.Size([1, 5, 10])
    """

    def __init__(
        self,
        kind: str,
        *,
        hidden: int,
        classes: int,
        inputs: int = 1,
        layers: int = 1,
        types: int | None = None,
        activation: str = "tanh",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.kind, self.hidden, self.classes, self.layers = kind, hidden, classes, layers
        self.inputs, self.types, self.activation = inputs, types, activation
        shape = {"input_size": inputs, "hidden_size": hidden, "num_layers": layers, "batch_first": True}
        if kind == "rnn":
            self.cell: nn.RNNBase = nn.RNN(**shape, nonlinearity=activation, dtype=dtype)
        else:
            self.cell = {"gru": nn.GRU, "lstm": nn.LSTM}[kind](**shape, dtype=dtype)
        self.embedding = None if types is None else nn.Embedding(types, inputs, dtype=dtype)
        self.readout = nn.Linear(hidden, classes, dtype=dtype)
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.readout.weight.dtype

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self.types or self.inputs

    def embed(self, tokens: Tensor) -> Tensor:
        """The inputs of the first layer: (..., n) -> (..., n, inputs)."""
        if self.embedding is not None:
            embedded: Tensor = self.embedding(tokens)
            return embedded
        if self.inputs == 1:
            return torch.ones(*tokens.shape, 1, dtype=self.dtype)
        return nn.functional.one_hot(tokens, self.inputs).to(self.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.readout(self.cell(self.embed(tokens))[0])
        return logits


def as_bytes(model: RecurrentModel) -> bytes:
    """The safetensors file of a model, its kind in the metadata."""
    return state_bytes(model, METADATA_KEY, {"activation": model.activation, "model": model.kind})


def load(path: str | Path, *, kind: str | None = None, activation: str | None = None) -> RecurrentModel:
    """Reads a trained network: keys that end in weight_ih_l0, weight_hh_l0, ..., one linear readout, and an embedding.

    Keys of nn.RNNCell, nn.LSTMCell and nn.GRUCell end in weight_ih: one cell, or a list of cells, each above the last.
    The kind follows from the shapes; `kind` is what they must be. Missing biases are 0.
    Raises: BadInput for any other file, and for more than one direction or a projection.
    """
    what = f"weights={str(path)!r}"
    tensors, header = read_tensors(path, METADATA_KEY)
    tensors = as_layers(tensors, what)
    parts = {key: match for key in tensors if (match := PART.match(key))}
    if not parts:
        odd = next((key for key in tensors if re.search(r"_l\d+_reverse$|weight_hr_l\d+$", key)), None)
        near, but = likeness(tensors), f", but there is {odd}" if odd else ""
        other = "" if near is None else f" {near.said}"
        raise BadInput(f"{what}: no key ends in weight_ih_l0{but}. {HOW_TO_SAVE}.{other}")
    for key in tensors:
        if key.endswith("_reverse") or re.search(r"weight_hr_l\d+$", key):
            raise BadInput(f"{what}: {key} is of a second direction or a projection. {HOW_TO_SAVE}, without them.")
        if not tensors[key].numel():
            raise BadInput(f"{what}: {key} is empty, of shape {tuple(tensors[key].shape)}. {HOW_TO_SAVE}.")
        if not bool(tensors[key].isfinite().all()):
            raise BadInput(f"{what}: {key} holds NaN or infinity. Save finite weights.")
    if len({match[1] for match in parts.values()}) > 1:
        names = ", ".join(sorted({str(match[1]) for match in parts.values()}))
        raise BadInput(f"{what}: holds several recurrent networks ({names}). {HOW_TO_SAVE}.")
    cell = {f"{match[2]}_{match[3]}_l{match[4]}": tensors[key] for key, match in parts.items()}
    layers = 1 + max(int(match[4]) for match in parts.values())
    found, hidden, inputs = _sizes(cell, layers, what)
    if kind is not None and kind != found:
        raise BadInput(f"{what}: weight_hh_l0 is that of --model {found}, not {kind}. Name --model {found}.")
    others = {key: value for key, value in tensors.items() if key not in parts}
    readout, bias, embedding = _others(others, hidden, inputs, what)
    said = header.get("activation")
    if said is not None and (said not in ACTIVATIONS or (found == "rnn" and said != (activation or said))):
        asked = f"activation={activation}" if said in ACTIVATIONS else " or ".join(ACTIVATIONS)
        raise BadInput(f"{what}: the metadata say activation={shown(said)}, not {asked}. Leave --activation out.")
    check_stated(header, {"model": found}, what)
    types = None if embedding is None else len(embedding)
    model = RecurrentModel(
        found, hidden=hidden, classes=len(readout), inputs=inputs, layers=layers, types=types,
        activation=activation or said or "tanh", dtype=readout.dtype,
    )  # fmt: skip
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    state |= {f"cell.{name}": value for name, value in cell.items()}
    state |= {"readout.weight": readout} | ({} if bias is None else {"readout.bias": bias})
    state |= {} if embedding is None else {"embedding.weight": embedding}
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name, value in state.items():
        if shapes.get(name) != tuple(value.shape):
            raise BadInput(f"{what}: {name} has shape {tuple(value.shape)}, and must have {shapes.get(name)}.")
        if value.dtype != model.dtype or not value.dtype.is_floating_point:
            raise BadInput(f"{what}: {name} is {value.dtype}, the readout {model.dtype}. Save one floating dtype.")
    model.load_state_dict(state)
    return model


def as_layers(tensors: dict[str, Tensor], what: str) -> dict[str, Tensor]:
    """The same tensors, those of cells named as the layers of one network.

    Raises: BadInput for several cells that no list holds in order, or cells beside a network.
    """
    found = {key: match for key in tensors if (match := OF_CELL.match(key))}
    places = sorted({match[1] or "" for match in found.values()}, key=lambda place: (len(place), place))
    if len(places) > 1:
        stem = places[0].removesuffix("0")
        if places != [f"{stem}{k}" for k in range(len(places))]:
            raise BadInput(f"{what}: holds several cells ({', '.join(places)}), and no list of them. {HOW_TO_SAVE}.")
    if found and any(PART.match(key) for key in tensors):
        raise BadInput(f"{what}: holds a cell ({places[0]}) beside a recurrent network. {HOW_TO_SAVE}.")
    layer = {place: k for k, place in enumerate(places)}
    named = {key: f"cell.{match[2]}_l{layer[match[1] or '']}" for key, match in found.items()}
    return {named.get(key, key): value for key, value in tensors.items()}


def _sizes(cell: dict[str, Tensor], layers: int, what: str) -> tuple[str, int, int]:
    """Kind, hidden units and inputs, from the first layer's shapes."""
    for layer in range(layers):
        for name in (f"weight_ih_l{layer}", f"weight_hh_l{layer}"):
            if name not in cell or cell[name].dim() != 2:
                raise BadInput(f"{what}: has no matrix {name}. {HOW_TO_SAVE}.")
    rows, hidden = cell["weight_hh_l0"].shape
    kind = next((kind for kind, gates in KINDS.items() if rows == gates * hidden), None)
    if kind is None or hidden < 1:
        raise BadInput(f"{what}: weight_hh_l0 is {rows}x{hidden}; rows must be 1, 3 or 4 times columns. {HOW_TO_SAVE}.")
    if 2 * hidden * layers > MOST_STATE:
        raise BadInput(f"{what}: {layers} layers of {hidden} units; at most {MOST_STATE // 2} units are decided.")
    return kind, hidden, cell["weight_ih_l0"].shape[1]


def _others(
    others: dict[str, Tensor], hidden: int, inputs: int, what: str
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The readout's weight and bias, and the embedding."""
    matrices = {key: value for key, value in others.items() if value.dim() == 2}
    biases = {key: value for key, value in others.items() if value.dim() == 1}
    paired = [key for key in matrices if key.endswith("weight") and f"{key.removesuffix('weight')}bias" in biases]
    named = ", ".join(sorted(others)) or "nothing"
    embeddings: list[str]
    if len(paired) == 1:
        embeddings = [key for key in matrices if key != paired[0]]
    elif not paired and not biases and 1 <= len(matrices) <= 2:  # a readout without a bias
        paired = [key for key in matrices if matrices[key].shape[1] == hidden][-1:]
        embeddings = [key for key in matrices if key not in paired]
    else:
        paired, embeddings = [], []
    extra = set(others) - {*paired, *embeddings, *(f"{key.removesuffix('weight')}bias" for key in paired)}
    if len(paired) != 1 or len(embeddings) > 1 or extra or matrices[paired[0]].shape[1] != hidden:
        raise BadInput(
            f"{what}: beside the recurrent network there is {named}; one linear readout of {hidden} inputs, and at "
            f"most one embedding, are read. {HOW_TO_SAVE}."
        )
    bias = biases.get(f"{paired[0].removesuffix('weight')}bias")
    embedding = matrices[embeddings[0]] if embeddings else None
    if embedding is not None and embedding.shape[1] != inputs:
        raise BadInput(f"{what}: the embedding has {embedding.shape[1]} columns, and the network {inputs} inputs.")
    return matrices[paired[0]], bias, embedding
