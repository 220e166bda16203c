"""A circuit as the weights of a two-layer transformer that computes it by chain of thought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from constructions.circuits.circuit import Circuit
from constructions.constant_bits.arithmetic import FixedPoint, largest_value
from constructions.errors import BadInput


@dataclass(frozen=True)
class Lanes:
    """The named coordinates of the residual stream, in the order of the proof: width 3k + 6."""

    k: int

    x: int = 0  # the token at this position
    x_a: int = 1  # the first input of the next gate, retrieved by the first layer
    x_b: int = 2  # its second input, retrieved by the second layer
    g: int = 3  # the next token
    c: int = 4  # the type of the next gate: 0 NOT, 1 AND

    @property
    def id(self) -> slice:
        return slice(5, 5 + self.k)

    @property
    def a(self) -> slice:
        return slice(5 + self.k, 5 + 2 * self.k)

    @property
    def b(self) -> slice:
        return slice(5 + 2 * self.k, 5 + 3 * self.k)

    @property
    def one(self) -> int:
        return 5 + 3 * self.k

    @property
    def d(self) -> int:
        return 3 * self.k + 6


class Layer(nn.Module):
    """One attention head without the scale 1/sqrt(2k), and a feed-forward layer of two neurons.

    Shapes: W_Q, W_K (d, 2k); W_V (d, 1); W_O (1, d); W_1 (d, 2); b_1 (2,); W_2 (2, d); b_2 (d,).
    """

    def __init__(self, k: int, d: int) -> None:
        super().__init__()

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape))

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

    def __init__(self, *, n: int, T: int, s: int) -> None:
        super().__init__()
        if n < 1 or T < 0:
            raise BadInput(f"n={n}, T={T}: a chain of thought has n >= 1 input tokens and T >= 0 steps")
        self.n, self.T, self.s = n, T, FixedPoint(s).s
        self.lanes = Lanes(k=(T + n - 1).bit_length())
        d = self.lanes.d
        self.E = nn.Parameter(torch.zeros(2, d))
        self.P = nn.Parameter(torch.zeros(n + T - 1, d))
        self.layers = nn.ModuleList([Layer(self.lanes.k, d), Layer(self.lanes.k, d)])

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

    Claim: E, Thm. 3.4. Departures from the printed proof, each of which it needs (docs/circuit.md):
    a position without a second or without any input addresses a token that exists (b = a for NOT, its own
    position before the first gate) where the printed 0 addresses none and the softmax is 0/0
    (`as_printed=True` keeps the 0); the value is x e_2, not e_2; the scores are not divided by sqrt(2k),
    which would let exp(-B_s / sqrt(2k)) survive; there is no layer normalisation.
    Units: weights are 0, 1, -1, -2 and B_s = 2^s - 2^-s, all exact in float32.
    Raises: BadInput for gates other than AND and NOT (`constructions.circuits.circuit.decompose` first).

    >>> from constructions.circuits.circuit import Circuit, Gate
    >>> nand = Circuit("nand", ("x", "y"), (Gate("and", (0, 1), "c"), Gate("not", (2,), "z")), (("z", 3),))
    >>> build(nand, s=8).generate(torch.tensor([[0, 1], [1, 1]]))
    tensor([[0, 1, 0, 1],
            [1, 1, 1, 0]])
    """
    for gate in circuit.gates:
        if gate.kind not in ("and", "not") or len(gate.fan_in) != {"and": 2, "not": 1}[gate.kind]:
            raise BadInput(f"{circuit.name}: gate {gate.name} is {gate.kind}; decompose to AND and NOT first")
    n, T = len(circuit.inputs), len(circuit.gates)
    model = CircuitTransformer(n=n, T=T, s=s)
    lanes, B_s = model.lanes, float(largest_value(s))
    with torch.no_grad():
        model.E[1, lanes.x] = 1.0
        model.P.copy_(_positions(circuit, lanes, as_printed))
        for layer, address, target in zip(model.both, (lanes.a, lanes.b), (lanes.x_a, lanes.x_b), strict=True):
            # score = sum_j (address_j id_j B_s - B_s): 0 where all bits agree, else -B_s by saturation
            layer.W_Q[address, 0::2] = torch.eye(lanes.k)
            layer.W_Q[lanes.one, 1::2] = 1.0
            layer.W_K[lanes.id, 0::2] = B_s * torch.eye(lanes.k)
            layer.W_K[lanes.one, 1::2] = -B_s
            layer.W_V[lanes.x, 0] = 1.0
            layer.W_O[0, target] = 1.0
        _gate_layer(model.both[1], lanes)
    return model


def _gate_layer(layer: Layer, lanes: Lanes) -> None:
    """g = ReLU(1 - x_a - c) + ReLU(x_a + x_b + c - 2): NOT x_a for c = 0, x_a AND x_b for c = 1."""
    not_, and_ = 0, 1
    layer.W_1[[lanes.x_a, lanes.c], not_] = -1.0
    layer.b_1[not_] = 1.0
    layer.W_1[[lanes.x_a, lanes.x_b, lanes.c], and_] = 1.0
    layer.b_1[and_] = -2.0
    layer.W_2[:, lanes.g] = 1.0


def _positions(circuit: Circuit, lanes: Lanes, as_printed: bool) -> Tensor:
    """Position m carries its own id m and the type and addresses of gate m + 1, which it computes."""
    n, T = len(circuit.inputs), len(circuit.gates)
    own = torch.arange(1, n + T)
    a, b, c = own.clone(), own.clone(), torch.zeros(n + T - 1)
    if as_printed:
        a[: n - 1] = b[: n - 1] = 0
    first = torch.tensor([gate.fan_in[0] + 1 for gate in circuit.gates], dtype=torch.long)
    second = torch.tensor([gate.fan_in[-1] + 1 for gate in circuit.gates], dtype=torch.long)
    is_and = torch.tensor([gate.kind == "and" for gate in circuit.gates], dtype=torch.bool)
    a[n - 1 :], c[n - 1 :] = first, is_and.float()
    b[n - 1 :] = torch.where(is_and, second, 0) if as_printed else second
    P = torch.zeros(n + T - 1, lanes.d)
    P[:, lanes.c], P[:, lanes.one] = c, 1.0
    for lane, address in ((lanes.id, own), (lanes.a, a), (lanes.b, b)):
        P[:, lane] = signed_binary(address, lanes.k)
    return P


def signed_binary(i: Tensor, k: int) -> Tensor:
    """The k bits of i, the lowest first, as -1 and 1.

    >>> signed_binary(torch.tensor([6]), 3)
    tensor([[-1.,  1.,  1.]])
    """
    return (2 * ((i[:, None] >> torch.arange(k)) & 1) - 1).float()
