"""Decoders that count, in a dtype: bounds hold what torch computes, all strings up to a length, and where it ends."""

import itertools

import numpy as np
import pytest
import torch
from command import as_json
from models.selection import every
from oracles.inductive import right

from constructions.decoder_arrays import DecoderArrays, blank, filled
from constructions.inductive import beside_bos, positioned, selective, started, unmarked, unmixed
from verify.arithmetic.readings import reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify
from verify.tasks.inductive import boxes, first_token, marked, placed, uniform
from verify.tasks.inductive.noisy import Allowed
from verify.tasks.inductive.runs import Runs
from verify.tasks.inductive.task import Counting


def mutated(model, seed, size):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if seed and value.any():
                value += torch.randn(value.shape, generator=generator).to(value.dtype) * size * seed * value.abs()
    return model


def in_order(model, tokens, order):
    """The decoder in its dtype, every sum in another order: its lanes, neurons and classes permuted."""
    generator = torch.Generator().manual_seed(order)
    d = model.W_U.shape[0]
    lanes = torch.randperm(d, generator=generator)
    block = model.blocks[0]
    with torch.no_grad():
        model.W_E.copy_(model.W_E[:, lanes])
        model.W_U.copy_(model.W_U[lanes])
        for name in ("W_Q", "W_K", "W_V"):
            weight = getattr(block.attention, name)
            weight.copy_(weight[lanes])
        block.attention.W_O.copy_(block.attention.W_O[:, lanes])
        for norm in (block.norm_1, block.norm_2, model.norm):
            if isinstance(norm, torch.nn.LayerNorm):
                norm.weight.copy_(norm.weight[lanes])
        if block.mlp is not None:
            block.mlp.W_in.copy_(block.mlp.W_in[lanes])
            block.mlp.W_out.copy_(block.mlp.W_out[:, lanes])
        return model(tokens)


@pytest.mark.parametrize("layernorm", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bounds_hold_what_torch_computes_in_any_order_of_lanes(dtype, layernorm, device):
    """Mutated models too; the margins in the dtype lie between the bounds, and both ends are numbers."""
    M, at = 6, Allowed(reading_of(dtype).format)
    task = Task.of("shifted", vocabulary=M)
    for seed in range(4):
        model = started(task="shifted", M=M, layernorm=layernorm, dtype=getattr(torch, dtype))
        model = mutated(model, seed, 0.02)
        lines = list(task.lines(None))
        low, high = map(torch.from_numpy, uniform.of_lines(at, Runs(model, task, None, None), lines, 0))
        model.to(device)
        for row, line in enumerate(lines):
            said = in_order(model, torch.tensor([line.tokens], device=device), seed)[0].double()
            for i, due in enumerate(right("shifted", line.tokens, M=M)):
                margin = float(said[i, due] - said[i][[c for c in range(M + 1) if c != due]].max())
                assert low[row, i] <= margin
                assert margin <= high[row, i] or (dtype == "float32" and low[row, i] > 0)
        assert dtype == "bfloat16" or bool(torch.isfinite(low).any())


@pytest.mark.parametrize(
    ("name", "layernorm"), every(3, itertools.product(["selective", "selective-modular"], [False, True]))
)
def test_all_strings_up_to_a_length(name, layernorm):
    """Proved in float32 to a length, never where a run in float32 fails; mutated models too."""
    sizes = {"modulus": 2} if name == "selective-modular" else {}
    task = Task.of(name, types=2, max_count=3, **sizes)
    for seed in (0, 1, 4):
        model = selective(K=2, C=3, m=task.m, layernorm=layernorm, dtype=torch.float32)
        model = mutated(model, seed, 0.02)
        found = boxes.decide(DecoderArrays.of(model), task, 64, reading_of("float32"))
        assert found.length == 64 or seed
        for n in range(1, 8):
            strings = torch.tensor(list(itertools.product(range(2), repeat=n)))
            with torch.no_grad():
                said = in_order(model, strings, n).argmax(-1).tolist()
            due = [right(name, tuple(string), m=task.m, C=3) for string in strings.tolist()]
            wrong = any(b is not None and a != b for row, rest in zip(said, due, strict=True)
                        for a, b in zip(row, rest, strict=True))  # fmt: skip
            assert not (wrong and found.length >= n)


@pytest.mark.parametrize("pe", ["rope", "sine", "spe"])
def test_every_embedding_up_to_document_c_s_length(pe):
    task = Task.of("selective", types=3, max_count=4)
    model = selective(K=3, C=4, pe=pe, positions=128, dtype=torch.float32)
    found = certify(Counting(model, task), reading_of("float32"))
    assert found.verdict is Verdict.PROVED and found.margin > 0 and found.extra["length"] == "all"


def test_shares_in_float16_stay_above_subnormal_numbers():
    """Loud without LayerNorm, as far as lines stay in range: K = C = 10 is proved beyond C's training length."""
    model = selective(K=10, C=10, layernorm=False, dtype=torch.float16)
    assert boxes.decide(DecoderArrays.of(model), Task.of("selective"), 64, reading_of("float16"), 5.0).length == 64
    for M in (20, 100):
        loud = started(task="shifted", M=M, layernorm=False, dtype=torch.float16)
        said = loud(torch.tensor([(M, M + 1), (M // 2, M + 1)]))
        assert bool(torch.isfinite(said).all())


def test_a_score_of_the_only_key_that_overflows_in_one_order_is_not_proved():
    """2e38 + 2e38 - 2e38: finite as torch sums it with the difference first, infinite otherwise, and NaN in softmax."""
    shape = {"vocabulary": 1, "d": 4, "d_head": 4, "d_mlp": 0, "classes": 2, "positions": 1, "pe": "ape"}
    verdicts = {}
    for size in (2e37, 2e38):
        weights = {"W_pos": [[1]], "W_Q": [[size, size, size, 0]], "W_K": [[1, -1, 1, 0]], "W_U": [[0, 1]]}
        model = filled(blank(**shape, dtype="float32", layernorm=False), {n: np.array(W) for n, W in weights.items()})
        assert model.module(torch.zeros((1, 1), dtype=torch.long))[0, 0].tolist() == [0, 1]
        verdicts[size] = certify(Counting(model, Task.of("vanilla", vocabulary=1), 1), reading_of("float32")).verdict
    assert verdicts == {2e37: Verdict.PROVED, 2e38: Verdict.UNKNOWN}


def test_a_gate_that_closes_too_little_is_not_proved_beyond_its_length():
    """Eleven tokens of another type open the gate by half a count: length 11 is proved, and 12 is wrong."""
    task = Task.of("selective", types=2, max_count=3)
    model = selective(K=2, C=3, layernorm=False, dtype=torch.float32)
    with torch.no_grad():
        model.W_E[:, 3:5] *= 0.2  # closes by 0.2, and 11 of 13 shares are 0.2115
    found = boxes.decide(DecoderArrays.of(model), task, 64, reading_of("float32"))
    assert found.length == 11 and model(torch.tensor([(0,) * 11 + (1,)]))[0, -1].argmax() != 1


@pytest.mark.deep
def test_where_a_dtype_ends(capsys):
    """All lengths are not claimed in float32 without LayerNorm: millions are. With it 100 number words are."""
    code, found = as_json(capsys, "inductive", "--task", "selective", "--types", "2", "--max-count", "2", "--bos",
                          "--no-layernorm", "--precision", "float32", "--effort", "100")  # fmt: skip
    assert code == 3 and found["length"] > 1_000_000 and "beyond it" in found["reason"]
    task = Task.of("shifted", vocabulary=100)
    model = started(task="shifted", M=100, dtype=torch.float32)
    assert certify(Counting(model, task), reading_of("float32"), effort=Effort(budget=5)).verdict is Verdict.PROVED


def searches():
    """A proof for each kind of decoder, with a budget that ends its search; and one that a dtype's bounds end."""
    selecting, first = Task.of("selective", types=2, max_count=2), Task.of("first-heterogeneous", types=2)
    apart = Task.of("first-heterogeneous", types=3, distinct_start=True)
    return (
        (boxes, beside_bos(K=2, dtype=torch.float16), first, "float16", None),
        (marked, unmarked(K=2, C=2, positions=8, dtype=torch.float32), selecting, "bfloat16", 8),
        (placed, positioned(K=2, C=2, positions=8, dtype=torch.float32), selecting, "bfloat16", None),
        (first_token, unmixed(K=3, N=6, layernorm=False, dtype=torch.float16), apart, "float16", 64),
    )


@pytest.mark.parametrize(
    "search", every(2, ((search,) for search in searches())), ids=lambda search: search[0].__name__.rpartition(".")[2]
)
def test_what_ended_a_search_is_said(search):
    """More steps prove more where the budget ended it, and no more where the bounds did; tf32 rounds what is stored."""
    proof, model, task, dtype, longest = search
    assert proof.applies(DecoderArrays.of(model), task)
    cut = proof.decide(DecoderArrays.of(model), task, longest, reading_of("float64"), Budget.counting(1))
    assert cut.ended_by == boxes.CUT
    assert proof.decide(DecoderArrays.of(model), task, longest, reading_of("float64"), 30.0).length > cut.length
    ends = [
        proof.decide(DecoderArrays.of(model), task, longest, reading_of(dtype), Budget.counting(n))
        for n in (10_000, 20_000)
    ]
    assert ends[0] == ends[1] and ends[0].ended_by == boxes.EXCEEDED
    if proof in (placed, first_token):
        assert proof.decide(DecoderArrays.of(model), task, longest, reading_of("tf32"), 30.0).ended_by == boxes.REREAD


def test_the_reason_names_what_ended_the_search():
    model, task = selective(K=10, C=2, layernorm=False, dtype=torch.float32), Task.of("selective", max_count=2)
    for steps, says in ((8, "; the effort of 8 steps ended there"), (10_000, "; beyond it the error bounds exceed")):
        found = certify(Counting(model, task), reading_of("bfloat16"), Effort(Budget.counting(steps)))
        assert found.verdict is Verdict.UNKNOWN and says in found.reason, found.reason
    with torch.no_grad():
        model.blocks[0].attention.W_K[0, 0] = 1e38
    found = certify(Counting(model, task), reading_of("float32"), Effort(Budget.counting(100)))
    assert found.verdict is Verdict.UNKNOWN and found.reason.startswith(boxes.OVERFLOWS)


def test_inputs_at_all_shifts_are_counted_without_a_sum():
    for K, is_distinct in ((1, False), (2, False), (3, False), (2, True), (5, True)):
        task = Task.of("selective", types=K, distinct_start=is_distinct)
        for n, more in itertools.product(range(1, 7), range(4)):
            summed = sum(task.number(i) * (n + more - i + 1) for i in range(1, n + 1))
            assert task.number_at_shifts(n, n + more) == summed
    million = Task.of("selective", types=2).number_at_shifts(1_000_000, 1_000_000)
    assert million % 1_000_003 == (4 * pow(2, 1_000_000, 1_000_003) - 2 * 1_000_000 - 4) % 1_000_003


@pytest.mark.parametrize(
    ("builder", "sizes", "eps"),
    [
        (positioned, {}, 0.0),
        (positioned, {}, -0.001),
        pytest.param(unmarked, {"m": None, "N": 2}, -0.001, marks=pytest.mark.deep),  # traces a graph
    ],
)
def test_layernorms_without_an_eps_above_0_are_judged(builder, sizes, eps):
    """Division by what may be any number above 0: proved where eps is 0, and left open where it is negative."""
    model = builder(K=2, C=2, pe="ape", positions=2, layernorm=True, dtype=torch.float32, **sizes)
    for norm in (part for part in model.modules() if isinstance(part, torch.nn.LayerNorm)):
        norm.eps = eps
    problem = Counting(model, Task.of("selective", types=2, max_count=2), 2)
    verdict = certify(problem, reading_of("float32"), Effort(budget=2.0)).verdict
    assert verdict is (Verdict.PROVED if eps == 0 else Verdict.UNKNOWN)
