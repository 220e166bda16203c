"""Residual stacks of whole blocks of S4, Mamba and RWKV, as people train them: one step at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, silu, softplus

from constructions.errors import BadInput
from constructions.files import check_stated, read_tensors, state_bytes
from constructions.recurrent.arrays import METADATA_KEY
from constructions.recurrent.model import MOST_STATE

EPS = 1e-5  # of all norms, which a state dict does not say
OF_GROUPS = 64 * EPS  # of RWKV's norm of each head
MIXES = ("w", "k", "v", "r", "g")
State = tuple[Tensor, ...]


class S4Block(nn.Module):
    """x' = LayerNorm(x + GLU(W GELU(y) + b)), y = 2 Re(C h) + D x, h' = e^(dt A) h + x: S4D with its default post-norm.

    Each of d channels has N/2 complex states; A = -e^(log_A_real) + i A_imag, and C stands for C (e^(dt A) - 1) / A.
    Shapes: log_dt, D (d,), log_A_real, A_imag (d, N/2), C (d, N/2, 2), W (2d, d, 1).
    """

    sizes = ("states",)

    def __init__(self, d: int, states: int, dtype: torch.dtype) -> None:
        super().__init__()
        half = (d, states // 2)
        shapes = {"C": (*half, 2), "log_dt": (d,), "log_A_real": half, "A_imag": half}
        self.kernel = nn.ParameterDict({name: _of(*shape, dtype=dtype) for name, shape in shapes.items()})
        self.D = _of(d, dtype=dtype)
        self.output_linear = nn.Sequential(nn.Conv1d(d, 2 * d, 1, dtype=dtype))
        self.norm = nn.LayerNorm(d, eps=EPS, dtype=dtype)

    @staticmethod
    def sizes_of(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        return (2 * shapes["kernel.A_imag"][-1],)

    def start(self) -> State:
        zero = torch.zeros_like(self.kernel["A_imag"])[None]
        return zero, zero

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        rate, angle = -torch.exp(self.kernel["log_A_real"]), self.kernel["A_imag"]
        dt = torch.exp(self.kernel["log_dt"])[:, None]
        size = torch.exp(rate * dt)
        cos, sin = size * torch.cos(angle * dt), size * torch.sin(angle * dt)
        re, im = state
        re, im = cos * re - sin * im + x[..., None], sin * re + cos * im
        over = rate * rate + angle * angle
        p, q = ((cos - 1) * rate + sin * angle) / over, (sin * rate - (cos - 1) * angle) / over
        C = self.kernel["C"]
        c_re, c_im = C[..., 0] * p - C[..., 1] * q, C[..., 0] * q + C[..., 1] * p
        y = 2 * (c_re * re - c_im * im).sum(-1) + self.D * x
        out: Any = self.output_linear[0]
        a, b = nn.functional.linear(gelu(y), out.weight[..., 0], out.bias).chunk(2, dim=-1)
        return self.norm(x + a * torch.sigmoid(b)), (re, im)


class MambaMixer(nn.Module):
    """A convolution, the selective scan h' = e^(dt A) h + dt B x, y = C h + D x, and the gate SiLU(z); A = -e^A_log."""

    def __init__(self, d: int, inner: int, states: int, rank: int, window: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.in_proj = nn.Linear(d, 2 * inner, bias=False, dtype=dtype)
        self.conv1d = nn.Conv1d(inner, inner, window, groups=inner, dtype=dtype)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False, dtype=dtype)
        self.dt_proj = nn.Linear(rank, inner, dtype=dtype)
        self.A_log, self.D = _of(inner, states, dtype=dtype), _of(inner, dtype=dtype)
        self.out_proj = nn.Linear(inner, d, bias=False, dtype=dtype)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        seen, h = state
        rank, N = self.dt_proj.in_features, self.A_log.shape[1]
        x, z = self.in_proj(x).chunk(2, dim=-1)
        seen = torch.cat([seen[..., 1:], x[..., None]], dim=-1)
        bias = self.conv1d.bias
        assert bias is not None
        x = silu((seen * self.conv1d.weight[:, 0]).sum(-1) + bias)
        dt, B, C = torch.split(self.x_proj(x), [rank, N, N], dim=-1)
        dt = softplus(self.dt_proj(dt))[..., None]
        h = torch.exp(-dt * torch.exp(self.A_log)) * h + dt * B[:, None] * x[..., None]
        y = (h * C[:, None]).sum(-1) + self.D * x
        return self.out_proj(y * silu(z)), (seen, h)


class RootMeanSquare(nn.Module):
    """x / sqrt(mean of squares + EPS), times the weight."""

    def __init__(self, d: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = _of(d, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * self.weight


class MambaBlock(nn.Module):
    """x' = x + mixer(RMSNorm(x)).

    Shapes: in_proj (2 inner, d), conv1d (inner, 1, window), x_proj (rank + 2N, inner), dt_proj (inner, rank), A_log
    (inner, N), D (inner,), out_proj (d, inner).
    """

    sizes = ("inner", "states", "rank", "window")

    def __init__(self, d: int, inner: int, states: int, rank: int, window: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm, self.mixer = RootMeanSquare(d, dtype), MambaMixer(d, inner, states, rank, window, dtype)

    @staticmethod
    def sizes_of(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        A_log = shapes["mixer.A_log"]
        return A_log[0], A_log[1], shapes["mixer.dt_proj.weight"][-1], shapes["mixer.conv1d.weight"][-1]

    def start(self) -> State:
        window = torch.zeros_like(self.mixer.conv1d.weight[:, 0])
        return window[None], torch.zeros_like(self.mixer.A_log)[None]

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.mixer(self.norm(x), state)
        return x + y, state


class RwkvTimeMix(nn.Module):
    """RWKV-6: for each head out = r (S + (u k) v^T), S' = e^(-e^w) S + k v^T, with w, k, v, r and the gate of a token.

    Each of the five reads x + (x_before - x) (maa + what a low rank makes of both).
    """

    receptance: nn.Linear
    key: nn.Linear
    value: nn.Linear
    gate: nn.Linear
    output: nn.Linear
    time_maa_x: nn.Parameter

    def __init__(self, d: int, heads: int, mixed: int, decayed: int, dtype: torch.dtype) -> None:
        super().__init__()
        for name in ("x", *MIXES):
            setattr(self, f"time_maa_{name}", _of(1, 1, d, dtype=dtype))
        self.time_maa_w1, self.time_maa_w2 = _of(d, 5 * mixed, dtype=dtype), _of(5, mixed, d, dtype=dtype)
        self.time_decay = _of(1, 1, d, dtype=dtype)
        self.time_decay_w1, self.time_decay_w2 = _of(d, decayed, dtype=dtype), _of(decayed, d, dtype=dtype)
        self.time_faaaa = _of(heads, d // heads, dtype=dtype)
        for name in ("receptance", "key", "value", "gate", "output"):
            setattr(self, name, nn.Linear(d, d, bias=False, dtype=dtype))
        self.ln_x = nn.GroupNorm(heads, d, eps=OF_GROUPS, dtype=dtype)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        before, S = state
        heads, size = self.time_faaaa.shape
        moved = before - x
        mixed = torch.tanh((x + moved * self.time_maa_x[0]) @ self.time_maa_w1).reshape(len(x), 5, -1)
        parts = [
            x + moved * (getattr(self, f"time_maa_{name}")[0] + mixed[:, i] @ self.time_maa_w2[i])
            for i, name in enumerate(MIXES)
        ]
        w, k, v, r, g = parts
        w = self.time_decay[0] + torch.tanh(w @ self.time_decay_w1) @ self.time_decay_w2
        keep = torch.exp(-torch.exp(w)).reshape(-1, heads, size, 1)
        k, v = self.key(k).reshape(-1, heads, size, 1), self.value(v).reshape(-1, heads, 1, size)
        r = self.receptance(r).reshape(-1, heads, size, 1)
        kv = k * v
        y = (r * (self.time_faaaa[..., None] * kv + S)).sum(2)
        y = layer_norm(y, (size,), eps=OF_GROUPS).reshape(len(x), -1) * self.ln_x.weight + self.ln_x.bias
        said: Tensor = self.output(y * silu(self.gate(g)))
        return said, (x, keep * S + kv)


class RwkvChannelMix(nn.Module):
    """sigmoid(R x_r) V ReLU(K x_k)^2, x_k and x_r between this token and the one before."""

    def __init__(self, d: int, neurons: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.time_maa_k, self.time_maa_r = (_of(1, 1, d, dtype=dtype) for _ in range(2))
        self.key = nn.Linear(d, neurons, bias=False, dtype=dtype)
        self.receptance = nn.Linear(d, d, bias=False, dtype=dtype)
        self.value = nn.Linear(neurons, d, bias=False, dtype=dtype)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        k, r = (x + (before - x) * maa[0] for maa in (self.time_maa_k, self.time_maa_r))
        z = torch.relu(self.key(k))
        y: Tensor = torch.sigmoid(self.receptance(r)) * self.value(z * z)
        return y


class RwkvBlock(nn.Module):
    """x' = x + att(LayerNorm(x)), and then x' + ffn(LayerNorm(x')); the first block has one more LayerNorm before it.

    Shapes: matrices (d, d), time_maa_w1 (d, 5 mixed), time_maa_w2 (5, mixed, d), time_decay_w1 (d, decayed),
    time_decay_w2 (decayed, d), time_faaaa (heads, d / heads), ffn.key (neurons, d), ffn.value (d, neurons).
    """

    sizes = ("heads", "mixed", "decayed", "neurons")

    def __init__(self, d: int, heads: int, mixed: int, decayed: int, neurons: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.ln1, self.ln2 = (nn.LayerNorm(d, eps=EPS, dtype=dtype) for _ in range(2))
        self.att = RwkvTimeMix(d, heads, mixed, decayed, dtype)
        self.ffn = RwkvChannelMix(d, neurons, dtype)

    @staticmethod
    def sizes_of(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        return (
            shapes["att.time_faaaa"][0], shapes["att.time_maa_w2"][1], shapes["att.time_decay_w2"][0],
            shapes["ffn.key.weight"][0],
        )  # fmt: skip

    def start(self) -> State:
        heads, size = self.att.time_faaaa.shape
        zero = torch.zeros_like(self.att.time_maa_x[0])
        return zero, zero.new_zeros(1, heads, size, size), zero

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        seen, S, seen_later = state
        y, after = self.att(self.ln1(x), (seen, S))
        x = x + y
        read = self.ln2(x)
        return x + self.ffn(read, seen_later), (*after, read)


BLOCKS: dict[str, Any] = {"s4": S4Block, "mamba": MambaBlock, "rwkv": RwkvBlock}
LAYOUTS: dict[str, tuple[tuple[str, str], ...]] = {  # names of the layouts in use, and ours
    "s4": ((r"encoder\.", "embedding."), (r"s4_layers\.", "blocks."), (r"norms\.(\d+)\.", r"blocks.\1.norm."),
           (r"decoder\.", "head.")),
    "mamba": ((r"backbone\.", ""), (r"layers\.", "blocks."), (r"norm_f\.", "norm."), (r"lm_head\.", "head.")),
    "rwkv": ((r"emb\.", "embedding."), (r"ln_out\.", "norm."), (r"blocks\.0\.ln0\.", "first.")),
}  # fmt: skip
MARKS = {  # of a block of each kind: a parameter that all of its sizes begin with
    "s4": re.compile(r"blocks\.\d+\.kernel\.A_imag$"),
    "mamba": re.compile(r"blocks\.\d+\.mixer\.A_log$"),
    "rwkv": re.compile(r"blocks\.\d+\.att\.time_faaaa$"),
}


def _of(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=dtype))


class ResidualModel(nn.Module):
    """Tokens, embedded in d numbers, blocks of one kind with residual streams, a last norm but for S4, and a readout.

    `sizes` are those of a block, under the names that its class has in `sizes`.
    Shapes: tokens (batch, n) -> logits (batch, n, classes).

    >>> model = ResidualModel("s4", d=4, layers=2, types=3, classes=5, states=2)
    >>> model(torch.tensor([[0, 2]])).shape
    torch.Size([1, 2, 5])
    """

    activation = "none"

    def __init__(
        self,
        kind: str,
        *,
        d: int,
        layers: int,
        types: int,
        classes: int,
        has_bias: bool = True,
        dtype: torch.dtype = torch.float32,
        **sizes: int,
    ) -> None:
        super().__init__()
        self.kind, self.hidden, self.layers, self.classes = kind, d, layers, classes
        self.types, self.inputs, self.vocabulary = types, types, types
        self.embedding = nn.Embedding(types, d, dtype=dtype)
        self.first = nn.LayerNorm(d, eps=EPS, dtype=dtype) if kind == "rwkv" else None
        self.blocks = nn.ModuleList(BLOCKS[kind](d, **sizes, dtype=dtype) for _ in range(layers))
        norms: dict[str, Callable[[], nn.Module]] = {
            "mamba": lambda: RootMeanSquare(d, dtype),
            "rwkv": lambda: nn.LayerNorm(d, eps=EPS, dtype=dtype),
        }
        self.norm = norms[kind]() if kind in norms else None
        self.head = nn.Linear(d, classes, bias=has_bias, dtype=dtype)
        self.requires_grad_(False)
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype

    @property
    def start(self) -> State:
        """The state 0 of all blocks, for a batch of one."""
        return tuple(part.detach().clone() for block in self.blocks for part in block.start())  # type: ignore[operator]

    def step(self, state: State, token: Tensor) -> tuple[State, Tensor]:
        """The state after one more token (batch,), and the logits (batch, classes)."""
        x, after, each = self.embedding(token), [], len(state) // self.layers
        x = x if self.first is None else self.first(x)
        for k, block in enumerate(self.blocks):
            x, own = block(x, state[each * k : each * (k + 1)])
            after += own
        return tuple(after), self.head(x if self.norm is None else self.norm(x))

    def forward(self, tokens: Tensor) -> Tensor:
        state, said = tuple(part.expand(len(tokens), *part.shape[1:]) for part in self.start), []
        for t in range(tokens.shape[1]):
            state, logits = self.step(state, tokens[:, t])
            said.append(logits)
        return torch.stack(said, dim=1)


def as_ours(kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a layout in use under our names; others keep theirs.

    >>> list(as_ours("rwkv", {"blocks.0.ln0.bias": torch.zeros(2), "emb.weight": torch.zeros(3, 2)}))
    ['first.bias', 'embedding.weight']
    """
    found = {}
    for name, value in tensors.items():
        for pattern, ours in LAYOUTS[kind]:
            name = re.sub(f"^{pattern}", ours, name)
        found[name] = value
    return found


def is_residual_file(path: str | Path, kind: str) -> bool:
    """Whether a file holds whole blocks of a kind."""
    tensors, _ = read_tensors(path, METADATA_KEY)
    return any(MARKS[kind].match(name) for name in as_ours(kind, tensors))


def load(path: str | Path, *, kind: str) -> ResidualModel:
    """Reads a network whose file `is_residual_file`, in the layout in use (`LAYOUTS`) or under our names.

    A head that is not there is the embedding, as tied weights are saved; it may have a bias or not.
    Raises: BadInput for any other file, naming the first key that is missing, not expected, or of another shape.
    """
    what = f"weights={str(path)!r}"
    tensors, header = read_tensors(path, METADATA_KEY)
    tensors = as_ours(kind, tensors)
    check_stated(header, {"model": kind}, what)
    if "head.weight" not in tensors and "embedding.weight" in tensors:
        tensors["head.weight"] = tensors["embedding.weight"]
    numbers = sorted({int(name.split(".")[1]) for name in tensors if re.match(r"blocks\.\d+\.", name)})
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    own = {name.removeprefix("blocks.0."): shape for name, shape in shapes.items()}
    how = f"Save the state dict of a stack of {kind} blocks, as docs/recurrent.md has it"
    table, head = (shapes.get(f"{name}.weight", ()) for name in ("embedding", "head"))
    if len(table) != 2 or len(head) != 2 or numbers != list(range(len(numbers))) or not numbers:
        raise BadInput(f"{what}: has no embedding.weight or head.weight of two axes, or no blocks 0, 1, ... {how}.")
    try:
        sizes = BLOCKS[kind].sizes_of(own)
    except KeyError as error:
        raise BadInput(f"{what}: block 0 has no {error.args[0]}. {how}.") from None
    except IndexError:
        raise BadInput(f"{what}: a tensor of block 0 that its sizes are read off has too few axes. {how}.") from None
    return _filled(kind, tensors, len(numbers), sizes, what, how)


def _filled(
    kind: str, tensors: dict[str, Tensor], layers: int, sizes: Sequence[int], what: str, how: str
) -> ResidualModel:
    """The network of these tensors, whose shapes are compared with what the sizes ask for."""
    (types, d), head = tensors["embedding.weight"].shape, tensors["head.weight"]
    named = dict(zip(BLOCKS[kind].sizes, sizes, strict=True))
    if min(d, types, *head.shape, *sizes) < 1 or d % named.get("heads", 1):
        raise BadInput(f"{what}: {d} numbers a token, blocks of {named}: sizes must be 1 or more, d / heads whole.")
    if layers * d * max(named.get("states", 1), named.get("inner", 1)) > MOST_STATE * MOST_STATE:
        raise BadInput(f"{what}: {layers} blocks of {d} numbers, {named}, are more than is decided.")
    dtype, has_bias = head.dtype, "head.bias" in tensors
    if not dtype.is_floating_point:
        raise BadInput(f"{what}: head.weight is {dtype}. Save finite weights of one floating dtype.")
    model = ResidualModel(
        kind, d=d, layers=layers, types=types, classes=len(head), has_bias=has_bias, dtype=dtype, **named
    )
    due = model.state_dict()
    for name in (*due, *sorted(tensors)):
        if name not in tensors or name not in due:
            raise BadInput(f"{what}: {'has no' if name in due else 'also has'} {name}. {how}.")
        value = tensors[name]
        if value.shape != due[name].shape:
            raise BadInput(
                f"{what}: {name} has shape {tuple(value.shape)}, and must have {tuple(due[name].shape)}. {how}."
            )
        if value.dtype != dtype or not bool(value.isfinite().all()):
            raise BadInput(f"{what}: {name} is {value.dtype} or not finite. Save finite weights of one floating dtype.")
    model.load_state_dict(tensors)
    return model


def as_bytes(model: ResidualModel) -> bytes:
    """The safetensors file of a model, its kind in the metadata."""
    return state_bytes(model, METADATA_KEY, {"model": model.kind})
