"""The tensors of one block of S4, Mamba and RWKV-6, and their shapes (docs/checker.md)."""


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
