"""Gated decays with neurons or without, on all strings by counts: every short string run with 40 digits, and faults."""

from __future__ import annotations

import copy
import random
from functools import cache
from itertools import product
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import arb
from models.selection import first
from oracles.gated_strings import by_hand, numbers, random_model, strings

from bounds.recurrent import decays, decays_and_neurons
from constructions.errors import BadInput
from constructions.recurrent import gated
from tests.command import as_json, run
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import reading_of
from verify.arithmetic.rounding import rounded
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import counted, impossible, network
from verify.tasks.recurrent import gated as tables
from verify.tasks.recurrent.counted import CountedStrings
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

KINDS = ("s4", "mamba", "rwkv")
ENDLESS = Budget.of(1e9).deadline()
FLOAT32 = RoundedArithmetic.of(FORMATS["float32"])


def least(model, task, length):
    """The least margin of all judged answers."""
    found = []
    for string, _, logits in strings(model, task.K, length):
        right = task.answers(string)[-1]
        if right is not None:
            found.append(logits[right] - max(x for j, x in enumerate(logits) if j != right))
    return min(found)


def least_in_float32(model, task, length):
    """The same as torch computes it."""
    every = torch.tensor(list(product(range(task.K), repeat=length)))
    logits = model.float()(every).double().numpy()
    found = []
    for string, row in zip(every.tolist(), logits, strict=True):
        for right, said in zip(task.answers(tuple(string)), row, strict=True):
            if right is not None:
                found.append(said[right] - np.delete(said, right).max())
    return min(found)


def sizes(kind, name, K=2, length=6):
    """A construction at a small size."""
    task = Task.of(name, types=K, max_count=length, **({"modulus": 2} if "modular" in name else {}))
    if kind != "s4" and task.m is not None:
        return task, gated.decays(kind=kind, m=2, s=4, N=5, types=K)
    return task, gated.layered(kind=kind, types=K, length=length, max_count=length, m=task.m)


def small(kind, name):
    """Two constructions or one: with neurons, and without where there is one."""
    task, model = sizes(kind, name)
    if model.layer is not None:
        return [(task, model)]
    return [(Task.of(name, types=2, max_count=5, modulus=2), model),
            (task, gated.layered(kind=kind, types=2, length=6, max_count=6, m=2))]  # fmt: skip


def changed(model, rng):
    """The model with one number changed."""
    found = copy.deepcopy(model)
    parts = [part.view(-1) for part in found.parameters()]
    part = rng.choice(parts)
    with torch.no_grad():
        part[rng.randrange(len(part))] += rng.choice([1e-3, -0.05, 0.3, -0.4, 2.0, -3.0])
    return found


@pytest.mark.parametrize("name", first(1, ["selective", "selective-modular"]))
@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_agree_with_every_short_string(kind, name):
    """Built, and with each of some numbers changed: in real arithmetic, and as float32 runs."""
    rng, proved, refuted = random.Random(f"{kind} {name}"), 0, 0
    for task, model in small(kind, name):
        for k in range(7):
            asked = changed(model, rng) if k else model
            found, margin = CountedStrings.of(asked, task, None).prove(6, ENDLESS), least(asked, task, 6)
            if found.reason is None:
                assert 0 < found.margin <= margin, k
                proved += 1
            elif margin <= 0:
                said = certify(Selective(asked, task, 6), effort=Effort(budget=4))
                assert said.verdict.value == "REFUTED" and said.counterexample["expected"], k
                refuted += 1
            assert k or margin - found.margin < 0.1
            rounded = CountedStrings.of(asked, task, FLOAT32).prove(6, ENDLESS)
            if rounded.reason is None:
                assert 0 < rounded.margin <= least_in_float32(copy.deepcopy(asked), task, 6), k
            assert k or rounded.reason is None
    assert proved >= 2 and refuted >= 1, (proved, refuted)


@cache
def ran(kind, seed, has_layer):
    """A random network, and all its short strings over three types."""
    model = random_model(kind, seed, has_layer=has_layer, K=3)
    return model, list(strings(model, 3, 4))


def lies():
    """Whether a state leaves its ends, or a gap is less than the bound on it, in random networks of all kinds."""
    task = Task.of("selective", types=3, max_count=2)
    for kind, seed, has_layer in product(KINDS, range(2), (True, False)):
        model, every = ran(kind, seed, has_layer)
        asked = CountedStrings.of(model, task, None)
        low, high = asked._reached(4, 2, ENDLESS)
        judged = [(s[-1], s.count(s[-1]), *said) for s, *said in every if s.count(s[-1]) <= 2]
        token, n = (np.array([case[k] for case in judged]) for k in (0, 1))
        ends = low[token, n - 1], high[token, n - 1]
        bounds = asked._margins(ends, token, n)
        for k, (_, right, state, logits) in enumerate(judged):
            if not all(float(a) <= x <= float(b) for a, x, b in zip(ends[0][k], state, ends[1][k], strict=True)):
                return True
            if bounds[k] > logits[right] - max(x for j, x in enumerate(logits) if j != right):
                return True
    return False


def test_states_and_gaps_of_random_networks_stay_in_their_bounds():
    assert not lies()


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong"),
    [
        (CountedStrings, "_of_others", "table.lower[r].min(0)", "table.upper[r].max(0)"),
        (CountedStrings, "_of_others", "!= t for", "== t for"),
        (CountedStrings, "_reached", "np.minimum(seen_low[:, :n], counted[0])", "counted[0]"),
        (CountedStrings, "_reached", "_joined(kept, counted, most)", "_joined(kept, (low[:, :n], high[:, :n]), most)"),
        (CountedStrings, "_margins", "line = _only(d, is_on)", "line = _only(d, ~is_on)"),
        (CountedStrings, "_margins", "gap = gap + _only(d, is_open) @ z[..., None]", "pass"),
        (CountedStrings, "_margins", "self.U[token])[..., None]", "self.U[0 * token])[..., None]"),
        (CountedStrings, "_neurons", "a.lower > 0", "a.upper > 0"),
        (CountedStrings, "_neurons", "U = self.U[token]", "U = self.U[token] - 1"),
        (counted, "_joined", "np.maximum(high[:, 1:], counted[1])", "counted[1]"),
        (tables, "in_balls", "on.exp(-on.result(s * a))", "on.exp(-on.result(s * s))"),
    ],
)  # fmt: skip
def test_planted_faults_are_caught(owner, name, right, wrong):
    def now(*args):
        """What in_balls is by then; it was imported by name."""
        return tables.in_balls(*args)

    with planted(owner, name, right, wrong), mock.patch.object(counted, "in_balls", now):
        assert lies()


@pytest.mark.parametrize("kind", KINDS)
def test_tables_in_a_format_hold_what_torch_computes(kind, device):
    """Decays at which exp and softplus run out of numbers among them."""
    for seed in range(4):
        model = random_model(kind, seed, has_layer=False, K=3, d=8)
        with torch.no_grad():
            for part in model.cell.parameters():
                part.mul_(10.0 ** (seed - 1))
        model = tables.stored_in(model, FORMATS["float32"])
        found = tables.in_balls(model, tables.RoundedTables(FLOAT32))
        for balls, table in zip(found, model.to(device).float().cell.tables(), strict=True):
            for ball, x in zip([y for row in balls for y in row], table.flatten().tolist(), strict=True):
                assert not np.isfinite(x) or ball.contains(x) or not ball.is_finite(), (kind, seed, x, ball)


def test_tables_hold_functions_that_are_off_and_then_rounded():
    """What is kept of a function within 2 units in the last place may be rounded where it is read, half a unit more."""
    fmt = FORMATS["bfloat16"]
    on = tables.RoundedTables(RoundedArithmetic.of(fmt))
    for x in np.arange(-3.0, 3.0, 2.0**-5):  # numbers of the format
        for value, ball in ((np.exp(x), on.exp(arb(x))), (np.log1p(np.exp(x)), on.softplus(arb(x)))):
            unit = 2.0 ** (np.frexp(value)[1] - fmt.p)
            stored = rounded(value + np.array([-1.99, 1.99]) * unit, fmt)
            assert all(ball.contains(y) for y in stored.tolist()), (x, value, stored)


def test_what_a_format_adds_is_counted():
    """Two more neurons that are equal, and that the readout takes with 2^26 and -2^26, lose all else in float32."""
    task, model = sizes("rwkv", "selective")
    V, layer = model.readout.weight, model.layer
    more = torch.tensor([[2.0**26, -(2.0**26)]], dtype=torch.float64).expand(len(V), 2)
    W, U = (torch.cat([x] * 3, dim=k) for x, k in ((layer.W, 0), (layer.U, 1)))
    model = gated.GatedModel(model.cell, torch.cat([V, more], dim=1), model.readout.bias, gated.PositionWise(W, U))
    assert CountedStrings.of(model, task, None).prove(6, ENDLESS).reason is None and least(model, task, 6) > 0
    assert least_in_float32(copy.deepcopy(model), task, 6) <= 0
    assert CountedStrings.of(model, task, FLOAT32).prove(6, ENDLESS).reason is not None
    right = "(off[rows, right][:, None] + off)"
    with planted(CountedStrings, "_margins", right, f"0 * {right}"):
        assert CountedStrings.of(model, task, FLOAT32).prove(6, ENDLESS).reason is None


def test_the_longest_length_is_the_one_that_enumeration_finds():
    """S4's neurons are pushed below 0 as far as the length that they store."""
    task = Task.of("selective", types=2, max_count=3)
    model = gated.layered(kind="s4", types=2, length=4, max_count=3)
    first_wrong = next(n for n in range(1, 9) if least(model, task, n) <= 0)
    found = certify(Selective(model, task, 8), effort=Effort(budget=6))
    assert found.verdict.value == "REFUTED" and found.counterexample["length"] == first_wrong == 6
    assert CountedStrings.of(model, task, None).longest(8, ENDLESS) == first_wrong - 1


def test_a_layer_of_neurons_is_the_same_in_all_kinds_of_numbers():
    """As torch runs it, and as the network whose vectors all have one length."""
    for kind, has_layer, p in product(KINDS, (True, False), (2, 5)):
        model = random_model(kind, 3, has_layer=has_layer, p=p)
        net = network.Network.of_gated(model, tables.in_balls(model))
        string = [0, 1, 1, 0, 1]
        states = network.orbit(net, string)[1:]
        logits = states[:, net.read] @ net.V.T + net.b
        assert np.allclose(logits, model(torch.tensor([string]))[0].numpy(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("m", [2, 3])
def test_neurons_on_one_line_count_to_their_length_and_not_for_ever(m):
    model = gated.layered(kind="mamba", types=1, length=3 * m, max_count=3 * m, m=m)
    task = Task.of("modular", modulus=m)
    assert certify(Homogeneous(model, task, 3 * m)).verdict.value == "PROVED"
    keep, add, read = by_hand(model)
    h, said = mpmath.mpf(0), []
    for _ in range(3 * m + 3):
        h = keep[0][0] * h + add[0][0]
        z = [
            max(0, w[0] * read[0][0] * h + u)
            for w, u in zip(numbers(model.layer.W), numbers(model.layer.U)[0], strict=True)
        ]
        V, b = numbers(model.readout.weight), numbers(model.readout.bias)[0]
        logits = [mpmath.fdot(row, z) + c for row, c in zip(V, b, strict=True)]
        said.append(logits.index(max(logits)))
    wrong = next(t for t, x in enumerate(said) if x != t % m) + 1
    found = certify(Homogeneous(model, task, None))
    assert found.verdict.value == "REFUTED" and found.counterexample["length"] == wrong
    assert found.counterexample["predicted"] == said[wrong - 1] + 1


def test_commands_and_files(capsys, tmp_path):
    """Each family by its command, its file read back, and what the checker says of both."""
    for kind, task, more, claim in (
        ("s4", "selective", ("--length", "20"), "C-R22"),
        ("s4", "selective-modular", ("--length", "20", "--activation", "relu"), "C-R22"),
        ("rwkv", "selective-modular", ("--length", "20", "--modulus", "3", "--max-count", "4"), "C-R25"),
        ("mamba", "selective-modular", ("--length", "20", "--activation", "relu"), "C-R22"),
    ):
        asked = ("inductive", "--task", task, "--model", kind, "--types", "3", *more)
        folder = tmp_path / f"{kind} {task} {len(more)}"
        assert run(capsys, *asked, "--save", str(folder))[0] == 0
        code, found = as_json(capsys, *asked, "--precision", "float32")
        assert code == 0 and found["claim"] == claim and found["inputs_covered"] == str(3**20)
        assert ("neurons" in found["parameters"]) == (claim == "C-R22")
        code, out, err = run(capsys, "check", str(folder))
        assert code == 0 and out.startswith("HOLDS") and not err
        file = next(folder.glob("*.safetensors"))
        again = [word for word in asked if word not in ("--activation", "relu")]
        code, read = as_json(capsys, *again, "--weights", str(file))
        assert code == 0 and read["parameters"] == as_json(capsys, *asked)[1]["parameters"] and read["claim"] is None
        assert run(capsys, *asked[:-1], "relu", "--activation", "relu", "--weights", str(file))[0] == 2


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (("selective", "s4"), 3, "Give --length"),
        (("selective-modular", "mamba"), 3, "Give --length"),
        (("selective-modular", "rwkv", "--length", "9", "--max-count", "60"), 3, "--activation relu"),
        (("selective", "mamba", "--length", "9", "--activation", "tanh"), 2, "may have neurons (relu)"),
        (("selective", "lstm", "--activation", "relu"), 2, "others have none"),
        (("modular", "mamba", "--activation", "relu"), 2, "impossible (C-R23)"),
        (("modular", "s4", "--activation", "relu"), 3, "Give --length"),
        (("modular", "rwkv", "--length", "100"), 3, "--activation relu"),
        (("modular", "rwkv", "--length", "9", "--activation", "relu", "--d", "2"), 3, "has 1 states"),
        (("shifted", "s4", "--activation", "relu"), 3, "drop --activation"),
        (("selective", "s4", "--length", "9", "--d", "7"), 3, "has 10 states"),
    ],
)
def test_what_is_not_built_is_said_in_a_line(capsys, asked, code, said):
    task, model, *more = asked
    found, out, err = run(capsys, "inductive", "--task", task, "--model", model, *more)
    assert found == code and said in out + err and (out + err).count("\n") == 1


def test_files_with_half_a_layer_are_refused(tmp_path):
    model = gated.layered(kind="s4", types=2, length=4, max_count=3)
    state = model.state_dict()
    for change in (
        {"layer.W": None},
        {"layer.U": None},
        {"layer.W": torch.zeros(3, 2)},
        {"layer.U": torch.zeros(1, 2)},
    ):
        kept = {name: change.get(name, x) for name, x in state.items()}
        torch.save({name: x for name, x in kept.items() if x is not None}, tmp_path / "m.pt")
        with pytest.raises(BadInput, match="layer"):
            gated.load(tmp_path / "m.pt", kind="s4")


def test_the_door_knows_the_layer():
    model = gated.layered(kind="s4", types=2, length=4, max_count=3)
    model.layer.register_forward_hook(lambda module, given, said: -said)
    with pytest.raises(BadInput, match="hook"):
        certify(Selective(model, Task.of("selective", types=2, max_count=3), 4))


def test_precision_is_read_from_the_command(capsys):
    asked = (
        "inductive",
        "--task",
        "selective",
        "--model",
        "rwkv",
        "--types",
        "3",
        "--max-count",
        "3",
        "--length",
        "30",
    )
    code, found = as_json(capsys, *asked, "--precision", "float32")
    assert code == 0 and found["claim"] == "C-R17" and found["reading"] == "dtype, any order"
    assert 0 < found["margin"] <= as_json(capsys, *asked)[1]["margin"]
    assert reading_of("float32").format.p == 24


def test_the_laws_hold_and_their_checks_can_fail():
    assert all(impossible.ARGUMENTS[claim](1).holds for claim in ("C-R23", "C-R24"))
    with mock.patch.object(impossible, "decays_and_neurons", lambda m, s, p: decays(m, s * p - 1)):
        assert not impossible.decays_with_neurons().holds
    with planted(impossible, "_two_tokens", "+ D[x]", "+ 9 * D[0] * (w == x) - 4 * D[0]"):
        assert not impossible.linear_in_the_past().holds
    with mock.patch.object(impossible, "TWICE", [2, 1, 2, 1]):  # as if the count were of the last token alone
        assert not impossible.linear_in_the_past().holds


def test_no_difference_of_logits_changes_its_sign_more_often_than_the_law_says():
    """Random neurons after random decays, on a fine grid of real lengths."""
    rng, most = np.random.default_rng(0), 0
    for s, p in product((1, 2, 3), (1, 2, 4)):
        for _ in range(100):
            t = np.linspace(0.5, 40, 4000)
            powers = rng.uniform(0.2, 1, s) ** t[:, None]
            seen = powers @ rng.normal(size=(s, p))
            z = np.maximum(seen - seen[rng.integers(0, len(t), p), np.arange(p)], 0)
            gap = z @ rng.normal(size=p)
            gap = np.sign(gap - np.median(gap))
            changes = int((np.diff(gap[gap != 0]) != 0).sum())
            assert changes <= s * (p * s + 1)
            most = max(most, changes)
    assert most >= 3
    assert [decays_and_neurons(m, s, 0) for m, s in ((10, 3), (4, 2))] == [decays(10, 3), decays(4, 2)]


def test_the_sawtooth_has_one_neuron_more_than_the_law_asks_for():
    for m, q in ((10, 10), (4, 5), (3, 2)):
        model = gated.layered(kind="mamba", types=1, length=m * q, max_count=m * q, m=m)
        assert len(model.layer.W) == 2 * q - 1
        assert decays_and_neurons(m, 1, 2 * q - 2) == m * q > decays_and_neurons(m, 1, 2 * q - 3)
