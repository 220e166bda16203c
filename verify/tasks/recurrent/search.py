"""Finds chains of ellipsoids in floats: nothing here is trusted, everything is checked in chain.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.chain import Ellipsoids, Rules, derivative
from verify.tasks.recurrent.enclosures import Off, Roundings
from verify.tasks.recurrent.network import STEPS_AT_A_TIME, Network, float_step, orbit, step, vectors

NOISE = 2.0**-48  # what float64 rounds away of a step, relative to its largest number
CLOSE = 1e-7  # how near a state must come to itself before a cycle is polished
SLOW = 1e-3  # by which an orbit that creeps changes in a turn, at most
POINT = -900  # log2 of the size of an ellipsoid that is a point
LEAST_SLACK = 1.015  # of ellipsoids that are hardly larger than they must be
MOST_TURNS = 8  # multiples of the modulus that are tried as the length of a cycle


@dataclass(frozen=True)
class Cycle:
    """States (k, N), each of which leads to the next, and the last to the first, which the orbit has at `start`."""

    states: Array
    start: int


def jacobian(net: Network, token: int, state: Array) -> Array:
    """The derivatives at one state in floats: (N, N)."""
    J: Array = jacobians(net, token, state[None])[0]
    return J


def jacobians(net: Network, token: int, states: Array) -> Array:
    """The derivatives at states (T, N) in floats: (T, N, N)."""
    eye = np.broadcast_to(np.eye(net.size), (len(states), net.size, net.size))
    points = Ellipsoids(states, eye, np.full(len(states), POINT))
    return derivative(net, token, points).mid


def find_cycle(net: Network, token: int, states: Array, period: int, until: Deadline) -> Cycle | None:
    """The cycle that an orbit settles into, of a length that is a multiple of the period; None where it does not.

    The end of the orbit is compared with what it was some turns before, and the cycle is then polished by Newton.
    """
    last = len(states) - 1
    for turns in range(1, MOST_TURNS + 1):
        k = turns * period
        if last < 2 * k or not np.isfinite(states[-1]).all() or until.is_up():
            return None
        gap = np.abs(states[last] - states[last - k]).max()
        if gap > CLOSE * (1 + np.abs(states[last]).max()) and not gap < 1e-2:
            continue
        start = last
        found = _polished(net, token, states[start], k, until)
        if found is not None:
            return Cycle(found, start)
    return None


def find_turn(states: Array, period: int) -> int | None:
    """The least multiple of the period after which the orbit's end was almost where it ends; None where there is none.

    >>> find_turn(np.array([[(-1) ** t * (1 + 1e-9 * t)] for t in range(100)]), 1)
    2
    """
    last = len(states) - 1
    if not np.isfinite(states[-1]).all():
        return None
    for k in range(period, min(MOST_TURNS * period, last // 2) + 1, period):
        if np.abs(states[last] - states[last - k]).max() <= SLOW * (1 + np.abs(states[last]).max()):
            return k
    return None


def _polished(net: Network, token: int, state: Array, k: int, until: Deadline) -> Array | None:
    """Newton's method for the fixed point of k steps; None where it strays, repels, or time is up."""
    first, eye = state, np.eye(net.size)
    with np.errstate(all="ignore"):
        for _ in range(12):
            states = orbit(net, [token] * k, first, until)
            off = states[-1] - first
            around = eye
            for x in states[:-1]:
                if until.is_up():
                    return None
                around = jacobian(net, token, x) @ around
            if not np.isfinite(around).all() or np.abs(np.linalg.eigvals(around)).max() >= 1 - 1e-9:
                return None
            if np.abs(off).max() <= 64 * NOISE * (1 + np.abs(first).max()):
                break
            first = first + np.linalg.solve(eye - around, off)
        else:
            return None
        if not np.abs(first - state).max() < 0.1 * (1 + np.abs(state).max()):
            return None
        return states[:-1]


def noise(net: Network, token: int, states: Array, rules: Rules) -> Array:
    """About how far a computed step is off, per number of the state (T, N)."""
    own: Array = NOISE * (1 + np.abs(states)) * np.sqrt(net.size)
    if rules.at is None:
        return own
    exact = [Off(Ball.exact(part), np.zeros_like(part)) for part in vectors(net, states)]
    off = np.concatenate([x.error for x in step(net, exact, token, Roundings(rules.at))], axis=-1)
    total: Array = own + np.where(np.isfinite(off), off, 1.0) * np.sqrt(net.size)
    return total


def round_cycle(
    net: Network, token: int, cycle: Cycle, rules: Rules, rate: float, until: Deadline
) -> Ellipsoids | None:
    """Ellipsoids round the cycle that shrink by `rate` a step: Q' = J Q J^T / rate^2 + noise / (1 - rate)^2.

    None where they grow too large, or time is up.
    """
    k, N = cycle.states.shape
    J = along_cycle(net, token, cycle, until)
    if J is None:
        return None
    images = np.stack([float_step(net, x, token) for x in cycle.states])
    off = np.abs(images - np.roll(cycle.states, -1, axis=0)) + noise(net, token, cycle.states, rules)
    floor = (off * 2 / (1 - rate)) ** 2
    Q = np.zeros((k, N, N))
    with np.errstate(all="ignore"):
        around, total = _around(J / rate), None
        first = np.zeros((N, N))
        for i in range(k):  # what one turn adds to the first ellipsoid
            first = J[i] @ first @ J[i].T / rate**2 + _floor(floor[i])
        total = first
        power = around
        for _ in range(60):  # the sum of A^j X A^jT, by doubling
            more = power @ total @ power.T
            total, power = total + more, power @ power
            if not np.isfinite(total).all() or np.abs(total).max() > 1e12:
                return None
            if np.abs(more).max() <= 1e-12 * np.abs(total).max():
                break
        Q[0] = total
        for i in range(k - 1):
            Q[i + 1] = J[i] @ Q[i] @ J[i].T / rate**2 + _floor(floor[i])
    return _as_chain(cycle.states, Q)


def tight_along(
    net: Network, token: int, states: Array, start: Array, rules: Rules, slack: float, until: Deadline
) -> Ellipsoids:
    """Ellipsoids along an orbit: Q' = (1 + q) J Q J^T + (1 + 1/q) sum(delta) diag(delta), the q of the least trace.

    delta is what rounding adds, and how much the derivatives over the box around an ellipsoid vary.
    """
    T, N = states.shape
    L = np.empty((T, N, N))
    L[0] = start
    off = noise(net, token, states, rules)
    images = float_step(net, states, token)
    with np.errstate(all="ignore"):
        for t in range(T - 1):
            if until.is_up():
                return Ellipsoids.of(states[: t + 1], L[: t + 1])
            here = Ellipsoids.of(states[t : t + 1], L[t : t + 1])
            image = derivative(net, token, here)
            moved, varied = image.mid[0] * here.scales, np.linalg.norm(image.rad[0], axis=-1) * here.scales
            added = off[t] / np.sqrt(N) + varied + np.abs(images[t] - states[t + 1])
            D = _floor(added * added.sum())
            A = moved @ moved.T
            q = np.sqrt(np.trace(D) / max(np.trace(A), 1e-300))
            L[t + 1] = _root(slack**2 * ((1 + q) * A + (1 + 1 / q) * D)) if q < 1e6 else _root(slack**2 * (A + D))
    return Ellipsoids.of(states, L)


def _around(J: Array) -> Array:
    around: Array = np.eye(J.shape[1])
    for matrix in J:
        around = matrix @ around
    return around


def _floor(squares: Array) -> Array:
    """A diagonal of the squares, none of them less than a millionth of the largest."""
    return np.diag(np.maximum(squares, squares.max() * 1e-6))


def along_cycle(net: Network, token: int, cycle: Cycle, until: Deadline) -> Array | None:
    """The derivatives at each state of the cycle (k, N, N); None where time is up."""
    found = []
    for x in cycle.states:
        if until.is_up():
            return None
        found.append(jacobian(net, token, x))
    return np.stack(found)


def spectral_rate(J: Array) -> float:
    """The factor a step by which a cycle with these derivatives attracts."""
    around = _around(J)
    return float(np.abs(np.linalg.eigvals(around)).max() ** (1 / len(J)))


def along(
    net: Network, token: int, states: Array, start: Array, rules: Rules, growth: float, until: Deadline
) -> Ellipsoids:
    """Ellipsoids along an orbit (T, N) from the matrix of the first: Q' = growth J Q J^T + inflated noise.

    A growth of 1 stands for no more than it takes, which is slow to find. Where time is up they end early.
    """
    if growth == 1:
        return tight_along(net, token, states, start, rules, LEAST_SLACK, until)
    T, N = states.shape
    L = np.empty((T, N, N))
    L[0] = start
    off = noise(net, token, states, rules)
    inflation = 1 + 2 * growth / (growth - 1)
    J = jacobians(net, token, states[:-1]) if T > 1 else np.zeros((0, N, N))
    with np.errstate(all="ignore"):
        for t in range(T - 1):
            if t % STEPS_AT_A_TIME == 0 and until.is_up():
                return Ellipsoids.of(states[: t + 1], L[: t + 1])
            moved = J[t] @ L[t]
            Q = growth * (moved @ moved.T) + _floor((off[t] * inflation) ** 2)
            L[t + 1] = _root(Q)
    return Ellipsoids.of(states, L)


def _root(Q: Array) -> Array:
    """A lower triangular matrix with square Q; NaN where there is none."""
    try:
        return np.linalg.cholesky((Q + Q.T) / 2).astype(np.float64)
    except np.linalg.LinAlgError:
        return np.full_like(Q, np.nan)


def _as_chain(states: Array, Q: Array) -> Ellipsoids | None:
    L = np.stack([_root(q) for q in Q])
    return Ellipsoids.of(states, L) if np.isfinite(L).all() else None


def enlarged(chain: Ellipsoids, doublings: int) -> Ellipsoids:
    """The same ellipsoids, larger by a power of two."""
    return Ellipsoids(chain.centres, chain.shapes, chain.exponents + doublings)
