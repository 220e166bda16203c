"""A saved program in a format: evaluations within the contract, drawn at random, with every rounding by hand.

It shares nothing with the prover or the checker. Numbers are float64 tensors, which is what "kept wider" means for
formats of up to 24 bits; in float64 itself each operation rounds as it is.
"""

import functools
import json

import safetensors.torch
import torch
from oracles import graph_runs

FORMATS = {"float64": (53, -1022, 1023), "float32": (24, -126, 127), "bfloat16": (8, -126, 127)}
FORMATS |= {"float16": (11, -14, 15), "tf32": (24, -126, 127)}  # float32, but for factors of matrix products
OF_FACTORS = (11, -126, 127)
ULPS, HALF = 8, 0.5
FUNCTIONS = {name: getattr(torch, name) for name in ("exp", "expm1", "log", "log1p", "erf", "tanh", "sigmoid", "sqrt")}
FUNCTIONS |= {"gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu, "sin": torch.sin, "cos": torch.cos}


def format_named(name):
    return FORMATS.get(name) or (int(name[1:]), -126, 127)


class DrawnEvaluation:
    """One evaluation: `push` in -1..1 is where functions go within their 8 u, and coins decide the rest."""

    def __init__(self, precision, accumulate, seed):
        self.fmt = format_named(precision)
        self.inner, self.draw = format_named(accumulate or precision), torch.Generator().manual_seed(seed)
        self.u, self.has_few = 2.0 ** -self.fmt[0], precision == "tf32"
        self.push, self.keeps, self.flushes, self.rescales, self.late, self.drifts = (self.coin() for _ in range(6))

    def coin(self):
        return float(torch.rand((), generator=self.draw)) < HALF

    def near(self, x, fmt):
        p, least, most = fmt
        if p < 53:
            q = torch.ldexp(torch.ones_like(x), torch.frexp(x)[1].clamp(min=least + 1) - p)
            x = torch.where(x.isfinite(), torch.round(x / q) * q, x)
            x = torch.where(
                x.isfinite() & (x.abs() >= 2.0 ** (most + 1)), torch.copysign(torch.tensor(torch.inf), x), x
            )
        return torch.where(x.abs() < 2.0**least, 0 * x, x) if self.flushes else x

    def read(self, x):
        """As an operation reads it: rounded, or kept."""
        x = torch.as_tensor(x, dtype=torch.float64)
        return x if self.keeps and self.coin() else self.near(x, self.fmt)

    def added(self, terms):
        """The sum of a list in a random order, each partial sum rounded."""
        order = torch.randperm(len(terms), generator=self.draw).tolist()
        if self.drifts and len(terms):  # the largest first, then the small ones, which it swallows
            order.sort(key=lambda i: -float(torch.nan_to_num(terms[i].abs()).sum()))
        out = terms[order[0]]
        for i in order[1:]:
            out = self.near(out + terms[i], self.inner)
        return out

    def factors(self, x):
        """Numbers as a matrix product reads them: in tf32 each of them, or some, rounded to 11 bits."""
        if not self.has_few:
            return x
        is_rounded = torch.rand(x.shape, generator=self.draw) < (HALF if self.late else 1.0)
        return torch.where(is_rounded, self.near(x, OF_FACTORS), x)

    def product(self, x, y):
        """A matrix product of what is read: products rounded or fused, in any order."""
        x, y = self.factors(x), self.factors(y)
        columns = [x[..., :, i : i + 1] * y[..., i : i + 1, :] for i in range(x.shape[-1])]
        return self.added(columns if self.coin() else [self.near(c, self.inner) for c in columns])

    def off(self, value, size=None):
        """A function's value, moved by 8 u of it, or of a size."""
        sign = 1.0 if self.push else -1.0
        moved = value + sign * ULPS * self.u * (value.abs() if size is None else size) * (1 - 2.0**-10)
        return moved if self.coin() or self.coin() else value

    def softmax(self, x, dim):
        x = self.read(x).movedim(dim, -1)
        top, parts, seen = torch.full_like(x[..., :1], -torch.inf), [], list(range(x.shape[-1]))
        v = 2.0 ** -self.inner[0]

        def e(z):
            found = self.near(torch.exp(self.near(z, self.fmt if not self.rescales else self.inner)), self.inner)
            return found * (1 + (ULPS * v if self.push else -ULPS * v) * (1 - 2.0**-10) * (found < 1))

        if self.rescales:
            for j in seen:
                new = torch.maximum(top, x[..., j : j + 1])
                scale = torch.where(top == new, torch.ones_like(top), torch.nan_to_num(e(top - new)))
                parts = [self.near(part * scale, self.inner) for part in parts] + [
                    torch.nan_to_num(e(x[..., j : j + 1] - new))
                ]
                top = new
        else:
            top = x.amax(-1, keepdim=True)
            parts = [torch.nan_to_num(self.read(e(x[..., j : j + 1] - top))) for j in seen]
        whole = self.read(self.added(parts))
        return torch.cat([self.near(part / whole, self.inner) for part in parts], -1).movedim(-1, dim)

    def attention(self, q, k, v, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False):
        q, k, v = self.read(q), self.read(k), self.read(v)
        if enable_gqa:
            k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        root = self.near(torch.tensor(q.shape[-1] ** -0.5 if scale is None else scale, dtype=torch.float64), self.fmt)
        if self.late:
            q = self.read(self.near(q * root, self.fmt))
        scores = self.read(self.product(q, k.transpose(-2, -1)))
        scores = scores if self.late else self.near(scores * root, self.inner)
        if is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if mask is not None and mask.dtype == torch.bool:
            scores = torch.where(mask, scores, torch.full_like(scores, -torch.inf))
        elif mask is not None:
            scores = self.near(self.read(scores) + self.read(mask), self.inner)
        return self.product(self.read(torch.nan_to_num(self.softmax(scores, -1))), v)

    def layer_norm(self, x, sizes, weight, bias, eps):
        x, d, at = self.read(x), x.shape[-1], self.inner
        rows = [x[..., i : i + 1] for i in range(d)]
        mean = self.near(self.added(rows) / d, at)
        if self.late:
            squares = self.near(self.added([self.near(r * r, at) for r in rows]) / d, at)
            variance = self.near(squares - self.near(mean * mean, at), at)
        else:
            variance = self.near(self.added([self.near(self.near(r - mean, at) ** 2, at) for r in rows]) / d, at)
        inverse = self.near(1 / self.near(torch.sqrt(self.near(variance + eps, at)), at), at)
        W = torch.ones(d).double() if weight is None else self.read(weight)
        b = torch.zeros(d).double() if bias is None else self.read(bias)
        if self.rescales:
            scale = self.near(inverse * W, at)
            return self.near(self.near(x * scale, at) + self.near(b - self.near(mean * scale, at), at), at)
        found = self.near(self.near(self.near(x - mean, at) * inverse, at) * W, at)
        return self.near(found + b, at)

    def rms_norm(self, x, sizes, weight=None, eps=None):
        x, d, at = self.read(x), x.shape[-1], self.inner
        squares = [self.read(self.near(x[..., i : i + 1] ** 2, at)) for i in range(d)]
        middle = self.read(self.near(self.read(self.read(self.added(squares)) / d) + eps, at))
        inverse = self.read(self.near(1 / self.read(self.off(torch.sqrt(middle))), at))
        found = self.near(x * inverse, at)
        return found if weight is None else self.near(self.read(found) * self.read(weight), at)

    def linear(self, x, W, bias=None):
        found = self.product(self.read(x), self.read(W).T)
        return found if bias is None else self.near(self.read(found) + self.read(bias), self.inner)

    def summed(self, x, dims=None, keepdim=False):
        x = self.read(x)
        axes = (
            [*range(x.ndim)]
            if dims in (None, [])
            else [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)]
        )
        for axis in axes:
            x = self.added([*x.split(1, axis)])
        return x if keepdim else x.squeeze(axes)

    def called(self, base, args, kwargs):
        """An operation on floats that rounds; None for one that only moves or chooses numbers."""
        at, f = self.inner, functools.partial
        alpha = kwargs.pop("alpha", 1)
        if base in ("add", "sub", "rsub"):
            x, y = map(self.read, args if base != "rsub" else args[::-1])
            y = y if alpha == 1 else self.read(y * alpha)
            return self.near(x + y if base == "add" else x - y, at)
        if base == "div":
            x, y = map(self.read, args)
            return self.near(x * self.read(1 / y) if self.late else x / y, at)
        if base == "mean":
            found = self.summed(*args, **kwargs)
            return self.near(found * found.numel() / args[0].numel(), at)
        if base in FUNCTIONS:
            x = self.read(args[0])
            size = {"gelu": x.abs(), "silu": x.abs(), "sin": torch.ones_like(x), "cos": torch.ones_like(x)}.get(base)
            return self.near(self.off(FUNCTIONS[base](x), size), at)
        rules = {
            "mul": lambda x, y: self.near(self.read(x) * self.read(y), at), "linear": self.linear, "sum": self.summed,
            **dict.fromkeys(("mm", "bmm", "matmul"), lambda x, y: self.product(self.read(x), self.read(y))),
            "addmm": lambda b, x, y: self.near(self.read(self.product(self.read(x), self.read(y))) + self.read(b), at),
            "scaled_dot_product_attention": self.attention, "native_layer_norm": lambda *a: (self.layer_norm(*a),),
            "_fused_rms_norm": lambda *a: (self.rms_norm(*a),), "_softmax": lambda x, dim, _=None: self.softmax(x, dim),
            "rsqrt": lambda x: self.near(1 / self.read(self.off(torch.sqrt(self.read(x)))), at),
            "reciprocal": lambda x: self.near(1 / self.read(x), at),
            "pow": self.power,
            "leaky_relu": lambda x, s=0.01: torch.where(x > 0, x, self.near(self.read(x) * self.read(s), at)),
            "cumsum": self.cumulated, "softplus": self.softplus,
            **dict.fromkeys(("view", "_unsafe_view"), torch.reshape),
            **{name: f(self.compared, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
        }  # fmt: skip
        return rules[base](*args, **kwargs) if base in rules else None

    def softplus(self, x):
        """As two functions, or the argument itself where it is large."""
        x = self.read(x)
        inner = self.read(self.near(self.off(torch.exp(x.clamp(max=20))), self.inner))
        return torch.where(x > 20, x, self.near(self.off(torch.log1p(inner)), self.inner))

    def cumulated(self, x, dim):
        return torch.cat([self.summed(x.narrow(dim, 0, i + 1), dim, True) for i in range(x.shape[dim])], dim)

    def power(self, x, n):
        return functools.reduce(lambda a, _: self.near(self.read(a) * self.read(x), self.inner), range(n - 1), x)

    def compared(self, name, x, y):
        return getattr(torch, name)(self.read(x), self.read(y))

    def run(self, graph, tensors, tokens):
        values = []
        for node in graph["nodes"]:
            values.append(self.value(node, values, tensors, tokens))
            if isinstance(values[-1], torch.Tensor):
                graph_runs.say(list(values[-1].shape) == node["shape"], "a shape")
        return self.read(values[graph["output"]])

    def value(self, node, values, tensors, tokens):
        floats = any(isinstance(values[j], torch.Tensor) and values[j].is_floating_point() for j in uses(node))
        base = node["op"].split(".")[1] if node["op"].startswith("aten.") else node["op"]
        if floats and node["op"] != "getitem":
            args, kwargs = graph_runs.given(node["args"], values), graph_runs.given(node["kwargs"], values)
            kwargs = {name: x for name, x in kwargs.items() if name != "dtype"}
            found = self.called(base, args, kwargs)
            if found is not None:
                return found
        found = graph_runs.value(node, values, tensors, tokens)
        is_float = isinstance(found, torch.Tensor) and found.is_floating_point()
        return found if not is_float else self.near(found.double(), self.fmt) if not floats else found.double()


def uses(x):
    if isinstance(x, dict):
        return [x["node"]] if {*x} == {"node"} else [j for y in x.values() for j in uses(y)]
    return [j for y in x for j in uses(y)] if isinstance(x, list) else []


def margins(c, weights, seed):
    """Each input with its margin in one evaluation."""
    tensors, program = safetensors.torch.load(weights), c["program"]
    p = c["parameters"]
    for tokens, due, columns, part in graph_runs.inputs(program):
        run = DrawnEvaluation(p["precision"], p.get("accumulate"), hash((seed, tokens)) % 2**31)
        graph = next(graph for graph in program["graphs"] if graph["length"] == len(tokens))
        yield tokens, graph_runs.margin(run.run(graph, tensors, tokens), due, columns, part)


def falsehood(weights, certificate, evaluations=8):
    """What evaluations show to be false of a certificate, None where they show nothing."""
    c = json.loads(certificate)
    found = [dict(margins(c, weights, seed)) for seed in range(evaluations)]
    least, most = ({tokens: pick(run[tokens] for run in found) for tokens in found[0]} for pick in (min, max))
    if c["verdict"] == "PROVED":
        half = (c["margin"] or 0) / 2
        wrong = [tokens for tokens, margin in least.items() if not (margin > 0 and margin >= half)]
        return f"{wrong[0]} has the margin {least[wrong[0]]}" if wrong else None
    case, counts = tuple(c["counterexample"]["input"]), {name: int(x) for name, x in c["counts"].items()}
    if most[case] > 0:
        return f"{case} is right"
    wrong, right = sum(x <= 0 for x in least.values()), sum(x > 0 for x in most.values())
    is_possible = counts["right"] <= len(least) - wrong and counts["wrong"] <= len(least) - right
    return None if is_possible and not any(most[tuple(t)] > 0 for t in c["wrong_inputs"]) else "the counts"
