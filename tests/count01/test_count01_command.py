"""`verify count01`: exit codes, one JSON object, one line for bad input, files, and running every string."""

from __future__ import annotations

import json
import math

import pytest
import torch
from models.selection import every

from constructions import count01 as build
from constructions.errors import BadInput, ProvedImpossible
from verify.commands.cli import main
from verify.frame import decide as deciding
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, decide
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01, certify

ONES = "majority-ones"


def exhaustive(model, labels, domain, strings=None):
    return deciding.exhaustive(Count01.of(model, labels, domain, method="exhaustive", strings=strings))


def test_exhaustive_runs_every_string():
    certificate = exhaustive(build.uniform(), ONES, PromptDomain(4, 4), strings=5)
    assert certificate.verdict is Verdict.PROVED
    assert certificate.inputs_covered == 3 * (125 + sum(3**n for n in range(6)))
    bad = exhaustive(build.documents(3), ONES, PromptDomain(4, 4))
    assert bad.verdict is Verdict.REFUTED and bad.counterexample["fails"]
    strings = exhaustive(build.documents(3), ONES, PromptDomain(), strings=3)
    assert strings.verdict is Verdict.REFUTED and 0 < int(strings.extra["counts"]["wrong"]) < 3 * 40
    with pytest.raises(BadInput, match="more than the budget"):
        exhaustive(build.uniform(), ONES, PromptDomain(10**4, 10**4))


def test_sampling_refutes_by_a_short_string_and_never_proves():
    for domain in (PromptDomain(), PromptDomain(6, 4), PromptDomain(max_length=5), PromptDomain(9, 9, min_digits=2)):
        right = decide(
            Count01.of(build.uniform(), ONES, domain, method="sampled"), None, "sampled", Effort(samples=300)
        )
        assert right.verdict is Verdict.UNKNOWN and 0 < right.extra["samples"] <= 300
        wrong = decide(Count01.of(build.documents(3), ONES, domain, method="sampled"), None, "sampled", Effort(seed=1))
        found = wrong.counterexample
        assert wrong.verdict is Verdict.REFUTED and found["fails"] and wrong.margin <= 0
        assert (found["n0"], found["n1"], found["n2"]) in domain and len(found["tokens"]) <= 12


@pytest.mark.deep
def test_every_string_of_ten_digits():
    for model in (build.uniform(), build.documents(10)):
        assert exhaustive(model, ONES, PromptDomain(), strings=10).verdict is Verdict.PROVED


def test_weights_round_trip_and_bad_files(tmp_path):
    path = tmp_path / "m.safetensors"
    build.save(build.documents(10, skip=False), str(path))
    loaded = build.load(str(path))
    assert not loaded.has_skip
    assert certify(loaded, ONES, PromptDomain(200, 200)).verdict is Verdict.PROVED
    assert list(tmp_path.iterdir()) == [path]
    good = dict(build.uniform().state_dict())
    torch.save(good, tmp_path / "m.pt")
    assert build.load(str(tmp_path / "m.pt")).heads == 1
    (tmp_path / "cut.safetensors").write_bytes(path.read_bytes()[:50])
    torch.save([1, 2], tmp_path / "list.pt")
    for name, match in (("cut.safetensors", "readable"), ("list.pt", "state dict"), (".", "is a folder")):
        with pytest.raises(BadInput, match=match):
            build.load(str(tmp_path / name))
    for change, match in (
        ({"E": torch.full((8, 1), math.nan, dtype=torch.float64)}, "infinite or NaN"),
        ({"W_V": torch.ones(1, 2, 1, dtype=torch.float64)}, "shape"),
        ({"skip": torch.ones(3)}, "one boolean"),
        ({"extra": torch.ones(1)}, "not part"),
    ):
        with pytest.raises(BadInput, match=match):
            build.from_state_dict({**good, **change})
    with pytest.raises(ProvedImpossible):
        build.uniform(skip=False)


@pytest.mark.parametrize(
    ("argv", "code"),
    every(
        3,
        [
            (["--N", "10"], 0),
            (["--N", "500", "--max-digits", "9", "--max-noise", "9"], 1),  # e^-500 is lost in the stored a
            (["--construction", "uniform"], 0),
            (["--as-printed", "--max-digits", "5", "--max-noise", "5"], 1),
            (["--N", "10", "--max-digits", "1000", "--max-noise", "1498"], 1),
            (["--construction", "uniform", "--precision", "bfloat16", "--length", "12"], 3),
            (["--method", "exhaustive", "--max-digits", "3", "--max-noise", "3"], 0),
            (["--input", "0 1 1 2 ="], 0),
            (["--N", "3", "--input", "1222="], 1),
        ],
    ),
)
def test_command(argv, code, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["count01", *argv, "--json"]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and isinstance(json.loads(out), dict)
    assert main(["count01", *argv]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3 and max(map(len, lines)) <= 60


@pytest.mark.parametrize(
    "argv",
    [
        ["--N", "0"],
        ["--N", "501"],
        ["--max-digits", "-1"],
        ["--input", "0 1 x"],
        ["--input", "= ="],
        ["--weights", "none.pt"],
        ["--weights", "none.pt", "--N", "4"],
        ["--construction", "uniform", "--no-skip"],
        ["--construction", "uniform", "--N", "3"],
        ["--N", "300", "--precision", "float16"],
        ["--eps", "nan"],
        ["--strings", "3"],
        ["--method", "exhaustive"],
        ["--length", str(1 << 60)],
        ["--dtype", "float16", "--precision", "float32"],
        ["--save", "/nonexistent/folder/x", "--input", "="],
        ["--save", "/dev/null/x"],
        ["--save", "a" * 300],
        ["--save", ""],
        ["--weights", ""],
        ["--weights", "."],
        ["--weights", "two\nlines"],
        ["--construction", "uniform", "--N", "0"],
        ["--method", "exhaustive", "--strings", str(10**17)],
        ["--table", "--input", "="],
        ["--table", "--weights", "none.pt"],
        ["--table", "--save", "x"],
        ["--input", "=", "--method", "exhaustive"],
        ["--input", "=", "--max-digits", "3"],
    ],
)
def test_bad_input_is_one_line(argv, capsys):
    assert main(["count01", *argv]) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and seen.err.count("\n") == 1 and seen.err.startswith(("verify count01: ", "impossible ("))
