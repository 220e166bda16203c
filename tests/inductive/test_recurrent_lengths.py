"""`--by-length`: how many answers are right at each length, against runs with 120 digits and in float64."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from models.recurrent import random_network
from models.selection import first
from oracles.recurrent_digits import margins

from constructions.errors import BadInput
from constructions.recurrent import counters
from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import endless, looks
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.cli import main
from verify.counting.lengths import as_json, in_words
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent.task import Homogeneous

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
