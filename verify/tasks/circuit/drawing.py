"""The chain of thought of a small circuit: the tape of tokens, and which earlier tokens each step reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.circuits.circuit import Circuit, decompose
from constructions.errors import BadInput
from verify.report.style import BLUE, GREEN, GREY, ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_TAPE = 40  # tokens that can still be told apart
HEADS = (BLUE, ORANGE)  # of the first and the second token that a gate reads


def tape(circuit: Circuit, bits: list[int]) -> Figure:
    """The transformer's tape on one input: inputs, then a token per gate, with an arc from each token that it reads.

    Claim: E-3.4: each step retrieves the tokens of its gate's inputs and writes the gate's value.
    Raises: BadInput for a circuit whose tape would be too long to read.
    """
    from verify.tasks.circuit.proof import smallest_bits
    from verify.tasks.circuit.report import chain_of_thought

    decomposition = decompose(circuit)
    simple = decomposition.circuit
    if simple.nodes > LONGEST_TAPE:
        raise BadInput(
            f"{circuit.name}: its tape has {simple.nodes} tokens, {LONGEST_TAPE} can be drawn. Use a smaller circuit."
        )
    model, certificate = smallest_bits(decomposition, runs=0, seed=0)
    steps, outputs = chain_of_thought(model, decomposition, certificate.parameters["s"], bits)
    n = len(simple.inputs)
    values = [*bits, *(step["token"] for step in steps)]
    with style():
        reach = max((n + j - min(gate.fan_in) for j, gate in enumerate(simple.gates)), default=1)
        height = 0.5 + 0.5 * min(reach, 8)  # of the highest arc, in cells
        figure, axes = new_figure(max(4.8, 0.5 * simple.nodes + 1.0), 2.4 + 0.3 * height)
        named = {node: name for name, node in simple.outputs}
        for node, value in enumerate(values):
            _cell(axes, node, value, is_input=node < n, is_output=node in named)
        for j, gate in enumerate(simple.gates):
            for head, node in enumerate(gate.fan_in):
                _arc(axes, node, n + j + 0.3 * head - 0.15 * (len(gate.fan_in) - 1), HEADS[head], height / reach)
        kinds = [""] * n + [f"{gate.kind.upper()} " for gate in simple.gates]
        names = [kinds[node] + named.get(node, simple.name_of(node)) for node in range(simple.nodes)]
        axes.set_xticks(range(simple.nodes), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
        axes.set_title(f"{circuit.name}: " + ", ".join(f"{name} = {value}" for name, value in outputs.items()))
        _finish(axes, simple.nodes, n, height)
    return figure


def _cell(axes: Axes, node: int, value: int | None, *, is_input: bool, is_output: bool) -> None:
    from matplotlib.patches import Rectangle

    face = "#DDDDDD" if is_input else "white"
    edge, width = (GREEN, 2.2) if is_output else ("black", 0.8)
    axes.add_patch(Rectangle((node - 0.42, -0.42), 0.84, 0.84, facecolor=face, edgecolor=edge, linewidth=width))
    axes.text(node, 0, str(value), ha="center", va="center", fontsize=10)


def _arc(axes: Axes, source: float, target: float, colour: str, unit: float) -> None:
    """From the token that is read to the step that reads it."""
    import numpy as np

    angle = np.linspace(0, np.pi, 40)
    middle, radius = (source + target) / 2, (target - source) / 2
    axes.plot(middle - radius * np.cos(angle), 0.46 + 2 * radius * unit * np.sin(angle), color=colour, linewidth=1)
    axes.plot(target, 0.46, "v", color=colour, markersize=4)


def _finish(axes: Axes, nodes: int, n: int, height: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    axes.axvline(n - 0.5, ymin=0, ymax=0.5, color=GREY, linestyle="--", linewidth=0.8)
    axes.set_xlim(-0.8, nodes - 0.2)
    axes.set_ylim(-0.6, 0.8 + height)
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.set_xlabel("tape: inputs, then one token per step")
    axes.spines[:].set_visible(False)
    handles = [
        Patch(facecolor="#DDDDDD", edgecolor="black", label="input"),
        Patch(facecolor="white", edgecolor="black", label="step"),
        Patch(facecolor="white", edgecolor=GREEN, linewidth=2.2, label="output"),
        Line2D([], [], color=HEADS[0], label="first read"),
        Line2D([], [], color=HEADS[1], label="second read"),
    ]
    axes.figure.legend(handles=handles, loc="outside lower center", fontsize=8, ncols=5 if nodes > 10 else 3)
