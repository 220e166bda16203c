"""Weights from disk: our layout, the public one, a trained model, and everything that is not a model."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from models.public_layout import hand_built
from models.selection import first
from safetensors import safe_open
from safetensors.torch import save_file

from constructions import inventory_counting, relation_counting
from constructions.checkpoint import load, save
from constructions.errors import BadInput
from constructions.histogram import DTYPES, MODELS, HistogramTransformer
from verify.frame.certificate import Verdict
from verify.tasks.histogram.proof import certify

TRAINED = Path(__file__).parents[1] / "data" / "trained_bos_sftm_T32_L10_d64_p64.safetensors"


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("build", [relation_counting.bos, inventory_counting.lin])
def test_round_trip(build, dtype, tmp_path):
    module = build(T=5, L=4, dtype=dtype)
    save(module, tmp_path / "m.safetensors", claim="A-4.1", construction="relation")
    again = load(tmp_path / "m.safetensors")
    assert again.extra_repr() == module.extra_repr()
    for name, value in module.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        header = json.loads(file.metadata()["weightproof"])
    assert header["claim"] == "A-4.1" and header["T"] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("model", MODELS)
def test_the_six_hand_built_state_dicts_of_the_public_layout(model, suffix, tmp_path):
    path = tmp_path / f"m.{suffix}"
    (torch.save if suffix == "pt" else save_file)(hand_built(model), path)
    module = load(path, model=model)
    assert (module.T, module.L, module.first_count) == (32, 10, 0)
    certificate = certify(module)
    assert certificate.verdict is Verdict.PROVED
    assert certificate.inputs_covered == 32**10


@pytest.mark.parametrize(("name", "model"), [("dot_T32_L10.pt", "dot"), ("bos_sftm_T32_L10.pt", "bos+sftm")])
def test_state_dicts_produced_by_the_public_code(name, model, shared_weights):
    certificate = certify(load(shared_weights / name, model=model))
    assert certificate.verdict is Verdict.PROVED


def test_the_wrong_model_for_a_file_is_not_proved(tmp_path):
    """A bos file read as dot has one token more, and is then simply a wrong dot model."""
    torch.save(hand_built("bos+sftm", T=6, L=4), tmp_path / "m.pt")
    module = load(tmp_path / "m.pt", model="dot+sftm")
    assert module.T == 7
    assert certify(module).verdict is Verdict.REFUTED


def test_a_trained_model_is_decided():
    """Trained by tests/tools/train_histogram.py: nothing in it is round, and it is right on all 32^10 sequences."""
    certificate = certify(load(TRAINED))
    assert certificate.verdict is Verdict.PROVED
    assert certificate.inputs_covered == 32**10
    assert certificate.margin > 0.1


@pytest.mark.deep
@pytest.mark.parametrize("budget", first(1, [2, 8]))
def test_a_trained_model_with_a_fault_is_bracketed(budget):
    module = load(TRAINED)
    with torch.no_grad():
        module.b_2[3] -= 12.0
    certificate = certify(module, budget=budget)
    assert certificate.verdict is Verdict.REFUTED
    low, high = certificate.error_share
    assert 0 < low <= high <= 1


def state(**changes):
    tensors = {name: value.detach().clone() for name, value in relation_counting.dot(T=4, L=3).state_dict().items()}
    for name, value in changes.items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    return tensors


BAD_STATES = {
    "missing": (state(W_1=None), "lacks W_1"),
    "unknown": (state(layer_norm=torch.ones(4)), "layer_norm"),
    "nan": (state(b_2=torch.tensor([0.0, float("nan"), 0.0])), "NaN or infinity"),
    "infinite": (state(W_1=torch.full((4, 1), float("inf"))), "NaN or infinity"),
    "shape": (state(W_1=torch.ones(5, 1)), "W_1 has shape"),
    "dimensions": (state(E=torch.ones(4)), "E has shape"),
    "empty": (state(E=torch.zeros(0, 4)), "T=0"),
    "integers": (state(E=torch.ones(4, 4, dtype=torch.int64)), "dtype"),
    "scalar": (state(W_2=torch.tensor(1.0)), "W_2 has shape"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_bad_states_are_one_line(name, tmp_path):
    tensors, expected = BAD_STATES[name]
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(BadInput, match=expected) as error:
        load(tmp_path / "m.safetensors", model="dot")
    assert "\n" not in str(error.value)


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_bad_files(tmp_path, capsys):
    good = tmp_path / "good.safetensors"
    save(relation_counting.dot(T=4, L=3), good, claim=None, construction=None)
    (tmp_path / "truncated.safetensors").write_bytes(good.read_bytes()[:-10])
    (tmp_path / "empty.safetensors").touch()
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.pt").write_text("not a pickle")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    torch.save(Evil(), tmp_path / "evil2.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({}, tmp_path / "nothing.pt")
    torch.save({"a": 1}, tmp_path / "numbers.pt")
    torch.save(HistogramTransformer("dot", T=2, L=2, d=2, p=1), tmp_path / "module.pt")
    torch.save(hand_built("dot"), tmp_path / "half.pt")
    (tmp_path / "half.pt").write_bytes((tmp_path / "half.pt").read_bytes()[:3000])
    names = ["truncated.safetensors", "empty.safetensors", "missing.pt", "", "nowhere/m.pt"]
    for name in [*names, *(path.name for path in tmp_path.glob("*.pt"))]:
        with pytest.raises(BadInput) as error:
            load(tmp_path / name, model="dot")
        assert "\n" not in str(error.value), name
    assert "executed" not in capsys.readouterr().out


def test_what_the_file_does_not_say(tmp_path):
    torch.save(hand_built("dot", T=4, L=3), tmp_path / "m.pt")
    with pytest.raises(BadInput, match="Add --model dot"):
        load(tmp_path / "m.pt")
    with pytest.raises(BadInput, match="Change --model"):
        load(tmp_path / "m.pt", model="lin")
    with pytest.raises(BadInput, match="Use --L 3"):
        certify(load(tmp_path / "m.pt", model="dot"), L=9)
    save(relation_counting.dot(T=4, L=3), tmp_path / "m.safetensors", claim=None, construction=None)
    with pytest.raises(BadInput, match="says model=dot"):
        load(tmp_path / "m.safetensors", model="bos")
