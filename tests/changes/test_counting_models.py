"""Repairs of contextual, inductive and digit-adding models, against one programme over all inputs, each run alone."""

from copy import deepcopy
from itertools import product

import numpy as np
import pytest
import torch
from command import as_json, run
from models.selection import every

from constructions.adder import transformer as adder
from constructions.addition import one_head, two_heads
from constructions.contextual import transformer as contextual
from constructions.contextual_counting import build
from constructions.inductive import selective, started
from constructions.inductive.files import as_bytes
from tests.changes.test_sequence_models import what_is_wrong
from tests.planted import planted
from verify import certify, repair
from verify.arithmetic.readings import Real
from verify.changes.repair import repair as mended
from verify.counting.tasks import Task
from verify.frame.decide import Effort
from verify.tasks.addition import changing as of_addition
from verify.tasks.contextual import changing as of_contextual
from verify.tasks.contextual.task import StringDomain
from verify.tasks.inductive import changing as of_inductive

SHIFTED, SELECTIVE = Task.of("shifted", vocabulary=4), Task.of("selective", types=2, max_count=3)


def with_hidden_numbers(module, weight, bias):
    """The module with the identity in place of its readout, in float64."""
    copied, (n, _) = deepcopy(module).double().requires_grad_(False), getattr(module, weight).shape
    setattr(copied, weight, torch.nn.Parameter(torch.eye(n, dtype=torch.float64), requires_grad=False))
    if bias is not None:
        setattr(copied, bias, torch.nn.Parameter(torch.zeros(n, dtype=torch.float64), requires_grad=False))
    return copied


def contextual_rows(module, N=5):
    """Every valid string of up to N tokens and every prompt, by counting between brackets."""
    hidden = with_hidden_numbers(module, "W_out", "b_out")
    for n in range(N + 1):
        for text in map("".join, product("01[]", repeat=n)):
            marks = "".join(c for c in text if c in "[]")
            if marks == "[]" * (len(marks) // 2) and len(marks) // 2 <= module.R:
                regions = [part.partition("]")[0] for part in text.split("[")[1:]]
                rows = hidden(torch.tensor(["01[]".index(c) for c in text], dtype=torch.long))
                for r in range(module.R):
                    yield np.append(rows[r].numpy(), 1), regions[r].count("1") if r < len(regions) else 0


def addition_rows(module):
    """Every pair of n-digit numbers and every digit of its sum."""
    hidden, B, n = with_hidden_numbers(module, "W_out", "b_out"), len(module.E) - 2, (module.length - 2) // 3
    for a, b in product(range(B**n), repeat=2):
        digits = [[x // B**i % B for i in reversed(range(m))] for x, m in ((a, n), (b, n), (a + b, n + 1))]
        rows = hidden(torch.tensor([*digits[0], B, *digits[1], B + 1, *digits[2][:-1]]))
        for i, due in enumerate(digits[2]):
            yield np.append(rows[2 * n + 1 + i].numpy(), 1), due


def shifted_rows(module):
    """Every start s and every number of tokens up to which the count goes: s, s + 1, ..., 4."""
    hidden = with_hidden_numbers(module, "W_U", None)
    for s in range(4):
        rows = hidden(torch.tensor([s, *[5] * (3 - s)]))
        for i in range(4 - s):
            yield rows[i].numpy(), s + i


def selective_rows(module, length=5):
    """Every string over two tokens, at each place whose token was met at most three times."""
    hidden = with_hidden_numbers(module, "W_U", None)
    for string in product((0, 1), repeat=length):
        rows = hidden(torch.tensor(string))
        for i, token in enumerate(string):
            if string[: i + 1].count(token) <= 3:
                yield rows[i].numpy(), string[: i + 1].count(token)


def noisy(W, size, seed=1):
    W.requires_grad_(False).mul_(1 + size * torch.randn(W.shape, generator=torch.Generator().manual_seed(seed)))


def wrong_contextual():
    module = build(N=5, R=2, dtype=torch.float32).requires_grad_(False)
    module.b_out[3] += 2 * abs(module.b_out[3] - module.b_out[2])
    return module


def wrong_adder(make=two_heads, n=2, B=3):
    module = make(n=n, B=B, dtype=torch.float32).requires_grad_(False)
    module.b_out[1] += 0.9 if make is two_heads else 0.1
    return module


def wrong_decoder(task):
    module = started(task="shifted", M=4) if task is SHIFTED else selective(K=2, C=3)
    noisy(module.requires_grad_(False).float().W_U, 0.4 if task is SHIFTED else 1.5)
    return module


def stacked(module):
    return np.vstack([module.W_out.double().numpy(), module.b_out.double().numpy()])


def unembedding(module):
    return module.W_U.detach().double().numpy()


CASES = {
    "selective": lambda: (of_inductive.changeable(wrong_decoder(SELECTIVE), SELECTIVE, length=5), unembedding,
                          selective_rows),
    "contextual": lambda: (of_contextual.changeable(wrong_contextual()), stacked, contextual_rows),
    "addition": lambda: (of_addition.changeable(wrong_adder()), stacked, addition_rows),
    "one head": lambda: (of_addition.changeable(wrong_adder(one_head, 2, 4)), stacked, addition_rows),
    "shifted": lambda: (of_inductive.changeable(wrong_decoder(SHIFTED), SHIFTED), unembedding, shifted_rows),
}  # fmt: skip


def verdict_of(name):
    changeable, numbers, rows = CASES[name]()
    found = mended(changeable, Real(), Effort(20))
    listed = list(rows(changeable.module if name != "contextual" else of_contextual.plain(changeable.module)))
    return what_is_wrong(found, numbers(changeable.module), found and numbers(found.module), listed), found, listed


@pytest.mark.parametrize("name", every(16, CASES))
def test_models_are_repaired_close_to_the_bound(name):
    wrong, found, listed = verdict_of(name)
    assert (
        wrong in (None, "gap")
        and (wrong is None or name == "addition")
        and found.outcome == "PROVED"
        and found.wrong
        and found.is_listed
    )
    assert found.certificate.inputs_covered and found.questions <= len(listed)


@pytest.mark.deep
def test_a_readout_that_sees_nothing_is_impossible():
    module = build(N=4, R=1, dtype=torch.float32).requires_grad_(False)
    module.U_V.zero_()
    found = mended(of_contextual.changeable(module), Real(), Effort(20))
    assert found.outcome == "IMPOSSIBLE" and found.combination.to_dict()["inputs"]


@pytest.mark.deep
def test_inputs_that_are_not_listed_are_met():
    module = build(N=40, R=1, dtype=torch.float32).requires_grad_(False)
    module.b_out[3] += 2 * abs(module.b_out[3] - module.b_out[2])
    found = mended(of_contextual.changeable(module), Real(), Effort(120))
    assert found.outcome == "PROVED" and not found.is_listed and found.change <= 1.01 * found.at_least
    module = two_heads(n=4, B=10, dtype=torch.float32).requires_grad_(False)
    module.b_out[1] += 0.9
    found = mended(of_addition.changeable(module), Real(), Effort(60))
    assert not found.is_listed and (found or found.reason)


FAULTS = [
    ("contextual", of_contextual.PaddedContextual, "forward", "is_filled = tokens == BOS", "is_filled = tokens < 0"),
    ("contextual", of_contextual, "changeable", "right.flatten()", "right.flatten().roll(1)"),
    ("one head", of_addition, "written", "total[:, column] += carry", "total[:, column] += 0 * carry"),
    ("one head", of_addition, "changeable", "reversed(range(digits))", "range(digits)"),
    ("selective", of_inductive, "changeable", "position += [place for", "position += [max(0, place - 1) for"),
]


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[3])
def test_planted_faults_are_seen(fault):
    name, *planted_at = fault
    with planted(*planted_at):
        assert verdict_of(name)[0]


@pytest.mark.deep
def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    contextual.save(build(N=3, R=1), "c.safetensors")
    adder.save(one_head(n=1, B=3), "a.safetensors")
    task = {"task": SHIFTED.name, **SHIFTED.parameters()}
    (tmp_path / "i.safetensors").write_bytes(as_bytes(started(task="shifted", M=4), task))
    for file, name in (("c", "contextual"), ("a", "addition"), ("i", "inductive")):
        code, said = as_json(capsys, "repair", f"{file}.safetensors", "--task", name)
        assert code == 0 and said["verdict"] == "PROVED" and said["wrong"] == "0"


def test_bad_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    contextual.save(build(N=3, R=1), "c.safetensors")
    adder.save(one_head(n=1, B=3), "a.safetensors")
    (tmp_path / "i.safetensors").write_bytes(as_bytes(started(task="shifted", M=4), {}))
    for line, says in (
        ("repair c.safetensors --task contextual --length 9", "use --length 5 or less"),
        ("repair c.safetensors --task contextual --modulus 9", "says nothing about --task contextual"),
        ("repair a.safetensors --task addition --length 2", "says nothing about --task addition"),
        ("repair i.safetensors --task inductive", "does not say what is counted"),
        ("repair c.safetensors --task inductive", "W_E"),
    ):
        code, out, err = run(capsys, *line.split())
        assert code == 2 and out == "" and err.count("\n") == 1 and says in err, err


@pytest.mark.deep
def test_a_contextual_model_is_repaired_from_python():
    found = repair(wrong_contextual(), length=4)
    assert found and type(found.module) is contextual.ContextualCountingTransformer
    assert certify(found.module, length=4) and not certify(wrong_contextual(), length=4)


def test_a_file_with_other_names_is_repaired(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    state = {name.replace("W_out", "head"): value for name, value in build(N=3, R=1).state_dict().items()}
    torch.save(state, "c.pt")
    assert run(capsys, "repair", "c.pt", "--task", "contextual")[0] == 2
    code, said = as_json(capsys, "repair", "c.pt", "--task", "contextual", "--map", "W_out=head")
    assert code == 0 and said["verdict"] == "PROVED"


@pytest.mark.deep
def test_long_strings_without_regions_are_listed():
    """4^16 words of the alphabet are 2^17 - 1 strings of digits."""
    domain = StringDomain(16, 0)
    assert domain.strings() == sum(1 for _ in domain.enumerate()) == 2**17 - 1
