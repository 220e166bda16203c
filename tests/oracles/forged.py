"""Whether what a certificate states is true: by enumeration of short inputs, and by closed forms of a few long ones.

It reads both files by itself and shares nothing with the prover or the checker. Numbers are balls of 400 bits, so that
"less" is certain; what does not show is not called false.
"""

import hashlib
import itertools
import json
import math
import random
import re
import struct
from fractions import Fraction
from itertools import islice, product
from types import SimpleNamespace

import numpy as np
from flint import arb, ctx
from oracles import constant_bits, forged_blocks, forged_named, graph_in_dtype, graph_runs, number_words, step_runs
from oracles.any_order import Adversary
from oracles.circuit import NaiveTransformer, gate_value
from oracles.circuit_real import next_tokens
from oracles.number_words import WORDED

from tests.oracles.forged_runs import NearRun
from tests.oracles.loose_gates import LooseGates
from tests.oracles.loose_steps import LooseSteps
from verify.arithmetic.formats import FORMATS as FORMATS_OF
from verify.arithmetic.formats import Format

BITS = 400
SIZES = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "BF16": ("", 2)}
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
FORMATS = {
    "float64": (53, -1022),
    "float32": (24, -126),
    "tf32": (24, -126),
    "bfloat16": (8, -126),
    "float16": (11, -14),
}
ULPS = Fraction(1, 2**50)  # of what floats stand for
PLACED = ("contextual counting with positions", "contextual counting, bidirectional")
REGIONS = ("contextual counting", *PLACED)
LINE, STRING = 40, 5  # how long the inputs are that are run
FURTHER = 1000  # tokens of a state space
MOST_LOOSE = 400  # tokens that are run in drawn orders
ALL_RUNS = "every run that the reading allows"
MOST_KEPT = 20_000  # tokens of a run that keeps all
LONGEST = 40_000  # of a line that is run to its end
EVALUATIONS = 2  # of a module in a format


class Lie(Exception):
    """What is false."""


class Unknown(Exception):
    """What is beyond what is run here."""


def falsehood(weights, certificate):
    """What is false about a certificate, None where nothing was found; more bits tell 2^-1074 beside 1."""
    found = None
    for bits in (BITS, 6 * BITS):
        found = _falsehood(weights, certificate, bits)
        if found is None:
            return None
    return found


def _falsehood(weights, certificate, bits):
    try:
        with ctx.workprec(bits):
            c = json.loads(certificate)
            if isinstance(c.get("program"), dict) and "step" in c["program"]:
                found = step_runs.falsehood(weights, certificate)
                return None if found is None or found.startswith(graph_runs.NO_PROGRAM) else found
            say(c["weights_sha256"] == hashlib.sha256(weights).hexdigest(), "the digest")
            if c["task"] == "module":
                return of_module(weights, certificate)
            tensors, about = read(weights)
            if c["task"] == "inductive" and c["parameters"]["model"].endswith(" blocks"):
                whole_blocks(weights, tensors, about, c)
                return None
            of_task = {"histogram": histogram, "inductive": inductive, "heads": heads}
            of_task |= {"parity": parity, "modular": modular, "count01": count01, "addition": addition}
            of_task |= {name: contextual for name in REGIONS}
            of_task |= {"circuit": circuit, "language": circuit}
            is_recurrent = c["task"] == "inductive" and c["parameters"]["model"] != "transformer"
            if c["reading"] == "dtype, any order" and not is_recurrent:
                tensors, c = in_dtype(tensors, c)
            if c["reading"] == "bit-exact" and c["task"] in ("histogram", "count01"):
                getattr(constant_bits, c["task"])(tensors, about, c, say)
            else:
                of_task[c["task"]](tensors, about, c)
    except Lie as lie:
        return str(lie)
    except Unknown:
        return None
    except OverflowError as error:  # a number that is drawn is beyond the largest
        return str(error)
    return None


def say(holds, what):
    if not holds:
        raise Lie(what)


def of_module(weights, certificate):
    """What torch, or evaluations in a format, show to be false of a program; what torch does not run is none."""
    if "precision" not in json.loads(certificate)["parameters"]:
        found = graph_runs.falsehood(weights, certificate)
        return None if found is None or found.startswith(graph_runs.NO_PROGRAM) else found
    try:
        return graph_in_dtype.falsehood(weights, certificate, EVALUATIONS)
    except graph_runs.Lie as lie:
        return str(lie)
    except (RuntimeError, IndexError, TypeError, KeyError, ValueError, AttributeError):
        return None


def read(data):
    n = int.from_bytes(data[:8], "little")
    header, buffer, out = json.loads(data[8 : 8 + n]), data[8 + n :], {}
    try:
        about = json.loads(next(iter(header.pop("__metadata__", {}).values())))
    except (AttributeError, StopIteration, TypeError, ValueError):
        about = {}  # which models of regions and sums do not need
    for name, entry in header.items():
        raw = buffer[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BOOL":
            out[name] = ("BOOL", entry["shape"], [raw == b"\1"])
            continue
        word, size = SIZES[entry["dtype"]]
        if not word:
            raw, word, size = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2)), "f", 4
        out[name] = (entry["dtype"], entry["shape"], [*struct.unpack(f"<{len(raw) // size}{word}", raw)])
    return out, about


def format_of(name):
    """Significand bits and the least exponent; p12 has those of float32."""
    bits = re.match(r"p(\d+)$|(\d+)-bit significand$", name)
    say(name in FORMATS or bits, "the reading")
    return FORMATS[name] if name in FORMATS else (int(bits[1] or bits[2]), -126)


def in_dtype(tensors, c):
    """Weights rounded once, and what real arithmetic, which is one way to evaluate them, must then show.

    A claimed margin is known up to the roundings, which are less than half of it. Of a wrong input in more than 20 bits
    real arithmetic is off by less than 2^12 last places; in fewer bits, or tf32, anything may be computed.
    """
    p, least = format_of(c["parameters"]["precision"])
    wider = format_of(c["parameters"].get("accumulate") or c["parameters"]["precision"])
    say(wider[0] >= p and wider[1] <= least, "accumulate")

    def nearest(x):
        if x is True or x is False or x == 0:
            return x
        unit = Fraction(2) ** (max(math.frexp(x)[1] - 1, least) - p + 1)
        return float(round(Fraction(x) / unit) * unit)

    c, is_wrong = c | {"stored": tensors}, c["verdict"] == "REFUTED"
    is_close = p > 20 and c["parameters"]["precision"] != "tf32"
    of_wrong = {"off": 2.0 ** (12 - p) if is_close else 1e300, "right_lengths": {}, "error_share": None}
    halves = of_wrong if is_wrong else {"margin": c["margin"] and half(c["margin"]), "right_lengths": {}}
    if "tables" in c:
        halves["tables"] = {name: [[*map(nearest, row)] for row in rows] for name, rows in c["tables"].items()}
    if "slope" in tensors:
        say(c["parameters"]["slope"] == tensors["slope"][2][0], "the slope")
        halves["parameters"] = c["parameters"] | {"slope": nearest(tensors["slope"][2][0])}
    if is_wrong:
        return {name: (dtype, shape, [*map(nearest, x)]) for name, (dtype, shape, x) in tensors.items()}, c | halves
    halves |= {"slack": 2.0 ** (5 - p)} if p < 12 else {}  # real factors are not rounded as those of a format are
    halves |= {"margin_scaled": c["margin_scaled"] / 2} if "margin_scaled" in c else {}
    halves |= {"margin_per_count": [*map(half, c["margin_per_count"])]} if c["task"] == "histogram" else {}
    where = {"modular": [0, 0], "addition": None}
    halves["tightest"] = {"margin": half(c["margin"]), "input": where[c["task"]]} if c["task"] in where else None
    return {name: (dtype, shape, [*map(nearest, x)]) for name, (dtype, shape, x) in tensors.items()}, c | halves


def half(margin):
    """Half of a margin, which stays above 0."""
    return margin / 2 or margin


def matrix(tensor):
    _, shape, values = tensor
    say(len(shape) == 2, "a matrix has another shape")
    return [[arb(x) for x in values[i * shape[1] :][: shape[1]]] for i in range(shape[0])]


def vector(tensor):
    say(len(tensor[1]) == 1, "a vector has another shape")
    return [arb(x) for x in tensor[2]]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b, strict=True)), arb(0))


def times(W, x):
    return [dot(row, x) for row in W]


def added(*parts):
    return [sum(column, arb(0)) for column in zip(*parts, strict=True)]


def margin_of(logits, right):
    """(right logit) - (largest other)."""
    return min((logits[right] - x for j, x in enumerate(logits) if j != right), key=lambda g: g.mid())


# ---- histogram


def histogram(tensors, about, c):
    p, T, L = c["parameters"], about["T"], about["L"]
    say(
        {k: p[k] for k in ("model", "T", "L", "d", "p")} == {k: about[k] for k in ("model", "T", "L", "d", "p")},
        "sizes",
    )
    say(tensors["E"][1] == [T, about["d"]] and p["dtype"] == DTYPES[tensors["E"][0]], "shapes")
    W = {name: matrix(x) if len(x[1]) == 2 else vector(x) for name, x in tensors.items()}
    first, model, wrong, least = about["first_count"], about["model"], 0, {}
    if c["verdict"] == "REFUTED":
        case = c["counterexample"]
        tokens, position = case["tokens"], case["position"]
        logits = histogram_logits(W, model, tokens, position, about["d"])
        k = tokens.count(tokens[position])
        say(case["expected"] == k, "expected")
        gaps = [logits[k - first] - x for i, x in enumerate(logits) if i != k - first]
        off = c.get("off", 0.0)
        say(not all(g > off for g in gaps), "the input is right")
        gap = min(gaps, key=lambda g: float(g.mid()))
        say(abs(gap - arb(c["margin"])) < arb(2) ** -40 * (1 + abs(gap)) + off, "its margin")
        top = logits[case["predicted"] - first]
        say(not any(x > top + off for x in logits) and case["predicted"] != k, "predicted")
        say(0 <= case["predicted"] - first < len(logits) and (off == 0 or case["is_tie"] == (c["margin"] == 0)), "case")
    for tokens in product(range(T), repeat=L):
        for position in range(L):
            k = tokens.count(tokens[position])
            logits = histogram_logits(W, model, tokens, position, about["d"])
            gaps = [logits[k - first] - x + c.get("slack", 0.0) for i, x in enumerate(logits) if i != k - first]
            wrong += not all(g > 0 for g in gaps)
            if gaps:
                gap = min(gaps, key=lambda g: float(g.mid()))
                least[k] = min(least.get(k, gap), gap, key=lambda g: float(g.mid()))
    share = c["error_share"]
    if c["verdict"] == "PROVED" and "slack" in c:
        in_16_bits(W, about, c)
    if c["verdict"] == "PROVED":
        say(not wrong, f"{wrong} pairs are wrong")
        for k, gap in least.items():
            say(not gap < arb(c["margin_per_count"][k - 1]), f"the margin of count {k}")
        say(c["margin"] == min(c["margin_per_count"]) if least else c["margin"] is None, "the least margin")
        say(c["inputs_covered"] == str(T**L) and c.get("wrong_pairs") in (None, "0"), "counts")
        say(share in (None, [0.0, 0.0]), "shares")
        case = c["tightest"]
        if case:
            k = case["tokens"].count(case["tokens"][case["position"]])
            logits = histogram_logits(W, model, case["tokens"], case["position"], about["d"])
            gap = margin_of(logits, k - first)
            near = abs(gap - arb(case["margin"])) < c.get("slack", 0.0) + arb(2) ** -40 * (1 + abs(gap))
            is_bound = case["margin"] == c["margin"] and not gap < arb(case["margin"])
            say(case["expected"] == k and (near or is_bound), "tightest")
    elif (c.get("tree") or {}).get("data"):
        exact = Fraction(wrong, T**L * L)
        low, high = (Fraction(x) for x in share)
        say(low * (1 - ULPS) <= exact <= high * (1 + ULPS), "share")
        say(c["wrong_pairs"] in (None, str(wrong)), "wrong pairs")


def in_16_bits(W, about, c):
    """An adversary's evaluations have half of the margins that are said."""
    said, numbers = c["parameters"], {name: np.array([[float(x) for x in row] for row in rows]) if isinstance(
        rows[0], list) else np.array([*map(float, rows)]) for name, rows in W.items()}  # fmt: skip
    stored = dict.fromkeys(("e_BOS", "A", "W_Q", "W_K")) | numbers
    stored |= {"T": about["T"], "d": about["d"], "p": about["p"], "is_softmax": about["model"].endswith("+sftm")}
    fmt, inner = (named(said[name]) if said.get(name) else None for name in ("precision", "accumulate"))
    adversary = Adversary(SimpleNamespace(**stored), fmt, inner if inner != fmt else None)
    for tokens in product(range(about["T"]), repeat=about["L"]):
        keys = [*tokens, *[about["T"]] * ("e_BOS" in W)]
        for position, t in enumerate(tokens):
            k = tokens.count(t)
            for rival in {*range(len(W["b_2"]))} - {k - about["first_count"]}:
                found = adversary.margin(t, keys, position, k - about["first_count"], rival)
                least = Fraction(c["margin_per_count"][k - 1])
                say(found >= least, f"{tokens} at {position} has {float(found)} in an evaluation")


def named(precision):
    p, lowest = format_of(precision)
    most = 2.0 ** (1 - lowest) * (2 - 2.0 ** (1 - p))
    return Format(precision, p, lowest, most)


def histogram_logits(W, model, tokens, position, d):
    E, t = W["E"], tokens[position]
    context = [E[s] for s in tokens] + ([W["e_BOS"]] if "e_BOS" in W else [])
    if "A" in W:
        scores = W["A"][position]
    else:
        columns = {k: list(zip(*W[k], strict=True)) for k in ("W_Q", "W_K")}
        q = times(columns["W_Q"], E[t])
        scores = [dot(q, times(columns["W_K"], x)) / arb(d).sqrt() for x in context]
    if model.endswith("+sftm"):
        powers = [s.exp() for s in scores]
        total = sum(powers, arb(0))
        scores = [x / total for x in powers]
    mixed = [e + dot(scores, column) for e, column in zip(E[t], zip(*context, strict=True), strict=True)]
    z = added(times(list(zip(*W["W_1"], strict=True)), mixed), W["b_1"])
    on = [x.max(arb(0)) for x in z]
    return added(times(list(zip(*W["W_2"], strict=True)), on), W["b_2"])


# ---- recurrent networks


class Network:
    """One step after another in real arithmetic, and shapes as torch's own modules have them."""

    def __init__(self, tensors, about, c):
        said, kind = c["parameters"], about["model"]
        dtypes = {x[0] for x in tensors.values()}
        say(len(dtypes) == 1 and said["dtype"] == DTYPES[dtypes.pop()], "dtype")
        say(said["model"] == kind and said["layers"] == 1, "model")
        say(said.get("activation") == (about["activation"] if kind == "rnn" else None), "activation")
        self.kind, self.relu = kind, about.get("activation") == "relu"
        self.V, self.b = matrix(tensors["readout.weight"]), vector(tensors["readout.bias"])
        vectors = {"ssm": ("B",), "decay": ("B",), "s4": ("omega", "a", "c"), "mamba": ("A",)}.get(kind, ())
        self.W = {
            name.rpartition(".")[2]: vector(x)
            if name in [f"cell.{y}" for y in vectors] or "bias" in name
            else matrix(x)
            for name, x in tensors.items()
            if "cell" in name or "layer" in name
        }
        self.turns = "omega" in self.W
        self.high = arb(1), arb(1)  # times sigmoids and tanh, in one evaluation
        sized = next((self.W[x] for x in ("omega", "a", "A") if x in self.W), self.W.get("w", self.V)[0])
        self.units = len(sized)
        say(said["units"] == self.units and len(self.V) == len(self.b), "units")
        say(said.get("neurons") == (len(self.W["W"]) if "W" in self.W else None), "neurons")

    def start(self):
        return [arb(0)] * self.units * (1 + (self.kind == "lstm" or self.turns))

    def step(self, h, token):
        W, kind = self.W, self.kind
        if kind in ("ssm", "decay"):
            return added(times(W["A"], h), W["B"])
        if kind == "s4" and not self.turns:
            return [f * x + u for f, x, u in zip(W["a"], h, W["u"][token], strict=True)]
        if kind == "s4":
            c, s = W["omega"][0].cos(), W["omega"][0].sin()
            return [c * h[0] - s * h[1] + 1, s * h[0] + c * h[1]]
        if kind == "mamba":
            steps = [(1 + x.exp()).log() for x in W["delta"][token]]
            keep = [(-s * a.exp()).exp() for s, a in zip(steps, W["A"], strict=True)]
            return [k * x + s * b for k, x, s, b in zip(keep, h, steps, W["B"][token], strict=True)]
        if kind == "rwkv":
            keep = [(-x.exp()).exp() for x in W["w"][token]]
            return [f * x + k * v for f, x, k, v in zip(keep, h, W["k"][token], W["v"][token], strict=True)]
        n = self.units
        x = [row[token] for row in W["weight_ih_l0"]]
        a, u = added(x, W["bias_ih_l0"]), added(times(W["weight_hh_l0"], h[:n]), W["bias_hh_l0"])
        z, (sigmoids, tanhs) = added(a, u), self.high
        if kind == "gru":
            r, keep = ([sigmoids / (1 + (-v).exp()) for v in z[k * n : k * n + n]] for k in (0, 1))
            new = [tanhs * (x + f * y).tanh() for x, f, y in zip(a[2 * n :], r, u[2 * n :], strict=True)]
            return [(1 - f) * x + f * y for f, x, y in zip(keep, new, h, strict=True)]
        if kind == "lstm":
            i, f, o = ([sigmoids / (1 + (-v).exp()) for v in z[k * n : k * n + n]] for k in (0, 1, 3))
            g = [tanhs * v.tanh() for v in z[2 * n : 3 * n]]
            c = [p * q + r * s for p, q, r, s in zip(f, h[n:], i, g, strict=True)]
            return [p * tanhs * q.tanh() for p, q in zip(o, c, strict=True)] + c
        return [v.max(arb(0)) if self.relu else v.tanh() for v in z]

    def logits(self, h, token):
        seen = h[: 2 if self.turns else self.units]
        if self.kind in ("mamba", "rwkv"):
            seen = [x * y for x, y in zip(self.W["C" if self.kind == "mamba" else "r"][token], h, strict=True)]
        if "c" in self.W:
            seen = [x * y for x, y in zip(self.W["c"], h, strict=True)]
        if "U" in self.W:
            seen = [x.max(arb(0)) for x in added(times(self.W["W"], seen), self.W["U"][token])]
        return added(times(self.V, seen), self.b)

    def is_affine(self):
        """Whether each unit's state is affine in the one before, whatever others are."""
        sees = (x != 0 for row in self.W.get("weight_hh_l0", []) for x in row)
        is_gated = self.kind in ("rwkv", "mamba") or self.kind == "s4" and not self.turns
        return is_gated or self.kind == "lstm" and not any(sees)

    def after(self, runs):
        """The last state of runs (token, times), by affine powers where no unit sees another."""
        h = self.start()
        for token, n in runs:
            if n <= 64:
                for _ in range(n):
                    h = self.step(h, token)
                continue
            if self.turns:
                turn, c = self.W["omega"][0] * n, self.W["omega"][0]
                centre = [(1 - c.cos()) / (2 - 2 * c.cos()), c.sin() / (2 - 2 * c.cos())]
                h = [x - y for x, y in zip(h, centre, strict=True)]
                h = [turn.cos() * h[0] - turn.sin() * h[1], turn.sin() * h[0] + turn.cos() * h[1]]
                h = [x + y for x, y in zip(h, centre, strict=True)]
                continue
            if self.kind == "lstm" and not self.is_affine() and n <= LONGEST:
                for _ in range(n):
                    h = self.step(h, token)
                continue
            if not self.is_affine():
                raise Unknown
            first = slice(self.units, None) if self.kind == "lstm" else slice(None)
            zero, one = self.step(self.start(), token), self.step([arb(1)] * len(h), token)
            f = [y - x for x, y in zip(zero[first], one[first], strict=True)]
            rows = zip(f, h[first], zero[first], strict=True)
            c = [k ** (n - 1) * (x - a / (1 - k)) + a / (1 - k) for k, x, a in rows]
            h = self.step([arb(0)] * self.units + c if self.kind == "lstm" else c, token)
        return h


def inductive(tensors, about, c):
    said, length = c["parameters"], c["length"]
    if said["model"] == "transformer":
        transformer(tensors, about, c)
        return
    say(said["length"] == length, "length")
    net, task = Network(tensors, about, c), said["task"]
    if task in WORDED:
        worded(net, tensors, c)
        return
    K, C, m = said.get("types"), said.get("max_count"), said.get("modulus")
    classes = m or (said["vocabulary"] + 1 if task == "vanilla" else 2 if task == "first-homogeneous" else C + 1)
    say(len(net.b) >= classes, "classes")
    is_strings = task in ("selective", "selective-modular")

    def due(tokens):
        n = tokens.count(tokens[-1])
        if task == "modular" or task == "selective-modular":
            return None if C is not None and n > C else (n - 1) % m
        if task == "first-homogeneous":
            return int(len(tokens) == 1)
        return n if n <= (said["vocabulary"] if task == "vanilla" else C) else None

    def least(runs):
        """(length, margin) of the answers of every input that is run."""
        stack = [((), net.start())]
        most = min(STRING if is_strings else LINE, runs)
        while stack:
            tokens, h = stack.pop()
            if tokens:
                right, logits = due(tokens), net.logits(h, tokens[-1])
                if right is not None:
                    yield tokens, margin_of(logits, right)
            if len(tokens) < most:
                stack += [((*tokens, t), net.step(h, t)) for t in range(K if is_strings else 1)]

    def right_up_to(n, margin, what):
        for tokens, gap in least(n):
            say(not gap < margin and not gap <= 0, f"{what}: {tokens} has the margin {gap}")
        if net.is_affine() and is_strings and n > STRING:
            for a, b in product(range(K), repeat=2):
                for k in range(2, min(C, n - 1) + 1):
                    tokens = ((a, k - 1), (b, n - k), (a, 1))
                    gap = of_runs(tokens) if a != b else margin + 1
                    say(not gap < margin and not gap <= 0, f"{what}: {tokens}")
        if net.kind in ("ssm", "decay") and LINE < n <= FURTHER:
            h = net.after([(0, 1)] * LINE)
            for t in range(LINE + 1, n + 1):
                h = net.step(h, 0)
                gap = margin_of(net.logits(h, 0), (t - 1) % m) if m else arb(1)
                say(not gap < margin and not gap <= 0, f"{what}: {t} tokens")
        is_creeping = net.kind == "lstm" and net.is_affine() and not is_strings
        if (net.turns or is_creeping) and n > LINE:
            far = {2**k for k in range(6, 60) if 2**k <= n} if is_creeping else set()
            for t in sorted({*range(max(LINE, n - 9), n + 1)} | far):
                logits = net.logits(net.after([(0, t)]), 0)
                gap = margin_of(logits, (t - 1) % m if m else 0)
                say(not gap < margin and not gap <= 0, f"{what}: {t} tokens")

    def of_runs(runs):
        h, n = net.after(runs), sum(k for t, k in runs if t == runs[-1][0])
        logits, right = net.logits(h, runs[-1][0]), n if task == "selective" else (n - 1) % m
        return margin_of(logits, right)

    most = 10**30 if length == "all" else length
    say(length == "all" or type(length) is int and length > 0, "length")
    if c["verdict"] == "PROVED":
        covered = "infinite" if length == "all" else str(K**length if is_strings else length)
        say(c["inputs_covered"] == covered and c["margin"] > 0, "inputs or margin")
        if c["reading"] == "real":
            right_up_to(most, arb(c["margin"]), "margin")
        elif net.kind == "rnn":
            rounded(net, c, least, due, K if is_strings else 1)
        else:
            loosely(tensors, c, due, K if is_strings else 1)
        if "repeats" in c and c["reading"] == "real":
            first, again = c["repeats"]
            states = [net.after([(0, n)]) for n in (first, again)]
            say(0 < first < again and not any(x != y for x, y in zip(*states, strict=True)), "repeats")
        found = c.get("invariant_found", {})
        say("cases" not in found or found["cases"] == K * K * (C + 1), "cases")
        return
    case = c["counterexample"]
    shown, n = case["input"], case["length"]
    if isinstance(shown, str):
        word = r"token 0, ([0-9]+) times" if not is_strings else r"token ([0-9]+) ([0-9]+) times"
        found = [re.fullmatch(word, x) for x in ([shown] if not is_strings else shown.split(", "))]
        say(all(found), "an input that cannot be read")
        runs = [tuple(map(int, x.groups())) if is_strings else (0, int(x[1])) for x in found]
    else:
        runs = [(t, 1) for t in shown]
    say(all(0 <= t < (K if is_strings else 1) and k > 0 for t, k in runs), "no tokens of the task")
    say(sum(k for _, k in runs) == n and n <= most and c["inputs_covered"] == "1", "its length")
    count = sum(k for t, k in runs if t == runs[-1][0])
    right = int(n == 1) if task == "first-homogeneous" else (count - 1) % m if m else count
    say(C is None or count <= C, "is not judged")
    first = 1 if m else 0
    say(case["expected"] == right + first, "expected")
    wrong = None if case["predicted"] is None else case["predicted"] - first
    if c["reading"] == "dtype, any order" and forged_named.is_named(c):
        try:
            fmt = FORMATS_OF[c["parameters"]["precision"]]
            answers = {"modular": lambda t: (t - 1) % m, "first-homogeneous": lambda t: int(t == 1)}
            forged_named.check(rows_of(tensors), c, n, fmt, answers.get(task, lambda t: t), wrong, say)
        except forged_named.Far:
            raise Unknown from None
        return
    if c["reading"] == "dtype, any order" and "run" in c and not net.relu and "cell.weight_ih_l0" in tensors:
        near_run(tensors, c, [0] * n, right, wrong)
        return
    if c["reading"] == "dtype, any order" and not net.relu:
        say(K is None, "strings")
        if "numbers" in c.get("run", {}):
            wrong_in_format(net, c, n, right, wrong)
            return
        is_of_all = c["counterexample"].get("evaluation", ALL_RUNS if n > MOST_LOOSE else None) == ALL_RUNS
        if is_of_all and net.kind == "s4":
            wrong_by_angle(net, tensors, c, n, due, wrong)
            return
        if net.kind == "lstm" and "evaluation" in c["counterexample"]:
            wrong_far(tensors, about, c, n, due, wrong)
            return
        if "run" in c or "cosine" in c["counterexample"].get("evaluation", ""):
            wrong_where_kept(tensors, c, n, due, wrong)
            return
        wrong_loosely(tensors, c, n, due, wrong)
        return
    if c["reading"] == "dtype, any order":
        wrong_in_format(net, c, n, right, wrong)
        return
    logits = net.logits(net.after(runs), runs[-1][0])
    say(wrong is not None, "predicted")
    top = logits[wrong]
    say(0 <= wrong != right and not any(x > top for x in logits), "predicted")
    say(not logits[right] - top > arb(c["margin"]) and c["margin"] <= 0, "its margin")
    say(0 <= c["right_to"] < n, "right_to")
    right_up_to(c["right_to"], arb(0), "right_to")
    say("is_first" not in case or case["is_first"] is True, "is_first")
    if "is_first" in case:
        right_up_to(n - 1, arb(0), "is_first")


def whole_blocks(weights, tensors, about, c):
    """The line of one token, and the counterexample, in sums over all tokens with a hundred digits."""
    said, n = c["parameters"], 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    vocabulary, classes = tensors["embedding.weight"][1][0], len(tensors["head.bias"][2])
    own = {"model": f"{about['model']} blocks", "layers": n, "units": tensors["embedding.weight"][1][1]}
    own |= {"dtype": DTYPES[tensors["head.bias"][0]], "length": c["length"]}
    say(own.items() <= said.items(), "sizes")
    M, C, m = said.get("vocabulary"), said.get("max_count"), said.get("modulus")
    is_worded, K = said["task"] in WORDED, said.get("types", 1)
    say(said["task"] in ("modular", "helper", "selective", "selective-modular"), "a task that is run")
    say(vocabulary >= (M + 3 if is_worded else K) and classes >= (m or (M if is_worded else C) + 1), "the vocabulary")

    def due(string):
        if is_worded:
            return string[0] + len(string) - 1
        count = list(string).count(string[-1])
        return None if C is not None and count > C else (count - 1) % m if m else count

    def is_input(string):
        if is_worded:  # the helper counts from 0 the tokens of one word
            is_line = string[0] == 0 and len({*string[1:]}) < 2 and {*string[1:]} <= {M + 1, M + 2}
            return is_line and len(string) <= min(M, c["length"]) + 1
        return all(0 <= t < K for t in string) and (c["length"] == "all" or len(string) <= c["length"])

    case = c["counterexample"]
    if case is None:
        say(
            c["verdict"] == "PROVED" and c["inputs_covered"] == str(K ** c["length"] if K > 1 else c["length"]),
            "inputs",
        )
        forged_blocks.right(weights, c, due, say, [0] if not is_worded else [0, M + 1])
        return
    say(c["verdict"] == "REFUTED" and c["inputs_covered"] == "1" and is_input(case["input"]), "no input")
    say(case["length"] == len(case["input"]) - is_worded and case.get("start", 0) == 0, "its length")
    forged_blocks.wrong(weights, c, due, say)


def worded(net, tensors, c):
    """Every line of a task with number words, run; a wrong one in a format as its run says."""
    said, case, rounded_by = c["parameters"], c["counterexample"], Fraction(0 if c["reading"] == "real" else 1, 16)
    task, M, length = said["task"], said["vocabulary"], said["length"]
    say(type(length) is int and 1 <= length <= M - (task == "shifted") and len(net.b) > M, "length or classes")
    lines = number_words.lines(task, M, length)
    n = len(case["input"]) if case else 10**9
    for tokens, right in lines:
        h = net.start()
        for t, token in enumerate(tokens[: n - 1], 1):
            h = net.step(h, token)
            gap = margin_of(net.logits(h, token), right[t - 1])
            least = arb(c["margin"]) if case is None else arb(0)
            is_asked = case is None or case["is_first"]
            say(not is_asked or not gap < least - arb(rounded_by.numerator) / rounded_by.denominator, f"{tokens[:t]}")
    if case is None:
        say(c["verdict"] == "PROVED" and c["margin"] > 0, "margin")
        say(c["inputs_covered"] == str(sum(len(tokens) for tokens, _ in lines)), "inputs_covered")
        return
    found = [right[n - 1] for tokens, right in lines if list(tokens[:n]) == case["input"]]
    say(n > 0 and found and c["inputs_covered"] == "1", "an input of the task")
    say(case["expected"] == found[0] and case["length"] == n - (task != "succession"), "expected")
    say(task == "succession" or case["start"] == case["input"][0], "start")
    if "run" in c and not net.relu:
        near_run(tensors, c, case["input"], found[0], case["predicted"])
        return
    if "run" in c:
        wrong_in_format(net, c, n, found[0], case["predicted"], case["input"])
        return
    logits = net.logits(net.after([(token, 1) for token in case["input"]]), case["input"][-1])
    say(not margin_of(logits, found[0]) > arb(c["margin"]) and c["margin"] <= 0, "its margin")
    named = case["predicted"]
    say(named is None or named != found[0] and not any(x > logits[named] for x in logits), "predicted")


def rows_of(tensors):
    """The rows of each tensor; of a vector one."""
    return {name: [x[2][i : i + x[1][-1]] for i in range(0, len(x[2]), x[1][-1])] for name, x in tensors.items()}


def drawn_runs(tensors, c):
    """Evaluations of gated decays, rotations and state spaces in a format."""
    fmt = named(c["parameters"]["precision"])
    said, rows = c["parameters"], rows_of(tensors)
    for seed in range(3):
        if said["model"] in ("rnn", "lstm", "gru"):
            yield LooseSteps(rows, said["model"], said.get("activation"), fmt, random.Random(seed))
        else:
            yield LooseGates(rows, said["model"], fmt, random.Random(seed))


def loosely(tensors, c, due, K):
    """Every short input, and drawn longer ones, has the margin in some evaluations."""
    length = 10**9 if c["length"] == "all" else c["length"]
    is_slow = c["parameters"]["model"] in ("lstm", "gru")
    for run in itertools.islice(drawn_runs(tensors, c), 1 if is_slow else 3):
        lines = [(0,) * min(length, LINE)] if K == 1 else [*product(range(K), repeat=min(length, 3 - is_slow))]
        lines += [tuple(run.draw.choices(range(K), k=min(length, 4 if is_slow else 20))) for _ in range(4 * (K > 1))]
        for tokens in lines:
            h = run.start()
            for t, token in enumerate(tokens, 1):
                h = run.step(h, token)
                right = due(tokens[:t])
                if right is not None:
                    logits = run.logits(h, token)
                    gap = min(logits[right] - x for j, x in enumerate(logits) if j != right)
                    say(gap > 0 and gap >= Fraction(c["margin"]), f"{tokens[:t]} has the margin {float(gap)}")


def wrong_loosely(tensors, c, n, due, wrong):
    """At this length another class wins in some evaluations, by what is said, and at none before if it is the first."""
    is_first = c["counterexample"].get("is_first") is True
    say(is_first == (c["right_to"] == n - 1) and c["right_to"] < n <= MOST_LOOSE, "is_first")
    for run in drawn_runs(tensors, c):
        h = run.start()
        for t in range(1, n + 1):
            h = run.step(h)
            logits, right = run.logits(h), due((0,) * t)
            best = max(x for j, x in enumerate(logits) if j != right)
            say(t == n or logits[right] > best or not is_first, f"{t} tokens are wrong")
        say(best >= logits[right] and (wrong is None or (wrong != right and logits[wrong] == best)), "predicted")
        say(logits[right] - best <= Fraction(c["margin"]) <= 0, "its margin")


def wrong_where_kept(tensors, c, n, due, wrong):
    """The run that keeps every result, and of each state what is saved, is wrong; that is at no first length."""
    p, least = format_of(c["parameters"]["precision"])
    top = Fraction(2) ** (1 - least) * (2 - Fraction(2) ** (1 - p))
    rows = {name.rpartition(".")[2]: [Fraction(closest(x, p, least)) for x in y[2]] for name, y in tensors.items()}
    say(n <= MOST_KEPT, "cannot be run")
    reads = (turned_reads if "omega" in rows else faded_reads)(rows, c, p, n)
    say(c["right_to"] < n - 1 and c["counterexample"]["is_first"] is False, "is_first")
    factors = [closest(float(x), p, least) for x in reads]
    factors = [math.copysign(math.inf, x) if abs(Fraction(x)) > top else x for x in factors]
    V = [rows["weight"][i : i + len(reads)] for i in range(0, len(rows["weight"]), len(reads))]
    logits = [
        sum(float(x) * y for x, y in zip(row, factors, strict=True)) + float(b)
        for row, b in zip(V, rows["bias"], strict=True)
    ]
    right, margin = logits[due((0,) * n)], c["margin"]
    others = [x for j, x in enumerate(logits) if j != due((0,) * n)]
    say(not all(right > x for x in others), "wrong")
    if margin is None:
        say(wrong is None and not all(map(math.isfinite, logits)), "its margin")
    else:
        say(right - max(others) <= margin + 2.0**-40 and (wrong is None or logits[wrong] == max(logits)), "its margin")


def wrong_far(tensors, about, c, n, due, wrong):
    """Runs that keep every result of units that see no state, functions as they are or near the most they may be off:
    all are wrong by what is said, or the one that is named.
    """
    case, (p, least) = c["counterexample"], format_of(c["parameters"]["precision"])
    rounded_once = {name: (*x[:2], [closest(float(y), p, least) for y in x[2]]) for name, x in tensors.items()}
    net = Network(rounded_once, about, c)
    say(case["is_first"] is (c["right_to"] == n - 1) and 0 <= c["right_to"] < n, "is_first")
    if not net.is_affine():
        raise Unknown
    kept = "every result kept exactly, and factors of matrix products rounded"
    low, high = (f"each sigmoid {x}, " + kept for x in ("low by a factor of 1 - 3u/2", "high by a factor of 1 + 15u/8"))
    shares = {ALL_RUNS: [(0, 0), (-1.9, -1.9), (1.9, 1.9)], kept: [(0, 0)], low: [(-1.5, 0)], high: [(1.875, 0)]}
    say(case["evaluation"] in shares, "evaluation")

    def logits_after(t):
        h = net.after([(0, t)])[: net.units]
        return net.logits([arb(closest(float(x), p, least)) for x in h], 0)

    for share in shares[case["evaluation"]]:
        net.high = tuple(1 + x * arb(2) ** -p for x in share)
        logits, right = logits_after(n), due((0,) * n)
        best = max((x for j, x in enumerate(logits) if j != right), key=float)
        say(not logits[right] - best > arb(c["margin"]) and c["margin"] <= 0, "its margin")
        say(wrong is None or wrong != right and not logits[wrong] < best, "predicted")
        before = {*range(max(1, n - 9), n), *(2**k for k in range(60) if 2**k < n)} if case["is_first"] else ()
        say(not any(margin_of(logits_after(t), due((0,) * t)) <= 0 for t in before), "is_first")


def wrong_by_angle(net, tensors, c, n, due, wrong):
    """A rotation in more than 20 bits is off by less than 64 n units in the last place, and wrong by more."""
    p, _ = format_of(c["parameters"]["precision"])
    say(p > 20 and n * 2.0**-p < 2.0**-12, "cannot be told")
    right, first = due((0,) * n), c["counterexample"]["is_first"]
    say(first == (c["right_to"] == n - 1) and c["right_to"] < n, "is_first")
    far = 64 * n * arb(2) ** -p
    logits = net.logits(net.after([(0, n)]), 0)
    say(all(float(x) == closest(float(x), p, -1022) for x in tensors["cell.omega"][2]), "rounded weights")
    size = 1 + max(abs(x) for x in logits)
    best = max((x for j, x in enumerate(logits) if j != right), key=float)
    say(logits[right] - best < far * size and logits[right] - best < arb(c["margin"]) + far * size, "its margin")
    say(wrong is None or wrong != right and logits[wrong] + far * size > best, "predicted")
    for t in range(max(1, n - 9), n) if first else ():
        own = net.logits(net.after([(0, t)]), 0)
        say(not margin_of(own, due((0,) * t)) < -far * size, "is_first")


def faded_reads(rows, c, p, n):
    """What the readout reads of an RWKV-like cell in that run."""
    say({"w", "k", "v", "r"} < {*rows}, "a kind that is not run here")
    kept, (k, v, r) = c["run"]["kept"], (rows[name] for name in "kvr")
    say(len(kept) == len(k), "run")
    ways = "as float64 has it|low by a factor of about 1 - 3u/2|high by a factor of about 1 \\+ 15u/8"
    rest = ", every result kept exactly, and factors of matrix products rounded"
    said = re.fullmatch(f"what a token keeps ({ways}){rest}", c["counterexample"]["evaluation"])
    say(said, "evaluation")
    share = {"a": 0.0, "l": -1.5, "h": 1.875}[said[1][0]]
    for f, w in zip(kept, rows["w"], strict=True):
        exact = (-(arb(w.numerator) / w.denominator).exp()).exp()
        unit = arb(2) ** (math.frexp(float(exact))[1] - p)
        say(abs(f - exact) < 2 * unit and abs(f - exact * (1 + share * arb(2) ** -p)) < exact * 2.0**-51, "run")
    h = [arb(0)] * len(k)
    for _ in range(n):
        h = [f * x + arb((a * b).numerator) / (a * b).denominator for f, x, a, b in zip(kept, h, k, v, strict=True)]
    return [Fraction(float((x * float(y)).mid())) for x, y in zip(h, r, strict=True)]


def turned_reads(rows, c, p, n):
    """What the readout reads of a rotation by the cosine and sine that are named."""
    said = c["counterexample"]["evaluation"]
    found = re.fullmatch("cosine ([-0-9.e]+) and sine ([-0-9.e]+), within 2 units in the last place, "
                         "every state kept exactly, and factors of the readout rounded", said)  # fmt: skip
    say(found, "evaluation")
    cos, sin, omega = float(found[1]), float(found[2]), arb(float(rows["omega"][0]))
    for x, exact in ((cos, omega.cos()), (sin, omega.sin())):
        say(abs(x - exact) <= 2 * arb(2) ** (math.frexp(float(exact))[1] - p), "evaluation")
    x, y = arb(0), arb(0)
    for _ in range(n):
        x, y = cos * x - sin * y + 1, sin * x + cos * y
    return [Fraction(float(z.mid())) for z in (x, y)]


def closest(x, p, least):
    unit = Fraction(2) ** (max(math.frexp(x)[1] - 1, least) - p + 1)
    return float(round(Fraction(x) / unit) * unit)


def near_run(tensors, c, tokens, right, wrong):
    """A run whose functions are no steps: each number is near what those before it give, the answer is wrong."""
    p, lowest = format_of(c["parameters"]["precision"])
    on = NearRun(rows_of(tensors), c["parameters"]["model"], p, lowest, say)
    logits = on.follow(c["run"], tokens)
    margin = logits[right] - max(x for j, x in enumerate(logits) if j != right)
    say(wrong is None or logits[wrong] == max(logits), "predicted")  # the right one, where it ties
    say(margin == Fraction(c["margin"]) <= 0, "its margin")


def wrong_in_format(net, c, n, right, wrong, tokens=None):
    """The run's numbers, or those of one order, one token after the other; each is a result that an order may have."""
    p, lowest = format_of(c["parameters"]["precision"])

    def either(x, bits=(p, 53)):
        found = set()
        for b in bits:
            size = Fraction(2) ** (math.frexp(float(abs(x)))[1] - 1) if x else Fraction(1)
            unit = max(size, Fraction(2) ** lowest) / 2 ** (b - 1)
            found.add(round(x / unit) * unit)
        return found

    def sums(terms):
        if len(terms) == 1:
            return either(terms[0][0] * terms[0][1])
        found = set()
        for chosen in range(1, 2 ** (len(terms) - 1)):
            sides = [tuple(x for i, x in enumerate(terms) if (chosen >> i & 1) == side) for side in (0, 1)]
            found |= {y for a, b in product(*map(sums, sides)) for y in either(a + b)}
        return found

    def near(x):
        (y,) = either(x, (p,))
        return y

    def stored(x):
        m, e = x.mid().man_exp()
        return near(Fraction(int(m)) * Fraction(2) ** int(e))

    def row_of(row, x, added):
        terms = [(stored(w), near(y)) for w, y in zip(row, x, strict=True) if stored(w) and y]
        return tuple(terms + [(Fraction(1), stored(b)) for b in added if stored(b)]) or ((Fraction(0), Fraction(0)),)

    run = c.get("run")
    say(net.kind == "rnn" and net.relu or run is not None and net.kind in ("ssm", "decay", "rwkv"), "cannot be run")

    def after(t, h):
        """The state and what is read of it, which are the run's after so many tokens more."""
        numbers = iter([Fraction(x) for x in run["numbers"][t]])
        if net.kind != "rwkv":
            parts = [row_of(row, h, [b]) for row, b in zip(net.W["A"], net.W["B"], strict=True)]
            h = seen = list(numbers)
            say(len(h) == len(parts) and all(x in sums(terms) for x, terms in zip(h, parts, strict=True)), f"sum {t}")
            return h, seen
        before = h
        f, a, r, fh, h, seen = ([*islice(numbers, net.units)] for _ in range(6))
        say(len(seen) == net.units and next(numbers, None) is None, f"the numbers of step {t}")
        w, k, v, stored_r = ([stored(x) for x in net.W[name][0]] for name in "wkvr")
        say(r == stored_r and all(x in either(y * z) for x, y, z in zip(a, k, v, strict=True)), f"added in {t}")
        for x, y in zip(f, w, strict=True):
            exact = (-(arb(y.numerator) / y.denominator).exp()).exp()
            unit = arb(2) ** (math.frexp(float(exact))[1] - p)
            say(abs(arb(x.numerator) / x.denominator - exact) <= 2 * unit, f"kept in {t}")
        say(all(x in either(y * z) for x, y, z in zip(fh, f, before, strict=True)), f"product {t}")
        say(all(x in either(y + z) for x, y, z in zip(h, fh, a, strict=True)), f"sum {t}")
        say(all(x in either(y * z) for x, y, z in zip(seen, r, h, strict=True)), f"read in {t}")
        return h, seen

    W, h = net.W, [Fraction(0)] * net.units
    seen = h
    for t in range(n):
        if net.kind != "rnn":
            say(len(run["numbers"]) == n, "the run's length")
            h, seen = after(t, h)
            continue
        parts = [
            row_of(row, h, [x[tokens[t] if tokens else 0], a, b])
            for row, x, a, b in zip(W["weight_hh_l0"], W["weight_ih_l0"], W["bias_ih_l0"], W["bias_hh_l0"], strict=True)
        ]
        if run is None:
            h = seen = [max(Fraction(0), min(sums(terms))) for terms in parts]
            continue
        numbers = [Fraction(x) for x in run["numbers"][t]]
        before, h = numbers[: net.units], numbers[net.units :]
        seen = h
        say(all(x in sums(terms) for x, terms in zip(before, parts, strict=True)), f"a sum after {t} tokens")
        say(h == [max(Fraction(0), x) for x in before], f"the state after {t} tokens")
    say(run is None or len(run["numbers"]) == n, "the run's length")
    parts = [row_of(row, seen, [b]) for row, b in zip(net.V, net.b, strict=True)]
    logits = [min(sums(terms)) for terms in parts] if run is None else [Fraction(x) for x in run["logits"]]
    say(run is None or all(x in sums(terms) for x, terms in zip(logits, parts, strict=True)), "logits")
    say(wrong is None or logits[wrong] == max(logits), "predicted")  # the right one, where it ties
    margin = logits[right] - max(x for j, x in enumerate(logits) if j != right)
    say(margin <= Fraction(c["margin"]) <= 0 if run is None else margin == Fraction(c["margin"]), "its margin")


def rounded(net, c, least, due, K):
    """Runs the network with every operation rounded, in two orders of each sum, small results flushed or not."""
    name = c["parameters"].get("precision", c["parameters"]["dtype"])
    p, lowest = FORMATS[name] if name in FORMATS else (int(name[1:]), -126)

    def near(x, flush):
        if x == 0:
            return Fraction(0)
        n, d = abs(x).numerator, abs(x).denominator
        e = n.bit_length() - d.bit_length()
        e = max(e - (Fraction(n, d) < Fraction(2) ** e), lowest)
        unit = Fraction(2) ** (e - p + 1)
        y = round(abs(x) / unit) * unit
        y = Fraction(0) if flush and y < Fraction(2) ** lowest else y
        return y if x > 0 else -y

    def exact(x):
        m, e = x.mid().man_exp()
        return Fraction(int(m)) * Fraction(2) ** int(e)

    say(net.kind == "rnn", "cannot be run")
    for backwards, flush in ((False, False), (True, True)):

        def f(x, flush=flush):
            return near(x, flush)

        W = {}
        for key, v in net.W.items():
            W[key] = [[f(exact(x)) for x in row] for row in v] if "weight" in key else [f(exact(x)) for x in v]
        V, b = [[f(exact(x)) for x in row] for row in net.V], [f(exact(x)) for x in net.b]

        def summed(pairs, rest, backwards=backwards, f=f):
            terms = [f(x * y) for x, y in pairs if x and y] + [x for x in rest if x]
            total = Fraction(0)
            for x in reversed(terms) if backwards else terms:
                total = f(total + x)
            return total

        stack = [((), [Fraction(0)] * net.units)]
        while stack:
            tokens, h = stack.pop()
            if tokens and due(tokens) is not None:
                logits = [summed(zip(row, h, strict=True), [y]) for row, y in zip(V, b, strict=True)]
                gap = min(logits[due(tokens)] - x for j, x in enumerate(logits) if j != due(tokens))
                is_least = gap >= Fraction(c["margin"]) or c["reading"] == "bit-exact"  # of one order that is not known
                say(gap > 0 and is_least, f"{name}: {tokens} has the margin {float(gap)}")
            if len(tokens) >= (4 if K > 1 else 24):
                continue
            for t in range(K):
                after = []
                for i in range(net.units):
                    rest = [W["weight_ih_l0"][i][t], W["bias_ih_l0"][i], W["bias_hh_l0"][i]]
                    z = summed(zip(W["weight_hh_l0"][i], h, strict=True), rest)
                    tanh = exact((arb(z.numerator) / z.denominator).tanh()) if z else z
                    after.append(max(z, Fraction(0)) if net.relu else f(tanh))
                stack.append(((*tokens, t), after))


# ---- heads


def heads(tensors, about, c):
    a, d, d_h = tensors["W_Q"][1]
    p = c["parameters"]
    say((p["heads"], p["d"], p["d_h"], p["dtype"]) == (a, d, d_h, DTYPES[tensors["E"][0]]), "sizes")
    say(p["skip"] == tensors["skip"][2][0] and p["norm"] is False and len(c["heads"]) == a, "skip, norm or heads")
    lo, hi, M = (0, 8, 3) if c["law"] == "unbounded" else map(int, c["law"].split(":")[1:])
    inputs = "infinite" if c["law"] == "unbounded" else str((hi - lo + 1) ** 2 * (M + 1))
    say(c["inputs"] == inputs, "inputs")
    for name in ("separable", "separable_unbounded"):
        is_all = name != "separable" or c["law"] == "unbounded"
        box = (0, 8, 3) if is_all else (lo, hi, M)
        for h, found in enumerate(c["heads"]):
            say(found["head"] == h, "head")
            if d_h == 1:
                can = separates(tensors, h, box)
                say(not (found[name] and can is False), f"head {h} does not separate")
                say(is_all or found[name] or can is not True, f"head {h} separates")
    for found in [*(c["pairs"] or []), *c["subsets"]]:
        for h in found["heads"] if d_h == 1 and found["separable"] is False and c["law"] != "unbounded" else []:
            say(separates(tensors, h, (lo, hi, M)) is not True, f"head {h} separates, so these do")


def separates(tensors, h, box):
    """Whether a threshold on a one-dimensional head separates n1 > n0 from the rest; None where that does not show."""
    lo, hi, M = box
    E = matrix(tensors["E"])
    d = len(E[0])
    of = {k: [arb(x) for x in tensors[k][2][h * d : h * d + d]] for k in ("W_Q", "W_K", "W_V")}
    q = dot(E[4], of["W_Q"])
    weight = [(q * dot(E[t], of["W_K"])).exp() for t in range(5)]
    value = [dot(E[t], of["W_V"]) for t in range(5)]
    sides = {True: [], False: []}
    for n0, n1, n2 in product(range(lo, hi + 1), range(lo, hi + 1), range(M + 1)):
        w = [x * n for x, n in zip(weight, (1, n0, n1, n2, 1), strict=True)]
        sides[n1 > n0].append(dot(w, value) / sum(w, arb(0)))
    if not sides[True]:
        return True
    ways = []
    for turn in (1, -1):
        low = min((turn * x for x in sides[True]), key=lambda v: v.mid())
        high = max((turn * x for x in sides[False]), key=lambda v: v.mid())
        ways.append(True if low > high else False if low < high else None)
    return True if True in ways else None if None in ways else False


# ---- parity, modular addition, Count01


def plain(tensor, *shape):
    """A tensor's numbers as fractions, nested as its shape says, which must be this one."""
    say(tensor[1] == [*shape], "a shape")
    rows = [Fraction(x) for x in tensor[2]]
    for n in reversed(shape[1:]):
        rows = [rows[i : i + n] for i in range(0, len(rows), n)]
    return rows


def mul(A, B):
    columns = [*zip(*B, strict=True)]
    return [[sum((x * y for x, y in zip(row, column, strict=True)), 0) for column in columns] for row in A]


def verdict(c, gaps, expected, size):
    """What a proof or a refutation says of these inputs, whose least differences are known as balls."""
    name = c["verdict"]
    say(name in ("PROVED", "REFUTED"), "verdict")
    if name == "PROVED":
        say(c["inputs_covered"] == size, "inputs")
        for item, exact in gaps:
            gap = exact + c.get("slack", 0.0)
            say(not gap <= 0 and not (c["margin"] is not None and gap < arb(c["margin"])), f"{item} has {gap}")
        say(c["margin"] is None or c["margin"] > 0, "a margin that is not above zero")
        return
    say(c["inputs_covered"] == "1", "inputs")
    gap, off = dict(gaps)[expected], c.get("off", 0.0)
    say(not gap > off, f"{expected} is right")
    say(not abs(gap - arb(c["margin"])) > arb(2) ** -25 * abs(gap) + arb(2) ** -900 + off, "its margin")


def ball(x):
    return x if isinstance(x, arb) else arb(x.numerator) / x.denominator


def layer_normed(rows, tensors, d):
    """(x - mean) / sqrt(variance + eps) times the gain, and the bias."""
    gain, bias = (vector(tensors[f"norm_{name}"]) for name in ("weight", "bias"))
    eps, found = arb(tensors["norm_eps"][2][0]), []
    for row in rows:
        centred = [ball(x) - sum(map(ball, row), arb(0)) / d for x in row]
        root = (sum((x * x for x in centred), arb(0)) / d + eps).sqrt()
        found.append([x / root * a + b for x, a, b in zip(centred, gain, bias, strict=True)])
    return found


def parity(tensors, about, c):
    p, dtype = c["parameters"], tensors["E"][0]
    T, L, d, hidden = (p[name] for name in "TLdp")
    say(p["dtype"] == DTYPES[dtype] and {x[0] for x in tensors.values()} == {dtype}, "dtype")
    say({name: about[name] for name in "TLdp"} == {name: p[name] for name in "TLdp"}, "sizes")
    E, W_1, W_2 = plain(tensors["E"], T, d), plain(tensors["W_1"], d, hidden), plain(tensors["W_2"], hidden, 2)
    W_Q, W_K, b_1, b_2 = (plain(tensors[x], *s) for x, s in (("W_Q", [d, d]), ("W_K", [d, d]), ("b_1", [hidden]),
                                                             ("b_2", [2])))  # fmt: skip
    keys, queries, gaps = mul(E, W_K), mul(E, W_Q), {}
    for tokens in product(range(T), repeat=L):
        for t in tokens:
            bag = tuple(sorted(tokens))
            if (t, bag) not in gaps:
                scores = [sum(x * y for x, y in zip(queries[t], keys[s], strict=True)) for s in bag]
                mixed = [e + sum(a * E[s][i] for a, s in zip(scores, bag, strict=True)) for i, e in enumerate(E[t])]
                z = [max(Fraction(0), x + b) for x, b in zip(mul([mixed], W_1)[0], b_1, strict=True)]
                even, odd = (x + b for x, b in zip(mul([z], W_2)[0], b_2, strict=True))
                gaps[t, bag] = odd - even if tokens.count(t) % 2 else even - odd
    case = c["counterexample"]
    if case is not None:
        tokens, position = case["input"], case["position"]
        say(len(tokens) == L, "the length of an input")
        t, exact = tokens[position], gaps[tokens[position], tuple(sorted(tokens))]
        tie = c["margin"] == 0 if "off" in c else exact == 0
        say(case["expected"] == tokens.count(t) % 2 == 1 - case["predicted"] and case["is_tie"] == tie, "case")
        say("off" in c or Fraction(c["margin_exact"]) == exact, "its exact margin")
    say(all(0 <= x <= most for x, most in zip((c["tightest"] or {}).values(), (T - 1, L), strict=False)), "tightest")
    wrong = case and (case["input"][case["position"]], tuple(sorted(case["input"])))
    verdict(c, ((item, ball(gap)) for item, gap in gaps.items()), wrong, str(T**L))


def modular(tensors, about, c):
    if "embed.W_E" in tensors:
        grokked(tensors, c)
        return
    P, p = len(tensors["b_out"][2]), c["parameters"]
    heads, d, d_h = tensors["layers.0.W_Q"][1]
    d_v, neurons = tensors["layers.0.W_V"][1][2], len(tensors["layers.0.b_1"][2])
    said = {"P": P, "layers": 1, "heads": heads, "d": d, "d_h": d_h, "p": neurons, "neurons": neurons}
    say(said.items() <= p.items() and p["dtype"] == DTYPES[tensors["E"][0]], "sizes")
    E, X = plain(tensors["E"], P + 1, d), plain(tensors["positions"], 3, d)
    names = ("W_Q", "W_K", "W_V", "W_O")
    shapes = ([heads, d, d_h], [heads, d, d_h], [heads, d, d_v], [heads, d_v, d])
    parts = [plain(tensors[f"layers.0.{name}"], *shape) for name, shape in zip(names, shapes, strict=True)]
    W_1, W_2 = plain(tensors["layers.0.W_1"], d, neurons), plain(tensors["layers.0.W_2"], neurons, d)
    b_1, W_out = plain(tensors["layers.0.b_1"], neurons), plain(tensors["W_out"], d, P)
    b_out, skip, gaps, rows = plain(tensors["b_out"], P), tensors["skip"][2][0], {}, {}
    for a, b in product(range(P), repeat=2):
        x = [[e + y for e, y in zip(E[t], X[i], strict=True)] for i, t in enumerate((a, b, P))]
        stream = [ball(y) if skip else arb(0) for y in x[2]]
        for Q, K, V, O in zip(*parts, strict=True):
            query = mul([x[2]], Q)[0]
            scores = [sum(u * v for u, v in zip(query, key, strict=True)) for key in mul(x, K)]
            powers = [ball(s - max(scores)).exp() for s in scores]
            for power, row in zip(powers, mul(mul(x, V), O), strict=True):
                stream = [s + power / sum(powers, arb(0)) * ball(y) for s, y in zip(stream, row, strict=True)]
        z = added(times([[ball(w) for w in row] for row in zip(*W_1, strict=True)], stream), map(ball, b_1))
        z = times([[ball(w) for w in row] for row in zip(*W_2, strict=True)], [y.max(arb(0)) for y in z])
        stream = added(stream, z) if skip else z
        rows[a, b] = added(
            times([[ball(w) for w in row] for row in zip(*W_out, strict=True)], stream), map(ball, b_out)
        )
        gaps[a, b] = margin_of(rows[a, b], (a + b) % P)
    sure = {pair for pair, gap in gaps.items() if gap < 0}
    maybe = {pair for pair, gap in gaps.items() if not gap > 0}
    if "counts" in c:
        right, wrong = (int(c["counts"][name]) for name in ("right", "wrong"))
        say(right + wrong == P * P and len(sure) <= wrong <= len(maybe), "counts")
    case = c["counterexample"]
    if case is not None:
        listed = [tuple(pair) for pair in c.get("wrong_inputs", maybe)]
        say({*listed} <= maybe and sure <= {*listed}, "wrong_inputs")
        a, b = case["input"]
        say(case["expected"] == (a + b) % P, "expected")
        say("off" in c or not case["is_smallest"] or all(pair >= (a, b) for pair in sure), "is_smallest")
        named = case["predicted"]
        say(named is None or not any(y > rows[a, b][named] + c.get("off", 0.0) for y in rows[a, b]), "predicted")
    else:
        say(c["tightest"]["margin"] == c["margin"] and tuple(c["tightest"]["input"]) in gaps, "tightest")
    verdict(c, gaps.items(), case and tuple(case["input"]), str(P * P))


def grokked(tensors, c):
    """Addition modulo P by a decoder of the grokking layout; margins by a - b and shares are of the stored numbers."""
    P, p, off = c["parameters"]["P"], c["parameters"], c.get("off", 0.0)
    exact, rows = (grokked_logits(x, P) for x in (c.get("stored", tensors), tensors))
    numbers = sum(len(x[2]) for x in tensors.values())
    said = {"lengths": [3], "positions": [-1], "classes": P, "stored_numbers": numbers}
    say(said.items() <= p.items(), "sizes")
    for (a, b), row in exact.items():
        least = c["margin_per_difference"][(a - b) % P]
        say(least is None or not margin_of(row, (a + b) % P) < least, "margin_per_difference")
    say(len(c["margin_per_difference"]) == P, "differences")
    grokked_shares(plain(c.get("stored", tensors)["embed.W_E"], *tensors["embed.W_E"][1]), P, c)
    gaps = {(a, b): margin_of(row, (a + b) % P) for (a, b), row in rows.items()}
    right, wrong, undecided = (int(c["counts"][name]) for name in ("right", "wrong", "undecided"))
    say(right + wrong + undecided == P * P, "counts")
    may_be_wrong = {pair for pair, gap in gaps.items() if not gap > off}
    say(right <= sum(not gap <= -off for gap in gaps.values()) and wrong <= len(may_be_wrong), "how many")
    say({*map(tuple, c["wrong_inputs"])} <= may_be_wrong, "wrong_inputs")
    if c["tightest"] is not None:
        margin, gap = c["tightest"]["margin"], gaps[tuple(c["tightest"]["input"])]
        say(gap > -off and not (margin is not None and gap < margin - off), "tightest")
    if c["verdict"] == "PROVED":
        say((wrong, undecided, c["wrong_inputs"]) == (0, 0, []), "a wrong one")
        verdict(c, gaps.items(), None, str(P * P))
        return
    (a, b), named, margin = c["counterexample"]["input"], c["counterexample"]["predicted"], c["margin"]
    say(c["inputs_covered"] == "1" and c["counterexample"]["expected"] == (a + b) % P != named, "expected")
    say(not gaps[a, b] > off and (margin is None or margin <= 0 and not gaps[a, b] > margin + off), "its margin")
    row = rows[a, b]
    say(not any(y - row[named] > off + 2.0**-19 * (abs(y) + abs(row[named])) for y in row), "predicted")


def grokked_logits(tensors, P):
    """The logits below P at "=" of a b =, by pair."""
    (d, _), (n, _), (H, h, _) = (tensors[x][1] for x in ("embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_Q"))
    E, X = plain(tensors["embed.W_E"], d, P + 1), plain(tensors["pos_embed.W_pos"], n, d)
    U = [row[:P] for row in plain(tensors["unembed.W_U"], d, tensors["unembed.W_U"][1][1])]
    names = {"embed.W_E", "pos_embed.W_pos", "unembed.W_U"}
    depth = sum(name.endswith("b_in") for name in tensors)
    found = {}
    for a, b in product(range(P), repeat=2):
        x = [[ball(E[i][t] + X[place][i]) for i in range(d)] for place, t in enumerate((a, b, P))]
        for layer in (f"blocks.{i}." for i in range(depth)):
            m = len(tensors[f"{layer}mlp.b_in"][2])
            shapes = dict.fromkeys(("attn.W_Q", "attn.W_K", "attn.W_V"), [H, h, d]) | {"attn.W_O": [d, H * h]}
            shapes |= {"mlp.W_in": [m, d], "mlp.b_in": [m], "mlp.W_out": [d, m], "mlp.b_out": [d]}
            names |= {f"{layer}{name}" for name in shapes}
            W = {name: plain(tensors[f"{layer}{name}"], *shape) for name, shape in shapes.items()}
            q, k, v = ([[times(balls(A), y) for y in x] for A in W[f"attn.{name}"]] for name in ("W_Q", "W_K", "W_V"))
            stream = []
            for i in range(3):
                mixed = []
                for head in range(H):
                    scores = [dot(q[head][i], k[head][j]) / arb(math.sqrt(h)) for j in range(i + 1)]
                    powers = [(s - scores[0]).exp() for s in scores]
                    total = sum(powers, arb(0))
                    shares = [power / total for power in powers]
                    mixed += [dot(shares, column) for column in zip(*v[head][: i + 1], strict=True)]
                y = added(x[i], times(balls(W["attn.W_O"]), mixed))
                z = [u.max(arb(0)) for u in added(times(balls(W["mlp.W_in"]), y), map(ball, W["mlp.b_in"]))]
                stream.append(added(y, times(balls(W["mlp.W_out"]), z), map(ball, W["mlp.b_out"])))
            x = stream
        found[a, b] = times([*zip(*balls(U), strict=True)], x[2])
    say({*tensors} == names, "tensors")
    return found


def balls(rows):
    return [[*map(ball, row)] for row in rows]


def grokked_shares(E, P, c):
    """The frequencies named have these shares of the variance, in order, and are the fewest with nine tenths of it."""
    energy = {}
    for k in range(1, P // 2 + 1):
        angles = [2 * arb.pi() * k * x / P for x in range(P)]
        sums = [dot([f(y) for y in angles], [*map(ball, row[:P])]) for row in E for f in (arb.cos, arb.sin)]
        energy[k] = sum((x * x for x in sums), arb(0)) * (1 if 2 * k == P else 2)
    total, named, near = sum(energy.values(), arb(0)), c["frequencies"], 2.0**-29
    share = {k: x / total if total > 0 else arb(0) for k, x in energy.items()}
    say([*c["frequency_shares"]] == [*map(str, named)] and len({*named}) == len(named), "frequencies")
    say(not any(abs(share[k] - c["frequency_shares"][str(k)]) > near for k in named), "shares")
    own = [share[k] for k in named]
    say(not any(y > x + near for x, y in zip(own, own[1:], strict=False)), "the order of frequencies")
    say(not any(x > (own[-1] if own else 0) + near for k, x in share.items() if k not in named), "a larger share")
    say(not sum(own[:-1], arb(0)) > 0.9 + near and not (total > 0 and sum(own, arb(0)) < 0.9 - near), "nine tenths")


def count01(tensors, about, c):
    p = c["parameters"]
    heads, d, d_h = tensors["W_Q"][1]
    n_classes, skip = len(tensors["b_out"][2]), tensors["skip"][2][0]
    own = {"heads": heads, "d": d, "skip": skip, "dtype": DTYPES[tensors["E"][0]]}
    say(all(p.get(name, value) == value for name, value in own.items()), "sizes")
    E, W_out = plain(tensors["E"], 8, d), plain(tensors["W_out"], d, n_classes)
    parts = [plain(tensors[name], heads, d, d_h) for name in ("W_Q", "W_K", "W_V")]
    parts.append(plain(tensors["W_O"], heads, d_h, d))
    b_out, names = plain(tensors["b_out"], n_classes), ("BOS", "0", "1", "2", "=", "4", "5", "EOS")
    of_heads, sums, seen, read_by = [], {}, E, W_out
    if "norm_weight" in tensors:
        seen, read_by = layer_normed(E, tensors, d), [[ball(x) for x in row] for row in W_out]
        parts = [[[[ball(x) for x in row] for row in head] for head in part] for part in parts]
    for Q, K, V, O in zip(*parts, strict=True):
        scores = mul(mul(seen, Q), [*zip(*mul(seen, K), strict=True)])
        of_heads.append((scores, [[ball(x) for x in row] for row in mul(mul(mul(seen, V), O), read_by)]))
    own_logits = [[ball(x) for x in row] for row in mul(E, W_out)]
    say(p["labels"] in ("majority-ones", "thesis"), "labels")

    def due(n, last):
        is_more = n[1] > n[0] if p["labels"] == "majority-ones" else n[0] >= n[1]
        return 7 if last != 4 else 5 if is_more else 6

    def gap(n, last):
        counts = [1, *n, 1, *(int(last == t) for t in (5, 6)), 0]
        logits = [ball(b) + (own_logits[last][j] if skip else 0) for j, b in enumerate(b_out)]
        for scores, values in of_heads:
            weights = [k * ball(s).exp() for k, s in zip(counts, scores[last], strict=True)]
            sums[n, last] = total = sum(weights, arb(0))
            for w, row in zip(weights, values, strict=True):
                logits = [y + w / total * v for y, v in zip(logits, row, strict=True)]
        return margin_of(logits, due(n, last))

    lo, m, total = p.get("min_digits", 0), p.get("min_noise", 0), p["max_length"]
    is_finite = total is not None or None not in (p["max_digits"], p["max_noise"])
    say(all(type(x) is int for x in (lo, m)), "bounds")
    tops = [p[name] if p[name] is not None else 12 if total is None else total for name in ("max_digits", "max_noise")]
    tokens = (4,) if p.get("semantic_only") else (4, 5, 6)
    some = [range(least, top + 1) for least, top in ((lo, tops[0]), (lo, tops[0]), (m, tops[1]))]
    sizes = [len(x) for x in some]
    few = [x if size < 16 else [*x[:3], *x[-3:]] for x, size in zip(some, sizes, strict=True)]
    triples = [n for n in product(*few) if total is None or sum(n) <= total]
    inside = len(triples) if few == some else sizes[0] * sizes[1] * sizes[2] if total is None else None
    gaps = {(*n, names[last]): gap(n, last) for n in triples for last in tokens}
    case, lasts = c["counterexample"], len(tokens)
    size = "infinite" if not is_finite else c["inputs_covered"] if inside is None else str(inside * lasts)
    say(inside is None or inside, "nothing is so")
    if case is not None:
        n, last = (case["n0"], case["n1"], case["n2"]), names.index(case["last"])
        bounds = zip(n, (lo, lo, m), (p["max_digits"], p["max_digits"], p["max_noise"]), strict=True)
        say(all(least <= x and (top is None or x <= top) for x, least, top in bounds), "not in the region")
        say((total is None or sum(n) <= total) and last in tokens, "not in the region")
        say(case["input"] == [*n, case["last"]] and case["expected"] == names[due(n, last)], "case")
        string = [
            "BOS",
            *(x for x, k in zip("012", n, strict=True) for _ in range(k)),
            "=",
            *[case["last"]] * (last > 4),
        ]
        if "off" in c:
            mixed = slice(1, sum(n) + 1)
            say([*case["tokens"][:1], *sorted(case["tokens"][mixed]), *case["tokens"][mixed.stop :]] == string, "case")
        else:
            say(case["tokens"] == (string if sum(n) <= 60 else None) and case["margin"] == c["margin"], "case")
        gaps[*n, case["last"]] = gap(n, last)
        say("counts" not in c or sum(int(c["counts"][x]) for x in ("right", "wrong")) == (inside or 0) * lasts
            or inside is None, "counts")  # fmt: skip
    elif "margin_scaled" in c:
        say(c["margin"] is None and heads == 1 and c["margin_scaled"] > 0, "margins")
        for (*n, name), found in gaps.items():
            is_less = found * sums[tuple(n), names.index(name)] < arb(c["margin_scaled"])
            say(not is_less, "margin times normaliser")
    verdict(c, gaps.items(), case and tuple(case["input"]), size)


def addition(tensors, about, c):
    p, depth = c["parameters"], len({name.split(".")[1] for name in tensors if name.startswith("layers")})
    n, B = p["digits"], p["base"]
    heads, d, d_h = tensors["layers.0.W_Q"][1]
    d_v, classes = tensors["layers.0.W_V"][1][2], len(tensors["b_out"][2])
    widths = [len(tensors[f"layers.{i}.b_1"][2]) for i in range(depth)]
    said = {"layers": depth, "heads": heads, "d": d, "d_h": d_h, "p": sum(widths)}
    say(said.items() <= p.items() and p["dtype"] == DTYPES[tensors["E"][0]] and classes == B, "sizes")
    say(0 < n < 5 and 1 < B < 5 and tensors["skip"][2][0], "sizes that are enumerated")

    def balls(name, *shape):
        return [[ball(x) for x in row] for row in plain(tensors[name], *shape)]

    def listed(name, *shape):
        return [[[ball(x) for x in row] for row in part] for part in plain(tensors[name], *shape)]

    def columns(W):
        return [*zip(*W, strict=True)]

    E, X, W_out = balls("E", B + 2, d), balls("positions", 3 * n + 2, d), balls("W_out", d, B)
    b_out, layers = [ball(x) for x in plain(tensors["b_out"], B)], []
    for i, width in enumerate(widths):
        of = f"layers.{i}."
        parts = [listed(of + name, heads, d, size) for name, size in (("W_Q", d_h), ("W_K", d_h), ("W_V", d_v))]
        W_1, W_2 = balls(of + "W_1", d, width), balls(of + "W_2", width, d)
        b_1 = [ball(x) for x in plain(tensors[of + "b_1"], width)]
        layers.append((parts, listed(of + "W_O", heads, d_v, d), W_1, b_1, W_2))

    def logits(tokens):
        stream = [added(E[t], X[i]) for i, t in enumerate(tokens)]
        for (Q, K, V), O, W_1, b_1, W_2 in layers:
            after = [[*x] for x in stream]
            for q, k, v, o in zip(Q, K, V, O, strict=True):
                queries, keys, values = ([times(columns(W), x) for x in stream] for W in (q, k, v))
                for i in range(len(tokens)):
                    scores = [dot(queries[i], key) for key in keys[: i + 1]]
                    top = max(scores, key=lambda x: float(x.mid()))
                    powers = [(x - top).exp() for x in scores]
                    total = sum(powers, arb(0))
                    mixed = [dot(powers, column) / total for column in columns(values[: i + 1])]
                    after[i] = added(after[i], times(columns(o), mixed))
            stream = []
            for x in after:
                z = [y.max(arb(0)) for y in added(times(columns(W_1), x), b_1)] if b_1 else []
                stream.append(added(x, times(columns(W_2), z)) if z else x)
        return [added(times(columns(W_out), x), b_out) for x in stream]

    def written(number, size):
        return [number // B**j % B for j in range(size)][::-1]

    def run(a, b):
        right = written(a + b, n + 1)
        rows = logits([*written(a, n), B, *written(b, n), B + 1, *right[:-1]])[2 * n + 1 :]
        return right, rows, min((margin_of(row, r) for row, r in zip(rows, right, strict=True)), key=lambda g: g.mid())

    gaps = {(a, b): run(a, b)[2] for a, b in product(range(B**n), repeat=2)}
    case, pair = c["counterexample"], None
    if case is not None:
        a, b = (int(x, B) for x in case["input"].rstrip("=").split("+"))
        pair, (right, rows, _) = (a, b), run(a, b)
        text = "".join(map(str, right))
        shown = f"{''.join(map(str, written(a, n)))}+{''.join(map(str, written(b, n)))}="
        say(case["input"] == shown and case["expected"] == text, "case")
        named = [(row, x) for row, x in zip(rows, case["predicted"], strict=True) if x != "?"]
        say(not any(y > row[int(x)] + c.get("off", 0.0) for row, x in named for y in row), "predicted")
    else:
        say(c["tightest"]["margin"] == c["margin"], "tightest")
    verdict(c, gaps.items(), pair, str(B ** (2 * n)))


# ---- transformers that count


def transformer(tensors, about, c):
    """Every input of up to six tokens, at every shift."""
    p, W = c["parameters"], {}
    for name, x in tensors.items():
        W[name] = matrix(x) if len(x[1]) == 2 else vector(x)
    W |= made(c, about, len(W["W_U"]), len(W["blocks.0.attention.W_Q"][0]) // max(1, about["n_heads"]))
    name, M, m, K, C = (p.get(key) for key in ("name", "vocabulary", "modulus", "types", "max_count"))
    layers = len({key.split(".")[1] for key in W if key.startswith("blocks.")})
    mlp = [W[key] for key in W if key.endswith("b_in")]
    own = {"pe": about["pe"], "bos": about["bos"], "n_heads": about["n_heads"], "layers": layers, "d": len(W["W_U"])}
    own |= {"neurons": sum(map(len, mlp)), "layernorm": "norm.weight" in W, "activation": about["activation"]}
    own |= {} if mlp else {"activation": None}
    say({k: p[k] for k in own} == own and {DTYPES[x[0]] for x in tensors.values()} == {p["dtype"]}, "sizes")
    classes = m if m is not None else 2 if "first" in name else (M if M is not None else C) + 1
    words = 1 if name in ("vanilla", "modular", "first-homogeneous") else K or M + 2 + name.startswith("helper")
    say(len(W["W_U"][0]) == classes and len(W["W_E"]) - about["bos"] == words, "classes or tokens")
    room = None if about["pe"] == "nope" else len(W["W_pos"]) if about["pe"] == "ape" else about["positions"]
    say("positions" not in p or p["positions"] == room, "positions")
    room = None if room is None else room - about["bos"]
    started = name in ("shifted", "helper", "helper-shifted")

    def is_input(x):
        if K:
            return max(x) < K and not ("distinct_start" in p and x[1:2] == x[:1])
        if words == 1:
            return {*x} == {0} and (M is None or len(x) <= M)
        if name == "succession":
            return x == (M + 1,) * len(x) and len(x) <= M or x == (*range(1, len(x) + 1),) and len(x) < M
        least, most = {"shifted": (1, M), "helper": (0, 0), "helper-shifted": (0, M)}[name]
        return least <= x[0] <= most and len({*x[1:]}) < 2 and min((M + 1, *x[1:])) > M and len(x) - 1 + x[0] <= M

    def due(x):
        if "first" in name:
            return int(len(x) == 1)
        if started:
            return x[0] + len(x) - 1
        if name == "succession" and x[0] == 1:
            return x[-1] + 1
        n = x.count(x[-1])
        return None if C and n > C else (n - 1) % m if m else n

    def gap(x, shift):
        return least_gap(decoded(W, about, x, shift)[-1], due(x)) + c.get("slack", 0.0)

    shifts = range(1 if room is None else room)
    if c["verdict"] == "REFUTED":
        case = c["counterexample"]
        x, shift = tuple(case["input"]), case["shift"]
        say(is_input(x) and shift in shifts and (room is None or shift + len(x) <= room), "no input")
        k = due(x)
        say(k is not None and not gap(x, shift) > 0 and c["inputs_covered"] == "1", "the input is right")
        say(case["expected"] == k + (m is not None) and case["position"] == len(x) - 1, "case")
        say(case["length"] == len(x) - started and case["start"] == (x[0] if started else None), "case")
        say(c["margin"] is None or c["margin"] <= 0, "margin")
        return
    length = c["length"]
    say(length == "all" and M is None and room is not None or type(length) is int and length > 0, "length")
    most = room if length == "all" else length + started
    say("longest" not in c or length == "all" and c["longest"] == room, "longest")
    say(M is None or length <= M - (name == "shifted"), "length")
    number = 0
    for n in range(1, min(most, 6) + 1):
        for x in filter(is_input, product(range(words), repeat=n)):
            for shift in shifts:
                if room is None or shift + n <= room:
                    number += 1
                    if due(x) is not None:
                        found = gap(x, shift)
                        say(found > 0 and not found < arb(c["margin"]), f"{x} at {shift} has {found}")
                        scaled = found * (n + about["bos"])
                        say(not scaled < arb(c.get("margin_scaled", 0.0)), f"{x} at {shift} has {found}")
    say(most > 6 or c["inputs_covered"] == str(number), "inputs")
    say(all(x == ["1/1", "1/1"] for x in c.get("accuracy", {}).values()), "accuracy")


def made(c, about, d, size):
    """The tables that a decoder makes itself, which are sines and cosines up to a thousandth."""
    tables, pe = c.get("tables"), about["pe"]
    say((tables is None) == (pe in ("nope", "ape", "spe")), "tables")
    near, rows = (1e-15 if c["parameters"]["dtype"] == "float64" else 1e-2), range(1, about["positions"] + 1)
    near = max(near, 2e-3 if "precision" in c["parameters"] else 0)
    if pe == "rope":
        say(size % 2 == 0 and {*tables} == {"cos", "sin"}, "tables")
        angles = [[n * 10000.0 ** (-2 * i / size) for i in range(size // 2)] for n in rows]
        due = {name: [[getattr(math, name)(x) for x in row] for row in angles] for name in ("cos", "sin")}
    elif tables is not None:
        say({*tables} == {"W_pos"}, "tables")
        of_pair = [[n * 10000.0 ** (-(j - j % 2) / d) for j in range(d - d % 2)] for n in rows]
        due = {"W_pos": [[(math.sin, math.cos)[j % 2](x) for j, x in enumerate(row)] + [0.0] * (d % 2)
                         for row in of_pair]}  # fmt: skip
    for name, found in (tables or {}).items():
        say([*map(len, found)] == [*map(len, due[name])], "shapes of tables")
        apart = max(abs(x - y) for both in zip(found, due[name], strict=True) for x, y in zip(*both, strict=True))
        say(apart < near * (1 + len(found)), "a table that is not of sines")
    return {name: [[arb(x) for x in row] for row in found] for name, found in (tables or {}).items()}


def decoded(W, about, tokens, shift):
    """Logits at every position, token by token."""
    tokens = [*[len(W["W_E"]) - 1] * about["bos"], *tokens]
    stream = [W["W_E"][t] for t in tokens]
    if about["pe"] == "ape":
        stream = [added(x, W["W_pos"][shift + i]) for i, x in enumerate(stream)]
    if about["pe"] == "sine":
        stream = [added(x, W["W_pos"][shift + i]) for i, x in enumerate(stream)]
    if about["pe"] == "spe":
        stream = [[*x, arb(shift + i)] for i, x in enumerate(stream, 1)]

    def by(x, name, bias=None):
        out = [dot(x, column) for column in zip(*W[name], strict=True)]
        return added(out, W[bias]) if bias in W else out

    def normal(x, name):
        if f"{name}.weight" not in W:
            return x
        centre = sum(x, arb(0)) / len(x)
        root = (sum(((y - centre) * (y - centre) for y in x), arb(0)) / len(x) + arb(about.get("eps", 1e-5))).sqrt()
        return [(y - centre) / root * a + b for y, a, b in zip(x, W[f"{name}.weight"], W[f"{name}.bias"], strict=True)]

    def active(y):
        if about["activation"] == "relu":
            return y.max(arb(0))
        if about["activation"] == "gelu":
            return y / 2 * (1 + (y / arb(2).sqrt()).erf())
        return y / 2 * (1 + ((2 / arb.pi()).sqrt() * (y + arb(0.044715) * y * y * y)).tanh())

    heads, i = about["n_heads"], 0
    while f"blocks.{i}.attention.W_Q" in W:
        at, rows = f"blocks.{i}.attention.", [normal(x, f"blocks.{i}.norm_1") for x in stream]
        Q, K, V = ([by(x, f"{at}W_{z}", f"{at}b_{z}") for x in rows] for z in "QKV")
        size, after = len(Q[0]) // heads, []
        if about["pe"] == "rope":
            angles = [*zip(W["cos"], W["sin"], strict=True)][shift:]
            Q, K = ([turned(x, *both, size) for x, both in zip(X, angles, strict=False)] for X in (Q, K))
        for n, x in enumerate(stream, 1):
            mixed = []
            for h in range(0, size * heads, size):
                part = slice(h, h + size)
                scores = [dot(Q[n - 1][part], k[part]) / arb(size).sqrt() for k in K[:n]]
                powers = [(y - scores[0]).exp() for y in scores]
                mixed += [dot(powers, y) / sum(powers, arb(0)) for y in zip(*(v[part] for v in V[:n]), strict=True)]
            x = added(x, by(mixed, f"{at}W_O", f"{at}b_O"))
            if f"blocks.{i}.mlp.W_in" in W:
                z = by(normal(x, f"blocks.{i}.norm_2"), f"blocks.{i}.mlp.W_in", f"blocks.{i}.mlp.b_in")
                x = added(x, by([active(y) for y in z], f"blocks.{i}.mlp.W_out", f"blocks.{i}.mlp.b_out"))
            after.append(x)
        stream, i = after, i + 1
    return [by(normal(x, "norm"), "W_U", "b_U") for x in stream][int(about["bos"]) :]


def turned(x, cos, sin, size):
    """Each head's pairs (x_i, x_(i + size/2)) turned by the angle of their place."""
    out, half = [], size // 2
    for h in range(0, len(x), size):
        a, b = x[h : h + half], x[h + half : h + size]
        out += [y * c - z * s for y, z, c, s in zip(a, b, cos, sin, strict=True)]
        out += [z * c + y * s for y, z, c, s in zip(a, b, cos, sin, strict=True)]
    return out


# ---- strings with regions


def contextual(tensors, about, c):
    """Every string of up to six tokens of the domain, token by token; longer ones only as counterexamples."""
    p, W = c["parameters"], {}
    for name, x in tensors.items():
        W[name] = matrix(x) if len(x[1]) == 2 else vector(x) if x[1] else x[2][0]
    is_placed = c["task"] in PLACED
    N, R, zeros, prompts = p["length"], p["regions"], p.get("zeros"), len(W["P"])
    exactly = p.get("exactly", R == 0)
    fewest, shortest = R if exactly else 0, 0 if W.get("bos", True) else 1
    say(exactly == (fewest == R) and p["prompts"] == prompts, "sizes")
    say(is_placed == ("positions" in W) and ("slope" in W) == (c["task"] == PLACED[0]), "the model")
    if is_placed:
        own = {"slope": W["slope"]} if "slope" in W else {"coordinates": len(W["W_Q"][0]) - 1}
        say(own.items() <= p.items() and len(W["positions"]) > N, "positions")
    say({p["dtype"]} == {DTYPES.get(x[0]) for name, x in tensors.items() if name != "bos"}, "dtype")
    regions = f"exactly {R}" if fewest == R else f"{fewest} to {R}"
    words = f"valid strings of length {shortest} to {N}, {regions} regions"
    say(c["domain"] == words + ("" if zeros is None else f", {zeros} zeros"), "the domain")

    def is_in(text):
        has = fewest <= text.count("[") <= R and (zeros is None or text.count("0") == zeros)
        has = has and shortest <= len(text) <= N
        return has and re.sub("[^][]", "", text) == "[]" * text.count("[") and not {*text} - {*"01[]"}

    def due(text):
        found = [region.count("1") for region in re.findall(r"\[(.*?)\]", text)]
        return (found + [0] * prompts)[:prompts]

    gaps, least = {}, arb(c["margin"] or 0) - c.get("slack", 0.0)
    for n in range(min(N, 5) + 1):
        for text in map("".join, product("01[]", repeat=n)):
            if is_in(text):
                for r, (k, logits) in enumerate(zip(due(text), regions_read(W, text), strict=True), 1):
                    gaps[text, r] = least_gap(logits, k)
    covered = c["inputs_covered"] if N > 5 else str(len(gaps))
    case = c["counterexample"]
    if c["verdict"] == "PROVED":
        say(c["inputs_covered"] == covered and c["margin"] > 0 and case is None, "inputs or margin")
        for item, gap in gaps.items():
            say(not gap < least, f"{item} has {gap}")
        for M, (right, wrong) in c.get("right_lengths", {}).items():
            say(0 <= int(M) <= R and (right is None or right <= N) and wrong is None, "right lengths")
        return
    text, r = case["input"], case["prompt"]
    say(c["verdict"] == "REFUTED" and c["inputs_covered"] == "1" and is_in(text) and 0 < r <= prompts, "no string")
    gap = least_gap(regions_read(W, text)[r - 1], due(text)[r - 1])
    off, least = c.get("off", 0.0), least if "off" not in c else arb(c["off"])
    say(not gap > off and not gap > least and (c["margin"] or 0) <= 0, f"{text} is right, or by another margin")
    say(case["string"] == text and case["length"] == len(text) and case["expected"] == due(text)[r - 1], "case")
    say(case["all_expected"] == due(text), "case")
    say(is_placed or case["regions"] == re.findall(r"\[.*?\]", text), "case")


def least_gap(logits, right):
    gaps = [logits[right] - x for j, x in enumerate(logits) if j != right]
    return min(gaps, key=lambda g: float(g.mid()), default=arb(10) ** 300)


def regions_read(W, text):
    """Logits of all prompts on one string."""
    tokens = [4] * W.get("bos", True) + ["01[]".index(x) for x in text]
    is_placed, sees_all = "positions" in W, "positions" in W and "slope" not in W

    def by(x, name):
        return [dot(x, column) for column in zip(*W[name], strict=True)]

    def attended(query, keys, values):
        weights = [dot(query, key).exp() for key in keys]
        return [dot(weights, column) / sum(weights, arb(0)) for column in zip(*values, strict=True)]

    def turned(x, place):
        pairs = [(x[i], x[i + 1]) for i in range(0, len(x), 2)]
        turns = zip(pairs, W["cosines"][place], W["sines"][place], strict=True)
        return [y for (a, b), c, s in turns for y in (a * c - b * s, a * s + b * c)]

    x = [added(W["E"][t], W["positions"][i]) if is_placed else W["E"][t] for i, t in enumerate(tokens)]
    queries, keys, values = ([by(row, name) for row in x] for name in ("W_Q", "W_K", "W_V"))
    if "slope" in W:  # as two more coordinates of queries and keys
        queries = [[*turned(q, i), arb(W["slope"]), arb(-i) * W["slope"]] for i, q in enumerate(queries)]
        keys = [[*turned(k, i), arb(i), arb(1)] for i, k in enumerate(keys)]
    stream = []
    for i, row in enumerate(x):
        last = len(x) if sees_all else i + 1
        seen = added(row, by(attended(queries[i], keys[:last], values[:last]), "W_O"))
        hidden = [z.max(arb(0)) for z in added(by(seen, "W_1"), W["b_1"])]
        stream.append(added(seen, by(hidden, "W_2"), W["b_2"]))
    keys, values = ([by(row, name) for row in stream] for name in ("U_K", "U_V"))
    read = [attended(by(row, "U_Q"), keys, values) for row in W["P"]]
    if "W_3" in W:
        fed = [[z.max(arb(0)) for z in added(by(z, "W_3"), W["b_3"])] for z in read]
        read = [added(z, by(f, "W_4"), W["b_4"]) for z, f in zip(read, fed, strict=True)]
    return [added(by(z, "W_out"), W["b_out"]) for z in read]


# ---- circuits


class Stored:
    """A tensor's numbers, nested as its shape says."""

    def __init__(self, tensor):
        _, shape, self.rows = tensor
        for n in reversed(shape[1:]):
            self.rows = [self.rows[i : i + n] for i in range(0, len(self.rows), n)]

    def tolist(self):
        return self.rows


def circuit(tensors, about, c):
    """Every input's chain of thought, and every gate and string."""
    p, program, n, T = c["parameters"], c["program"], about["n"], about["T"]
    is_real = c["reading"] != "bit-exact"
    s, k = about["s"] if is_real else p["s"], (n + T - 1).bit_length()
    say({x: p[x] for x in ("s", "n", "T", "k", "d")} == {"s": s, "n": n, "T": T, "k": k, "d": 3 * k + 6}, "sizes")
    say(is_real or p["precision"] == f"s{s}" and c["reading"] == "bit-exact", "the reading")
    is_wrong = c["verdict"] == "REFUTED"
    say(is_wrong or c["verdict"] == "PROVED", "the verdict")
    say(len(program["steps"]) == T and program["inputs"] in (n, n - 1), "the program")
    say(c["margin"] <= 0 if is_wrong else c["margin"] is None or 0 <= c["margin"] <= 0.5, "margin")
    state, rows = {name: Stored(x) for name, x in tensors.items()}, []
    naive = None if is_real else NaiveTransformer(state, n, T, s)
    for bits in product((0, 1), repeat=n):
        own, tokens = [*bits][: program["inputs"]], [*bits]
        for kind, *read in program["gates"]:
            own.append(gate_value(kind, [own[x] for x in read]))
        for read in program["steps"]:
            tokens.append(1 - tokens[read[0]] if len(read) == 1 else tokens[read[0]] & tokens[read[1]])
        say([tokens[x] for x in program["node_of"]] == own, "a gate's step")
        rows.append(own)
        if is_wrong:
            case = c["counterexample"]
            if case["input"] == "".join(map(str, bits)):
                last = n + case["step"]
                found = naive.generate(bits) if naive else [*bits, *next_tokens(state, tokens[:-1])[n - 1 :]]
                say(n < last <= len(tokens) and found[:last] != tokens[:last], "the step is right")
                say(case["expected"] == tokens[last - 1] == 1 - case["predicted"], "case")
                say(is_real or found[: last - 1] != tokens[: last - 1] or found[last - 1] == case["computed"], "case")
            continue
        found = naive.generate(bits) if naive else [*bits, *next_tokens(state, tokens[:-1])[n - 1 :]]
        say(found == tokens, f"the chain of thought of {bits}")
    if is_wrong:
        say(c["inputs_covered"] == "1" and len(c["counterexample"]["input"]) == n, "inputs")
    elif c["task"] == "circuit":
        say(c["inputs_covered"] == str(2 ** program["inputs"]), "inputs")
    if c["task"] == "language":
        words(c, program, [row[program["outputs"][0]] for row in rows])


def words(c, program, outputs):
    """What the automaton says of every string is what the circuit does, whose rows go through all inputs in order."""
    alphabet, length, automaton = c["parameters"]["alphabet"], c["parameters"]["length"], program["automaton"]
    width, accepted, written = max(1, (len(alphabet) - 1).bit_length()), 0, {}
    say(program["inputs"] == length * width, "symbols")
    for word in product(range(len(alphabet)), repeat=length):
        state, bits = 0, [a >> j & 1 for a in word for j in range(width)]
        for a in word:
            state = state if state == -1 else automaton["step"][state][a]
        accepted += state in automaton["accepting"]
        row = int("".join(map(str, bits)) or "0", 2)
        say(outputs[row] == (state in automaton["accepting"]), f"the string {word}")
        written["".join(map(str, bits))] = "".join(alphabet[a] for a in word)
    covered = "1" if c["verdict"] == "REFUTED" else str(len(alphabet) ** length)
    say(c["accepted"] == str(accepted) and c["inputs_covered"] == covered, "how many")
    if c["verdict"] == "REFUTED":
        case = c["counterexample"]
        say(written.get(case["input"][: length * width]) == case["string"], "the string that is wrong")
