"""Recurrences of positive decays, as in one layer of Mamba, RWKV-v6 and S4, and counters made of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.files import check_stated, read_tensors, state_bytes
from constructions.model_arrays import modules
from constructions.recurrent import gated_arrays
from constructions.recurrent.arrays import METADATA_KEY
from constructions.recurrent.arrays import TABLES as TABLES


class MambaCell(nn.Module):
    """h' = exp(-D_x e^A) h + D_x B_x with the step D_x = softplus(d_x), and reads y = C_x h: Mamba's selective scan.

    Left out: the convolution before it, the low rank of d, the feedthrough D x, the gate SiLU(z), normalisation and the
    projections. Each channel has one state, and its input is 1; d, B and C are tables of the token.
    Shapes: A (d,), delta, B, C (K, d).
    """

    def __init__(self, A: Tensor, delta: Tensor, B: Tensor, C: Tensor) -> None:
        super().__init__()
        self.A, self.delta, self.B, self.C = (nn.Parameter(x) for x in (A, delta, B, C))

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each token keeps, adds and reads of each state (K, d)."""
        step = nn.functional.softplus(self.delta)
        return torch.exp(-step * torch.exp(self.A)), step * self.B, self.C


class RwkvCell(nn.Module):
    """h' = exp(-e^(w_x)) h + k_x v_x, and reads y = r_x h: the time mixing of one RWKV-v6 head with values of size 1.

    Left out: token shift, the low rank of w, the bonus u of the current token (which is in h here), GroupNorm, the gate
    and the projections; w, k, v and r are tables of the token.
    Shapes: w, k, v, r (K, d).
    """

    def __init__(self, w: Tensor, k: Tensor, v: Tensor, r: Tensor) -> None:
        super().__init__()
        self.w, self.k, self.v, self.r = (nn.Parameter(x) for x in (w, k, v, r))

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each token keeps, adds and reads of each state (K, d)."""
        return torch.exp(-torch.exp(self.w)), self.k * self.v, self.r


class DiagonalCell(nn.Module):
    """h' = a h + u_x, and reads y = c h: a diagonal state space (S4, S4D-Real) whose input is an embedding.

    Left out: the discretisation that a comes from, complex rates, the feedthrough D x, GLU and normalisation.
    Shapes: a, c (d,), u (K, d).
    """

    def __init__(self, a: Tensor, u: Tensor, c: Tensor) -> None:
        super().__init__()
        self.a, self.u, self.c = (nn.Parameter(x) for x in (a, u, c))

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each token keeps, adds and reads of each state (K, d)."""
        return self.a.expand_as(self.u), self.u, self.c.expand_as(self.u)


LAYER = ("layer.W", "layer.U")
OF_ONE = {"mamba": ("cell.A",), "rwkv": (), "s4": ("cell.a", "cell.c")}  # that have no row a token
KINDS = {MambaCell: "mamba", RwkvCell: "rwkv", DiagonalCell: "s4"}
CELLS = {kind: cell for cell, kind in KINDS.items()}
Cell = MambaCell | RwkvCell | DiagonalCell


class PositionWise(nn.Module):
    """z = ReLU(W y + U_x), token by token: p neurons that see what the recurrence says, and the token x.

    What a block has after its recurrence, of which the residual stream shows it the token as well: channel mixing in
    RWKV, an activation and GLU in S4. Mamba's block has nothing there; the gate of a second block is such a layer.
    Left out: the square of RWKV's ReLU, GELU, SiLU and GLU in its place, the second matrix, which the readout is, and
    normalisation.
    Shapes: W (p, d), U (K, p).
    """

    def __init__(self, W: Tensor, U: Tensor) -> None:
        super().__init__()
        self.W, self.U = nn.Parameter(W), nn.Parameter(U)

    def forward(self, y: Tensor, tokens: Tensor) -> Tensor:
        return torch.relu(y @ self.W.T + self.U[tokens])


class GatedModel(nn.Module):
    """One layer of such a cell from the state 0, and logits = V y + b at every token, or V z + b of a layer of neurons.

    Shapes: readout (classes, d or p); tokens (batch, n) -> logits (batch, n, classes).
    """

    layers, types, embedding = 1, None, None

    def __init__(self, cell: Cell, V: Tensor, b: Tensor, layer: PositionWise | None = None) -> None:
        super().__init__()
        self.kind = KINDS[type(cell)]
        self.cell, self.layer = cell, layer
        self.inputs, self.hidden = cell.tables()[0].shape
        self.vocabulary, self.classes = self.inputs, len(b)
        self.readout = nn.Linear(V.shape[1], len(b), dtype=V.dtype)
        self.readout.weight, self.readout.bias = nn.Parameter(V), nn.Parameter(b)
        self.requires_grad_(False)

    @classmethod
    def zeros(
        cls, *, kind: str, inputs: int, hidden: int, classes: int, neurons: int, dtype: torch.dtype
    ) -> GatedModel:
        """A model of these sizes whose numbers are all 0; without neurons for 0 of them."""

        def of(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=dtype)

        cell = CELLS[kind](
            *(of(hidden) if f"cell.{name}" in OF_ONE[kind] else of(inputs, hidden) for name in TABLES[kind])
        )
        layer = PositionWise(of(neurons, hidden), of(inputs, neurons)) if neurons else None
        return cls(cell, of(classes, neurons or hidden), of(classes), layer)

    @property
    def dtype(self) -> torch.dtype:
        return self.readout.weight.dtype

    @property
    def activation(self) -> str:
        """That of the neurons."""
        return "none" if self.layer is None else "relu"

    def step(self, h: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The state after one more token (batch,), and what the readout sees of it: (batch, d), and (batch, d or p)."""
        keep, add, read = (table[tokens] for table in self.cell.tables())
        h = keep * h + add
        y = read * h
        return h, y if self.layer is None else self.layer(y, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        h, said = torch.zeros(len(tokens), self.hidden, dtype=self.dtype), []
        for t in range(tokens.shape[1]):
            h, y = self.step(h, tokens[:, t])
            said.append(self.readout(y))
        return torch.stack(said, dim=1)


decays = modules(gated_arrays.decays, GatedModel)
counters = modules(gated_arrays.counters, GatedModel)
starting = modules(gated_arrays.starting, GatedModel)
layered = modules(gated_arrays.layered, GatedModel)


def as_bytes(model: GatedModel) -> bytes:
    """The safetensors file of a model, its kind in the metadata.

    >>> model = decays(kind="mamba", m=4, s=3, N=8)
    >>> as_bytes(model) == as_bytes(model)
    True
    """
    return state_bytes(model, METADATA_KEY, {"model": model.kind})


def load(path: str | Path, *, kind: str) -> GatedModel:
    """Reads a trained cell: a state dict of GatedModel, whose tables have a row a token, and its neurons, if any.

    Raises: BadInput for any other file, naming the first key that is missing, not expected, or of another shape.

    >>> load("absent.pt", kind="mamba")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='absent.pt': no such file. Check the path.
    """
    what = f"weights={str(path)!r}"
    tensors, header = read_tensors(path, METADATA_KEY)
    names = TABLES[kind]
    must = (*(f"cell.{name}" for name in names), "readout.weight", "readout.bias")
    how = f"Save the state dict of a GatedModel with --model {kind}: {', '.join(must)}"
    has_layer = any(key in tensors for key in LAYER)
    must = (*must, *LAYER) if has_layer else must
    for key in (*must, *sorted(tensors)):
        if key not in tensors or key not in must:
            raise BadInput(f"{what}: {'has no' if key in must else 'also has'} {key}. {how}.")
    check_stated(header, {"model": kind}, what)
    for key in must:
        value, first = tensors[key], tensors[must[0]]
        if not value.is_floating_point() or value.dtype != first.dtype or not bool(value.isfinite().all()):
            raise BadInput(f"{what}: {key} is {value.dtype}; all must be finite, of one floating dtype. {how}.")
    V, b = tensors["readout.weight"], tensors["readout.bias"]
    rows = tensors[f"cell.{names[1]}"]
    K, d = rows.shape if rows.dim() == 2 else (0, 0)
    p = d if not has_layer else tensors["layer.W"].shape[0]
    shapes = {f"cell.{name}": (d,) if f"cell.{name}" in OF_ONE[kind] else (K, d) for name in names}
    shapes |= {"readout.weight": (len(V), p), "readout.bias": (len(V),)}
    shapes |= {"layer.W": (p, d), "layer.U": (K, p)} if has_layer else {}
    for key, shape in shapes.items():
        if tuple(tensors[key].shape) != shape or 0 in shape:
            raise BadInput(f"{what}: {key} has shape {tuple(tensors[key].shape)}, and must have {shape}. {how}.")
    layer = PositionWise(*(tensors[key] for key in LAYER)) if has_layer else None
    return GatedModel(CELLS[kind](*(tensors[f"cell.{name}"] for name in names)), V, b, layer)
