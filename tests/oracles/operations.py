"""What each ATen operation is, number by number, over a field: 200-bit numbers, or a dtype in a random order.

Written from the operations' definitions with nothing from the engine. Arrays are numpy object arrays.
"""

from __future__ import annotations

import mpmath
import numpy as np

BITS = 200


def whole(x):
    """A float64 array as exact numbers."""
    x = np.asarray(x, dtype=np.float64)
    out = np.empty(x.shape, dtype=object)
    for place in np.ndindex(x.shape):
        out[place] = mpmath.mpf(float(x[place]))
    return out


class Exact:
    """Real arithmetic to 200 bits."""

    def number(self, x):
        return mpmath.mpf(x)

    def once(self, x):
        return x

    def function(self, name, x):
        return getattr(mpmath, name)(x)

    def sum(self, xs):
        return mpmath.fsum(xs)

    def dot(self, xs, ys):
        return mpmath.fsum(x * y for x, y in zip(xs, ys, strict=True))


class Rounded:
    """A dtype: every result rounded to nearest, sums in a random order, functions up to two units off."""

    def __init__(self, p, rng, smallest=-126):
        self.p, self.rng, self.smallest = p, rng, smallest

    def number(self, x):
        return self.once(mpmath.mpf(x))

    def once(self, x):
        if not mpmath.isfinite(x) or x == 0:
            return x
        if abs(x) < mpmath.mpf(2) ** self.smallest and self.rng.random() < 0.5:
            return mpmath.mpf(0)
        exponent = max(int(mpmath.floor(mpmath.log(abs(x), 2))), self.smallest) - self.p + 1
        return mpmath.nint(mpmath.ldexp(x, -exponent)) * mpmath.mpf(2) ** exponent

    def function(self, name, x):
        value = getattr(mpmath, name)(x)
        return self.once(value * (1 + self.rng.choice([-1, 0, 1]) * mpmath.mpf(2) ** (1 - self.p)))

    def sum(self, xs):
        xs = list(xs)
        while len(xs) > 1:
            i = self.rng.randrange(len(xs))
            x = xs.pop(i)
            j = self.rng.randrange(len(xs))
            xs[j] = self.once(xs[j] + x)
        return xs[0] if xs else mpmath.mpf(0)

    def dot(self, xs, ys):
        fused = self.rng.random() < 0.5
        products = [x * y if fused else self.once(x * y) for x, y in zip(xs, ys, strict=True)]
        return self.sum(products) if not fused else self.once(self.sum(products))


def each(function, *arrays):
    arrays = np.broadcast_arrays(*[np.asarray(a, dtype=object) for a in arrays])
    out = np.empty(arrays[0].shape, dtype=object)
    for place in np.ndindex(out.shape):
        out[place] = function(*[a[place] for a in arrays])
    return out


def along_last(function, x):
    """A function from lists to lists or numbers, on the last axis."""
    rows = [function(list(row)) for row in x.reshape(-1, x.shape[-1])]
    if isinstance(rows[0], list):
        out = np.empty((len(rows), len(rows[0])), dtype=object)
        for i, row in enumerate(rows):
            out[i] = row
        return out.reshape(*x.shape[:-1], -1)
    out = np.empty(len(rows), dtype=object)
    out[:] = rows
    return out.reshape(x.shape[:-1])


def matmul(f, x, y):
    if x.ndim > 2:
        return np.stack([matmul(f, a, b) for a, b in zip(x, y, strict=True)])
    out = np.empty((x.shape[0], y.shape[1]), dtype=object)
    for i, j in np.ndindex(out.shape):
        out[i, j] = f.dot(x[i], y[:, j])
    return out


def add(f, x, y):
    return each(lambda a, b: f.once(a + b), x, y)


def mul(f, x, y):
    return each(lambda a, b: f.once(a * b), x, y)


def div(f, x, y):
    return each(lambda a, b: f.once(a / b), x, y)


def neg(x):
    return each(lambda a: -a, x)


def mean(f, xs):
    return f.once(f.sum(xs) / len(xs))


def unary(name):
    return lambda f, x: each(lambda a: f.function(name, a), x)


def sigmoid(f, x):
    return each(lambda a: f.once(1 / f.once(1 + f.function("exp", -a))), x)


def gelu(f, x):
    def one(a):
        inner = f.function("erf", f.once(a * f.number(mpmath.sqrt(mpmath.mpf(1) / 2))))
        return f.once(f.once(a / 2) * f.once(1 + inner))

    return each(one, x)


def gelu_tanh(f, x):
    def one(a):
        cube = f.once(f.once(a * a) * a)
        inner = f.once(a + f.once(f.number("0.044715") * cube))
        t = f.function("tanh", f.once(f.number(mpmath.sqrt(2 / mpmath.pi)) * inner))
        return f.once(f.once(a / 2) * f.once(1 + t))

    return each(one, x)


def silu(f, x):
    return each(lambda a: f.once(a / f.once(1 + f.function("exp", -a))), x)


def softplus(f, x, beta=1.0, threshold=20.0):
    def one(a):
        z = f.once(f.number(beta) * a)
        return a if z > threshold else f.once(f.function("log1p", f.function("exp", z)) / f.number(beta))

    return each(one, x)


def elu(f, x, alpha=1.0, scale=1.0, factor=1.0):
    steep, flat = f.number(scale), f.once(f.number(alpha) * f.number(scale))

    def one(a):
        return f.once(a * steep) if a > 0 else f.once(f.function("expm1", f.once(a * f.number(factor))) * flat)

    return each(one, x)


def batch_norm(f, x, weight, bias, mean, var, eps, is_fused):
    """(inputs, channels, places): channel by channel, as one product and sum or step by step."""
    out = np.empty(x.shape, dtype=object)
    for n, c, i in np.ndindex(x.shape):
        inverse = f.once(1 / f.once(mpmath.sqrt(f.once(var[c] + f.number(eps)))))
        if is_fused:
            a = f.once(inverse * weight[c])
            out[n, c, i] = f.once(f.once(x[n, c, i] * a) + f.once(bias[c] - f.once(mean[c] * a)))
        else:
            centred = f.once(x[n, c, i] - mean[c])
            out[n, c, i] = f.once(f.once(f.once(centred * inverse) * weight[c]) + bias[c])
    return out


def softmax(f, x, empty=mpmath.nan):
    def one(xs):
        finite = [a for a in xs if a != -mpmath.inf]
        if not finite:
            return [empty] * len(xs)
        top = max(finite)
        es = [mpmath.mpf(0) if a == -mpmath.inf else f.function("exp", f.once(a - top)) for a in xs]
        total = f.sum(es)
        return [f.once(e / total) for e in es]

    return along_last(one, x)


def log_softmax(f, x):
    def one(xs):
        top = max(xs)
        centred = [f.once(a - top) for a in xs]
        total = f.function("log", f.sum([f.function("exp", a) for a in centred]))
        return [f.once(a - total) for a in centred]

    return along_last(one, x)


def variance(f, xs, passes=2):
    centre = mean(f, xs)
    if passes == 1:  # as a kernel may: mean of squares minus square of the mean
        return f.once(mean(f, [f.once(x * x) for x in xs]) - f.once(centre * centre))
    return mean(f, [f.once(f.once(x - centre) * f.once(x - centre)) for x in xs])


def layer_norm(f, x, weight, bias, eps, passes=2):
    def one(xs):
        centre = mean(f, xs)
        scale = f.once(1 / f.once(mpmath.sqrt(f.once(variance(f, xs, passes) + f.number(eps)))))
        out = []
        for a, w, b in zip(xs, weight, bias, strict=True):
            out.append(f.once(f.once(f.once(f.once(a - centre) * scale) * w) + b))
        return out

    return along_last(one, x)


def rms_norm(f, x, weight, eps):
    def one(xs):
        scale = f.once(1 / f.once(mpmath.sqrt(f.once(mean(f, [f.once(a * a) for a in xs]) + f.number(eps)))))
        return [f.once(f.once(a * scale) * w) for a, w in zip(xs, weight, strict=True)]

    return along_last(one, x)


def attention(f, q, k, v, mask):
    """Shapes (n, d), mask (n, n) of truth values."""
    scale = 1 / mpmath.sqrt(q.shape[1])
    scores = each(lambda a: f.once(a * f.number(scale)), matmul(f, q, k.T))
    scores = np.where(mask, scores, -mpmath.inf)
    return matmul(f, softmax(f, scores, mpmath.mpf(0)), v)
