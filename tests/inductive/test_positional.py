"""Decoders that count by position ids: proofs, wrong slacks, and a trained decoder of four layers."""

import importlib.util
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from command import as_json, run
from models.selection import first
from oracles import decoder as oracle
from oracles.inductive import right

from constructions.inductive import ape, load, spe, with_layernorm
from verify.arithmetic.readings import reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import certify, exhaustive
from verify.tasks.inductive import sharp
from verify.tasks.inductive.task import Counting

DATA = Path(__file__).parents[1] / "data" / "inductive"
TRAINING = Path(__file__).parents[1] / "tools" / "train_inductive.py"


@pytest.mark.parametrize("build", first(1, [spe, ape]))
@pytest.mark.parametrize("name", first(2, ["vanilla", "modular", "first-homogeneous"]))
@pytest.mark.parametrize("N", first(1, [7, 11]))
def test_every_shift_and_length(build, name, N):
    task = Task.of(
        name, **({"vocabulary": N} if name == "vanilla" else {}), **({"modulus": 3} if name == "modular" else {})
    )
    model = build(task=name, N=N, m=task.m, positions=N + 1)
    for chosen in (model, with_layernorm(model))[int(name != "modular") :]:
        found = certify(Counting(chosen, task, N))
        assert found.verdict is Verdict.PROVED and found.margin > 0.2
        assert exhaustive(Counting(chosen, task, N)).inputs_covered == found.inputs_covered
        for shift in range(N + 1):
            tokens = (0,) * min(N + 1 - shift, N)
            said = chosen(torch.tensor([tokens]), shift=shift)[0].argmax(-1).tolist()
            assert tuple(said) == right(name, tokens, M=task.M, m=task.m)


def test_one_tooth_too_few_is_refuted_at_the_first_length_that_needs_it():
    model = spe(task="modular", N=9, m=3, positions=14)
    found = certify(Counting(model, Task.of("modular", modulus=3)))
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == 10
    assert found.to_dict()["length"] == 9 and found.counterexample["shift"] == 0


@pytest.mark.parametrize("dtype", first(1, ["float32", "bfloat16"]))
def test_one_key_s_value_bounds_what_torch_computes(dtype, device):
    """Mutated tables and weights, at every shift: the margins in the dtype lie between the bounds."""
    task, reading, closed = Task.of("modular", modulus=5), reading_of(dtype), 0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        model = ape(task="modular", N=12, m=5, positions=12, dtype=getattr(torch, dtype))
        with torch.no_grad():
            for value in model.parameters():
                noise = torch.randn(value.shape, generator=generator).to(value.dtype)
                value += value.abs() * noise * 0.02 * seed
        bounds = list(sharp.bounds(Counting(model, task).runs, reading))
        model.to(device)
        for found in bounds:
            n = len(found.lines[0].tokens)
            tokens = torch.zeros(1, n, dtype=torch.long, device=device)
            with torch.no_grad():
                said = model(tokens, shift=found.shifts.start)[0].double()
            for i, row in enumerate(said):
                margin = row[i % 5] - row[[c for c in range(5) if c != i % 5]].max()
                assert not float(margin) < found.low[0, i] and not float(margin) > found.high[0, i]
                closed += bool(found.low[0, i] > 0)
    assert closed > 70


@pytest.mark.deep
def test_neurons_and_slack():
    """18 neurons for 100 modulo 10; residues leave all but e^-32 of the lines' half, in 8 bits nearly all of it."""
    assert spe(task="modular", N=100, m=10).blocks[0].mlp.b_in.numel() == 18
    found = certify(Counting(ape(task="modular", N=12, m=10, positions=12), Task.of("modular")))
    assert 0.499 < found.margin <= 0.5
    model = ape(task="vanilla", N=12, positions=16, dtype=torch.bfloat16)
    found = certify(Counting(model, Task.of("vanilla", vocabulary=12)), reading_of("bfloat16"))
    assert found.verdict is Verdict.PROVED and found.margin > 0.49
    with torch.no_grad():
        model.W_pos[8, 2] += 0.5  # a residue that is off by a half
    wrong = Counting(model, Task.of("vanilla", vocabulary=12))
    assert certify(wrong, reading_of("bfloat16")).verdict is not Verdict.PROVED


def test_eq_2_as_printed_is_never_right(capsys):
    """The sign is reversed and the answer counts from 0: -s is never s + 1 modulo 10."""
    sizes = ("--task", "modular", "--pe", "ape", "--no-layernorm", "--positions", "13")
    code, found = as_json(capsys, "inductive", *sizes, "--as-printed")
    assert code == 1 and found["verdict"] == "REFUTED" and found["claim"] is None
    case = found["counterexample"]
    assert (case["length"], case["shift"], case["expected"], case["predicted"]) == (1, 0, 1, 10)
    assert found["accuracy"] == {"1..50": ["0/1", "0/1"]} and found["length"] == 0
    model = ape(task="modular", N=13, m=10, positions=13, as_printed=True)
    said = model(torch.zeros(1, 8, dtype=torch.long), shift=5)[0].argmax(-1).tolist()
    assert said == [(-i - 1) % 10 for i in range(8)]
    for other in (("modular", "--pe", "spe"), ("selective", "--bos"), ("shifted",)):
        code, out, err = run(capsys, "inductive", "--task", *other, "--as-printed")
        assert code == 2 and out == "" and err.count("\n") == 1


def test_the_share_at_the_lengths_of_document_c():
    """9 teeth of 3 at 60 positions: right up to length 9, and by chance beyond."""
    model, task = spe(task="modular", N=9, m=3, positions=60), Task.of("modular", modulus=3)
    found = certify(Counting(model, task)).to_dict()["accuracy"]
    m, wins = oracle.stored(model), {"1..50": [], "51..100": []}
    for shift in range(60):
        logits = oracle.fast(m, [(0,) * (60 - shift)], shift)[0]
        for i, margin in enumerate(oracle.margins(logits, [i % 3 for i in range(60 - shift)])):
            wins["1..50" if i < 50 else "51..100"].append(margin > 0)
    assert found == {part: [str(Fraction(sum(won), len(won)))] * 2 for part, won in wins.items()}


def stored(name):
    return load(str(DATA / f"{name}.safetensors"))


@pytest.mark.deep
def test_a_trained_decoder_of_four_layers_at_every_shift():
    """Trained on 200 tokens: here all inputs of up to 4 tokens, with LayerNorm and GELU, in the l2 norm."""
    found = certify(Counting(stored("modular_rope_l4"), Task.of("modular"), 4))
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 252 * 4 + 3 + 2 + 1


@pytest.mark.deep
def test_a_trained_decoder_of_four_layers_is_right_up_to_length_200():
    """Every length and shift within its 256 positions, BOS among them; 42 CPU seconds when it was written."""
    model = stored("modular_rope_l4")
    found = certify(Counting(model, Task.of("modular"), 200))
    assert found.verdict is Verdict.PROVED and found.to_dict()["length"] == 200
    assert found.inputs_covered == 56 * 200 + sum(range(200)) and found.margin > 9
    m = oracle.stored(model)
    for shift in (0, 55, 150, 254):
        n = min(200, 255 - shift)
        least = min(oracle.margins(oracle.fast(m, [(0,) * n], shift)[0], [i % 10 for i in range(n)]))
        assert found.margin <= least + 1e-6


@pytest.mark.deep
def test_a_trained_decoder_fails_one_token_after_its_training():
    """Trained on 50 tokens: right on all shorter inputs, wrong at 51."""
    model = stored("vanilla_nope_l4")
    found = certify(Counting(model, Task.of("vanilla"), 100))
    assert found.verdict is Verdict.REFUTED and found.to_dict()["length"] == 50
    case = found.counterexample
    assert (case["length"], case["shift"], case["expected"], case["is_smallest"]) == (51, 0, 51, True)
    said = oracle.fast(oracle.stored(model), [(0,) * 51], 0)[0].argmax(-1).tolist()
    assert said[:50] == list(range(1, 51)) and said[50] == case["predicted"] != 51


@pytest.mark.deep
@pytest.mark.parametrize("pe", ["ape", "sine"])
def test_a_decoder_trained_anew(pe):
    """Every input is decided: the counterexample is the shortest wrong one, and all shorter ones are right."""
    spec = importlib.util.spec_from_file_location("train_inductive", TRAINING)
    training = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(training)
    model = training.trained(Task.of("modular"), pe=pe, length=20, positions=40, steps=150, n_layers=2)
    found = certify(Counting(model, Task.of("modular"), 30))
    if found.verdict is Verdict.REFUTED:
        n, shift = found.counterexample["length"], found.counterexample["shift"]
        assert found.counterexample["is_smallest"] and found.to_dict()["length"] == n - 1
        said = oracle.fast(oracle.stored(model), [(0,) * n], shift)[0].argmax(-1).tolist()
        assert said[:-1] == [i % 10 for i in range(n - 1)] and said[-1] != (n - 1) % 10
    assert found.verdict is not Verdict.UNKNOWN
