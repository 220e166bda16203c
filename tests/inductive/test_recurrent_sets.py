"""Trained networks on all strings: against every short string, with planted faults, and what stays open."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from models.selection import first

from constructions.recurrent import selective
from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import ENDLESS, looks
from tests.command import as_json, run
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS, format_named
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import lines, merged, sets
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.enclosures import Off, Roundings
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.selective import Selective

DATA = Path(__file__).parents[1] / "data" / "recurrent_selective"
LENGTH = 10


def asked(capsys, name, *options):
    model, K, C, _ = name.split("_")
    path = str(DATA / f"{name}.safetensors")
    task = ("inductive", "--task", "selective", "--model", model, "--types", K[1:], "--max-count", C[1:])
    return as_json(capsys, *task, "--weights", path, *options)


def first_wrong(model, K, C, length=LENGTH):
    """The length of the shortest string whose last answer is wrong, its count being at most C; torch runs them all."""
    strings = torch.tensor(list(product(range(K), repeat=length)))
    said = model.double()(strings).argmax(-1)
    own = torch.nn.functional.one_hot(strings, K)
    counts = (own.cumsum(1) * own).sum(-1)
    is_wrong = ((said != counts) & (counts <= C)).any(0)
    return int(is_wrong.int().argmax()) + 1 if is_wrong.any() else None


@pytest.mark.parametrize("name", first(1, ["rnn_K2_C2_seed1", "rnn_K3_C1_seed1"]))
def test_trained_networks_are_proved_at_all_lengths(name, capsys):
    code, found = asked(capsys, name)
    assert code == 0 and found["inputs_covered"] == "infinite" and found["margin"] > 4
    sizes = found["parameters"]
    assert first_wrong(load(DATA / f"{name}.safetensors"), sizes["types"], sizes["max_count"], 7) is None


def test_a_trained_network_is_refuted(capsys, tmp_path):
    code, found = asked(capsys, "lstm_K2_C2_seed14")
    weights = str(DATA / "lstm_K2_C2_seed14.safetensors")
    saving = f"inductive --task selective --model lstm --types 2 --max-count 2 --save {tmp_path / 'proof'}".split()
    run(capsys, *saving, "--weights", weights)
    assert run(capsys, "check", str(tmp_path / "proof"))[0] == 0  # the checker runs the string, and all shorter ones
    case = found["counterexample"]
    assert code == 1 and found["right_to"] == 9 and case["length"] == 10 and case["is_first"]
    model = load(DATA / "lstm_K2_C2_seed14.safetensors")
    assert first_wrong(model, 2, 2) == 10
    assert model(torch.tensor([case["input"]]))[0, -1].argmax() == case["predicted"] != case["expected"]


def test_a_trained_network_is_open(capsys):
    code, found = asked(capsys, "lstm_K2_C2_seed0", "--length", "9")
    assert code == 0 and found["inputs_covered"] == str(2**9)
    code, found = asked(capsys, "lstm_K2_C2_seed0", "--budget", "1")
    assert code == 3 and found["right_to"] >= 10 and "right up to length" in found["reason"]


def nearby(seed):
    """A trained RNN with every number a little different, so that some still count and some do not."""
    model = load(DATA / "rnn_K2_C2_seed1.safetensors").double()
    torch.manual_seed(seed)
    for p in model.parameters():
        p.data += torch.randn_like(p) * (0.02, 0.06, 0.15)[seed % 3]
    return model


def contradictions(seeds=range(4)):
    """How often sets that close, strings that are followed or a string that is found wrong disagree with all runs."""
    found = 0
    for seed in seeds:
        model = nearby(seed)
        trained = sets.Trained(Network.of(model), Task.of("selective", types=2, max_count=2), None)
        until = ENDLESS.deadline()
        wrong, first = sets.wrong_string(trained, LENGTH, until), first_wrong(model, 2, 2)
        found += first is not None and sets.closed(trained, until).reason is None
        right_to, _ = sets.up_to(trained, LENGTH, until)
        found += first is not None and right_to >= first
        found += wrong is not None and (first is None or len(wrong) < first)
    return found


def test_verdicts_agree_with_all_short_strings():
    assert contradictions() == 0
    for owner, name, right, wrong in (
        (sets.Trained, "margins", "gap.lower -", "gap.lower + 5 -"),
        (sets.Trained, "due", "return n if m", "return max(1, n - 1) if m"),
        (sets.Trained, "counted", "(self.task.C or 0) + 1)", "self.task.C or 0)"),
    ):
        with planted(owner, name, right, wrong):
            assert contradictions() > 0, (name, right)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("goes[known, x], ends[1]", "goes[known, x], ends[0]"),
        ("low[0] = high[0] = 0.0\n    for", "low[1] = high[1] = 0.0\n    for"),
    ],
)
def test_planted_faults_in_the_sets_lose_states(right, wrong):
    """States of a run leave the sets that a fault calls closed, or no sets close."""
    model = load(DATA / "rnn_K3_C1_seed1.safetensors").double()
    trained = sets.Trained(Network.of(model), Task.of("selective", types=3, max_count=1), None)
    honest = sets.closed(trained, ENDLESS.deadline())
    assert honest.reason is None
    with planted(sets, "_closed", right, wrong):
        found = sets.closed(trained, ENDLESS.deadline())
        assert found.reason is not None or found.margin > honest.margin  # of fewer states than there are


@pytest.mark.deep
def test_the_least_margin_of_runs_is_not_below_the_proof():
    for name, K, C in (("rnn_K2_C2_seed1", 2, 2), ("rnn_K3_C1_seed1", 3, 1)):
        model, which = load(DATA / f"{name}.safetensors"), Task.of("selective", types=K, max_count=C)
        proved = certify(Selective(model, which, None)).margin
        strings = list(product(range(K), repeat=7))
        assert Selective(model, which, 7).runner(None)(strings).margins.min() >= proved - 1e-4


def test_built_thermometers_close_as_well_and_formats_widen():
    model = selective.thermometer(types=2, max_count=2)
    which = Task.of("selective", types=2, max_count=2)
    for fmt, most in ((None, 2.0), ("float32", 2.0)):
        at = None if fmt is None else RoundedArithmetic.of(FORMATS[fmt])
        proof = sets.closed(sets.Trained(Network.of(model), which, at), ENDLESS.deadline())
        assert proof.reason is None and 0 < proof.margin <= most
    trained = Selective(load(DATA / "rnn_K2_C2_seed1.safetensors"), which, None)
    from verify.arithmetic.readings import reading_of

    assert certify(trained, reading_of("float32"), Effort(budget=ENDLESS)).verdict.value == "PROVED"


def outside(function, fmt="p8"):
    """How many numbers that a format may compute of a function, of arguments in balls or off by their errors, are not
    where sets of states are said to be: arguments and errors are drawn, and functions pushed as far as they may be off.
    """
    rng, at = np.random.default_rng(0), RoundedArithmetic.of(format_named(fmt))
    mid, rad, error = rng.normal(0, 3, 400), 10.0 ** rng.uniform(-3, 1, 400), 10.0 ** rng.uniform(-4, 0.5, 400)
    found = getattr(Roundings(at, of_sets=True), function)(Off(Ball(mid, rad), error))
    exact = np.tanh if function == "tanh" else lambda x: 1 / (1 + np.exp(-x))
    count, u = 0, 2.0**-(at.stored.p)
    for of_set, of_error in product((-1, -0.9, 0, 1), (-1, 1)):
        values = exact(mid + of_set * rad + of_error * error)
        unit = 2.0 ** (np.floor(np.log2(np.abs(values))) + 1) * u
        for off in (-2, -1, 0, 1, 2):  # units in the last place: rounded, and what is off beside
            low, high = found.value.lower - found.error, found.value.upper + found.error
            computed = values + off * unit
            count += int(((computed < low) | (computed > high)).sum())
    return count


@pytest.mark.parametrize("function", ["tanh", "sigmoid"])
def test_sets_hold_all_that_functions_are_computed_as(function):
    assert outside(function) == 0
    for fault in (("lower - x.error", "lower"), ("upper + x.error", "upper"), ("0.0, np.inf", "-1.0, np.inf")):
        with planted(Roundings, "_between_ends", *fault):
            assert outside(function) > 0, fault


def test_sets_are_no_wider_than_the_ends_of_what_is_computed_and_hold_no_overflow():
    """A set round 0 on which tanh is steep lies between -1 and 1, but for its rounding; one that overflows is open."""
    on = Roundings(RoundedArithmetic.of(format_named("p8")), of_sets=True)
    wide = on.tanh(Off(Ball(np.zeros(1), np.full(1, 30.0)), np.full(1, 0.5)))
    assert wide.value.upper + wide.error < 1 + 4 * 2.0**-7
    for function in (on.tanh, on.sigmoid):
        assert np.isinf(function(Off(Ball(np.zeros(1), np.ones(1)), np.full(1, np.inf))).error).all()
    with planted(Roundings, "_between_ends", "np.where(np.isfinite(x.error), 0.0, np.inf)", "0 * x.value.mid"):
        assert not np.isinf(on.tanh(Off(Ball(np.zeros(1), np.ones(1)), np.full(1, np.inf))).error).all()


def test_numbers_that_underflow_are_not_told_apart():
    layers, H = 18, 28
    model = RecurrentModel("rnn", hidden=H, classes=2, inputs=2, layers=layers, activation="relu", dtype=torch.float64)
    cell, scales = dict(model.cell.named_parameters()), [2.0**-60] * (layers - 1) + [2.0**-54]
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
        cell["weight_ih_l0"][:] = scales[0] * torch.tensor([[8.0]] * (H - 1) + [[47.0]])
        for k in range(1, layers):
            cell[f"weight_ih_l{k}"][:] = scales[k] * torch.eye(H)
        model.readout.weight[1] = torch.tensor([0.2] * (H - 1) + [-1.0])
    assert (H - 1) * Fraction(0.2) * 8 < 47  # times 2^-1074: so class 1 loses, and 0.2 * 8 is rounded to 2 there
    found = certify(Selective(model, Task.of("selective", types=2, max_count=1), 1))
    assert found.verdict is not Verdict.PROVED


def first_lengths(seeds=range(12)):
    """The first wrong lengths of trained networks that are moved, by all strings in torch, and of the string found."""
    for seed in seeds:
        name, K, C = (("lstm_K2_C2_seed14", 2, 2), ("rnn_K2_C2_seed3", 2, 2), ("rnn_K3_C1_seed1", 3, 1))[seed % 3]
        model, rng = load(DATA / f"{name}.safetensors").double(), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.1 * (1 + seed % 4) * torch.randn(p.shape, generator=rng, dtype=p.dtype)
        trained = sets.Trained(Network.of(model), Task.of("selective", types=K, max_count=C), None)
        found = sets.wrong_string(trained, 7, ENDLESS.deadline())
        if found is not None:
            due = trained.task.answers(found)[-1]
            assert due is not None and int(model(torch.tensor([found]))[0, -1].argmax()) != due
        yield first_wrong(model, K, C, 7), None if found is None else len(found)


def test_the_shortest_wrong_string_is_found_where_all_are_run():
    lengths = [*first_lengths()]
    assert all(due == found for due, found in lengths) and len({due for due, _ in lengths}) > 3
    with planted(sets, "wrong_string", "kept = np.flatnonzero", "kept = 0 * np.flatnonzero"):
        assert any(due != found for due, found in first_lengths())


def test_a_beam_keeps_some_of_all_counts():
    worst, case = np.arange(1000.0) % 7, np.arange(1000) % 400
    kept = sets._spread(worst, case, 10**6)
    assert {*case[kept].tolist()} == {*range(400)} and len(kept) == 800
    assert len(sets._spread(worst, case, 50)) == 50 and (worst[sets._spread(worst, case, 50)] == 0).all()


def test_no_search_takes_the_time_of_those_after_it(monkeypatch):
    """Lines of one token leave time for merged states, and where these take too long, short strings are followed."""
    model, left = load(DATA / "lstm_K2_C2_seed0.safetensors"), []

    def too_long(trained, until):
        left.append(until.left())
        while until.left() > -len(left):  # seconds of 30: the second search takes more than all that is left
            pass
        return BlockProof(None, "time is up")

    monkeypatch.setattr(sets, "MOST_STRINGS", 600)
    monkeypatch.setattr(sets, "closed", lambda trained, until: BlockProof(None, "no boxes"))
    monkeypatch.setattr(sets, "wrong_string", lambda trained, most, until: None)
    monkeypatch.setattr(lines, "closed", lambda trained, until: too_long(trained, until.part(1.0)))
    monkeypatch.setattr(merged, "closed", lambda trained, until: too_long(trained, until.part(2.5)))
    found = certify(Selective(model, Task.of("selective", types=2, max_count=2), None), None, Effort(looks(4000)))
    assert len(left) == 2 and min(left) > 0
    assert found.verdict is Verdict.UNKNOWN and found.extra["right_to"] > 5
