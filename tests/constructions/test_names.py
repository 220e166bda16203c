"""Checkpoints as they are: prefixes, dicts in dicts, other names; what is judged is what the file holds under them."""

import pytest
import torch
from command import as_json, run

from constructions import checkpoint, contextual_counting, count01, modular, parity, relation_counting
from constructions.adder import transformer as adder
from constructions.contextual import transformer as contextual
from constructions.errors import BadInput
from constructions.names import WeightsFile

SHAPE = {"T": 3, "L": 2}


def weights():
    return dict(relation_counting.dot(**SHAPE).state_dict())


def prefixed(prefix):
    return {prefix + name: tensor for name, tensor in weights().items()}


LAYOUTS = {
    "plain": weights(),
    "DDP": prefixed("module."),
    "compiled": prefixed("_orig_mod."),
    "compiled DDP": prefixed("module._orig_mod."),
    "Lightning": {"epoch": 3, "state_dict": prefixed("model."), "optimizer_states": [{"state": {}}]},
    "a trainer's": {"step": 7, "net": weights(), "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}}},
    "beside a number": weights() | {"step": 7},
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.filterwarnings("ignore::constructions.names.LeftOut")
def test_what_lies_under_a_wrapper_is_read_as_it_is(tmp_path, name):
    torch.save(LAYOUTS[name], tmp_path / "m.pt")
    loaded = checkpoint.load(tmp_path / "m.pt", model="dot", L=2).state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in weights().items())


@pytest.mark.parametrize(
    ("model", "load"),
    [
        (parity.sawtooth(T=2, L=3), lambda path: parity.load(path, L=3)),
        (count01.documents(5), count01.load),
        (contextual_counting.build(4, 2), contextual.load),
        (modular.staircase(P=5), lambda path: adder.load(path)[0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_model_is_found_under_a_prefix(tmp_path, model, load):
    torch.save({"state_dict": {f"model.{name}": tensor for name, tensor in model.state_dict().items()}}, tmp_path / "m")
    loaded = load(tmp_path / "m").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())


def test_what_is_left_out_is_said(tmp_path, capsys):
    torch.save(prefixed("model.") | {"loss.scale": torch.ones(1)}, tmp_path / "m.pt")
    argv = ("histogram", "--weights", str(tmp_path / "m.pt"), "--model", "dot", "--L", "2")
    code, _, err = run(capsys, *argv)
    assert code == 0 and err.count("\n") == 1 and "left out loss.scale" in err


def test_two_models_in_one_file_are_not_guessed_between(tmp_path, capsys):
    broken = prefixed("ema.")
    broken["ema.W_1"] = -broken["ema.W_1"]
    torch.save(prefixed("model.") | broken, tmp_path / "m.pt")
    argv = ("histogram", "--weights", str(tmp_path / "m.pt"), "--model", "dot", "--L", "2")
    code, _, err = run(capsys, *argv)
    assert code == 2 and "ema, model" in err and "--map" in err
    assert as_json(capsys, *argv, "--map", "=model.")[1]["verdict"] == "PROVED"
    assert as_json(capsys, *argv, "--map", "=ema.")[1]["verdict"] == "REFUTED"


def test_map_gives_tensors_our_names_and_transposes(tmp_path, capsys):
    state = weights()
    theirs = {"W_1": "mlp.up.weight", "W_2": "mlp.down.weight", "E": "embed.weight"}
    for mine, name in theirs.items():
        tensor = state.pop(mine)
        state[name] = tensor.T.contiguous() if mine != "E" else tensor
    torch.save(state, tmp_path / "m.pt")
    argv = ["histogram", "--weights", str(tmp_path / "m.pt"), "--model", "dot", "--L", "2"]
    pairs = ["--map", "W_1=mlp.up.weight.T,W_2=mlp.down.weight.T", "--map", "E=embed.weight"]
    assert as_json(capsys, *argv, *pairs)[1]["verdict"] == "PROVED"
    code, _, err = run(capsys, *argv)
    assert code == 2 and "--map" in err and "embed.weight" in err


def test_near_matches_are_named(tmp_path, capsys):
    state = weights()
    state["w1"], state["emb.wq"] = state.pop("W_1"), state.pop("W_Q")
    torch.save(state, tmp_path / "m.pt")
    code, _, err = run(capsys, "histogram", "--weights", str(tmp_path / "m.pt"), "--model", "dot", "--L", "2")
    assert code == 2 and "--map W_1=w1,W_Q=emb.wq" in err


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["E"], "mine=theirs"),
        (["E="], "mine=theirs"),
        (["E=x", "E=y"], "twice"),
        (["X=nowhere"], "holds no nowhere"),
        (["X=b_1.T"], "holds no matrix b_1"),
        (["E=W_1"], "a tensor E of its own"),
        (["=nowhere."], "nothing under nowhere."),
    ],
)
def test_bad_pairs_are_refused(tmp_path, pairs, said):
    torch.save(weights(), tmp_path / "m.pt")
    with pytest.raises(BadInput, match=said):
        checkpoint.load(WeightsFile.of(str(tmp_path / "m.pt"), pairs), model="dot", L=2)


def test_map_without_a_file_is_bad_input(capsys):
    code, _, err = run(capsys, "histogram", "--model", "dot", "--T", "3", "--L", "2", "--map", "E=x")
    assert code == 2 and "--weights" in err


def test_two_tensors_of_one_name_are_refused(tmp_path):
    torch.save({"a.E": torch.zeros(1), "a": {"E": torch.ones(1)}}, tmp_path / "m.pt")
    with pytest.raises(BadInput, match="two tensors a.E"):
        checkpoint.load(tmp_path / "m.pt", model="dot", L=2)
