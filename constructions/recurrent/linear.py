"""Linear recurrences: dense integer state spaces, diagonal ones (S4), and positive decays, as modules of one shape."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from constructions.files import state_bytes
from constructions.recurrent.arrays import METADATA_KEY


class LinearCell(nn.Module):
    """h' = A h + B, token by token; called as torch's cells are, with inputs that it only counts."""

    def __init__(self, A: Tensor, B: Tensor) -> None:
        super().__init__()
        self.A, self.B = nn.Parameter(A), nn.Parameter(B)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = torch.zeros(len(x), len(self.B), dtype=self.B.dtype) if state is None else state
        states = []
        for _ in range(x.shape[1]):
            h = h @ self.A.T + self.B
            states.append(h)
        return torch.stack(states, dim=1), h


class OneTokenModel(nn.Module):
    """A recurrence that counts one repeated token, with a linear readout: abstract, but for what both models share."""

    inputs, layers, types = 1, 1, None
    vocabulary = 1
    activation = "none"

    def __init__(self, cell: nn.Module, V: Tensor, b: Tensor) -> None:
        super().__init__()
        self.cell, self.classes = cell, len(b)
        self.readout = nn.Linear(V.shape[1], len(b), dtype=V.dtype)
        self.readout.weight, self.readout.bias = nn.Parameter(V), nn.Parameter(b)
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.readout.weight.dtype

    def embed(self, tokens: Tensor) -> Tensor:
        """A constant for each token: (..., n) -> (..., n, 1)."""
        return torch.ones(*tokens.shape, 1, dtype=self.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.readout(self.cell(self.embed(tokens))[0])
        return logits


class LinearModel(OneTokenModel):
    """A linear recurrence with a linear readout: what one layer of an SSM does with one repeated token.

    Left out of the real models: the discretisation that A and B come from, gates, convolutions and normalisation.
    Shapes: A (d, d), B (d,), readout (classes, d); tokens (batch, n) -> logits (batch, n, classes).
    """

    cell: LinearCell

    def __init__(self, kind: str, A: Tensor, B: Tensor, V: Tensor, b: Tensor) -> None:
        super().__init__(LinearCell(A, B), V, b)
        self.kind, self.hidden = kind, len(B)

    @classmethod
    def zeros(cls, *, kind: str, hidden: int, classes: int, dtype: torch.dtype) -> LinearModel:
        """A model of these sizes whose numbers are all 0."""
        shapes = ((hidden, hidden), (hidden,), (classes, hidden), (classes,))
        return cls(kind, *(torch.zeros(shape, dtype=dtype) for shape in shapes))


class RotationCell(nn.Module):
    """h' = e^(i omega) h + 1 for each complex state, as its real and imaginary parts."""

    def __init__(self, omega: Tensor) -> None:
        super().__init__()
        self.omega = nn.Parameter(omega)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = torch.zeros(len(x), 2, len(self.omega), dtype=self.omega.dtype) if state is None else state
        cos, sin, states = torch.cos(self.omega), torch.sin(self.omega), []
        for _ in range(x.shape[1]):
            h = torch.stack([cos * h[:, 0] - sin * h[:, 1] + 1, sin * h[:, 0] + cos * h[:, 1]], dim=1)
            states.append(h.flatten(1))
        return torch.stack(states, dim=1), h


class RotationModel(OneTokenModel):
    """S4's diagonal state space with one angle omega a state, and a linear readout of real and imaginary parts.

    Left out of the real model: the discretisation that omega comes from, moduli below 1, D x, GLU and normalisation.
    Shapes: omega (1,), readout (classes, 2); tokens (batch, n) -> logits (batch, n, classes).
    """

    cell: RotationCell
    kind = "s4"

    def __init__(self, omega: Tensor, V: Tensor, b: Tensor) -> None:
        super().__init__(RotationCell(omega), V, b)
        self.hidden = len(omega)

    @classmethod
    def zeros(cls, *, kind: str, hidden: int, classes: int, dtype: torch.dtype) -> RotationModel:
        """A model of these sizes whose numbers are all 0."""
        assert kind == cls.kind
        shapes = ((hidden,), (classes, 2 * hidden), (classes,))
        return cls(*(torch.zeros(shape, dtype=dtype) for shape in shapes))


def as_bytes(model: LinearModel | RotationModel) -> bytes:
    """The safetensors file of a model, its kind in the metadata."""
    return state_bytes(model, METADATA_KEY, {"model": model.kind})
