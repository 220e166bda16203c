"""A circuit as the weights of a two-layer transformer that computes it by chain of thought, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constructions.circuits.circuit import Circuit
from constructions.constant_bits.arithmetic import FixedPoint, largest_value
from constructions.errors import BadInput
from constructions.model_arrays import LayerArrays, ModelArrays


@dataclass(frozen=True)
class Lanes:
    """The named coordinates of the residual stream, in the order of the proof: width 3k + 6."""

    k: int

    x: int = 0  # the token at this position
    x_a: int = 1  # the first input of the next gate, retrieved by the first layer
    x_b: int = 2  # its second input, retrieved by the second layer
    g: int = 3  # the next token
    c: int = 4  # the type of the next gate: 0 NOT, 1 AND

    @property
    def id(self) -> slice:
        return slice(5, 5 + self.k)

    @property
    def a(self) -> slice:
        return slice(5 + self.k, 5 + 2 * self.k)

    @property
    def b(self) -> slice:
        return slice(5 + 2 * self.k, 5 + 3 * self.k)

    @property
    def one(self) -> int:
        return 5 + 3 * self.k

    @property
    def d(self) -> int:
        return 3 * self.k + 6


def build(circuit: Circuit, *, s: int = 2, as_printed: bool = False) -> ModelArrays:
    """The transformer whose chain of thought is the circuit, gate by gate, in s-bit arithmetic.

    Claim: E, Thm. 3.4. Departures from the printed proof, each of which it needs (docs/circuit.md):
    a position without a second or without any input addresses a token that exists (b = a for NOT, its own
    position before the first gate) where the printed 0 addresses none and the softmax is 0/0
    (`as_printed=True` keeps the 0); the value is x e_2, not e_2; the scores are not divided by sqrt(2k),
    which would let exp(-B_s / sqrt(2k)) survive; there is no layer normalisation.
    Units: weights are 0, 1, -1, -2 and B_s = 2^s - 2^-s, all exact in float32.
    Raises: BadInput for gates other than AND and NOT (`constructions.circuits.circuit.decompose` first).

    >>> from constructions.circuits.circuit import Circuit, Gate
    >>> nand = Circuit("nand", ("x", "y"), (Gate("and", (0, 1), "c"), Gate("not", (2,), "z")), (("z", 3),))
    >>> build(nand, s=8).P.shape
    (3, 12)
    """
    for gate in circuit.gates:
        if gate.kind not in ("and", "not") or len(gate.fan_in) != {"and": 2, "not": 1}[gate.kind]:
            raise BadInput(f"{circuit.name}: gate {gate.name} is {gate.kind}; decompose to AND and NOT first")
    n, T = len(circuit.inputs), len(circuit.gates)
    model = zero(n=n, T=T, s=s)
    lanes, B_s = model.lanes, float(largest_value(s))
    model.E[1, lanes.x] = 1.0
    for lane, values in _positions(circuit, lanes, as_printed):
        model.P[:, lane] = values
    for layer, address, target in zip(model.blocks, (lanes.a, lanes.b), (lanes.x_a, lanes.x_b), strict=True):
        # score = sum_j (address_j id_j B_s - B_s): 0 where all bits agree, else -B_s by saturation
        layer.W_Q[address, 0::2] = np.eye(lanes.k)
        layer.W_Q[lanes.one, 1::2] = 1.0
        layer.W_K[lanes.id, 0::2] = B_s * np.eye(lanes.k)
        layer.W_K[lanes.one, 1::2] = -B_s
        layer.W_V[lanes.x, 0] = 1.0
        layer.W_O[0, target] = 1.0
    _gate_layer(model.blocks[1], lanes)
    return model.rounded()


def _gate_layer(layer: LayerArrays, lanes: Lanes) -> None:
    """g = ReLU(1 - x_a - c) + ReLU(x_a + x_b + c - 2): NOT x_a for c = 0, x_a AND x_b for c = 1."""
    not_, and_ = 0, 1
    layer.W_1[[lanes.x_a, lanes.c], not_] = -1.0
    layer.b_1[not_] = 1.0
    layer.W_1[[lanes.x_a, lanes.x_b, lanes.c], and_] = 1.0
    layer.b_1[and_] = -2.0
    layer.W_2[:, lanes.g] = 1.0


def _positions(
    circuit: Circuit, lanes: Lanes, as_printed: bool
) -> Iterator[tuple[int | slice, float | NDArray[np.int64]]]:
    """Lane by lane, position m carries its own id m and the type and addresses of gate m + 1, which it computes."""
    n, T = len(circuit.inputs), len(circuit.gates)
    own = np.arange(1, n + T)
    a, b, c = own.copy(), own.copy(), np.zeros(n + T - 1, np.int64)
    if as_printed:
        a[: n - 1] = b[: n - 1] = 0
    first = np.array([gate.fan_in[0] + 1 for gate in circuit.gates], np.int64)
    second = np.array([gate.fan_in[-1] + 1 for gate in circuit.gates], np.int64)
    is_and = np.array([gate.kind == "and" for gate in circuit.gates], bool)
    a[n - 1 :], c[n - 1 :] = first, is_and
    b[n - 1 :] = np.where(is_and, second, 0) if as_printed else second
    yield lanes.c, c
    yield lanes.one, 1.0
    for lane, address in ((lanes.id, own), (lanes.a, a), (lanes.b, b)):
        yield lane, signed_binary(address, lanes.k)


def signed_binary(i: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The k bits of i, the lowest first, as -1 and 1.

    >>> signed_binary(np.array([6]), 3).tolist()
    [[-1, 1, 1]]
    """
    bits: NDArray[np.int64] = 2 * ((i[:, None] >> np.arange(k)) & 1) - 1
    return bits


def zero(*, n: int, T: int, s: int) -> ModelArrays:
    """A zero CircuitTransformer before it is made.

    >>> model = zero(n=2, T=3, s=2)
    >>> dict(model.named_parameters()).keys() == dict(model.module.named_parameters()).keys()
    True
    """
    check_sizes(n, T)
    lanes = Lanes(k=(T + n - 1).bit_length())
    d, k = lanes.d, lanes.k
    layer: dict[str, tuple[int, ...]] = {"W_Q": (d, 2 * k), "W_K": (d, 2 * k), "W_V": (d, 1), "W_O": (1, d)}
    layer |= {"W_1": (d, 2), "b_1": (2,), "W_2": (2, d), "b_2": (d,)}
    shapes: dict[str, tuple[int, ...]] = {"E": (2, d), "P": (n + T - 1, d)}
    shapes |= {f"layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    made_by = "constructions.circuit_simulation:CircuitTransformer"
    return ModelArrays.zeros(made_by, "float32", {"n": n, "T": T, "s": FixedPoint(s).s}, shapes, lanes=lanes)


def check_sizes(n: int, T: int) -> None:
    """Raises BadInput for a chain of thought without input tokens."""
    if n < 1 or T < 0:
        raise BadInput(f"n={n}, T={T}: a chain of thought has n >= 1 input tokens and T >= 0 steps")
