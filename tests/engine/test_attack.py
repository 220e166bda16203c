"""An adversary of the engine: random compositions, and at every operation points of the balls that lie far out.

The first layer's output is a ball of some size. Points of it, driven by gradients towards the ends of what the module
makes of it, are run through the captured graph operation by operation, and each result must lie in the ball that the
engine has there: number by number, in l2, in equal parts of vectors, in l1, as truth values, and in mean value form.
"""

import random
from dataclasses import replace

import pytest
import torch
from models.selection import first
from torch import nn
from torch.nn import functional as F

from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.engine import balls, mean_value
from verify.engine.balls import Arithmetic, Ball, Norm, Unsure
from verify.engine.capture import capture
from verify.engine.rules import movement, normalisation
from verify.engine.run import call, enclosed_weights

N, D = 4, 8
MASK = torch.ones(N, N).triu(1).bool()


def heads(x, h=2):
    return x.view(1, N, h, -1).transpose(1, 2)


def whole(y):
    return y.transpose(1, 2).reshape(1, N, -1)


def sliced_heads(x, W):
    """Queries, keys and values cut out of one product, as minGPT writes it."""
    y = x @ W
    q, k, v = y[..., :D], y[..., D : 2 * D], y[..., 2 * D :]
    return whole(F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True))


def chunked_heads(x, W):
    q, k, v = (heads(part, 4) for part in (x @ W).chunk(3, -1))
    return whole(torch.softmax((q @ k.transpose(-2, -1) / 2).masked_fill(MASK, -1e9), -1) @ v)


def viewed_heads(x, W):
    q, k, v = (x @ W).view(1, N, 3, 2, D // 2).permute(2, 0, 3, 1, 4).unbind(0)
    return whole(F.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(N, N).masked_fill(MASK, -torch.inf)))


def overwritten(x):
    y = x.clone()
    y[:, 1] = y[:, 0] * 0.5
    y[..., 2:5] += 1
    return y


W, WIDE, ROW, SIDE = (D, D), (D, 3 * D), (D,), (N, N)
STEPS = {
    "linear": (lambda x, w, b: F.linear(x, w, b), W, ROW),
    "product": (lambda x, w: x @ w, W),
    "sliced heads": (sliced_heads, WIDE),
    "chunked heads": (chunked_heads, WIDE),
    "viewed heads": (viewed_heads, WIDE),
    "a part of a product": (lambda x, w: torch.cat([(x @ w)[..., 4:8], (x @ w)[..., 8:12]], -1), WIDE),
    "one part's rows": (lambda x, w: (x @ w)[..., :D].reshape(1, N, 4, 2).flip(2).reshape(1, N, D), WIDE),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (D,), w, b), ROW, ROW),
    "rms norm": (lambda x, w: F.rms_norm(x, (D,), w, 1e-5), ROW),
    "group norm": (lambda x: F.group_norm(x.transpose(1, 2), 2).transpose(1, 2),),
    "residual": (lambda x, w: x + F.gelu(x @ w), W),
    "gated": (lambda x, w, v: F.silu(x @ w) * (x @ v), W, W),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"),),
    "relu": (torch.relu,),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.3),),
    "tanh, sigmoid": (lambda x: torch.tanh(x) + torch.sigmoid(2 * x),),
    "exp, log": (lambda x: torch.log(torch.exp(x * 0.3) + 1),),
    "waves": (lambda x: torch.sin(x) - torch.cos(3 * x),),
    "erf, abs": (lambda x: torch.erf(x) + x.abs(),),
    "roots": (lambda x: x / (x.square() + 1).sqrt() + (x.abs() + 0.5).rsqrt(),),
    "clamp": (lambda x: x.clamp(-0.8, 1.1) + F.hardtanh(x),),
    "scaled": (lambda x, v: x * v / 3 - 0.7 * x, ROW),
    "column by row": (lambda x, v: x + x[..., :1] * v, ROW),
    "centred": (lambda x: x - x.mean(-1, keepdim=True),),
    "over positions": (lambda x, s: (x.transpose(1, 2) @ s).transpose(1, 2), SIDE),
    "gram": (lambda x: (x @ x.transpose(1, 2) / D) @ x,),
    "einsum": (lambda x, w: torch.einsum("bid,de,bje->bij", x, w, x) @ x / D, W),
    "cumulative": (lambda x: x.cumsum(1) / 2,),
    "moved": (lambda x: x.flip(-1) + x.roll(1, 1) * 0.5,),
    "parts": (lambda x: torch.cat([p * (i + 0.5) for i, p in enumerate(x.split([3, 3, 2], -1))], -1),),
    "stacked": (lambda x: torch.stack(x.unbind(1), 1) + x.repeat(1, 2, 1)[:, 2 : 2 + N],),
    "chosen": (lambda x: torch.where(x > 0.1, x, 0.5 * x),),
    "larger": (lambda x: torch.maximum(x, x.amax(-1, keepdim=True) / 2) + torch.minimum(x, 0 * x),),
    "softmax": (lambda x: torch.softmax(3 * x, -1),),
    "log softmax": (lambda x: torch.log_softmax(x, -1) / 2,),
    "softmax over positions": (lambda x: torch.softmax(x, 1),),
    "powers": (lambda x: (x**3 - x**2) / (1 + x**2),),
    "variance": (lambda x: x + x.var(-1, keepdim=True),),
    "overwritten": (overwritten,),
    "padded": (lambda x: F.pad(x, (1, 0, 0, 0))[..., :D] + x[:, torch.tensor([1, 1, 0, 3])],),
    "softplus, elu": (lambda x: F.softplus(x, 2.0) - F.elu(x, 0.6) + F.mish(x) / 2,),
    "norms": (lambda x: x / (0.1 + x.norm(dim=-1, keepdim=True)) + F.normalize(x, dim=1),),
    "in order": (lambda x: x.sort(-1).values + x.topk(3, 1).values.flip(1)[:, [0, 1, 2, 0]],),
    "batch norm": (lambda x, w, b: F.batch_norm(x[0], 0.1 * b.detach(), w.detach().abs() + 0.1, w, b)[None], ROW, ROW),
    "convolution": (lambda x, w: F.conv1d(x.transpose(1, 2), torch.stack([w, w.T], -1), padding=1)[..., :N].mT, W),
    "grouped queries": (
        lambda x: whole(
            F.scaled_dot_product_attention(heads(x, 4), heads(x[..., :4]), heads(x[..., 4:]), enable_gqa=True)
        ),
    ),
    "one vector": (lambda x, w, b: x + torch.relu(F.linear(x[0, 0], w, b)), W, ROW),
}


class Composed(nn.Module):
    """Some steps in turn on a stored stream; what tokens say does not matter."""

    def __init__(self, names, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape):
            scale = shape[0] ** -0.5 if len(shape) > 1 else 1.0
            uneven = 4.0 ** torch.randint(-2, 2, shape[-1:], generator=generator)  # blocks of unlike size
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) * uneven * scale)

        self.start, self.names = nn.Parameter(torch.randn(1, N, D, generator=generator, dtype=torch.float64)), names
        self.weights = nn.ParameterList([drawn(*shape) for name in names for shape in STEPS[name][1:]])

    def forward(self, tokens):
        x, weights = self.start, iter(self.weights)
        for name in self.names:
            function, *shapes = STEPS[name]
            x = function(x, *[next(weights) for _ in shapes])
        return x


START = "p_start"


def values(graph, start, dtype=torch.float64):
    """What each operation gives on one point, as torch computes it."""
    found = {}
    for node in graph.program.nodes:
        if node.op == "placeholder":
            stored = start if node.name == START else graph.stored.get(node.name)
            found[node] = torch.zeros(1, N, dtype=torch.long) if stored is None else stored
            if found[node].is_floating_point():
                found[node] = found[node].to(dtype)
        elif node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: found[n])
            if kwargs.get("dtype") in (torch.float32, torch.float64):
                kwargs = {**kwargs, "dtype": dtype}
            found[node] = node.target(*args, **kwargs)
            if isinstance(found[node], torch.Tensor) and found[node].is_floating_point():
                found[node] = found[node].to(dtype)
    return found


def enclosures(graph, start, at):
    """The engine's ball of each operation."""
    stored, found = enclosed_weights(graph, at) | {START: start}, {}
    for node in graph.program.nodes:
        if node.op == "placeholder":
            found[node] = stored.get(node.name, torch.zeros(1, N, dtype=torch.long))
        elif node.op == "call_function":
            found[node] = call(node, found, at, torch.device("cpu"))
    return found


def outside(ball, value, slack):
    """What says that a value is not in its ball; nothing where all is well. `slack`: of the value's own rounding."""
    if isinstance(ball, Unsure):
        return "truth" if bool((ball.known & (ball.value != value)).any()) else ""
    if not isinstance(ball, Ball):
        return ""
    if ball.mid.shape != value.shape or ball.radius.shape != value.shape:
        return f"shape {tuple(ball.mid.shape)}, {tuple(ball.radius.shape)} for {tuple(value.shape)}"
    off, near = (value.double() - ball.mid).abs(), slack * (1 + value.double().abs())
    is_same = value.double() == ball.mid  # infinities of masks
    nothing = torch.isnan(ball.radius) | torch.isnan(ball.mid)
    if not bool((is_same | nothing | (off <= ball.radius + near)).all()):
        return "number"
    off, near = torch.where(is_same | nothing, 0.0, off), torch.where(is_same, 0.0, near)
    if ball.norm is not None:
        axis = ball.norm.axis
        if bool((off.norm(dim=axis, keepdim=True) > ball.norm.radius + near.norm(dim=axis, keepdim=True)).any()):
            return "l2"
        for h in (h for h in (1, 2, 4) if ball.norm.blocks is not None and off.shape[-1] % h == 0):
            moved, allowed = (balls.parts(x, h).norm(dim=-1, keepdim=True) for x in (off, near))
            if bool((moved > ball.norm.blocks(h) + allowed).any()):
                return f"{h} blocks"
    if ball.l1 is not None and bool((off.sum(-1, keepdim=True) > ball.l1 + near.sum(-1, keepdim=True)).any()):
        return "l1"
    return ""


def far_points(module, ball, rho, slope, steps=3):
    """Points of the ball where slope * output is large and small: steps along the gradient, back onto the ball."""
    original = module.start.detach().clone()
    for sign in (1.0, -1.0):
        point = original.clone()
        for _ in range(steps):
            with torch.no_grad():
                module.start.copy_(point)
            module.zero_grad()
            (module(torch.zeros(1, N, dtype=torch.long)) * slope).sum().mul(sign).backward()
            g = module.start.grad.nan_to_num()
            moved = rho * g / g.norm(dim=-1, keepdim=True).clamp(min=1e-300)
            moved = torch.maximum(torch.minimum(moved, ball.rad), -ball.rad)
            point = original + moved * (1 - 1e-12)
        yield point
    with torch.no_grad():
        module.start.copy_(original)


def attacked(names, seed, size):
    """Where the engine is wrong about a composition, and how much of it is bounded; nothing where it is right."""
    module = Composed(names, seed).eval()
    graph, generator = capture(module, N), torch.Generator().manual_seed(seed)
    mid = module.start.detach().clone()
    rad = size * torch.rand(mid.shape, generator=generator, dtype=torch.float64)
    rho = balls.length(rad) * (0.3 + 0.7 * torch.rand(1, N, 1, generator=generator, dtype=torch.float64))
    ball = Ball(mid, rad, Norm(rho))
    tape = []
    plain = enclosures(graph, Ball(mid, rad), Arithmetic())
    by_norms = enclosures(graph, ball, Arithmetic(has_norms=True, tape=tape))
    last = graph.program.output_node().all_input_nodes[-1]
    output = by_norms[last]
    for _ in range(2):
        slope = torch.randn(output.mid.shape, generator=generator, dtype=torch.float64)
        slope = slope * (torch.rand(slope.shape, generator=generator) < 0.2)
        gap = mean_value.difference(tape, output, slope)
        for point in far_points(module, ball, rho, slope):
            found = values(graph, point)
            for enclosed in (plain, by_norms):
                for node in graph.calls:
                    parts = found[node] if isinstance(found[node], list | tuple) else [found[node]]
                    given = enclosed[node] if isinstance(enclosed[node], list | tuple) else [enclosed[node]]
                    for value, of in zip(parts, given, strict=False):
                        wrong = outside(of, value, 1e-9) if value is not None else ""
                        if wrong:
                            return f"{wrong} at {node.target} in {names}, seed {seed}, size {size}"
            moved = ((found[last] - output.mid) * slope).sum().abs()
            if moved > gap + 1e-9 * (1 + (found[last].abs() * slope.abs()).sum()):
                return f"mean value {moved} > {gap} in {names}, seed {seed}, size {size}"
    return ""


def rounded(names, seed, precision, scale):
    """Where a run in a dtype, each operation as torch rounds it, leaves the balls of that reading."""
    module = Composed(names, seed).eval()
    with torch.no_grad():
        module.start.mul_(scale)
    graph, dtype = capture(module, N), getattr(torch, precision)
    start = module.start.detach().to(dtype).double()
    found = values(graph, start, dtype)
    for at in (Arithmetic(FORMATS[precision]), Arithmetic(FORMATS[precision], has_norms=True)):
        stored = replace(at).tensor(start)
        enclosed = enclosures(graph, stored, at)
        for node in graph.calls:
            parts = found[node] if isinstance(found[node], list | tuple) else [found[node]]
            given = enclosed[node] if isinstance(enclosed[node], list | tuple) else [enclosed[node]]
            for value, of in zip(parts, given, strict=False):
                wrong = outside(of, value, 0.0) if value is not None else ""
                if wrong:
                    return f"{wrong} at {node.target} in {names}, seed {seed}, {precision}, scale {scale}"
    return ""


def drawn(seed, most=6):
    rng = random.Random(seed)
    return [rng.choice(list(STEPS)) for _ in range(rng.randint(2, most))]


@pytest.mark.parametrize("names", first(1, [(["layer norm", "sliced heads", "linear"],), (["product", "one vector"],)]))
def test_far_points_are_held(names):
    assert not attacked(names, 2, 1e-2)


def test_blocks_of_the_whole_for_a_part_are_caught():
    wrong = "return x.norm  # its blocks"
    with planted(movement, "part_of", "return Norm(x.norm.radius, x.norm.axis)  # its blocks", wrong):
        assert "view" in attacked(["layer norm", "sliced heads", "linear"], 2, 1e-2)


def test_runs_that_overflow_are_held():
    """Float16 from 300 on: infinities and NaN lie in no ball whose radius is a number."""
    assert not rounded(["powers", "softmax", "layer norm"], 3, "float16", 300.0)
    with planted(normalisation, "softmax", "torch.isnan(p) | spoilt", "torch.isnan(p)"):
        assert "softmax" in rounded(["powers", "softmax", "layer norm"], 3, "float16", 300.0)


@pytest.mark.deep
@pytest.mark.parametrize("name", STEPS)
def test_each_step_after_a_product(name):
    for size in (1e-4, 1e-2, 0.3):
        assert not attacked(["product", name], 1, size)
        assert not attacked(["layer norm", name, "linear"], 2, size)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(60))
def test_compositions_hold_far_points(seed):
    assert not attacked(drawn(seed), seed, 10.0 ** random.Random(seed).uniform(-5, 0))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(40))
def test_compositions_hold_rounded_runs(seed):
    for precision, scale in (("float32", 1.0), ("bfloat16", 1.0), ("float16", 1.0), ("float16", 300.0)):
        assert not rounded(drawn(seed, 4), seed, precision, scale)
