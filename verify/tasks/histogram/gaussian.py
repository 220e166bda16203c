"""Random Gaussian tokens: the share that meets the conditions of W-2 and W-3, by drawing them (document A, App. E.3).

Shares are sampled, in float64: they say how often chance suffices, and prove nothing about a single draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from constructions.histogram import check_sizes

Array = NDArray[np.float64]
DIMENSIONS = (2, 3, 4, 6, 8, 12, 16, 23, 32, 45, 64, 91, 128, 256, 512, 1024)
TOLERANCE = 1e-9  # of the linear program that looks for readouts


@dataclass(frozen=True)
class CodeShares:
    """Of `draws` codes: how many meet W-2 in lin, as they are and with some readouts, in dot, and W-3.

    `temperature` is the median inverse temperature that W-3 asks for.
    """

    T: int
    L: int
    d: int
    draws: int
    lin_own: int
    lin_any: int
    dot_own: int
    relation: int
    temperature: float


def shares(T: int, L: int, d: int, *, draws: int = 100, seed: int = 0) -> CodeShares:
    """Draws Gaussian tokens, normalised, and tests the conditions.

    Own readouts are W_1 = E^T: D_ts = 1 - <e_t, e_s> in lin and 1 - <e_t, e_s>^2 in dot. Any readouts: those exist
    where (2L-2) max|u| < sum|u| on the u with sum u_s = 0 and sum u_s e_s = 0 (W-21).

    >>> found = shares(6, 3, 5, draws=20)
    >>> found.lin_any, found.relation
    (20, 20)
    """
    check_sizes("lin", T=T, L=L, d=d, p=T)
    if L < 2 or T < 2 or draws < 1:
        raise BadInput(f"T={T}, L={L}, draws={draws}: shares need two tokens, two positions and a draw.")
    rng, off = np.random.default_rng(seed), ~np.eye(T, dtype=bool)
    counted, needed = np.zeros(4, dtype=int), []
    for _ in range(draws):
        E = rng.normal(size=(T, d))
        E /= np.linalg.norm(E, axis=1, keepdims=True)
        overlaps = (E @ E.T)[off].reshape(T, T - 1)
        least_gap = float((1 - overlaps).min())
        own_lin, own_dot = is_even(1 - overlaps, L), is_even(1 - overlaps**2, L)
        any_lin = own_lin or has_readouts(E, L)
        counted += [own_lin, any_lin, own_dot, least_gap > 0]
        needed.append(np.log(2 * L) / least_gap if least_gap > 0 else np.inf)
    lin_own, lin_any, dot_own, relation = (int(n) for n in counted)
    return CodeShares(T, L, d, draws, lin_own, lin_any, dot_own, relation, float(np.median(needed)))


def is_even(D: Array, L: int) -> bool:
    """Whether 0 < max D_ts < (L-1)/(L-2) min D_ts in each row: the condition of W-2."""
    return bool((D.min(1) > 0).all() and ((L - 2) * D.max(1) < (L - 1) * D.min(1)).all())


def has_readouts(E: Array, L: int) -> bool:
    """Whether some W_1 makes the readings even: one linear program per token, given up at the first that fails."""
    from scipy.linalg import null_space
    from scipy.optimize import linprog

    T = len(E)
    U = null_space(np.vstack([np.ones(T), E.T]))
    if not U.shape[1]:
        return True
    for t in np.argsort(-np.abs(U).sum(1)):  # the heaviest rows fail first
        rest = np.delete(U, t, axis=0).T
        # the least r with sum over s of n_s f_s = -f_t and |n_s| <= r
        cost = np.append(np.zeros(T - 1), 1.0)
        bound = np.hstack([np.vstack([np.eye(T - 1), -np.eye(T - 1)]), -np.ones((2 * T - 2, 1))])
        equal = np.hstack([rest, np.zeros((len(rest), 1))])
        found = linprog(cost, A_ub=bound, b_ub=np.zeros(2 * T - 2), A_eq=equal, b_eq=-U[t], bounds=(None, None))
        if found.status != 0 or found.fun * (2 * L - 3) >= 1 - TOLERANCE:
            return False
    return True


def dimensions(T: int) -> list[int]:
    """The document's grid of d, and the values around T - 1, up to 4 T."""
    return sorted({d for d in (*DIMENSIONS, T - 3, T - 2, T - 1, T) if 1 <= d <= 4 * T})
