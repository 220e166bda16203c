"""Stacks of whole blocks of S4, Mamba and RWKV-6, in balls again (docs/checker.md), from the file's numbers.

Of each kind the shapes of all tensors are compared with what the sizes of block 0 ask for. A step is written as the
formulas stand in docs/recurrent.md, number by number.
"""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple, Protocol

from flint import arb, arb_mat

from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tensors, require, rows_of
from verify.checker.records import LineParameters
from verify.checker.rounded_lines import Gaps, TokenFollower, differences
from verify.checker.statement import compare

EPS = 1e-5
Vector = list[arb]
Rows = list[list[float]]
Block = dict[str, Rows]
State = list[Vector]


class Product(Protocol):
    """W x + b."""

    def __call__(self, W: Rows, x: Vector, b: Sequence[float] = (), /) -> Vector: ...


def affine(W: Rows, x: Vector, b: Sequence[float] = ()) -> Vector:
    """W x + b of exact factors."""
    product = arb_mat(len(W), len(W[0]), [v for row in W for v in row]) * arb_mat(len(x), 1, x)
    return [y + c for y, c in zip(product.entries(), b or [0.0] * len(W), strict=True)]


class StoredBlocks(NamedTuple):
    """The stored numbers: blocks by the names of their tensors, and the layers before and after them."""

    kind: str
    blocks: list[Block]
    beside: dict[str, Rows]
    times: Product = affine

    @property
    def V(self) -> Rows:
        return self.beside["head.weight"]

    @property
    def b(self) -> list[float]:
        return self.beside["head.bias"][0] if "head.bias" in self.beside else [0.0] * len(self.V)

    @property
    def tokens(self) -> Rows:
        return self.beside["embedding.weight"]

    @property
    def rows(self) -> list[object]:
        """What each class reads; where it is the same, so are the logits."""
        return [(*row, c) for row, c in zip(self.V, self.b, strict=True)]

    def step(self, states: list[State], token: int) -> tuple[list[State], Vector]:
        """The states of all blocks after one more token, and the logits."""
        x, after = [*map(arb, self.tokens[token])], []
        if self.kind == "rwkv":
            x = _layer_norm(x, self.beside["first.weight"][0], self.beside["first.bias"][0])
        for block, state in zip(self.blocks, states, strict=True):
            x, later = STEPS[self.kind](self.times, block, x, state)
            after.append(later)
        if self.kind == "rwkv":
            x = _layer_norm(x, self.beside["norm.weight"][0], self.beside["norm.bias"][0])
        if self.kind == "mamba":
            x = _root_mean_square(x, self.beside["norm.weight"][0])
        return after, self.times(self.V, x, self.b)

    @property
    def start(self) -> list[State]:
        """The state 0 of all blocks."""
        return [[[arb(0)] * n for n in NUMBERS[self.kind](block)] for block in self.blocks]


# ---- the file


def of_file(weights: bytes, said: LineParameters) -> StoredBlocks:
    """The network, whose sizes must be those that the parameters say."""
    tensors, about = read_tensors(weights)
    kind = str(said["model"]).removesuffix(" blocks")
    require(about == {"model": kind}, f"the metadata name another network: {about}")
    shapes = {name: shape for name, (_, shape, _) in tensors.items()}
    table, head = shapes.get("embedding.weight", []), shapes.get("head.weight", [])
    require(len(table) == len(head) == 2, "the file holds no embedding or no head", UNREADABLE)
    (types, d), classes = table, head[0]
    layers = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    own = {name.removeprefix("blocks.0."): shape for name, shape in shapes.items()}
    try:
        each = SHAPES[kind](d, own)
    except (KeyError, IndexError) as error:
        require(False, f"block 0 is none of {kind}: {error}", UNREADABLE)
    due = {"embedding.weight": [types, d], "head.weight": [classes, d]}
    due |= {"head.bias": [classes]} if "head.bias" in shapes else {}
    due |= {"norm.weight": [d]} if kind != "s4" else {}
    due |= {"norm.bias": [d], "first.weight": [d], "first.bias": [d]} if kind == "rwkv" else {}
    due |= {f"blocks.{k}.{name}": shape for k in range(layers) for name, shape in each.items()}
    require(shapes == due and all(min(x) > 0 for x in due.values()), f"the tensors are no {kind} blocks", UNREADABLE)
    dtypes = {dtype for dtype, _, _ in tensors.values()}
    require(len(dtypes) == 1, "the tensors have several dtypes", UNREADABLE)
    shape = {"units": d, "layers": layers, "dtype": WORDS[dtypes.pop()][0]}
    compare(said, shape)
    rows = {name: rows_of(name, *tensor) for name, tensor in tensors.items()}
    blocks = [{name: rows[f"blocks.{k}.{name}"] for name in each} for k in range(layers)]
    return StoredBlocks(kind, blocks, {name: x for name, x in rows.items() if not name.startswith("blocks.")})


def _s4_shapes(d: int, own: dict[str, list[int]]) -> dict[str, list[int]]:
    half = own["kernel.A_imag"][1]
    return {
        "kernel.C": [d, half, 2], "kernel.log_dt": [d], "kernel.log_A_real": [d, half], "kernel.A_imag": [d, half],
        "D": [d], "output_linear.0.weight": [2 * d, d, 1], "output_linear.0.bias": [2 * d], "norm.weight": [d],
        "norm.bias": [d],
    }  # fmt: skip


def _mamba_shapes(d: int, own: dict[str, list[int]]) -> dict[str, list[int]]:
    (inner, states), rank = own["mixer.A_log"], own["mixer.dt_proj.weight"][1]
    shapes = {
        "in_proj.weight": [2 * inner, d], "conv1d.weight": [inner, 1, own["mixer.conv1d.weight"][2]],
        "conv1d.bias": [inner], "x_proj.weight": [rank + 2 * states, inner], "dt_proj.weight": [inner, rank],
        "dt_proj.bias": [inner], "A_log": [inner, states], "D": [inner], "out_proj.weight": [d, inner],
    }  # fmt: skip
    return {"norm.weight": [d]} | {f"mixer.{name}": shape for name, shape in shapes.items()}


def _rwkv_shapes(d: int, own: dict[str, list[int]]) -> dict[str, list[int]]:
    heads, mixed, decayed = own["att.time_faaaa"][0], own["att.time_maa_w2"][1], own["att.time_decay_w2"][0]
    neurons = own["ffn.key.weight"][0]
    shapes = {f"{name}.{part}": [d] for name in ("ln1", "ln2", "att.ln_x") for part in ("weight", "bias")}
    shapes |= {f"att.time_{name}": [1, 1, d] for name in ("decay", *(f"maa_{x}" for x in "xwkvrg"))}
    shapes |= {f"att.{name}.weight": [d, d] for name in ("receptance", "key", "value", "gate", "output")}
    shapes |= {f"ffn.time_maa_{x}": [1, 1, d] for x in "kr"}
    return shapes | {
        "att.time_maa_w1": [d, 5 * mixed], "att.time_maa_w2": [5, mixed, d], "att.time_decay_w1": [d, decayed],
        "att.time_decay_w2": [decayed, d], "att.time_faaaa": [heads, d // heads], "ffn.key.weight": [neurons, d],
        "ffn.receptance.weight": [d, d], "ffn.value.weight": [d, neurons],
    }  # fmt: skip


SHAPES = {"s4": _s4_shapes, "mamba": _mamba_shapes, "rwkv": _rwkv_shapes}
KINDS = tuple(f"{kind} blocks" for kind in SHAPES)
NUMBERS: dict[str, Callable[[Block], list[int]]] = {  # of each part of a block's state
    "s4": lambda block: [len(block["D"][0]) * len(block["kernel.A_imag"][0])] * 2,
    "mamba": lambda block: [
        len(block["mixer.A_log"]) * len(rows[0]) for rows in (block["mixer.conv1d.weight"], block["mixer.A_log"])
    ],
    "rwkv": lambda block: [
        len(block["att.time_decay"][0]),
        len(block["att.time_decay"][0]) * len(block["att.time_faaaa"][0]),
        len(block["att.time_decay"][0]),
    ],
}


# ---- in a format


def in_format(net: StoredBlocks, fmt: BinaryFormat) -> StoredBlocks:
    """One evaluation that the format allows: every result is kept exactly, and factors of matrix products are rounded
    to nearest."""

    def times(W: Rows, x: Vector, b: Sequence[float] = ()) -> Vector:
        return affine(W, [as_factor(v, fmt) for v in x], b)

    blocks = [{name: fmt.of_weights(rows) for name, rows in block.items()} for block in net.blocks]
    return StoredBlocks(net.kind, blocks, {name: fmt.of_weights(x) for name, x in net.beside.items()}, times)


def as_factor(x: arb, fmt: BinaryFormat) -> arb:
    """The number of the format that is nearest to all of a ball."""
    require(x.is_finite(), "a factor has no bound", NOT_CHECKABLE)
    ends = [(int(m), int(e)) for m, e in (x.lower().man_exp(), x.upper().man_exp())]
    low, high = (fmt.closest(m << max(e, 0), max(-e, 0)) for m, e in ends)
    require(low == high, "to which number a factor is rounded does not show", NOT_CHECKABLE)
    require(isfinite(low), "a factor overflows", NOT_CHECKABLE)
    return arb(low)


# ---- one step


def _turned(W: Rows) -> Rows:
    return [[*column] for column in zip(*W, strict=True)]


def _logistic(x: arb) -> arb:
    return 1 / (1 + (-x).exp())


def _layer_norm(x: Vector, w: Sequence[float], b: Sequence[float], eps: float = EPS) -> Vector:
    mean = sum(x, arb(0)) / len(x)
    far = [y - mean for y in x]
    spread = (sum((y * y for y in far), arb(0)) / len(x) + arb(eps)).sqrt()
    return [y / spread * arb(v) + arb(c) for y, v, c in zip(far, w, b, strict=True)]


def _root_mean_square(x: Vector, w: Sequence[float]) -> Vector:
    size = (sum((y * y for y in x), arb(0)) / len(x) + arb(EPS)).sqrt()
    return [y / size * arb(v) for y, v in zip(x, w, strict=True)]


def _s4_step(times: Product, block: Block, x: Vector, state: State) -> tuple[Vector, State]:
    half, sums, after = len(block["kernel.A_imag"][0]), [], State([[], []])
    for i, u in enumerate(x):
        dt, y = arb(block["kernel.log_dt"][0][i]).exp(), arb(block["D"][0][i]) * u
        for n in range(half):
            rate, angle = -arb(block["kernel.log_A_real"][i][n]).exp(), arb(block["kernel.A_imag"][i][n])
            cos, sin = ((rate * dt).exp() * f for f in ((angle * dt).cos(), (angle * dt).sin()))
            re, im = (part[i * half + n] for part in state)
            re, im = cos * re - sin * im + u, sin * re + cos * im
            # (e^(dt A) - 1) / A, A = rate + i angle
            size = rate * rate + angle * angle
            p, q = ((cos - 1) * rate + sin * angle) / size, (sin * rate - (cos - 1) * angle) / size
            C = block["kernel.C"][i * half + n]
            y += 2 * ((C[0] * p - C[1] * q) * re - (C[0] * q + C[1] * p) * im)
            after[0].append(re)
            after[1].append(im)
        sums.append(y * (1 + (y / arb(2).sqrt()).erf()) / 2)
    W, d = [v for row in block["output_linear.0.weight"] for v in row], len(x)
    z = times([W[i * d : i * d + d] for i in range(2 * d)], sums, block["output_linear.0.bias"][0])
    out = [u + a * _logistic(b) for u, a, b in zip(x, z[:d], z[d:], strict=True)]
    return _layer_norm(out, block["norm.weight"][0], block["norm.bias"][0]), after


def _mamba_step(times: Product, block: Block, x: Vector, state: State) -> tuple[Vector, State]:
    own = {name.removeprefix("mixer."): rows for name, rows in block.items()}
    inner, states, window = len(own["A_log"]), len(own["A_log"][0]), len(own["conv1d.weight"][0])
    z = times(own["in_proj.weight"], _root_mean_square(x, block["norm.weight"][0]))
    seen, moved = Vector(), Vector()
    for i in range(inner):
        own_window = [*state[0][i * window + 1 : (i + 1) * window], z[i]]
        moved += own_window
        y = sum(
            (v * s for v, s in zip(own["conv1d.weight"][i], own_window, strict=True)), arb(own["conv1d.bias"][0][i])
        )
        seen.append(y * _logistic(y))
    read = times(own["x_proj.weight"], seen)
    rank, h, out = len(own["dt_proj.weight"][0]), Vector(), Vector()
    B, C = read[rank : rank + states], read[rank + states :]
    for i, u in enumerate(times(own["dt_proj.weight"], read[:rank], own["dt_proj.bias"][0])):
        dt, y = u.exp().log1p(), own["D"][0][i] * seen[i]
        for n in range(states):
            keep = (-dt * arb(own["A_log"][i][n]).exp()).exp()
            h.append(keep * state[1][i * states + n] + dt * B[n] * seen[i])
            y += h[-1] * C[n]
        gate = z[inner + i]
        out.append(y * gate * _logistic(gate))
    return [u + y for u, y in zip(x, times(own["out_proj.weight"], out), strict=True)], [moved, h]


def _rwkv_step(times: Product, block: Block, x: Vector, state: State) -> tuple[Vector, State]:
    read = _layer_norm(x, block["ln1.weight"][0], block["ln1.bias"][0])
    y, S = _time_mixed(
        times, {name.removeprefix("att."): rows for name, rows in block.items()}, read, state[0], state[1]
    )
    x = [u + v for u, v in zip(x, y, strict=True)]
    later = _layer_norm(x, block["ln2.weight"][0], block["ln2.bias"][0])
    k, r = (_between(later, state[2], block[f"ffn.time_maa_{name}"][0]) for name in "kr")
    z = [v.max(arb(0)) for v in times(block["ffn.key.weight"], k)]
    value = times(block["ffn.value.weight"], [v * v for v in z])
    gates = [_logistic(v) for v in times(block["ffn.receptance.weight"], r)]
    return [u + g * v for u, g, v in zip(x, gates, value, strict=True)], [read, S, later]


def _between(x: Vector, before: Vector, share: Sequence[arb | float]) -> Vector:
    return [u + (v - u) * s for u, v, s in zip(x, before, share, strict=True)]


def _time_mixed(times: Product, own: Block, x: Vector, before: Vector, S: Vector) -> tuple[Vector, Vector]:
    """What RWKV-6's time mixing says, and S after it: for each head, S[i][j] of key i and value j."""
    mixed = [v.tanh() for v in times(_turned(own["time_maa_w1"]), _between(x, before, own["time_maa_x"][0]))]
    rank, parts = len(mixed) // 5, []
    for i, name in enumerate("wkvrg"):
        low = times(_turned(own["time_maa_w2"][i * rank : (i + 1) * rank]), mixed[i * rank : (i + 1) * rank])
        share = [s + m for s, m in zip(own[f"time_maa_{name}"][0], low, strict=True)]
        parts.append(_between(x, before, share))
    w, k, v, r, g = parts
    inner = [y.tanh() for y in times(_turned(own["time_decay_w1"]), w)]
    decay = [c + y for c, y in zip(own["time_decay"][0], times(_turned(own["time_decay_w2"]), inner), strict=True)]
    keep = [(-y.exp()).exp() for y in decay]
    k, v, r, g = (
        times(own[f"{name}.weight"], y)
        for name, y in zip(("key", "value", "receptance", "gate"), (k, v, r, g), strict=True)
    )
    size, after, out = len(own["time_faaaa"][0]), Vector(), Vector()
    for first in range(0, len(x), size):
        said = [arb(0)] * size
        for i in range(first, first + size):
            for j in range(size):
                kv = k[i] * v[first + j]
                said[j] += r[i] * (own["time_faaaa"][first // size][i - first] * kv + S[i * size + j])
                after.append(keep[i] * S[i * size + j] + kv)
        places = slice(first, first + size)
        out += _layer_norm(said, own["ln_x.weight"][0][places], own["ln_x.bias"][0][places], 64 * EPS)
    gated = [y * z * _logistic(z) for y, z in zip(out, g, strict=True)]
    return times(own["output.weight"], gated), after


STEPS: dict[str, Callable[[Product, Block, Vector, State], tuple[Vector, State]]] = {
    "s4": _s4_step, "mamba": _mamba_step, "rwkv": _rwkv_step,
}  # fmt: skip


def by_balls(net: StoredBlocks, states: list[State] | None = None) -> TokenFollower:
    """What balls of exact numbers say of the logits after one token, two tokens, and so on."""

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        after, logits = net.step(net.start if states is None else states, token)
        return lambda k: differences(logits, net.rows, k), by_balls(net, after)

    return follow
