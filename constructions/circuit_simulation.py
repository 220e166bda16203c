"""A circuit as the weights of a two-layer transformer that computes it by chain of thought."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from constructions import circuit_simulation_arrays
from constructions.circuit_simulation_arrays import Lanes as Lanes
from constructions.circuit_simulation_arrays import check_sizes
from constructions.circuits.circuit import Circuit
from constructions.constant_bits.arithmetic import FixedPoint


class Layer(nn.Module):
    """One attention head without the scale 1/sqrt(2k), and a feed-forward layer of two neurons.

    Shapes: W_Q, W_K (d, 2k); W_V (d, 1); W_O (1, d); W_1 (d, 2); b_1 (2,); W_2 (2, d); b_2 (d,).
    """

    def __init__(self, k: int, d: int, dtype: torch.dtype) -> None:
        super().__init__()

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype))

        self.W_Q, self.W_K = zeros(d, 2 * k), zeros(d, 2 * k)
        self.W_V, self.W_O = zeros(d, 1), zeros(1, d)
        self.W_1, self.b_1 = zeros(d, 2), zeros(2)
        self.W_2, self.b_2 = zeros(2, d), zeros(d)

    def feed_forward(self, y: Tensor) -> Tensor:
        return y + torch.relu(y @ self.W_1 + self.b_1) @ self.W_2 + self.b_2


class CircuitTransformer(nn.Module):
    """The two-layer transformer of the theorem for a prompt of n tokens and T steps; all weights zero.

    The next token is 1 where coordinate g of the last position exceeds 1/2. What the stored numbers
    compute in s-bit arithmetic is run by `constructions.circuits.machine`; `forward` and `generate` run
    them in the dtype of the weights.
    Claim: E, Thm. 3.4.
    Shapes: E (2, d); P (n+T-1, d), position m numbered from 1 in row m-1; layers as in `Layer`; d = 3k+6.
    Raises: BadInput for sizes or bits that make no sense.

    >>> CircuitTransformer(n=2, T=3, s=2).lanes.d
    15
    """

    def __init__(self, *, n: int, T: int, s: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        check_sizes(n, T)
        self.n, self.T, self.s = n, T, FixedPoint(s).s
        self.lanes = Lanes(k=(T + n - 1).bit_length())
        d = self.lanes.d
        self.E = nn.Parameter(torch.zeros(2, d, dtype=dtype))
        self.P = nn.Parameter(torch.zeros(n + T - 1, d, dtype=dtype))
        self.layers = nn.ModuleList([Layer(self.lanes.k, d, dtype), Layer(self.lanes.k, d, dtype)])

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    @property
    def both(self) -> tuple[Layer, Layer]:
        """The two layers, first the one that retrieves the first input."""
        return cast(Layer, self.layers[0]), cast(Layer, self.layers[1])

    def forward(self, tokens: Tensor) -> Tensor:
        """Coordinate g at every position: (..., L) tokens in {0, 1} -> (..., L), L <= n+T-1."""
        L = tokens.shape[-1]
        x = self.E[tokens] + self.P[:L]
        is_later = torch.ones(L, L, dtype=torch.bool, device=x.device).triu(1)
        for layer in self.both:
            scores = (x @ layer.W_Q) @ (x @ layer.W_K).transpose(-2, -1)
            attention = torch.softmax(scores.masked_fill(is_later, -torch.inf), dim=-1)
            x = layer.feed_forward(x + attention @ (x @ layer.W_V) @ layer.W_O)
        return x[..., self.lanes.g]

    @torch.no_grad()
    def generate(self, prompts: Tensor) -> Tensor:
        """The whole chain of thought, (batch, n) -> (batch, n+T), with cached keys and values.

        Keys that are the same in the whole batch, as they are in the theorem's weights, are kept once.
        """
        tokens = torch.zeros(len(prompts), self.n + self.T, dtype=torch.long, device=self.E.device)
        tokens[:, : self.n] = prompts
        caches = [_Cache(self.n + self.T - 1) for _ in self.both]
        for m in range(self.n + self.T - 1):
            x = self.E[tokens[:, m]] + self.P[m]
            for layer, cache in zip(self.both, caches, strict=True):
                keys, values = cache.extended(m, x @ layer.W_K, x @ layer.W_V)
                q = x @ layer.W_Q
                q = q[:1] if len(keys) == 1 and bool((q == q[:1]).all()) else q
                attention = torch.softmax((keys @ q.unsqueeze(-1)).squeeze(-1), dim=-1)
                if len(attention) == 1:
                    mixed = (attention @ values).T
                else:
                    mixed = (attention.T * values).sum(dim=0).unsqueeze(-1)
                x = layer.feed_forward(x + mixed @ layer.W_O)
            if m + 1 >= self.n:
                tokens[:, m + 1] = x[:, self.lanes.g] > 0.5
        return tokens

    def extra_repr(self) -> str:
        return f"n={self.n}, T={self.T}, k={self.lanes.k}, d={self.lanes.d}, s={self.s}"


class _Cache:
    """Keys (1 or batch, L, 2k) and values (L, batch) of the positions so far."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.keys = self.values = torch.empty(0)

    def extended(self, m: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if m == 0:
            self.keys = k.new_zeros(1, self.length, k.shape[1])
            self.values = v.new_zeros(self.length, len(v))
        if len(self.keys) == 1 and len(k) > 1 and not (k == k[:1]).all():
            self.keys = self.keys.repeat(len(k), 1, 1)
        self.keys[:, m] = k[: len(self.keys)]
        self.values[m] = v[:, 0]
        return self.keys[:, : m + 1], self.values[: m + 1]


def build(circuit: Circuit, *, s: int = 2, as_printed: bool = False) -> CircuitTransformer:
    """The transformer whose chain of thought is the circuit, gate by gate, in s-bit arithmetic.

    Claim: E, Thm. 3.4; constructions.circuit_simulation_arrays.build says what departs, and why it is right.
    Units: weights are 0, 1, -1, -2 and B_s = 2^s - 2^-s, all exact in float32.
    Raises: BadInput for gates other than AND and NOT (`constructions.circuits.circuit.decompose` first).

    >>> from constructions.circuits.circuit import Circuit, Gate
    >>> nand = Circuit("nand", ("x", "y"), (Gate("and", (0, 1), "c"), Gate("not", (2,), "z")), (("z", 3),))
    >>> build(nand, s=8).generate(torch.tensor([[0, 1], [1, 1]]))
    tensor([[0, 1, 0, 1],
            [1, 1, 1, 0]])
    """
    return circuit_simulation_arrays.build(circuit, s=s, as_printed=as_printed).made(CircuitTransformer)
