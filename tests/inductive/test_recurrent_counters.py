"""Trained checkpoints and built counters: verdicts at every length, first wrong lengths, certificates re-checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from models.selection import every
from torch import nn

from bounds.recurrent import one_unit
from constructions.errors import BadInput
from constructions.recurrent import counters
from constructions.recurrent.model import RecurrentModel, as_bytes, load
from tests.clocks import ENDLESS, looks
from tests.command import as_json, run
from tests.planted import planted
from verify.checker.inductive import check
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify, exhaustive
from verify.tasks.recurrent import proof
from verify.tasks.recurrent.task import Homogeneous

DATA = Path(__file__).parents[1] / "data" / "recurrent"
LATE = {"gru_seed20_stop0.5": 394, "gru_seed2_stop0.5": 111, "lstm_seed5_stop0.5": 204, "lstm_seed6_stop0.25": 151}
FILES = sorted(DATA.glob("*.safetensors"))


def decided(model, modulus=10, length=None, budget=ENDLESS):
    return certify(Homogeneous(model, Task.of("modular", modulus=modulus), length), effort=Effort(budget=budget))


def accepted(model, certificate):
    weights = as_bytes(model)
    data = certificate if isinstance(certificate, bytes) else certificate.about(weights).to_json().encode()
    return check(weights, data)[0]


@pytest.mark.parametrize("path", every(8, FILES), ids=lambda path: path.stem)
def test_trained_checkpoints_are_decided_at_every_length(path):
    model = load(path)
    certificate = decided(model)
    wrong = LATE.get(path.stem)
    if wrong is None:
        assert certificate.verdict.value == "PROVED" and certificate.inputs_covered is None
    else:
        case = certificate.counterexample
        assert certificate.verdict.value == "REFUTED" and case["length"] == wrong and case["is_first"]
        assert case["expected"] == (wrong - 1) % 10 + 1 != case["float64_predicts"]
    assert accepted(model, certificate) == certificate.verdict.value
    said = model.double()(torch.zeros(1, 2000, dtype=torch.long))[0].argmax(-1)
    is_wrong = said != torch.arange(2000) % 10
    assert (int(is_wrong.int().argmax()) + 1 if is_wrong.any() else None) == wrong


def test_the_late_ones_are_there():
    assert set(LATE) < {path.stem for path in FILES}


@pytest.mark.deep
@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in LATE], ids=lambda path: path.stem)
def test_a_million_steps_never_contradict(path):
    said = load(path).double()(torch.zeros(1, 10**6, dtype=torch.long))[0].argmax(-1)
    assert bool((said == torch.arange(10**6) % 10).all())


@pytest.mark.parametrize("m", every(3, range(2, 13)))
def test_cycles_of_two_units(m):
    model = counters.cycle(m=m)
    certificate = decided(model, m)
    assert certificate.verdict.value == "PROVED" and model.hidden == (1 if m == 2 else 2)
    assert accepted(model, certificate) == "PROVED"
    assert m == 2 or one_unit(m) <= 2 * m


@pytest.mark.deep
def test_four_units_count_modulo_110_and_other_rings(capsys):
    assert counters.chinese(m=110).hidden == 4
    for options in (
        ("--modulus", "110"),
        ("--precision", "float32"),
        ("--precision", "p14"),
        ("--modulus", "11", "--dtype", "bfloat16", "--method", "exhaustive"),
        ("--dtype", "float32", "--method", "exhaustive"),
        ("--dtype", "float16", "--method", "exhaustive"),
        ("--activation", "relu"),
        ("--d", "6"),
        ("--d", "6", "--precision", "p12"),
    ):
        code, data = as_json(capsys, "inductive", "--task", "modular", "--model", "rnn", *options)
        assert code == 0 and data["inputs_covered"] == "infinite" and data["length"] == "all", options
    for m in range(2, 13):
        code, data = as_json(capsys, "inductive", "--task", "modular", "--model", "ssm", "--modulus", str(m))
        assert code == 0 and data["parameters"]["units"] == [1, 2, 2, 4, 2, 6, 4, 6, 4, 10, 4][m - 2]


def test_prefixes_layers_embeddings_and_what_is_no_network(tmp_path, capsys):
    model = load(FILES[0])
    state = {f"net.core.{k.removeprefix('cell.')}": v for k, v in model.state_dict().items() if k.startswith("cell.")}
    state |= {"head.weight": model.readout.weight, "head.bias": model.readout.bias}
    torch.save(state, tmp_path / "a.pt")
    code, data = as_json(
        capsys, "inductive", "--task", "modular", "--model", "gru", "--weights", str(tmp_path / "a.pt")
    )
    assert code == 0 and data["verdict"] == "PROVED"
    two = RecurrentModel("lstm", hidden=3, classes=10, layers=2, inputs=4, types=1)
    (tmp_path / "b.safetensors").write_bytes(as_bytes(two))
    assert load(tmp_path / "b.safetensors").layers == 2
    assert decided(two, length=3).verdict.value == "REFUTED"
    for broken in (
        {"head.weight": torch.zeros(3, 3)},
        state | {"extra": torch.zeros(2, 2)},
        state | {"net.core.weight_hh_l0_reverse": torch.zeros(18, 6)},
        state | {"head.bias": torch.full((10,), float("nan"))},
        {k: v for k, v in state.items() if "weight_ih" not in k},
    ):
        torch.save(broken, tmp_path / "c.pt")
        with pytest.raises(BadInput):
            load(tmp_path / "c.pt")
    for options in ("--model lstm", "--model gru --modulus 11", "--model gru --activation relu", "--model s4"):
        command = ("inductive", "--task", "modular", "--weights", str(tmp_path / "a.pt"), *options.split())
        code, out, err = run(capsys, *command)
        assert code == 2 and out == "" and err.count("\n") == 1, options


def test_a_run_that_ends_in_infinity_is_refuted_without_a_margin():
    model = counters.cycle(m=3, dtype=torch.float16)
    model.readout.weight.data[:2] = 6e4
    model.readout.bias.data[:2] = 6e4
    model.readout.weight.data[2] = float("-inf")
    found = exhaustive(Homogeneous(model, Task.of("modular", modulus=3), None))
    assert (
        found.verdict.value == "REFUTED"
        and found.margin is None
        and json.loads(found.to_json(), parse_constant=pytest.fail)
    )


def test_impossible_widths(capsys):
    for options in ("rnn --d 1", "rnn --d 1 --modulus 3 --length 7", "decay --d 2 --length 12"):
        code, _, err = run(capsys, "inductive", "--task", "modular", "--model", *options.split())
        assert code == 2 and "impossible (C-R" in err


def test_tampered_invariants_are_refused():
    model = counters.cycle(m=10)
    weights = as_bytes(model)
    honest = json.loads(decided(model).about(weights).to_json())
    assert check(weights, json.dumps(honest).encode())[0] == "PROVED"

    def tampered(change):
        copy = json.loads(json.dumps(honest))
        change(copy)
        with pytest.raises(Refusal) as refusal:
            check(weights, json.dumps(copy).encode())
        assert refusal.value.exit_code in (FAILS, NOT_CHECKABLE)

    ring = honest["invariant"]
    tampered(lambda c: c["invariant"].update(entry=1))
    tampered(lambda c: c["invariant"].update(place=(ring["place"] + 1) % 10))
    tampered(lambda c: c["invariant"].update(exponents=[e + 6 for e in ring["exponents"]]))
    tampered(lambda c: c["invariant"].update(exponents=[e - 60 for e in ring["exponents"]]))
    tampered(lambda c: c["invariant"].update(centres=ring["centres"][1:] + ring["centres"][:1]))
    tampered(lambda c: c["invariant"]["centres"][3].__setitem__(0, ring["centres"][3][0] + 0.3))
    tampered(lambda c: c["invariant"].update(rate=1.5))
    tampered(lambda c: c.update(margin=1.4, invariant=ring | {"margin": 1.4}))
    tampered(lambda c: c["parameters"].update(modulus=5))
    tampered(lambda c: c.update(inputs_covered="100"))
    tampered(lambda c: c["invariant"].update(centres=ring["centres"][:5], shapes=ring["shapes"][:5]))


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong"),
    every(
        2,
        [
            (proof, "_ring_holds", "rules) <= 1)", "rules) <= 4)"),  # a rate above 1
            (
                proof.Target,
                "entered",
                "int(t[is_in.argmax()])",
                "int(t[is_in.argmax()]) - 1",
            ),  # a transient one step short
        ],
    ),
)
def test_planted_faults_do_not_pass_the_checker(owner, name, right, wrong):
    """At least one certificate says PROVED with the fault, and is refused."""
    refused = 0
    with planted(owner, name, right, wrong):
        for path in FILES[-3:]:
            model = load(path)
            certificate = decided(model, budget=looks(100))
            if certificate.verdict.value == "PROVED":
                try:
                    accepted(model, certificate)
                except Refusal:
                    refused += 1
    assert refused


class Cells(nn.Module):
    """Cells above each other and a readout, as they are written by hand."""

    def __init__(self, kind, layers, sizes):
        super().__init__()
        inputs, hidden, classes = sizes
        cell = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[kind]
        self.cells = nn.ModuleList(cell(inputs if k == 0 else hidden, hidden) for k in range(layers))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        states, said = [None] * len(self.cells), []
        for t in range(x.shape[1]):
            h = x[:, t]
            for k, cell in enumerate(self.cells):
                states[k] = cell(h, states[k])
                h = states[k][0] if isinstance(states[k], tuple) else states[k]
            said.append(self.head(h))
        return torch.stack(said, dim=1)


@pytest.mark.parametrize(("kind", "layers"), [("rnn", 1), ("gru", 1), ("lstm", 1), ("lstm", 2), ("gru", 11)])
def test_cells_are_read_as_the_layers_that_they_are(tmp_path, kind, layers):
    torch.manual_seed(0)
    model = Cells(kind, layers, (3, 4, 5))
    torch.save(model.state_dict(), tmp_path / "cells.pt")
    loaded, tokens = load(tmp_path / "cells.pt"), torch.tensor([[0, 2, 1, 1, 0]])
    assert (loaded.kind, loaded.layers, loaded.hidden) == (kind, layers, 4)
    with torch.no_grad():
        assert torch.allclose(loaded(tokens), model(nn.functional.one_hot(tokens, 3).float()), atol=1e-6)


def test_one_cell_may_stand_alone_and_cells_in_no_order_are_refused(tmp_path):
    cell, head = nn.LSTMCell(1, 4), nn.Linear(4, 10)
    state = {**cell.state_dict(), **{f"head.{key}": value for key, value in head.state_dict().items()}}
    torch.save(state, tmp_path / "one.pt")
    assert load(tmp_path / "one.pt").kind == "lstm"
    twice = {f"{name}.{key}": value for name in ("encoder", "decoder") for key, value in cell.state_dict().items()}
    torch.save(state | twice, tmp_path / "two.pt")
    with pytest.raises(BadInput, match="holds several cells"):
        load(tmp_path / "two.pt")
    torch.save(state | {f"rnn.{key}": value for key, value in nn.LSTM(1, 4).state_dict().items()}, tmp_path / "both.pt")
    with pytest.raises(BadInput, match="beside a recurrent network"):
        load(tmp_path / "both.pt")
