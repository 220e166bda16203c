"""Small torch modules on tokens, of as many kinds as people write."""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, D, CLASSES = 5, 8, 3


class Lookup(nn.Module):
    """A table of exact numbers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64))

    def forward(self, tokens):
        return self.table[tokens]


class Body(nn.Module):
    """Embedding, something, unembedding."""

    def __init__(self, body=None, **parts):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCABULARY, D), nn.Linear(D, CLASSES)
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def through(self, x):
        return self.body(x)

    def forward(self, tokens):
        return self.out(self.through(self.embed(tokens)))


def body(function, **parts):
    """A module whose middle is a function of itself and the stream (1, n, d)."""

    class Written(Body):
        def through(self, x):
            return function(self, x)

    return Written(**parts)


class Recurrent(Body):
    def through(self, x):
        return self.body(x)[0]


def masked_attention(self, x):
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    return self.mha(x, x, x, attn_mask=mask, need_weights=False)[0]


def rope(self, x):
    angle = torch.arange(x.shape[1])[:, None] * 0.3 ** torch.arange(D // 2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def in_place(self, x):
    y = x.clone()
    y += 1
    y[:, 0] = 0
    return y.mul_(2).relu_()


def hand_layernorm(self, x):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)


def truth_values(self, x):
    above, below = x > 0.1, x < 0.5
    some = (above == below).any(-1, keepdim=True) ^ (x != x.amax()).all(-1, keepdim=True)
    return torch.where(some, x, -x) + above.transpose(1, 2).flip(-1).sum(1, keepdim=True).transpose(1, 2) * x


def hand_attention(self, x):
    scores = x @ x.transpose(-2, -1) / math.sqrt(D)
    future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    return torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ x


def grouped_queries(self, x):
    q = x.view(1, -1, 4, 2).transpose(1, 2)
    k, v = (part.reshape(1, -1, 2, 2).transpose(1, 2) for part in x.chunk(2, -1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return y.transpose(1, 2).reshape(1, -1, D)


def repeated_keys(self, x):
    q = x.view(1, -1, 4, 2).transpose(1, 2)
    k, v = (part.reshape(1, -1, 2, 2).transpose(1, 2).repeat_interleave(2, 1) for part in x.chunk(2, -1))
    return (torch.softmax(q @ k.transpose(-2, -1), -1) @ v).transpose(1, 2).reshape(1, -1, D)


def complex_rope(self, x):
    """As in Llama's first code: a stored table of complex numbers."""
    turned = torch.view_as_complex(x.reshape(1, -1, 2, D // 4, 2)) * self.table[: x.shape[1], None]
    return torch.view_as_real(turned).flatten(2)


def polar_rope(self, x):
    angle = torch.outer(torch.arange(x.shape[1]).to(x.dtype), 0.3 ** torch.arange(D // 2).to(x.dtype))
    z = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1)) * torch.polar(torch.ones_like(angle), angle)
    z = z.transpose(1, 2)[:, :3].unsqueeze(-1).squeeze(-1).transpose(-1, -2) + z[:, :, [1, 0, 3]] * 2
    return torch.cat([torch.view_as_real(z).flatten(2), x[..., :2]], -1)


def overwritten_by_mask(self, x):
    y = x.clone()
    y[:, torch.tensor([True, False, True])] = 0.5
    y[y > 0.3] = -1.0
    return y


def in_order(self, x):
    up, down = x.sort(-1).values, x.topk(3, -1).values
    first = (x.argmax(1, keepdim=True) == torch.arange(x.shape[1])[:, None]).sum(1, keepdim=True)
    return up + down.sum(-1, keepdim=True) + first + (x.min(1).indices >= 0).sum()


def batch_norm(d):
    norm = nn.BatchNorm1d(d)
    with torch.no_grad():
        for numbers in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            numbers.copy_(torch.rand(d) + 0.3)
    return norm


def turns():
    return torch.polar(torch.ones(5, D // 4), torch.outer(torch.arange(5.0), 0.3 ** torch.arange(D // 4)))


class Turned(Body):
    def __init__(self):
        super().__init__()
        self.table = turns()

    through = complex_rope


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCABULARY, D), nn.Linear(D, VOCABULARY, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(torch.tanh(self.embed(tokens)))


ENCODER = {"d_model": D, "nhead": 2, "dim_feedforward": 12, "batch_first": True}

JUDGED = {
    "multi-head attention": lambda: body(masked_attention, mha=nn.MultiheadAttention(D, 2, batch_first=True)),
    "encoder layer, post-norm": lambda: Body(nn.TransformerEncoderLayer(**ENCODER)),
    "encoder layer, pre-norm, gelu": lambda: Body(
        nn.TransformerEncoderLayer(**ENCODER, norm_first=True, activation="gelu")
    ),
    "sdpa, causal": lambda: body(lambda self, x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "hand-written attention": lambda: body(hand_attention),
    "rope": lambda: body(rope),
    "rms norm": lambda: Body(nn.RMSNorm(D, eps=1e-6)),
    "layer norm": lambda: Body(nn.LayerNorm(D)),
    "hand-written layer norm": lambda: body(hand_layernorm),
    "group norm": lambda: body(lambda self, x: self.g(x.transpose(1, 2)).transpose(1, 2), g=nn.GroupNorm(2, D)),
    "rnn": lambda: Recurrent(nn.RNN(D, D, batch_first=True)),
    "rnn, relu": lambda: Recurrent(nn.RNN(D, D, batch_first=True, nonlinearity="relu")),
    "gru": lambda: Recurrent(nn.GRU(D, D, batch_first=True)),
    "lstm, two layers": lambda: Recurrent(nn.LSTM(D, D, num_layers=2, batch_first=True)),
    "tied weights": Tied,
    "in place": lambda: body(in_place),
    "silu gate": lambda: body(lambda self, x: F.silu(self.a(x)) * self.b(x), a=nn.Linear(D, D), b=nn.Linear(D, D)),
    "gelu tanh": lambda: body(lambda self, x: F.gelu(x, approximate="tanh")),
    "dropout in eval": lambda: Body(nn.Dropout(0.5)),
    "einsum": lambda: body(lambda self, x: torch.einsum("bid,bjd->bij", x, x) @ x),
    "max over positions": lambda: body(lambda self, x: x.amax(1, keepdim=True) + x),
    "where and compare": lambda: body(lambda self, x: torch.where(x > 0.1, x, 0.5 * x)),
    "mean over the batch": lambda: body(lambda self, x: x - x.mean(0)),
    "log softmax": lambda: nn.Sequential(Body(nn.Tanh()), nn.LogSoftmax(-1)),
    "flip and roll": lambda: body(lambda self, x: x.flip(1) + x.roll(1, 1)),
    "power and root": lambda: body(lambda self, x: (x**2 + 1) ** 0.5 + (x.abs() + 1).rsqrt()),
    "leaky relu, clamp, hardtanh": lambda: body(lambda self, x: F.hardtanh(F.leaky_relu(x)).clamp(-0.5, 0.7)),
    "flags in buffers": lambda: Flagged(changes=False),
    "cumulative sum": lambda: body(lambda self, x: x.cumsum(1)),
    "truth values": lambda: body(truth_values),
    "largest and its place": lambda: body(lambda self, x: x + x.max(-1, keepdim=True).values - x.min(1).values),
    "norms": lambda: body(lambda self, x: x / (x.norm(dim=-1, keepdim=True) + x.norm(1) + x.abs().norm(torch.inf))),
    "normalised": lambda: body(lambda self, x: F.normalize(x, dim=-1)),
    "batch norm": lambda: body(lambda self, x: self.b(x.transpose(1, 2)).transpose(1, 2), b=batch_norm(D)),
    "batch norm without weights": lambda: body(
        lambda self, x: self.b(x[0])[None], b=nn.BatchNorm1d(D, affine=False, eps=1e-3)
    ),
    "softplus": lambda: body(lambda self, x: F.softplus(x) - F.softplus(x, 2.0, 0.5)),
    "mish, log sigmoid": lambda: body(lambda self, x: F.mish(x) + F.logsigmoid(x) + torch.expm1(x)),
    "elu, selu, celu": lambda: body(lambda self, x: F.elu(x, 0.7) + F.selu(x) + F.celu(x, 1.5)),
    "clamp by tensors": lambda: body(lambda self, x: x.clamp(-x.abs().amax(1, keepdim=True) / 2, torch.ones(D) / 4)),
    "convolution": lambda: body(
        lambda self, x: self.c(x.transpose(1, 2)).transpose(1, 2), c=nn.Conv1d(D, D, 3, padding=1)
    ),
    "convolution in groups": lambda: body(
        lambda self, x: self.c(x.transpose(1, 2)).transpose(1, 2).repeat(1, 2, 1),
        c=nn.Conv1d(D, D, 2, stride=2, dilation=2, padding=2, groups=4, bias=False),
    ),
    "grouped queries": lambda: body(grouped_queries),
    "repeated keys": lambda: body(repeated_keys),
    "complex rotary": Turned,
    "rotary by polar": lambda: body(polar_rope),
    "overwritten by a mask": lambda: body(overwritten_by_mask),
    "in order": lambda: body(in_order),
    "log sum exp": lambda: body(lambda self, x: x - x.logsumexp(-1, keepdim=True)),
}


class Counting(nn.Module):
    """A buffer that changes with every call."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, CLASSES)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens):
        self.calls += 1
        return self.embed(tokens) * self.calls


class Flagged(Body):
    """Buffers of one number that the forward reads as Python numbers, and one that it changes besides."""

    def __init__(self, changes):
        super().__init__()
        self.changes = changes
        self.register_buffer("is_on", torch.tensor(True))
        self.register_buffer("eps", torch.tensor(1e-5, dtype=torch.float64))
        self.register_buffer("steps", torch.tensor([2]))

    def through(self, x):
        if self.changes:
            self.steps += 1
        x = F.layer_norm(x, x.shape[-1:], eps=float(self.eps)) if self.is_on else -x
        return x * self.eps + x[:, :, [int(self.steps)]]


class Packed(nn.Module):
    """Puts the logits into something else."""

    def __init__(self, pack):
        super().__init__()
        self.pack = pack

    def forward(self, logits):
        return self.pack(logits)


def written_to_places(self, x):
    y = x.clone()
    y[:, torch.tensor([1, 0])] = 0.5
    return y


def branch(self, x):
    return x if x.sum() > 0 else -x


REFUSED = {
    "a branch on data": (lambda: body(branch), "depends on the data"),
    "item": (lambda: body(lambda self, x: x * x.sum().item()), "depends on the data"),
    "tolist": (lambda: body(lambda self, x: x * sum(x[0, 0].tolist())), "depends on the data"),
    "a changed buffer": (Counting, "changes the buffer calls"),
    "a changed flag": (lambda: Flagged(changes=True), "changes the buffer steps"),
    "random": (lambda: body(lambda self, x: x + torch.rand(D)), "is random"),
    "dropout by function": (lambda: body(lambda self, x: F.dropout(x, 0.5, training=True)), "random|dropout"),
    "-inf times a scale": (
        lambda: body(lambda self, x: F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=-0.5)),
        "the -inf of is_causal by the scale -0.5",
    ),
    "a cast": (lambda: body(lambda self, x: x.half().float()), "casts a computed torch.float32 to torch.float16"),
    "scatter": (
        lambda: body(lambda self, x: x.scatter(-1, torch.zeros(1, x.shape[1], 1, dtype=torch.long), 1.0)),
        "aten.scatter",
    ),
    "a transposed convolution": (
        lambda: body(lambda self, x: self.c(x.transpose(1, 2)).transpose(1, 2), c=nn.ConvTranspose1d(D, D, 1)),
        "aten.convolution.default has no rule",
    ),
    "another norm": (lambda: body(lambda self, x: x.norm(3, dim=-1, keepdim=True) * x), "vector_norm.default has no"),
    "written to places": (lambda: body(written_to_places), "aten.index_put.default has no rule"),
    "an angle": (
        lambda: body(lambda self, x: x + torch.view_as_complex(x.reshape(1, -1, 4, 2)).angle().sum()),
        "complex",
    ),
    "a tuple": (lambda: nn.Sequential(Body(nn.Tanh()), Packed(lambda x: (x,))), "returns a tuple; return the tensor"),
    "a dict": (lambda: nn.Sequential(Body(nn.Tanh()), Packed(lambda x: {"logits": x})), "returns a dict; return"),
    "argmax": (lambda: nn.Sequential(Body(nn.Tanh()), Argmax()), "leave argmax to the verifier"),
    "autocast": (lambda: body(autocast), "autocast|casts"),
    "floor": (lambda: body(lambda self, x: x.floor()), "aten.floor.default has no rule"),
    "computed places": (lambda: body(lambda self, x: x[:, (x.sum((0, 2)) > 0).long()]), "choice of places depends on"),
    "a computed size": (
        lambda: body(lambda self, x: x + (x > 0).nonzero().sum()),
        "size of what it gives depends|data",
    ),
    "two at once": (lambda: body(lambda self, x: x.floor() + x.ceil()), "floor.*; .*ceil"),
}


class Argmax(nn.Module):
    def forward(self, x):
        return x.argmax(-1)


def autocast(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.transpose(-2, -1) @ x
