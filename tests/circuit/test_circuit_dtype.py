"""Circuits in floating point and in real arithmetic, against runs in any order, enumeration, and planted faults."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from models.circuits import EPFL, ISCAS, inputs, mutate, path_of, random_circuit
from models.selection import every, first
from oracles.circuit import gate_values
from oracles.circuit_machine import LooseMachine

from constructions.circuit_simulation import build
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.circuits.files import read_circuit
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.readings import Rounded
from verify.arithmetic.rounding import rounded
from verify.frame.certificate import READING_DTYPE, READING_REAL, Verdict
from verify.tasks.circuit import attention as circuit_attention
from verify.tasks.circuit import rounding as circuit_rounding
from verify.tasks.circuit.attention import Attention, ScoreError, UnboundedSteps, attention
from verify.tasks.circuit.dtype import arithmetic_of, certify
from verify.tasks.circuit.forward import next_tokens, runs_of, stored_weights
from verify.tasks.circuit.proof import smallest_bits
from verify.tasks.circuit.retrieval import PlacedVectors
from verify.tasks.circuit.rounding import RoundedSteps, distance
from verify.tasks.circuit.steps import NONE

COARSE = ("p4", "p5", "p6", "bfloat16", "float16", "e4m3", "e5m2", "p14")
KERNELS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def rough(model, rng):
    """Weights that no format holds: nearly those of the theorem."""
    for weights in model.state_dict().values():
        weights *= 1 + 0.02 * torch.from_numpy(np.random.default_rng(rng.randrange(10**6)).normal(size=weights.shape))


def random_transformer(rng):
    """A small circuit and its transformer, as built, mutated or rough."""
    decomposition = decompose(random_circuit(rng, rng.randrange(1, 4), rng.randrange(1, 4)))
    model = build(decomposition.circuit, s=rng.choice([1, 2, 2, 3, 4, 5]))
    kind = rng.choice(["built", "mutated", "rough"])
    for _ in range(rng.choice([1, 2]) if kind == "mutated" else 0):
        mutate(model, rng)
    if kind == "rough":
        rough(model, rng)
    return decomposition, model


def escaped(seed):
    """How many readouts of loose runs were compared with their ends, and how many lie outside."""
    rng = random.Random(seed)
    decomposition, model = random_transformer(rng)
    fmt = format_named(rng.choice(COARSE))
    reading = Rounded(fmt, FORMATS["float32"] if fmt.p < 14 and rng.random() < 0.4 else None)
    W, n, N = stored_weights(model, fmt), model.n, model.n + model.T - 1
    if not model.T:
        return 0, 0
    with np.errstate(all="ignore"):
        try:
            steps = RoundedSteps(W, n, model.lanes, arithmetic_of(reading))
            p = np.arange(n - 1, N)
            ends = np.array([(low, high) for _, low, high in steps.cases(p)])
        except UnboundedSteps:
            return 0, 0
    plain, known = {name: w.tolist() for name, w in W.items()}, [p, *steps.nodes(p)]
    compared = outside = 0
    for bits in inputs(n):
        tokens = decomposition.circuit.evaluate(bits)
        for drift in (0, 0, 1, -1):
            machine = LooseMachine(fmt, reading.accumulate or fmt, rng, drift)
            g = machine.readouts(plain, tokens[:N])
            for i, position in enumerate(p.tolist()):
                case = sum((0 if node[i] == NONE else tokens[node[i]]) << 3 - j for j, node in enumerate(known))
                low, high = ends[case, :, i]
                compared += np.isfinite(high - low)
                outside += not low <= g[position] <= high
    return compared, outside


@pytest.mark.parametrize("seeds", first(1, [range(4), range(4, 15)]))
@pytest.mark.parametrize("part", first(1, range(4)))
def test_every_readout_of_a_loose_run_is_between_its_ends(part, seeds):
    total = np.array([escaped(f"{part} {seed}") for seed in seeds]).sum(0)
    assert total[0] > 25 * len(seeds) and total[1] == 0


@pytest.mark.deep
@pytest.mark.parametrize("part", range(20))
def test_every_readout_of_a_loose_run_is_between_its_ends_at_length(part):
    assert sum(escaped(f"deep {part} {seed}")[1] for seed in range(200)) == 0


def rough_addresses(rng, fmt):
    """Queries and keys like the theorem's, most of them a little off; some positions have two of each."""
    k, N = rng.randrange(1, 5), rng.randrange(2, 9)
    B, off = rng.choice([0.5, 1.5, 3.75, 7.875, 16.0]), rng.choice([0.0, 0.02, 0.2])
    normal = np.random.default_rng(rng.randrange(10**6)).normal

    def rows(numbers, scale):
        position = np.repeat(np.arange(N), [rng.choice([1, 1, 2]) for _ in range(N)])
        signs = 2.0 * (np.array(numbers)[position, None] >> np.arange(k) & 1) - 1
        vectors = np.stack([signs * scale, np.full_like(signs, -scale if scale > 1 else 1)], 2).reshape(-1, 2 * k)
        vectors = rounded(vectors * (1 + off * normal(size=vectors.shape)), fmt)
        return PlacedVectors(Ball(vectors, np.zeros_like(vectors)), position)

    queries = rows([rng.randrange(p + 1) for p in range(N)], 1.0)
    return queries, rows(range(N), B), N


def attention_escaped(seed):
    """How many loose softmaxes were compared with their leak, and how many leak more or retrieve another position."""
    rng = random.Random(seed)
    fmt = format_named(rng.choice(COARSE))
    at = arithmetic_of(Rounded(fmt, FORMATS["float32"] if fmt.p < 14 and rng.random() < 0.4 else None))
    queries, keys, N = rough_addresses(rng, fmt)
    try:
        with np.errstate(all="ignore"):
            found = attention(at, queries, keys, N)
    except UnboundedSteps:
        return 0, 0
    compared = outside = 0
    for q, p in zip(queries.vectors.mid.tolist(), queries.position.tolist(), strict=True):
        clear = found.clear[p]
        if clear == NONE:
            continue
        chosen = {r: rng.choice(np.flatnonzero(keys.position == r)) for r in range(p + 1)}
        for spread in (0, 1):
            machines = [LooseMachine(fmt, at.inner, rng, -spread if r == clear else spread) for r in chosen]
            S = [machine.dot(q, keys.vectors.mid[chosen[r]].tolist()) for r, machine in enumerate(machines)]
            e = [m.exp(m.stored(m.result(s - S[clear], at.inner))) for s, m in zip(S, machines, strict=True)]
            compared += 1
            outside += max(S) > S[clear] or sum(e) - 1 > found.leak[p]
    return compared, outside


@pytest.mark.parametrize("part", first(1, range(4)))
def test_every_loose_softmax_leaks_no_more_than_its_bound(part):
    total = np.array([attention_escaped(f"{part} {seed}") for seed in range(250)]).sum(0)
    assert total[0] > 500 and total[1] == 0


def without(name):
    """A score error that lacks one of its parts."""
    old = ScoreError.of.__func__
    return classmethod(lambda cls, at, q, k: replace(old(cls, at, q, k), **{name: 0.0}))


def no_leak(at, queries, keys, positions):
    found = attention(at, queries, keys, positions)
    return Attention(found.clear, np.zeros(positions))


PLANTED = {
    "the leak is zero": (circuit_rounding, "attention", no_leak),
    "small terms do not count": (circuit_rounding, "small_sum", lambda at, size, terms: 0 * size),
    "growth is a quarter": (
        RoundedArithmetic,
        "growth",
        lambda self, n, m=1, old=RoundedArithmetic.growth: old(self, n, m) / 4,
    ),
    "results are not rounded": (RoundedArithmetic, "result", lambda self, x: x),
    "what is stored is not rounded before a sum": (RoundedArithmetic, "product_and", RoundedArithmetic.product),
    "the retrieved position has all the weight": (
        circuit_rounding,
        "weights",
        lambda at, found, old=circuit_rounding.weights: old(at, Attention(found.clear, 0 * found.leak)),
    ),
}
PLANTED["a mean is that of the extremes"] = (
    circuit_rounding,
    "mean",
    lambda at, N, least, most, low, high: ((least + most) / 2, (least + most) / 2, np.abs(most)),
)
PLANTED_IN_SOFTMAX = {
    "scores are exact": (ScoreError, "of", without("absolute")),
    "scores are stored exactly": (ScoreError, "of", without("relative")),
    "exponentials are exact": (circuit_attention, "computed_exponentials", lambda at, total, others: total),
    "differences are exact": (ScoreError, "of_difference", lambda self, at, top: (0 * np.asarray(top), 1.0)),
    "tables leak nothing": (circuit_attention, "table", lambda *a, old=circuit_attention.table: (old(*a)[0], 0.0)),
    "lanes leak a tenth": (
        circuit_attention,
        "by_addresses",
        lambda *a, old=circuit_attention.by_addresses: (old(*a)[0], old(*a)[1] / 10),
    ),
}


QUICKLY_CAUGHT = ("1 12", "1 0", "0 1", "0 13")  # these runs escape from one of the planted bounds each
ALL_RUNS = tuple(f"{part} {seed}" for part in range(10) for seed in range(15))


@pytest.mark.parametrize("seeds", first(1, [(QUICKLY_CAUGHT,), (ALL_RUNS,)]))
@pytest.mark.parametrize("fault", every(10, PLANTED))
def test_a_bound_that_is_too_small_is_caught(fault, seeds, monkeypatch):
    where, name, wrong = PLANTED[fault]
    monkeypatch.setattr(where, name, wrong)
    assert any(escaped(seed)[1] for seed in seeds)


@pytest.mark.parametrize("fault", PLANTED_IN_SOFTMAX)
def test_a_leak_that_is_too_small_is_caught(fault, monkeypatch):
    where, name, wrong = PLANTED_IN_SOFTMAX[fault]
    monkeypatch.setattr(where, name, wrong)
    assert any(attention_escaped(f"{part} {seed}")[1] for part in range(4) for seed in range(250))


@pytest.mark.parametrize("drift", [1, -1, 0])
def test_a_sum_of_one_number_of_the_format_and_small_terms(drift):
    """Each partial sum is rounded to the worst of three formats: off by at most 8 times the small terms."""
    coarse, finer, finest = (format_named(f"p{p}") for p in (3, 8, 18))
    most = 0.0
    for seed in range(300):
        rng = random.Random(f"{drift} {seed}")
        machine, z = LooseMachine(coarse, finer, rng, drift), rng.choice([1.0, 0.0, 1.75, -3.0])
        sizes = [2.0 ** -rng.randrange(2, 22) * rng.uniform(0.5, 1) for _ in range(rng.randrange(1, 60))]
        small = [size * (rng.choice([-1, 1]) if seed % 2 else 1) for size in sizes]
        total = z
        for term in small:
            allowed = [machine.near(total + term, fmt) for fmt in (coarse, finer, finest)]
            total = machine.chosen(allowed if seed % 3 else allowed[: rng.randrange(1, 4)])
        most = max(most, abs(total - z) / sum(sizes))
        assert abs(total - z) <= 2.0**circuit_rounding.FORMATS_OF_A_SUM * sum(sizes)
    assert most > 1.5 or drift < 0  # rounding does add something


def reading_of(name, accumulates):
    fmt = None if name == "real" else format_named(name)
    return fmt, FORMATS["float32"] if accumulates and name not in ("real", "float64", "float32", "tf32") else None


def fails_somewhere(model, circuit, fmt, accumulate):
    """Whether any run on any input has a wrong token."""
    right = np.array([circuit.evaluate(bits) for bits in inputs(model.n)])
    runs = runs_of(fmt, accumulate, model.n + model.T - 1)
    return any((next_tokens(model, fmt, run, right[:, :-1]) != right[:, 1:])[:, model.n - 1 :].any() for run in runs)


FORMAT_NAMES = ("float64", "float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2", "p3", "p6", "p14", "real")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("bfloat16", "real") else pytest.mark.deep) for name in FORMAT_NAMES],
)
@pytest.mark.parametrize("seeds", first(1, [range(4), range(4, 32)]))
def test_proved_circuits_compute_every_gate_in_every_run(name, seeds, monkeypatch):
    """All inputs of random circuits, as built, mutated and rough, by torch and by orders in turn."""
    seen, checked = Counter(), 0
    for seed in seeds:
        rng = random.Random(f"{name} {seed}")
        decomposition, model = random_transformer(rng)
        fmt, accumulate = reading_of(name, seed % 2)
        ways = list(runs_of(fmt, accumulate, 1))
        monkeypatch.setattr("verify.tasks.circuit.dtype.runs_of", lambda *_, w=ways[:1]: iter(w))
        certificate = certify(model, decomposition, fmt=fmt, accumulate=accumulate)
        seen[certificate.verdict] += 1
        if certificate.verdict is Verdict.PROVED and model.T:
            right = np.array([decomposition.circuit.evaluate(bits) for bits in inputs(model.n)])
            for run in (ways[0], ways[seed % len(ways)]):
                computed = next_tokens(model, fmt, run, right[:, :-1])
                assert (computed == right[:, 1:])[:, model.n - 1 :].all(), (seed, run)
                checked += 1
    assert seen[Verdict.PROVED] > len(seeds) / 5 and checked > len(seeds) / 3
    assert seen[Verdict.PROVED] < len(seeds) or len(seeds) < 20


@pytest.mark.parametrize("seeds", first(1, [range(8), range(8, 50)]))
@pytest.mark.parametrize("name", first(2, ("float32", "bfloat16", "float64", "float16")))
def test_proved_circuits_generate_every_gate_in_torch(name, seeds, device):
    """Hundreds of circuits: the chain of thought that torch generates, on all inputs."""
    proved = 0
    for seed in seeds:
        rng = random.Random(f"torch {name} {seed}")
        decomposition = decompose(random_circuit(rng, rng.randrange(1, 5), rng.randrange(1, 6)))
        model = build(decomposition.circuit, s=rng.choice([2, 3, 4, 6, 9]))
        if seed % 3 == 0:
            rough(model, rng)
        certificate = certify(model, decomposition, fmt=FORMATS[name])
        if certificate.verdict is Verdict.PROVED:
            proved += 1
            tokens = model.to(device, KERNELS[name]).generate(torch.tensor(inputs(model.n), device=device))
            assert tokens.tolist() == [decomposition.circuit.evaluate(bits) for bits in inputs(model.n)], seed
    assert proved > 0.6 * len(seeds)


@pytest.mark.parametrize("seeds", first(1, [range(6), range(6, 50)]))
def test_refuted_circuits_fail_where_the_certificate_says(seeds):
    refuted = 0
    for seed in seeds:
        rng = random.Random(f"refuted {seed}")
        decomposition, model = random_transformer(rng)
        mutate(model, rng)
        name = rng.choice(["float32", "bfloat16", "real"])
        fmt, _ = reading_of(name, False)
        example = certify(model, decomposition, fmt=fmt).counterexample
        if example is None:
            continue
        refuted += 1
        bits = [int(digit) for digit in example["input"]]
        gates = [(gate.kind, gate.fan_in) for gate in decomposition.circuit.gates]
        gate, wanted = model.n + example["step"] - 1, gate_values(gates, bits)
        assert wanted[gate] == example["expected"] and decomposition.circuit.name_of(gate) == example["gate"]
        if example["run"].startswith(("torch", "real")):
            tokens = model.to(KERNELS.get(name, torch.float64)).generate(torch.tensor([bits]))[0].tolist()
            assert tokens[:gate] == wanted[:gate] and tokens[gate] != wanted[gate]
    assert refuted > len(seeds) / 8


def table_of_formats():
    """The table of docs/circuit.md: for each circuit, the fewest bits by (format, accumulation); None for a dash."""
    page = (Path(__file__).parents[2] / "docs" / "circuit.md").read_text()
    head, _, *rows = re.findall(r"^\|.*\|$", page[page.index("| circuits | k |") :], re.M)[:5]
    columns = [cell.strip() for cell in head.strip("|").split("|")][2:-1]
    for row in rows:
        names, _, *cells, _ = (cell.strip() for cell in row.strip("|").split("|"))
        found = {}
        for column, cell in zip(columns, cells, strict=True):
            both = re.fullmatch(r"(\d+|-)(?: \((\d+)\))?", cell).groups()
            for name in column.split(", "):
                found[name, None] = None if both[0] == "-" else int(both[0])
            if both[1]:
                found[column, "float32"] = int(both[1])
        yield from ((name, found) for name in names.split(", "))


TABLE = dict(table_of_formats())


def test_the_table_of_formats_names_all_circuits():
    assert set(TABLE) == set(ISCAS + EPFL) and all(len(found) == 12 for found in TABLE.values())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "c17" else pytest.mark.deep) for name in TABLE]
)
@pytest.mark.deep
def test_published_circuits_survive_the_formats_of_the_table(name):
    """As in docs/circuit.md; five significant bits, and two with sums in float32, are enough."""
    circuit = read_circuit(path_of(name))
    decomposition = decompose(circuit)
    found = {key: s for key, s in TABLE[name].items() if s is not None and key[0] not in ("float64", "tf32")}
    for (fmt, accumulate), s in {**found, ("p5", None): 6, ("p2", "float32"): 4}.items():
        fmt, accumulate = reading_of(fmt, accumulate is not None)
        certificate = certify(build(decomposition.circuit, s=s), decomposition, fmt=fmt, accumulate=accumulate)
        assert certificate.verdict is Verdict.PROVED, fmt
        assert certificate.reading == (READING_REAL if fmt is None else READING_DTYPE)
        assert certificate.inputs_covered == 2 ** len(circuit.inputs)


@pytest.mark.deep
@pytest.mark.parametrize("name", TABLE)
def test_fewer_bits_than_in_the_table_are_not_proved(name):
    decomposition = decompose(read_circuit(path_of(name)))
    for (fmt, accumulate), most in TABLE[name].items():
        fmt, accumulate = reading_of(fmt, accumulate is not None)
        for s in range(1, 13 if most is None else most):
            certificate = certify(build(decomposition.circuit, s=s), decomposition, fmt=fmt, accumulate=accumulate)
            assert certificate.verdict is not Verdict.PROVED, (fmt, s)


def test_fewest_bits_where_positions_leak():
    """c432 in real arithmetic: at s = 1 nine lanes leak (1 + exp(-3))^9 - 1 = 0.55; a run shows what comes of it."""
    decomposition = decompose(read_circuit(path_of("c432")))
    fmt, _ = reading_of("real", False)
    model, certificate = smallest_bits(decomposition, decide=lambda *a, **k: certify(*a, fmt=fmt, **k))
    assert certificate.verdict is Verdict.PROVED and certificate.reading == READING_REAL and model.s == 2
    (smaller,) = certificate.extra["smaller_bits"]
    assert smaller["s"] == 1 and smaller["verdict"] == "UNKNOWN"
    assert certificate.extra["smallest_bits"] is None


def planted(weight, value):
    """The NAND circuit with one stored weight changed."""
    decomposition = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    model = build(decomposition.circuit, s=3)
    name, place = weight
    model.state_dict()[name][place] = value
    return model, decomposition


@pytest.mark.parametrize("value", first(2, [float("nan"), float("inf"), -float("inf"), 1e30]))
@pytest.mark.parametrize("weight", [("P", (0, 3)), ("E", (1, 2)), ("layers.0.W_V", (3, 0)), ("layers.1.b_2", 7)])
def test_weights_that_are_no_numbers_are_never_proved(weight, value):
    model, decomposition = planted(weight, value)
    assert certify(model, decomposition, fmt=FORMATS["float16"]).verdict is not Verdict.PROVED
    if not np.isfinite(value):
        assert certify(model, decomposition, fmt=None).verdict is not Verdict.PROVED


def test_an_overflow_that_nobody_reads_is_never_proved():
    """g = 40000 + 40000 at the first position is infinite in float16, and infinity times the weight 0 is NaN."""
    model, decomposition = planted(("P", (0, 3)), 40000.0)
    model.state_dict()["E"][:, 3] = 0.0
    assert certify(model, decomposition, fmt=FORMATS["float16"]).verdict is Verdict.PROVED
    model.state_dict()["layers.0.b_2"][3] = 40000.0
    model.state_dict()["P"][1:, 3] = -40000.0
    assert certify(model, decomposition, fmt=FORMATS["float32"]).verdict is Verdict.PROVED
    assert certify(model, decomposition, fmt=FORMATS["float16"]).verdict is not Verdict.PROVED


def test_what_no_input_brings_is_harmless():
    """x AND NOT x with an AND that is always 0: no input tells; x AND y does."""
    gates = (Gate("not", (0,), "n"), Gate("and", (0, 1), "z"))
    decomposition = decompose(Circuit("zero", ("x",), gates, (("z", 2),)))
    model = build(decomposition.circuit, s=3)
    model.state_dict()["P"][-1, model.lanes.g] = -1.0
    certificate = certify(model, decomposition, fmt=FORMATS["bfloat16"])
    assert certificate.verdict is Verdict.PROVED and certificate.extra["harmless_differences"] == 1
    decomposition = decompose(Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)))
    model = build(decomposition.circuit, s=3)
    model.state_dict()["P"][-1, model.lanes.g] = -1.0
    certificate = certify(model, decomposition, fmt=FORMATS["bfloat16"])
    assert certificate.verdict is Verdict.REFUTED and certificate.counterexample["input"] == "11"


def test_two_positions_with_one_address_share_the_weight():
    """The second position with the number of the first: nothing is surely retrieved, and a run fails."""
    decomposition = decompose(read_circuit(path_of("c17")))
    model = build(decomposition.circuit, s=4)
    lanes, P = model.lanes, model.state_dict()["P"]
    P[1, lanes.id] = P[0, lanes.id]
    certificate = certify(model, decomposition, fmt=FORMATS["float32"])
    assert certificate.verdict is Verdict.REFUTED
    assert not fails_somewhere(build(decomposition.circuit, s=4), decomposition.circuit, FORMATS["float32"], None)
    assert fails_somewhere(model, decomposition.circuit, FORMATS["float32"], None)


def test_the_printed_addresses_work_where_no_softmax_is_zero_over_zero():
    """b = 0 for NOT is no position's number: a mean of bits is retrieved, which NOT ignores."""
    decomposition = decompose(read_circuit(path_of("c17")))
    for name in ("float32", "real"):
        fmt, _ = reading_of(name, False)
        model = build(decomposition.circuit, s=4, as_printed=True)
        assert certify(model, decomposition, fmt=fmt).verdict is Verdict.PROVED
        assert not fails_somewhere(model, decomposition.circuit, fmt, None)
    model.state_dict()["layers.1.W_1"][model.lanes.x_b, 0] = -1.0  # and a NOT that reads it
    certificate = certify(model, decomposition, fmt=FORMATS["float32"])
    assert certificate.verdict is Verdict.REFUTED


@pytest.mark.parametrize("seed", range(40))
def test_leaks_by_lanes_and_by_tables_hold_the_exact_ones(seed):
    """Both bounds against plain sums of exponentials, and the same positions found."""
    rng = random.Random(seed)
    queries, keys, N = rough_addresses(rng, FORMATS["float64"])
    at = arithmetic_of(Rounded(FORMATS["float64"]))
    error = ScoreError.of(at, queries.vectors, keys.vectors)
    by_lanes = circuit_attention.by_addresses(at, queries, keys, N, error)
    by_table = circuit_attention.table(at, queries, keys, np.arange(N), error)
    for clear, leak in (by_lanes, by_table):
        for q, p in zip(queries.vectors.mid, queries.position, strict=True):
            if clear[p] == NONE:
                continue
            scores = keys.vectors.mid @ q
            best = scores[keys.position == clear[p]].min()
            others = [scores[keys.position == r].max() - best for r in range(p + 1) if r != clear[p]]
            assert max(others, default=-1) < 0 and np.exp(others).sum() <= leak[p]
    both = (by_lanes[0] != NONE) & (by_table[0] != NONE)
    assert (by_lanes[0][both] == by_table[0][both]).all()


def test_a_table_beyond_its_limit_leaves_the_step_open(monkeypatch):
    rng = random.Random(3)
    decomposition = decompose(random_circuit(rng, 2, 3))
    model = build(decomposition.circuit, s=3)
    rough(model, rng)
    assert certify(model, decomposition, fmt=FORMATS["float32"]).verdict is Verdict.PROVED
    monkeypatch.setattr(circuit_attention, "MAX_TABLE", 0)
    certificate = certify(model, decomposition, fmt=FORMATS["float32"])
    assert certificate.verdict is Verdict.UNKNOWN and "surely retrieves no position" in certificate.reason


def test_real_scores_beyond_float64_leave_a_circuit_undecided():
    """Scores times 2^2000 change no answer, but their balls hold NaN, which once stood for the token 0: REFUTED."""
    whole = decompose(Circuit("not", ("x",), (Gate("not", (0,), "z"),), (("z", 1),)))
    model = build(whole.circuit, s=4).double()
    with torch.no_grad():
        for layer in model.both:
            layer.W_Q.mul_(2.0**1000)
            layer.W_K.mul_(2.0**1000)
    assert certify(model, whole, fmt=None).verdict.value == "UNKNOWN"


def test_the_distance_from_a_half_is_rounded_down():
    tiny = np.array([2.0**-80])
    assert distance(np.array([0]), tiny, tiny) == np.nextafter(0.5, 0)  # the truth is 1/2 - 2^-80
    assert distance(np.array([1]), np.array([1.0]), np.array([1.0])) == 0.5
