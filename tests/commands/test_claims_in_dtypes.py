"""Weights that a claim says are right in real arithmetic are proved in a dtype, too, or the claim says why not."""

import re
from dataclasses import replace

import pytest
from command import as_json, run
from models.selection import first
from test_claim_sizes import groups, shows, typed

from verify.arithmetic.formats import format_named
from verify.claims import CLAIMS, Ending, Kind
from verify.claims.running import commands
from verify.claims.running import run as run_command
from verify.frame.claim import Claim, dtype_of

WEIGHTS = [claim for claim in CLAIMS if claim.has_weights]


def is_in_a_dtype(claim):
    """Whether a claim names commands that can be typed, in formats that there are; or a reason, and no command."""
    if claim.exact:
        return not claim.in_dtype and len(claim.exact.split()) > 5
    named = [format_named(dtype_of(command)).p > 1 for command in claim.in_dtype]
    return bool(named) and all(typed(command).run for command in claim.in_dtype)


@pytest.mark.parametrize("claim", WEIGHTS, ids=lambda claim: claim.id)
def test_every_construction_is_decided_in_a_dtype(claim):
    assert is_in_a_dtype(claim)
    assert {job.command for job in commands([claim], deep=True)} >= set(claim.in_dtype)


def test_what_has_weights_is_what_has_a_builder():
    """Laws, samples, arguments and theorems have none that a dtype could round."""
    without = {claim.id for claim in CLAIMS if claim.kind is Kind.BUILT and not claim.has_weights}
    assert without == {"W-22", "H-2", "H-3", "H-5"}
    assert [claim.id for claim in WEIGHTS if claim.exact] == ["H-1"]
    assert not any(claim.in_dtype for claim in CLAIMS if not claim.has_weights)


def test_a_new_construction_is_asked_for_a_dtype():
    """It gets a command of its own in float32, and none lets it pass where it has a reason of no words."""
    new = Claim("X", "s", "s", "constructions.parity:sawtooth", "-", "-", "verify parity --T 3 --L 2")
    assert new.in_dtype == ("verify parity --T 3 --L 2 --precision float32",) and is_in_a_dtype(new)
    assert not is_in_a_dtype(replace(new, exact="no"))
    assert not is_in_a_dtype(replace(new, kind=Kind.IMPOSSIBLE))
    with pytest.raises(SystemExit):
        is_in_a_dtype(replace(new, command="verify heads --values=-1:1:0:-1/2:0"))


# Sizes that a command in a dtype has under another name; a run of every input, as torch computes, is of fewer.
ELSEWHERE = {"H-4": "--max-digits 60 --max-noise 60", "H-6": "--max-digits 60 --max-noise 60",
             "C-R14": "--length 1000 --method exhaustive"}  # fmt: skip


def sizes_in_dtype(claim):
    """The groups of sizes of a claim's sentence that its commands in a dtype have."""
    lines = [typed(command) for command in claim.in_dtype]
    return [sizes for sizes in groups(claim) if any(shows(args, sizes) for args in lines)]


@pytest.mark.parametrize("claim", [c for c in WEIGHTS if c.checked_at and not c.exact], ids=lambda claim: claim.id)
def test_at_a_size_of_the_sentence(claim):
    assert sizes_in_dtype(claim) or ELSEWHERE[claim.id] in claim.in_dtype[-1]


@pytest.mark.parametrize("claim", first(1, (c for c in WEIGHTS if not c.exact)), ids=lambda claim: claim.id)
def test_the_commands_in_a_dtype_end_as_promised(claim):
    """Of each claim the last one, all of them in `verify claims --run --deep`."""
    done = run_command(claim, claim.in_dtype[-1])
    assert done.is_as_promised, done


@pytest.mark.deep
def test_a_dtype_that_is_too_coarse_is_found():
    claim = next(claim for claim in CLAIMS if claim.id == "E-4")
    (command,) = claim.in_dtype
    done = run_command(claim, re.sub("float64", "float32", command))
    assert done.ending == Ending("UNKNOWN", 3) and not done.is_as_promised


def test_a_claim_in_full_has_its_commands_in_a_dtype(capsys):
    _, out, _ = run(capsys, "claims", "A-4.2", "H-1", "W-12")
    assert "and in a dtype:\nverify histogram --model dot --T 32 --L 10 --precision float32" in out
    assert "not in a dtype: which values" in out and out.count("and in a dtype:") == 1  # W-12's stand among the others
    _, (found,) = as_json(capsys, "claims", "A-4.2")
    assert found["in_dtype"] == ["verify histogram --model dot --T 32 --L 10 --precision float32"]
