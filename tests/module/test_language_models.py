"""Models as transformers makes them: an object with logits and a cache in it. transformers itself is not needed.

Where it is installed, its own classes are judged too.
"""

from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass, fields

import pytest
import torch
from models.selection import first
from torch import nn
from torch.nn import functional as F

from verify import certify
from verify.module import ModuleProblem, Task, cells, largest, tokens


class PreTrainedModel(nn.Module):
    """The class of that name in transformers is told by its name."""


@dataclass
class Output:
    """What torch.export does not know, as transformers' cache."""

    logits: torch.Tensor
    past_key_values: object = None


class GPT2LMHeadModel(PreTrainedModel):
    def __init__(self, W):
        super().__init__()
        self.W = nn.Parameter(W)

    def forward(self, input_ids, use_cache=True):
        return Output(self.W[input_ids], object() if use_cache else None)


def test_the_logits_of_a_model_of_transformers_are_judged():
    task = {"inputs": tokens([3, 3]), "expected": lambda t: t[:, -1]}
    right = certify(GPT2LMHeadModel(torch.eye(3)).eval(), **task)
    assert right.verdict == "PROVED" and right.parameters["module"] == "GPT2LMHeadModel"
    assert certify(GPT2LMHeadModel(-torch.eye(3)).eval(), **task).verdict == "REFUTED"


class ModelOutput(OrderedDict):
    """What transformers returns: a dict in order, by name, by place and by attribute, without what is None."""

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                super().__setitem__(field.name, value)

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


@dataclass
class CausalLMOutputWithPast(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    past_key_values: object = None
    attentions: tuple | None = None


class DynamicCache:
    """Keys and values by layer, which grow."""

    def __init__(self):
        self.layers = []

    def update(self, k, v):
        self.layers.append((k, v))
        return k, v

    def get_seq_length(self):
        return self.layers[0][0].shape[-2] if self.layers else 0


class LlamaRMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)).to(dtype)


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


class LlamaForCausalLM(PreTrainedModel):
    """One layer as modeling_llama has it: rotary positions, grouped queries, a gated MLP, RMSNorm, a cache, a mask."""

    def __init__(self, V=5, d=8, heads=4, groups=2, hidden=6):
        super().__init__()
        self.heads, self.size, self.use_cache = heads, d // heads, True
        self.embed_tokens, self.lm_head = nn.Embedding(V, d), nn.Linear(d, V, bias=False)
        self.norm, self.input_layernorm, self.post_attention_layernorm = (LlamaRMSNorm(d) for _ in range(3))
        self.q_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(d, groups * self.size, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj = (nn.Linear(d, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, d, bias=False)
        inv_freq = 1.0 / (100.0 ** (torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None, labels=None, **kwargs):
        use_cache = self.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        x = self.embed_tokens(input_ids)
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        places = torch.arange(seen, seen + x.shape[1], device=x.device)
        freqs = (self.inv_freq[None, :, None].float() @ places[None, None, :].float()).transpose(1, 2)
        cos, sin = (wave(torch.cat((freqs, freqs), -1))[:, None].to(x.dtype) for wave in (torch.cos, torch.sin))
        causal = places[:, None] >= torch.arange(x.shape[1])[None, :]
        mask = torch.full(causal.shape, torch.finfo(x.dtype).min, dtype=x.dtype).masked_fill(causal, 0.0)[None, None]
        y = self.input_layernorm(x)
        shape = (*x.shape[:2], -1, self.size)
        q, k, v = (f(y).view(shape).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (z * cos + rotate_half(z) * sin for z in (q, k))
        if past_key_values is not None:
            k, v = past_key_values.update(k, v)
        k, v = (z[:, :, None].expand(-1, -1, 2, -1, -1).reshape(z.shape[0], -1, *z.shape[2:]) for z in (k, v))
        weights = F.softmax(q @ k.transpose(2, 3) * self.size**-0.5 + mask, dim=-1, dtype=torch.float32).to(q.dtype)
        x = x + self.o_proj((weights @ v).transpose(1, 2).reshape(*x.shape[:2], -1).contiguous())
        y = self.post_attention_layernorm(x)
        x = x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))
        logits = self.lm_head(self.norm(x))
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)


def counted(model, V, L):
    """Counts of right and wrong inputs by cells, and by the model in float64, one input after another."""
    rows = torch.cartesian_prod(*[torch.arange(V)] * L)
    found = certify(model, inputs=tokens([V] * L), expected=lambda t: t.amax(1))
    with torch.no_grad():
        wider = deepcopy(model).double()
        logits = torch.cat([wider(part, use_cache=False).logits[:, -1] for part in rows.split(1024)])
    right = int((logits.argmax(1) == rows.amax(1)).sum())
    return found, {"right": str(right), "wrong": str(len(rows) - right), "undecided": "0"}


def one_layer(model, V, L):
    problem = ModuleProblem(model, Task(tokens([V] * L), largest))
    return cells.one_layer(problem.graphs[L], problem.given.question(L), problem.given.inputs.parts[0])


@pytest.mark.parametrize("dtype", first(0, [torch.bfloat16, torch.float32]))
def test_a_llama_with_its_cache_is_decided_by_cells(dtype, monkeypatch):
    monkeypatch.setattr("verify.module.problem.FEW", 1)
    monkeypatch.setattr(cells, "RUN", 8)
    torch.manual_seed(1)
    model = LlamaForCausalLM().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model = model.to(dtype)
    found, counts = counted(model, 5, 4)
    by = found.extra["decided_by"]
    assert found.extra["counts"] == counts and by["cells"] + by["tables"] == 5**4
    layer = one_layer(model, 5, 4).layer([0])
    assert [block.function for block in layer.blocks] == ["rms", "silu", "square", "square", "rms"]


@pytest.mark.deep
@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_models_of_transformers_itself(name, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr("verify.module.problem.FEW", 1)
    monkeypatch.setattr(cells, "RUN", 8)
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 6}
    if name == "GPT2":
        config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=8, **ends)
        model = transformers.GPT2LMHeadModel(config).eval()
    else:
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=16, **ends,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).eval()
    found, counts = counted(model, 6, 4)
    assert found.extra["counts"] == counts and found.extra["decided_by"]["cells"] > 0
