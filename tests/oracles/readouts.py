"""Ground truth for changed numbers: hidden numbers in fractions or 60 digits, and one linear programme over all inputs.

Plain Python on the stored numbers, and scipy on every input at once; nothing of the verifier.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
from scipy.optimize import linprog

DIGITS = 60


def stored(module):
    """The stored numbers as fractions, and mpmath's functions of them where the model takes roots or exponentials."""
    return {
        name: [[Fraction(float(v)) for v in row] for row in np.atleast_2d(value.double().numpy())]
        for name, value in module.state_dict().items()
    }


def is_rational(module):
    return not module.is_softmax and (module.is_linear or math.isqrt(module.d) ** 2 == module.d)


def hidden(module, w, sequence, position):
    """The hidden numbers and 1: fractions where the model is rational, else mpmath's numbers, and with softmax D."""
    exact = is_rational(module)
    number = (lambda x: x) if exact else (lambda x: mpmath.mpf(x.numerator) / x.denominator)
    E, d, p = w["E"], module.d, module.p
    x = E[sequence[position]]
    context = [E[s] for s in sequence]
    if module.has_bos:
        context = [w["e_BOS"][0], *context]
    if module.is_linear:
        scores = [number(a) for a in w["A"][position]]
    else:
        query = [sum(x[a] * w["W_Q"][a][b] for a in range(d)) for b in range(d)]
        keys = [[sum(y[a] * w["W_K"][a][b] for a in range(d)) for b in range(d)] for y in context]
        root = math.isqrt(d) if exact else mpmath.sqrt(d)
        scores = [number(sum(q * k for q, k in zip(query, key, strict=True))) / root for key in keys]
    D = number(Fraction(1))
    if module.is_softmax:
        weights = [mpmath.exp(s) for s in scores]
        D = mpmath.fsum(weights)
        scores = [weight / mpmath.fsum(weights) for weight in weights]
    mixed = [number(x[q]) + sum(s * number(y[q]) for s, y in zip(scores, context, strict=True)) for q in range(d)]
    z = [number(w["b_1"][0][n]) + sum(mixed[q] * number(w["W_1"][q][n]) for q in range(d)) for n in range(p)]
    return [max(v, 0 * v) for v in z] + [number(Fraction(1))], D


def every_question(module):
    """(sequence, position, right class) of the whole domain."""
    for sequence in itertools.product(range(module.T), repeat=module.L):
        for position, token in enumerate(sequence):
            yield sequence, position, sequence.count(token) - module.first_count


def every_row(module):
    """Each question's hidden numbers in float64 (n, p + 1), and the right classes (n,)."""
    w = stored(module)
    with mpmath.workdps(DIGITS):
        rows = {}
        for sequence, position, right in every_question(module):
            rows.setdefault((tuple(map(float, hidden(module, w, sequence, position)[0])), right))
    H, right = zip(*rows, strict=True)
    return np.array(H), np.array(right)


def readout(module):
    return np.vstack([module.W_2.double().numpy(), module.b_2.double().numpy()])


def least_change(module):
    """The least largest change of a readout with which no input is worse than a tie, over all inputs at once."""
    H, right = every_row(module)
    X = readout(module)
    a = _rows(H, right, X.shape[1])
    n = a.shape[1]
    one, eye = np.ones((n, 1)), np.eye(n)
    A = np.vstack([np.hstack([-a, np.zeros((len(a), 1))]), np.hstack([eye, -one]), np.hstack([-eye, -one])])
    found = linprog(
        np.append(np.zeros(n), 1.0), A_ub=A, b_ub=np.concatenate([a @ X.ravel(), np.zeros(2 * n)]),
        bounds=[(None, None)] * n + [(0, None)], method="highs-ds",
    )  # fmt: skip
    assert found.status == 0
    return found.x[-1]


def best_margin(module):
    """The largest m for which a readout of numbers up to 1 is right by m on every input, vectors scaled to size 1."""
    H, right = every_row(module)
    a = _rows(H, right, module.W_2.shape[1])
    n = a.shape[1]
    found = linprog(
        np.append(np.zeros(n), -1.0), A_ub=np.hstack([-a, np.ones((len(a), 1))]), b_ub=np.zeros(len(a)),
        bounds=[(-1, 1)] * n + [(None, 1)], method="highs-ds",
    )  # fmt: skip
    assert found.status == 0
    return found.x[-1]


def _rows(H, right, C):
    """A vector for each question and rival, over the numbers of the readout."""
    found = []
    for h, y in zip(H, right, strict=True):
        for c in range(C):
            if c != y:
                row = np.zeros((len(h), C))
                row[:, y], row[:, c] = h, -h
                found.append(row.ravel() / np.abs(h).max())
    return np.array(found)


def adds_up_to_nothing(module, combination):
    """Whether inputs with their weights, as a certificate of an impossibility lists them, show what it says.

    Each input asks for the class that is its count; the weights are positive, and the vectors add up to 0: exactly
    where the model is rational, else to less than 10^-12 of their size; 10^-40 for exact weights, of D times them.
    """
    w, C, terms = stored(module), module.W_2.shape[1], combination["inputs"]
    are_exact = combination["checked"] in ("in rationals", "in rationals and roots")
    exact = is_rational(module)
    with mpmath.workdps(DIGITS):
        sums = [[0] * C for _ in range(module.p + 1)]
        size = 0
        for term in terms:
            sequence, position, right, rival = (term[name] for name in ("input", "position", "right", "rival"))
            weight = number_of(term["weight"])
            if right != sequence.count(sequence[position]) - module.first_count or rival == right or weight <= 0:
                return False
            numbers, D = hidden(module, w, sequence, position)
            for j, h in enumerate(x * D if are_exact else x for x in numbers):
                scaled = h * (weight if exact else as_mpf(weight))
                sums[j][right] += scaled
                sums[j][rival] -= scaled
                size += abs(scaled)
        left = max(abs(x) for row in sums for x in row)
        return bool(terms) and (left == 0 if exact else left < size * mpmath.mpf(10) ** (-40 if are_exact else -12))


def number_of(text):
    """A fraction, or a sum of fractions and multiples of roots in 400 digits: "1/2", "-7 + 5*sqrt(2)"."""
    if "sqrt" not in text:
        return Fraction(text)
    with mpmath.workdps(400):
        total = mpmath.mpf(0)
        for part in text.replace("- ", "+ -").split(" + "):
            fraction, _, root = part.partition("*sqrt(")
            total += as_mpf(Fraction(fraction)) * (mpmath.sqrt(int(root.rstrip(")"))) if root else 1)
        return total


def as_mpf(x):
    return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x
