"""Modules of one attention layer, written as strangers write them: none knows of any class of ours."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Plain(nn.Module):
    """scaled_dot_product_attention of the last position, with options."""

    def __init__(self, V, L, d=8, heads=2, hidden=8, norm="", act="relu", positions="learned", classes=None, bos=False):
        super().__init__()
        self.E, self.heads, self.act, self.bos = nn.Embedding(V + 1, d), heads, act, bos
        self.P = nn.Embedding(L + 1, d) if positions == "learned" else None
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=i == 2) for i in range(4))
        make = (lambda: nn.LayerNorm(d)) if norm == "layer" else nn.Identity
        self.n1, self.n2, self.n3 = make(), make(), make()
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
        q, k, v = (f(y).view(b, n, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q[:, :, -1:], k, v).transpose(1, 2).reshape(b, d)
        r = x[:, -1] + self.o(a)
        if self.up is not None:
            z = self.up(self.n2(r))
            z = F.gelu(z, approximate="tanh") if self.act == "gelu_tanh" else getattr(F, self.act)(z)
            r = r + self.down(z)
        return self.U(self.n3(r))


class Nano(nn.Module):
    """nanoGPT's block with its attention written out, causal, all positions; one of them answers."""

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
        return self.lm_head(self.ln_f(x))[:, [self.at], :].squeeze(1)


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
