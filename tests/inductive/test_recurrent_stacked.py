"""State dicts with a projection, an input projection, LayerNorm and an MLP head: against torch and sixty digits."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from models.selection import first
from mpmath import exp, mp, mpf
from oracles.stacked import affine, first_wrong, logits
from torch import nn

from constructions.errors import BadInput
from constructions.recurrent.model import load as load_plain
from constructions.recurrent.stacked import StackedModel, as_bytes, is_stacked_file, load
from tests.command import run
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent.automata import expected
from verify.tasks.recurrent.models import as_a_cell


class Theirs(nn.Module):
    """What people write, run on whole strings at once."""

    def __init__(self, cell, *, width, embedding=None, into=None, norm=False, head=None, classes=3):
        super().__init__()
        self.embed = embedding
        self.input_proj = into
        self.rnn = cell
        self.ln = nn.LayerNorm(width) if norm else None
        self.head = head or nn.Sequential(nn.Linear(width, classes))

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        x = x if self.input_proj is None else self.input_proj(x)
        y = self.rnn(x)[0]
        return self.head(y if self.ln is None else self.ln(y))


def double(module, seed=0):
    torch.manual_seed(seed)
    for value in module.parameters():
        nn.init.normal_(value, std=0.7)
    return module.double().eval()


def mlp(*widths, activation=nn.ReLU):
    layers = [layer for a, b in zip(widths, widths[1:], strict=False) for layer in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1])


CASES = {
    "proj_size": lambda: Theirs(nn.LSTM(1, 5, batch_first=True, proj_size=2), width=2, head=nn.Linear(2, 3)),
    "two layers": lambda: Theirs(nn.LSTM(1, 5, 2, batch_first=True, proj_size=3), width=3, norm=True),
    "input": lambda: Theirs(nn.GRU(4, 5, batch_first=True), into=nn.Linear(1, 4), width=5, head=mlp(5, 6, 3)),
    "embedding": lambda: Theirs(
        nn.RNN(4, 5, batch_first=True), embedding=nn.Embedding(2, 3), into=nn.Linear(3, 4), width=5, norm=True
    ),
    "deep head": lambda: Theirs(nn.LSTM(2, 4, batch_first=True), width=4, head=mlp(4, 4, 4, 3, activation=nn.Tanh)),
    "norm": lambda: Theirs(nn.GRU(1, 4, batch_first=True), width=4, norm=True, head=mlp(4, 7, 3, activation=nn.GELU)),
}
ACTIVATIONS = {"deep head": "tanh", "norm": "gelu", "input": "relu"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_what_is_loaded_is_what_torch_runs(name, suffix, tmp_path):
    from safetensors.torch import save_file

    theirs, path = double(CASES[name]()), tmp_path / f"w{suffix}"
    (torch.save if suffix == ".pt" else save_file)(theirs.state_dict(), path)
    assert is_stacked_file(path)
    ours = load(path, activation=ACTIVATIONS.get(name))
    string = torch.randint(ours.vocabulary, (7,))
    x = (
        string
        if ours.types
        else nn.functional.one_hot(string, ours.vocabulary).double()
        if ours.vocabulary > 1
        else torch.ones(7, 1).double()
    )
    state = ours.start
    with torch.no_grad():
        whole = theirs(x[None])[0]
        for t, token in enumerate(string):
            state, found = ours(state, token[None])
            assert torch.allclose(found[0], whole[t], rtol=1e-12, atol=1e-12)
    again = tmp_path / "again.safetensors"
    again.write_bytes(as_bytes(ours))
    same = load(again).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in ours.state_dict().items())


def lists(model):
    return {name: value.double().tolist() for name, value in model.state_dict().items()}


def drawn(seed, **shape):
    """A model whose first class is ahead after the first token alone, as far as a line through the outputs does it."""
    model = StackedModel("lstm", hidden=4, classes=2, dtype=torch.float64, **shape)
    torch.manual_seed(seed)
    for value in model.parameters():
        nn.init.normal_(value, std=0.9)
    last = model.head[-1]
    rows = logits(lists(model), 60, activation=model.activation)
    gaps = [float(row[1] - row[0]) for row in rows]
    sign = 1.0 if gaps[0] > max(gaps[1:]) else -1.0
    at = sorted(sign * gap for gap in gaps[1:])[-1 - seed % 3]  # of the later ones so many are beyond the line
    with torch.no_grad():
        last.weight.mul_(sign)
        last.bias.mul_(sign)
        last.bias[1] -= (sign * gaps[0] + at) / 2
    return model


SHAPES = [
    {"head": (5,), "activation": "tanh"},
    {"shrunk": 2},
    {"shrunk": 3, "norm": True, "head": (4,)},
    {"into": 1, "inputs": 3},
]


@pytest.mark.parametrize(
    ("shape", "seeds"), first(1, [(s, range(1)) for s in SHAPES] + [(s, range(1, 20)) for s in SHAPES])
)
def test_verdicts_agree_with_sixty_digits(shape, seeds):
    task, seen = Task.of("first-homogeneous"), []
    for seed in seeds:
        model = drawn(seed, **shape)
        true = first_wrong(logits(lists(model), 150, activation=model.activation), lambda t: int(t == 1))
        found = certify(as_a_cell(model, task, None), effort=Effort(budget=120))
        assert found.verdict == ("PROVED" if true is None else "REFUTED")
        if true is not None:
            assert len(found.counterexample["input"]) == true and found.counterexample["is_first"]
            before = certify(as_a_cell(model, task, true - 1), effort=Effort(budget=120)) if true > 1 else None
            assert before is None or before.verdict == "PROVED" and before.inputs_covered == true - 1
        seen.append(found.verdict)
    assert seen


@pytest.mark.deep
def test_a_trained_lstm_with_an_mlp_head_is_first_wrong_where_sixty_digits_are(capsys, tmp_path):
    """The head relu(h + 1), W y + (b - W 1) reads what the file's own readout does, up to rounding."""
    plain = load_plain("tests/data/recurrent/lstm_seed6_stop0.25.safetensors")
    state = {name: value.double() for name, value in plain.state_dict().items() if name.startswith("cell.")}
    W, b = plain.readout.weight.double(), plain.readout.bias.double()
    one = torch.ones(plain.hidden, dtype=torch.float64)
    state |= {"fc.0.weight": torch.diag(one), "fc.0.bias": one, "fc.2.weight": W, "fc.2.bias": b - W @ one}
    path = tmp_path / "w.pt"
    torch.save(state, path)
    arguments = ("inductive", "--task", "modular", "--model", "lstm", "--weights", str(path), "--json")
    code, out, _ = run(capsys, *arguments, "--activation", "relu")
    found, true = (
        json.loads(out),
        first_wrong(logits(lists(load(path, activation="relu")), 155), lambda t: (t - 1) % 10),
    )
    assert code == 1 and found["counterexample"]["length"] == true == 151 and found["right_to"] == 150
    code, out, err = run(capsys, *arguments)
    assert code == 2 and not out and "--activation" in err and err.count("\n") == 1
    code, out, _ = run(capsys, *arguments, "--activation", "relu", "--length", "150")
    assert code == 0 and json.loads(out)["inputs_covered"] == "150"


def mingru(state, string):
    """The logits after each token of a string, embedded, in plain Python with sixty digits."""
    found = []
    with mp.workdps(60):
        W = [[mpf(w) for w in row] for row in state["cell.to_hidden_and_gate.weight"]]
        h = [mpf(0)] * (len(W) // 2)
        for token in string:
            a = affine(W, [mpf(x) for x in state["embedding.weight"][token]])
            n = [x + mpf(0.5) if x >= 0 else 1 / (1 + exp(-x)) for x in a[: len(h)]]
            z = [1 / (1 + exp(-x)) for x in a[len(h) :]]
            h = [(1 - s) * x + s * y for x, y, s in zip(h, n, z, strict=True)]
            found.append(affine(state["head.0.weight"], h, state["head.0.bias"]))
    return found


@pytest.mark.parametrize("seeds", first(1, [(range(1),), (range(1, 40),)]))
def test_mingru_agrees_with_sixty_digits_on_all_strings(seeds, tmp_path):
    """The shortest wrong string of a drawn minGRU over two types is as long as enumeration says."""
    task = Task.of("selective-modular", types=2, modulus=2)
    for seed in seeds:
        model = double(StackedModel("mingru", hidden=3, inputs=2, types=2, classes=2), seed)
        torch.save(model.state_dict(), tmp_path / "w.pt")
        read, state = load(tmp_path / "w.pt", kind="mingru"), lists(model)
        wrong = set()
        for string in itertools.product(range(2), repeat=6):
            due, rows = task.answers(string), mingru(state, string)
            wrong |= {
                t for t, (right, row) in enumerate(zip(due, rows, strict=True), 1) if not row[right] > row[1 - right]
            }
            with torch.no_grad():
                carried = read.start
                for token, row in zip(string, rows, strict=True):
                    carried, ran = read(carried, torch.tensor([token]))
                    assert ran[0].tolist() == pytest.approx([float(x) for x in row], abs=1e-12)
        found = certify(as_a_cell(read, task, 6), effort=Effort(budget=60))
        assert found.verdict == ("REFUTED" if wrong else "PROVED")
        assert not wrong or len(found.counterexample["input"]) == min(wrong) and found.counterexample["is_first"]


def test_the_command_reads_a_mingru(capsys, tmp_path):
    model = double(StackedModel("mingru", hidden=3, inputs=2, types=2, classes=2), 0)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    asked = ("--task", "selective-modular", "--types", "2", "--modulus", "2", "--length", "3", "--json")
    code, out, _ = run(capsys, "inductive", "--model", "mingru", "--weights", str(tmp_path / "w.pt"), *asked)
    wrong = json.loads(out)["counterexample"]["input"]
    due = Task.of("selective-modular", types=2, modulus=2).answers(tuple(wrong))[-1]
    row = mingru(lists(model), wrong)[-1]
    assert code == 1 and not row[due] > row[1 - due]


def test_automata_are_the_tasks():
    for task in (
        Task.of("modular", modulus=3),
        Task.of("vanilla", vocabulary=4),
        Task.of("first-homogeneous"),
        Task.of("selective", types=2, max_count=2),
        Task.of("selective-modular", types=2, modulus=2),
        Task.of("selective-modular", types=2, modulus=2, max_count=3),
        Task.of("selective-modular", types=2, modulus=3, max_count=1),
    ):
        automaton = expected(task)
        for number in range(40):
            string = [number >> i & 1 if task.vocabulary > 1 else 0 for i in range(6)]
            if task.name == "vanilla":
                string = string[:4]
            state, said = automaton.start, []
            for token in string:
                state = automaton.after(state, token)
                said.append(automaton.answer(state))
            assert tuple(said) == task.answers(tuple(string))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rnn.weight_hr_l0": torch.zeros(3, 4)}, "weight_hh_l0 is 16x2"),
        ({"rnn.weight_ih_l0_reverse": torch.zeros(16, 1)}, "second direction"),
        ({"head.0.weight": torch.zeros(3, 3)}, "do not follow one another from 2 numbers"),
        ({"head.4.weight": torch.zeros(3, 3), "head.4.bias": torch.zeros(3)}, "what lies between them"),
        ({"bn.weight": torch.ones(2), "bn.bias": torch.ones(2), "bn.running_mean": torch.ones(2)}, "is not read"),
        (
            {"a.weight": torch.ones(2), "a.bias": torch.ones(2), "b.weight": torch.ones(2), "b.bias": torch.ones(2)},
            "not read",
        ),
        ({"ln.weight": torch.ones(3), "ln.bias": torch.ones(3)}, "norm.weight has shape (3,)"),
        ({"head.1.weight": torch.ones(2), "head.1.bias": torch.ones(2)}, "inside the head"),
        ({"embed.weight": torch.ones(2, 2)}, "embed.weight has 2 columns"),
        ({"rnn.weight_ih_l0": torch.full((16, 1), torch.nan)}, "not finite"),
        ({"head.0.bias": torch.zeros(3).double()}, "float64"),
    ],
)
def test_near_misses_are_refused_in_one_line(changed, said, tmp_path):
    state = Theirs(nn.LSTM(1, 4, batch_first=True, proj_size=2), width=2).state_dict() | changed
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(BadInput) as refused:
        load(tmp_path / "w.pt")
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_layers_whose_order_is_open_are_refused(tmp_path):
    state = Theirs(nn.GRU(1, 3, batch_first=True), width=3).state_dict()
    state = {key: value for key, value in state.items() if not key.startswith("head")}
    for name in ("out", "mid"):
        state |= {f"{name}.weight": torch.zeros(3, 3), f"{name}.bias": torch.zeros(3)}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(BadInput, match="several orders"):
        load(tmp_path / "w.pt")


def test_options_that_do_not_go_together_are_refused(capsys, tmp_path):
    path = tmp_path / "w.pt"
    torch.save(double(CASES["proj_size"]()).state_dict(), path)
    base = ("inductive", "--weights", str(path), "--model", "lstm")
    for options in (
        ("--task", "modular", "--modulus", "4"),
        ("--task", "selective", "--types", "2", "--max-count", "1"),
        ("--task", "modular", "--modulus", "3", "--precision", "s4"),
        ("--task", "modular", "--modulus", "3", "--by-length", "--length", "5", "--precision", "float32"),
        ("--task", "modular", "--modulus", "3", "--d", "4"),
    ):
        code, out, err = run(capsys, *base, *options)
        assert code == 2 and not out and err.count("\n") == 1, options
    code, _, err = run(capsys, *base[:-1], "gru", "--task", "modular", "--modulus", "3")
    assert code == 2 and "--model lstm" in err
    code, out, _ = run(capsys, *base, "--task", "modular", "--modulus", "3")
    assert code == 1 and "model=stacked lstm" in out


@pytest.mark.parametrize("method", first(1, ["certified", "exhaustive"]))
def test_what_is_kept_of_stacked_cells_is_checked_but_runs_bit_by_bit(method, capsys, tmp_path):
    path, kept = tmp_path / "w.pt", tmp_path / "kept"
    torch.save(double(CASES["proj_size"]()).state_dict(), path)
    asked = ("--model", "lstm", "--task", "modular", "--modulus", "3", "--method", method, "--save", str(kept))
    run(capsys, "inductive", "--weights", str(path), *asked)
    _, out, _ = run(capsys, "check", str(kept), "--json")
    assert f'"outcome": "{"HOLDS" if method == "certified" else "NOT CHECKABLE"}"' in out
