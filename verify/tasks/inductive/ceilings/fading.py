"""How fast BOS fades on a^n, and from which length on a decoder without position ids in the stream gives one answer.

Without BOS all streams on a^n are the stream of "a" alone, whatever the attention weights are, and so is the mean of
their values. BOS is one key among n + 1 and scores are bounded, so its share is at most e^D / n: layer by layer the
stream at position n is within A (1 + ln n)^k / n of that of "a" alone. Where the logits of "a" alone have one largest,
the answer is the same from a length on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, e

import torch
from flint import arb, arb_mat, ctx
from torch import Tensor, nn

from constructions.decoder import Decoder
from constructions.decoder_model import MLP, Attention, Block, Rotation
from constructions.errors import BadInput
from verify.arithmetic.arb_matrices import stored
from verify.arithmetic.layer_norm import centred, squared_deviation
from verify.arithmetic.stored import numbers
from verify.frame.judged import check_judged

BITS = 128
LARGEST = 10**30  # lengths beyond are not looked for
GELU_SLOPE = arb("1.13")  # the derivative of GELU, exact or by tanh, stays below 1.1290


@dataclass(frozen=True)
class Fading:
    """The logits of "a" alone, and what they can be off by at length n: reach_j (1 + ln n)^power / n for the
    difference of the largest to class j.

    `settled` is a length from which on `answer` is given at every position; both None where the largest logit is not
    the only one or cannot be told from the next.
    """

    logits: tuple[arb, ...]
    answer: int | None
    reach: tuple[arb, ...]
    power: int
    settled: int | None

    def failing_length(self, m: int) -> int | None:
        """A length at which modular counting is wrong at the latest: the first of two in a row is right at most once.

        >>> Fading((), 0, (), 0, 10).failing_length(10), Fading((), 9, (), 0, 10).failing_length(10)
        (10, 11)
        """
        if self.settled is None:
            return None
        return self.settled + ((self.settled - 1) % m == self.answer)


def fading(model: Decoder, token: int = 0) -> Fading:
    """Bounds the distance between the logits on BOS a^n and their limit, for the stored numbers in real arithmetic.

    Claim: C-I4 (ours).
    Raises: BadInput for a decoder that is not judged, has position ids in the stream, no BOS, or not that token.

    >>> from verify.tasks.inductive.ceilings.random_models import random_decoder
    >>> fading(random_decoder(0, pe="nope", bos=True)).answer
    1
    """
    check_judged(model, Decoder)
    if model.pe not in ("nope", "rope"):
        raise BadInput(f"pe={model.pe}: the argument is for nope and rope, whose streams hold no position ids")
    if not model.has_bos:
        raise BadInput("bos=False: without BOS all positions of a^n have one answer; see C-I1")
    if not 0 <= token < model.vocabulary:
        raise BadInput(f"token={token}: must be from 0 to {model.vocabulary - 1}")
    with ctx.workprec(BITS), torch.no_grad():
        x, bos = matrix(model.W_E[token]), matrix(model.W_E[-1])
        A = arb(0)  # after i layers the distance is at most A (1 + ln n)^(i - 1) / n, and 0 before the first
        for i, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            gained = _attention_gain(block, x, bos, A, i)
            x, bos = (_attended(block, stream) for stream in (x, bos))
            A = A + gained
            if block.mlp is not None:
                A = A * (1 + _mlp_slope(block, x))
                x, bos = (_mapped(block, stream) for stream in (x, bos))
        return _settle(model, x, A, len(model.blocks) - 1)


def _settle(model: Decoder, x: arb_mat, A: arb, power: int) -> Fading:
    readout = matrix(model.W_U)
    logits = _norm(model.norm, x) * readout
    if model.b_U is not None:
        logits = logits + matrix(model.b_U)
    values = tuple(logits[0, j] for j in range(logits.ncols()))
    best = max(range(len(values)), key=lambda j: float(values[j]))
    slope = A * _norm_slope(model.norm, x)
    reach = tuple(slope * _length(_column(readout, best) - _column(readout, j)) for j in range(len(values)))
    gaps = tuple(values[best] - value for value in values)
    rivals = [j for j in range(len(values)) if j != best]
    if not all(gaps[j] > 0 for j in rivals):
        return Fading(values, None, reach, power, None)
    settled = _first(lambda n: all(reach[j] * _decay(n, power) < gaps[j] for j in rivals), ceil(e**power))
    return Fading(values, best if settled is not None else None, reach, power, settled)


def _decay(n: int, power: int) -> arb:
    """(1 + ln n)^power / n, which falls from n = e^(power - 1) on."""
    return (1 + arb(n).log()) ** power / n


def _first(holds: Callable[[int], bool], least: int) -> int | None:
    """The first n >= least of a property that stays once it holds, None beyond LARGEST."""
    if holds(least):
        return least
    low, high = least, 2 * least
    while not holds(high):
        low, high = high, 2 * high
        if high > LARGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _attention_gain(block: Block, x: arb_mat, bos: arb_mat, A: arb, layer: int) -> arb:
    """G with: attention's output is within G (1 + ln n)^layer / n of that for "a" alone.

    BOS has a share of at most e^D / n, each a of at most e^S / n, where D and S bound how far a score of BOS, or of
    another a, exceeds that of an a. sum over i <= n of (1 + ln i)^(k - 1) / i is at most (1 + ln n)^k.
    """
    attention, norm = block.attention, block.norm_1
    is_rotated = attention.rotation is not None
    y, y_bos = _norm(norm, x), _norm(norm, bos)
    spread = _spread(norm, x, A * _largest_decay(layer))
    total = arb(0)
    for h in range(attention.n_heads):
        q, k, v = (_of_head(attention, name, h, y) for name in "QKV")
        k_bos, v_bos = (_of_head(attention, name, h, y_bos) for name in "KV")
        W_Q, W_K, W_V = (_weights_of_head(attention, name, h) for name in "QKV")
        off = _operator(W_K) * spread
        asked = (_length(q) + _operator(W_Q) * spread) * _turned(attention.rotation) / arb(attention.d_head).sqrt()
        apart = _length(k_bos) + _length(k) if is_rotated else _length(k_bos - k)
        among = 2 * (_length(k) + off) if is_rotated else 2 * off
        W_O = _rows(attention.W_O, h, attention.d_head)
        from_bos = (asked * (apart + off)).exp() * _length((v_bos - v) * W_O)
        from_others = (asked * among).exp() * _operator(W_V * W_O) * _norm_slope(norm, x) * A
        total = total + from_bos + from_others
    return total


def _turned(rotation: Rotation | None) -> arb:
    """What rotating a query and a key can add to their product, the stored cosines and sines being rounded."""
    if rotation is None:
        return arb(1)
    squares = (rotation.cos.double() ** 2 + rotation.sin.double() ** 2).max()
    return arb(max(float(squares), 1.0)) * (1 + arb(2) ** -40)


def _largest_decay(layer: int) -> arb:
    """The largest (1 + ln t)^(layer - 1) / t, t >= 1; at t = e^(layer - 2) where that is above 1."""
    k = layer - 1
    return arb(1) if k <= 1 else arb(k) ** k / arb(k - 1).exp()


def _spread(norm: nn.Module, x: arb_mat, distance: arb) -> arb:
    """How far a normalised stream within `distance` of x can be from that of x: a LayerNorm bounds it by itself."""
    moved = _norm_slope(norm, x) * distance
    if isinstance(norm, nn.LayerNorm):
        bound = 2 * _largest(norm.weight) * arb(x.ncols()).sqrt()
        return bound if bool(bound < moved) else moved
    return moved


def _attended(block: Block, x: arb_mat) -> arb_mat:
    """The stream after attention of a token that sees itself alone, or equal ones alone."""
    attention = block.attention
    out = _linear(attention, "V", _norm(block.norm_1, x)) * matrix(attention.W_O)
    if attention.b_O is not None:
        out = out + matrix(attention.b_O)
    return x + out


def _mapped(block: Block, x: arb_mat) -> arb_mat:
    mlp = block.mlp
    assert isinstance(mlp, MLP)
    z = _norm(block.norm_2, x) * matrix(mlp.W_in) + matrix(mlp.b_in)
    hidden = arb_mat([[_activation(mlp.activation, z[0, i]) for i in range(z.ncols())]])
    return x + hidden * matrix(mlp.W_out) + matrix(mlp.b_out)


def _mlp_slope(block: Block, x: arb_mat) -> arb:
    mlp = block.mlp
    assert isinstance(mlp, MLP)
    steepest = arb(1) if mlp.activation == "relu" else GELU_SLOPE
    return _norm_slope(block.norm_2, x) * _operator(matrix(mlp.W_in)) * steepest * _operator(matrix(mlp.W_out))


def _activation(name: str, x: arb) -> arb:
    if name == "relu":
        return x.max(arb(0))
    if name == "gelu":
        return x * (1 + (x / arb(2).sqrt()).erf()) / 2
    return x * (1 + ((2 / arb.pi()).sqrt() * (x + arb("0.044715") * x**3)).tanh()) / 2


def _norm(norm: nn.Module, x: arb_mat) -> arb_mat:
    if not isinstance(norm, nn.LayerNorm):
        return x
    deviation, parts = _deviation(norm, x), zip(centred(x.entries()), norm.weight, norm.bias, strict=True)
    return arb_mat([[part / deviation * float(weight) + float(bias) for part, weight, bias in parts]])


def _norm_slope(norm: nn.Module, x: arb_mat) -> arb:
    """L with |norm(y) - norm(x)| <= L |y - x| for every y.

    With u' = (u, sqrt(d eps)) for centred u, LayerNorm is sqrt(d) times u' made a unit vector, and two unit vectors
    u'/|u'|, v'/|v'| are at most 2 |u' - v'| / |v'| apart.
    """
    if not isinstance(norm, nn.LayerNorm):
        return arb(1)
    return 2 * _largest(norm.weight) / _deviation(norm, x)


def _deviation(norm: nn.LayerNorm, x: arb_mat) -> arb:
    return squared_deviation(x.entries(), arb(norm.eps)).sqrt()


def _linear(attention: Attention, name: str, y: arb_mat) -> arb_mat:
    out = y * matrix(getattr(attention, f"W_{name}"))
    bias = getattr(attention, f"b_{name}")
    return out if bias is None else out + matrix(bias)


def _of_head(attention: Attention, name: str, h: int, y: arb_mat) -> arb_mat:
    size = attention.d_head
    out = _linear(attention, name, y)
    return arb_mat([[out[0, i] for i in range(h * size, (h + 1) * size)]])


def _weights_of_head(attention: Attention, name: str, h: int) -> arb_mat:
    W: Tensor = getattr(attention, f"W_{name}")
    return matrix(W[:, h * attention.d_head : (h + 1) * attention.d_head])


def _rows(W: Tensor, h: int, size: int) -> arb_mat:
    return matrix(W[h * size : (h + 1) * size])


def matrix(W: Tensor) -> arb_mat:
    """The stored numbers, exactly; a vector as one row."""
    return stored(numbers(W))


def _column(W: arb_mat, j: int) -> arb_mat:
    return arb_mat([[W[i, j] for i in range(W.nrows())]])


def _length(v: arb_mat) -> arb:
    """At least the l2 norm."""
    squares = sum((value**2 for value in v.entries()), arb(0))
    return arb(abs(squares).upper()).sqrt()


def _largest(v: Tensor) -> arb:
    return arb(float(v.double().abs().max()))


def _operator(W: arb_mat) -> arb:
    """At least the largest singular value, and at most rank^(1/16) times it: |(W^T W)^4|_F^(1/8)."""
    gram = W.transpose() * W if W.ncols() <= W.nrows() else W * W.transpose()
    fourth = gram * gram
    fourth = fourth * fourth
    length = _length(fourth)
    return length.sqrt().sqrt().sqrt()
