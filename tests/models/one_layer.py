"""Modules of one attention layer, written as strangers write them: none knows of any class of ours."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class WrittenRms(nn.Module):
    """RMSNorm as Llama's code writes it."""

    def __init__(self, d):
        super().__init__()
        self.weight, self.eps = nn.Parameter(1 + torch.randn(d) / 4), 1e-5

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class WrittenNorm(nn.Module):
    """LayerNorm by hand."""

    def __init__(self, d):
        super().__init__()
        self.weight, self.bias = nn.Parameter(1 + torch.randn(d) / 4), nn.Parameter(torch.randn(d) / 4)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * self.weight + self.bias


class ByStandardDeviation(nn.Module):
    """x less its mean, divided by its standard deviation and a small number: no norm that torch has."""

    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(d) / 4)

    def forward(self, x):
        return self.weight * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True).sqrt() + 1e-3)


class Uncentred(nn.Module):
    """x divided by its standard deviation; its mean stays."""

    def __init__(self, d):
        super().__init__()

    def forward(self, x):
        return x / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-2)


class FusedRms(WrittenRms):
    """RMSNorm as one operation."""

    def forward(self, x):
        return torch.ops.aten._fused_rms_norm.default(x, list(self.weight.shape), self.weight, self.eps)[0]


NORMS = {
    "fused_rms": FusedRms,
    "uncentred": Uncentred,
    "": lambda d: nn.Identity(),
    "layer": nn.LayerNorm,
    "rms": lambda d: nn.RMSNorm(d, eps=1e-5),
    "written_rms": WrittenRms,
    "written_norm": WrittenNorm,
    "deviation": ByStandardDeviation,
}
ACTIVATIONS = {
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "gelu_written": lambda z: 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * torch.pow(z, 3)))),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "abs": torch.abs,
    "leaky_relu": lambda z: F.leaky_relu(z, 0.2),
    "relu6": F.relu6,
    "square": lambda z: F.relu(z) ** 2,
    "hardswish": F.hardswish,
}


class Plain(nn.Module):
    """scaled_dot_product_attention of the last position, with options."""

    def __init__(
        self, V, L, d=8, heads=2, hidden=8, norm="", act="relu", positions="learned", classes=None, bos=False, groups=1,
        gated=False,
    ):  # fmt: skip
        super().__init__()
        self.groups, self.gate = groups, nn.Linear(d, hidden) if gated and hidden else None
        self.E, self.heads, self.act, self.bos = nn.Embedding(V + 1, d), heads, act, bos
        self.P = nn.Embedding(L + 1, d) if positions == "learned" else None
        self.q, self.o = (nn.Linear(d, d, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(d, d // groups, bias=i == 1) for i in range(2))
        self.n1, self.n2, self.n3 = (NORMS[norm](d) for _ in range(3))
        self.up, self.down = (nn.Linear(d, hidden), nn.Linear(hidden, d)) if hidden else (None, None)
        self.U, self.V = nn.Linear(d, classes or V, bias=bos), V

    def forward(self, t):
        if self.bos:
            t = torch.cat([torch.full_like(t[:, :1], self.V), t], 1)
        x = self.E(t)
        if self.P is not None:
            x = x + self.P(torch.arange(t.shape[1]))
        b, n, d = x.shape
        y = self.n1(x)
        q, k, v = (f(y).view(b, n, -1, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q[:, :, -1:], k, v, enable_gqa=self.groups > 1).transpose(1, 2).reshape(b, d)
        r = x[:, -1] + self.o(a)
        if self.up is not None:
            y = self.n2(r)
            z = (ACTIVATIONS.get(self.act) or getattr(F, self.act))(self.up(y))
            r = r + self.down(z if self.gate is None else z * self.gate(y))
        return self.U(self.n3(r))


class Nano(nn.Module):
    """nanoGPT's block with its attention written out, causal, all positions; one of them answers, or each (None)."""

    def __init__(self, V, L, d=8, heads=2, act="gelu", at=-1):
        super().__init__()
        self.at = at
        self.wte, self.wpe, self.heads = nn.Embedding(V, d), nn.Embedding(L, d), heads
        self.ln_1, self.ln_2, self.ln_f = (nn.LayerNorm(d) for _ in range(3))
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.c_out = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.act = getattr(F, act)
        self.lm_head = nn.Linear(d, V, bias=False)

    def forward(self, idx):
        B, T = idx.size()
        x = self.wte(idx) + self.wpe(torch.arange(T))
        C = x.size(-1)
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(torch.tril(torch.ones(T, T)).view(1, 1, T, T) == 0, float("-inf"))
        y = (F.softmax(att, dim=-1) @ v).transpose(1, 2).contiguous().view(B, T, C)
        x = x + self.c_proj(y)
        x = x + self.c_out(self.act(self.c_fc(self.ln_2(x))))
        logits = self.lm_head(self.ln_f(x))
        return logits if self.at is None else logits[:, [self.at], :].squeeze(1)


class Encoder(nn.Module):
    """nn.TransformerEncoderLayer, read at the first position."""

    def __init__(self, V, L, d=8, heads=2, norm_first=False):
        super().__init__()
        self.e, self.p = nn.Embedding(V, d), nn.Parameter(torch.randn(L, d) * 0.5)
        self.layer = nn.TransformerEncoderLayer(d, heads, 12, batch_first=True, norm_first=norm_first)
        self.out = nn.Linear(d, V)

    def forward(self, t):
        return self.out(self.layer(self.e(t) + self.p)[:, 0])


class Einsum(nn.Module):
    """Attention in einsum, a query that no token changes, no residual."""

    def __init__(self, V, L, d=8, heads=2):
        super().__init__()
        self.e, self.p = nn.Embedding(V, d), nn.Embedding(L, d)
        self.query = nn.Parameter(torch.randn(heads, d))
        self.wv, self.wo = nn.Parameter(torch.randn(heads, d, 4)), nn.Parameter(torch.randn(heads, 4, V))

    def forward(self, t):
        x = self.e(t) + self.p(torch.arange(t.shape[1]))
        a = torch.softmax(torch.einsum("bnd,hd->bhn", x, self.query) / 2, -1)
        v = torch.einsum("bnd,hdk->bhnk", x, self.wv)
        return torch.einsum("bhk,hkc->bc", torch.einsum("bhqn,bhnk->bhqk", a.unsqueeze(2), v).squeeze(2), self.wo)
