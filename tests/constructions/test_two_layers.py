"""Two layers of the histogram block: against every string, against one layer, changed, and files of theirs."""

import itertools
import random

import pytest
import torch
from command import run
from models import selection
from planted import planted

from constructions import inventory_counting, relation_counting, two_layers
from constructions.errors import BadInput
from constructions.two_layers import after
from verify.module import certify, tokens

ONE = {
    "dot": relation_counting.dot, "bos": relation_counting.bos, "bos, inventory": inventory_counting.bos,
    "lin": inventory_counting.lin, "lin+sftm": inventory_counting.lin_sftm, "dot+sftm": inventory_counting.dot_sftm,
    "bos+sftm": inventory_counting.bos_sftm,
}  # fmt: skip


def counts(t):
    return (t[:, :, None] == t[:, None]).sum(1) - 1


def every(T, L):
    return torch.tensor(list(itertools.product(range(T), repeat=L)))


def one(name, T, L, d=None):
    return ONE[name](T=T, L=L, d=d or T, dtype=torch.float64)


def due(T, L):
    return torch.tensor([[string.count(t) - 1 for t in string] for string in itertools.product(range(T), repeat=L)])


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize(("T", "L", "d"), [(3, 5, 3), (4, 4, 6), (3, 2, 3)])
def test_two_layers_say_what_one_says(name, T, L, d):
    model, strings = one(name, T, L, d), every(T, L)
    two = after(model)
    with torch.no_grad():
        ours, theirs = two(strings), model(strings)
    assert torch.equal(ours.argmax(-1), due(T, L)) and torch.equal(theirs.argmax(-1), due(T, L))
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    if not model.is_softmax:
        assert torch.equal(ours, theirs)


@pytest.mark.deep
@pytest.mark.parametrize("name", selection.first(1, ONE))
def test_changed_models_are_proved_where_every_string_is_right_and_nowhere_else(name):
    rng, T, L, said = random.Random(name), 3, 3, set()
    for _ in range(3):
        two = after(one(name, T, L))
        for _ in range(rng.randint(0, 2)):
            part = rng.choice(list(two.parameters())).view(-1)
            part[rng.randrange(len(part))] += rng.choice([-1.0, 0.02, 0.3, -0.1])
        found = certify(two, inputs=tokens([T] * L), expected=counts, position=None)
        with torch.no_grad():
            logits, right = two(every(T, L)), due(T, L)[..., None]
        gap = logits.gather(-1, right)[..., 0] - logits.scatter(-1, right, -torch.inf).amax(-1)
        if float(gap.abs().min()) > 1e-9:  # of float64
            assert found.verdict == ("PROVED" if bool((gap > 0).all()) else "REFUTED"), name
        said.add(found.verdict)
    assert "PROVED" in said


FAULTS = [
    ("after", "first.W_2[:, :p]", "first.W_2[:, :0]", "dot"),
    ("after", "/ (2 if model.is_softmax else 1)", "/ 1", "lin+sftm"),
    ("after", "attend_to_itself(second, smallest_neuron(model))", "attend_to_itself(second, 1e3)", "dot+sftm"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[2])
def test_planted_faults_are_caught(fault):
    def is_right():
        model = one(name, 3, 3)
        with torch.no_grad():
            return torch.allclose(two_layers.after(model)(every(3, 3)), model(every(3, 3)), rtol=1e-9, atol=1e-9)

    *patch, name = fault
    assert is_right()
    with planted(two_layers, *patch):
        assert not is_right()


def test_what_does_not_fit_is_refused():
    with pytest.raises(BadInput, match="p=4: the stream"):
        after(inventory_counting.dot(T=4, L=3, d=4, p=4).__class__("dot", T=4, L=3, d=3, p=4))
    with pytest.raises(BadInput, match="a neuron for each"):
        after(relation_counting.bos_sftm(T=4, L=3, d=4))


@pytest.mark.parametrize("names", ["ours", "the public code's"])
def test_a_file_of_two_layers_is_refused_in_these_words(names, tmp_path, capsys):
    weights = after(one("dot", 3, 3)).state_dict()
    if names != "ours":
        weights = {"semantic_emb.weight": torch.zeros(3, 3)} | {
            f"layers.{i}.{name}": torch.zeros(3, 3)
            for i in (0, 1)
            for name in ("token_mixer.Q", "token_mixer.K", "fc1.weight")
        }
    torch.save(weights, tmp_path / "two.pt")
    code, out, err = run(capsys, "histogram", "--weights", str(tmp_path / "two.pt"), "--model", "dot", "--L", "3")
    assert code == 2 and out == "" and "2 layers" in err and "verify module" in err and "--map" not in err


@pytest.mark.parametrize(
    ("T", "dtype"), [(1, torch.float32), (2, torch.float64), (13, torch.bfloat16), (40, torch.float32)]
)
def test_one_neuron_in_each_of_two_layers_counts_at_length_two(T, dtype):
    module, strings = two_layers.distance(T, dtype=dtype), every(T, 2)
    assert (module.d, module.p) == (1, 1)
    with torch.no_grad():
        logits = module(strings).double()
    right = due(T, 2)[..., None]
    gap = logits.gather(-1, right)[..., 0] - logits.scatter(-1, right, -torch.inf).amax(-1)
    assert float(gap.min()) == 0.5
    with pytest.raises(BadInput, match="T="):
        two_layers.distance(257, dtype=torch.bfloat16)


@pytest.mark.deep
@pytest.mark.parametrize("reading", selection.first(1, ["float32", "real"]))
def test_distances_are_proved_and_changed_ones_judged_as_they_run(reading):
    rng, said = random.Random(1), set()
    for change in range(4):
        module = two_layers.distance(4, dtype=torch.float32)
        with torch.no_grad():
            if change:
                part = rng.choice(list(module.parameters())).view(-1)
                part[rng.randrange(len(part))] += rng.choice([-1.0, 0.25, 0.75, -0.25])
            logits, right = module(every(4, 2)).double(), due(4, 2)[..., None]
        gap = logits.gather(-1, right)[..., 0] - logits.scatter(-1, right, -torch.inf).amax(-1)
        found = certify(module, inputs=tokens([4] * 2), expected=counts, position=None, reading=reading)
        assert found.verdict == ("PROVED" if bool((gap > 0).all()) else "REFUTED"), change
        said.add(found.verdict)
    assert said == {"PROVED", "REFUTED"}
