"""Decoders that count by sinusoidal positions, and the fewest neurons: proofs, brute force, and planted faults."""

import random
from collections import Counter

import pytest
import torch
from command import as_json, run
from models import counting_decoders as models
from models.selection import first
from oracles import decoder as oracle
from oracles.inductive import right
from oracles.operations import Rounded
from planted import planted

from bounds.inductive_limits import longest_with_neurons
from constructions.errors import BadInput, NotKnown
from constructions.inductive import ape, sine, spe, with_layernorm
from constructions.inductive.sinusoidal import position_reading
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import certify
from verify.tasks.inductive import sharp
from verify.tasks.inductive.task import Counting

CASES = [
    ("modular", 16, True, 11, 3), ("modular", 8, False, 12, 10), ("vanilla", 64, True, 9, None),
    ("first-homogeneous", 12, True, 9, None), ("modular", 128, True, 30, 10), ("modular", 64, False, 21, 4),
]  # fmt: skip


def task_of(name, N, m):
    return Task.of(name, **({"vocabulary": N} if name == "vanilla" else {}), **({} if m is None else {"modulus": m}))


@pytest.mark.parametrize("name, d, layernorm, N, m", first(3, CASES))
def test_every_shift_and_length_against_brute_force(name, d, layernorm, N, m):
    task, P = task_of(name, N, m), N + 3
    model = sine(task=name, N=N, m=m, d=d, layernorm=layernorm, positions=P)
    found = certify(Counting(model, task, N))
    stored, least = oracle.stored(model), float("inf")
    for shift in range(P):
        tokens = (0,) * min(P - shift, N)
        logits = oracle.fast(stored, [tokens], shift)[0]
        least = min(least, *oracle.margins(logits, right(name, tokens, M=task.M, m=m)))
    assert found.verdict is Verdict.PROVED and 0 < found.margin <= least + 1e-9 and least <= 0.5 + 1e-4


@pytest.mark.parametrize(
    "name, change",
    first(2, [("W_O", lambda W: W.mul_(-1)), ("W_in", lambda W: W.mul_(1.05)), ("W_K", lambda W: W.mul_(0)),
              ("W_V", lambda W: W.mul_(0.9)), ("W_out", lambda W: W[-1:].mul_(0))]),
)  # fmt: skip
def test_wrong_weights_are_refuted_where_a_run_is_wrong(name, change):
    model, task = sine(task="modular", N=14, m=5, d=16, positions=16), Task.of("modular", modulus=5)
    with torch.no_grad():
        change(dict(model.named_parameters())[f"blocks.0.{'mlp' if name in ('W_in', 'W_out') else 'attention'}.{name}"])
    found = certify(Counting(model, task, 14))
    assert found.verdict is Verdict.REFUTED
    n, shift = found.counterexample["length"], found.counterexample["shift"]
    stored = oracle.stored(model)
    said = oracle.fast(stored, [(0,) * n], shift)[0].argmax(-1).tolist()
    assert said[:-1] == [i % 5 for i in range(n - 1)] and said[-1] != (n - 1) % 5


def contained(model, reading, dtype=torch.float64):
    """How many margins lie between the bounds of the sharp head, and how many do not."""
    counts = [0, 0]
    for found in sharp.bounds(Counting(model, Task.of("modular", modulus=5), 12).runs, reading):
        n = len(found.lines[0].tokens)
        with torch.no_grad():
            said = model(torch.zeros(1, n, dtype=torch.long), shift=found.shifts.start)[0].double()
        for i, row in enumerate(said):
            margin = row[i % 5] - row[[c for c in range(5) if c != i % 5]].max()
            counts[bool(found.low[0, i] <= margin + 1e-9 and margin - 1e-9 <= found.high[0, i])] += 1
    return counts


def flattened(dtype=torch.float64, *, layernorm=True):
    """Scores so flat that what the later tokens add is seen."""
    model = sine(task="modular", N=12, m=5, d=16, layernorm=layernorm, positions=14, dtype=dtype)
    with torch.no_grad():
        model.blocks[0].attention.W_K.mul_(5 / 32)
    return model


def test_one_error_of_what_the_head_brings_is_no_smaller_than_the_tail():
    assert contained(flattened(), Real())[0] == 0
    with planted(sharp, "_column_by_column", "is_some, error, 0.0", "is_some, 1e-3 * error, 0.0"):
        assert contained(flattened(), Real())[0] > 50
    with planted(sharp, "_column_by_column", "error > 0", "error < 0"):
        assert contained(flattened(), Real())[0] > 50


def test_in_float32_the_margins_lie_between_the_bounds():
    model = flattened(torch.float32, layernorm=False)
    assert contained(model, reading_of("float32"))[0] == 0
    model = sine(task="modular", N=12, m=5, d=16, layernorm=False, positions=14, dtype=torch.float32)
    found = certify(Counting(model, Task.of("modular", modulus=5), 12), reading_of("float32"))
    assert found.verdict is Verdict.PROVED and found.margin > 0.4


def mutated(seed):
    """A decoder that counts by positions, changed in a few entries, in all a little, or in how steep its scores are."""
    rng = random.Random(f"by positions {seed}")
    name, N = rng.choice(["modular", "vanilla", "first-homogeneous"]), rng.randint(3, 9)
    m = rng.randint(2, 5) if name == "modular" else None
    sizes, layernorm = {"task": name, "N": N, "m": m, "positions": N + rng.randint(0, 3)}, rng.random() < 0.5
    build = rng.choice([spe, ape, sine, sine])
    if build is sine:
        model = sine(**sizes, d=rng.choice([16, 20]), layernorm=layernorm)
    else:
        model = with_layernorm(build(**sizes)) if layernorm else build(**sizes)
    with torch.no_grad():
        if rng.random() < 0.5:
            model.blocks[0].attention.W_K.mul_(rng.choice([0.01, 0.1, 5 / 32, 6 / 32, 1.1]))
        if rng.random() < 0.4:
            models.changed(rng, model)
        if rng.random() < 0.3:
            for value in model.parameters():
                value.mul_(1 + 10.0 ** rng.uniform(-9, -1) * (2 * torch.rand(value.shape, dtype=value.dtype) - 1))
    return task_of(name, N, m), N, model


@pytest.mark.deep
@pytest.mark.parametrize("seeds", [range(start, start + 40) for start in range(0, 200, 40)])
def test_changed_decoders_are_decided_as_every_input_says(seeds):
    verdicts = Counter()
    for seed in seeds:
        task, N, model = mutated(seed)
        found, stored, wrong, least = certify(Counting(model, task, N)), oracle.stored(model), [], float("inf")
        for shift in range(model.positions):
            tokens = (0,) * min(N, model.positions - shift)
            due, logits = right(task.name, tokens, M=task.M, m=task.m), oracle.fast(stored, [tokens], shift)[0]
            for n, margin in enumerate(oracle.margins(logits, due), 1):
                least = min(least, margin)
                wrong += [(n, shift)] if margin < -1e-5 else []
        verdicts[found.verdict] += 1
        assert found.verdict is not Verdict.PROVED or found.margin <= least + 1e-5, seed
        if found.verdict is Verdict.REFUTED:
            case = found.counterexample
            at = (case["length"], case["shift"])
            tokens = (0,) * at[0]
            last = oracle.margins(oracle.fast(stored, [tokens], at[1])[0], right(task.name, tokens, M=task.M, m=task.m))
            assert last[-1] < 1e-5 and (not case["is_smallest"] or not wrong or at <= min(wrong)), seed
    assert verdicts[Verdict.PROVED] >= 5 and verdicts[Verdict.REFUTED] >= 5


@pytest.mark.deep
@pytest.mark.parametrize("name, bits, smallest", [("float32", 24, -126), ("bfloat16", 8, -126)])
def test_changed_decoders_in_a_dtype_are_right_in_random_orders(name, bits, smallest):
    proved = 0
    for seed in range(40):
        task, N, model = mutated(seed)
        found = certify(Counting(model, task, N), reading_of(name))
        if found.verdict is not Verdict.PROVED:
            continue
        proved += 1
        stored, rng = oracle.stored(model), random.Random(seed)
        for shift in {0, model.positions // 2, model.positions - 1}:
            tokens = (0,) * min(N, model.positions - shift)
            logits = oracle.slow(stored, tokens, shift, Rounded(bits, rng, smallest), passes=rng.choice([1, 2]))
            assert min(oracle.margins(logits, right(task.name, tokens, M=task.M, m=task.m))) >= found.margin, seed
    assert proved >= 3


def test_how_far_the_slowest_sines_are_a_line():
    for d, balanced, P in ((64, False, 1720), (64, True, 930), (8, False, 174)):
        table = oracle.stored(sine(task="vanilla", N=1, d=d, layernorm=False, positions=20)).table
        reading = position_reading(d, P, is_balanced=balanced)
        assert abs(table @ reading - range(1, 21)).max() < 1 / 8
        assert abs(float(reading.sum())) < 1e-9 or not balanced
        with pytest.raises(NotKnown, match="fewer positions"):
            position_reading(d, P + 1, is_balanced=balanced)


FEW = [(2, 1), (3, 2), (7, 4)]
ALL = [(m, p) for m in range(2, 11) for p in range(19) if (m, p) not in FEW]


@pytest.mark.parametrize("m, p", first(len(FEW), FEW + ALL))
def test_p_neurons_reach_the_longest_length_that_there_is(m, p):
    """C-I5 by a decoder with SPE: proved at every shift up to N(m, p + 1), and wrong at the next length."""
    N = longest_with_neurons(m, p)
    model = spe(task="modular", N=N, m=m, positions=N + 4)
    assert (0 if model.blocks[0].mlp is None else model.blocks[0].mlp.b_in.numel()) == p
    found = certify(Counting(model, Task.of("modular", modulus=m), N))
    assert found.verdict is Verdict.PROVED and found.margin > 0.49
    assert found.inputs_covered == sum(min(N, N + 4 - shift) for shift in range(N + 4))
    beyond = certify(Counting(model, Task.of("modular", modulus=m), N + 1))
    assert beyond.verdict is Verdict.REFUTED and beyond.counterexample["length"] == N + 1


@pytest.mark.parametrize("d", [7, 6, 2])
def test_sizes_without_lanes_are_refused(d):
    with pytest.raises(BadInput, match=f"d={d}"):
        sine(task="modular", N=4, m=3, d=d)


def test_the_command_builds_the_size_that_is_asked_for(capsys):
    sizes = ("inductive", "--task", "modular", "--pe", "sine", "--length", "12", "--positions", "15")
    code, found = as_json(capsys, *sizes, "--d", "32")
    assert code == 0 and found["verdict"] == "PROVED" and found["claim"] == "C-T6" and found["length"] == 12
    assert found["parameters"]["d"] == 32 and found["parameters"]["neurons"] == 2
    code, _, said = run(capsys, *sizes, "--d", "9")
    assert code == 2 and "d=9" in said
    code, said, _ = run(capsys, *sizes[:-1], "2000")
    assert code == 3 and "fewer positions" in said
