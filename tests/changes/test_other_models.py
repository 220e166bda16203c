"""Repairs, radii and fewer bits of models that are no histogram model: any module, parity, addition modulo P."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from models.selection import every, first
from scipy.optimize import linprog
from torch import nn

from constructions import modular, parity
from constructions.adder.transformer import save
from constructions.errors import BadInput
from tests.command import as_json, run
from tests.planted import planted
from verify import certify, quantise, radius, repair
from verify.changes import captured
from verify.module import tokens

P, WIDTH = 4, 6
TASK = {"inputs": tokens([P, P]), "expected": lambda t: (t[:, 0] + t[:, 1]) % P}
PAIRS = torch.cartesian_prod(torch.arange(P), torch.arange(P))
RIGHT = (PAIRS.sum(1) % P).numpy()


class Net(nn.Module):
    """Random features of two tokens, attention included, and a readout fitted by least squares with some noise."""

    def __init__(self, seed, neurons=20, has_bias=True, form="linear"):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.form = form
        self.E, self.V = (nn.Parameter(0.5 * torch.randn(P, WIDTH, generator=g)) for _ in range(2))
        self.W, self.b = nn.Parameter(torch.randn(WIDTH, neurons, generator=g)), nn.Parameter(torch.zeros(neurons))
        self.out = nn.Linear(neurons, P, bias=has_bias)
        self.requires_grad_(False).eval()
        H = np.hstack([features(self), np.ones((P * P, int(has_bias)))])
        due = np.eye(P)[RIGHT]
        X = np.linalg.solve(H.T @ H + 1e-3 * np.eye(H.shape[1]), H.T @ due)
        X += 0.08 * np.random.default_rng(seed).standard_normal(X.shape)
        self.out.weight.copy_(torch.from_numpy(X[:neurons].T))
        if has_bias:
            self.out.bias.copy_(torch.from_numpy(X[-1]))

    def forward(self, t):
        x = torch.stack([self.E[t[:, 0]], self.V[t[:, 1]]], 1)
        x = torch.softmax(x @ x.transpose(-1, -2), -1) @ x
        h = torch.relu(x[:, 1] @ self.W + self.b)
        if self.form == "product":
            return h @ self.out.weight.T + self.out.bias
        logits = self.out(h)
        return {"linear": logits, "scaled": 2 * logits, "turned": torch.flip(logits, [-1])}[self.form]


def features(net):
    """The hidden numbers of all pairs, in numpy."""
    E, V, W, b = (getattr(net, name).double().numpy() for name in "EVWb")
    x = np.stack([E[PAIRS[:, 0]], V[PAIRS[:, 1]]], 1)
    scores = np.exp(x @ x.transpose(0, 2, 1))
    x = scores / scores.sum(-1, keepdims=True) @ x
    return np.maximum(x[:, 1] @ W + b, 0)


def readout(net):
    W = net.out.weight.double().numpy().T
    return W if net.out.bias is None else np.vstack([W, net.out.bias.double().numpy()])


def rows(H):
    """A vector over the readout's numbers for each pair and rival."""
    found = []
    for h, y in zip(H, RIGHT, strict=True):
        for c in set(range(P)) - {y}:
            a = np.zeros((H.shape[1], P))
            a[:, y], a[:, c] = h, -h
            found.append(a.ravel())
    return np.array(found)


def what_is_wrong(net, found):
    """What of a repair enumeration or one linear programme over everything contradicts, if anything."""
    H = features(net)
    H = H if net.out.bias is None else np.hstack([H, np.ones((P * P, 1))])
    a, X = rows(H), readout(net)
    n = a.shape[1]
    if found.outcome == "PROVED":
        one, eye = np.ones((n, 1)), np.eye(n)
        A = np.vstack([np.hstack([-a, np.zeros((len(a), 1))]), np.hstack([eye, -one]), np.hstack([-eye, -one])])
        best = linprog(np.append(np.zeros(n), 1), A_ub=A, b_ub=np.append(a @ X.ravel(), np.zeros(2 * n)),
                       bounds=[(None, None)] * n + [(0, None)]).fun  # fmt: skip
        change = max(abs(Fraction(p) - Fraction(q)) for p, q in zip(readout(found.module).flat, X.flat, strict=True))
        if (a @ readout(found.module).ravel()).min() <= 1e-9 or not found.certificate:
            return "a wrong repair"
        if (
            found.change != change
            or not found.at_least <= best * (1 + 1e-6) + 1e-9 <= float(change) * (1 + 2e-6) + 2e-9
        ):
            return "bound"
        return None if not change or change <= 1.05 * found.at_least else "gap"
    if found.outcome == "IMPOSSIBLE":
        total = np.zeros((H.shape[1], P))
        for term in found.to_dict()["combination"]["inputs"]:
            i = term["input"][0] * P + term["input"][1]
            if RIGHT[i] != term["right"] or term["rival"] == term["right"] or Fraction(term["weight"]) <= 0:
                return "no combination"
            total[:, term["right"]] += float(Fraction(term["weight"])) * H[i]
            total[:, term["rival"]] -= float(Fraction(term["weight"])) * H[i]
        return None if np.abs(total).max() < 1e-9 else "an impossibility"
    return None if found.reason else "no reason"


NETS = [Net(0), Net(1, has_bias=False), Net(2, form="product"), Net(3, neurons=5)]


@pytest.mark.deep
def test_readouts_of_modules_are_repaired_or_impossible():
    outcomes = []
    for net in NETS:
        found = repair(net, **TASK)
        assert what_is_wrong(net, found) is None, (net.form, found)
        outcomes.append(found.outcome)
        if found.outcome == "PROVED":
            assert certify(found.module, **TASK)
    assert outcomes.count("PROVED") >= 3 and "IMPOSSIBLE" in outcomes


FAULTS = [
    (captured, "changeable", "[*row, arb(1)]", "[*row, arb(0)]"),
    (captured, "row_of", "[position])", "[position])[::-1]"),
]


@pytest.mark.parametrize("fault", first(1, [(fault,) for fault in FAULTS]), ids=lambda fault: fault[1])
def test_planted_faults_are_seen(fault):
    def fails(net):
        try:
            return what_is_wrong(net, repair(net, **TASK))
        except (AssertionError, ArithmeticError) as error:
            return repr(error)

    with planted(*fault):
        assert any(fails(net) for net in NETS)


@pytest.mark.deep
def test_no_module_inside_a_radius_is_wrong():
    """Corners of the box, at random and against the tightest pair; the model at the upper bound is wrong."""
    module, rng = repair(NETS[0], **TASK).module, np.random.default_rng(0)
    found = radius(module, **TASK)
    assert 0 < found.at_least < found.at_most < 4 * found.at_least
    assert not certify(found.wrong, **TASK)
    due = torch.from_numpy(RIGHT)
    with torch.no_grad():
        for _ in range(300):
            near = Net(0).double()
            for name, w in near.named_parameters():
                move = torch.from_numpy(rng.choice([-1.0, 1.0], tuple(w.shape)))
                w.copy_(module.get_parameter(name).double() * (1 + found.at_least * (1 - 1e-12) * move))
            logits = near(PAIRS)
            rival = logits.scatter(1, due[:, None], -torch.inf).amax(1)
            assert (logits.gather(1, due[:, None])[:, 0] > rival).all()


@pytest.mark.deep
def test_modules_take_fewer_bits():
    for bits in (3, 12):
        found = quantise(NETS[2], bits=bits, **TASK)
        is_right = bool((found.module.double()(PAIRS).argmax(1).numpy() == RIGHT).all())
        assert bool(found) == is_right
        assert found.module.W.unique().numel() <= 2**bits - 1


@pytest.mark.parametrize(
    ("net", "options", "says"),
    every(
        3,
        [
            (Net(0, form="scaled"), TASK, "ends in aten.mul"),
            (Net(0, form="turned"), TASK, "ends in aten.flip"),
            (Net(0), TASK | {"classes": [0, 1, 2, 3]}, "some of the columns"),
            (Net(0), TASK | {"L": 3}, "is no option here"),
            (Net(0), {"inputs": tokens([P, P])}, "missing a required argument"),
        ],
    ),
)
def test_modules_that_cannot_be_repaired_are_refused(net, options, says):
    with pytest.raises(BadInput, match=says):
        repair(net, **options)


def test_a_tied_embedding_and_a_buffer_are_refused():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.E = nn.Parameter(torch.randn(P, 3))

        def forward(self, t):
            return torch.relu(self.E[t].sum(1)) @ self.E.T

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.E = nn.Parameter(torch.randn(P, 3))
            self.register_buffer("W", torch.randn(3, P))

        def forward(self, t):
            return torch.relu(self.E[t].sum(1)) @ self.W

    with pytest.raises(BadInput, match="used elsewhere too"):
        repair(Tied().requires_grad_(False).eval(), **TASK)
    with pytest.raises(BadInput, match="W is the readout and no parameter"):
        repair(Fixed().requires_grad_(False).eval(), **TASK)


def fitted_parity(seed):
    """Random features of a parity model of T = 3, L = 3, and a readout fitted with some noise; E is small fractions."""
    g = torch.Generator().manual_seed(seed)
    model = parity.ParityTransformer(T=3, L=3, d=4, p=24, dtype=torch.float32).requires_grad_(False)
    for name, w in model.named_parameters():
        w.copy_((8 * torch.randn(w.shape, generator=g)).round() / (8 if name in ("E", "b_1") else 16))
    x = torch.tensor(list(product(range(3), repeat=3)))
    odd = ((x[:, :, None] == x[:, None, :]).sum(-1) % 2).flatten()
    mixed = model.E[x] + (model.E[x] @ model.W_Q) @ (model.E[x] @ model.W_K).transpose(1, 2) @ model.E[x]
    h = torch.relu(mixed @ model.W_1 + model.b_1).flatten(0, 1).double()
    h = torch.cat([h, torch.ones(len(h), 1)], 1)
    X = torch.linalg.lstsq(h.T @ h + 1e-6 * torch.eye(25), h.T @ nn.functional.one_hot(odd).double()).solution
    X += 0.01 * torch.randn(X.shape, generator=g)
    model.W_2.copy_(X[:-1])
    model.b_2.copy_(X[-1])
    return model


def wrong_parities(model):
    """How many answers are wrong, in fractions."""
    numbers = {name: np.atleast_2d(p.double().numpy()).tolist() for name, p in model.named_parameters()}
    w = {name: [[Fraction(v) for v in row] for row in of] for name, of in numbers.items()}

    def times(x, W):
        return [sum(a * b for a, b in zip(x, column, strict=True)) for column in zip(*W, strict=True)]

    wrong = 0
    for sequence in product(range(3), repeat=3):
        for own in set(sequence):
            query, mixed = times(w["E"][own], w["W_Q"]), list(w["E"][own])
            for s in sequence:
                score = sum(a * b for a, b in zip(query, times(w["E"][s], w["W_K"]), strict=True))
                mixed = [m + score * e for m, e in zip(mixed, w["E"][s], strict=True)]
            h = [max(z + b, Fraction(0)) for z, b in zip(times(mixed, w["W_1"]), w["b_1"][0], strict=True)]
            even, odd = (z + b for z, b in zip(times(h, w["W_2"]), w["b_2"][0], strict=True))
            wrong += not (odd > even if sequence.count(own) % 2 else even > odd)
    return wrong


@pytest.mark.deep
def test_parity_models_are_repaired(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcomes = set()
    for seed in (3, 4):
        model = fitted_parity(seed)
        before, found = wrong_parities(model), repair(model)
        outcomes.add((before > 0, found.outcome.value))
        if found.module is not None:
            assert wrong_parities(found.module) == 0 and found.at_least <= found.change
    assert (True, "PROVED") in outcomes
    model.E[1] = model.E[0]
    (tmp_path / "twins.safetensors").write_bytes(parity.as_bytes(model))
    code, out, _ = run(capsys, "repair", "twins.safetensors", "--task", "parity", "--json")
    said = json.loads(out)
    assert code == 2 and said["combination"]["checked"] == "in rationals"
    first, second = said["combination"]["inputs"]
    assert first["right"] != second["right"] and first["rival"] == second["right"]


@pytest.mark.deep
def test_addition_modulo_p_is_repaired_and_has_a_radius(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = modular.clock(P=5, frequencies=(1, 2), dtype=torch.float32).requires_grad_(False)
    model.W_out += torch.from_numpy(np.random.default_rng(2).normal(size=model.W_out.shape)).float() * 0.4
    save(model, "clock.safetensors")
    assert run(capsys, "modular", "--P", "5", "--weights", "clock.safetensors")[0] == 1
    code, out, _ = run(capsys, "repair", "clock.safetensors", "--task", "modular", "--save", "mended")
    assert code == 0, out
    argv = ("modular", "--P", "5", "--weights", "mended/weights.safetensors", "--json")
    assert json.loads(run(capsys, *argv)[1])["verdict"] == "PROVED"
    code, said = as_json(capsys, "radius", "mended/weights.safetensors", "--task", "modular")
    assert code == 0 and 0 < said["at_least"] < said["at_most"]


@pytest.mark.deep
def test_a_task_file_is_repaired(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.py").write_text(
        "import torch\nfrom tests.changes.test_other_models import Net, TASK\nfrom verify.module import Task\n"
        "task = Task(**TASK)\n\ndef model(weights):\n    net = Net(0)\n"
        "    if weights is not None:\n        net.load_state_dict(weights)\n    return net\n"
    )
    code, out, _ = run(capsys, "repair", "pairs.py", "--task", "module", "--save", "mended")
    assert code == 0, out
    weights = "mended/weights.safetensors"
    assert run(capsys, "module", "pairs.py", "--weights", weights)[0] == 0
    assert run(capsys, "radius", "pairs.py", "--task", "module", "--weights", weights)[0] == 0
    code, _, err = run(capsys, "repair", "pairs.py", "--task", "module", "--L", "3")
    assert code == 2 and "--L 3: says nothing about --task module" in err
