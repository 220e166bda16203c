"""Contextual counting in plain Python: the task by regular expressions, and the forward pass in long arithmetic."""

import itertools
import random
import re

import mpmath
import torch

from constructions.contextual.transformer import ContextualCountingTransformer
from constructions.contextual_counting import BIASES, KEYS, build

VALID = re.compile(r"[01]*(\[[01]*\][01]*)*")


def valid_strings(longest, regions, shortest=0):
    """All valid strings, as text."""
    for length in range(shortest, longest + 1):
        for symbols in itertools.product("01[]", repeat=length):
            text = "".join(symbols)
            if VALID.fullmatch(text) and text.count("[") <= regions:
                yield text


def counts(text, prompts):
    """The ones per region; zero for regions that are not there."""
    found = [region.count("1") for region in re.findall(r"\[([01]*)\]", text)]
    return (found + [0] * prompts)[:prompts]


def margins(model, text, digits=40):
    """For each prompt: the logit of the right class minus the largest other one, in long arithmetic."""
    with mpmath.workdps(digits):
        W = {name: mpmath.matrix(value.double().tolist()) for name, value in model.named_parameters()}
        row = lambda M, i: [M[i, j] for j in range(M.cols)]  # noqa: E731
        dot = lambda x, y: mpmath.fsum(a * b for a, b in zip(x, y, strict=True))  # noqa: E731
        times = lambda x, M: [dot(x, [M[i, j] for i in range(M.rows)]) for j in range(M.cols)]  # noqa: E731
        plus = lambda x, y: [a + b for a, b in zip(x, y, strict=True)]  # noqa: E731

        def attend(q, keys, values):
            weights = [mpmath.exp(dot(q, key)) for key in keys]
            total = mpmath.fsum(weights)
            return [dot(weights, column) / total for column in zip(*values, strict=True)]

        tokens = [4] * model.has_bos + ["01[]".index(c) for c in text]
        x = [row(W["E"], t) for t in tokens]
        q, k, v = ([times(y, W[name]) for y in x] for name in ("W_Q", "W_K", "W_V"))
        stream = []
        for i in range(len(x)):
            y = plus(x[i], times(attend(q[i], k[: i + 1], v[: i + 1]), W["W_O"]))
            hidden = [max(mpmath.mpf(0), z) for z in plus(times(y, W["W_1"]), list(W["b_1"]))]
            stream.append(plus(plus(y, times(hidden, W["W_2"])), list(W["b_2"])))
        keys, values = [times(y, W["U_K"]) for y in stream], [times(y, W["U_V"]) for y in stream]
        out = []
        for r, right in enumerate(counts(text, W["P"].rows)):
            prompt = times(row(W["P"], r), W["U_Q"])
            logits = plus(times(attend(prompt, keys, values), W["W_out"]), list(W["b_out"]))
            out.append(logits[right] - max(logits[:right] + logits[right + 1 :]))
        return out


def float_margins(model, texts):
    """The same for many strings of one length, from the module's own forward pass in float64."""
    tokens = torch.tensor([["01[]".index(c) for c in text] for text in texts], dtype=torch.long)
    right = torch.tensor([counts(text, model.R) for text in texts])
    logits = model.double()(tokens.reshape(len(texts), -1))
    own = logits.gather(-1, right[..., None])[..., 0]
    return own - logits.scatter(-1, right[..., None], -torch.inf).amax(-1)


def random_model(seed, N):
    """By seed: gaussian weights, a mutated construction, or a construction calibrated for other sizes."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    style = seed % 4
    if style == 0:
        g = rng.choice([1, 1, 2])
        sizes = {"d": rng.randint(1, 4), "p": rng.randint(1, 4), "R": rng.randint(1, 2), "classes": N + 1}
        model = ContextualCountingTransformer(
            **sizes, d_h=rng.randint(1, 2), e=rng.randint(1, 2), g=g, bos=rng.random() < 0.6
        )
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn(weight.shape, dtype=torch.float64) * rng.choice([0.3, 1, 3]))
            if rng.random() < 0.5:
                model.b_out.zero_()
        return model
    bias = rng.choice(list(BIASES))
    zeros = rng.randint(1, 2) if bias == "0" else None
    R = rng.randint(1, 2)
    model = build(max(N, 3), R, bias=bias, keys=rng.choice(KEYS), zeros=zeros, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]
    with torch.no_grad():
        for _ in range(rng.randint(0, 2) if style < 3 else rng.randint(1, 4)):
            weight = getattr(model, rng.choice(names)).view(-1)
            i = rng.randrange(len(weight))
            weight[i] = weight[i] * rng.choice([0, -1, 0.5, 0.9, 1.05, 2]) + rng.choice([0, 0, 0.1, -0.5])
    return model
