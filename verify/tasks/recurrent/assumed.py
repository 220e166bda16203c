"""What a verdict about a recurrent network takes for granted, in each reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.arithmetic.contract import STORED, TRACED, rounding
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Rounded
from verify.arithmetic.torch_settings import assumed
from verify.tasks.recurrent.kinds import has_cells, is_residual, is_rotation

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

FUNCTIONS = {
    "gru": "tanh and sigmoid are within 2 units in the last place of their value",
    "lstm": "tanh and sigmoid are within 2 units in the last place of their value",
    "mamba": "exp and softplus are within 2 units in the last place of their value",
    "rwkv": "exp is within 2 units in the last place of its value",
}


def blocks(model: AnyModel) -> str:
    """What a stack of whole blocks is, in a line."""
    norms = "; S4D blocks end in their LayerNorm" if model.kind == "s4" else ""
    eps = "eps 1e-05 in norms, 64e-05 in those of each head" if model.kind == "rwkv" else "eps 1e-05 in norms"
    return f"{model.layers} residual {model.kind} blocks from the state 0, tokens are embedded{norms}; {eps}"


def functions(model: AnyModel) -> tuple[str, ...]:
    """How far the elementary functions of a network's cells may be off; nothing where it has none.

    >>> from constructions.recurrent.counters_arrays import cycle
    >>> functions(cycle(m=3))
    ('tanh is within 2 units in the last place of its value',)
    """
    if has_cells(model) and model.kind == "rnn":
        is_tanh = model.activation == "tanh"
        return ("tanh is within 2 units in the last place of its value",) if is_tanh else ()
    if is_rotation(model):
        return ("cos and sin are within 2 units in the last place of their value",)
    return (FUNCTIONS[model.kind],) if model.kind in FUNCTIONS else ()


def assumptions(
    reading: Reading, model: AnyModel, network: str, *, run: str, right: str, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The assumptions of a reading: `network` is its formula, `run` how torch runs it, `right` what right means.

    `more` are further ones of torch's runs.
    Raises: BadInput for constant-bit arithmetic, which recurrent networks do not have.
    """
    if isinstance(reading, ConstantBits):
        raise BadInput("precision=sN: recurrent networks have no constant-bit reading. Use real, a format, or pN.")
    if is_residual(model) and isinstance(reading, Rounded):
        from verify.module.problem import CONTRACT  # loads torch's tracer

        settings = assumed(reading.format)
        return network, TRACED[0], rounding(reading.format, reading.accumulate), *settings, *CONTRACT, right
    if isinstance(reading, Kernel):
        import torch

        return network, f"torch {torch.__version__} on {run}", *more, right
    if isinstance(reading, Rounded):
        return (
            network,
            rounding(reading.format, reading.accumulate),
            *assumed(reading.format),
            "sums in any order, fused or not; subnormals kept or flushed",
            *functions(model),
            right,
        )
    return f"{network}, in real arithmetic", STORED, *(TRACED[:1] if is_residual(model) else ()), right
