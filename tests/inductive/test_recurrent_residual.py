"""Stacks of whole blocks of S4, Mamba and RWKV-6: loaders, and verdicts against sums over all tokens in 100 digits."""

from __future__ import annotations

import json
from itertools import product

import pytest
import torch
from models.selection import every
from models.whole_blocks import drawn
from mpmath import mpf
from oracles.residual_blocks import logits, wrong_at
from torch import nn

from constructions.errors import BadInput
from constructions.recurrent import residual
from constructions.recurrent.residual import BLOCKS, MARKS, as_bytes, as_ours, is_residual_file, load
from tests.command import run
from verify.arithmetic.readings import Kernel
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify, decide
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

TASKS = {
    "modular": Task.of("modular", modulus=2),
    "first-homogeneous": Task.of("first-homogeneous"),
    "helper": Task.of("helper", vocabulary=3),
    "shifted": Task.of("shifted", vocabulary=2),
    "selective": Task.of("selective", types=2, max_count=2),
    "selective-modular": Task.of("selective-modular", types=2, max_count=3, modulus=2),
}


def differs(model, string):
    """By how much a run in float64 and the oracle differ."""
    with torch.no_grad():
        ran = model(torch.tensor([string]))[0].tolist()
    return max(
        abs(x - float(y)) for a, b in zip(ran, logits(model, string), strict=True) for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_step_is_that_of_the_sums_over_all_tokens(kind):
    assert differs(drawn(kind, 0, types=3, classes=3), [0, 2, 1, 1, 0]) < 1e-12


@pytest.mark.parametrize(
    ("kind", "name", "fault"),
    [
        ("s4", "gelu", nn.functional.silu),
        ("mamba", "softplus", torch.exp),
        ("mamba", "silu", nn.functional.gelu),
        ("rwkv", "silu", torch.sigmoid),
        ("rwkv", "OF_GROUPS", 1e-5),
    ],
)
def test_another_function_is_seen(kind, name, fault, monkeypatch):
    monkeypatch.setattr(residual, name, fault)
    assert differs(drawn(kind, 0, types=3, classes=3), [0, 2, 1]) > 1e-6


def wrong_inputs(model, task, longest):
    """Every wrong input of up to so many tokens, by the oracle."""
    if task.is_homogeneous:
        strings = [line.tokens[:longest] for line in task.lines(None if task.longest() else longest)]
    else:
        strings = list(product(range(task.K), repeat=longest))
    return {string[:t] for string in strings for t in wrong_at(model, string, task.answers(string))}


def judged(model, task, length):
    kind = Homogeneous if task.is_homogeneous else Selective
    return certify(kind(model, task, length), effort=Effort(budget=120))


CASES = [(kind, name, seed) for seed in range(12) for name in TASKS for kind in BLOCKS]


@pytest.mark.parametrize(("kind", "name", "seed"), every(128, CASES))
def test_verdicts_are_those_of_a_hundred_digits(kind, name, seed):
    """The last class is so often right that some inputs are: its bias is moved to between two of its margins."""
    task = TASKS[name]
    longest = 4
    model = drawn(kind, seed, types=task.vocabulary, classes=task.classes, layers=1 + seed % 2)
    with torch.no_grad():
        model.head.bias += 3 * nn.functional.one_hot(torch.tensor(seed % task.classes), task.classes)
    wrong = wrong_inputs(model, task, longest)
    least = min(map(len, wrong), default=None)
    started = int(name in ("helper", "shifted"))
    if least is not None:
        found = judged(model, task, None)
        case = found.counterexample
        assert found.verdict == "REFUTED" and tuple(case["input"]) in wrong
        assert len(case["input"]) == least and case["is_first"] and case["length"] == least - started
        rows = logits(model, case["input"])[-1]
        right = task.answers(tuple(case["input"]))[-1]
        assert case["expected"] == task.said(right) and rows[case["predicted"] - task.said(0)] == max(rows)
        assert 0 >= found.margin >= float(rows[right] - max(rows)) - 1e-12
    before = (longest if least is None else least - 1) - started
    if before >= 1:
        found = judged(model, task, before)
        assert found.verdict == "PROVED"


def test_counts_beyond_the_largest_are_not_judged():
    """A network that always says 1 is right modulo 2 where no count is above 1."""
    task, model = Task.of("selective-modular", types=2, max_count=1, modulus=2), drawn("s4", 0, types=2, classes=2)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 0.0]))
    found = judged(model, task, 3)
    assert found.verdict == "PROVED" and found.margin == pytest.approx(1.0)


def fitted(kind):
    """A stack whose head tells the first token from later ones, where a line through its outputs does."""
    model = drawn(kind, 1, types=1, classes=2)
    with torch.no_grad():
        state, seen = model.start, []
        for _ in range(12):
            state, row = model.step(state, torch.tensor([0]))
            seen.append(float(row[0, 1] - row[0, 0]))
        sign = 1.0 if seen[0] > max(seen[1:]) else -1.0
        if sign < 0:
            model.head.weight *= -1
            model.head.bias *= -1
        model.head.bias[1] -= sign * (seen[0] + (max if sign > 0 else min)(seen[1:])) / 2
    return model


@pytest.mark.parametrize("kind", every(3, BLOCKS))
def test_a_line_is_followed_to_a_length(kind):
    model, task = fitted(kind), TASKS["first-homogeneous"]
    string = (0,) * 8
    wrong = wrong_at(model, string, task.answers(string))
    found = judged(model, task, 8)
    assert found.verdict == ("REFUTED" if wrong else "PROVED")
    assert found.counterexample["length"] == wrong[0] if wrong else found.inputs_covered == 8
    ran = decide(Homogeneous(model, task, 8), Kernel(), "exhaustive", Effort(budget=60))
    assert ran.verdict == found.verdict


PUBLIC = {
    "s4": {"embedding.weight": "encoder.weight", "blocks.0.D": "s4_layers.0.D", "blocks.1.norm.bias": "norms.1.bias",
           "head.weight": "decoder.weight"},
    "mamba": {"embedding.weight": "backbone.embedding.weight", "blocks.1.mixer.A_log": "backbone.layers.1.mixer.A_log",
              "norm.weight": "backbone.norm_f.weight", "head.weight": "lm_head.weight"},
    "rwkv": {"embedding.weight": "emb.weight", "first.bias": "blocks.0.ln0.bias", "norm.bias": "ln_out.bias"},
}  # fmt: skip


@pytest.mark.parametrize("kind", BLOCKS)
def test_layouts_in_use_are_read(kind, tmp_path):
    model, path = drawn(kind, 0, types=3, classes=3), tmp_path / "w.pt"
    state = {PUBLIC[kind].get(name, name): value for name, value in model.state_dict().items()}
    assert as_ours(kind, state).keys() == model.state_dict().keys()
    torch.save(state, path)
    assert is_residual_file(path, kind) and not any(is_residual_file(path, x) for x in BLOCKS if x != kind)
    again = tmp_path / "again.safetensors"
    again.write_bytes(as_bytes(load(path, kind=kind)))
    tokens = torch.tensor([[0, 1, 2, 2]])
    assert torch.equal(load(again, kind=kind)(tokens), model(tokens))
    del state[PUBLIC[kind].get("head.weight", "head.weight")]
    torch.save(state, path)
    assert torch.equal(load(path, kind=kind).head.weight, model.embedding.weight)  # tied


@pytest.mark.parametrize("kind", BLOCKS)
def test_near_misses_are_refused_in_one_line(kind, tmp_path):
    state, path = drawn(kind, 0, types=3, classes=3).state_dict(), tmp_path / "w.pt"
    sized = next(name for name in state if MARKS[kind].match(name))
    first_of_block = next(name for name in state if name.startswith("blocks.0"))
    last_of_block = [name for name in state if name.startswith("blocks.1")][-1]
    for changed in (
        {"embedding.weight": torch.zeros(3)},
        {sized: state[sized][None]},
        {sized: torch.zeros((), dtype=torch.float64)},
        {"more.weight": torch.zeros(3, 3).double()},
        {first_of_block: None},
        {last_of_block: torch.zeros(1, 7).double()},
        {last_of_block: state[last_of_block] * torch.nan},
        {last_of_block: state[last_of_block].float()},
        {"head.weight": torch.zeros(3, 5).double()},
        {name.replace("blocks.1", "blocks.3"): value for name, value in state.items() if "blocks.1" in name},
    ):
        torch.save({name: x for name, x in (state | changed).items() if x is not None}, path)
        with pytest.raises(BadInput) as refused:
            load(path, kind=kind)
        assert "\n" not in str(refused.value) and "out of range" not in str(refused.value), changed


def test_options_that_do_not_go_together_are_refused(capsys, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(as_bytes(drawn("s4", 0, types=1, classes=2)))
    base = ("inductive", "--weights", str(path), "--model", "s4", "--task", "modular", "--modulus")
    by_length = ("--by-length", "--length", "5")
    for options in (("2", "--by-length"), ("2", *by_length, "--precision", "float32"), ("2", "--d", "4"), ("3",)):
        code, out, err = run(capsys, *base, *options)
        assert code == 2 and not out and err.count("\n") == 1, options
    code, out, _ = run(capsys, *base, "2", "--json")
    found = json.loads(out)
    assert code == 1 and found["parameters"]["model"] == "s4 blocks" and found["parameters"]["layers"] == 2
    assert mpf(found["margin"]) <= 0
