"""The first wrong length of an LSTM with one slow unit that no other unit sees, with 100 digits and in closed form.

The other units run until they repeat to 90 digits. From then on the slow unit is c' = f_r c + a_r at step r of a turn,
so that after q turns it is F^q c + A (1 - F^q) / (1 - F). What it shows is tanh(c), so that each difference of logits
is monotone in q, and its first wrong turn is found by bisection.
"""

from __future__ import annotations

from mpmath import mp, mpf, tanh
from oracles.recurrent_digits import sigmoid, step, stored_numbers

DIGITS, LONGEST = 100, 40_000


def first_wrong(model, modulus, most=10**20):
    """The first wrong length up to `most`, None where there is none; the last unit is the slow one."""
    with mp.workdps(DIGITS):
        weights, V, b = stored_numbers(model)
        H = model.hidden
        assert all(row[-1] == 0 for row in weights[1]), "some unit sees the slow one"

        def margin(h, t):
            logits = [sum(w * x for w, x in zip(row, h, strict=True)) + c for row, c in zip(V, b, strict=True)]
            right = (t - 1) % modulus
            return logits[right] - max(x for j, x in enumerate(logits) if j != right)

        state, t, off = [[mpf(0)] * H for _ in range(2)], 0, mpf(1)
        while off > mpf(10) ** -90:
            before = state[0][:-1]
            for _ in range(modulus):
                state, t = step("lstm", weights, state, "tanh"), t + 1
                if margin(state[0], t) <= 0:
                    return t
            off = max(abs(x - y) for x, y in zip(before, state[0], strict=False))
            assert t < LONGEST, "the other units do not settle"
        keep, add, show, rest = [], [], [], []
        x = state
        for _ in range(modulus):
            a = [
                sum(w * h for w, h in zip(row, x[0], strict=True)) + p[0] + c + d
                for row, p, c, d in zip(weights[1], weights[0], weights[2], weights[3], strict=True)
            ]
            i, f, g, o = (a[k * H + H - 1] for k in range(4))
            keep.append(sigmoid(f)), add.append(sigmoid(i) * tanh(g)), show.append(sigmoid(o))
            x = step("lstm", weights, x, "tanh")
            rest.append(x[0][:-1])
        wrong = []
        for r in range(modulus):
            F, A = mpf(1), mpf(0)
            for s in range(r + 1, r + 1 + modulus):
                F, A = F * keep[s % modulus], A * keep[s % modulus] + add[s % modulus]
            c = state[1][-1]
            for s in range(r + 1):
                c = keep[s] * c + add[s]

            def at(q, r=r, F=F, A=A, c=c):
                cell = F**q * c + A * (1 - F**q) / (1 - F)
                return margin([*rest[r], show[r] * tanh(cell)], t + r + 1)

            low, high = 0, (most - t) // modulus
            if at(low) <= 0:
                wrong.append(t + r + 1)
                continue
            if at(high) > 0:
                continue
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if at(middle) > 0 else (low, middle)
            wrong.append(t + r + 1 + modulus * high)
        return min(wrong, default=None)
