"""The first wrong length of h' = l h + 1 for a complex l, in closed form with 80 digits, by bisection in turns."""

from __future__ import annotations

from mpmath import expj, mp, mpc, mpf

DIGITS = 80


def first_wrong_matrix(model, modulus):
    """l is the rotation that a matrix (2, 2) stores; it is off by so little that it does not turn back."""
    with mp.workdps(DIGITS):
        (c, _), (s, _) = model.cell.A.tolist()
        return _first_wrong(mpc(c, s), model, modulus)


def first_wrong_angle(model, modulus):
    with mp.workdps(DIGITS):
        return _first_wrong(expj(mpf(float(model.cell.omega[0]))), model, modulus)


def _first_wrong(rate, model, modulus):
    V = [[mpf(x) for x in row] for row in model.readout.weight.tolist()]
    b = [mpf(x) for x in model.readout.bias.tolist()]

    def is_right(t):
        h = (1 - rate**t) / (1 - rate)
        logits = [x * h.real + y * h.imag + z for (x, y), z in zip(V, b, strict=True)]
        right = (t - 1) % modulus
        return logits[right] > max(x for j, x in enumerate(logits) if j != right)

    found = []
    for r in range(1, modulus + 1):
        low, high = 0, 1
        if not is_right(r):
            found.append(r)
            continue
        while is_right(r + modulus * high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_right(r + modulus * middle) else (low, middle)
        found.append(r + modulus * high)
    return min(found)
