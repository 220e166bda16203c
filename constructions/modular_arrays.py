"""Adding two numbers modulo P, one token per number, read at "=": a staircase of two neurons, or rotations of circles.

E describes what training finds, rotations, and gives no weights; these are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from flint import arb, ctx

from constructions.adder.arrays import zero_adder
from constructions.errors import BadInput, NotKnown, ProvedImpossible
from constructions.model_arrays import Array, ModelArrays, check_held

CONSTRUCTIONS = ("staircase", "clock", "pizza", "one-neuron")
# One neuron, P = 2 and 3: rows (lanes 0..P-1, what the neuron reads) of each number, and what it writes to the lanes.
ONE_NEURON = {
    2: (((-3, 0, 4), (1, 0, -4)), (0, -1)),
    3: (((1, 0, -3, -9), (-3, 0, 1, -3), (0, -17, 6, 9)), (0, 2, -2)),
}
CLOSEST = 4096  # pairs whose ideal margin is least so far: where a frequency gains little there, it is not the best
# Frequencies found by search for P = 113: the largest ideal margin of a pizza, and for K = 9 what bfloat16 bears.
PIZZA_113 = {
    1: (1,),
    2: (1, 30),
    3: (1, 10, 46),
    4: (1, 6, 29, 50),
    5: (1, 8, 28, 39, 50),
    6: (1, 8, 12, 37, 43, 54),
    9: (1, 4, 10, 22, 23, 35, 40, 52, 54),
}


def staircase(*, P: int, dtype: str = "float64") -> ModelArrays:
    """Uniform attention adds the numbers in one dimension, two ReLUs subtract P, and the readout is a staircase.

    Claim: W-E4.4 (ours). z = a + b; y = z - P ReLU(z - P + 1) + P ReLU(z - P); logit_c = c y - c^2/2. The
    margin is 1/2, between neighbours, for every P.
    Shapes: d = d_h = d_v = 1, p = 2.
    Raises: BadInput for P < 2, or numbers that the dtype does not hold.
    """
    check_modulus(P)
    model = zero_adder(tokens=P + 1, length=3, classes=P, d=1, p=(2,), dtype=dtype)
    layer, c = model.blocks[0], np.arange(float(P))
    check_held(-(c * c) / 2, dtype, f"P={P}: the readout needs the number -(P-1)^2/2")
    check_held(3 * c, dtype, f"P={P}: the embedding needs the numbers 3 a")
    model.E[:P, 0] = 3 * c  # a third of each token is attended to
    layer.W_V[:] = 1
    layer.W_O[:] = 1
    layer.W_1[:] = 1
    layer.b_1[:] = [1 - P, -P]
    layer.W_2[:, 0] = [-P, P]
    model.W_out[0], model.b_out[:] = c, -(c * c) / 2
    return model.rounded()


def one_neuron(*, P: int, dtype: str = "float64") -> ModelArrays:
    """Uniform attention adds rows of the numbers, one lane for each class, and one ReLU corrects what sums get wrong.

    Claim: W-E4.9 (ours). Integers, found by linear programmes over where the neuron is on. The margin is 2 for every
    pair. Without a neuron it is impossible; for P = 4 and 5 neither weights nor an impossibility are known here.
    Shapes: d = d_h = d_v = P + 1, p = 1.
    Raises: NotKnown for P > 3, BadInput for P < 2.
    """
    check_modulus(P)
    if P not in ONE_NEURON:
        raise NotKnown(f"P={P}: one neuron is known to add modulo 2 and 3. Use --construction staircase, with two.")
    rows, written = ONE_NEURON[P]
    model = zero_adder(tokens=P + 1, length=3, classes=P, d=P + 1, d_h=1, d_v=P + 1, p=(1,), dtype=dtype)
    layer = model.blocks[0]
    model.E[:P] = 3 * np.array(rows)  # a third of each token is attended to
    layer.W_V[0], layer.W_O[0] = np.eye(P + 1), np.eye(P + 1)
    layer.W_1[P, 0] = 1
    layer.W_2[0, :P] = written
    model.W_out[:P] = np.eye(P)
    return model.rounded()


def clock(*, P: int, frequencies: Sequence[int], dtype: str = "float64") -> ModelArrays:
    """Neurons interpolate cos(w z) and sin(w z) at z = a + b: the logits are sum_k cos(w_k (a + b - c)).

    Claim: E-4.1. E multiplies sines and cosines; here 2P - 3 neurons ReLU(z - j) bend straight lines through
    all 2P - 1 values, so the products are exact up to the stored numbers.
    Shapes: d = 2K + 1, d_h = d_v = 1, p = 2P - 3.
    Raises: BadInput for P < 3 or frequencies that are no residues.
    """
    check_modulus(P, least=3)
    frequencies = check_frequencies(P, frequencies)
    K = len(frequencies)
    model = zero_adder(tokens=P + 1, length=3, classes=P, d=2 * K + 1, p=(2 * P - 3,), dtype=dtype)
    layer = model.blocks[0]
    circle = circles(P, frequencies)  # (P, 2K)
    values = np.concatenate([circle, circle[:-1]])  # of cos and sin at z = 0..2P-2
    slopes = values[1:] - values[:-1]
    model.E[:P, 0] = 3 * np.arange(P)
    model.E[P, 1:] = values[0]
    layer.W_V[0, 0, 0] = 1
    layer.W_O[0, 0, 0], layer.W_O[0, 0, 1:] = 1, slopes[0]
    layer.W_1[0] = 1
    layer.b_1[:] = -np.arange(1, 2 * P - 2)
    layer.W_2[:, 1:] = slopes[1:] - slopes[:-1]
    model.W_out[1:] = circle.T
    return model.rounded()


def pizza(*, P: int, frequencies: Sequence[int] = (1,), m: int = 5, dtype: str = "float64") -> ModelArrays:
    """Points on circles are averaged, and m neurons per frequency double the angle of the average.

    Claim: W-E4.5 (ours; the name is of trained models). The average of e^(iwa) and e^(iwb) is
    cos(w (a-b)/2) e^(iw (a+b)/2); neuron j reads it along phi_j = 2 pi j/m and is written along 2 phi_j, which for odd
    m >= 5 leaves |cos(w (a-b)/2)| e^(iw (a+b)) up to a small phase. No skip connection, no biases.
    Shapes: d = 2K, d_h = 1, d_v = 2K, p = m K. For one frequency
    m = 5 is proved enough up to P = 117, and bounds.modular.neurons_needed says what is beyond.
    Raises: ProvedImpossible for even P; BadInput for an even m or one below 5, or frequencies that are no residues.
    """
    check_modulus(P)
    if P % 2 == 0:
        raise ProvedImpossible(
            "W-E4.8",
            f"P={P}: a pizza needs odd P, whatever its frequencies: at a - b = P/2 odd ones average to 0, and even "
            "ones tie c with c + P/2. Use --construction staircase or clock.",
        )
    frequencies = check_frequencies(P, frequencies)
    if m < 5 or m % 2 == 0:
        raise BadInput(
            f"neurons-per-frequency={m}: must be odd and at least 5: an even number does what half of it does, "
            "and below 5 the linear part stays"
        )
    K = len(frequencies)
    model = zero_adder(tokens=P + 1, length=3, classes=P, d=2 * K, d_v=2 * K, p=(m * K,), skip=False, dtype=dtype)
    layer = model.blocks[0]
    circle, phi = circles(P, frequencies), circles(m, (1, 2))
    model.E[:P] = 1.5 * circle  # of three shares, two are numbers: they average to the half-sum
    layer.W_V[0], layer.W_O[0] = np.eye(2 * K), np.eye(2 * K)
    for k in range(K):
        plane, neurons = slice(2 * k, 2 * k + 2), slice(m * k, m * (k + 1))
        layer.W_1[plane, neurons] = phi[:, :2].T
        layer.W_2[neurons, plane] = 6 * math.pi / m * phi[:, 2:]
    model.W_out[:] = circle.T
    return model.rounded()


def pizza_frequencies(P: int, K: int) -> tuple[int, ...]:
    """K frequencies for a pizza: found by search for P = 113, else each added where the ideal margin gains most.

    >>> pizza_frequencies(113, 4), pizza_frequencies(11, 2)
    ((1, 6, 29, 50), (1, 3))
    """
    check_K(P, K)
    if P == 113 and K in PIZZA_113:
        return PIZZA_113[K]
    angles = np.arange(float(P))
    shift = np.arange(1.0, P)
    factors = {
        w: (2 * np.abs(np.cos(math.pi * w * angles / P)), 1 - np.cos(2 * math.pi * w * shift / P))
        for w in range(1, (P - 1) // 2 + 1)
    }
    chosen, total = [1], np.outer(*factors[1])
    while len(chosen) < K:
        rows, columns = np.unravel_index(np.argsort(total, None)[:CLOSEST], total.shape)
        closest, best, most = total[rows, columns], 0, -math.inf
        for w in (w for w in factors if w not in chosen):
            size, gain = factors[w]
            if (closest + size[rows] * gain[columns]).min() > most:  # else the least of all is no larger either
                least = float((total + np.outer(size, gain)).min())
                best, most = (w, least) if least > most else (best, most)
        chosen, total = [*chosen, best], total + np.outer(*factors[best])
    return tuple(sorted(chosen))


def circles(P: int, frequencies: Iterable[int]) -> Array:
    """cos and sin of 2 pi w a/P for every a, each rounded once to float64: (P, 2K).

    >>> circles(4, [1]).tolist()
    [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    """
    with ctx.workprec(120):
        rows = [
            [float(f(arb(2 * (w * a % P)) / P)) for w in frequencies for f in (arb.cos_pi, arb.sin_pi)]
            for a in range(P)
        ]
    return np.array(rows)


def check_modulus(P: int, least: int = 2) -> None:
    """Raises BadInput for a modulus that is too small.

    >>> check_modulus(1)
    Traceback (most recent call last):
    constructions.errors.BadInput: P=1: must be at least 2
    """
    if least > P:
        raise BadInput(f"P={P}: must be at least {least}")


def check_K(P: int, K: int) -> None:
    """Raises BadInput for a number of frequencies that P does not have.

    >>> check_K(7, 4)
    Traceback (most recent call last):
    constructions.errors.BadInput: K=4: must be from 1 to (P-1)/2 = 3, the number of frequencies of P=7
    """
    if not 1 <= K <= (P - 1) // 2:
        raise BadInput(f"K={K}: must be from 1 to (P-1)/2 = {(P - 1) // 2}, the number of frequencies of P={P}")


def check_frequencies(P: int, frequencies: Sequence[int]) -> tuple[int, ...]:
    """The frequencies sorted, each from 1 to P/2.

    Raises: BadInput for others, repeated ones, or none.

    >>> check_frequencies(113, (6, 1))
    (1, 6)
    """
    chosen = tuple(sorted(frequencies))
    if not chosen or len(set(chosen)) != len(chosen) or not 1 <= chosen[0] <= chosen[-1] <= P // 2:
        raise BadInput(f"frequencies={','.join(map(str, frequencies))}: must be different numbers from 1 to {P // 2}")
    return chosen
