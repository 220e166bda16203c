"""Honest certificates of every kind that `verify check` knows, small enough to be enumerated."""

import contextlib
import io
import json
import math
import tempfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch
from models import histogram_runs, steps
from models.certificates_of_kinds import MADE
from models.certificates_of_modules import MODULES, of_module
from models.crafted import crafted
from models.grokked import certified, hats
from models.random_models import random_model

from constructions import checkpoint, count01, inductive_waves, inventory_counting, relation_counting
from constructions.adder.digits import Digits
from constructions.adder.transformer import to_bytes
from constructions.addition import one_head, two_heads, two_layers
from constructions.circuit_simulation import build as build_circuit
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.circuits.weights import as_bytes as circuit_bytes
from constructions.contextual import bidirectional, positional, transformer
from constructions.contextual_counting import build
from constructions.contextual_positions import build as before_and_after
from constructions.contextual_with_positions import build as placed
from constructions.count01 import Count01Transformer
from constructions.count01_heads import counting_pair
from constructions.decoder_model import Decoder, initialised
from constructions.inductive import as_bytes as decoder_bytes
from constructions.inductive import selective as counting_types
from constructions.inductive import spe, started
from constructions.modular import clock, pizza, staircase
from constructions.parity import ParityTransformer, sawtooth
from constructions.parity import as_bytes as parity_bytes
from constructions.recurrent import counters, diagonal, gated, holding, selective
from constructions.recurrent.linear import LinearModel
from constructions.recurrent.model import load
from constructions.regular_language import from_regex, unroll
from tests.clocks import looks
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, reading_of
from verify.commands.cli import main
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify, exhaustive
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.task import DigitAddition
from verify.tasks.circuit import dtype as circuit_dtype
from verify.tasks.circuit import proof as circuit_proof
from verify.tasks.circuit.language.task import for_strings
from verify.tasks.circuit.program import program
from verify.tasks.contextual.bidirectional.task import Bidirectional
from verify.tasks.contextual.positional.task import Positional
from verify.tasks.contextual.verdict import ContextualCounting, domain_of
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01
from verify.tasks.histogram.proof import certify as decide_histogram
from verify.tasks.histogram.rounded.verdict import certify as decide_rounded
from verify.tasks.inductive.task import Counting
from verify.tasks.parity.task import Parity
from verify.tasks.recurrent.kinds import module_of
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

HALF = torch.bfloat16


def cancelling():
    """Two neurons that are on for some multisets only and cancel each other: right, but no vertex shows it."""
    module = inventory_counting.lin(T=3, L=4, p=5, dtype=torch.float64)
    with torch.no_grad():
        module.W_1[0, 3:] = 1.0
        module.b_1[3:] = -0.3
        module.W_2[3], module.W_2[4] = 0.01 * module.W_2[0], -0.01 * module.W_2[0]
    return module


HISTOGRAMS = {
    "dot": lambda: relation_counting.dot(T=3, L=3, d=4, p=4),
    "lin+sftm": lambda: inventory_counting.lin_sftm(T=3, L=3),
    "bos+sftm": lambda: relation_counting.bos_sftm(T=3, L=3),
    "bos, wrong": lambda: relation_counting.bos(T=3, L=3, as_printed=True),
    "searched": cancelling,
    "random, wrong": lambda: random_model(3),
    "random, wrong too": lambda: random_model(4),
    "bos, wrong, no search": lambda: relation_counting.bos(T=3, L=3, as_printed=True),
}


def modular(model, m, length=None):
    return Homogeneous(model, Task.of("modular", modulus=m), length)


def counted(model, C=2, length=None):
    return Selective(model, Task.of("selective", types=2, max_count=C), length)


def residues(model, m=2, C=None, length=None):
    sizes = {} if C is None else {"max_count": C}
    return Selective(model, Task.of("selective-modular", types=2, modulus=m, **sizes), length)


def swinging(f, push):
    """h' = relu(1 - h), right modulo 2, less `push` times a sum s' = f s + 2^-9."""
    model = counters.ring(m=2)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_hh_l0.copy_(torch.tensor([[-1.0, 0.0], [0.0, f]]))
        model.cell.bias_ih_l0.copy_(torch.tensor([1.0, 2.0**-9]))
        model.readout.weight[0].copy_(torch.tensor([2.0, -push]))
        model.readout.bias[0] = -1.0
    return model


def turning_late():
    """The plane turned by a matrix that misses thirds of a circle by .00015: wrong first after some 400 tokens."""
    built, angle = diagonal.rotation(m=3, dtype=torch.float64), 2 * math.pi / 3 + 0.00015
    c, s = math.cos(angle), math.sin(angle)
    A, B = torch.tensor([[c, -s], [s, c]], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    return LinearModel("ssm", A, B, built.readout.weight.clone(), built.readout.bias.clone())


def of_crafted(seed):
    """The network of a seed on its task, at every length."""
    case = crafted(seed)
    return Homogeneous(case.model, case.task, None)


def weak_thermometer():
    """A thermometer whose first class is said too often."""
    model = selective.thermometer(types=2, max_count=2)
    with torch.no_grad():
        model.readout.bias[1] += 2.5
    return model


def added(push=0.0):
    """A sum of ones after a helper, one logit of which is moved."""
    model = module_of(counters.adder("helper", M=2))
    with torch.no_grad():
        model.readout.bias[1] += push
    return Homogeneous(model, Task.of("helper", vocabulary=2), None)


def trained_strings(name="rnn_K3_C1_seed1", types=3, C=1):
    """A trained network that is right on all strings, by sets of states, or by ellipsoids."""
    file = Path(__file__).parents[1] / f"data/recurrent_selective/{name}.safetensors"
    return Selective(load(file), Task.of("selective", types=types, max_count=C), None)


def slow(seed):
    """A crafted LSTM that tells the first token from later ones, and has a unit that creeps."""
    case = crafted(seed)
    return Homogeneous(case.model, case.task, None)


LOOKS = {  # at the clock, of certificates about runs that a name gives
    "relu, named, wrong, float32": 1500,
    "relu, named, wrong, no number, float64": 500,
    "relu, against an answer, wrong, bfloat16": 200,
    "relu, even turns, wrong, float64": 200,
    "gru, named, wrong, float32": 2000,
    "gru, named askew, wrong, float32": 2000,
    "lstm, named, wrong, float32": 2000,
    "ssm, named, wrong, float32": 2000,
    "s4, named, wrong, bfloat16": 2000,
    "rwkv, kept, wrong, bfloat16": 1200,
}
RECURRENT = {
    "sets": lambda: (trained_strings(), "real"),
    "ellipsoids": lambda: (trained_strings("rnn_K2_C2_seed3", 2, 2), "real"),
    "blocks": lambda: (residues(holding.rings(types=2, m=2)), "real"),
    "strings": lambda: (residues(gated.decays(kind="rwkv", m=2, s=4, N=5, types=2), C=6, length=5), "real"),
    "words": lambda: (added(), "real"),
    "words, wrong": lambda: (added(2.0), "real"),
    "words, wrong in a run": lambda: (added(0.5 - 2.0**-9), "bfloat16"),
    "swing": lambda: (modular(swinging(1.0, 0.5), 2), "bfloat16"),
    "swing, wrong": lambda: (modular(swinging(1 - 2.0**-7, 16.0), 2), "bfloat16"),
    "creeps": lambda: (slow(290), "real"),
    "creeps, wrong": lambda: (slow(309), "real"),
    "swing, always wrong": lambda: (modular(swinging(1.0, 32.0), 2), "bfloat16"),
    "one string, wrong": lambda: (counted(weak_thermometer()), "real"),
    "ssm": lambda: (modular(counters.cyclotomic(m=3), 3), "real"),
    "ssm, turning, wrong": lambda: (modular(turning_late(), 3), "real"),
    "relu": lambda: (modular(counters.ring(m=4), 4), "real"),
    "decay": lambda: (modular(diagonal.decays(m=3, s=2, N=4), 3, 4), "real"),
    "decay, wrong": lambda: (modular(diagonal.decays(m=3, s=2, N=4), 3), "real"),
    "rotation": lambda: (modular(diagonal.rotation(m=3, dtype=torch.bfloat16), 3, 20), "real"),
    "rotation, wrong": lambda: (modular(diagonal.rotation(m=3, dtype=torch.bfloat16), 3), "real"),
    "cycle, finite": lambda: (modular(counters.cycle(m=3), 3, 7), "real"),
    "cycle": lambda: (modular(counters.cycle(m=3), 3), "real"),
    "cycle, float32": lambda: (modular(counters.cycle(m=3), 3), "float32"),
    "cycle, p14": lambda: (modular(counters.cycle(m=3), 3), "p14"),
    "cycle, bits": lambda: (modular(counters.cycle(m=3, dtype=torch.bfloat16), 3), None),
    "mamba": lambda: (modular(gated.decays(kind="mamba", m=3, s=2, N=4), 3, 4), "real"),
    "mamba, wrong": lambda: (modular(gated.decays(kind="mamba", m=3, s=2, N=4), 3, 9), "real"),
    "mamba, float32": lambda: (modular(gated.decays(kind="mamba", m=3, s=2, N=4), 3, 4), "float32"),
    "mamba, wrong, float32": lambda: (modular(gated.decays(kind="mamba", m=3, s=2, N=4), 3), "float32"),
    "rwkv, kept, wrong, bfloat16": lambda: (of_crafted(26), "bfloat16"),
    "rotation, turned, wrong, bfloat16": lambda: (of_crafted(355), "bfloat16"),
    "rwkv, wrong in a run, bfloat16": lambda: (of_crafted(425), "bfloat16"),
    "ssm, wrong in a run, bfloat16": lambda: (of_crafted(297), "bfloat16"),
    "relu, named, wrong, float32": lambda: (of_crafted(78), "float32"),
    "relu, named, wrong, no number, float64": lambda: (modular(swinging(4.0, 0.0), 2), "float64"),
    "relu, against an answer, wrong, bfloat16": lambda: (modular(swinging(2.0**20, 0.0), 2), "bfloat16"),
    "relu, even turns, wrong, float64": lambda: (of_crafted(485), "float64"),
    "gru, named, wrong, float32": lambda: (of_crafted(215), "float32"),
    "gru, named askew, wrong, float32": lambda: (of_crafted(248), "float32"),
    "lstm, named, wrong, float32": lambda: (of_crafted(24), "float32"),
    "ssm, named, wrong, float32": lambda: (of_crafted(240), "float32"),
    "s4, named, wrong, bfloat16": lambda: (of_crafted(389), "bfloat16"),
    "lstm, far, wrong, float32": lambda: (of_crafted(480), "float32"),
    "lstm, far, wrong, float64": lambda: (of_crafted(461), "float64"),
    "rotation, always wrong, float64": lambda: (of_crafted(450), "float64"),
    "mamba, for ever, float64": lambda: (of_crafted(198), "float64"),
    "gru, for ever, float64": lambda: (of_crafted(248), "float64"),
    "tanh, always wrong, float32": lambda: (of_crafted(377), "float32"),
    "rwkv, p18": lambda: (modular(gated.decays(kind="rwkv", m=3, s=2, N=4), 3, 4), "p18"),
    "rwkv, held, p18": lambda: (counted(gated.counters(kind="rwkv", types=2, max_count=2), 2, 100), "p18"),
    "mamba, held, float32": lambda: (counted(gated.counters(kind="mamba", types=2, max_count=2), 2, 9), "float32"),
    "rotation, float32": lambda: (modular(diagonal.rotation(m=3, dtype=torch.bfloat16), 3, 20), "float32"),
    "ssm, bfloat16": lambda: (modular(counters.cyclotomic(m=3), 3, 20), "bfloat16"),
    "decay, wrong, float32": lambda: (modular(diagonal.decays(m=3, s=2, N=4), 3), "float32"),
    "thermometer": lambda: (counted(selective.thermometer(types=2, max_count=2)), "real"),
    "thermometer, p8": lambda: (counted(selective.thermometer(types=2, max_count=2)), "p8"),
    "rings": lambda: (residues(selective.rings(types=2, m=2)), "bfloat16"),
    "adders": lambda: (counted(selective.adders(types=2, max_count=2, length=6), 2, 6), "real"),
    "held": lambda: (counted(holding.counters(types=2, max_count=2, dtype=torch.float32), 2, 100), "real"),
    "held, wrong": lambda: (counted(holding.counters(types=2, max_count=4, dtype=torch.bfloat16), 4), "real"),
    "rwkv, held": lambda: (counted(gated.counters(kind="rwkv", types=2, max_count=2), 2, 100), "real"),
    "rwkv, wrong": lambda: (
        counted(gated.counters(kind="rwkv", types=2, max_count=4, dtype=torch.bfloat16), 4),
        "real",
    ),
}


def heads(seed, d=2, d_h=1):
    """A Count01 model of two heads with small drawn weights."""
    g = torch.Generator().manual_seed(seed)
    model = Count01Transformer(d=d, heads=2, d_h=d_h, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape, generator=g) / 4)
    return model


HEADS = {
    "uniform": (count01.uniform, "box:0:3:2"),
    "uniform, everywhere": (count01.uniform, "unbounded"),
    "pair": (counting_pair, "box:0:3:1"),
    "drawn": (lambda: heads(1), "box:1:3:1"),
    "two dimensions": (lambda: heads(1, 3, 2), "unbounded"),
    "three dimensions": (lambda: heads(1, 3, 3), "box:0:2:1"),
    "drawn too": (lambda: heads(2), "box:0:2:2"),
}


def changed(module, name, place, by):
    """A model with one number moved."""
    with torch.no_grad():
        module.get_parameter(name)[place] += by
    return module


def tied(module):
    """A readout with the same line for 0 and 1."""
    with torch.no_grad():
        module.W_out[:, 1], module.b_out[1] = module.W_out[:, 0], module.b_out[0]
    return module


def undecided_parity():
    """Two more neurons that are on for some tokens only, and move both logits a little."""
    built = sawtooth(T=3, L=3)
    module = ParityTransformer(T=3, L=3, d=4, p=4)
    with torch.no_grad():
        for name, value in built.named_parameters():
            module.get_parameter(name)[tuple(slice(0, n) for n in value.shape)] = value
        module.W_K[:3, :3] += 1 / 64
        module.W_1[:2, 2:] = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        module.W_2[2:] = torch.eye(2) / 16
    return module


def attending(module):
    """An adder whose scores differ from token to token."""
    for name, place in (("positions", (2, 0)), ("layers.0.W_K", (0, 0, 0)), ("layers.0.W_Q", (0, 0, 0))):
        changed(module, name, place, 0.25)
    return module


def several_heads():
    """Two heads of uniform attention that share the work of one."""
    one, two = count01.uniform(), Count01Transformer(d=1, heads=2, d_h=1)
    with torch.no_grad():
        two.load_state_dict({k: v.repeat(2, 1, 1) if v.ndim == 3 else v for k, v in one.state_dict().items()})
        two.W_O /= 2
    return two


PARITIES = {
    "parity": lambda: sawtooth(T=3, L=4),
    "parity, bfloat16": lambda: changed(sawtooth(T=3, L=3, dtype=HALF), "E", (0, 1), 0.03125),
    "parity, undecided": undecided_parity,
    "parity, wrong": lambda: changed(sawtooth(T=3, L=3), "b_1", 0, 0.75),
    "parity, wrong by a tie": lambda: changed(sawtooth(T=3, L=3), "b_2", 0, 1.0),
}
MODULARS = {
    "staircase": lambda: (staircase(P=5), 5),
    "pizza": lambda: (pizza(P=5, frequencies=(1,), m=5), 5),
    "pizza of attention": lambda: (attending(pizza(P=5, frequencies=(1,), m=5)), 5),
    "clock": lambda: (clock(P=5, frequencies=(1,), dtype=HALF), 5),
    "clock, wrong": lambda: (changed(clock(P=7, frequencies=(1,), dtype=HALF), "b_out", 2, 1.0), 7),
    "staircase, wrong by a tie": lambda: (changed(staircase(P=3), "b_out", 1, 0.5), 3),
}
ADDITIONS = {
    "addition": lambda: (one_head(n=1, B=3), Digits(1, 3)),
    "addition, two heads": lambda: (two_heads(n=2, B=2), Digits(2, 2)),
    "addition, wrong": lambda: (changed(one_head(n=2, B=2), "b_out", 1, 0.5), Digits(2, 2)),
    "addition, two layers": lambda: (two_layers(n=2, B=2), Digits(2, 2)),
    "addition, two layers, wrong": lambda: (changed(two_layers(n=1, B=3), "b_out", 2, 2.0), Digits(1, 3)),
}
COUNTS = {
    "count01": lambda: (count01.documents(10), PromptDomain(5, 4)),
    "count01, uniform": lambda: (count01.uniform(labels="thesis"), PromptDomain()),
    "count01, uniform, few": lambda: (count01.uniform(labels="thesis"), PromptDomain(4, 3)),
    "count01, from 1": lambda: (count01.documents(10), PromptDomain(3, 4, None, 1, 2, True)),
    "count01, heads": lambda: (several_heads(), PromptDomain(None, 4, 6)),
    "count01, wrong": lambda: (count01.documents(3, labels="thesis"), PromptDomain(2, 300)),
    "count01, wrong by a tie": lambda: (changed(count01.uniform(), "E", (0, 0), 0.5), PromptDomain(3, 3)),
    "count01, from 1, wrong": lambda: (count01.documents(3), PromptDomain(3, 4, None, 1, 2, True)),
    "count01, heads, wrong": lambda: (changed(several_heads(), "E", (0, 0), 0.75), PromptDomain(3, 3)),
}
REGIONS = {
    "regions": lambda: (build(3, 1), {}),
    "regions, convex": lambda: (build(5, 2, keys="convex", dtype=torch.float64), {"exactly": True}),
    "regions, zeros": lambda: (build(4, 1, bias="0", zeros=1, dtype=HALF), {"zeros": 1}),
    "regions, wrong": lambda: (build(4, 2, bias="]"), {"regions": 1}),
    "regions, wrong by a tie": lambda: (tied(build(3, 1)), {}),
}
PLACED = {
    "places, absolute": lambda: (placed(3, 1, "ape"), 3, 1),
    "places, rotated": lambda: (placed(3, 1, "rope", has_mlp=True), 3, 1),
    "places, by distance": lambda: (placed(4, 2, "alibi"), 4, 1),
    "places, before and after": lambda: (before_and_after(3, 1), 3, 1),
    "places, wrong": lambda: (changed(placed(3, 1, "rope"), "b_out", 1, 0.5), 3, 1),
    "places, before and after, wrong": lambda: (changed(before_and_after(3, 1), "b_out", 1, 0.5), 3, 1),
}
TRANSFORMERS = {
    "transformer": lambda: (started(task="shifted", M=3), Task.of("shifted", vocabulary=3), None),
    "transformer, bare": lambda: (started(task="shifted", M=3, layernorm=False), Task.of("shifted", vocabulary=3),
                                  None),
    "transformer, placed": lambda: (spe(task="modular", N=4, m=2, positions=4), Task.of("modular", modulus=2), None),
    "transformer, drawn, wrong": lambda: (drawn(5), Task.of("first-homogeneous"), None),
    "transformer, strings": lambda: (counting_types(K=2, C=2, m=2), Task.of("selective-modular", modulus=2, types=2,
                                                                     max_count=2), 3),
    "transformer, turned": lambda: (inductive_waves.build(3, m=2, d_head=4, positions=5),
                                    Task.of("modular", modulus=2), 3),
    "transformer, turned, wrong": lambda: (drawn(5, pe="rope"), Task.of("first-homogeneous"), None),
    "transformer, waves, wrong": lambda: (drawn(6, pe="sine"), Task.of("first-homogeneous"), None),
    "transformer, wrong": lambda: (changed(started(task="shifted", M=4), "W_U", (0, 1), 9.0),
                                   Task.of("shifted", vocabulary=4), None),
}  # fmt: skip
CIRCUITS = {  # a circuit or a language, how many bits there are, and the reading
    "circuit": (lambda: Circuit("mixed", ("x", "y"), (Gate("xor", (0, 1), "z"), Gate("nor", (2, 0), "q")), (("q", 3),)),
                2, "bits"),
    "circuit, real": (lambda: Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)), 3, "real"),
    "circuit, wrong": (lambda: Circuit("or", ("x", "y"), (Gate("or", (0, 1), "z"),), (("z", 2),)), 2, "bits"),
    "circuit, wrong, real": (lambda: Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)), 3, "real"),
    "circuit, wrong, float32": (
        lambda: Circuit("xor", ("x", "y"), (Gate("xor", (0, 1), "z"),), (("z", 2),)), 3, "float32"),
    "circuit, float32": (lambda: Circuit("or", ("x", "y"), (Gate("or", (0, 1), "z"),), (("z", 2),)), 3, "float32"),
    "circuit, tf32": (lambda: Circuit("or", ("x", "y"), (Gate("or", (0, 1), "z"),), (("z", 2),)), 3, "tf32"),
    "circuit, bfloat16": (lambda: Circuit("or", ("x", "y"), (Gate("or", (0, 1), "z"),), (("z", 2),)), 3, "bfloat16"),
    "circuit, wrong, float16": (
        lambda: Circuit("xor", ("x", "y"), (Gate("xor", (0, 1), "z"),), (("z", 2),)), 3, "float16"),
    "language, float64": (lambda: unroll(from_regex("(01)*", "01"), 2), 3, "float64"),
    "language": (lambda: unroll(from_regex("(01)*", "01"), 2), 2, "bits"),
    "language, wrong": (lambda: unroll(from_regex("(01)*", "01"), 2), 2, "bits"),
    "language, wrong, real": (lambda: unroll(from_regex("a|c", "abc"), 1), 3, "real"),
    "language, wrong, float32": (lambda: unroll(from_regex("0*1", "01"), 2), 3, "float32"),
    "language, real": (lambda: unroll(from_regex("0|1", "01"), 1), 2, "real"),
    "language, bfloat16": (lambda: unroll(from_regex("(01)*", "01"), 2), 3, "bfloat16"),
    "language, float16": (lambda: unroll(from_regex("0|1", "01"), 1), 2, "float16"),
}  # fmt: skip
IN_DTYPES = {  # a format, and whose model is read in it
    "dot, float32": ("float32", "dot"),
    "lin+sftm, float32": ("float32", "lin+sftm"),
    "lin+sftm, tf32": ("tf32", "lin+sftm"),
    "bos+sftm, float64": ("float64", "bos+sftm"),
    "searched, float32": ("float32", "searched"),
    "staircase, float32": ("float32", "staircase"),
    "pizza, float64": ("float64", "pizza"),
    "addition, float64": ("float64", "addition, two heads"),
    "dot, p30": ("p30", "dot"),
    "parity, p12": ("p12", "parity"),
    "parity, tf32": ("tf32", "parity"),
    "staircase, p20": ("p20", "staircase"),
    "count01, p40": ("p40", "count01"),
    "parity, float32": ("float32", "parity"),
    "parity, undecided, float64": ("float64", "parity, undecided"),
    "addition, two layers, float32": ("float32", "addition, two layers"),
    "addition, two layers, tf32": ("tf32", "addition, two layers"),
    "count01, float64": ("float64", "count01"),
    "count01, heads, float32": ("float32", "count01, heads"),
    "regions, float32": ("float32", "regions"),
    "places, float32": ("float32", "places, rotated"),
    "places, before and after, float64": ("float64", "places, before and after"),
    "regions, convex, float64": ("float64", "regions, convex"),
    "transformer, float32": ("float32", "transformer"),
    "transformer, tf32": ("tf32", "transformer"),
    "transformer, placed, float64": ("float64", "transformer, placed"),
    "transformer, strings, float32": ("float32", "transformer, strings"),
    "transformer, turned, float32": ("float32", "transformer, turned"),
    "clock, tf32": ("tf32", "clock"),
}
WRONG_IN_DTYPES = {
    "bos, wrong, float32": ("float32", "bos, wrong"),
    "bos, wrong, tf32": ("tf32", "bos, wrong"),
    "random, wrong, float64": ("float64", "random, wrong"),
    "parity, wrong, p30": ("p30", "parity, wrong"),
    "parity, wrong by its order, p2": ("p2", "parity"),
    "clock, wrong, float32": ("float32", "clock, wrong"),
    "addition, wrong, float64": ("float64", "addition, wrong"),
    "addition, two layers, wrong, float32": ("float32", "addition, two layers, wrong"),
    "count01, heads, wrong, float32": ("float32", "count01, heads, wrong"),
    "count01, heads, wrong, tf32": ("tf32", "count01, heads, wrong"),
    "regions, wrong, float32": ("float32", "regions, wrong"),
    "places, wrong, float64": ("float64", "places, wrong"),
    "places, before and after, wrong, float64": ("float64", "places, before and after, wrong"),
    "transformer, wrong, float32": ("float32", "transformer, wrong"),
    "transformer, drawn, wrong, float64": ("float64", "transformer, drawn, wrong"),
    "transformer, turned, wrong, float64": ("float64", "transformer, turned, wrong"),
}


GROKKED = {  # what the weights are made with, and the reading
    "grokked": ({}, "real"),
    "grokked, wrong": ({"push": 2.0, "heads": 2, "spare": 1}, "real"),
    "grokked, float32": ({"dtype": torch.float32}, "float32"),
    "grokked, wrong, float32": ({"push": 2.0, "layers": 2}, "float32"),
}
IN_BITS = {  # how many bits, and whose model is read in them
    "dot, 4 bits": (4, "dot"),
    "lin+sftm, 6 bits": (6, "lin+sftm"),
    "bos+sftm, 8 bits": (8, "bos+sftm"),
    "count01, uniform, 6 bits": (6, "count01, uniform"),
    "count01, heads, 5 bits": (5, "count01, heads"),
    "bos, wrong, 3 bits": (3, "bos, wrong"),
    "random, wrong, 7 bits": (7, "random, wrong"),
    "count01, from 1, wrong, 6 bits": (6, "count01, from 1, wrong"),
    "count01, heads, wrong, 4 bits": (4, "count01, heads, wrong"),
}
SMALL = {"count01, uniform": PromptDomain(2, 1), "count01, heads": PromptDomain(None, 3, 3)}


def drawn(seed, pe="ape"):
    """Two layers of two heads, with LayerNorm, GELU and positions, as GPT-2 is drawn."""
    model = Decoder(vocabulary=1, d=4, n_heads=2, n_layers=2, positions=4, d_mlp=3, classes=2, pe=pe)
    return initialised(model, seed=seed, std=0.5).eval()


def real(name):
    """A problem in real arithmetic, and its file."""
    if name in TRANSFORMERS:
        module, task, length = TRANSFORMERS[name]()
        return Counting(module, task, length), decoder_bytes(module, {})
    if name in REGIONS:
        module, options = REGIONS[name]()
        named = {"construction": "onehot", "bias": "BOS"} if name == "regions" else {}
        strings = domain_of(module, len(module.b_out) - 1, **options)
        return ContextualCounting(module, strings, None, named), transformer.as_bytes(module)
    if name in PLACED:
        module, N, R = PLACED[name]()
        is_causal = hasattr(module, "slope")
        weights = (positional if is_causal else bidirectional).as_bytes(module)
        named = {"pe": "rope", "decoder_mlp": True} if name == "places, rotated" else {}
        return (Positional if is_causal else Bidirectional).of(module, length=N, regions=R, named=named), weights
    if name in PARITIES:
        module = PARITIES[name]()
        return Parity(module), parity_bytes(module)
    if name in MODULARS:
        module, P = MODULARS[name]()
        named = {"construction": "pizza", "frequencies": [1], "orbit": [1]} if name == "pizza" else {}
        return ModularAddition(module, P, None, named), to_bytes(module, {"task": "modular", "P": P})
    if name in ADDITIONS:
        module, sums = ADDITIONS[name]()
        return DigitAddition(module, sums, None, {"construction": "file"}), to_bytes(module, {"task": "addition"})
    module, domain = COUNTS[name]()
    labels = "thesis" if "uniform" in name or name == "count01, wrong" else "majority-ones"
    named = {"construction": "documents", "dtype": "float64", "heads": 1, "d": 1, "skip": True, "N": 10, "eps": 0.0}
    named = named | {"as_printed": None} if name == "count01" else {}
    return Count01.of(module, labels, domain, named=named), count01.as_bytes(module)


STEPS = {  # whose step was traced
    "cell, real": lambda: steps.cell("cell"),
    "cell": lambda: steps.cell("cell, float32"),
    "cell, wrong, real": lambda: steps.cell("cell, wrong"),
    "cell, wrong": lambda: steps.cell("cell, wrong, bfloat16"),
    "layers, strings": lambda: steps.stack("gru", steps.SELECTIVE, 0, 2, "real"),
    "layers, wrong": lambda: steps.stack("gru", steps.MODULAR, 0, 3, "real"),
    "layers, float32": lambda: steps.stack("rnn", steps.MODULAR, 0, 1, "float32"),
    "layers, wrong, float32": lambda: steps.stack("lstm", steps.MODULAR, 0, 1, "float32"),
    "whole blocks by their step": lambda: steps.blocks("mamba", steps.MODULAR, 1, 2, "float32"),
    "whole blocks by their step, strings": lambda: steps.blocks("mamba", steps.SELECTIVE, 0, 2, "float32"),
    "whole blocks by their step, strings, wrong": lambda: steps.blocks("s4", steps.SELECTIVE, 1, 2, "float32"),
    "whole blocks by their step, words": lambda: steps.words("rwkv", 2, 1, "float32"),
}
FLOAT16 = torch.float16
TRANSFORMERS["transformer, half"] = lambda: (
    changed(started(task="shifted", M=3, dtype="float16"), "W_U", (4, 0), 2.0**-20),
    Task.of("shifted", vocabulary=3),
    None,
)
REGIONS["regions, half"] = lambda: (build(3, 1, dtype=FLOAT16), {})
REGIONS["regions, half, wrong"] = lambda: (changed(build(3, 1, dtype=FLOAT16), "b_out", 1, 0.5), {})
PLACED["places, half"] = lambda: (placed(3, 1, "ape", dtype=FLOAT16), 3, 1)
PLACED["places, rotated, half"] = lambda: (placed(3, 1, "rope", has_mlp=True, dtype=FLOAT16), 3, 1)
IN_16_BITS = {  # a format, and whose model is read in it
    "regions, float16": ("float16", "regions, half"),
    "places, float16": ("float16", "places, half"),
    "places, rotated, float16": ("float16", "places, rotated, half"),
    "transformer, bfloat16": ("bfloat16", "transformer, bare"),
    "transformer, float16": ("float16", "transformer, half"),
    "regions, wrong, float16": ("float16", "regions, half, wrong"),
    "clock, wrong, bfloat16": ("bfloat16", "clock, wrong"),
    "bos, wrong, bfloat16": ("bfloat16", "bos, wrong"),
}
IN_DTYPES |= {name: of for name, of in IN_16_BITS.items() if "wrong" not in name}
WRONG_IN_DTYPES |= {name: of for name, of in IN_16_BITS.items() if "wrong" in name}
OTHERS = MADE | {name: partial(of_module, name) for name in MODULES}  # in modules of their own


REALS = [*PARITIES, *MODULARS, *ADDITIONS, *COUNTS, *REGIONS, *PLACED, *TRANSFORMERS]
ALL = [
    *HISTOGRAMS,
    *RECURRENT,
    *REALS,
    *HEADS,
    *IN_DTYPES,
    *WRONG_IN_DTYPES,
    *IN_BITS,
    *GROKKED,
    *CIRCUITS,
    *STEPS,
    *OTHERS,
]
NAMES = [name for name in ALL if name != "two dimensions"]  # which takes a second to check


def of_circuit(made, s, reading, is_wrong=False):
    """A circuit's or a language's model and certificate, with the program that is saved."""
    unrolling = None if isinstance(made, Circuit) else made
    parts = decompose(made if unrolling is None else unrolling.circuit)
    model = build_circuit(parts.circuit, s=s)
    model = changed(model, "layers.1.b_1", 1, 1.0) if is_wrong else model
    weights = circuit_bytes(model)
    fmt = FORMATS.get(reading)
    found = circuit_proof.certify(model, parts) if reading == "bits" else circuit_dtype.certify(model, parts, fmt=fmt)
    found = found if unrolling is None else for_strings(found, unrolling)
    return weights, json.dumps(json.loads(found.about(weights).to_json()) | {"program": program(parts, unrolling)})


def in_dtype(precision, name):
    """The weights' bytes, and the certificate of a model whose operations are rounded."""
    reading = reading_of(precision)
    if name in HISTOGRAMS:
        module = HISTOGRAMS[name]()
        weights = checkpoint.as_bytes(module, claim=None, construction=None)
        return weights, decide_rounded(module, fmt=reading.format).about(weights).to_json()
    problem, weights = real(name)
    return weights, with_tables(problem, certify(problem, reading).about(weights))


def with_tables(problem, found):
    """The certificate as it is saved, with the sines and cosines that a decoder makes itself."""
    return replace(found, extra=found.extra | getattr(problem, "made_tables", {})).to_json()


def in_bits(s, name):
    """The weights' bytes, and the certificate of a model in s-bit arithmetic."""
    if name in HISTOGRAMS:
        module = HISTOGRAMS[name]()
        weights = checkpoint.as_bytes(module, claim=None, construction=None)
        return weights, histogram_runs.in_bits(module, s).about(weights).to_json()
    (module, domain), reading = COUNTS[name](), reading_of(f"s{s}")
    labels = "thesis" if "uniform" in name else "majority-ones"
    problem = Count01.of(module, labels, SMALL.get(name, domain), reading=reading)
    weights = count01.as_bytes(module)
    return weights, certify(problem, reading).about(weights).to_json()


def with_signs(found):
    """A proof of thermometers of 2 types to 2, as earlier releases wrote it: how far from 0 signs are, and no sets."""
    least, margin = (0.95, 1.7864) if "precision" in found["parameters"] else (1 - 2.0**-16, 1.9999)
    del found["sets_found"]
    return found | {"invariant_found": {"least_sign": least, "cases": 12}, "margin": margin}


@cache
def honest(name):
    """The weights' bytes, and the certificate as text."""
    if name in OTHERS:
        return OTHERS[name]()
    if name in HISTOGRAMS:
        module = HISTOGRAMS[name]()
        weights = checkpoint.as_bytes(module, claim=None, construction=None)
        found = decide_histogram(module).about(weights).to_dict()
        if "no search" in name:  # as earlier releases wrote it
            del found["tree"]
        return weights, json.dumps(found)
    if name in RECURRENT:
        problem, precision = RECURRENT[name]()
        effort = Effort(budget=looks(LOOKS[name]) if name in LOOKS else 30)
        if precision is None:
            found = exhaustive(problem, effort=effort)
        else:
            found = certify(problem, Real() if precision == "real" else reading_of(precision), effort)
        weights = bytes_of(problem.model)
        found = found.about(weights).to_dict()
        if "named" in name:  # as where a run is too long to be saved
            found.pop("run", None)
        return weights, json.dumps(with_signs(found) if name.startswith("thermometer") else found)
    if name in REALS:
        problem, weights = real(name)
        return weights, with_tables(problem, certify(problem).about(weights))
    if name in STEPS:
        return STEPS[name]()
    if name in CIRCUITS:
        made, s, reading = CIRCUITS[name]
        return of_circuit(made(), s, reading, "wrong" in name)
    if name in IN_DTYPES | WRONG_IN_DTYPES:
        return in_dtype(*(IN_DTYPES | WRONG_IN_DTYPES)[name])
    if name in IN_BITS:
        return in_bits(*IN_BITS[name])
    if name in GROKKED:
        options, reading = GROKKED[name]
        return certified(hats(3, **options), 3, Real() if reading == "real" else reading_of(reading))
    build, law = HEADS[name]
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        count01.save(build(), f"{place}/model.safetensors")
        main(["heads", f"{place}/model.safetensors", "--law", law, "--save", f"{place}/saved"])
        weights, certificate = (Path(place, "saved", x) for x in ("weights.safetensors", "certificate.json"))
        return weights.read_bytes(), certificate.read_text()
