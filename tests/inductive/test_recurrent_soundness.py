"""Verdicts on many random small cells of every family and reading, against runs that share nothing with the proofs."""

from __future__ import annotations

import cmath
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import acb, arb, ctx
from models.recurrent import random_network
from models.selection import every
from oracles.noisy import Noisy

from constructions.recurrent import counters, diagonal
from constructions.recurrent.linear import LinearModel
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Kernel, Real, Rounded
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent.network import Network, step, vectors
from verify.tasks.recurrent.task import Homogeneous

STEPS = 300
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def decided(model, m, reading, length=None):
    return certify(Homogeneous(model, Task.of("modular", modulus=m), length), reading, Effort(budget=1))


def contradicted(certificate, margins, slack):
    """Whether a run's margins after 1, 2, ... tokens are not what the certificate says."""
    if certificate.verdict.value == "PROVED":
        return min(margins) < certificate.margin - slack
    if certificate.verdict.value == "REFUTED":
        n = certificate.counterexample["length"]
        is_wrong = n > len(margins) or not margins[n - 1] > slack  # NaN is wrong
        return not is_wrong or min([1.0, *margins[: n - 1]]) <= -slack
    return min([1.0, *margins[: certificate.extra["right_to"]]]) <= -slack


@np.errstate(invalid="ignore")  # a run that overflows is NaN from there on
def in_a_format(seed):
    """Any order: runs with random orders and roundings of a network that mostly counts."""
    rng = np.random.default_rng(seed)
    fmt = FORMATS[str(rng.choice(list(DTYPES)))]
    if seed % 3:
        model, m = random_network(seed)
    else:
        m = int(rng.integers(3, 13))
        model = counters.cycle(m=m)
        for p in model.parameters():
            p.data += torch.as_tensor(rng.normal(size=p.shape)) * 10.0 ** rng.uniform(-4, -1)
    if max(float(p.abs().max()) for p in model.parameters()) > 1e4:
        return "UNKNOWN", False  # a fitted readout that float16 does not hold
    certificate = decided(model, m, Rounded(fmt))
    net = Network.of(model).rounded(fmt)
    for _ in range(3):
        on, state, margins = Noisy(fmt, rng), np.zeros(net.size), []
        for t in range(STEPS):
            state = np.concatenate(step(net, vectors(net, state), 0, on))
            logits = on.linear(net.V, state[net.read], net.b, None)
            margins.append(logits[t % m] - np.delete(logits, t % m).max())
        if contradicted(certificate, margins, 1e-12):
            return certificate.verdict.value, True
    return certificate.verdict.value, False


@np.errstate(invalid="ignore")
def bit_by_bit(seed):
    """One machine: torch's own run of whole strings, which may sum in another order, so up to rounding."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(DTYPES)))
    model, m = random_network(seed)
    model = model.to(DTYPES[name])
    certificate = decided(model, m, Kernel())
    state, margins = None, []
    with torch.no_grad():
        for t in range(STEPS):
            out, state = model.cell(torch.ones(1, 1, 1, dtype=model.dtype), state)
            logits = model.readout(out)[0, 0].double().numpy()
            margins.append(logits[t % m] - np.delete(logits, t % m).max())
    return certificate.verdict.value, contradicted(certificate, margins, 1e-12)


def linear_space(seed):
    """Random rational matrices, some of them of finite order, and decays, in plain fractions."""
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    if seed % 3 == 0:
        model = counters.cyclotomic(m=m)
        for p in model.parameters():
            if rng.random() < 0.3:
                p.data.view(-1)[rng.integers(p.numel())] += int(rng.integers(-1, 2))
    else:
        A = np.diag(rng.integers(1, 16, size=d) / 16) if seed % 3 == 1 else rng.integers(-1, 2, size=(d, d))
        V, b = rng.integers(-8, 9, size=(m, d)) / 4, rng.integers(-8, 9, size=m) / 4
        model = LinearModel("ssm", *(torch.as_tensor(x, dtype=torch.float64) for x in (A, np.ones(d), V, b)))
        states = [np.zeros(d)]
        for _ in range(3 * m):
            states.append(A @ states[-1] + 1)
        if np.abs(states).max() < 1e3:
            design = np.concatenate([states[1:], np.ones((3 * m, 1))], axis=1)
            fitted = np.linalg.lstsq(design, np.eye(m)[np.arange(3 * m) % m], rcond=1e-8)[0]
            model.readout.weight.data, model.readout.bias.data = (
                torch.as_tensor(x.copy()) for x in (np.round(fitted[:-1].T * 16) / 16, np.round(fitted[-1] * 16) / 16)
            )
    certificate = decided(model, m, Real())
    A, B, V, b = (
        np.vectorize(Fraction)(x.double().numpy())
        for x in (model.cell.A, model.cell.B, model.readout.weight, model.readout.bias)
    )
    h, margins = B * 0, []
    for t in range(60):
        h = A.dot(h) + B
        logits = V.dot(h) + b
        margins.append(logits[t % m] - max(np.delete(logits, t % m)))
    return certificate.verdict.value, contradicted(certificate, [float(x) for x in margins], 1e-12)


def rotating(seed):
    """Rotations by angles near 2 pi k/m, in complex balls of 200 bits."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9))
    model = diagonal.rotation(m=m)
    with torch.no_grad():
        model.cell.omega += float(rng.normal() * 10.0 ** rng.uniform(-6, -2))
        model.readout.bias += torch.as_tensor(rng.normal(size=m) * 10.0 ** rng.uniform(-4, -1))
    length = None if seed % 2 else int(10.0 ** rng.uniform(0.5, 3.3))
    certificate = decided(model, m, Real(), length)
    with ctx.workprec(200):
        omega = arb(float(model.cell.omega[0]))
        turn, h, margins = acb(0, omega).exp(), acb(0), []
        V, b = model.readout.weight.tolist(), model.readout.bias.tolist()
        for t in range(length or 2000):
            h = turn * h + 1
            logits = [float(h.real * u + h.imag * v + c) for (u, v), c in zip(V, b, strict=True)]
            margins.append(logits[t % m] - max(x for j, x in enumerate(logits) if j != t % m))
    assert abs(cmath.exp(1j * float(model.cell.omega[0])) - complex(turn)) < 1e-12
    return certificate.verdict.value, contradicted(certificate, margins, 1e-9)


FAMILIES = {"format": in_a_format, "bits": bit_by_bit, "linear": linear_space, "rotation": rotating}
DEFAULT, DEEP = {"format": 1, "bits": 2, "linear": 6, "rotation": 2}, 500


def counted(family, seeds):
    """How often each verdict was given, and the seeds that contradict a run."""
    verdicts, wrong = {"PROVED": 0, "REFUTED": 0, "UNKNOWN": 0}, []
    for seed in seeds:
        verdict, is_wrong = FAMILIES[family](seed)
        verdicts[verdict] += 1
        wrong += [seed] if is_wrong else []
    return verdicts, wrong


@pytest.mark.parametrize("family", every(3, FAMILIES))
def test_no_verdict_is_contradicted_by_a_run(family):
    assert counted(family, range(DEFAULT[family]))[1] == []


@pytest.mark.deep
@pytest.mark.parametrize("family", FAMILIES)
def test_nor_on_many_cells(family):
    verdicts, wrong = counted(family, range(100, 100 + DEEP))
    assert wrong == [] and verdicts["PROVED"] + verdicts["REFUTED"] > DEEP / 3
