"""Models of every door whose numbers have any size: built, scaled layer by layer, drawn, or moved next to a tie.

`DOORS` names a function of a random generator for each door, which returns a `Case`: the module, how it is asked, and
all its answers by the oracle. Sizes are small, so that all inputs are enumerated.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from flint import arb
from models.programs import PARTS, Program
from models.random_models import BUILDERS
from oracles import exact_programs as programs
from oracles import exact_sizes as oracle
from oracles.inductive import right as due
from torch import Tensor, nn

import verify
from constructions import addition as addition_builders
from constructions import circuit_simulation as circuits
from constructions import (
    contextual_counting,
    contextual_positions,
    contextual_with_positions,
    count01,
    inductive,
    largest,
    modular,
    parity,
)
from constructions.adder.digits import Digits
from constructions.adder.transformer import AdderTransformer
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.contextual.bidirectional import BidirectionalContextualTransformer
from constructions.contextual.positional import PositionalContextualTransformer
from constructions.contextual.transformer import ContextualCountingTransformer
from constructions.decoder import Decoder
from constructions.errors import BadInput, NotKnown, ProvedImpossible
from constructions.histogram import MODELS, HistogramTransformer
from constructions.parity import ParityTransformer
from constructions.recurrent.model import RecurrentModel
from verify.counting.tasks import Task
from verify.frame import decide
from verify.module import largest as largest_of
from verify.module import smallest as smallest_of
from verify.module import tokens as every
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.task import DigitAddition
from verify.tasks.inductive.task import Counting
from verify.tasks.recurrent.task import Homogeneous

DTYPES = {torch.float64: (-1074, 1023), torch.float32: (-149, 127), torch.float16: (-24, 15)}
MANTISSAS = (1.0, 1.0, 1.5, 1 + 2.0**-52, 2 - 2.0**-52, 1 + 2.0**-10)
NEAR = (0.0, 0.0, 2.0**-53, -(2.0**-53), 2.0**-48, -(2.0**-48), 2.0**-20, -(2.0**-20))
REFUSED = (BadInput, NotKnown, ProvedImpossible)


@dataclass
class Answer:
    """One answer of one input, with its differences by the oracle; it stands for `number` inputs that are alike."""

    input: Any
    place: int
    right: int
    differences: dict[int, arb]
    number: int = 1


@dataclass
class Case:
    """A model, how it is asked, and what is true of it.

    `bias` is a vector of the readout that moves a class, `order` sorts answers where a smallest wrong one is claimed.
    """

    module: nn.Module
    ask: Callable[[], Any]
    truth: Callable[[], list[Answer]]
    found: Callable[[dict], tuple[Any, int | None]]
    bias: Tensor | None = None
    order: Callable[[Answer], Any] | None = None
    counts_answers: bool = False
    notes: dict[str, Any] = field(default_factory=dict)


# How numbers are changed


@dataclass(frozen=True)
class Way:
    """How numbers were changed, what scales the model's layers without a change of an answer, and its dtype."""

    name: str
    layers: list[dict[str, int]] = field(repr=False)
    dtype: torch.dtype = field(repr=False)


def sized(rng: random.Random, module: nn.Module, layers: list[dict[str, int]], dtype: torch.dtype) -> Way:
    """Changes the module's numbers in one of the ways, stores them in the dtype, and says which way it was.

    Each of `layers` is a change that leaves every answer as it is: tensors whose name ends so are multiplied by 2^k
    to this power.
    """
    way = rng.choice(("as it is", "scaled", "scaled", "scaled", "scaled", "faint", "drawn", "two sizes"))
    tensors = {name: value for name, value in module.named_parameters() if value.numel()}
    with torch.no_grad():
        if way == "scaled":
            for _ in range(rng.choice((1, 1, 2, 3))):
                scaled(rng, tensors, rng.choice(layers), dtype)
        elif way == "faint":
            low, high = DTYPES[dtype]
            for value in tensors.values():
                value.mul_(2.0 ** rng.choice((0, 0, low // 2, low // 4, low, high // 2, high // 4, low // 3)))
        elif way == "drawn":
            for value in tensors.values():
                fill(rng, value, range(*DTYPES[dtype]), rng.choice((0.2, 0.6, 0.9)))
        elif way == "two sizes":
            low, high = DTYPES[dtype]
            sizes = [rng.randint(low, high), rng.randint(low, high), low // 2, 0]
            for value in tensors.values():
                fill(rng, value, rng.sample(sizes, 2), rng.choice((0.2, 0.6)))
        fits(tensors, dtype)
    return Way(way, layers, dtype)


def scaled(rng: random.Random, tensors: dict[str, Tensor], layer: dict[str, int], dtype: torch.dtype) -> None:
    """Multiplies the tensors of a layer by powers of two, in steps that stay within float64."""
    low, high = DTYPES[dtype]
    k = rng.choice((rng.randint(-20, 20), rng.randint(low // 2, high // 2), rng.randint(low, high)))
    for name, value in tensors.items():
        for end, power in layer.items():
            if re.search(rf"(^|\.){end}$", name):
                total = k * power
                room = high - 1 - math.frexp(float(value.abs().max()) or 1.0)[1]
                times_power(value, max(min(total, room), 2 * low))


def times_power(value: Tensor, k: int) -> None:
    while k:
        step = max(-1000, min(1000, k))
        value.mul_(2.0**step)
        k -= step


def fill(rng: random.Random, value: Tensor, exponents: Any, zeros: float) -> None:
    """Draws each number anew: 0, or a sign, one of few mantissas and an exponent."""
    flat = value.view(-1)
    for i in range(len(flat)):
        number = rng.choice((-1, 1)) * rng.choice(MANTISSAS)
        flat[i] = 0.0 if rng.random() < zeros else math.ldexp(number, rng.choice(exponents))


def fits(tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Rounds the numbers to the dtype, within its range."""
    most = torch.finfo(dtype).max
    for value in tensors.values():
        value.copy_(value.clamp(-most, most).to(dtype).to(value.dtype))


def near_tie(rng: random.Random, case: Case) -> None:
    """Moves the class that comes nearest to a right one by the difference, or by a little more or less."""
    answers = [a for a in case.truth() if a.differences]
    if case.bias is None or not answers:
        return
    answer = rng.choice(sorted(answers, key=lambda a: _low(oracle.margin(a.differences)))[:3])
    rival = min(answer.differences, key=lambda c: _low(answer.differences[c]))
    difference = _low(answer.differences[rival])
    if math.isfinite(difference):
        with torch.no_grad():
            moved = float(case.bias[rival]) + difference * (1 + rng.choice(NEAR))
            most = torch.finfo(case.bias.dtype).max
            case.bias[rival] = max(-most, min(most, moved))


def _low(x: arb) -> float:
    value = float(x.mid()) if x.is_finite() else float("nan")
    return value if value == value else float("inf")


def gaussian(rng: random.Random, module: nn.Module, std: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    integers = rng.random() < 0.4
    with torch.no_grad():
        for value in module.parameters():
            drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            value.copy_((drawn * 1.5).round() if integers else drawn * std)


def changed(rng: random.Random, module: nn.Module) -> None:
    """A few numbers of a built model changed."""
    tensors = [value for value in module.parameters() if value.numel()]
    with torch.no_grad():
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            flat = rng.choice(tensors).view(-1)
            i = rng.randrange(len(flat))
            flat[i] = flat[i] * rng.choice((0.0, -1.0, 0.5, 1.05, 1.0)) + rng.choice((0.0, 0.3, -1.0, 5e-324))


def dtype_of(rng: random.Random) -> torch.dtype:
    return rng.choice((torch.float64,) * 3 + (torch.float32, torch.float16))


BUDGET = 2.0  # seconds


# Doors


def histogram(rng: random.Random) -> Case:
    kind, dtype = rng.choice(MODELS), dtype_of(rng)
    T, L = rng.randint(1, 3), rng.randint(1, 4)
    if rng.random() < 0.7 and T > 1:
        build = rng.choice(BUILDERS[kind])
        module = build(T=T, L=L, dtype=torch.float64, basis=rng.choice(("standard", "random")), seed=rng.randrange(99))
        changed(rng, module)
    else:
        extra = rng.randint(0, 1)
        module = HistogramTransformer(
            kind, T=T, L=L, d=rng.randint(1, 3), p=rng.randint(1, 3), classes=L + extra + rng.randint(0, 1),
            first_count=1 - extra, dtype=torch.float64,
        )  # fmt: skip
        gaussian(rng, module)
    way = sized(
        rng,
        module,
        [
            {"W_Q": 1, "W_K": -1},
            {"W_1": 1, "b_1": 1, "W_2": -1},
            {"W_2": 1, "b_2": 1},
            {"E": 1, "e_BOS": 1, "W_Q": -1, "W_K": -1, "W_1": -1},
            {"W_1": 1, "b_1": 1, "W_2": -2, "b_2": -1},
        ],
        dtype,
    )
    module = module.to(dtype)
    kept: dict = {}

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for tokens in itertools.product(range(T), repeat=L):
            for i, t in enumerate(tokens):
                right = tokens.count(t) - module.first_count
                place = (i, *tokens) if module.is_linear else (t, *sorted(Counter(tokens).items()))
                if place not in kept:
                    kept[place] = oracle.settled(lambda: oracle.histogram(w, kind, tokens, i, right))  # noqa: B023
                out.append(Answer(tokens, i, right, kept[place]))
        return out

    def fresh() -> list[Answer]:
        kept.clear()
        return truth()

    return Case(
        module, lambda: verify.certify(module, budget=BUDGET), fresh, lambda c: (tuple(c["input"]), c["position"]),
        module.b_2, lambda a: (len(set(a.input)), a.input), True, {"way": way, "kind": kind},
    )  # fmt: skip


def parity_(rng: random.Random) -> Case:
    dtype, T, L = dtype_of(rng), rng.randint(1, 3), rng.randint(1, 4)
    if rng.random() < 0.7:
        module = parity.sawtooth(T=T, L=L)
        changed(rng, module)
    else:
        module = ParityTransformer(T=T, L=L, d=rng.randint(1, 3), p=rng.randint(1, 3))
        gaussian(rng, module)
    layers = [
        {"W_Q": 1, "W_K": -1},
        {"W_1": 1, "b_1": 1, "W_2": -1},
        {"W_2": 1, "b_2": 1},
        {"E": 1, "W_Q": -1, "W_K": -1, "W_1": -1},
    ]
    way = sized(rng, module, layers, dtype)
    module = module.to(dtype)

    def truth() -> list[Answer]:
        w, kept, out = oracle.state(module), {}, []
        for tokens in itertools.product(range(T), repeat=L):
            for i, t in enumerate(tokens):
                right, place = tokens.count(t) % 2, (t, *sorted(tokens))
                if place not in kept:
                    kept[place] = oracle.settled(lambda: oracle.parity(w, tokens, i, right))  # noqa: B023
                out.append(Answer(tokens, i, right, kept[place]))
        return out

    return Case(
        module, lambda: verify.certify(module, budget=BUDGET), truth, lambda c: (tuple(c["input"]), c["position"]),
        module.b_2, notes={"way": way},
    )  # fmt: skip


def strings(longest: int, regions: int) -> Iterator[str]:
    for n in range(longest + 1):
        for symbols in itertools.product("01[]", repeat=n):
            text = "".join(symbols)
            if re.fullmatch(r"[01]*(\[[01]*\][01]*)*", text) and text.count("[") <= regions:
                yield text


def ones(text: str, prompt: int) -> int:
    """The ones in the prompt's region, 0 where it is not there."""
    found = [region.count("1") for region in re.findall(r"\[([01]*)\]", text)]
    return found[prompt] if prompt < len(found) else 0


def _contextual(module: Any, way: Way, length: int, regions: int, is_causal: bool) -> Case:
    def computes(w: dict[str, Any], *at: Any) -> oracle.Differences:
        return oracle.positional(w, *at) if "slope" in w else oracle.contextual(w, *at, is_causal)

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for text in strings(length, regions):
            tokens = [4] * (not is_causal or module.has_bos) + ["01[]".index(c) for c in text]
            for r in range(module.R):
                right = ones(text, r)
                if tokens:
                    at = oracle.settled(lambda: computes(w, tokens, r, right), 1200)  # noqa: B023
                    out.append(Answer(text, r, right, at))
        return out

    return Case(
        module, lambda: verify.certify(module, length=length, regions=regions, budget=BUDGET), truth,
        lambda c: (c["input"], c["prompt"] - 1), module.b_out, None, True, {"way": way},
    )  # fmt: skip


READER = [{"W_out": 1, "b_out": 1}, {"U_V": 1, "W_out": -1}, {"U_Q": 1, "U_K": -1}, {"P": 1, "U_Q": -1}]
ENCODER = [
    {"W_Q": 1, "W_K": -1},
    {"W_V": 1, "W_O": -1},
    {"W_1": 1, "b_1": 1, "W_2": -1},
    {
        "E": 1, "positions": 1, "W_Q": -1, "W_K": -1, "W_O": 1, "W_V": -1, "W_1": -1, "W_2": 1, "b_2": 1, "U_K": -1,
        "U_V": -1,
    },
]  # fmt: skip


def contextual(rng: random.Random) -> Case:
    dtype, length, R = dtype_of(rng), rng.randint(1, 3), rng.randint(1, 2)
    if rng.random() < 0.7:
        module = contextual_counting.build(max(3, length), R, dtype=torch.float64)
        changed(rng, module)
    else:
        module = ContextualCountingTransformer(
            d=rng.randint(1, 3), p=rng.randint(1, 3), R=R, classes=length + 1 + rng.randint(0, 1),
            d_h=rng.randint(1, 2), e=rng.randint(1, 2), g=rng.randint(1, 2), bos=rng.random() < 0.7,
        )  # fmt: skip
        gaussian(rng, module)
    way = sized(rng, module, [*READER, *ENCODER[:3], *ENCODER], dtype)
    return _contextual(module.to(dtype), way, length, R, True)


def bidirectional(rng: random.Random) -> Case:
    dtype, length, R = dtype_of(rng), rng.randint(1, 3), rng.randint(1, 2)
    if rng.random() < 0.7:
        module = contextual_positions.build(max(3, length), R, dtype=torch.float64)
        changed(rng, module)
    else:
        sizes = {name: rng.randint(1, 2) for name in ("e", "h", "f", "g", "p")}
        module = BidirectionalContextualTransformer(
            tokens=5, places=length + 1, d=rng.randint(1, 3), R=R, classes=length + 1 + rng.randint(0, 1), **sizes
        )
        gaussian(rng, module)
    way = sized(rng, module, [*READER, *ENCODER], dtype)
    return _contextual(module.to(dtype), way, length, R, False)


def positional(rng: random.Random) -> Case:
    dtype, length, R = dtype_of(rng), rng.randint(1, 3), rng.randint(1, 2)
    if rng.random() < 0.7:
        pe = rng.choice(contextual_with_positions.PE)
        module = contextual_with_positions.build(max(3, length), R, pe, has_mlp=rng.random() < 0.5)
        changed(rng, module)
    else:
        sizes = {name: rng.randint(1, 2) for name in ("pairs", "h", "f", "g", "p", "q")}
        module = PositionalContextualTransformer(
            tokens=5, places=length + 1, d=rng.randint(1, 3), R=R, classes=length + 1 + rng.randint(0, 1),
            e=2 * sizes["pairs"], **sizes,
        )  # fmt: skip
        gaussian(rng, module)
    way = sized(rng, module, [{"W_out": 1, "b_out": 1}, *READER[2:], *ENCODER[:3]], dtype)
    return _contextual(module.to(dtype), way, length, R, False)


def count01_(rng: random.Random) -> Case:
    dtype, longest, labels = dtype_of(rng), rng.randint(1, 3), rng.choice(count01.LABELS)
    if rng.random() < 0.6:
        build = rng.choice((count01.uniform, count01.uniform, count01.documents))
        module = build(labels=labels) if build is count01.uniform else build(longest, labels=labels)
        changed(rng, module)
    else:
        module = count01.Count01Transformer(
            d=rng.randint(1, 3), heads=rng.randint(1, 2), d_h=rng.randint(1, 2), skip=rng.random() < 0.7,
            norm=rng.random() < 0.5, scale=rng.choice((1, 1, 2, 4)),
        )  # fmt: skip
        gaussian(rng, module)
    layers = [
        {"W_Q": 1, "W_K": -1}, {"W_V": 1, "W_O": -1}, {"W_out": 1, "b_out": 1},
        {"E": 1, "W_Q": -1, "W_K": -1, "W_out": -1},
    ]  # fmt: skip
    way = sized(rng, module, layers, dtype)
    module = module.to(dtype)
    if module.has_norm:
        module.norm_eps = torch.tensor(rng.choice((0.0, 5e-324, 1e-300, 1e-12, 1e-5)), dtype=torch.float64)
    words = {4: "=", 5: "4", 6: "5"}

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for n in itertools.product(range(longest + 1), repeat=3):
            for last in (4, 5, 6):
                string = [0] + [t for t, k in zip((1, 2, 3), n, strict=True) for _ in range(k)] + [4]
                more = n[1] > n[0] if labels == "majority-ones" else n[0] >= n[1]
                right = 7 if last != 4 else 5 if more else 6
                if sum(n) <= longest:
                    string += [last] * (last != 4)
                    at = oracle.settled(lambda: oracle.count01(w, string, right))  # noqa: B023
                    out.append(Answer((*n, words[last]), 0, right, at))
        return out

    return Case(
        module, lambda: verify.certify(module, labels=labels, max_length=longest, budget=BUDGET), truth,
        lambda c: (tuple(c["input"]), 0), module.b_out, None, True, {"way": way, "norm": module.has_norm},
    )  # fmt: skip


ADDER = [
    {"W_Q": 1, "W_K": -1}, {"W_V": 1, "W_O": -1}, {"W_1": 1, "b_1": 1, "W_2": -1}, {"W_out": 1, "b_out": 1},
    {"E": 1, "positions": 1, "W_Q": -1, "W_K": -1, "W_O": 1, "W_V": -1, "W_1": -1, "W_2": 1, "W_out": -1},
]  # fmt: skip


def modular_(rng: random.Random) -> Case:
    dtype, P = dtype_of(rng), rng.choice((2, 3, 3, 5))
    choice = rng.random()
    if choice < 0.3:
        module = modular.staircase(P=P)
    elif choice < 0.45 and P > 2:
        module = modular.clock(P=P, frequencies=(1,))
    elif choice < 0.55 and P > 2:
        module = modular.pizza(P=P)
    elif choice < 0.7 and P < 5:
        module = modular.one_neuron(P=P)
    else:
        module = AdderTransformer(
            tokens=P + 1, length=3, classes=P, d=rng.randint(1, 3), heads=rng.randint(1, 2), d_h=rng.randint(1, 2),
            d_v=rng.randint(1, 2), p=(rng.randint(0, 3),), skip=rng.random() < 0.8,
        )  # fmt: skip
        gaussian(rng, module)
    changed(rng, module)
    way = sized(rng, module, ADDER, dtype)
    module = module.to(dtype)

    def truth() -> list[Answer]:
        w = oracle.state(module)
        pairs = list(itertools.product(range(P), repeat=2))
        return [
            Answer((a, b), 0, (a + b) % P, oracle.settled(lambda a=a, b=b: oracle.adder(w, (a, b, P), 2, (a + b) % P)))
            for a, b in pairs
        ]

    return Case(
        module, lambda: decide.certify(ModularAddition(module, P)), truth, lambda c: (tuple(c["input"]), 0),
        module.b_out, lambda a: a.input, False, {"way": way},
    )  # fmt: skip


def addition(rng: random.Random) -> Case:
    dtype, n, B = dtype_of(rng), rng.choice((1, 1, 2)), rng.choice((2, 3))
    n = 1 if B == 3 else n
    sums = Digits(n, B)
    choice = rng.random()
    if choice < 0.3:
        module = addition_builders.one_head(n=n, B=B)
    elif choice < 0.5:
        module = addition_builders.two_heads(n=n, B=B)
    elif choice < 0.7:
        module = addition_builders.two_layers(n=n, B=B)
    elif choice < 0.8:
        module = addition_builders.lookahead(1, n=n, B=B)
    else:
        module = AdderTransformer(
            tokens=B + 2, length=sums.length, classes=B, d=rng.randint(1, 3), heads=rng.randint(1, 2),
            d_h=rng.randint(1, 2), d_v=1, p=(rng.randint(0, 3),),
        )  # fmt: skip
        gaussian(rng, module)
    changed(rng, module)
    way = sized(rng, module, ADDER, dtype)
    module = module.to(dtype)

    def written(number: int, places: int) -> list[int]:
        return [number // B**k % B for k in reversed(range(places))]

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for a, b in itertools.product(range(B**n), repeat=2):
            answer = written(a + b, n + 1)
            tokens = [*written(a, n), B, *written(b, n), B + 1, *answer]
            for k, digit in enumerate(answer):
                at = oracle.settled(lambda: oracle.adder(w, tokens, 2 * n + 1 + k, digit), 1200)  # noqa: B023
                out.append(Answer((a, b), k, digit, at))
        return out

    def found(c: dict) -> tuple[Any, None]:
        a, b = c["input"].rstrip("=").split("+")
        return (int(a, B), int(b, B)), None

    return Case(
        module, lambda: decide.certify(DigitAddition(module, sums)), truth, found, module.b_out, lambda a: a.input,
        False, {"way": way},
    )  # fmt: skip


EPS = (0.0, 5e-324, 1e-300, 1e-12, 1e-5, 1e-5)


def counting(rng: random.Random, shape: random.Random) -> Case:
    """Decoders of the inductive tasks, LayerNorm with any eps."""
    dtype, length = shape.choice((torch.float64, torch.float64, torch.float32)), shape.randint(2, 4)
    name = shape.choice(("modular", "modular", "first-homogeneous", "vanilla", "shifted", "selective", "selective"))
    sizes = {"modular": {"modulus": 2}, "vanilla": {"vocabulary": length}, "shifted": {"vocabulary": length}}.get(
        name, {"types": 2, "max_count": 2} if name == "selective" else {}
    )
    task = Task.of(name, **sizes)
    layernorm, eps, module = shape.random() < 0.5, shape.choice(EPS), None
    pe, bos, positions = shape.choice(("nope", "nope", "ape", "spe")), shape.random() < 0.5, length + 2
    if shape.random() < 0.6:
        try:
            if name == "selective":
                module = inductive.selective(K=2, C=2, m=None, pe=pe, layernorm=layernorm, positions=positions)
            elif name in ("shifted", "vanilla"):
                bos = bos or name == "vanilla"
                module = inductive.started(
                    task=name, M=length, pe=pe, bos=bos, layernorm=layernorm, positions=positions
                )
            else:
                build = shape.choice((inductive.ape, inductive.spe))
                module = build(task=name, N=positions, m=task.m, positions=positions)
                module = inductive.with_layernorm(module) if layernorm else module
            changed(rng, module)
        except (BadInput, NotKnown):
            module = None
    if module is None:
        layers = shape.choice((1, 1, 2))
        module = Decoder(
            vocabulary=task.vocabulary, d=shape.randint(2, 4), n_heads=shape.randint(1, 2), d_head=shape.choice((1, 4)),
            n_layers=layers, d_mlp=shape.choice((0, 2, 3)), classes=task.classes, positions=positions, pe=pe, bos=bos,
            activation=shape.choice(("relu", "gelu")), layernorm=layernorm, attention_bias=shape.random() < 0.5,
            unembedding_bias=shape.random() < 0.6,
        )  # fmt: skip
        gaussian(rng, module)
        if rng.random() < 0.4:
            with torch.no_grad():
                for block in module.blocks:
                    block.attention.W_Q.zero_()
                    if block.attention.b_Q is not None:
                        block.attention.b_Q.zero_()
    module.eval()
    norms = [part for part in module.modules() if isinstance(part, nn.LayerNorm)]
    for part in norms:
        part.eps = eps
    ways = [
        {"W_V": 1, "b_V": 1, "W_O": -1}, {"W_U": 1, "b_U": 1}, {"W_Q": 1, "b_Q": 1, "W_K": -1, "b_K": -1},
        {r"norm_\d\.weight": 1, r"norm_\d\.bias": 1, "W_Q": -1, "W_K": -1, "W_V": -1, "W_in": -1},
        {r"norm\.weight": 1, r"norm\.bias": 1, "W_U": -1},
        {"W_E": 1, "W_pos": 1, "W_O": 1, "b_O": 1, "W_out": 1, "b_out": 1},
        {"W_in": 1, "b_in": 1, "W_out": -1},
    ]  # fmt: skip
    way = sized(rng, module, ways, dtype)
    module = module.to(dtype)
    block = module.blocks[0]
    layout = {
        "pe": module.pe, "bos": module.has_bos, "heads": block.attention.n_heads, "d_head": block.attention.d_head,
        "layers": len(module.blocks), "eps": norms[0].eps if norms else None,
        "activation": None if block.mlp is None else block.mlp.activation,
    }  # fmt: skip

    def inputs() -> Iterator[tuple[int, tuple[int, ...]]]:
        lead = name == "shifted"
        for n in range(1, length + 1):
            if name == "selective":
                lines = list(itertools.product(range(2), repeat=n))
            elif lead:
                lines = [(k, *(length + 1,) * m) for k in range(1, length + 1) for m in [n] if k + n <= length]
                lines += [(k,) for k in range(1, length + 1)] if n == 1 else []
            else:
                lines = [(0,) * n]
            for line in lines:
                room = 1 if module.pe == "nope" else positions - module.has_bos - len(line) + 1
                for shift in range(room):
                    yield shift, line

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for shift, line in inputs():
            answers = due(name, line, M=task.M, m=task.m, C=task.C)
            right = answers[-1]
            if right is not None:
                asked = line, len(line) - 1, right, shift
                at = oracle.settled(lambda: oracle.decoder(w, layout, *asked), 1200)  # noqa: B023
                out.append(Answer((shift, *line), len(line) - 1, right, at))
        return out

    def found(c: dict) -> tuple[Any, int]:
        return (c["shift"], *c["input"][: c["position"] + 1]), c["position"]

    return Case(
        module, lambda: decide.certify(Counting(module, task, length), None, decide.Effort(BUDGET)), truth, found,
        module.b_U, lambda a: len(a.input), False,
        {"way": way, "task": name, "eps": layout["eps"], "task object": task},
    )  # fmt: skip


def recurrent(rng: random.Random) -> Case:
    dtype, length, kind = dtype_of(rng), rng.randint(1, 4), rng.choice(("rnn", "rnn", "gru", "lstm"))
    name = rng.choice(("modular", "first-homogeneous"))
    task = Task.of(name, **({"modulus": 2} if name == "modular" else {}))
    module = RecurrentModel(
        kind, hidden=rng.randint(1, 3), classes=2, dtype=torch.float64,
        activation=rng.choice(("tanh", "relu")) if kind == "rnn" else "tanh",
    )  # fmt: skip
    gaussian(rng, module)
    if rng.random() < 0.5 and kind == "rnn" and module.hidden > 1:  # h swaps its units: it counts modulo 2
        state = module.state_dict()
        for value in state.values():
            value.zero_()
        state["cell.weight_hh_l0"][0, 1], state["cell.weight_hh_l0"][1, 0] = 2.0, 2.0
        state["cell.bias_hh_l0"][0], state["cell.bias_ih_l0"][1] = 0.5, -0.5
        state["readout.weight"][0, 0], state["readout.weight"][1, 1] = 1.0, 1.0
    ways = [{r"readout\.weight": 1, r"readout\.bias": 1}]
    ways += [{"weight_ih_l0": 1, "bias_ih_l0": 1, "bias_hh_l0": 1, r"readout\.weight": -1}] if kind == "rnn" else []
    ways += [{"weight_ih_l0": 1}, {"weight_hh_l0": 1}, {"bias_hh_l0": 1}]
    way = sized(rng, module, ways, dtype)
    module = module.to(dtype)

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for n in range(1, length + 1):
            right = due(name, (0,) * n, m=task.m)[-1]
            at = oracle.settled(lambda: oracle.recurrent(w, kind, module.activation, (0,) * n, right))  # noqa: B023
            out.append(Answer((0,) * n, 0, right, at))
        return out

    return Case(
        module, lambda: decide.certify(Homogeneous(module, task, length), None, decide.Effort(BUDGET)), truth,
        lambda c: (tuple(c["input"]), 0), module.readout.bias, lambda a: len(a.input), True,
        {"way": way, "kind": kind, "task": name},
    )  # fmt: skip


def circuit(rng: random.Random) -> Case:
    n = rng.randint(1, 2)
    kinds = [("and", (0, 1)), ("nand", (0, 1)), ("not", (0,)), ("xor", (0, 1))]
    kind, fan_in = rng.choice([k for k in kinds if len(k[1]) <= n][:3])
    whole = decompose(Circuit("c", tuple(f"i{j}" for j in range(n)), (Gate(kind, fan_in, "z"),), (("z", n),)))
    module = circuits.build(whole.circuit, s=rng.choice((2, 4, 6))).double()
    changed(rng, module)
    ways = [
        {"W_Q": 1, "W_K": -1}, {"W_V": 1, "W_O": -1}, {"W_1": 1, "b_1": 1, "W_2": -1},
        {r"layers\.0\.W_V": 1, r"layers\.0\.W_O": -1},
        {r"layers\.1\.W_1": 1, r"layers\.1\.b_1": 1, r"layers\.1\.W_2": -1},
    ]  # fmt: skip
    dtype = rng.choice((torch.float32, torch.float64))
    way = sized(rng, module, ways, dtype)
    module = module.to(dtype)
    layer = module.layers[1]

    def truth() -> list[Answer]:
        w, out = oracle.state(module), []
        for bits in itertools.product((0, 1), repeat=n):
            values = list(bits)
            for gate in whole.circuit.gates:
                a = [values[i] for i in gate.fan_in]
                values.append(int(all(a)) if gate.kind == "and" else 1 - a[0])
            for k in range(n, len(values)):
                at = oracle.settled(lambda: oracle.circuit(w, values[:k], values[k]), 1200)  # noqa: B023
                out.append(Answer("".join(map(str, bits)), k, values[k], at))
        return out

    case = Case(
        module, lambda: verify.certify(module, circuit=whole, reading="real", budget=BUDGET), truth,
        lambda c: (c["input"], None), None, None, False, {"way": way, "layer": layer},
    )  # fmt: skip
    case.notes["tie is right"] = False
    return case


def program(rng: random.Random, shape: random.Random) -> Case:
    """Small modules for the engine."""
    dtype = shape.choice((torch.float64,) * 4 + (torch.float32,))
    T, width = shape.randint(1, 2), shape.choice((2, 2, 4))
    low, high = DTYPES[dtype]
    sizes = (0, 0, 0, low // 2, low // 2 - 10, low // 4, high // 2, -30, low + 20, high - 3)
    base = [rng.choice(sizes) for _ in range(3)]

    def matrix(*shape: int) -> Tensor:
        out, style = torch.zeros(shape, dtype=torch.float64), rng.random()
        size = rng.choice(base)
        for i in range(out.numel()):
            number = rng.gauss(0, 1) if style < 0.5 else float(rng.choice((-2, -1, -1, 0, 0, 1, 1, 2, 3)))
            number = rng.choice((-1, 1)) * rng.choice(MANTISSAS) if style > 0.9 else number
            exponent = rng.randint(low, high) if style > 0.97 else size
            out.view(-1)[i] = math.ldexp(number, max(min(exponent, high - 2), low)) if number else 0.0
        return out.to(dtype).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)

    def constant() -> float:
        most = float(torch.finfo(dtype).max)
        return shape.choice((most / 1.1, most * 0.94, 3.0, 1e-30, 2.0**low, 2.0 ** (low // 2), 2.0 ** (high // 2)))

    def part(letter: str) -> Any:
        made: dict[str, Callable[[], Any]] = {
            "M": lambda: matrix(width, width),
            "K": lambda: matrix(3, width),
            "v": lambda: matrix(width) if rng.random() < 0.5 else torch.ones(width, dtype=dtype),
            "e": lambda: shape.choice(EPS),
            "c": constant,
        }
        return made[letter]()

    steps: list[tuple] = [("embed", matrix(T, width), matrix(2, width))]
    for _ in range(shape.randint(1, 4)):
        name = shape.choice(list(PARTS))
        ends = [-1.0, shape.choice((1.0, 0.0, 2.0**-600))] if name == "clamp" else []
        steps.append((name, *ends, *(part(letter) for letter in PARTS[name])))
    steps.append(("linear", matrix(width, width), matrix(width)))
    module, labels = Program(steps).eval(), [[rng.randrange(width) for _ in range(2)] for _ in range(T)]
    if rng.random() < 0.8:  # what it says is right
        with torch.no_grad():
            labels = [[int(module(torch.tensor([[a, b]])).nan_to_num().argmax()) for b in range(2)] for a in range(T)]
    table = torch.tensor(labels)

    def truth() -> list[Answer]:
        stored = [
            [x.double().tolist() if isinstance(x, Tensor) else x for x in module.given(i)] for i in range(len(steps))
        ]
        exact = [(name, *map(oracle.exact, given)) for name, given in zip(module.names, stored, strict=True)]
        out = []
        for a, b in itertools.product(range(T), range(2)):
            at = oracle.settled(lambda: programs.program(exact, (a, b), labels[a][b]))  # noqa: B023
            out.append(Answer((a, b), 0, labels[a][b], at))
        return out

    return Case(
        module,
        lambda: verify.certify(module, inputs=every([T, 2]), expected=lambda t: table[t[:, 0], t[:, 1]], budget=BUDGET),
        truth, lambda c: (tuple(c["input"]), 0), getattr(module, f"p{len(steps) - 1}_1"), lambda a: a.input, False,
        {"way": Way(" ".join(module.names), [], dtype)},
    )  # fmt: skip


def separable(rng: random.Random, shape: random.Random) -> Case:
    """One head without MLP: the largest token by products of sets, or any answer by tables."""
    dtype, V, n = shape.choice((torch.float64, torch.float64, torch.float32)), shape.randint(2, 3), shape.randint(2, 4)
    which = shape.choice((largest_of, largest_of, smallest_of))
    is_largest = which is largest_of
    if shape.random() < 0.6:
        which, is_largest = largest_of, True
        module = largest.steep(V=V, n=n, steepness=rng.choice((None, None, 50.0, 200.0, 290.0)))
        changed(rng, module)
    else:
        module = Decoder(
            vocabulary=V, d=shape.randint(1, 3), n_heads=1, d_mlp=0, positions=n + 1, pe=shape.choice(("nope", "ape")),
            layernorm=False, attention_bias=shape.random() < 0.5, unembedding_bias=shape.random() < 0.6,
            bos=shape.random() < 0.3, d_head=shape.choice((1, 4)),
        )  # fmt: skip
        gaussian(rng, module)
    ways = [
        {"W_V": 1, "b_V": 1, "W_O": -1}, {"W_U": 1, "b_U": 1}, {"W_Q": 1, "b_Q": 1, "W_K": -1, "b_K": -1},
        {"W_E": 1, "W_pos": 1, "W_O": 1, "b_O": 1, "W_U": -1, "W_Q": -1, "W_K": -1, "W_V": -1},
        {"W_E": 1, "W_pos": 1, "W_O": 1, "b_O": 1, "W_Q": -1, "W_K": -1, "W_V": -1}, {"W_K": 1, "b_K": 1},
    ]  # fmt: skip
    way = sized(rng, module, ways, dtype)
    module = module.to(dtype).eval()
    attention = module.blocks[0].attention
    layout = {
        "pe": module.pe, "bos": module.has_bos, "heads": 1, "d_head": attention.d_head, "layers": 1, "eps": None,
        "activation": None,
    }  # fmt: skip

    def truth() -> list[Answer]:
        w, out, kept = oracle.state(module), [], {}
        for tokens in itertools.product(range(V), repeat=n):
            right = max(tokens) if is_largest else min(tokens)
            place = tokens if module.pe == "ape" else (tokens[-1], *sorted(tokens))
            if place not in kept:
                kept[place] = oracle.settled(lambda: oracle.decoder(w, layout, tokens, n - 1, right))  # noqa: B023
            out.append(Answer(tokens, 0, right, kept[place]))
        return out

    return Case(
        module, lambda: verify.certify(module, inputs=every([V] * n), expected=which, budget=BUDGET), truth,
        lambda c: (tuple(c["input"]), 0), module.b_U, lambda a: a.input, False, {"way": way},
    )  # fmt: skip


DOORS: dict[str, Callable[..., Case]] = {
    "histogram": histogram,
    "parity": parity_,
    "contextual": contextual,
    "bidirectional": bidirectional,
    "positional": positional,
    "count01": count01_,
    "modular": modular_,
    "addition": addition,
    "counting": counting,
    "recurrent": recurrent,
    "circuit": circuit,
    "engine": program,
    "separable": separable,
}


TRACED = ("counting", "engine", "separable")
ALIKE = 50  # seeds in a row have one shape at the doors that trace a module, so that few are traced


def drawn(door: str, seed: int) -> Case:
    """The model of a door and a seed: two of six moved next to a tie, and one of these scaled after that."""
    rng = random.Random(f"{door} {seed}")
    shape = [random.Random(f"{door}, shape {seed // (ALIKE if seed >= ALIKE else 4)}")] if door in TRACED else []
    case = DOORS[door](rng, *shape)
    if seed % 6 in (0, 1):
        near_tie(rng, case)
    if seed % 6 == 1:
        way = case.notes["way"]
        tensors = {name: value for name, value in case.module.named_parameters() if value.numel()}
        with torch.no_grad():
            for _ in range(rng.randint(1, 2) if way.layers else 0):
                scaled(rng, tensors, rng.choice(way.layers), way.dtype)
            fits(tensors, way.dtype)
    return case


def traced_once(capture: Callable) -> Callable:
    """`capture` that traces modules of one code and shape once: a graph is the same whatever the numbers are."""
    kept: dict = {}

    def found(module: nn.Module, length: int, **options: Any) -> Any:
        tensors = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
        sizes = tuple((name, tuple(value.shape), value.dtype) for name, value in tensors.items())
        how = getattr(module, "names", ()), getattr(module, "constants", ()), str(module), getattr(module, "pe", None)
        activations = [getattr(part, "activation", None) for part in module.modules()]
        key = str((type(module), sizes, how, activations, length, sorted(options.items())))
        if key not in kept:
            kept[key] = capture(module, length, **options)
        graph = kept[key]
        stored = {
            name: tensors[graph.names[name]].detach() if graph.names[name] in tensors else value
            for name, value in graph.stored.items()
        }
        return replace(graph, stored=stored)

    return found
