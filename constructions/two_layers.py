"""Two layers of the histogram block (A, App. E.8): a second one that hands on neurons, and one that is needed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer

SHARP = 40.0  # by how much a token's own score leads after softmax, at least: e^-40 is lost in float64


class MixingLayer(nn.Module):
    """x + A(x) x, and one layer of ReLUs without a residual connection: what document A repeats.

    Shapes: A (L, L) for lin, W_Q and W_K (d, d) else; W_1 (d, p), b_1 (p,), W_2 (p, out), b_2 (out,).
    """

    def __init__(self, model: str, *, L: int, d: int, p: int, out: int, dtype: torch.dtype) -> None:
        super().__init__()

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)

        self.is_softmax, self.is_linear = model.endswith("+sftm"), model.startswith("lin")
        if self.is_linear:
            self.A = zeros(L, L)
        else:
            self.W_Q, self.W_K = zeros(d, d), zeros(d, d)
        self.W_1, self.b_1, self.W_2, self.b_2 = zeros(d, p), zeros(p), zeros(p, out), zeros(out)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.A if self.is_linear else self._scores(x)
        mixing = torch.softmax(scores, dim=-1) if self.is_softmax else scores
        return torch.relu((x + mixing @ x) @ self.W_1 + self.b_1) @ self.W_2 + self.b_2

    def _scores(self, x: Tensor) -> Tensor:
        return (x @ self.W_Q) @ (x @ self.W_K).transpose(-2, -1) / math.sqrt(x.shape[-1])


class TwoLayerTransformer(nn.Module):
    """Embeddings, two mixing layers of the same d and p that share nothing, and logits of the counts 1..L.

    Claim: A, App. E.8 ("this model does not have an extra residual in the MLP layers"). BOS is a token of both layers.
    Shapes: E (T, d), e_BOS (d,) for bos; tokens (..., L) -> logits (..., L, L).
    """

    def __init__(self, model: str, *, T: int, L: int, d: int, p: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model, self.T, self.L, self.d, self.p = model, T, L, d, p
        self.has_bos = model.startswith("bos")
        self.E = nn.Parameter(torch.zeros(T, d, dtype=dtype), requires_grad=False)
        if self.has_bos:
            self.e_BOS = nn.Parameter(torch.zeros(d, dtype=dtype), requires_grad=False)
        self.first = MixingLayer(model, L=L, d=d, p=p, out=d, dtype=dtype)
        self.second = MixingLayer(model, L=L, d=d, p=p, out=L, dtype=dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.E[tokens]
        if self.has_bos:
            x = torch.cat([self.e_BOS.expand(*x.shape[:-2], 1, self.d), x], dim=-2)
        logits: Tensor = self.second(self.first(x))
        return logits[..., 1:, :] if self.has_bos else logits

    def extra_repr(self) -> str:
        return f"{self.model}, T={self.T}, L={self.L}, d={self.d}, p={self.p}"


def after(model: HistogramTransformer) -> TwoLayerTransformer:
    """A one-layer model with a second layer that hands on its neurons, so that both give the same counts.

    Claim: A-E.8 (ours; A trains such models). The first layer writes its p <= d neurons h into the stream. Without
    softmax the second one mixes nothing (A = 0, W_Q = 0) and reads h = ReLU(h). With softmax a token attends to itself,
    or to tokens that have its embedding and so its h: the stream is 2 h up to the leak of e^-SHARP, and half of it is
    read. There neurons are to be told apart by their token: inventory counting, where h is 0 but for the own one.
    Raises: BadInput for p > d, counts that do not begin with 1, or softmax with fewer neurons than tokens.

    >>> from constructions import relation_counting
    >>> two = after(relation_counting.dot(T=3, L=4, d=3))
    >>> two(torch.tensor([[0, 1, 0, 0]])).argmax(-1) + 1
    tensor([[3, 1, 3, 3]])
    """
    d, p, L = model.d, model.p, model.L
    if p > d:
        raise BadInput(f"p={p}: the stream between the layers holds d={d} neurons at most; choose p <= d")
    if model.first_count != 1 or model.W_2.shape[1] != L:
        raise BadInput("model: its classes must be the counts 1..L")
    if model.is_softmax and not model.is_linear and p < model.T:
        raise BadInput(f"p={p}: a second softmax needs a neuron for each of the T={model.T} tokens, or lin+sftm")
    found = TwoLayerTransformer(model.model, T=model.T, L=L, d=d, p=p, dtype=model.dtype)
    first, second = found.first, found.second
    with torch.no_grad():
        for name in ("E", "e_BOS") if model.has_bos else ("E",):
            getattr(found, name).copy_(getattr(model, name))
        for name in ("A", "W_1", "b_1") if model.is_linear else ("W_Q", "W_K", "W_1", "b_1"):
            getattr(first, name).copy_(getattr(model, name))
        first.W_2[:, :p], second.W_1[:p] = torch.eye(p), torch.eye(p) / (2 if model.is_softmax else 1)
        second.W_2.copy_(model.W_2)
        second.b_2.copy_(model.b_2)
        if model.is_softmax:
            attend_to_itself(second, smallest_neuron(model))
    return found.eval()


def distance(T: int, *, dtype: torch.dtype = torch.float32) -> TwoLayerTransformer:
    """Two layers of lin with one neuron each and d = 1 that count at L = 2, where no single layer with one neuron does.

    Token t is the number t. The first layer reads the own number less the other one, and keeps what is positive; the
    second one adds both positions' results to |t - s|, which is 0 for equal tokens and 1 or more for others. Count 1
    says |t - s| and count 2 says 1/2: the margin is 1/2 at least. All numbers are whole or halves.

    Claim: W-26 (ours); W-5 rules one such layer out, for every d.
    Raises: BadInput for T < 1, or so many tokens that the dtype does not hold their numbers.

    >>> (distance(9)(torch.tensor([[3, 8], [4, 4]])).argmax(-1) + 1).tolist()
    [[1, 1], [2, 2]]
    """
    most = int(2 / torch.finfo(dtype).eps)
    if not 1 <= T <= most:
        raise BadInput(f"T={T}: must be from 1 to {most}, up to which whole numbers are exact in {dtype}")
    found = TwoLayerTransformer("lin", T=T, L=2, d=1, p=1, dtype=dtype)
    swap = torch.eye(2).flip(0)
    with torch.no_grad():
        found.E[:, 0] = torch.arange(T, dtype=dtype)
        found.first.A.copy_(-swap)
        found.second.A.copy_(swap)
        for weight in (found.first.W_1, found.first.W_2, found.second.W_1):
            weight.fill_(1.0)
        found.second.W_2[0, 0], found.second.b_2[1] = 1.0, 0.5
    return found.eval()


def attend_to_itself(layer: MixingLayer, least: float) -> None:
    """Sets scores that lead by SHARP at tokens with the own neuron, which is `least` at least.

    >>> layer = MixingLayer("dot+sftm", L=3, d=2, p=1, out=1, dtype=torch.float64)
    >>> attend_to_itself(layer, least=1.0)
    >>> round(float(layer.W_Q[0, 0]) / 2**0.5)  # by how much the own token leads
    40
    """
    with torch.no_grad():
        if layer.is_linear:
            layer.A.copy_(SHARP * torch.eye(len(layer.A)))
            return
        d = len(layer.W_Q)
        layer.W_Q.copy_(SHARP * math.sqrt(d) / least**2 * torch.eye(d))
        layer.W_K.copy_(torch.eye(d))


def smallest_neuron(model: HistogramTransformer) -> float:
    """The least value of the own token's neuron, at a count of 1 beside any one other token L - 1 times.

    >>> from constructions import relation_counting
    >>> round(smallest_neuron(relation_counting.dot(T=3, L=4, d=3)), 3)
    1.0
    """
    if model.T == 1:
        return 1.0
    rows = [[t, *[s] * (model.L - 1)] for t in range(model.T) for s in range(model.T) if s != t]
    x = model.E.double()[torch.tensor(rows)]
    double = HistogramTransformer(model.model, T=model.T, L=model.L, d=model.d, p=model.p, dtype=torch.float64)
    double.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    context = x
    if model.has_bos:
        context = torch.cat([double.e_BOS.expand(len(x), 1, model.d), x], dim=-2)
    hidden = torch.relu((x + double.mixing(x, context) @ context) @ double.W_1 + double.b_1)
    return float(hidden[:, 0].amax(-1).min().detach())
