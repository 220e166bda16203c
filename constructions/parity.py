"""Parity: at every position, does its token occur an even or an odd number of times in the sequence?"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from constructions import parity_arrays
from constructions.errors import BadInput, shown
from constructions.files import check_stated, read_tensors, state_bytes, stated_length
from constructions.histogram_sizes import LONGEST
from constructions.layouts import hint
from constructions.model_arrays import name_of

METADATA_KEY = "weightproof"
NAMES = ("E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class ParityTransformer(nn.Module):
    """One layer of linear attention, one residual connection, one ReLU layer, and two classes: even 0, odd 1.

    Claim: W-12. A zero model; the builder fills in the weights.
    Shapes: E (T, d); W_Q, W_K (d, d); W_1 (d, p); b_1 (p,); W_2 (p, 2); b_2 (2,).
    """

    def __init__(self, *, T: int, L: int, d: int, p: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.T, self.L, self.d, self.p = T, L, d, p

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype))

        self.E = zeros(T, d)
        self.W_Q, self.W_K = zeros(d, d), zeros(d, d)
        self.W_1, self.b_1 = zeros(d, p), zeros(p)
        self.W_2, self.b_2 = zeros(p, 2), zeros(2)

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., L, 2) of tokens (..., L) in 0..T-1."""
        x = self.E[tokens]
        mixed_token = x + (x @ self.W_Q) @ (x @ self.W_K).transpose(-1, -2) @ x
        hidden = torch.relu(mixed_token @ self.W_1 + self.b_1)
        return hidden @ self.W_2 + self.b_2


def sawtooth(*, T: int, L: int, dtype: torch.dtype = torch.float64) -> ParityTransformer:
    """Builds weights that tell even from odd counts: attention counts the own token, neurons fold the count.

    Claim: W-12 (ours), as constructions.parity_arrays.sawtooth says.
    Shapes: d = T + 1, p = max(1, L - 1).
    Raises: BadInput for sizes below 1 or beyond memory.

    >>> sawtooth(T=3, L=4)(torch.tensor([[2, 0, 2, 2]])).argmax(-1)
    tensor([[1, 1, 1, 1]])
    """
    return parity_arrays.sawtooth(T=T, L=L, dtype=name_of(dtype)).made(ParityTransformer)


def as_bytes(module: ParityTransformer) -> bytes:
    """The safetensors file of a model, its sizes in the metadata.

    >>> as_bytes(sawtooth(T=3, L=4)) == as_bytes(sawtooth(T=3, L=4))
    True
    """
    return state_bytes(module, METADATA_KEY, {"L": module.L, "T": module.T, "d": module.d, "p": module.p})


def load(path: str | Path, *, L: int | None = None) -> ParityTransformer:
    """Reads a model from safetensors or a state dict; L where the file does not say it.

    Raises: BadInput for any other file, and where L is needed and missing.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    ...     Path(file.name).write_bytes(as_bytes(sawtooth(T=3, L=4))) > 0
    ...     load(file.name).L
    True
    4
    """
    what = f"weights={str(path)!r}"
    tensors, header = read_tensors(path, METADATA_KEY, ("E",))
    E, W_1 = tensors.get("E"), tensors.get("W_1")
    missing = [name for name in NAMES if name not in tensors]
    if missing or E is None or W_1 is None or E.dim() != 2 or W_1.dim() != 2:
        said = hint(NAMES, tensors)
        raise BadInput(f"{what}: is no ParityTransformer, whose tensors are {', '.join(NAMES)}.{said}")
    length = stated_length(header, what) if L is None else L
    if length is None:
        raise BadInput(f"{what}: does not say its length. Add --L.")
    if type(length) is not int or not 1 <= length <= LONGEST:
        raise BadInput(f"L={shown(length)}: must be a whole number from 1 to {LONGEST}")
    if E.dtype not in DTYPES or any(tensors[name].dtype != E.dtype for name in NAMES):
        raise BadInput(f"{what}: its tensors must all have one of the dtypes {', '.join(map(str, DTYPES))}.")
    check_stated(header, {"T": len(E), "d": E.shape[1], "p": W_1.shape[1]}, what)
    module = ParityTransformer(T=len(E), L=length, d=E.shape[1], p=W_1.shape[1], dtype=E.dtype)
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if expected != found:
        raise BadInput(f"{what}: holds {found}; a ParityTransformer of this T, d and p has {expected}.")
    module.load_state_dict(tensors)
    return module
