"""One step of a block of S4, Mamba and RWKV-6, as the formulas stand in docs/recurrent.md (docs/checker.md)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from flint import arb

EPS = 1e-5
Vector = list[arb]
Rows = list[list[float]]
Block = dict[str, Rows]
State = list[Vector]


class Product(Protocol):
    """W x + b."""

    def __call__(self, W: Rows, x: Vector, b: Sequence[float] = (), /) -> Vector: ...


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


def _turned(W: Rows) -> Rows:
    return [[*column] for column in zip(*W, strict=True)]


def _logistic(x: arb) -> arb:
    return 1 / (1 + (-x).exp())


def layer_norm(x: Vector, w: Sequence[float], b: Sequence[float], eps: float = EPS) -> Vector:
    mean = sum(x, arb(0)) / len(x)
    far = [y - mean for y in x]
    spread = (sum((y * y for y in far), arb(0)) / len(x) + arb(eps)).sqrt()
    return [y / spread * arb(v) + arb(c) for y, v, c in zip(far, w, b, strict=True)]


def root_mean_square(x: Vector, w: Sequence[float]) -> Vector:
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
    return layer_norm(out, block["norm.weight"][0], block["norm.bias"][0]), after


def _mamba_step(times: Product, block: Block, x: Vector, state: State) -> tuple[Vector, State]:
    own = {name.removeprefix("mixer."): rows for name, rows in block.items()}
    inner, states, window = len(own["A_log"]), len(own["A_log"][0]), len(own["conv1d.weight"][0])
    z = times(own["in_proj.weight"], root_mean_square(x, block["norm.weight"][0]))
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
    read = layer_norm(x, block["ln1.weight"][0], block["ln1.bias"][0])
    y, S = _time_mixed(
        times, {name.removeprefix("att."): rows for name, rows in block.items()}, read, state[0], state[1]
    )
    x = [u + v for u, v in zip(x, y, strict=True)]
    later = layer_norm(x, block["ln2.weight"][0], block["ln2.bias"][0])
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
        out += layer_norm(said, own["ln_x.weight"][0][places], own["ln_x.bias"][0][places], 64 * EPS)
    gated = [y * z * _logistic(z) for y, z in zip(out, g, strict=True)]
    return times(own["output.weight"], gated), after


STEPS: dict[str, Callable[[Product, Block, Vector, State], tuple[Vector, State]]] = {
    "s4": _s4_step, "mamba": _mamba_step, "rwkv": _rwkv_step,
}  # fmt: skip
