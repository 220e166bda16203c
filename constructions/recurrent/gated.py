"""Recurrences of positive decays, as in one layer of Mamba, RWKV-v6 and S4, and counters made of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.files import check_stated, read_tensors, state_bytes
from constructions.recurrent import diagonal
from constructions.recurrent.counters import ADDED
from constructions.recurrent.model import METADATA_KEY
from constructions.recurrent.selective import check

HOLDS = {torch.bfloat16: -8.0, torch.float16: -12.0, torch.float32: -24.0, torch.float64: -44.0}  # keep rounds to 1
RATE = 1 / 64  # about how much of its state a unit loses at a token that it counts, in counters
SHARP = 1.0  # the least margin, about
MOST = 4096  # number words
LOST = 1 / 16  # of a count, about: what a state forgets at most, where neurons read it
EDGE = 1 / 4  # how far from a count the sawtooth of the neurons bends


class MambaCell(nn.Module):
    """h' = exp(-D_x e^A) h + D_x B_x with the step D_x = softplus(d_x), and reads y = C_x h: Mamba's selective scan.

    Left out: the convolution before it, the low rank of d, the feedthrough D x, the gate SiLU(z), normalisation and the
    projections. Each channel has one state, and its input is 1; d, B and C are tables of the token.
    Shapes: A (d,), delta, B, C (K, d).
    """

    def __init__(self, A: Tensor, delta: Tensor, B: Tensor, C: Tensor) -> None:
        super().__init__()
        self.A, self.delta, self.B, self.C = (nn.Parameter(x) for x in (A, delta, B, C))

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each token keeps, adds and reads of each state (K, d)."""
        step = nn.functional.softplus(self.delta)
        return torch.exp(-step * torch.exp(self.A)), step * self.B, self.C


class RwkvCell(nn.Module):
    """h' = exp(-e^(w_x)) h + k_x v_x, and reads y = r_x h: the time mixing of one RWKV-v6 head with values of size 1.

    Left out: token shift, the low rank of w, the bonus u of the current token (which is in h here), GroupNorm, the gate
    and the projections; w, k, v and r are tables of the token.
    Shapes: w, k, v, r (K, d).
    """

    def __init__(self, w: Tensor, k: Tensor, v: Tensor, r: Tensor) -> None:
        super().__init__()
        self.w, self.k, self.v, self.r = (nn.Parameter(x) for x in (w, k, v, r))

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each token keeps, adds and reads of each state (K, d)."""
        return torch.exp(-torch.exp(self.w)), self.k * self.v, self.r


class DiagonalCell(nn.Module):
    """h' = a h + u_x, and reads y = c h: a diagonal state space (S4, S4D-Real) whose input is an embedding.

    Left out: the discretisation that a comes from, complex rates, the feedthrough D x, GLU and normalisation.
    Shapes: a, c (d,), u (K, d).
    """

    def __init__(self, a: Tensor, u: Tensor, c: Tensor) -> None:
        super().__init__()
        self.a, self.u, self.c = (nn.Parameter(x) for x in (a, u, c))

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each token keeps, adds and reads of each state (K, d)."""
        return self.a.expand_as(self.u), self.u, self.c.expand_as(self.u)


TABLES: dict[str, tuple[type[MambaCell | RwkvCell | DiagonalCell], tuple[str, ...]]] = {
    "mamba": (MambaCell, ("A", "delta", "B", "C")),
    "rwkv": (RwkvCell, ("w", "k", "v", "r")),
    "s4": (DiagonalCell, ("a", "u", "c")),
}
LAYER = ("layer.W", "layer.U")
KINDS = {MambaCell: "mamba", RwkvCell: "rwkv", DiagonalCell: "s4"}
Cell = MambaCell | RwkvCell | DiagonalCell


class PositionWise(nn.Module):
    """z = ReLU(W y + U_x), token by token: p neurons that see what the recurrence says, and the token x.

    What a block has after its recurrence, of which the residual stream shows it the token as well: channel mixing in
    RWKV, an activation and GLU in S4. Mamba's block has nothing there; the gate of a second block is such a layer.
    Left out: the square of RWKV's ReLU, GELU, SiLU and GLU in its place, the second matrix, which the readout is, and
    normalisation.
    Shapes: W (p, d), U (K, p).
    """

    def __init__(self, W: Tensor, U: Tensor) -> None:
        super().__init__()
        self.W, self.U = nn.Parameter(W), nn.Parameter(U)

    def forward(self, y: Tensor, tokens: Tensor) -> Tensor:
        return torch.relu(y @ self.W.T + self.U[tokens])


class GatedModel(nn.Module):
    """One layer of such a cell from the state 0, and logits = V y + b at every token, or V z + b of a layer of neurons.

    Shapes: readout (classes, d or p); tokens (batch, n) -> logits (batch, n, classes).
    """

    layers, types, embedding = 1, None, None

    def __init__(self, cell: Cell, V: Tensor, b: Tensor, layer: PositionWise | None = None) -> None:
        super().__init__()
        self.kind = KINDS[type(cell)]
        self.cell, self.layer = cell, layer
        self.inputs, self.hidden = cell.tables()[0].shape
        self.vocabulary, self.classes = self.inputs, len(b)
        self.readout = nn.Linear(V.shape[1], len(b), dtype=V.dtype)
        self.readout.weight, self.readout.bias = nn.Parameter(V), nn.Parameter(b)
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.readout.weight.dtype

    @property
    def activation(self) -> str:
        """That of the neurons."""
        return "none" if self.layer is None else "relu"

    def step(self, h: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The state after one more token (batch,), and what the readout sees of it: (batch, d), and (batch, d or p)."""
        keep, add, read = (table[tokens] for table in self.cell.tables())
        h = keep * h + add
        y = read * h
        return h, y if self.layer is None else self.layer(y, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        h, said = torch.zeros(len(tokens), self.hidden, dtype=self.dtype), []
        for t in range(tokens.shape[1]):
            h, y = self.step(h, tokens[:, t])
            said.append(self.readout(y))
        return torch.stack(said, dim=1)


def cell(kind: str, keep: np.ndarray, add: np.ndarray, read: np.ndarray, dtype: torch.dtype) -> Cell:
    """A cell whose tokens keep, add and read about this much (K, d) each; a keep of 1 is as near as HOLDS says.

    S4 keeps and reads what its first token does: one decay serves all tokens.

    >>> one = np.ones((1, 2))
    >>> type(cell("s4", one / 2, one, one, torch.float64)).__name__
    'DiagonalCell'
    """

    def tensor(x: np.ndarray) -> Tensor:
        return torch.as_tensor(np.array(x)).to(dtype)

    if kind == "s4":
        return DiagonalCell(*map(tensor, (keep[0], add, read[0])))
    with np.errstate(divide="ignore"):
        w = np.where(keep == 1, HOLDS[dtype], np.log(-np.log(keep)))
    if kind == "rwkv":
        return RwkvCell(*map(tensor, (w, add, np.ones_like(add), read)))
    delta = np.where(w > HOLDS[dtype] + 1, np.log(np.expm1(np.exp(w))), HOLDS[dtype])
    step = torch.nn.functional.softplus(tensor(delta)).double().numpy()
    return MambaCell(*map(tensor, (np.zeros(keep.shape[1]), delta, add / step, read)))


def _with_readout(made: Cell, readout: tuple[np.ndarray, np.ndarray], layer: PositionWise | None = None) -> GatedModel:
    """The cell with a readout V, b in its dtype."""
    V, b = (torch.as_tensor(x).to(made.tables()[0].dtype) for x in readout)
    return GatedModel(made, V, b, layer)


def decays(*, kind: str, m: int, s: int, N: int, types: int = 1, dtype: torch.dtype = torch.float64) -> GatedModel:
    """Builds s states a type that count it modulo m to N, with the rates of `diagonal.decays`.

    Claim: C-R16, and C-R25 for more than one type (ours). On one token the decay is a constant, so C-R2 bounds both
    kinds. At tokens of other types a state is held, as in `counters`, and not read.
    Raises: BadInput and NotKnown, as `diagonal.decays`.

    >>> decays(kind="mamba", m=4, s=3, N=8)(torch.zeros(1, 8, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 3, 0, 1, 2, 3]]
    >>> decays(kind="rwkv", m=3, s=2, N=4, types=2)(torch.tensor([[0, 1, 0, 0, 1, 0]])).argmax(-1).tolist()
    [[0, 0, 1, 2, 1, 0]]
    """
    rates = np.tile(diagonal.decays(m=m, s=s, N=N).cell.A.diagonal().numpy(), (types, types))
    own = np.kron(np.eye(types), np.ones(s))
    made = cell(kind, np.where(own > 0, rates, 1.0), own * (1 - rates), own, dtype)
    keep, add, _ = (table[0, :s].detach().double().numpy() for table in made.tables())
    h = add * (1 - keep ** np.arange(1, N + 1)[:, None]) / (1 - keep)
    V = diagonal.readout(np.concatenate([np.ones((N, 1)), h], axis=1), m)
    weights = np.tile(V[:, 1:], types), V[:, 0].copy()
    return _with_readout(made, weights)


def counters(*, kind: str, types: int, max_count: int, dtype: torch.dtype = torch.float64) -> GatedModel:
    """Builds one state a type that adds at its own tokens, holds at the others, and is read at its own alone.

    Claim: C-R17 (ours). At others' tokens the decay is exp(-e^w) with w = -44, or with Mamba's softplus(-44) for e^w: 1
    in float64, and a little less in real arithmetic, so that the same weights count for ever bit by bit, and forget in
    reals. One type is vanilla counting.

    >>> counters(kind="rwkv", types=2, max_count=3)(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    if types != 1:
        check(types, types)
    own, rate = np.eye(types), math.exp(-RATE)
    made = cell(kind, np.where(own > 0, rate, 1.0), own, own, dtype)
    keep, add = (float(table.detach()[0, 0]) for table in made.tables()[:2])
    places = np.array([sum(keep**k for k in range(n)) * add for n in range(max_count + 1)])
    sharp = 2 * SHARP / float((places[1:] - places[:-1]).min()) ** 2
    V = np.repeat((sharp * places)[:, None], types, axis=1)
    return _with_readout(made, (V, -sharp * places**2 / 2))


def starting(*, kind: str, task: str, M: int, dtype: torch.dtype = torch.float64) -> GatedModel:
    """Builds one state that counts on from a number word, up to M.

    Claim: C-R21 (ours). One decay a < 1 for all tokens: the word k adds h_k = 1 + a + .. + a^(k-1), every other token
    adds 1, so that k tokens more take h_j to h_(j+k). A class reads the nearest of h_0..h_M, by lines.
    Raises: BadInput for another task, or M that is no whole number from 1 to MOST.

    >>> starting(kind="s4", task="shifted", M=9)(torch.tensor([[3, 10, 10]])).argmax(-1).tolist()
    [[3, 4, 5]]
    """
    if task not in ADDED:
        raise BadInput(f"task={task}: must be one of {', '.join(ADDED)}")
    if isinstance(M, bool) or not isinstance(M, int) or not 1 <= M <= MOST:
        raise BadInput(f"vocabulary={M!r}: must be a whole number from 1 to {MOST}")
    fillers = 1 + task.startswith("helper")
    words = 0 if task == "vanilla" else M + 1
    tokens = np.ones((words + fillers, 1))
    made = cell(kind, np.full_like(tokens, math.exp(-1 / M)), tokens, tokens, dtype)
    keep, unit = (float(table.detach().double()[-1, 0]) for table in made.tables()[:2])
    places = unit * np.array([math.fsum(keep**i for i in range(k)) for k in range(M + 1)])
    made = cell(kind, np.full_like(tokens, math.exp(-1 / M)), np.append(places[:words, None], tokens[words:], 0),
                tokens, dtype)  # fmt: skip
    sharp = 2 * SHARP / float((places[1:] - places[:-1]).min()) ** 2
    readout = (sharp * places[:, None], -sharp * places**2 / 2)
    return _with_readout(made, readout)


def layered(
    *, kind: str, types: int, length: int, max_count: int, m: int | None = None, dtype: torch.dtype = torch.float64
) -> GatedModel:
    """Builds one state a type that is about its count, and neurons that say it, up to `max_count`.

    Claim: C-R22 (ours). Each token adds 1 to the state of its type, whose decay is so near to 1 that up to `length`
    tokens lose about 1/16 at most. One neuron holds this state s of the last token's type, and class j reads
    2 j s - j^2. Modulo m it reads a sawtooth in place of s: s - 1, less m for each multiple q m that s is beyond, as
    two neurons say, ReLU(s - q m - 1/4) and ReLU(s - q m - 3/4). Mamba and RWKV read no state of another type; S4 reads
    its states in the same way at every token, and has neurons for each type, which other tokens push below 0. One type
    is modular counting.
    Raises: BadInput for sizes beyond what is built.

    >>> layered(kind="s4", types=2, length=6, max_count=6, m=3)(torch.tensor([[0, 1, 0, 0, 0, 0]])).argmax(-1).tolist()
    [[0, 0, 1, 2, 0, 1]]
    """
    most = min(length, max_count)
    starts = [] if m is None else [q * m for q in range(1, (most - 1) // m + 1)]
    kinks = np.array([0.0, *(start + edge for start in starts for edge in (EDGE, 1 - EDGE))])
    groups = types if kind == "s4" else 1
    check(max(types, 2), groups * len(kinks))
    own = np.eye(types)
    slow = math.exp(-LOST / (length * most))
    made = cell(kind, np.full_like(own, slow) if kind == "s4" else np.where(own > 0, slow, 1.0), own,
                np.ones_like(own) if kind == "s4" else own, dtype)  # fmt: skip
    W = np.repeat(np.eye(types) if groups > 1 else np.ones((1, types)), len(kinks), axis=0)
    U = np.tile(-kinks, (types, groups))
    U -= length * np.repeat(1 - own, len(kinks), axis=1) if groups > 1 else 0.0
    down = np.tile([-1.0, 1.0], len(starts)) * (m or 0) / (1 - 2 * EDGE)
    slopes, classes = np.tile(np.append(1.0, down), groups), np.arange(m or max_count + 1)
    middle = 0.0 if m is None else (m - 1) / 2  # the smallest numbers: the classes are counted from the middle
    j = classes - middle
    V, b = 2 * j[:, None] * slopes, -(j**2) - (0.0 if m is None else 2 * j * (1 + middle))
    layer = PositionWise(*(torch.as_tensor(x).to(dtype) for x in (W, U)))
    return _with_readout(made, (V, b), layer)


def as_bytes(model: GatedModel) -> bytes:
    """The safetensors file of a model, its kind in the metadata.

    >>> model = decays(kind="mamba", m=4, s=3, N=8)
    >>> as_bytes(model) == as_bytes(model)
    True
    """
    return state_bytes(model, METADATA_KEY, {"model": model.kind})


def load(path: str | Path, *, kind: str) -> GatedModel:
    """Reads a trained cell: a state dict of GatedModel, whose tables have a row a token, and its neurons, if any.

    Raises: BadInput for any other file, naming the first key that is missing, not expected, or of another shape.

    >>> load("absent.pt", kind="mamba")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='absent.pt': no such file. Check the path.
    """
    what = f"weights={str(path)!r}"
    tensors, header = read_tensors(path, METADATA_KEY)
    cell_type, names = TABLES[kind]
    must = (*(f"cell.{name}" for name in names), "readout.weight", "readout.bias")
    how = f"Save the state dict of a GatedModel with --model {kind}: {', '.join(must)}"
    has_layer = any(key in tensors for key in LAYER)
    must = (*must, *LAYER) if has_layer else must
    for key in (*must, *sorted(tensors)):
        if key not in tensors or key not in must:
            raise BadInput(f"{what}: {'has no' if key in must else 'also has'} {key}. {how}.")
    check_stated(header, {"model": kind}, what)
    for key in must:
        value, first = tensors[key], tensors[must[0]]
        if not value.is_floating_point() or value.dtype != first.dtype or not bool(value.isfinite().all()):
            raise BadInput(f"{what}: {key} is {value.dtype}; all must be finite, of one floating dtype. {how}.")
    V, b = tensors["readout.weight"], tensors["readout.bias"]
    rows = tensors[f"cell.{names[1]}"]
    K, d = rows.shape if rows.dim() == 2 else (0, 0)
    of_one = {"mamba": ("cell.A",), "rwkv": (), "s4": ("cell.a", "cell.c")}[kind]
    p = d if not has_layer else tensors["layer.W"].shape[0]
    shapes = {f"cell.{name}": (d,) if f"cell.{name}" in of_one else (K, d) for name in names}
    shapes |= {"readout.weight": (len(V), p), "readout.bias": (len(V),)}
    shapes |= {"layer.W": (p, d), "layer.U": (K, p)} if has_layer else {}
    for key, shape in shapes.items():
        if tuple(tensors[key].shape) != shape or 0 in shape:
            raise BadInput(f"{what}: {key} has shape {tuple(tensors[key].shape)}, and must have {shape}. {how}.")
    layer = PositionWise(*(tensors[key] for key in LAYER)) if has_layer else None
    return GatedModel(cell_type(*(tensors[f"cell.{name}"] for name in names)), V, b, layer)
