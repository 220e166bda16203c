"""The one-layer transformer block that all histogram propositions speak of."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from constructions.errors import BadInput, shown
from constructions.histogram_sizes import MODELS as MODELS
from constructions.histogram_sizes import check_memory as check_memory
from constructions.histogram_sizes import check_sizes as check_sizes
from constructions.model_arrays import name_of

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class HistogramTransformer(nn.Module):
    """One token-mixing layer, one residual connection, one ReLU layer: counts each token of its sequence.

    Claim: A, Sec. 2, eq. 1-3. A zero model; the builders fill in the weights, and what they leave is
    the zero padding of A-pad.
    Shapes: E (T, d); e_BOS (d,) for bos; A (L, L) for lin; W_Q, W_K (d, d) for dot and bos;
        W_1 (d, p); b_1 (p,); W_2 (p, C); b_2 (C,), where class c stands for the count c + first_count.
    Raises: BadInput for an unknown model or a size that makes no sense.

    >>> model = HistogramTransformer("dot", T=3, L=4, d=3, p=1)
    >>> model(torch.tensor([[0, 1, 1, 2]])).shape
    torch.Size([1, 4, 4])
    """

    def __init__(
        self,
        model: str,
        *,
        T: int,
        L: int,
        d: int,
        p: int,
        classes: int | None = None,
        first_count: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_sizes(model, T=T, L=L, d=d, p=p)
        check_dtype(dtype)
        classes = L if classes is None else classes
        check_memory(T * d + (L * L if model.startswith("lin") else 2 * d * d) + p * (d + classes))
        if classes < L + 1 - first_count:
            raise BadInput(
                f"classes={classes}: the counts 1..{L} need at least {L + 1 - first_count} classes "
                f"when class 0 is the count {first_count}"
            )
        self.model, self.T, self.L, self.d, self.p = model, T, L, d, p
        self.first_count = first_count
        self.is_softmax = model.endswith("+sftm")
        self.is_linear = model.startswith("lin")
        self.has_bos = model.startswith("bos")

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype))

        self.E = zeros(T, d)
        if self.has_bos:
            self.e_BOS = zeros(d)
        if self.is_linear:
            self.A = zeros(L, L)
        else:
            self.W_Q = zeros(d, d)
            self.W_K = zeros(d, d)
        self.W_1, self.b_1 = zeros(d, p), zeros(p)
        self.W_2, self.b_2 = zeros(p, classes), zeros(classes)

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., L, C) of tokens (..., L) in 0..T-1; a model with BOS puts it in front itself."""
        x = self.E[tokens]
        context = x
        if self.has_bos:
            context = torch.cat([self.e_BOS.expand(*x.shape[:-2], 1, self.d), x], dim=-2)
        mixed_token = x + self.mixing(x, context) @ context
        hidden = torch.relu(mixed_token @ self.W_1 + self.b_1)
        return hidden @ self.W_2 + self.b_2

    def mixing(self, x: Tensor, context: Tensor) -> Tensor:
        """The token mixing matrix: A itself, or the scores of every query against every key."""
        scores: Tensor = self.A if self.is_linear else self._scores(x, context)
        return torch.softmax(scores, dim=-1) if self.is_softmax else scores

    def _scores(self, x: Tensor, context: Tensor) -> Tensor:
        return (x @ self.W_Q) @ (context @ self.W_K).transpose(-2, -1) / math.sqrt(self.d)

    def predict(self, tokens: Tensor) -> Tensor:
        """The predicted count at every position."""
        result: Tensor = self(tokens).argmax(-1) + self.first_count
        return result

    def fill(self, **weights: Tensor) -> HistogramTransformer:
        """Writes each named weight, rounded once to the dtype, into the leading block; the rest is padding.

        Rounding from float64 to a 16-bit format goes through torch's cast, which may round twice; the
        verifier judges the stored result, so this affects quality and never truth.
        """
        with torch.no_grad():
            for name, value in weights.items():
                parameter = getattr(self, name)
                block = tuple(slice(0, n) for n in value.shape)
                parameter[block] = value.to(parameter.dtype)
        return self

    def _repr_html_(self) -> str:
        """The stored matrices, drawn, for notebooks."""
        from constructions.drawing import matrices

        return matrices(f"HistogramTransformer({self.extra_repr()})", dict(self.named_parameters()))

    def extra_repr(self) -> str:
        return f"{self.model}, T={self.T}, L={self.L}, d={self.d}, p={self.p}, dtype={self.dtype}"


def check_dtype(dtype: torch.dtype) -> None:
    """Raises BadInput for what is no floating point dtype.

    >>> check_dtype(torch.int64)
    Traceback (most recent call last):
    constructions.errors.BadInput: dtype=torch.int64: must be a floating point dtype, such as torch.float64,
    torch.float32, torch.bfloat16, torch.float16
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BadInput(f"dtype={shown(dtype)}: must be a floating point dtype, such as torch.{', torch.'.join(DTYPES)}")


def named(dtype: torch.dtype) -> str:
    """The name by which a builder of arrays knows a floating point dtype.

    Raises: BadInput for another one.

    >>> named(torch.bfloat16)
    'bfloat16'
    """
    check_dtype(dtype)
    return name_of(dtype)
