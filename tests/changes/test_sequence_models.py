"""Repairs of Count01 models and recurrent networks, against one linear programme over all prompts, by numpy."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from clocks import looks
from command import as_json, run
from scipy.optimize import linprog

from constructions import count01
from constructions.errors import BadInput
from constructions.recurrent import model as recurrent
from constructions.recurrent.model import RecurrentModel
from tests.planted import planted
from verify import repair
from verify.arithmetic.readings import Real
from verify.changes import changeable as changes
from verify.changes.repair import repair as mended
from verify.frame.clock import TimeIsUp
from verify.frame.decide import Effort
from verify.tasks.count01 import changing as of_count01
from verify.tasks.recurrent import changing as of_recurrent

DIGITS, NOISE = 2, 1
BOX = {"max_digits": DIGITS, "max_noise": NOISE}
BOS, EQUALS, FOUR, FIVE, EOS = 0, 4, 5, 6, 7


def count01_rows(module):
    """Hidden numbers, and 1, of every prompt of the box by its counts, and the right classes."""
    E, W = (getattr(module, name).double().numpy() for name in ("E", "W_V"))
    Q, K, O = (getattr(module, name).double().numpy() for name in ("W_Q", "W_K", "W_O"))
    for n0, n1, n2 in product(range(DIGITS + 1), range(DIGITS + 1), range(NOISE + 1)):
        for last in (EQUALS, FOUR, FIVE):
            x = E[[BOS, *[1] * n0, *[2] * n1, *[3] * n2, EQUALS, *([] if last == EQUALS else [last])]]
            h = x[-1].copy()
            for head in range(len(Q)):
                scores = x @ K[head] @ (Q[head].T @ x[-1])
                weights = np.exp(scores - scores.max())
                h += weights / weights.sum() @ x @ W[head] @ O[head]
            yield np.append(h, 1), (FOUR if n1 > n0 else FIVE) if last == EQUALS else EOS


def recurrent_rows(module, steps=60):
    """Hidden numbers, and 1, after each token, and the right classes."""
    weights = {name: w.double().numpy() for name, w in module.cell.named_parameters()}
    h = np.zeros(module.hidden)
    for t in range(steps):
        x = np.ones(1)
        h = np.tanh(weights["weight_ih_l0"] @ x + weights["bias_ih_l0"] + weights["weight_hh_l0"] @ h
                    + weights["bias_hh_l0"])  # fmt: skip
        yield np.append(h, 1), t % module.classes


def what_is_wrong(found, X, changed, rows):
    """What of a repair one programme over all rows contradicts, if anything; X is the old readout."""
    H, due = (np.array(column) for column in zip(*rows, strict=True))
    n, C = X.shape
    a = []
    for h, y in zip(H, due, strict=True):
        for c in set(range(C)) - {int(y)}:
            row = np.zeros((n, C))
            row[:, y], row[:, c] = h, -h
            a.append(row.ravel())
    a = np.array(a)
    if found.outcome == "IMPOSSIBLE":
        best = linprog(np.zeros(n * C), A_ub=-a, b_ub=-np.ones(len(a)), bounds=(None, None))
        return None if best.status == 2 else "a readout is right"
    if found.outcome != "PROVED":
        return found.reason
    one, eye = np.ones((n * C, 1)), np.eye(n * C)
    A = np.vstack([np.hstack([-a, np.zeros((len(a), 1))]), np.hstack([eye, -one]), np.hstack([-eye, -one])])
    least = linprog(np.append(np.zeros(n * C), 1), A_ub=A, b_ub=np.append(a @ X.ravel(), np.zeros(2 * n * C)),
                    bounds=[(None, None)] * n * C + [(0, None)]).fun  # fmt: skip
    change = max(abs(Fraction(p) - Fraction(q)) for p, q in zip(changed.flat, X.flat, strict=True))
    if (a @ changed.ravel()).min() <= 0 or not found.certificate or found.change != change:
        return "a wrong repair"
    if not found.at_least <= least * (1 + 1e-6) + 1e-9 <= float(change) * (1 + 1e-5) + 1e-8:
        return "bound"
    return None if change <= 1.01 * found.at_least else "gap"


def wrong_count01(seed=0, heads=1):
    """A model of random numbers with a readout that is wrong on some prompts."""
    g = torch.Generator().manual_seed(seed)
    module = count01.Count01Transformer(d=4, heads=heads, d_h=4, dtype=torch.float32).requires_grad_(False)
    for W in module.parameters():
        if W.ndim > 1:
            W.copy_(torch.randn(W.shape, generator=g))
    return module


def of_count01_is_wrong(module):
    found = repair(module, budget=10, **BOX)

    def numbers(m):
        return np.vstack([m.W_out.double().numpy(), m.b_out.double().numpy()])

    return what_is_wrong(found, numbers(module), found and numbers(found.module), list(count01_rows(module))), found


@pytest.mark.deep
def test_count01_models_are_repaired_or_impossible():
    module = count01.documents(10, dtype=torch.float32).requires_grad_(False)
    module.b_out[FOUR] += 3
    wrong, found = of_count01_is_wrong(module)
    assert wrong is None and found and found.wrong and found.questions == 54
    module.E[2] = module.E[1]  # 1 is read as 0
    wrong, found = of_count01_is_wrong(module)
    assert wrong is None and found.outcome == "IMPOSSIBLE"


@pytest.mark.deep
def test_more_count01_models_are_repaired_or_impossible():
    """Random numbers leave little more room than float32 rounds: two repairs are 2 % and 15 % above the bound."""
    wrong = [of_count01_is_wrong(wrong_count01(seed, heads=1 + seed % 3))[0] for seed in range(12)]
    assert wrong.count(None) >= 9 and {*wrong} - {None, "gap"} <= {w for w in wrong if w and w.startswith("no readout")}


def network(seed, modulus=2, hidden=4):
    """A network with random numbers that contracts, and a readout that is wrong somewhere."""
    torch.manual_seed(seed)
    module = RecurrentModel("rnn", hidden=hidden, classes=modulus)
    module.cell.weight_hh_l0.copy_(-0.9 * torch.eye(hidden) + 0.05 * torch.randn(hidden, hidden))
    module.cell.weight_hh_l0[0, 0] = -1.6  # a neuron that swings for ever
    return module


def of_recurrent_is_wrong(module, length=None):
    found = mended(of_recurrent.changeable(module, modulus=module.classes, length=length), Real(), Effort(20))

    def numbers(m):
        return np.vstack([m.readout.weight.double().numpy().T, m.readout.bias.double().numpy()])

    return what_is_wrong(found, numbers(module), found and numbers(found.module), list(recurrent_rows(module))), found


@pytest.mark.deep
def test_recurrent_networks_are_repaired_at_all_lengths():
    wrong, found = of_recurrent_is_wrong(network(0))
    assert wrong is None and found and found.wrong and not found.is_listed and found.certificate.inputs_covered is None


@pytest.mark.deep
def test_more_recurrent_networks_are_repaired_or_impossible():
    outcomes = []
    for seed in range(8):
        module = network(seed, modulus=2 + seed % 2)
        wrong, found = of_recurrent_is_wrong(module, length=60 if seed % 4 else None)
        assert wrong is None or (found.outcome == "UNKNOWN" and found.reason), (seed, wrong)
        outcomes.append(found.outcome.value)
    assert "PROVED" in outcomes and "IMPOSSIBLE" in outcomes


FAULTS = [
    (of_count01, "changeable", "n1, right) if last == EQUALS", "n1, right) if last != EQUALS"),
    (of_count01, "changeable", "ends[:, -1] - 1", "ends[:, -1] - 2"),
]


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[2])
def test_planted_faults_are_seen(fault):
    module = count01.documents(10, dtype=torch.float32).requires_grad_(False)
    module.b_out[FOUR] += 3
    with planted(*fault):
        assert of_count01_is_wrong(module)[0]


@pytest.mark.deep
def test_the_command_repairs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module = count01.documents(10).requires_grad_(False)
    module.b_out[FOUR] += 3
    count01.save(module, "c.safetensors")
    box = ("--max-digits", "1", "--max-noise", "0")
    code, said = as_json(capsys, "repair", "c.safetensors", "--task", "count01", *box)
    assert code == 0 and said["verdict"] == "PROVED" and said["questions"] == "12"


@pytest.mark.deep
def test_bad_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    count01.save(count01.documents(10), "c.safetensors")
    (tmp_path / "r.safetensors").write_bytes(recurrent.as_bytes(network(0)))
    for line, says in (
        ("repair c.safetensors --task count01", "Count01 model is changed on a box of counts"),
        ("repair c.safetensors --task count01 --max-digits 1 --max-noise -1", "must be at least 0"),
        ("repair c.safetensors --task count01 --modulus 3", "--modulus 3: says nothing about --task count01"),
        ("repair r.safetensors --task recurrent --modulus 1", "modulus"),
        ("repair r.safetensors --task recurrent --modulus 9", "the readout has 2 classes"),
        ("repair r.safetensors --task recurrent --length 0 --modulus 2", "must be from 1 to 4096"),
    ):
        code, out, err = run(capsys, *line.split())
        assert code == 2 and out == "" and err.count("\n") == 1 and says in err, err


def test_bad_calls_from_python():
    with pytest.raises(BadInput, match="is changed on a box of counts"):
        repair(wrong_count01())


def test_the_prompts_of_a_box_are_listed_as_they_are_written():
    questions = of_count01.changeable(count01.documents(10), **BOX).questions()
    rows = zip(questions.tokens.tolist(), questions.position.tolist(), questions.right.tolist(), strict=True)
    due = {}
    for n0, n1, n2 in product(range(DIGITS + 1), range(DIGITS + 1), range(NOISE + 1)):
        for last in (EQUALS, FOUR, FIVE):
            written = [BOS, *[1] * n0, *[2] * n1, *[3] * n2, EQUALS, *([] if last == EQUALS else [last])]
            due[tuple(written)] = (FOUR if n1 > n0 else FIVE) if last == EQUALS else EOS
    listed = list(rows)
    assert {tuple(tokens[: place + 1]): right for tokens, place, right in listed} == due and len(listed) == len(due)
    assert all(set(tokens[place:]) == {tokens[place]} and len(tokens) == 8 for tokens, place, _ in listed)


def test_long_questions_are_run_a_few_at_a_time_until_the_time_is_up(monkeypatch):
    monkeypatch.setattr(changes, "SCORES", 5 * 8**2)  # five prompts of eight tokens
    found = of_count01.changeable(count01.documents(10), **BOX)
    number = len(found.questions())
    whole, ran = found.hidden(found.questions()), []
    found.hidden_module.register_forward_hook(lambda module, args, out: ran.append(len(args[0])))
    again = found.hidden(found.questions(), looks(number).deadline())
    assert np.allclose(whole, again, rtol=0, atol=1e-12) and len(ran) == -(-number // 5) and max(ran) == 5
    del ran[:]
    with pytest.raises(TimeIsUp):
        found.hidden(found.questions(), looks(4).deadline())
    assert len(ran) == 3
