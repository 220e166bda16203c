"""Random, fitted, built, changed and tied decoders: every verdict against an independent run of every input."""

import collections
import dataclasses
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from models import counting_decoders as models
from models.selection import every, first
from oracles import decoder as oracle
from oracles.inductive import right
from oracles.operations import Rounded
from planted import planted

from constructions.decoder_arrays import NormArrays
from constructions.inductive import selective, started, succession
from verify.arithmetic import intervals
from verify.arithmetic.readings import reading_of
from verify.arithmetic.stored import fractions
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.reduction.domains import Counts
from verify.tasks.inductive import cells, engine_runs, runs, uniform
from verify.tasks.inductive.task import Counting

BRIEF = Effort(budget=5.0)
BITS = {"float32": (24, -126), "bfloat16": (8, -126), "float16": (11, -14)}


@pytest.fixture(scope="module", autouse=True)
def traced_once():
    """Models of one shape share their trace: a graph has no number of the model in it."""
    found, trace = {}, engine_runs.capture

    def capture(module, length, *, is_real):
        mlp = module.blocks[0].mlp
        shape = tuple(
            (name, tuple(value.shape)) for name, value in (*module.named_parameters(), *module.named_buffers())
        )
        key = (shape, repr(module), module.blocks[0].attention.n_heads, mlp and mlp.activation, length, is_real)
        if key not in found:
            found[key] = trace(module, length, is_real=is_real)
        own = dict(module.named_parameters()) | dict(module.named_buffers(remove_duplicate=False))
        return dataclasses.replace(found[key], stored={n: own[t].detach() for n, t in found[key].names.items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_runs, "capture", capture)
        yield


def check_lines(seed, task, model, problem, found):
    """A verdict on a homogeneous task against all shifts, starts and lengths."""
    m, wrong, least = oracle.stored(model), set(), math.inf
    right_at, judged_at = collections.Counter(), collections.Counter()  # inputs of each length
    last = 0 if model.pe == "nope" else model.positions - model.has_bos - 1
    for shift in range(last + 1):
        room = None if model.pe == "nope" else model.positions - model.has_bos - shift
        lines = list(task.lines(problem.length, room=room))
        n = max((len(line.tokens) for line in lines), default=0)
        strings = np.array([(*line.tokens, *line.tokens[-1:] * (n - len(line.tokens))) for line in lines], int)
        answers = [right(task.name, line.tokens, M=task.M, m=task.m) for line in lines]
        due = np.array([[-1 if c is None else c for c in row] + [-1] * (n - len(row)) for row in answers], int)
        margins = oracle.margins_of(m, strings, shift, due) if n else due
        least = min(least, margins.min(initial=math.inf))
        for row, line in enumerate(lines):
            for i in np.flatnonzero(due[row] >= 0):
                length, margin = int(i) + 1 - line.leading, margins[row, i]
                judged_at[length] += 1
                right_at[length] += bool(margin > 0)
                if not margin > 0:
                    wrong.add((length, shift, line.start))
    said = found.to_dict()
    inputs = {(s, line.tokens[: i + 1]) for s in problem.runs.shifts for line in problem.runs.lines(s)
              for i in range(len(line.tokens))}  # fmt: skip
    assert problem.size() == len(inputs) and {s for s, _ in inputs} == set(range(last + 1)), seed
    assert found.verdict is not Verdict.PROVED or not wrong, f"WRONG PROVED: {seed}"
    assert found.verdict is not Verdict.PROVED or found.margin <= least + 1e-9 * (1 + abs(least)), seed
    if found.verdict is Verdict.REFUTED:
        case = found.counterexample
        at = (case["length"], case["shift"], case["start"])
        assert at in wrong, seed
        assert not case["is_smallest"] or at[:2] == min(wrong, key=lambda c: c[:2])[:2], seed
    for name, (low, high) in said["accuracy"].items():
        first_, last_ = map(int, name.split(".."))
        lengths = range(first_, last_ + 1)
        share = Fraction(sum(right_at[n] for n in lengths), sum(judged_at[n] for n in lengths))
        assert Fraction(low) <= share <= Fraction(high), seed
    if found.verdict is not Verdict.PROVED and wrong:
        assert (-1 if said["length"] is None else said["length"]) < min(wrong)[0], seed
    return bool(wrong)


def check_strings(seed, task, model, problem, found, n):
    """A verdict on strings against all of them up to length n, at every shift that a table of positions has."""
    m = oracle.stored(model)
    strings = np.array(list(itertools.product(range(task.K), repeat=n)))
    answers = [right(task.name, string, m=task.m, C=task.C) for string in strings.tolist()]
    due = np.array([[-1 if c is None else c for c in row] for row in answers])
    wrong, least, scaled = set(), math.inf, math.inf
    for shift in range(1 if model.pe == "nope" else model.positions - model.has_bos - n + 1):
        margins = oracle.margins_of(m, strings, shift, due)
        least = min(least, margins.min())
        scaled = min(scaled, (margins * (1 + model.has_bos + np.arange(n))).min())
        wrong |= {(i + 1, shift, tuple(strings[row, : i + 1].tolist())) for row, i in np.argwhere(~(margins > 0))}
    assert found.verdict is not Verdict.PROVED or not wrong, f"WRONG PROVED: {seed}"
    if found.verdict is Verdict.PROVED and found.margin is not None and problem.longest == n:
        assert found.margin <= least + 1e-9 * (1 + abs(least)), seed
    if found.verdict is Verdict.PROVED and "margin_scaled" in found.to_dict():
        assert found.to_dict()["margin_scaled"] <= scaled + 1e-9, seed
    if found.verdict is Verdict.REFUTED:
        case = found.counterexample
        tokens = tuple(case["input"])
        due = right(task.name, tokens, m=task.m, C=task.C)
        assert not oracle.least_margin(m, tokens, case["shift"], due)[-1] > 0, seed
    if wrong:
        assert found.to_dict()["length"] == "all" or found.to_dict()["length"] < min(wrong)[0], seed
    return bool(wrong)


def lines_of(seed, most=10, style=None, words=6):
    rng = random.Random(f"lines {seed // models.ALIKE}")
    task = models.task_of(rng, is_homogeneous=True, words=words)
    positions = rng.randint(3, most)
    model = models.decoder(seed, task, positions=positions, style=style)
    return task, model, Counting(model, task, rng.randint(3, most) if model.pe == "nope" else None)


def strings_of(seed, largest, style=None):
    """A task on strings with its model and the length up to which all strings are run."""
    rng = random.Random(f"strings {seed // models.ALIKE}")
    task = models.task_of(rng, is_homogeneous=False)
    is_long = rng.random() < 0.2
    n = largest if is_long else rng.randint(2, 4)
    model = models.decoder(seed, task, positions=n + 1 + rng.randint(0, 1), style="changed" if is_long else style)
    room = None if model.pe == "nope" else model.positions - model.has_bos
    longest = None if rng.random() < 0.3 else n
    return task, model, Counting(model, task, longest), n if room is None else min(n, room)


def long_strings_of(seed, n=9):
    """The same with all strings of three types up to a length."""
    rng = random.Random(f"long strings {seed // models.ALIKE}")
    task = models.task_of(rng, is_homogeneous=False, types=3)
    model = models.decoder(seed, task, positions=n + 1 + rng.randint(0, 1))
    return task, model, Counting(model, task, None if rng.random() < 0.3 else n), n


def decide_lines(seed, style=None, most=10, words=6):
    task, model, problem = lines_of(seed, most, style, words)
    found = certify(problem, effort=BRIEF)
    return found.verdict, check_lines(seed, task, model, problem, found)


def decide_others(seed):
    """Built decoders of another task and shape for each seed, one in two with a changed number."""
    return decide_lines(seed * models.ALIKE + seed % models.ALIKE, style=("changed", "built")[seed % 2])


def decide_tables(seed):
    """Decoders of one layer whose scores are 0 and whose stream tells shifts apart: drawn, or one number off."""
    rng = random.Random(f"tables {seed}")
    if rng.random() < 0.5:
        task = Task.of("shifted", vocabulary=4)
        model = started(task="shifted", M=4, pe="ape", positions=7, layernorm=rng.random() < 0.5)
        with torch.no_grad():
            model.W_pos[rng.randrange(7), rng.randrange(4)] = rng.choice([-1, 1]) * rng.choice([1e-3, 0.1, 0.3])
    else:
        task, positions = models.task_of(rng, is_homogeneous=True), rng.randint(3, 7)
        style = rng.choice(["drawn", "near"])
        model = models.decoder(seed * models.ALIKE, task, positions=positions, layers=1, style=style)
        if model.pe not in ("ape", "sine", "spe"):
            return Verdict.UNKNOWN, False
        attention = model.blocks[0].attention
        with torch.no_grad():
            for value in (attention.W_Q, attention.b_Q):
                if value is not None:
                    value.zero_()
    problem = Counting(model, task)
    found = certify(problem)
    return found.verdict, check_lines(seed, task, model, problem, found)


def decide_words(seed):
    """Decoders that count and continue number words, as built or with a few changes."""
    rng = random.Random(f"words {seed}")
    M, pe = rng.randint(2, 7), rng.choice(["ape", "spe", "sine"])
    sizes = {"positions": rng.randint(3, 8), "layernorm": rng.random() < 0.5}
    model = succession(M=M, pe=pe, d=rng.choice([10, 12, 20]) if pe == "sine" else None, **sizes)
    if seed % 2:
        model = rng.choice([models.changed, models.nudged])(rng, model)
    task = Task.of("succession", vocabulary=M)
    problem = Counting(model, task)
    found = certify(problem)
    assert seed % 2 or found.verdict is Verdict.PROVED, seed
    return found.verdict, check_lines(seed, task, model, problem, found)


def decide_queries(seed):
    """W_Q is 0 and its bias is not: the scores are those of the keys."""
    torch.manual_seed(seed)
    task = Task.of("shifted", vocabulary=4)
    model = started(task="shifted", M=4, layernorm=False)
    attention = model.blocks[0].attention
    attention.b_Q.data[:], attention.W_K.data[:] = 3.0, torch.randn(attention.W_K.shape, dtype=torch.float64)
    problem = Counting(model, task)
    found = certify(problem)
    return found.verdict, check_lines(seed, task, model, problem, found)


def decide_strings(seed, largest=6, style=None):
    task, model, problem, n = strings_of(seed, largest, style)
    found = certify(problem)
    return found.verdict, check_strings(seed, task, model, problem, found, n)


def decide_long_lines(seed):
    return decide_lines(seed, most=60, words=60)


def decide_long_strings(seed):
    task, model, problem, n = long_strings_of(seed)
    found = certify(problem, effort=BRIEF)
    return found.verdict, check_strings(seed, task, model, problem, found, n)


def decide_rounded(seed):
    """A proof or a refutation in a dtype against evaluations in random orders, fused or not, flushed or not."""
    name = list(BITS)[seed % 3]
    task, model, problem = lines_of(seed, most=6, style="built" if seed % 2 == 0 else None)
    found = certify(problem, reading_of(name))
    m, rng = oracle.stored(model), random.Random(seed)
    lines = [(shift, line) for shift in problem.runs.shifts for line in problem.runs.lines(shift)]
    if found.verdict is Verdict.PROVED and (tight := found.tightest) is not None:
        lines = [(s, line) for s, line in lines if s == tight["shift"] and line.start == tight["start"]] + lines
    for shift, line in lines[:4]:
        due = right(task.name, line.tokens, M=task.M, m=task.m)
        field = Rounded(BITS[name][0], rng, BITS[name][1])
        margins = oracle.margins(oracle.slow(m, line.tokens, shift, field, passes=rng.choice([1, 2])), due)
        if found.verdict is Verdict.PROVED:
            assert min(margins) >= found.margin > 0, f"WRONG PROVED in {name}: {seed}"
    if found.verdict is Verdict.REFUTED:
        case = found.counterexample
        due = right(task.name, tuple(case["input"]), M=task.M, m=task.m)
        field = Rounded(BITS[name][0], rng, BITS[name][1])
        assert not oracle.margins(oracle.slow(m, case["input"], case["shift"], field), due)[case["position"]] > 0, seed
    return found.verdict


def parts(few, many, step):
    """Ranges of seeds, of which the first, a short one, runs by default."""
    return first(1, [few, *(range(i, i + step) for i in range(0, many, step))])


@pytest.mark.parametrize("seeds", parts([0, 1], 400, 40))
def test_lines(seeds):
    found = [decide_lines(seed) for seed in seeds]
    assert {verdict for verdict, _ in found} >= {Verdict.PROVED, Verdict.REFUTED}
    assert {is_wrong for _, is_wrong in found} == {True, False}


@pytest.mark.parametrize("seeds", parts([4, 32, 33, 34], 200, 40))
def test_strings(seeds):
    found = [decide_strings(seed) for seed in seeds]
    assert {verdict for verdict, _ in found} >= {Verdict.PROVED, Verdict.REFUTED}


@pytest.mark.deep
@pytest.mark.parametrize("decide", [decide_long_lines, decide_long_strings])
@pytest.mark.parametrize("seeds", [range(i, i + 80) for i in range(0, 2000, 80)])
def test_up_to_60_positions_and_9_tokens(decide, seeds):
    """All shifts, starts and lengths of up to 60 positions; all strings of three types up to length 9."""
    found = collections.Counter(decide(seed) for seed in seeds)
    print(decide.__name__, *(f"{v.value} {'wrong' if wrong else 'right'}: {k}," for (v, wrong), k in found.items()))
    assert {verdict for verdict, _ in found} >= {Verdict.PROVED, Verdict.REFUTED}


@pytest.mark.parametrize("seeds", parts([18], 300, 60))
def test_dtypes_are_attacked(seeds):
    assert Verdict.PROVED in {decide_rounded(seed) for seed in seeds}


def decide_rounded_strings(seed):
    """A proof in a dtype over all strings against evaluations of some of them in random orders."""
    rng, name = random.Random(f"rounded {seed}"), list(BITS)[seed % 3]
    task = Task.of("selective", types=2, max_count=rng.randint(1, 4))
    pe = rng.choice(["nope", "nope", "rope", "ape"])
    model = selective(K=2, C=task.C, pe=pe, layernorm=rng.random() < 0.4, positions=8)
    if rng.random() < 0.5:
        models.nudged(rng, model, rng.choice([1e-3, 1e-2]))
    problem = Counting(model, task, rng.randint(2, 7))
    found = certify(problem, reading_of(name), Effort(budget=30.0))
    m, least = oracle.stored(model), found.margin if found.verdict is Verdict.PROVED else 0.0
    for _ in range(4 if found.verdict is Verdict.PROVED else 0):
        string = rng.choices(range(2), k=rng.randint(1, problem.longest))
        shift = 0 if pe == "nope" else rng.randint(0, model.positions - 1 - len(string))
        field = Rounded(BITS[name][0], rng, BITS[name][1])
        margins = oracle.margins(oracle.slow(m, string, shift, field, passes=rng.choice([1, 2])), right(
            "selective", tuple(string), C=task.C))  # fmt: skip
        assert min(margins) >= least, f"WRONG PROVED in {name}: {seed}"
        assert min(margins) > 0, f"WRONG PROVED in {name}: {seed}"
    return found.verdict


def decide_nudged(seed):
    """Built selective counters with a little noise, so that neurons may be on or off and slopes are not 0."""
    rng = random.Random(f"nudged {seed}")
    modular = {"modulus": rng.randint(2, 3)} if rng.random() < 0.7 else {}
    task = Task.of("selective-modular" if modular else "selective", types=2, max_count=rng.randint(2, 5), **modular)
    torch.manual_seed(seed)
    model = selective(K=2, C=task.C, m=task.m, layernorm=rng.random() < 0.4)
    models.nudged(rng, model, rng.choice([1e-3, 5e-3, 3e-2]))
    if rng.random() < 0.2:  # a bias, of which cells know nothing
        model.blocks[0].mlp.b_in.data += torch.randn(model.blocks[0].mlp.b_in.shape, dtype=torch.float64) * 0.3
    if rng.random() < 0.3:  # gates that close too little
        model.W_E.data[:, 3:5] *= rng.choice([0.1, 0.3, 0.6])
    n = rng.randint(3, 6)
    problem = Counting(model, task, n)
    found = certify(problem)
    return found.verdict, check_strings(seed, task, model, problem, found, n)


def decide_products(seed):
    """Products of intervals, and what a matrix reads after a LayerNorm, against numbers within."""
    rng = np.random.default_rng(seed)
    x, W = (rng.integers(-4, 5, size=shape).astype(float) for shape in ((3, 4), (4, 2)))
    reach, about = rng.integers(0, 3, size=x.shape), rng.integers(0, 3, size=W.shape)
    found = intervals.Interval(x - reach, x + reach) @ intervals.Interval(W - about, W + about)
    for _ in range(20):
        inside = (x + reach * rng.choice([-1, 1], x.shape)) @ (W + about * rng.choice([-1, 1], W.shape))
        assert (found.lower <= inside).all() and (inside <= found.upper).all(), seed
    norm = torch.nn.LayerNorm(4, dtype=torch.float64)
    norm.weight.data = torch.from_numpy(rng.normal(size=4))
    reads = cells.centred(fractions(W), NormArrays(norm.weight.detach().numpy(), np.zeros(4), norm.eps)).astype(float)
    spread = np.sqrt(x.var(1, keepdims=True) + norm.eps)
    assert np.allclose(norm(torch.from_numpy(x)).detach().numpy() @ W, x @ reads / spread), seed
    return Verdict.PROVED, False


def decide_forms(seed):
    """Bounds on a linear form over a cell against its value at counts of the cell."""
    rng = np.random.default_rng(seed)
    K, room = int(rng.integers(1, 4)), int(rng.integers(0, 6))
    own, shared, first_ = (rng.integers(-4, 5, size=shape).astype(float) for shape in ((K, 2), (K, 2), (2,)))
    tables = cells.FormShares(*(intervals.Interval.exact(x) for x in (own, shared, first_)))
    t, k, has_bos = int(rng.integers(K)), int(rng.integers(1, 4)), bool(rng.integers(2))
    unit, gains = np.eye(K)[t], rng.integers(-2, 3, (2, 2))
    domain, forms = Counts(np.array(float(room))), tables.on(cells.Cell("", t, k * unit, 1 - unit, 0), has_bos)
    plain, read = (
        domain.range(forms),
        cells.leaf(domain, forms, intervals.Interval.exact(gains.astype(float)), forms).range,
    )
    for others in itertools.product(range(room + 1), repeat=K - 1):
        if sum(others) <= room:
            c = [*others[:t], k, *others[t:]]
            value = sum(c[j] * (own[t] + shared[j]) for j in range(K)) + has_bos * (first_ + own[t])
            for found, inside in ((plain, value), (read, np.maximum(value, 0) @ gains + value)):
                assert (found.lower <= inside).all() and (inside <= found.upper).all(), seed
    return Verdict.PROVED, False


FAULTS = (  # where, what it says, what it says wrongly there, the seeds that show it, of lines or of strings
    (Counts, "range", "between(total, total)", "between(0 * total, 0 * total)", "forms"),
    (cells.FormShares, "on", "end * cell.free[:, None]", "0 * end", "forms"),
    (cells.FormShares, "on", "self.first + self.own[cell.t]", "self.first", "forms"),
    (cells.FormShares, "on", "float(cell.base[s])", "1.0", "forms"),
    (cells, "leaf", "is_on | (z.upper <= 0)", "is_on | (z.lower <= 0)", "forms"),
    (cells, "leaf", "z.lower >= 0", "z.upper >= 0", "forms"),
    (cells, "leaf", "zeros_like(tops), tops)", "zeros_like(tops), 0 * tops)", "forms"),
    (cells, "_by_cells", "if c != cell.right]", "if c > cell.right]", "nudged"),
    (cells, "cells_of", "task.C + 1", "task.C", "nudged"),
    (cells, "_by_cells", "float(longest - cell.length)", "0.0", "nudged"),
    (Counts, "plus", "forms.constant + more.constant", "forms.constant", "forms"),
    (Counts, "readout", "where(on[..., None], a, 0.0)", "where(on[..., None], 0.0, a)", "forms"),
    (intervals.Interval, "__matmul__", "minus_low @ by_up_high", "minus_low @ by_up_low", "products"),
    (cells, "centred", "W - centre", "W", "products"),
    (cells, "decide", "_by_cells(model, task, longest)", "_by_cells(model, task, 1)", "nudged"),
    (cells, "unfit", "block.mlp.b_in, ", "", "nudged"),
    (Counting, "_shifts", "range(1 if self.room is None else self.room - self.bos - n + 1)", "range(1)",
     "strings"),
    (engine_runs, "shifted", "shifts[:, None] + ", "0 * shifts[:, None] + ", "lines"),
    (engine_runs, "_run", "torch.tensor([shift for", "torch.tensor([0 * shift for", "lines"),
    (runs.Runs, "lines", "self.bos - shift", "self.bos - shift - 1", "lines"),
    (runs.Runs, "inputs", "length - shared", "length", "others"),
    (uniform, "has_zero_scores", "any(not bool(W.any()) and (b is None or not bool(b.any())) for",
     "any(not bool(W.any()) for", "queries"),
    (uniform, "applies", "len(model.blocks) == 1", "len(model.blocks) <= 2", "lines"),
    (uniform, "with_bos", "len(model.W_E) - 1", "0", "others"),
    (uniform, "embedded", "np.asarray(shift)[..., None] +", "0 * np.asarray(shift)[..., None] +", "tables"),
    (uniform, "means", "np.arange(1.0, n + 1)", "np.arange(2.0, n + 2)", "others"),
    (uniform, "after", 'layer_norm(at, x, block.norm_2, f"mlp{layer}", lanes)',
     "x.each(lambda a: a[..., lanes])", "others"),
    (uniform, "shifts_are_alike", 'model.pe in ("nope", "rope")', "True", "tables"),
    (uniform, "_from_each_on", "bottom = -largest_from(-low)", "bottom = high", "tables"),
    (runs.Runs, "times", "- shifts.start + 1", "- shifts.start", "others"),
    (Counting, "_lines", "line = found.lines[row]", "line = found.lines[0]", "others"),
    (Counting, "_lines", "case < wrong[:3]", "case > wrong[:3]", "others"),
    (Counting, "_lines", "place_ + 1 - line.leading", "place_ + 1", "others"),
    (Counting, "_lines", "high[row, place_] <= 0", "low[row, place_] <= 0", "lines"),
)  # fmt: skip
DECIDE = {
    "lines": decide_lines,
    "strings": decide_strings,
    "nudged": decide_nudged,
    "others": decide_others,
    "queries": decide_queries,
    "words": decide_words,
    "tables": decide_tables,
    "forms": decide_forms,
    "products": decide_products,
}


def is_caught(seeds, kind):
    """Whether a check fails on some seed."""
    styles = ({"style": "changed"}, {}) if kind in ("lines", "strings") else ({},)
    for seed, style in itertools.product(seeds, styles):
        try:
            DECIDE[kind](seed, **style)
        except (AssertionError, IndexError, ValueError, TypeError, RuntimeError):
            return True
    return False


@pytest.mark.parametrize("seeds", parts([0], 120, 40))
def test_dtypes_over_all_strings_are_attacked(seeds):
    assert Verdict.PROVED in {decide_rounded_strings(seed) for seed in seeds}


@pytest.mark.parametrize("kind", every(3, ["forms", "products", "nudged", "tables", "words"]))
def test_cells(kind):
    found = {DECIDE[kind](seed)[0] for seed in range(24 if kind in ("forms", "products") else 12)}
    assert Verdict.PROVED in found


@pytest.mark.parametrize("fault", first(1, [(fault,) for fault in FAULTS]))
def test_planted_faults_are_caught(fault):
    owner, name, right_, wrong, kind = fault
    with planted(owner, name, right_, wrong):
        assert is_caught(range(100), kind), name


def test_short_strings_prove_nothing_of_longer_ones(monkeypatch):
    monkeypatch.setattr("verify.tasks.inductive.task.MOST", 10)
    monkeypatch.setattr("verify.tasks.inductive.boxes.applies", lambda *_: False)
    model = selective(K=2, C=4, layernorm=False)
    model.blocks[0].mlp.b_in.data += 1e-6  # cells know nothing of biases
    problem = Counting(model, Task.of("selective", types=2, max_count=4), 4)
    found = certify(problem)
    assert found.verdict is Verdict.UNKNOWN and found.to_dict()["length"] == 3
    with planted(Counting, "_short", "if done == self.longest", "if done + 1 == self.longest"):
        assert certify(problem).verdict is Verdict.PROVED


def test_margins_of_decoders_that_lack_some_of_their_layernorms():
    """Each of the three divides, or not, by a number above 1: the bound is below the least margin of all strings."""
    task, eye = Task.of("selective", types=2, max_count=2), torch.nn.Identity()
    for drops in itertools.product((False, True), repeat=3):
        model = selective(K=2, C=2, dtype=torch.float64).requires_grad_(False)
        model.W_E *= 64
        block = model.blocks[0]
        block.norm_1, block.norm_2, model.norm = (
            eye if is_dropped else norm
            for is_dropped, norm in zip(drops, (block.norm_1, block.norm_2, model.norm), strict=True)
        )
        found = certify(Counting(model.eval(), task, 3)).to_dict()
        strings = [string for n in (1, 2, 3) for string in task.strings(n)]
        said = [model(torch.tensor([string]))[0].tolist() for string in strings]
        least = min(min(oracle.margins(*pair)) for pair in zip(said, map(task.answers, strings), strict=True))
        assert found["verdict"] == "PROVED" and 0 < found["margin"] <= least * (1 + 1e-9), drops
