"""`verify claims`: every claim says what its command shows, and what is impossible is said alike by all commands."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command import as_json, run
from models.selection import first

from verify.claims import CLAIMS, Ending, Kind, running
from verify.claims.running import commands, last_verdict
from verify.claims.running import run as run_command
from verify.commands.claims import run_claims
from verify.commands.workers import Workers
from verify.frame.claim import PROMISES, Claim
from verify.tasks.count01 import impossible as count01_impossible
from verify.tasks.histogram import impossible as histogram_impossible

KINDS = {
    Kind.SAMPLED: {"A-D"},
    Kind.IMPOSSIBLE: {"A-neg", "W-5", "W-6", "W-7", "W-9", "W-11", "B-2.3", "B-2.4", "B-2.5"},
    Kind.SEARCHED: {"A-C.3.2", "W-8"},
}


def by_id(name):
    return next(claim for claim in CLAIMS if claim.id == name)


def test_each_claim_has_the_kind_that_its_command_shows():
    for kind, ids in KINDS.items():
        assert {claim.id for claim in CLAIMS if claim.kind is kind} >= ids
    for claim in CLAIMS:
        assert (claim.kind is Kind.THEOREM) == ("verify kernel" in claim.command) == (claim.needs == "coqc")
        for command in (claim.command, *claim.deep):
            assert (f"--impossible {claim.id}" in command) == (claim.kind is Kind.IMPOSSIBLE)
            assert ("--method sampled" in command) == (claim.kind is Kind.SAMPLED)


def test_a_promise_is_a_verdict_with_its_own_exit_code():
    assert PROMISES[Kind.BUILT] == PROMISES[Kind.SEARCHED] == Ending("PROVED", 0)
    assert PROMISES[Kind.IMPOSSIBLE] == Ending("IMPOSSIBLE", 0)
    assert PROMISES[Kind.SAMPLED] == Ending("UNKNOWN", 3)


def test_no_size_is_claimed_that_no_weights_were_built_for():
    for name in ("B-2.2", "B-3.4"):
        assert "up to the N and R built for" in by_id(name).statement
    assert "(docs/count01.md)" not in by_id("W-9").source and "skip connection" in by_id("W-9").statement


def test_the_listed_sizes_of_a_search_are_its_deep_commands():
    sizes = {(T, L) for T, L in ((3, L) for L in range(2, 11))} | {(T, 2) for T in range(3, 9)}
    named = {tuple(int(c.split(f"--{x} ")[1].split()[0]) for x in "TL") for c in by_id("W-8").deep}
    assert named == sizes


@pytest.mark.parametrize("name", first(1, ["A-D", "E-3.4"]))
def test_commands_end_as_promised(name):
    """One of each kind, in a process and a folder of its own; all of them in the deep part."""
    claim = by_id(name)
    assert run_command(claim, claim.command).is_as_promised


@pytest.mark.deep
def test_all_commands_end_as_promised(capsys):
    code, out, _ = run(capsys, "claims", "--run", "--deep")
    skipped = sum(bool(each.claim.why_not) for each in commands(CLAIMS, deep=True))
    assert code == 0 and out.splitlines()[-1].startswith(f"{len(commands(CLAIMS, deep=True)) - skipped} of ")


@pytest.mark.parametrize(
    ("command", "ended"),
    first(
        1,
        [
            ("verify histogram --model lin --T 4 --L 3 --p 1", Ending("no verdict", 2)),
            ("verify histogram --model bos --T 4 --L 3 --as-printed", Ending("REFUTED", 1)),
        ],
    ),
)
def test_a_broken_promise_is_told(capsys, monkeypatch, command, ended):
    claim = replace(by_id("A-4.1"), command=command)
    done = run_command(claim, command)
    assert done.ending == ended
    monkeypatch.setattr(running, "run", lambda *_: done)
    assert run_claims([claim], Workers(), deep=False, form=None) == 1
    out = capsys.readouterr().out
    assert "NOT AS PROMISED: A-4.1" in out and "0 of 1" in out
    assert run_claims([claim], Workers(), deep=False, form="json") == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["promised"] == "PROVED, exit code 0" and row["ended"].startswith(ended.verdict)


def test_a_command_that_does_not_say_its_claim_is_told(capsys, monkeypatch):
    claim = by_id("A-4.1")
    done = running.CommandRun(claim, claim.command, claim.promise, 0.1, "PROVED", names_its_claim=False)
    monkeypatch.setattr(running, "run", lambda *_: done)
    assert run_claims([claim], Workers(), deep=False, form=None) == 1
    assert "it does not say A-4.1" in capsys.readouterr().out
    assert run_claims([claim], Workers(), deep=False, form="json") == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["ended"] == "PROVED, exit code 0, without saying A-4.1"


def test_the_wrong_half_of_a_claim_ends_refuted():
    claim = by_id("E-4")
    (wrong,) = claim.refutes
    assert claim.promise_of(wrong) == Ending("REFUTED", 1) and claim.promise_of(claim.command) == claim.promise
    assert [job.command for job in commands([claim], deep=False)] == [claim.command, wrong]


def test_what_needs_a_missing_program_is_not_run_and_says_so(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert run_claims([by_id("K-W-10")], Workers(), deep=True, form=None) == 0
    out = capsys.readouterr().out
    assert "[1/1] not run: K-W-10, coqc is not installed: verify kernel" in out
    assert out.splitlines()[-1] == "0 of 1 commands end as their claims promise, 1 were not run"
    assert run_claims([by_id("K-W-10")], Workers(), deep=False, form="json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["promised"] == "PROVED, exit code 0" and row["ended"] == "not run: coqc is not installed"


def test_a_verdict_is_a_word_at_the_start_of_a_line():
    assert last_verdict("UNKNOWN\nPROVED  n0 <= 3\nmargin PROVED REFUTED") == "PROVED"
    assert last_verdict("nothing is PROVED") == "no verdict"


def test_list_one_claim_and_formats(capsys):
    code, out, _ = run(capsys, "claims", "E-3.4")
    assert code == 0 and "verify circuit xor.bench" in out.splitlines() and "ends      PROVED, exit code 0" in out
    assert any(line.startswith("printf 'INPUT(x)\\nINPUT(y)") for line in out.splitlines())
    code, result = as_json(capsys, "claims")
    assert code == 0 and [claim["id"] for claim in result] == [claim.id for claim in CLAIMS]
    assert result[0]["kind"] == "built and proved" and result[0]["promise"] == {"verdict": "PROVED", "exit_code": 0}
    for form, mark in (("markdown", "| W-5 |"), ("csv", "W-5,"), ("latex", "W-5 &"), ("json", '"W-5"')):
        code, out, _ = run(capsys, "claims", "W-5", "--format", form)
        assert code == 0 and mark in out and "IMPOSSIBLE" in out


@pytest.mark.parametrize("argv", [("W-99",), ("--deep",), ("--format", "xml")])
def test_bad_usage(capsys, argv):
    code, out, err = run(capsys, "claims", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1


def test_what_files_hold_is_typed_by_printf():
    claim = Claim("X", "", "", "-", "-", "-", "verify circuit a", reads=(("a", "50%\\'\n"),))
    assert claim.set_up == ("printf '50%%\\\\'\"'\"'\\n' > a",)


REQUESTS = [
    (("histogram", "--model", "lin", "--T", "4", "--L", "3", "--p", "1"), "W-5"),
    (("histogram", "--model", "dot+sftm", "--T", "4", "--L", "3", "--construction", "relation"), "W-5"),
    (("precision", "histogram", "--model", "lin", "--T", "4", "--L", "3", "--p", "1"), "W-5"),
    (("count01", "--construction", "uniform", "--no-skip"), "W-9"),
]


@pytest.mark.parametrize(("argv", "claim"), REQUESTS)
def test_asking_for_the_impossible(capsys, argv, claim):
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == "" and err.startswith(f"impossible ({claim}): ") and err.count("\n") == 1
    code, out, err = run(capsys, *argv, "--json")
    result = json.loads(out)
    assert code == 2 and err.count("\n") == 1
    assert result.pop("schema") == "weightproof/1"
    assert result == {"verdict": "IMPOSSIBLE", "claim": claim, "reason": err.strip().split(": ", 1)[1]}


@pytest.mark.parametrize(
    ("command", "claim"),
    first(
        1,
        [("histogram", "A-neg"), ("histogram", "W-5"), ("histogram", "W-6"), ("histogram", "W-7"), ("count01", "W-9")],
    ),
)
def test_the_argument_with_its_checks(capsys, command, claim):
    code, result = as_json(capsys, command, "--impossible", claim)
    assert code == 0 and result["holds"] is True and result["checks"] and result["argument"]
    assert (result["verdict"], result["claim"]) == ("IMPOSSIBLE", claim) and result["reason"]


def test_any_seed_will_do(capsys):
    for seed in ("99999999999999999999", str(2**63 - 1)):
        for argv in (("histogram", "--impossible", "W-7"), ("contextual", "--impossible", "B-2.4")):
            code, _, err = run(capsys, *argv, "--seed", seed)
            assert code in (0, 2) and err.count("\n") == (code == 2)


def test_no_other_option_goes_with_an_argument(capsys):
    for argv in (
        ("histogram", "--impossible", "W-5", "--T", "4"),
        ("count01", "--impossible", "W-9", "--N", "5"),
        ("contextual", "--impossible", "B-2.3", "--length", "5"),
        ("contextual", "--impossible", "B-2.4", "--length", "5000"),
        ("contextual", "--impossible", "B-2.4", "--regions", "5"),
    ):
        code, out, err = run(capsys, *argv)
        assert code == 2 and out == "" and err.count("\n") == 1


def test_a_check_that_fails_leaves_the_argument_open(capsys, monkeypatch):
    """Planted: a model that slips through, scores that a middle token wins, a head that is right everywhere."""
    monkeypatch.setattr(histogram_impossible, "_is_beaten_in_the_middle", lambda seed: seed % 7 != 3)
    code, result = as_json(capsys, "histogram", "--impossible", "W-7")
    assert code == 3 and result["verdict"] == "UNKNOWN" and result["holds"] is False
    monkeypatch.setattr(histogram_impossible, "relative_spread", lambda module: np.zeros((1, 1), dtype=int))
    assert not histogram_impossible.rank_of_readings().holds
    monkeypatch.setattr(count01_impossible, "_is_right_everywhere", lambda model, labels: model.E.shape[1] == 3)
    assert not count01_impossible.no_skip().holds


@pytest.mark.deep
def test_two_workers_keep_the_order_of_the_claims(capsys):
    ids = ("A-4.1", "A-4.2")
    rows = json.loads(run(capsys, "claims", "--run", *ids, "--workers", "2", "--json")[1])
    assert [row["id"] for row in rows] == list(ids) and all(row["ended"] == row["promised"] for row in rows)
    code, out, err = run(capsys, "claims", "A-4.1", "--workers", "2")
    assert (code, out) == (2, "") and "--run" in err and err.count("\n") == 1
