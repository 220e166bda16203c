"""Honest certificates that are decided in ways of their own: blocks, leaps, searches that split, norms, 16 bits."""

from __future__ import annotations

import hashlib
import json
import random
from functools import partial
from pathlib import Path

import pytest
import torch
from models.crafted import crafted
from models.random_models import BUILDERS, random_model
from models.whole_blocks import drawn as blocks
from oracles.forged_blocks import rows_of

from constructions import checkpoint, count01
from constructions.parity import as_bytes as parity_bytes
from constructions.parity import sawtooth
from constructions.recurrent import counters, gated, holding
from constructions.recurrent.model import load
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01
from verify.tasks.histogram import branch_and_bound, by_cost
from verify.tasks.histogram.proof import certify as decide_histogram
from verify.tasks.histogram.rounded.verdict import certify as decide_rounded
from verify.tasks.parity.task import Parity
from verify.tasks.recurrent.kinds import module_of
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

DATA = Path(__file__).parents[1] / "data" / "recurrent_selective"
MODULO = Task.of("selective-modular", types=2, max_count=6, modulus=2)
UP_TO = Task.of("selective", types=2, max_count=2)
PARAMETERS = ("E", "W_Q", "W_K", "W_V", "W_O", "W_out", "b_out", "norm_weight", "norm_bias")
WORDS, TURNS = Task.of("helper", vocabulary=3), Task.of("modular", modulus=2)


def stack(kind, seed, task, precision=None):
    """Two whole blocks with drawn numbers, those of a format if one is named."""
    model = blocks(kind, seed, types=task.vocabulary, classes=task.classes)
    return model if precision is None else model.to(getattr(torch, precision)).double()


def trained(name, length, push=0.0):
    """A trained network, of whose numbers a few are moved."""
    model = load(DATA / f"{name}.safetensors")
    with torch.no_grad():
        model.cell.weight_ih_l0[:, 1] += push
    return Selective(model, UP_TO, length)


def weighed(kind, task=MODULO):
    """A gated cell with neurons behind it."""
    return Selective(gated.layered(kind=kind, types=2, length=6, max_count=task.C, m=task.m), task, 6)


def of_family(seed):
    found = crafted(seed)
    return Homogeneous(found.model, found.task, None)


def late(off=0.0, task="helper", M=3):
    """An LSTM that counts from a word on, one of whose gates reads one token differently."""
    model = module_of(holding.starting(task, M=M))
    with torch.no_grad():
        model.cell.weight_ih_l0[2, 4] += off
    return Homogeneous(model, Task.of(task, vocabulary=M), None)


def faded(task):
    return Homogeneous(module_of(gated.starting(kind="rwkv", task=task, M=3)), Task.of(task, vocabulary=3), None)


def homogeneous(model, task, length=None):
    return Homogeneous(model, task, length)


def ten(name, length=None):
    """A network that was trained to count modulo 10."""
    return homogeneous(load(DATA.parent / f"recurrent/{name}.safetensors"), Task.of("modular", modulus=10), length)


NETWORKS = {
    "blocks of types": lambda: (Selective(holding.rings(types=2, m=2), MODULO, None), "real"),
    "blocks of types, float32": lambda: (Selective(holding.rings(types=3, m=2), Task.of(
        "selective-modular", types=3, modulus=2, max_count=6), None), "float32"),
    "between two numbers": lambda: (weighed("s4", UP_TO), "real"),
    "between two numbers, mamba": lambda: (weighed("mamba"), "real"),
    "between two numbers, float32": lambda: (weighed("rwkv"), "float32"),
    "strings, gru": lambda: (trained("gru_K2_C2_seed1", 3), "real"),
    "strings, lstm, float64": lambda: (trained("lstm_K2_C2_seed0", 3), "float64"),
    "strings, trained, float32": lambda: (trained("rnn_K2_C2_seed3", 3), "float32"),
    "strings, trained, wrong": lambda: (trained("rnn_K2_C2_seed1", 4, 2.0), "real"),
    "words, held, float32": lambda: (late(), "float32"),
    "words, held, wrong, float32": lambda: (late(9.0), "float32"),
    "words, held, wrong in a run": lambda: (late(0.0, "shifted", 5), "bfloat16"),
    "words, faded": lambda: (faded("helper-shifted"), "real"),
    "words, faded, float32": lambda: (faded("shifted"), "float32"),
    "neurons of a line, float32": lambda: (homogeneous(gated.layered(
        kind="s4", types=1, length=4, max_count=4, m=2), TURNS, 4), "float32"),
    "cycle, wrong": lambda: (homogeneous(counters.cycle(m=3), TURNS), "real"),
    "gru, wrong in a run": lambda: (ten("gru_seed2_stop0.5"), "bfloat16"),
    "gru, float32": lambda: (ten("gru_seed2_stop0.5", 3), "float32"),
    "lstm, wrong in a run": lambda: (ten("lstm_seed6_stop0.25"), "bfloat16"),
    "lstm, wrong, float32": lambda: (of_family(19), "float32"),
    "tanh, wrong, bfloat16": lambda: (of_family(14), "bfloat16"),
    "creeps, float32": lambda: (of_family(35), "float32"),
    "leaps": lambda: (of_family(365), "real"),
    "leaps of relu": lambda: (of_family(21), "real"),
    "leaps, wrong": lambda: (of_family(23), "real"),
    "leaps of relu, wrong": lambda: (of_family(29), "real"),
    "gated line": lambda: (of_family(7), "real"),
    "gated line, s4": lambda: (of_family(66), "real"),
    "gated line, wrong": lambda: (of_family(64), "real"),
    "whole blocks, s4, wrong": lambda: (homogeneous(stack("s4", 4, TURNS), TURNS), "real"),
    "whole blocks, s4, helper, wrong": lambda: (homogeneous(stack("s4", 4, WORDS), WORDS), "real"),
    "whole blocks, mamba, helper, wrong": lambda: (homogeneous(stack("mamba", 0, WORDS), WORDS), "real"),
    "whole blocks, rwkv, strings, wrong": lambda: (Selective(stack("rwkv", 1, UP_TO), UP_TO, None), "real"),
    "whole blocks, s4": lambda: (homogeneous(stack("s4", 4, TURNS), TURNS, 1), "real"),
}  # fmt: skip
EVALUATED = {  # a kind of blocks, a task, a seed
    "whole blocks, s4, wrong in an evaluation": ("s4", TURNS, 1),
    "whole blocks, mamba, helper, wrong in an evaluation": ("mamba", WORDS, 2),
    "whole blocks, rwkv, wrong in an evaluation": ("rwkv", TURNS, 0),
}
SPLITS = {  # a model, and the format in which the parts are decided
    "splits": (lambda: random_model(0), None),
    "splits of places": (lambda: random_model(1), None),
    "splits of rows that are merged": (lambda: almost_equal(random_model(49), 49), None),
    "splits, float32": (lambda: random_model(4), "float32"),
}
NORMED = {"normed": (None, None), "normed, wrong": (8, None), "normed, float32": (None, "float32"),
          "normed, wrong, float32": (8, "float32")}  # fmt: skip
"""The seed of what is changed, and the format."""


def of_network(name):
    problem, precision = NETWORKS[name]()
    reading, weights = Real() if precision == "real" else reading_of(precision), bytes_of(problem.model)
    return weights, certify(problem, reading, Effort(budget=30)).about(weights).to_json()


def of_blocks(kind, task, seed):
    """A stack that a run of a hundred digits answers wrongly after two tokens, first: `verify` writes it alike."""
    model, is_modular = stack(kind, seed, task, "bfloat16"), task.m is not None
    weights, name, first = bytes_of(model), task.name if is_modular else "helper", int(is_modular)
    string, due = ((0, 0), (0, 1)) if is_modular else ((0, 4), (0, 1))
    rows = rows_of(weights, f"{kind} blocks", "bfloat16", string)
    gaps = [min(row[k] - y for j, y in enumerate(row) if j != k) for row, k in zip(rows, due, strict=True)]
    assert gaps[0] > 0 > gaps[1]
    said = {"task": name, "model": f"{kind} blocks", "units": model.hidden, "layers": model.layers}
    said |= {"length": "all" if is_modular else 3} | ({"modulus": 2} if is_modular else {"vocabulary": 3})
    case = {"input": [*string], "length": 1 + first, "expected": 1 + first, "is_first": True,
            "predicted": rows[-1].index(max(rows[-1])) + first, "evaluation": "exactly kept",
            "float64_predicts": None} | ({} if is_modular else {"start": 0})  # fmt: skip
    c = dict.fromkeys(("claim", "margin_exact", "margin_per_count", "tightest", "error_share", "reason"))
    c |= {"schema": "weightproof/1", "task": "inductive", "verdict": "REFUTED", "method": "certified",
          "reading": "dtype, any order", "argument": "a run", "length": said["length"], "inputs_covered": "1",
          "parameters": said | {"dtype": "float64", "precision": "bfloat16"}, "margin": float(gaps[1]) / 2,
          "seconds": 0.1, "right_to": first, "weights_sha256": hashlib.sha256(weights).hexdigest(),
          "assumptions": [""], "counterexample": case}  # fmt: skip
    return weights, json.dumps(c)


def only_split(patch):
    """Whatever the sizes are, regions are split rather than all multisets decided one by one."""

    def searched(plan, queue, deadline):
        queue.deadline = deadline
        return queue.run()

    patch.setattr(by_cost, "MOST_NUMBERS", -1)
    patch.setattr(by_cost.Plan, "search", searched)
    patch.setattr(branch_and_bound, "AT_ONCE", 1)


def almost_equal(module, seed):
    """A model of lin whose mixing weights are almost one, so that its rows are merged."""
    if module.is_linear:
        with torch.no_grad():
            noise = torch.rand(module.A.shape, generator=torch.Generator().manual_seed(seed), dtype=module.A.dtype)
            module.A.copy_(module.A.mean() + 0.03 * noise)
    return module


def of_splits(made, precision):
    """A histogram and the certificate of a search that splits."""
    module = made()
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    with pytest.MonkeyPatch.context() as patch:
        only_split(patch)
        found = decide_histogram(module) if precision is None else decide_rounded(module, fmt=FORMATS[precision])
    return weights, found.about(weights).to_json()


def changed_norm(seed, dtype=torch.float64):
    """The built Count01 model with LayerNorm and one number moved, and often its gain, bias and epsilon."""
    draw, model = random.Random(seed), count01.normed(dtype=dtype)
    with torch.no_grad():
        for name in draw.sample(PARAMETERS, draw.randint(1, 2)):
            W = getattr(model, name).view(-1)
            W[draw.randrange(len(W))] += draw.choice([-1, 1]) * 2.0 ** -draw.randint(1, 9)
        model.norm_eps.fill_(draw.choice([1e-5, 0.0, 0.5]))
    return model


def of_norm(seed, precision):
    """A Count01 model with LayerNorm, as it is built or changed."""
    model = count01.normed() if seed is None else changed_norm(seed)
    weights, reading = count01.as_bytes(model), None if precision is None else reading_of(precision)
    found = certify(Count01.of(model, "majority-ones", PromptDomain(3, 2)), reading)
    return weights, found.about(weights).to_json()


def by_parts():
    """A parity model of which one bound for all inputs does not show what holds in bfloat16."""
    module = sawtooth(T=6, L=4, dtype=torch.float32)
    with torch.no_grad():
        module.b_2[0] += 2**-7
    weights = parity_bytes(module)
    return weights, certify(Parity(module), reading_of("bfloat16"), Effort(5.0)).about(weights).to_json()


def built(kind, precision, inner=None):
    """A built histogram model in 16 bits."""
    module = BUILDERS[kind][0](T=4 if inner else 3, L=3)
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    found = decide_rounded(module, fmt=FORMATS[precision], accumulate=inner and FORMATS[inner])
    return weights, found.about(weights).to_json()


MADE = {name: partial(of_network, name) for name in NETWORKS}
MADE |= {name: partial(of_blocks, *of) for name, of in EVALUATED.items()}
MADE |= {name: partial(of_splits, *of) for name, of in SPLITS.items()}
MADE |= {name: partial(of_norm, *of) for name, of in NORMED.items()}
MADE |= {"parity by parts, bfloat16": by_parts}
MADE |= {"dot, float16": partial(built, "dot", "float16"), "lin+sftm, bfloat16": partial(built, "lin+sftm", "bfloat16"),
         "bos+sftm, float16 in float32": partial(built, "bos+sftm", "float16", "float32")}  # fmt: skip
