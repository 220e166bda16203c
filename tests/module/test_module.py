"""Modules decided on whole domains: verdicts, counts and lists against plain enumeration, and the command."""

import copy
import itertools
import json
import math
import time
from unittest import mock

import numpy as np
import pytest
import torch
from models.selection import every, first
from torch import nn

from constructions.decoder import Decoder, initialised
from constructions.errors import BadInput
from tests.models import checkpoints
from tests.models.small_modules import Body
from tests.oracles import decoder_layouts
from verify import assert_proved, certify
from verify.arithmetic.readings import Real, reading_of
from verify.commands.cli import main
from verify.engine.balls import Arithmetic
from verify.engine.run import enclose
from verify.frame.certificate import Verdict
from verify.frame.clock import Deadline
from verify.frame.decide import Effort, decide
from verify.module import ModuleProblem, Task, strings, tokens
from verify.module.decision import Bounds, Judge
from verify.tasks.module.task import about

P = 5


class Table(nn.Module):
    """Logits read from a table, one row for each input of two tokens: anything can be planted."""

    def __init__(self, rows, dtype=torch.float64):
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(rows, dtype=dtype))

    def forward(self, t):
        return self.rows[t[:, 0], t[:, 1]]


def sums(wrong=(), gap=1.0, dtype=torch.float64):
    """The table of (a + b) mod P with the class after the right one winning on the `wrong` inputs."""
    rows = np.zeros((P, P, P))
    for a, b in itertools.product(range(P), repeat=2):
        rows[a, b, (a + b + ((a, b) in wrong)) % P] = gap
    return Table(rows.tolist(), dtype).eval()


def total(t):
    return t.sum(1) % P


def decided(module, **options):
    return certify(module, inputs=tokens([P, P]), expected=total, **options)


def test_right_everywhere():
    found = decided(sums())
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 25 and 0.999 < found.margin <= 1
    assert found.extra["counts"] == {"right": "25", "wrong": "0", "undecided": "0"}
    assert found.extra["decided_by"] == {
        "cells": 0,
        "tables": 0,
        "plain": 0,
        "balls": 25,
        "l2": 0,
        "mean_value": 0,
        "exact": 0,
    }
    assert found.extra["wrong_inputs"] == [] and len(found.extra["graph"]["sha256"][0]) == 64
    assert assert_proved(sums(), inputs=tokens([P, P]), expected=total).verdict is Verdict.PROVED


@pytest.mark.parametrize("wrong", first(1, [([(1, 3), (3, 1), (2, 0)],), ([(0, 0)],), ([(4, 4)],)]))
def test_wrong_inputs_are_counted_and_listed(wrong):
    found = decided(sums(wrong))
    assert found.verdict is Verdict.REFUTED and found.inputs_covered == 1
    assert found.extra["counts"] == {"right": str(25 - len(wrong)), "wrong": str(len(wrong)), "undecided": "0"}
    assert found.extra["wrong_inputs"] == sorted(map(list, wrong))
    first = sorted(wrong)[0]
    assert found.counterexample == {"input": list(first), "expected": sum(first) % P, "predicted": (sum(first) + 1) % P}
    with pytest.raises(AssertionError, match="REFUTED"):
        assert_proved(sums(wrong), inputs=tokens([P, P]), expected=total)


def test_a_tie_is_wrong_and_decided_exactly():
    module = sums()
    with torch.no_grad():
        module.rows[1, 2, 0] = 1.0
    found = decided(module)
    assert found.verdict is Verdict.REFUTED and found.margin == 0 and found.extra["wrong_inputs"] == [[1, 2]]
    assert found.counterexample["predicted"] == 0 and found.extra["decided_by"]["exact"] <= 1


class Close(nn.Module):
    """Two logits that differ by 1e-19 times a token: zero in float64, not in real arithmetic."""

    def __init__(self, sign):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.tensor(x, dtype=torch.float64)) for x in (1.0, sign * 1e-19))

    def forward(self, t):
        x = t[:, :1].double() + 1
        return torch.cat([self.a + self.b * x, self.a * torch.ones_like(x)], 1)


@pytest.mark.parametrize("sign, verdict", first(2, [(1, Verdict.PROVED), (0, Verdict.REFUTED), (-1, Verdict.REFUTED)]))
@pytest.mark.deep
def test_higher_precision_decides_what_float64_cannot(sign, verdict):
    found = certify(Close(sign).eval(), inputs=tokens([3]), expected=lambda t: 0 * t[:, 0])
    assert found.verdict is verdict and found.extra["decided_by"]["exact"] == 3
    assert certify(
        Close(sign).eval(), inputs=tokens([3]), expected=lambda t: 0 * t[:, 0], reading="float64"
    ).verdict in (Verdict.UNKNOWN,)


def test_real_and_dtype_are_told_apart():
    """A gap of 2^-12 is proved in real arithmetic, and below bfloat16's rounding of the stored numbers."""
    module = sums(gap=1 + 2.0**-12)
    with torch.no_grad():
        module.rows.add_((module.rows == 0) * 1.0)
    assert decided(module).verdict is Verdict.PROVED
    assert decided(module, reading="float32").verdict is Verdict.PROVED
    assert decided(module, reading="bfloat16").verdict is not Verdict.PROVED


def test_nan_and_infinity_prove_nothing():
    module = sums()
    with torch.no_grad():
        module.rows[2, 2, 4] = torch.inf
    assert decided(module).verdict is not Verdict.PROVED
    with torch.no_grad():
        module.rows[2, 2, 4] = torch.nan
    with pytest.raises(BadInput, match="NaN"):
        decided(module)


class Spoilt(nn.Module):
    """A second logit that is no number where the first token is 2, after a function whose range is bounded."""

    def __init__(self, spoil, squash):
        super().__init__()
        self.spoil, self.squash = spoil, squash

    def forward(self, t):
        x = t[:, :1].float()
        return torch.cat([9 + 3 * x, self.squash(self.spoil(x) * torch.tensor([[1.0, 0.5]]))], 1)


def overflowing(x):
    return (x * 150) ** 2 * 4 - (x * 150) ** 2 * 4  # 90000 * 4 is beyond float16: inf - inf


def normal(y):
    return nn.functional.layer_norm(y, (2,))


def weights(y):
    return y.softmax(-1)


SPOILT = {
    "real": [
        (lambda x: (1.5 - x).sqrt(), normal),
        (lambda x: 1 / (2 - x), torch.tanh),
        (lambda x: (1.9 - x).log(), weights),
    ],
    "float16": [
        (overflowing, torch.tanh),
        (overflowing, torch.sin),
        (overflowing, weights),
        (lambda x: x * 1e5 - x * 1e5, torch.sigmoid),
    ],
}


@pytest.mark.parametrize("reading", every(2, SPOILT))
def test_what_may_be_no_number_is_never_proved(reading):
    """A root of what is negative, 1/0, inf - inf: whatever follows has no ball, though its range is bounded."""
    for spoil, squash in SPOILT[reading]:
        found = certify(
            Spoilt(spoil, squash).eval(), inputs=tokens([3]), expected=lambda t: 0 * t[:, 0], reading=reading
        )
        assert found.verdict is Verdict.UNKNOWN and int(found.extra["counts"]["undecided"]) >= 1


class Failing(Body):
    """A module that raises an error on the input (1, 1) alone, or on tokens below 1."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, t):
        if self.way == "assertion":
            torch._assert_async(((t[:, 0] != 1) | (t[:, 1] != 1)).all())
            return self.out(self.embed(t))
        return self.out(self.embed(t - 1))


@pytest.mark.parametrize("way", ["assertion", "negative tokens"])
def test_what_the_module_fails_on_is_never_proved(way):
    task = {"inputs": tokens([3, 3]), "expected": lambda t: 0 * t[:, 0], "classes": range(2)}
    with torch.no_grad():
        module = Failing(way).eval()
        module.out.bias[0] += 9
    with pytest.raises(BadInput, match="the module fails on "):
        certify(module, **task)
    problem = ModuleProblem(module, Task(**task))
    judge, inputs = problem.judge(2, Real()), torch.tensor([[1, 1], [0, 2], [2, 1]])
    low = judge.bounds(inputs, torch.zeros(3, 1, dtype=torch.long), Deadline.never()).low
    assert (low > 0).tolist() == ([False, True, True] if way == "assertion" else [True, False, True])


@pytest.mark.parametrize("fill", first(1, [-1e9, torch.finfo(torch.float32).min]))
def test_masks_by_large_numbers_cost_nothing(fill):
    class Masked(Body):
        def through(self, x):
            future = torch.ones(3, 3).triu(1).bool()
            return (x @ x.transpose(1, 2)).masked_fill(future, fill).softmax(-1) @ x

    torch.manual_seed(0)
    model = Masked().eval()
    right = {tuple(t): int(model(torch.tensor([t]))[0, -1].argmax()) for t in itertools.product(range(5), repeat=3)}
    task = {"inputs": tokens([5] * 3), "expected": lambda t: torch.tensor([right[tuple(r)] for r in t.tolist()])}
    found = certify(model, reading="float32", **task)
    assert found.verdict is Verdict.PROVED and found.extra["decided_by"]["balls"] == 125


class EveryOther(nn.Module):
    """Adds a number in place to every second row."""

    def forward(self, t):
        x = torch.eye(3, dtype=torch.float64)[t].clone()
        x[:, ::2].add_(2.0)
        return x[:, 0] + x[:, 1] / 2


def test_every_second_row_is_overwritten():
    found = certify(EveryOther().eval(), inputs=tokens([3, 3, 3]), expected=lambda t: t[:, 0])
    assert found.verdict == "PROVED"


def test_positions_and_classes():
    class Copy(nn.Module):
        def forward(self, t):
            return nn.functional.one_hot(t, 6).double()

    options = {"inputs": tokens([3, 3, 3])}
    assert certify(Copy().eval(), expected=lambda t: t, position=None, **options).verdict is Verdict.PROVED
    assert certify(Copy().eval(), expected=lambda t: t[:, 1], position=1, **options).verdict is Verdict.PROVED
    assert certify(Copy().eval(), expected=lambda t: t[:, [2, 0]], position=(2, 0), **options).verdict is Verdict.PROVED
    found = certify(Copy().eval(), expected=lambda t: t[:, [0, 0]], position=(0, 1), **options)
    assert found.extra["counts"]["wrong"] == "18" and found.counterexample["expected"] == [0, 0]
    assert found.counterexample["predicted"] == [0, 1]
    # classes leave other columns out of the comparison
    worse = Table([[[0.0, 1.0, 5.0]]]).eval()
    asked = {"inputs": tokens([1, 1]), "expected": lambda t: 1 + 0 * t[:, 0]}
    assert certify(worse, **asked).verdict is Verdict.REFUTED
    assert certify(worse, classes=range(2), **asked).verdict is Verdict.PROVED


def test_domains():
    assert strings([7, 3], 3, at_least=2).size == 12
    listed = certify(sums(), inputs=torch.tensor([[1, 1], [0, 2], [1, 1]]), expected=total)
    assert listed.verdict is Verdict.PROVED and listed.inputs_covered == 2
    below = tokens([P, P], where=lambda t: t[:, 0] < t[:, 1])
    assert certify(sums([(3, 1)]), inputs=below, expected=total).inputs_covered == 10
    assert certify(sums([(1, 3)]), inputs=below, expected=total).extra["counts"]["wrong"] == "1"


@pytest.mark.parametrize(
    "options, message",
    every(6, [
        ({"expected": lambda t: t.sum(1)}, "is none of the 5 classes"),
        ({"expected": lambda t: t}, r"returned \(25, 2\) for 25 inputs"),
        ({"expected": lambda t: t.sum(1).double()}, "must be whole numbers"),
        ({"classes": [0]}, "at least two columns"),
        ({"classes": range(9)}, "beyond the module's 5 logits"),
        ({"position": 2}, "must be -2..1"),
        ({"inputs": tokens([P, P], where=lambda t: t[:, 0] > 9)}, "the domain is empty"),
        ({"inputs": tokens([P, P], where=lambda t: t)}, "must be one truth value"),
        ({"inputs": "01"}, "give tokens"),
        ({"reading": "s6"}, "no defined order"),
        ({"expected": 3}, "must be a function"),
        ({"device": "cuda:7"}, "finds no such device here"),
        ({"inputs": tokens([P, P + 1])}, "Are all tokens in its vocabulary"),
    ]),
)  # fmt: skip
def test_arguments_that_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        certify(sums(), **({"inputs": tokens([P, P]), "expected": total} | options))


def trained(seed, steps, p=7, activation="relu"):
    """A small one-layer decoder trained to add modulo p, and the share of pairs that it gets right in float64."""
    model = initialised(
        Decoder(
            vocabulary=p + 1, d=16, n_heads=2, d_mlp=32, positions=3, activation=activation,
            layernorm=False, attention_bias=False,
        ),
        seed=seed,
        std=0.3,
    )  # fmt: skip
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p), torch.tensor([p]))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(pairs, position=-1)[:, :p], pairs[:, :2].sum(1) % p)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.mark.deep
@pytest.mark.parametrize("steps", first(1, [15, 400]))
def test_a_trained_decoder_against_enumeration(steps):
    """The counts are those of a plain numpy forward pass over all pairs, with no tolerance for either."""
    p, model = 7, trained(0, steps)
    weights = {
        "embed.W_E": model.W_E.T, "pos_embed.W_pos": model.W_pos, "unembed.W_U": model.W_U,
        **{f"blocks.0.mlp.{n}": getattr(model.blocks[0].mlp, n) for n in ("b_in", "b_out")},
        "blocks.0.mlp.W_in": model.blocks[0].mlp.W_in.T, "blocks.0.mlp.W_out": model.blocks[0].mlp.W_out.T,
        "blocks.0.attn.W_O": model.blocks[0].attention.W_O.T,
        **{
            f"blocks.0.attn.W_{c}": getattr(model.blocks[0].attention, f"W_{c}").T.reshape(2, 8, 16)
            for c in "QKV"
        },
    }  # fmt: skip
    plain = {name: value.detach().numpy() for name, value in weights.items()}
    margins = {}
    for a, b in itertools.product(range(p), repeat=2):
        logits = decoder_layouts.progress_measures(plain, [a, b, p])[-1][:p]
        right = (a + b) % p
        margins[a, b] = logits[right] - np.delete(logits, right).max()
    found = certify(model, inputs=tokens([p, p, [p]]), expected=lambda t: (t[:, 0] + t[:, 1]) % p, classes=range(p))
    wrong = sorted([a, b, p] for (a, b), margin in margins.items() if margin <= 0)
    assert found.extra["wrong_inputs"] == wrong and found.extra["counts"]["undecided"] == "0"
    assert found.verdict is (Verdict.REFUTED if wrong else Verdict.PROVED)
    if not wrong:
        assert min(margins.values()) - 1e-9 < found.margin <= min(margins.values()) + 1e-12
    else:
        assert found.counterexample["input"] == wrong[0]
        assert found.margin == pytest.approx(margins[tuple(wrong[0][:2])], abs=1e-9)
    rounded = certify(
        model, inputs=tokens([p, p, [p]]), expected=lambda t: (t[:, 0] + t[:, 1]) % p, classes=range(p),
        reading="float32",
    )  # fmt: skip
    assert rounded.verdict in (found.verdict, Verdict.UNKNOWN)
    if not wrong:
        assert rounded.verdict is Verdict.PROVED and rounded.margin <= found.margin


def test_a_proof_takes_at_most_four_forward_passes():
    """A decoder of the grokking checkpoints' sizes in real arithmetic, CPU seconds; less than one when idle."""
    sizes = {"vocabulary": 114, "d": 128, "n_heads": 4, "d_mlp": 512, "positions": 3, "activation": "relu"}
    model = initialised(Decoder(layernorm=False, attention_bias=False, **sizes), seed=0, std=0.1).eval()
    task = Task(tokens([113, 8, [113]]), lambda t: (t[:, 0] + t[:, 1]) % 113, classes=range(113))
    problem, rows = ModuleProblem(model, task), next(task.inputs.parts[0].batches())
    assert problem.graphs

    def forward():
        with torch.no_grad():
            model(rows)

    def ratio():
        times = [time.process_time()]
        for work in (forward, lambda: decide(problem, Real(), "certified", Effort())):
            work()
            times.append(time.process_time())
        return (times[2] - times[1]) / (times[1] - times[0])

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for a busy core count as work
    try:
        assert any(ratio() < 4 for _ in range(20))
    finally:
        torch.set_num_threads(threads)


def test_the_budget_ends_with_what_was_not_reached():
    found = certify(
        sums(), inputs=tokens([P, P], where=lambda t: t[:, 0] >= 0), expected=total, budget=0.0
    )  # one batch is always done
    assert found.verdict is Verdict.PROVED

    class Two(nn.Module):
        def forward(self, t):
            return nn.functional.one_hot(t[:, 0], 2).double()

    found = certify(Two().eval(), inputs=tokens([2] * 20), expected=lambda t: t[:, 0], budget=0.0)
    assert found.verdict is Verdict.UNKNOWN and "inputs to go" in found.reason
    counts = found.extra["counts"]
    assert int(counts["right"]) + int(counts["undecided"]) == 2**20 and found.inputs_covered == 0


@pytest.mark.deep
def test_the_hill_climb_finds_a_rare_failure():
    """One wrong input among 2^24, which enumeration does not reach."""

    class Sum(nn.Module):
        def forward(self, t):
            total = t.double().sum(1, keepdim=True)
            return torch.cat([23.5 - total, 0 * total], 1)

    found = certify(Sum().eval(), inputs=tokens([2] * 24), expected=lambda t: 0 * t[:, 0], budget=1.0)
    assert found.verdict is Verdict.REFUTED and found.counterexample["input"] == [1] * 24


@pytest.mark.deep
def test_mean_values_decide_what_norms_leave_open():
    """Float32, any order, after a LayerNorm: the model's own answers are proved with mean values, fewer without."""
    model = initialised(Decoder(vocabulary=5, d=16, n_heads=2, positions=3, dtype=torch.float32), seed=3, std=0.3)
    domain = {"inputs": tokens([5, 5, 5]), "reading": "float32"}
    exact = copy.deepcopy(model).double()
    options = domain | {"expected": lambda t: exact(t)[:, -1].argmax(1)}
    found = certify(model.eval(), **options)
    with mock.patch.object(Judge, "_by_mean_values"):
        without = certify(model, **options)
    counts, fewer = found.extra["counts"], without.extra["counts"]
    assert int(counts["right"]) > int(fewer["right"]) and counts["wrong"] == fewer["wrong"] == "0"
    assert found.extra["decided_by"]["mean_value"] == int(fewer["undecided"]) - int(counts["undecided"])


@pytest.mark.deep
def test_methods_agree():
    for wrong, methods in (([], ("certified", "exhaustive", "sampled")), ([(2, 2)], ("exhaustive", "sampled"))):
        for method in methods:
            found = decided(sums(wrong), method=method)
            expected = Verdict.REFUTED if wrong else Verdict.UNKNOWN if method == "sampled" else Verdict.PROVED
            assert found.verdict is expected
            if wrong:
                assert found.counterexample["input"] == [2, 2]


TASK = """
from constructions.decoder import from_progress_measures
from verify.module import Task, tokens
def model(weights):
    return from_progress_measures(weights)
task = Task(inputs=tokens([7, 7, [7]]), expected=lambda t: (t[:, 0] + t[:, 1]) % 7, position=-1, classes=range(7))
"""


@pytest.fixture
def task(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    weights = checkpoints.progress_measures(V=8, classes=8)
    torch.save({"model": {name: value.float() for name, value in weights.items()}, "epoch": 9}, tmp_path / "run.pt")
    return tmp_path


def test_the_command(task, capsys):
    argv = ["module", str(task / "task.py"), "--weights", str(task / "run.pt")]
    assert main([*argv, "--json", "--save", str(task / "out")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["undecided"] == "0" and sum(map(int, found["counts"].values())) == 49
    assert len(found["wrong_inputs"]) == int(found["counts"]["wrong"]) and found["weights_sha256"]
    assert json.loads((task / "out" / "certificate.json").read_text())["counterexample"] == found["counterexample"]
    assert main(argv) == 1
    shown = capsys.readouterr().out
    assert "not used" in shown and "blocks.0.attn.mask" in shown and "REFUTED" in shown
    assert main([*argv, "--precision", "bfloat16", "--json"]) in (1, 3)


@pytest.mark.parametrize(
    "text, message",
    [
        ("x = 1", "defines no `task`"),
        (TASK.replace("def model", "def other"), "defines no `model`"),
        ("1 / 0", "ZeroDivisionError: division by zero (line 1)"),
        (TASK.replace("return from", "return 3 or from"), "returned int"),
        (TASK.replace("return from", "return weights['nothing'] or from"), "model(weights) failed: KeyError"),
    ],
)
def test_task_files_that_are_refused(task, capsys, text, message):
    (task / "task.py").write_text(text)
    assert main(["module", str(task / "task.py"), "--weights", str(task / "run.pt")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_files_are_never_unpickled(task, capsys):
    class Trap:
        def __reduce__(self):
            return (print, ("code ran",))

    torch.save({"model": {"embed.W_E": Trap()}}, task / "trap.pt")
    assert main(["module", str(task / "task.py"), "--weights", str(task / "trap.pt")]) == 2
    assert "code ran" not in capsys.readouterr().out
    assert main(["module", str(task / "nothing.py")]) == 2 and main(["module", str(task / "run.pt")]) == 2


def test_an_unsupported_operation_is_one_message():
    class Floor(nn.Module):
        def forward(self, x):
            return x.floor()

    with pytest.raises(BadInput) as refused:
        certify(Body(Floor()).eval(), inputs=tokens([5, 5, 5]), expected=lambda t: 0 * t[:, 0], classes=range(3))
    assert "floor" in str(refused.value) and "\n" not in str(refused.value)


def test_mean_values_are_not_asked_about_no_inputs():
    judge = Judge.__new__(Judge)
    judge.mean_values = lambda *batch: pytest.fail("asked about no inputs")
    decided = Bounds(torch.ones(3, dtype=torch.float64), torch.full((3,), 2.0, dtype=torch.float64))
    judge._by_mean_values(torch.zeros((3, 2), dtype=torch.long), torch.zeros(3, dtype=torch.long), decided, math.inf)
    assert decided.by["mean_value"] == 0


class EncoderOnly(nn.Module):
    """A layer of torch's own, read at the last position, or at each."""

    def __init__(self, norm_first=True, at=-1):
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.place, self.at = nn.Embedding(12, 32), nn.Parameter(torch.randn(4, 32) / 8), at
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.head = nn.Linear(32, 12)

    def forward(self, x):
        return self.head(self.layer(self.embed(x) + self.place)[:, self.at])


has_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@has_gpu
@pytest.mark.parametrize("reading", ["real", "float32"])
@pytest.mark.parametrize("norm_first, at", [(True, -1), (False, -1), (True, slice(None))])
def test_a_gpu_decides_the_same_inputs(reading, norm_first, at):
    expected, position = (lambda t: t.amax(-1), -1) if at == -1 else (lambda t: t.cumsum(1) % 12, None)
    asked = {"inputs": tokens([12] * 4), "expected": expected, "reading": reading, "position": position}
    model = EncoderOnly(norm_first, at).eval()
    here, there = (certify(model, device=device, **asked) for device in ("cpu", "cuda"))
    assert [here.extra[name] for name in ("counts", "wrong_inputs")] == [
        there.extra[name] for name in ("counts", "wrong_inputs")
    ]
    assert here.extra.get("by_position") == there.extra.get("by_position")
    assert here.verdict is there.verdict
    assert there.extra["decided_by"]["plain"] > 0.99 * here.extra["decided_by"]["plain"] - 1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=has_gpu)])
@pytest.mark.parametrize("reading", ["real", pytest.param("float32", marks=pytest.mark.deep)])
def test_plain_runs_and_balls_bound_the_same_margins(reading, device):
    """Wherever the plain runs are made, their bounds and those of balls hold the margins of real arithmetic."""
    given = Task(tokens([12] * 4), lambda t: t.amax(-1))
    problem = ModuleProblem(EncoderOnly().eval(), given, device)
    graph, question = problem.graphs[4], given.question(4)
    judge = problem.judge(4, reading_of(reading), given.inputs.parts[0].allowed)
    rows = torch.randint(12, (300, 4), generator=torch.Generator().manual_seed(0))
    answers = given.answers(rows, 12)
    low, high = judge._run(judge.plain, rows, answers)
    least, most = enclose(graph, Arithmetic(has_norms=True), question)(rows, answers)
    assert bool(((low <= most) & (least <= high)).all())
    assert float(((low > 0) | (high <= 0)).double().mean()) > 0.8
    assert judge.plain.radius.device.type == device


def test_a_task_file_says_what_it_is_about(tmp_path):
    file = tmp_path / "task.py"
    file.write_bytes(b"# -*- coding: latin-1 -*-\n'''W-25: the gr\xf6\xdfte token.\nMore.'''\n")
    assert list(about(str(file))) == [("about", "W-25: the größte token.")]
    file.write_text("task = None\n")
    assert not list(about(str(file)))
