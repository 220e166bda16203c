"""Ellipsoids on a graph of states: against runs of long strings, with planted faults, and strings found wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from oracles.recurrent_strings import gap

from constructions.recurrent import gated
from constructions.recurrent.gated import MambaCell
from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import ENDLESS
from tests.command import as_json, run
from tests.planted import planted
from verify.counting.tasks import Task
from verify.tasks.recurrent import merged, sets
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.chain import Ellipsoids
from verify.tasks.recurrent.network import Network, float_step
from verify.tasks.recurrent.selective import Selective

DATA = Path(__file__).parents[1] / "data" / "recurrent_selective"
TASK = Task.of("selective", types=2, max_count=2)


def trained(name, task=TASK):
    return sets.Trained(Network.of(load(DATA / f"{name}.safetensors")), task, None)


def closed(name, *near):
    with mock.patch.object(merged, "NEAR", near):
        return merged.closed(trained(name), ENDLESS.deadline())


def outside(asked, near, strings=12, length=60):
    """How many states of random strings are outside the ellipsoids of their nodes; None if these prove nothing."""
    found = merged.graph(asked, near, 4000, ENDLESS.deadline())
    chains = []
    with mock.patch.object(merged, "_margin", lambda *given: chains.append(given[2]) or 1.0):
        if merged._proof(asked, found, ENDLESS.deadline()).reason is not None:
            return None
    chain = chains[0]
    assert isinstance(chain, Ellipsoids)
    goes = {(i, x): j for i, x, j in found.edges}
    rng, count = np.random.default_rng(0), 0
    for _ in range(strings):
        state, node = np.zeros(asked.net.size), 0
        for _ in range(length):
            x = int(rng.choice([x for x in range(asked.K) if (node, x) in goes]))
            state, node = float_step(asked.net, state, x), goes[node, x]
            off = np.linalg.solve(chain.shapes[node] * chain.scales[node], state - chain.centres[node])
            count += np.linalg.norm(off) > 1 + 1e-6
    return count


@pytest.mark.deep
def test_states_of_all_strings_stay_in_the_ellipsoids():
    asked = trained("rnn_K2_C2_seed3")
    assert outside(asked, 2.0**-4) == 0
    for name, right, wrong in (
        ("hold_images", "whole = added.sum(-1) + far", "whole = added.sum(-1) + 0 * far"),
        ("_shapes", "[image[e] for e in ends", "[image[e] for e in ends[:1]"),
    ):
        with planted(merged, name, right, wrong):  # floats that find worse ellipsoids prove nothing
            assert outside(asked, 2.0**-4) is None, name
    with (
        planted(merged, "_excess", "return np.where(np.isnan(over), np.inf, over)", "return 0 * over"),
        planted(merged, "hold_images", "whole = added.sum(-1) + far", "whole = added.sum(-1) + 0 * far"),
    ):
        assert outside(asked, 2.0**-4)


@pytest.mark.deep
def test_a_network_that_boxes_leave_open_is_proved():
    proof = closed("rnn_K2_C2_seed3", 2.0**-4)
    assert isinstance(proof, BlockProof) and proof.reason is None and 2.5 < proof.margin < 3.5
    rng = np.random.default_rng(1)
    model = load(DATA / "rnn_K2_C2_seed3.safetensors")
    for _ in range(20):  # no run has less margin than was proved
        string = tuple(rng.permutation([0] * int(rng.integers(1, 40)) + [1, 1]).tolist())
        due = TASK.answers(string)
        for t in (t for t in range(len(string)) if due[t] is not None):
            assert gap(model, string[: t + 1], due[t]) > proof.margin
    with planted(merged, "_margin", "low.min()", "high.max()"):
        assert closed("rnn_K2_C2_seed3", 2.0**-4).margin > proof.margin


def test_a_wrong_string_is_found_among_merged_states():
    string = closed("gru_K2_C2_seed1", 2.0**-6)
    assert isinstance(string, tuple) and len(string) == 40
    right = TASK.answers(string)[-1]
    assert gap(load(DATA / "gru_K2_C2_seed1.safetensors"), string, right) < 0
    high, _ = sets.gap(trained("gru_K2_C2_seed1").net, string, right)
    assert high < 0


def test_what_is_wrong_beyond_the_largest_count_alone_is_proved():
    """Merged states of counts modulo m lead to a wrong answer that is not judged; those up to C are asked then."""
    task = Task.of("selective-modular", types=2, max_count=1, modulus=2)
    torch.manual_seed(5)
    model = RecurrentModel("rnn", inputs=2, hidden=3, classes=2).double()
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=1.5)
        model.readout.bias.copy_(torch.tensor([4.0, 0.0]))
    asked = sets.Trained(Network.of(model), task, None)
    wrong = merged.closed(replace(asked, is_periodic=True), ENDLESS.deadline())
    assert isinstance(wrong, tuple) and task.answers(wrong)[-1] is None
    found = Selective(model, task, None)._merged(asked, ENDLESS.deadline())
    assert isinstance(found, BlockProof) and found.reason is None


def mamba(path, seed=0):
    """A trained cell is whatever its file says: here tables that forget, with a readout of what comes last."""
    g = torch.Generator().manual_seed(seed)
    tables = [torch.randn(2, 3, generator=g) for _ in range(3)]
    model = gated.GatedModel(MambaCell(torch.randn(3, generator=g), *tables), torch.randn(3, 3), torch.zeros(3))
    Path(path).write_bytes(gated.as_bytes(model))
    return model


def test_trained_gated_cells_are_read_and_decided(capsys, tmp_path):
    path = str(tmp_path / "mamba.safetensors")
    model = mamba(path)
    read = gated.load(path, kind="mamba")
    strings = torch.randint(2, (5, 9))
    assert torch.equal(read(strings), model(strings))
    task = ("inductive", "--task", "selective", "--types", "2", "--max-count", "2", "--model")
    code, found = as_json(capsys, *task, "mamba", "--weights", path)
    case = found["counterexample"]
    assert code == 1 and gap(model, tuple(case["input"]), case["expected"]) <= 0
    code, _, err = run(capsys, *task, "rwkv", "--weights", path)
    assert code == 2 and "has no cell.w" in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("cell.delta"), "has no cell.delta"),
        (lambda s: s.update({"cell.D": torch.zeros(3)}), "also has cell.D"),
        (lambda s: s.update({"cell.B": torch.zeros(2, 4)}), "cell.B has shape (2, 4), and must have (2, 3)"),
        (lambda s: s["cell.C"].fill_(float("nan")), "cell.C is torch.float32; all must be finite"),
    ],
)
def test_a_file_of_another_cell_names_the_first_key_that_differs(capsys, tmp_path, change, said):
    state = mamba(tmp_path / "mamba.safetensors").state_dict()
    change(state)
    torch.save(state, tmp_path / "other.pt")
    options = ("--task", "selective", "--types", "2", "--max-count", "2", "--model", "mamba")
    code, _, err = run(capsys, "inductive", *options, "--weights", str(tmp_path / "other.pt"))
    assert code == 2 and said in err
