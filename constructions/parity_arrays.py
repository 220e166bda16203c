"""The weights that tell even from odd counts, as arrays."""

from __future__ import annotations

import numpy as np

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays

MOST_PARAMETERS = 1 << 26


def sawtooth(*, T: int, L: int, dtype: str = "float64") -> ModelArrays:
    """Builds weights that tell even from odd counts: attention counts the own token, neurons fold the count.

    Claim: W-12 (ours). Tokens e_t = (unit vector t, 1); scores are 1 between equal tokens and 0 otherwise, so that
    the last coordinate of the mixed token is k + 1 at own count k. With max(1, L-1) neurons ReLU(k - i), the sum
    f(k) = 1 - 2 ReLU(k - 1) + 4 ReLU(k - 2) - 4 ReLU(k - 3) + ... is +1 at odd k and -1 at even k; the logits are -f/2
    and f/2. All weights are small integers, or halves.
    Shapes: d = T + 1, p = max(1, L - 1).
    Raises: BadInput for sizes below 1 or beyond memory.

    >>> sawtooth(T=3, L=4).W_2.tolist()
    [[1.0, -1.0], [-2.0, 2.0], [2.0, -2.0]]
    """
    for name, value in (("T", T), ("L", L)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadInput(f"{name}={value!r}: must be a whole number, at least 1")
    d, p = T + 1, max(1, L - 1)
    if T * d + 2 * d * d + d * p > MOST_PARAMETERS:
        raise BadInput(f"T={T}, L={L}: more than {MOST_PARAMETERS} parameters. Choose smaller sizes.")
    shapes = {"E": (T, d), "W_Q": (d, d), "W_K": (d, d), "W_1": (d, p), "b_1": (p,), "W_2": (p, 2), "b_2": (2,)}
    sizes = {"T": T, "L": L, "d": d, "p": p}
    model = ModelArrays.zeros("constructions.parity:ParityTransformer", dtype, sizes, shapes)
    model.E[:, :T] = np.eye(T)
    model.E[:, T] = 1
    for W in (model.W_Q, model.W_K):
        W[:T, :T] = np.eye(T)
    model.W_1[T] = 1
    i = np.arange(1.0, p + 1)
    model.b_1[:] = -1 - i  # k + 1 becomes k - i
    slope = 2 * (-1.0) ** i
    slope[0] = -1
    model.W_2[:] = np.stack([-slope, slope], axis=1)
    model.b_2[:] = -0.5, 0.5
    return model.rounded()
