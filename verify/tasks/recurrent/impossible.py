"""What recurrent models cannot count: one unit (C-R1), few positive decays (C-R2), with neurons after them (C-R23),
stored angles (C-R15), and linear state spaces on strings over two types (C-R24), with checks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from bounds.recurrent import decays, decays_and_neurons, one_unit, rotation_limit
from constructions.recurrent import diagonal, gated
from verify.arithmetic.margins import margins_of
from verify.frame.impossibility import Impossibility
from verify.tasks.recurrent import rotation

MODULI = range(3, 9)
MODELS = 200
TWO, TWICE = [(0, 0), (0, 1), (1, 0), (1, 1)], [2, 1, 1, 2]  # all strings of two tokens, and the last one's count
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


def decays_with_neurons(seed: int = 0) -> Impossibility:
    """C-R23: s positive decays and p neurons that see them count modulo m no further than s(ps + 1) decays.

    Claim: C-R23 (ours; docs/recurrent.md).
    """
    rng = np.random.default_rng(seed)
    sizes = [(m, s, p) for m in range(2, 5) for s in (1, 2) for p in (1, 2, 3)]
    fitted = {(m, s, p): max(_neuron_run(rng, m, s, p) for _ in range(20)) for m, s, p in sizes}
    built = {(m, 1, 2 * q - 1): _built_run(m, q) for m in range(2, 11) for q in (1, 2, 5)}
    beyond = sum(reached > decays_and_neurons(*size) for size, reached in (fitted | built).items())
    short = max(decays_and_neurons(*size) - reached for size, reached in built.items())
    return Impossibility(
        "C-R23",
        "on one repeated token, s positive decays, p ReLU neurons that see them, and a linear readout count modulo m "
        "no further than s(ps + 1) decays without neurons; so at no size do they count at every length",
        (
            "after t tokens what a neuron sees is c_0 + sum of c_i alpha_i^t, which changes its sign at most s times",
            "so all t > 0 fall into at most ps + 1 parts, in each of which every neuron is on or off",
            "in a part a difference of two logits is such a sum too, and changes its sign at most s times",
            "it is continuous in t, so that it changes its sign at most s(ps + 1) times in all, unless it is 0",
            "how often it must is as in C-R2",
        ),
        {"longest runs for (m, s, p)": str(fitted), "by weights that are built, short of the bound by": str(short)},
        {"fitted readouts for each (m, s, p)": 20, "built": len(built), "beyond the bound": beyond},
        beyond == 0,
    )


def linear_in_the_past(seed: int = 0) -> Impossibility:
    """C-R24: no sum of what was read before and of the last token counts each of two types, not at length 2.

    Claim: C-R24 (ours; docs/recurrent.md).
    """
    rng = np.random.default_rng(seed)
    found = [_two_tokens(rng) for _ in range(MODELS)]
    right, off = sum(is_right for is_right, _ in found), max(size for _, size in found)
    model = gated.layered(kind="s4", types=2, length=2, max_count=2)
    said = model(torch.tensor(TWO)).argmax(-1)[:, 1].tolist()
    with_neurons = sum(a == b for a, b in zip(said, TWICE, strict=True))
    return Impossibility(
        "C-R24",
        "a network whose state is linear and fades in the same way at all tokens, h' = A h + B_x, with logits "
        "V h + D_x + b, does not count two types in all strings of two tokens, whatever its width, its rates, real or "
        "complex, and its D; nor do several such layers, with convolutions or without",
        (
            "after the tokens w, x a logit is a sum f(w) + g(x), and so is the gap G(w, x) of class 2 over class 1",
            "so G(a, a) + G(b, b) = G(a, b) + G(b, a)",
            "after aa and bb the count is 2, and G must be above 0; after ab and ba it is 1, and G must be below 0",
            "modulo m >= 2 the same holds of the classes of the counts 1 and 2",
        ),
        {
            "the two sums differ at most by": f"{off:.1e}",
            "with neurons after such a state": f"{with_neurons} of 4 strings right",
        },
        {"random networks": MODELS, "right on all four strings": right},
        right == 0 and off < 1e-9 and with_neurons == len(TWO),
    )


def _two_tokens(rng: np.random.Generator) -> tuple[bool, float]:
    """Whether a random linear network is right on the strings of two tokens, and how far its two sums differ."""
    d = int(rng.integers(1, 9))
    A = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    B, V, D = rng.normal(size=(2, d)), rng.normal(size=d), rng.normal(size=2)
    gaps = np.array([float((V @ (A @ B[w] + B[x])).real) + D[x] for w, x in TWO])
    is_right = ((gaps > 0) == (np.array(TWICE) == 2)).all()
    return bool(is_right), float(abs(gaps[0] + gaps[3] - gaps[1] - gaps[2]) / (1 + np.abs(gaps).max()))


def _neuron_run(rng: np.random.Generator, m: int, s: int, p: int) -> int:
    """How far random rates and neurons that bend where their sums are count, with the readout that fits them best."""
    N = decays_and_neurons(m, s, p) + m
    powers = rng.uniform(0.3, 1, s) ** np.arange(1, N + 1)[:, None]
    seen = powers @ rng.normal(size=(s, p))
    seen = seen - seen[rng.integers(0, N, p), np.arange(p)]
    features = np.concatenate([np.ones((N, 1)), powers, np.maximum(seen, 0)], axis=1)
    return _fitted_run(rng, features, m)


def _built_run(m: int, periods: int) -> int:
    """How far the sawtooth of so many periods counts."""
    N = m * periods
    model = gated.layered(kind="rwkv", types=1, length=N, max_count=N, m=m)
    return _right_for(model(torch.zeros(1, 4 * N, dtype=torch.long))[0].numpy(), m)


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
    return _fitted_run(rng, features, m)


def _fitted_run(rng: np.random.Generator, features: np.ndarray, m: int) -> int:
    """How far the readout counts that fits the longest possible string best."""
    length = int(rng.integers(m, len(features) + 1))
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
    "C-R23": decays_with_neurons,
    "C-R24": linear_in_the_past,
}
