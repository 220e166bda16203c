"""What narrow recurrent models cannot count: one unit (C-R1), and few positive decays (C-R2), with checks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from bounds.recurrent import decays, one_unit, rotation_limit
from constructions.recurrent import diagonal
from verify.arithmetic.margins import margins_of
from verify.frame.impossibility import Impossibility
from verify.tasks.recurrent import rotation

MODULI = range(3, 9)
MODELS = 200
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def one_monotone_unit(seed: int = 0) -> Impossibility:
    """C-R1: one unit with a monotone activation and a linear readout does not count modulo m >= 3 for ever.

    Claim: C-R1 (ours; docs/recurrent.md).
    """
    rng = np.random.default_rng(seed)
    reached = {m: max(_scalar_run(rng, m) for _ in range(MODELS)) for m in MODULI}
    beyond = sum(reached[m] > (one_unit(m) or 0) for m in MODULI)
    return Impossibility(
        "C-R1",
        "one unit with a monotone activation and a linear readout counts modulo m to m at most for even m >= 4, and to "
        "2m at most for odd m >= 3, whatever its weights",
        (
            "the state is one number, so the states in which a class has strictly the largest logit form an interval",
            "w >= 0: the step is increasing, so h_1, h_2, ... are monotone, and no class comes again after another",
            "w < 0: two steps are increasing, so the states of odd lengths are monotone, and those of even ones",
            "m even, at least 4: odd lengths ask for the classes 0, 2, ..., and at m + 1 for 0 again",
            "m odd: odd lengths come to class 0 again at 2m + 1; at m = 2 both sequences keep their class",
        ),
        {"moduli": f"{MODULI.start} to {MODULI.stop - 1}", "longest runs": str(reached)},
        {"random units for each modulus": MODELS, "beyond the bound": beyond},
        beyond == 0,
    )


def few_decays(seed: int = 0) -> Impossibility:
    """C-R2: s positive decays and a linear readout count modulo m to m(s+1)/2 (s odd) or ms/2 + 1 (s even) at most.

    Claim: C-R2 (ours; docs/recurrent.md).
    """
    rng = np.random.default_rng(seed)
    cases = {(m, s): max(_decay_run(rng, m, s) for _ in range(20)) for m in range(2, 6) for s in (1, 2, 3)}
    beyond = sum(reached > decays(m, s) for (m, s), reached in cases.items())
    return Impossibility(
        "C-R2",
        "on one repeated token, s states with positive decays and a linear readout count modulo m to m(s+1)/2 at most "
        "for odd s, and to ms/2 + 1 for even s, whatever their weights",
        (
            "after t tokens a difference of two logits is c_0 + sum of c_i alpha_i^t with s positive rates",
            "such a sum of s + 1 exponentials changes its sign at most s times, unless it is 0 for all t (Descartes)",
            "classes 0 and 1 must win in turn at lengths 1, 2, m + 1, m + 2, ...: s + 1 changes by ms/2 + 2, s even",
            "any two classes change places 2q times by mq + 1: s + 1 changes for odd s at q = (s + 1)/2",
        ),
        {"longest runs for (m, s)": str(cases)},
        {"fitted readouts for each (m, s)": 20, "beyond the bound": beyond},
        beyond == 0,
    )


def stored_rotation(seed: int = 0) -> Impossibility:
    """C-R15: a rotation by a stored angle counts modulo m >= 2 to (2 pi/m)/|omega - 2 pi/m| + 2m + 1 at most.

    Claim: C-R15 (ours; docs/recurrent.md).
    """
    reached = {(m, dtype): diagonal.rotation(m=m, dtype=dtype) for m in range(2, 11) for dtype in DTYPES}
    counted = {key: rotation.count(model, key[0]) for key, model in reached.items()}
    limits = {key: rotation_limit(key[0], float(model.cell.omega[0])) for key, model in reached.items()}
    beyond = sum(found is None or found.right_to > limits[key] for key, found in counted.items())
    shares = [found.right_to / limits[key] for key, found in counted.items() if found is not None]
    ten = {
        str(dtype).removeprefix("torch."): found.right_to for (m, dtype), found in counted.items() if m == 10 and found
    }
    return Impossibility(
        "C-R15",
        "one rotation by a stored angle omega and a linear readout count modulo m to (2 pi/m)/|omega - 2 pi/m| + 2m + "
        "1 at most; so no diagonal state space of one such state counts at every length",
        (
            "pi is irrational, so a stored omega is never 2 pi/m, and m tokens turn the state by m omega - 2 pi, not 0",
            "a difference of two logits, E + rho cos(theta - psi), has at most two zeros on the circle of the states",
            "so the states of one class and of the next cannot come in turn twice along the circle",
            "but they do when the states of a class have moved by 2 pi/m and one step more",
        ),
        {"reached modulo 10": str(ten), "least share of the bound that is reached": f"{min(shares):.3f}"},
        {"moduli and dtypes": len(counted), "beyond the bound": beyond},
        beyond == 0,
    )


def _scalar_run(rng: np.random.Generator, m: int) -> int:
    """How far a random tanh unit counts with lines that touch a parabola in random places."""
    w, c = rng.normal(size=2) * 3
    h, states = 0.0, []
    for _ in range(4 * m):
        h = float(np.tanh(w * h + c))
        states.append(h)
    centres = np.array(states[:m])  # the nearest of the first m states says the class: the best lines for those
    logits = np.outer(states, centres) - centres**2 / 2
    return _right_for(logits, m)


def _decay_run(rng: np.random.Generator, m: int, s: int) -> int:
    """How far random rates count, with the readout that fits the longest possible string best."""
    N = decays(m, s) + m
    features = np.concatenate([np.ones((N, 1)), rng.uniform(0, 1, s) ** np.arange(1, N + 1)[:, None]], axis=1)
    length = int(rng.integers(m, N + 1))
    fitted = np.linalg.lstsq(features[:length], np.eye(m)[np.arange(length) % m], rcond=None)[0]
    return _right_for(features @ fitted, m)


def _right_for(logits: np.ndarray, m: int) -> int:
    """How many first lengths have strictly the right class, by more than rounding."""
    for t, row in enumerate(logits):
        if not margins_of(row, t % m) > 1e-9:
            return t
    return len(logits)


ARGUMENTS: dict[str, Callable[[int], Impossibility]] = {
    "C-R1": one_monotone_unit,
    "C-R2": few_decays,
    "C-R15": stored_rotation,
}
