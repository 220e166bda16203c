"""Certificates about modules in a format: evaluations drawn at random lie within the bounds, and no forgery holds."""

import dataclasses
import functools
import json
import math
import random

import pytest
from flint import arb, ctx
from models.saved_modules import as_proof, fitting, outcome, with_weights
from models.selection import first
from oracles import graph_in_dtype, graph_runs
from test_checker_modules import MODELS, at, leaves, other_values, replaced

from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import module_contract, moved, rounded_graphs, rounded_module
from verify.checker.arrays import FLOAT, WHOLE, Array
from verify.checker.formats import format_of
from verify.checker.graphs import BYTES, TracedGraph
from verify.checker.moved import Errors, MovedArray
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_tiles
from verify.checker.rounded_norms import RoundedKernels
from verify.checker.rounded_results import RoundedResults
from verify.frame.decide import certify
from verify.module.problem import ModuleProblem
from verify.module.program import program
from verify.tasks.module.task import as_bytes

READINGS = [("float64",), ("float32",), ("bfloat16", "float32"), ("bfloat16", "float32", "once"), ("p12",)]
TF32 = [("tf32",), ("tf32", "float32")]
READINGS += TF32


@functools.cache
def saved(name, reading):
    return of_module(*MODELS[name](), reading)


def of_module(module, task, reading):
    """The weights and the certificate in a reading as `verify module --save` writes them."""
    problem = ModuleProblem(module.eval(), task)
    weights = as_bytes(problem.module)
    found = certify(problem, reading_of(*reading)).about(weights)
    return weights, dataclasses.replace(found, extra={**found.extra, "program": program(problem)}).to_json()


SLOW = ("trained", "trained, bfloat16", "trained, half", "encoder")  # some seconds for an input whose errors are kept
EVERY = [(name, reading) for name in MODELS for reading in READINGS[:: 2 if name in SLOW else 1]]


@pytest.mark.parametrize(
    "name, reading",
    first(3, [("classes", READINGS[1]), ("classes", READINGS[2]), ("classes", TF32[0]), *EVERY]),
    ids=str,
)
def test_what_the_prover_says_holds(name, reading):
    weights, text = saved(name, reading)
    verdict = json.loads(text)["verdict"]
    if verdict == "UNKNOWN":
        assert outcome(weights, text)[0] == NOT_CHECKABLE
        return
    code, answer = outcome(weights, text)
    if code == NOT_CHECKABLE and name.startswith("trained") and "bfloat16" in reading:
        return  # a gap is near what the roundings may do
    assert (code, answer) == (0, verdict)
    assert graph_in_dtype.falsehood(weights, text, 2) is None


def statement(name, precision, accumulate):
    weights, text = saved(name, ("float32",))
    fmt = module_contract.OF_FACTORS if precision == "tf32" else format_of(precision)
    found = json.loads(text)["program"]
    return (
        found,
        weights,
        rounded_module.RoundedStatement(found, read_tiles(weights, BYTES)[0], fmt, format_of(accumulate) or fmt),
    )


FORMATS = [
    ("float64", None),
    ("float32", None),
    ("bfloat16", "float32"),
    ("float16", None),
    ("p12", None),
    ("p6", "p12"),
    ("tf32", None),
    ("tf32", "float32"),
]


@pytest.mark.parametrize("name, precision, accumulate, inputs, runs", first(3, [
    ("classes", *FORMATS[1], 1, 2), ("classes", *FORMATS[2], 1, 2), ("classes", *FORMATS[-1], 1, 2),
    *((name, *fmt, 1 if name in SLOW else 3, 8) for name in MODELS for fmt in FORMATS),
]), ids=str)  # fmt: skip
def test_evaluations_lie_within_the_bounds(name, precision, accumulate, inputs, runs):
    assert not outside(*statement(name, precision, accumulate), precision, accumulate, inputs, runs)


def outside(found, weights, said, precision, accumulate, inputs, runs):
    """Which drawn evaluations have a margin that is beyond all gaps that are said of their input."""
    every, tensors, left = [*graph_runs.inputs(found)], graph_runs.safetensors.torch.load(weights), []
    for said.are_kept in (False, True):
        with ctx.workprec(said.bits):
            asked = {*range(0, len(every), -(-len(every) // inputs))}
            for number, row, answered in said.decided(said.bits, asked):
                if answered is None or not all(gap.is_finite() for gap in answered.gaps):
                    continue
                _, due, columns, part = every[number]
                graph = next(graph for graph in found["graphs"] if graph["length"] == len(row))
                for seed in range(runs):
                    evaluation = graph_in_dtype.DrawnEvaluation(precision, accumulate, seed)
                    margin = graph_runs.margin(evaluation.run(graph, tensors, row), due, columns, part)
                    is_beyond = all(gap > margin for gap in answered.gaps) or any(gap < margin for gap in answered.gaps)
                    left += [(row, seed, margin)] * is_beyond
    return left


@pytest.mark.deep
def test_evaluations_in_tf32_leave_the_bounds_of_float32():
    assert outside(*statement("LayerNorm, GELU", "float32", None), "tf32", None, 1, 2)


# ---- forgeries


def forged(draw, weights, said):
    """Another weights file and certificate: weights, margins, formats, programs, or words."""
    margins = [1e-9, 0.1, 1.0, abs(said["margin"] or 1) * draw.choice([0.5, 0.999, 1.001, 1.5, 1.9, 4])]
    kind = draw.choice(["weights", "weights", "margin", "format", "program", "claim"])
    if said["tightest"] is None and said["counterexample"] is None:
        said = said | {"tightest": {"input": [*next(graph_runs.inputs(said["program"]))[0]]}}
    c = said if kind == "claim" or draw.random() < 0.2 else as_proof(said, draw.choice(margins))
    if kind == "weights":
        weights = with_weights(weights, draw)
    if kind == "format":
        p = draw.choice(
            ["p3", "p4", "p5", "p6", "p7", "p8", "p10", "p12", "p16", "bfloat16", "float16", "float32", "float64"]
        )
        accumulate = draw.choice([None, "float32"]) if p in ("bfloat16", "float16") else None
        words = (
            {"wider sums": module_contract.ASSUMED["wider sums"]}
            if accumulate
            else {"plain": module_contract.ASSUMED["plain"]}
        )
        assumed = [*rounded_module.module.TRACED, *next(iter(words.values()))]
        kept = {name: x for name, x in c["parameters"].items() if name != "accumulate"}
        parameters = {**kept, "precision": p, **({"accumulate": accumulate} if accumulate else {})}
        c = c | {"parameters": parameters, "assumptions": assumed, "reading": "dtype, any order"}
    if kind == "program":
        path = draw.choice([path for path in leaves(c["program"]) if path])
        c = c | {"program": replaced(c["program"], path, draw.choice(other_values(at(c["program"], path))))}
    if kind == "claim":
        path = draw.choice([path for path in leaves(c) if path and path[0] != "program"])
        c = replaced(c, path, draw.choice(other_values(at(c, path))))
    return weights, fitting(c, weights), kind


def is_false(weights, text, evaluations):
    """What an evaluation shows to be false, and what is no program of torch's is left out."""
    try:
        return graph_in_dtype.falsehood(weights, text, evaluations)
    except graph_runs.Lie as lie:
        return str(lie)
    except (RuntimeError, IndexError, TypeError, KeyError, ValueError, AttributeError):
        return None


FORGED = [
    (name, reading) for name in MODELS for reading in READINGS[:4] + TF32 if name not in SLOW or len(reading) == 1
]


@pytest.mark.parametrize("name, reading, seeds", first(3, [
    ("classes", READINGS[1], range(6)), ("classes", READINGS[2], range(6)), ("classes", TF32[0], range(6)),
    *((name, reading, range(6, 7 if name in SLOW else 18)) for name, reading in FORGED),
]), ids=str)  # fmt: skip
def test_no_forgery_holds_that_an_evaluation_shows_to_be_false(name, reading, seeds):
    weights, text = saved(name, reading)
    said, holds = json.loads(text), 0
    for seed in seeds:
        moved_weights, c, kind = forged(random.Random(f"{name} {reading} {seed}"), weights, said)
        code, answer = outcome(moved_weights, c)
        holds += code == 0
        assert code or is_false(moved_weights, c, 12) is None, (seed, kind, answer)


def test_forgeries_are_told():
    """A model's certificate that says PROVED of another rule, and a margin beyond what the roundings can do."""
    weights, text = saved("classes", READINGS[1])
    c = as_proof(json.loads(text), 1e-9)
    false = fitting(c | {"program": c["program"] | {"answers": {"rule": "smallest token"}}}, weights)
    assert is_false(weights, false, 2) and outcome(weights, false)[0] == 1
    weights, text = saved("classes", READINGS[2])
    for margin, code in ((1.9, 0), (2.4, 1)):
        assert outcome(weights, fitting(as_proof(json.loads(text), margin), weights))[0] == code


# ---- each bound is needed


def one(*numbers):
    return Array(FLOAT, (len(numbers),), [[*map(arb, numbers)]])


def computed(*numbers):
    return MovedArray(one(*numbers), {})


def kernels(precision="p4", inner=None, are_kept=False, is_one_norm=False):
    return RoundedKernels(format_of(precision), format_of(inner or precision), are_kept, is_one_norm)


def holds(x, *numbers):
    """Whether all of these lie in the hull; what is no number holds all."""
    return all(not (v < n or v > n) for v, n in zip(x.hull.rows[0], numbers, strict=True))


def spread(centre, by):
    """Numbers that one error moves, and what its effect leaves of other errors, for each of its values."""
    errors = Errors(True)
    x = errors.widened(MovedArray(one(*centre), {}), one(by[0], *[0] * (len(by) - 1)))
    name = next(iter(x.moved))
    return errors, MovedArray(x.mid, {name: one(*by).rows[0]}), name


def follows(found, name, numbers, eps):
    """Whether numbers are those of one value of an error, but for what the others may do."""
    rest = MovedArray(found.mid, {i: row for i, row in found.moved.items() if i != name})
    rows = zip(rest.hull.rows[0], found.moved.get(name, [arb(0)] * len(numbers)), numbers, strict=True)
    return all(not (v + eps * g < n or v + eps * g > n) for v, g, n in rows)


def is_refused(function):
    try:
        function()
    except Refusal:
        return True
    return False


def is_no_number(x):
    return not any(v.is_finite() for v in x.hull.rows[0])


def column(*numbers):
    return MovedArray(Array(FLOAT, (len(numbers), 1), [[*map(arb, numbers)]]), {}, True)


def row(*numbers):
    return MovedArray(Array(FLOAT, (1, len(numbers)), [[*map(arb, numbers)]]), {}, True)


def with_bias():
    at = kernels("p8")
    found = at.matrices(row(*[1.0] * 10), column(*[0.9921875] * 10), bias=computed(256.0))
    return holds(found, 256.0)  # which swallows each of them


def norm_of(*numbers):
    return kernels("p8").layer_norm(row(*numbers), [len(numbers)], None, None, 1e-5)[0]


def least():
    """A gain of the smallest normal number."""
    return MovedArray(one(TWO**-126, TWO**-126), {}, True)


def twice_the_same():
    """Whether two equal numbers of a row may be computed unlike, one from the mean as rounded, one as kept."""
    found = kernels("p16", are_kept=True).layer_norm(row(100.0, 100.0, -101.0), [3], None, None, 1e-5)[0]
    apart = sum((abs(g[0] - g[1]) for g in found.moved.values()), arb(0))
    return apart > TWO**-16


def follow_function():
    errors, x, name = spread([0.0], [1.0])
    found = errors.function(arb.exp, arb.exp, x)
    return all(follows(found, name, [math.exp(e)], e) for e in (-1.0, 1.0))


def follow_product():
    errors, x, name = spread([1.0], [1.0])
    found = errors.product(rounded_graphs.TIMES, x, x)
    return all(follows(found, name, [(1 + e) ** 2], e) for e in (-1.0, 1.0))


def follow_relu():
    errors, x, name = spread([0.25], [1.0])
    return all(follows(errors.relu(x), name, [max(0.25 + e, 0)], e) for e in (-1.0, -0.25, 1.0))


def follow_softmax():
    errors, x, name = spread([0.0, 0.0], [1.0, -1.0])
    found = errors.softmax(x, -1, lambda distance: arb(0), arb(0))
    return all(follows(found, name, [1 / (1 + math.exp(-2 * e)), 1 / (1 + math.exp(2 * e))], e) for e in (-1.0, 1.0))


def loose_softmax():
    found = Errors(False).softmax(
        MovedArray(Array(FLOAT, (2,), [[arb(0, 0.5), arb(0, 0.5)]]), {}), -1, lambda d: arb(0), arb(0)
    )
    return holds(found, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)))


def own_share():
    found = Errors(False).softmax(computed(0, 0), -1, lambda d: arb(0.25), arb(0))
    return holds(found, 1.25 / 2, 0.75 / 2)


def two_readers():
    at = kernels("p4", "float32", are_kept=True)
    x = computed(1.0625)
    first_, second = at.read(x), at.errors.linear(rounded_graphs.OPERATIONS["neg"], at.read(x))
    return holds(at.plus(first_, second), 0.0625) and holds(at.plus(first_, second), -0.0625)


def follower(precision):
    found = rounded_graphs.RoundedFollower.__new__(rounded_graphs.RoundedFollower)
    found.at = kernels(precision)
    return found


def narrower(dtype, precision="float32"):
    """A sum of float32 that is asked for in another format."""
    table = {"op": "stored", "shape": [2], "dtype": "float32", "name": "E"}
    total = {"op": "aten.sum.dim_IntList", "args": [{"node": 0}, [0]], "kwargs": {"dtype": dtype}}
    graph = TracedGraph(1, [table, {**total, "shape": [], "dtype": dtype}], 1, {})
    return is_refused(lambda: rounded_graphs.RoundedFollower(graph, 64, kernels(precision)))


def attended(q, *values, keys, scale=None, precision="float16"):
    """Attention of a query to two keys."""
    columns = MovedArray(Array(FLOAT, (2, len(keys) // 2), [[*map(arb, keys)]]), {}, True)
    return kernels(precision).attention(row(*q), columns, column(*values), scale=scale)


def factors(*numbers):
    """Stored numbers, in tf32."""
    return RoundedKernels(module_contract.OF_FACTORS, format_of("float32"), False, False).stored(one(*numbers))


TWO, LARGE = 2.0, 2.0**127
CASES = {
    "a product is infinite, and others may add up to infinity the other way": (
        RoundedResults,
        "matrices",
        "self.finite(self.times(op, x, y, ADDED(self.terms(op, x, y), 1 + more), stored), size)",
        "self.times(op, x, y, ADDED(self.terms(op, x, y), 1 + more), stored)",
        lambda: holds(kernels().matrices(row(1.0, 1.0, 1.0), column(LARGE, LARGE, -math.inf)), math.inf),
    ),
    "a term of a sum is infinite": (
        rounded_graphs.RoundedFollower,
        "sums",
        "self.at.finite(self.at.left(found, size, n, stored), size)",
        "self.at.left(found, size, n, stored)",
        lambda: holds(follower("p4").sums(rounded_graphs.summed, 0, row(LARGE, LARGE, -math.inf)), math.inf),
    ),
    "a stored number is a factor of fewer bits": (
        RoundedResults,
        "stored",
        "once.as_factor(once.closest(*scaled(float(v))))",
        "[once.closest(*scaled(float(v)))]",
        lambda: holds(factors(1 + TWO**-12), 1.0) and holds(factors(1 + TWO**-11), 1 + TWO**-10),
    ),
    "a stored number is no factor": (
        RoundedResults,
        "stored",
        "once = TF32 if self.fmt.factors else self.fmt",
        "once = self.fmt",
        lambda: holds(factors(1 + TWO**-12), 1 + TWO**-12) and not holds(factors(1 + TWO**-12), 1 + TWO**-11),
    ),
    "a factor overflows": (
        RoundedResults,
        "stored",
        "require(all(map(math.isfinite, found))",
        "require(math.isfinite(found[0])",
        lambda: is_refused(lambda: factors(LARGE * (2 - TWO**-20))),
    ),
    "a result is rounded": (
        RoundedResults,
        "off",
        "off = half +",
        "off =",
        lambda: holds(kernels().read(computed(1.0625)), 1.0),
    ),
    "a result is kept, and then rounded": (
        RoundedResults,
        "off",
        "+ size * self.kept",
        "",
        lambda: holds(kernels().read(computed(1.0625 + TWO**-11)), 1.0),
    ),
    "a result is flushed": (
        RoundedResults,
        "off",
        "+ self.fmt.tiny",
        "",
        lambda: holds(kernels().read(computed(TWO**-127)), 0.0),
    ),
    "a result overflows": (
        RoundedResults,
        "off",
        "if size + off <= self.fmt.largest",
        "if True",
        lambda: is_no_number(kernels().read(computed(1.99 * LARGE))),
    ),
    "a result is read": (
        RoundedResults,
        "read",
        "if x.is_stored",
        "if True",
        lambda: holds(kernels().read(computed(1.0625)), 1.0),
    ),
    "weights are rounded": (
        RoundedResults,
        "stored",
        "once.closest(*scaled(float(v)))",
        "float(v)",
        lambda: holds(kernels().stored(one(1.0625)), 1.0),
    ),
    "weights are flushed": (
        RoundedResults,
        "stored",
        "[*found, 0.0]",
        "found",
        lambda: holds(kernels().stored(one(TWO**-127)), 0.0),
    ),
    "weights overflow": (
        RoundedResults,
        "stored",
        "require(all(map(math.isfinite, found))",
        "require(True",
        lambda: is_refused(lambda: kernels().stored(one(1.99 * LARGE))),
    ),
    "numbers are rounded": (
        RoundedResults,
        "number",
        "if is_there",
        "if True",
        lambda: holds(kernels().number(1.0625), 1.0),
    ),
    "subnormal numbers are flushed": (
        RoundedResults,
        "_is_normal",
        "abs(x) >= 2.0**self.fmt.least and",
        "",
        lambda: holds(kernels().number(TWO**-127), 0.0),
    ),
    "each sum is rounded": (
        RoundedResults,
        "matrices",
        "ADDED(self.terms(op, x, y), 1 + more)",
        "1",
        lambda: holds(kernels().matrices(row(*[1.0] * 9), column(1.0, *[0.0625] * 8)), 1.0),
    ),
    "the format of sums rounds": (
        RoundedResults,
        "left",
        "(1 + self.v) ** n * ",
        "",
        lambda: holds(kernels().plus(computed(1.0), computed(0.0625)), 1.0),
    ),
    "what is stored is rounded": (
        RoundedResults,
        "left",
        "* (1 + self.u) ** stored",
        "",
        lambda: holds(kernels("p4", "float32").left(computed(4.25), one(4.25), 4, 3), 4.0),
    ),
    "products underflow": (
        RoundedResults,
        "left",
        "(least + more)",
        "more",
        lambda: holds(kernels().times(rounded_graphs.TIMES, computed(TWO**-100), computed(TWO**-100)), 0.0),
    ),
    "sums overflow": (
        RoundedResults,
        "left",
        "if most + found <= top",
        "if True",
        lambda: is_no_number(kernels().matrices(row(1.0, 1.0, -1.0), column(LARGE, LARGE, LARGE))),
    ),
    "a bias is the first term": (RoundedResults, "with_bias", "bias.size, terms + 1", "bias.size, 0", with_bias),
    "functions are off": (
        RoundedResults,
        "of_function",
        "/ (1 - ULPS * u)",
        "",
        lambda: holds(kernels("p8").function("exp", computed(1.0)), math.e * (1 + 7.9 / 256)),
    ),
    "a root's inverse is rounded": (
        RoundedResults,
        "of_function",
        "(1 + once) ** more",
        "1",
        lambda: holds(kernels("p8").function("rsqrt", computed(1.0), 4), (1 / (1 - 8 / 256)) * (1 + 3 / 256)),
    ),
    "a computed exponential is off in a softplus": (
        RoundedResults,
        "softplus",
        "(1 + once / (1 - once)) * (1 + once) - 1",
        "once",
        lambda: holds(
            kernels("p8").softplus(computed(-3.0)), math.log1p(math.exp(-3.0) * (1 + 7.9 / 256)) * (1 + 7.9 / 256)
        ),
    ),
    "a softplus of more than 20 is its argument": (
        RoundedResults,
        "softplus",
        "ZERO if hull <= BEYOND else",
        "ZERO if True else",
        lambda: holds(kernels("float64").softplus(computed(20.5)), 20.5),
    ),
    "an exponential in a softplus overflows": (
        RoundedResults,
        "softplus",
        "not 2 * hull.upper().min(BEYOND).exp() <= self.fmt.largest or",
        "",
        lambda: is_no_number(kernels("float16").softplus(computed(11.5))),
    ),
    "an exponential in a softplus underflows": (
        RoundedResults,
        "softplus",
        "+ 2 * self.fmt.tiny * (1 + share)",
        "",
        lambda: holds(kernels("float16").softplus(computed(-12.0)), 0.0),
    ),
    "functions overflow": (
        RoundedResults,
        "function",
        "if 2 * most <= self.fmt.largest",
        "if True",
        lambda: is_no_number(kernels().function("exp", computed(89.0))),
    ),
    "an inverse overflows": (
        RoundedResults,
        "quotient",
        "if v * (1 + self.u) <= top",
        "if True",
        lambda: is_no_number(kernels("float16").quotient(computed(TWO**-14), computed(TWO**-17))),
    ),
    "an inverse underflows": (
        RoundedResults,
        "quotient",
        "2 * self.fmt.tiny * (1 + v)",
        "0 * v",
        lambda: holds(kernels("float16").quotient(computed(1000.0), computed(20000.0)), 0.0),
    ),
    "what is no number stays so": (
        moved,
        "around",
        "middle if off == 0 else",
        "middle if not off != 0 else",
        lambda: not moved.around(arb(1), arb("nan")).is_finite(),
    ),
    "errors that are no number": (
        Errors,
        "widened",
        'm if e.is_finite() else arb("nan")',
        "m",
        lambda: is_no_number(Errors(True).widened(computed(1.0), Array(FLOAT, (1,), [[arb("nan")]]))),
    ),
    "slopes differ": (Errors, "function", "(abs(s - m) * r).upper()", "0 * r", follow_function),
    "both factors move": (Errors, "product", "if x.moved and y.moved", "if False", follow_product),
    "ReLU bends": (Errors, "relu", "(HALF * g).upper()", "0 * g", follow_relu),
    "ReLU lies above its line": (Errors, "relu", "v + HALF * g", "v", follow_relu),
    "softmax bends": (moved, "_weights", "phi[j].max(spread * grown[j])", "0", follow_softmax),
    "scores are balls": (moved, "_weights", "(extra[j] + ", "(", loose_softmax),
    "exponentials are off": (moved, "_weights", " + own)", ")", own_share),
    "two read one result": (Errors, "widened", "next(self.numbers)", "i", two_readers),
    "arguments of exponentials are rounded": (
        RoundedKernels,
        "softmax",
        "self.u * distance + small",
        "small",
        lambda: holds(
            kernels("p4", "float32").softmax(MovedArray(one(10.0, -9.0), {}, True), -1, arb(0)), 1.0, math.exp(-20)
        ),
    ),
    "a variance is rounded": (
        RoundedKernels,
        "layer_norm",
        "variance = off_by(squares, square, 4 * d + 16)",
        "variance = squares",
        lambda: holds(norm_of(100.0, 101.0), -158.0, 158.0),
    ),
    "numbers of LayerNorm are rounded one by one": (
        RoundedKernels,
        "layer_norm",
        "4 if W == 1",
        "0 if W == 1",
        twice_the_same,
    ),
    "a product of LayerNorm underflows": (
        RoundedKernels,
        "layer_norm",
        "* s * W + b) + lost",
        "* s * W + b)",
        lambda: holds(kernels("p8").layer_norm(row(1.0, -1.0), [2], least(), None, 1e-5)[0], 0.0, 0.0),
    ),
    "the terms of a sum that are not 0 are rounded": (
        RoundedResults,
        "terms",
        "int(not v == 0)",
        "int(v == 0)",
        lambda: holds(kernels().matrices(row(*[1.0] * 9), column(1.0, *[0.0625] * 8)), 1.0),
    ),
    "a variance is off by more than its roundings": (
        RoundedKernels,
        "layer_norm",
        "gamma(n, w)",
        "((1 + w) ** n - 1)",
        lambda: holds(norm_of(*[1.0, -1.0] * 12), *[2.12, -2.12] * 12),
    ),
    "a score is no number": (
        moved,
        "_is_masked",
        "bool(score == MINUS_INFINITY)",
        "not score != MINUS_INFINITY",
        lambda: is_no_number(kernels().softmax(computed(math.nan, 1.0), -1, arb(0))),
    ),
    "what masks a score is no number": (
        moved,
        "_is_masked",
        "d.is_finite()",
        "True",
        lambda: is_no_number(
            Errors(True).softmax(
                MovedArray(one(-math.inf, 1.0), {0: one(math.nan, 0.0).rows[0]}), -1, lambda d: arb(0), arb(0)
            )
        ),
    ),
    "a bias overflows as the first term": (
        RoundedResults,
        "with_bias",
        "self.within(found, ADDED(size, bias.size), terms + 1)",
        "found",
        lambda: is_no_number(
            kernels("float16").matrices(row(3e4, -3e4), column(1.0, 1.0), bias=row(4e4)),
        ),
    ),
    "the sum of a mean overflows": (
        rounded_graphs.RoundedFollower,
        "sums",
        "if op is mean",
        "if False",
        lambda: is_no_number(follower("float16").sums(rounded_graphs.mean, 3, row(*[5e4] * 4))),
    ),
    "the squares of RMSNorm overflow": (
        RoundedKernels,
        "rms_norm",
        "average = self.within(average, TIMES(average_of(squares.size), d), d)",
        "pass",
        lambda: is_no_number(kernels("float16").rms_norm(row(*[200.0] * 4), [4], None, 1e-3)[0]),
    ),
    "the squares of LayerNorm overflow": (
        RoundedKernels,
        "layer_norm",
        "variance = self.within(variance, TIMES(ADDED(square, 1), d), 4 * d + 16)",
        "pass",
        lambda: is_no_number(kernels("float16").layer_norm(row(*[200.0, -200.0] * 2), [4], None, None, 1e-3)[0]),
    ),
    "a query underflows as it is scaled": (
        RoundedKernels,
        "attention",
        "4 * self.fmt.tiny * size",
        "0 * size",
        lambda: holds(attended([TWO**-14] * 4, 1.0, 0.0, keys=[16000.0] * 4 + [0.0] * 4), 0.5),
    ),
    "a query overflows as it is scaled": (
        RoundedKernels,
        "attention",
        "scores = self.within(scores, loud, d + 8)",
        "pass",
        lambda: is_no_number(attended([TWO**88], 1.0, 1.0, keys=[0.0, 0.0], scale=TWO**40, precision="float32")),
    ),
    "values overflow before they are divided": (
        RoundedKernels,
        "attention",
        "self.within(found, product_of(undivided, v.size), (ULPS + 3) * (n + 1))",
        "found",
        lambda: is_no_number(attended([1.0], 4e4, 4e4, keys=[1.0, 1.0])),
    ),
    "an error is a ball round zero": (
        Errors,
        "widened",
        "e.upper() for i, e in enumerate(off.balls[0]) if e.upper() != 0",
        "e for i, e in enumerate(off.balls[0]) if e != 0",
        lambda: holds(Errors(True).widened(computed(1.0), Array(FLOAT, (1,), [[arb(0, 0.5)]])), 1.5),
    ),
    "padding has a name": (
        rounded_graphs.RoundedFollower,
        "moved",
        "and not options",
        "",
        lambda: is_refused(lambda: follower("p4").moved("constant_pad_nd", computed(1.0), [0, 1], value=0.9)),
    ),
    "few bits": (
        rounded_graphs,
        "check_widths",
        "own[0] >= min(fmt.p, p) and ",
        "",
        lambda: narrower("bfloat16") and not narrower("float64"),
    ),
    "a small range": (
        rounded_graphs,
        "check_widths",
        " and own[1] >= min(fmt.most, most)",
        "",
        lambda: narrower("float16", "p8") and not narrower("bfloat16", "p8"),
    ),
    "whole numbers in few bits": (
        rounded_graphs.RoundedFollower,
        "cast",
        "not is_narrow or",
        "True or",
        lambda: is_refused(lambda: follower("float32").cast(Array(WHOLE, (1,), [[257]]), "bfloat16")),
    ),
    "whole numbers that a cast rounds": (
        rounded_graphs.RoundedFollower,
        "cast",
        "require(is_kept",
        "require(True",
        lambda: is_refused(lambda: follower("float64").cast(Array(WHOLE, (1,), [[2**24 + 1]]), "float32")),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_bound_is_needed(name):
    owner, function, right, wrong, case = CASES[name]
    assert case()
    with planted(owner, function, right, wrong):
        assert not case()
