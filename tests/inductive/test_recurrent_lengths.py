"""`--by-length`: how many answers are right at each length, against runs with 120 digits and in float64."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from models.recurrent import random_network
from models.selection import every, first
from models.whole_blocks import drawn
from mpmath import expj, mp, mpc, mpf
from oracles import recurrent_strings
from oracles.recurrent_digits import margins
from oracles.residual_blocks import wrong_at
from planted import planted

from constructions.errors import BadInput
from constructions.recurrent import counters, diagonal
from constructions.recurrent.model import RecurrentModel, load
from constructions.recurrent.residual import BLOCKS
from tests.clocks import endless, looks
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.commands.cli import main
from verify.counting.lengths import as_json, in_words
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, Failure, Finding, certify
from verify.tasks.inductive import document_c
from verify.tasks.recurrent import rotation, sets
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.shares import of_strings as of_strings_known
from verify.tasks.recurrent.task import Homogeneous

SELECTIVE = Path(__file__).parents[1] / "data" / "recurrent_selective"
LATE = Path(__file__).parents[1] / "data" / "recurrent" / "lstm_seed6_stop0.25.safetensors"
ASKED = ["inductive", "--task", "modular", "--model", "lstm", "--weights", str(LATE), "--by-length"]


def decided(model, task, length, reading=None, budget=None):
    effort = Effort(budget=budget or endless())
    return certify(Homogeneous(model, task, length, by_length=True), reading, effort)


def shares(certificate, shortest=1):
    """(right, wrong, undecided) at each length from the shortest on."""
    found = []
    for run in certificate.extra["by_length"]:
        assert run["first"] == len(found) + shortest
        number = run["last"] + 1 - run["first"]
        found += [tuple(int(run[name]) for name in ("right", "wrong", "undecided"))] * number
    return found


@pytest.mark.parametrize("models", first(1, [8, 16]))
def test_a_line_is_right_where_120_digits_are(models):
    again = 0
    for seed in range(models):
        model, modulus = random_network(seed)
        found = decided(model, Task.of("modular", modulus=modulus), 40)
        true = [margin > 0 for margin in margins(model, modulus, 40)]
        assert shares(found) == [(1, 0, 0) if is_right else (0, 1, 0) for is_right in true], seed
        first = found.extra["first_wrong_length"]
        assert first == (None if all(true) else true.index(False) + 1)
        assert (found.verdict is Verdict.PROVED) == all(true)
        again += first is not None and any(true[first:])
    assert again > 0  # some are right again after a wrong answer


@pytest.mark.parametrize(
    ("name", "lost"), first(2, [*itertools.product(("shifted", "helper", "helper-shifted"), (4, 9))])
)
def test_lengths_count_all_lines(name, lost):
    """Read with a class too few: a float64 run of every line says the same, of a number word alone (length 0), too."""
    task = Task.of(name, vocabulary=9)
    model = counters.adder(name, M=9)
    with torch.no_grad():
        model.readout.bias[lost] -= 100.0
    found, true = decided(model, task, None), {}
    for line in task.lines(task.longest(None)):
        right = model(torch.tensor([line.tokens]))[0].argmax(-1).tolist()
        for n, (said, due) in enumerate(zip(right, task.answers(line.tokens), strict=True)):
            counts = true.setdefault(n, [0, 0, 0])
            counts[said != due] += 1
    assert shares(found, 0) == [tuple(true[n]) for n in sorted(true)] and found.verdict is Verdict.REFUTED
    first_wrong = min(n for n, counts in true.items() if counts[1])
    assert found.extra["first_wrong_length"] == first_wrong == found.counterexample["length"]
    assert first_wrong == 0 or name == "helper" or lost == 9


def test_a_tie_is_wrong_and_time_leaves_the_rest_undecided():
    model = RecurrentModel("rnn", hidden=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert shares(decided(model, Task.of("modular", modulus=2), 3)) == [(0, 1, 0)] * 3
    found = decided(load(LATE), Task.of("modular", modulus=10), 150, budget=looks(40))
    assert (0, 0, 1) in shares(found) and (0, 1, 0) not in shares(found)


def test_the_command_prints_runs_of_lengths(capsys):
    assert main([*ASKED, "--length", "160", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    true = [margin > 0 for margin in margins(load(LATE), 10, 160)]
    assert said["first_wrong_length"] == true.index(False) + 1 == 151
    assert in_words(said) == in_words(as_json([(int(is_right), int(not is_right), 0) for is_right in true]))
    assert main([*ASKED, "--length", "160"]) == 1
    assert "1..150: 1 of 1 right; 151: 0 of 1 right;" in capsys.readouterr().out


def test_no_length_is_the_first_wrong_one_after_an_undecided_answer():
    """A search may find a long wrong string where shorter ones are not known to be right."""
    assert as_json([(2, 0, 0), (1, 0, 1), (0, 1, 0)])["first_wrong_length"] is None
    found = Finding.refuted("a search", Failure({"length": 4}, -1.0), extra={"right_to": 2})
    said = of_strings_known(Task.of("selective", types=2, max_count=4), 5, found, ())
    assert said["first_wrong_length"] is None and ("first wrong", "length 4") not in in_words(said)
    assert as_json([(2, 0, 0), (1, 1, 1)])["first_wrong_length"] == 2


REFUSED = {
    "no end": ([], "Give --length N."),
    "a format": (["--length", "9", "--precision", "float32"], "drop --precision"),
    "all inputs are run": (["--length", "9", "--method", "exhaustive"], "drop it, or --method exhaustive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_table_is_refused(capsys, name):
    given, says = REFUSED[name]
    assert main([*ASKED, *given]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and says in line and "--by-length" in line


def turned(model, length):
    """Logits of a rotation after 1, 2, .. tokens, by its own recurrence with a hundred digits."""
    with mp.workdps(100):
        V, b = model.readout.weight.double().tolist(), model.readout.bias.double().tolist()
        h, turn, rows = mpc(0), expj(mpf(float(model.cell.omega[0]))), []
        for _ in range(length):
            h = turn * h + 1
            rows.append([mpf(x) * h.real + mpf(y) * h.imag + mpf(c) for (x, y), c in zip(V, b, strict=True)])
    return rows


def miscounted_rotations():
    """At how many lengths of drawn rotations the table is not that of a run with a hundred digits."""
    off, are_mixed = 0, 0
    for m, change in itertools.product((2, 3, 5), (0.0, 0.1, -0.15)):
        model = diagonal.rotation(m=m, dtype=torch.bfloat16).double()
        with torch.no_grad():
            model.cell.omega += change
        true = [max(row) == row[t % m] for t, row in enumerate(turned(model, 120))]
        said = shares(decided(model, Task.of("modular", modulus=m), 120))
        off += sum(row != (1, 0, 0) if right else row != (0, 1, 0) for row, right in zip(said, true, strict=True))
        are_mixed += not all(true) and any(true[true.index(False) :])
    assert are_mixed > 3
    return off


def test_a_rotation_is_right_where_a_hundred_digits_are():
    assert miscounted_rotations() == 0
    with planted(rotation, "answers", "(t - 1) % m", "t % m"):
        assert miscounted_rotations() > 0


def test_what_time_does_not_reach_of_a_rotation_is_undecided():
    found = rotation.answers(diagonal.rotation(m=3, dtype=torch.float64), 3, 5, looks(2).deadline())
    assert found[0] is True and found[-1] is None


def test_document_c_stands_beside_its_own_sizes_alone(capsys):
    assert main([*ASKED, "--length", "100"]) == 0
    assert "100 % out of it (Table A1, best of five seeds); this network: 100 % on 1..50, 100 % on 51..100" in (
        " ".join(capsys.readouterr().out.split())
    )
    assert main([*ASKED, "--length", "99"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "this network: 100 % on 1..50" in out and "on 51..100" not in out
    rotated = ["inductive", "--task", "modular", "--model", "s4", "--by-length", "--length", "9"]
    assert main([*rotated, "--modulus", "5"]) == 0
    assert "Table A1" not in capsys.readouterr().out
    assert main(rotated) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "98.3 % out of it (Table A1, best of five seeds)" in out and "this network" not in out


def test_shares_are_of_all_answers_and_never_of_undecided_ones():
    def share(*rows):
        runs = [dict(zip(("first", "last", "right", "wrong", "undecided"), row, strict=True)) for row in rows]
        certificate = SimpleNamespace(extra={"by_length": runs})
        return document_c._share(certificate, range(51, 101))

    assert share((1, 50, 0, 1, 0), (51, 75, 1, 0, 0), (76, 200, 0, 1, 0)) == "1/2"
    assert share((0, 60, 3, 0, 0), (61, 100, 2, 1, 0)) == "11/15"
    assert share((1, 99, 10**4, 0, 0), (100, 100, 10**4 - 1, 1, 0)) == "499999/500000"
    assert share((1, 99, 1, 0, 0)) is None
    assert share((1, 99, 1, 0, 0), (100, 100, 0, 0, 1)) is None
    assert share((1, 100, 1, 0, 0), (101, 101, 0, 0, 1)) == "1/1"


OF_C = [
    ("selective", 100, (50, 100), 100.0),
    ("selective-modular", 128, (64, 128), 100.0),
    ("selective", 99, (50, None), 100.0),
]


@pytest.mark.parametrize(("task", "length", "last", "percent"), first(1, OF_C))
def test_document_c_stands_beside_strings_and_in_json(task, length, last, percent, capsys):
    """The built networks are right on all strings, so that the share is 1 at each law's lengths that are asked of."""
    asked = ["inductive", "--task", task, "--model", "lstm", "--by-length", "--length", str(length), "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)["document_c"]
    shares = {law: (int(of["lengths"].split("..")[1]), of["percent"], of["share"]) for law, of in found.items()}
    assert shares["trained"] == (last[0], percent, "1/1")
    assert shares["tested"][1:] == (percent, None if last[1] is None else "1/1")
    assert last[1] in (None, shares["tested"][0])


def test_a_transformer_is_refused(capsys):
    assert main(["inductive", "--task", "vanilla", "--by-length", "--length", "9"]) == 2
    assert "--model rnn, gru, lstm" in capsys.readouterr().err
    with pytest.raises(BadInput, match="real arithmetic"):
        decided(load(LATE), Task.of("modular", modulus=10), 9, Rounded(FORMATS["float32"]))


@pytest.mark.parametrize("length, answer", [(100, "PROVED"), (160, "REFUTED")])
def test_saved_certificates_hold_and_their_shares_are_said_to_be_taken_on_trust(length, answer, tmp_path, capsys):
    assert main([*ASKED, "--length", str(length), "--save", str(tmp_path / "out"), "--quiet"]) == (answer != "PROVED")
    assert main(["check", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("HOLDS") and f"{answer}; not re-checked:" in said and "by_length" in said


def of_strings(model, task, length, budget=None):
    effort = Effort(budget=budget or endless())
    return certify(Selective(model, task, length, by_length=True), None, effort)


def by_oracle(task, length, is_right):
    """Right and wrong last answers of all strings of each length."""
    found = []
    for n in range(1, length + 1):
        judged = [(s, task.answers(s)[-1]) for s in itertools.product(range(task.K), repeat=n)]
        right = [is_right(s, due) for s, due in judged if due is not None]
        found.append((sum(right), len(right) - sum(right), 0))
    return found


STRINGS = {
    "selective": Task.of("selective", types=2, max_count=2),
    "selective-modular": Task.of("selective-modular", types=3, modulus=2),
}


def network(kind, task, seed):
    if kind in BLOCKS:
        return drawn(kind, seed, types=task.K, classes=task.classes, layers=1)
    torch.manual_seed(seed)
    model = RecurrentModel(kind, hidden=3, classes=task.classes, inputs=task.K, dtype=torch.float64)
    for p in model.parameters():
        torch.nn.init.normal_(p)
    return model


@pytest.mark.parametrize(
    ("kind", "name"), every(6, itertools.product(("rnn", "gru", "lstm", "s4", "mamba", "rwkv"), STRINGS))
)
def test_strings_are_counted_as_digits_have_them(kind, name):
    """Cells against 60 digits, two of each up to length 4; whole blocks against 100, one up to length 3."""
    task, longest = STRINGS[name], 3 if kind in BLOCKS else 4
    for seed in range(1 if kind in BLOCKS else 2):
        model = network(kind, task, seed)

        def is_right(string, due, model=model):
            if kind in BLOCKS:
                return not wrong_at(model, string, [None] * (len(string) - 1) + [due])
            return recurrent_strings.gap(model, string, due) > 0

        found, true = of_strings(model, task, longest), by_oracle(task, longest, is_right)
        assert shares(found) == true
        assert found.extra["first_wrong_length"] == next((n for n, c in enumerate(true, 1) if c[1]), None)


def test_boxes_that_leave_answers_open_are_run_in_balls():
    """Where no box decides, the counts are the same; where another class is taken to win, they are not."""
    task, model = STRINGS["selective"], network("rnn", STRINGS["selective"], 0)
    known = shares(of_strings(model, task, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_decided", lambda trained, ends, right: tuple(np.zeros((2, len(right)), dtype=bool)))
        assert shares(of_strings(model, task, 4)) == known
    with planted(sets, "_decided", "(ahead != right)", "(ahead == ahead)"):
        assert shares(of_strings(model, task, 4)) != known


def test_lengths_beyond_what_is_followed_are_bracketed(monkeypatch):
    """A proof of all strings counts them, and a wrong string is counted where it is found."""
    task, counts = Task.of("selective", types=2, max_count=2), sets.counts
    monkeypatch.setattr(sets, "counts", lambda *asked: counts(*asked)[:3])
    proved = of_strings(load(SELECTIVE / "rnn_K2_C2_seed1.safetensors"), task, 8, looks(400))
    assert proved.verdict is Verdict.PROVED and shares(proved) == [(task.number_judged(n), 0, 0) for n in range(1, 9)]
    late = of_strings(load(SELECTIVE / "lstm_K2_C2_seed14.safetensors"), task, 12, looks(400))
    assert late.verdict is Verdict.REFUTED and late.extra["first_wrong_length"] == late.counterexample["length"] == 10
    assert shares(late)[8:11] == [(18, 0, 0), (0, 1, 19), (0, 0, 22)]


def test_a_certificate_of_strings_with_counts_is_not_called_false(tmp_path, capsys):
    options = ["--task", "selective", "--types", "2", "--max-count", "2", "--model", "rnn", "--length", "6"]
    file = str(SELECTIVE / "rnn_K2_C2_seed1.safetensors")
    assert (
        main(["inductive", *options, "--weights", file, "--by-length", "--save", str(tmp_path / "out"), "--quiet"]) == 0
    )
    assert main(["check", str(tmp_path / "out")]) in (0, 3)
