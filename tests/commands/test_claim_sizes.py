"""A claim says no more than its commands show: its sizes are theirs, and it says so where a proof on paper goes on."""

import re
import shlex
from argparse import Namespace
from dataclasses import replace

import pytest
from models.selection import first

from tests.some import some
from verify.claims import CLAIMS, Kind
from verify.claims.claim import Claim
from verify.claims.running import commands
from verify.cli import build_parser, in_new_words
from verify.commands.parsing import parsed

# What the commands decide as a whole, so that nothing is left to paper: weights at listed sizes, or a proof for all
# counts. What is impossible has its argument in the command, and a theorem is for all sizes.
WHOLE = {"A-C.3.2", "W-8", "W-20", "A-D", "E-4", "W-E4.6", "W-E4.9", "B-2.1+2.2", "W-10", "D-2", "C-R3",
         "C-R4"}  # fmt: skip
OPTIONS = {  # a letter of a sentence, and the options that it may stand for
    "B": ("base",), "C": ("max_count",), "K": ("types", "K"), "L": ("L",), "M": ("vocabulary",),
    "N": ("length", "built_for", "N"), "P": ("positions", "P"), "R": ("regions",), "T": ("T",),
    "construction": ("construction",), "d": ("d",), "file": ("file", "task_file"), "law": ("law",), "m": ("modulus",),
    "n": ("digits",), "p": ("p",), "pe": ("pe",), "s": ("d",),
}  # fmt: skip


def typed(command):
    """The options of a command line, which is in today's words."""
    program, *arguments = shlex.split(command)
    assert program == "verify" and not in_new_words(arguments).told, command
    return parsed(build_parser(arguments[:1]), arguments)


def groups(claim):
    """The sizes of a claim's sentence: a dictionary for each group."""
    return [dict(pair.split(" = ") for pair in group.split(", ")) for group in claim.checked_at.split("; ")]


def shows(args: Namespace, sizes: dict[str, str]) -> bool:
    return all(any(str(getattr(args, name, None)) == value for name in OPTIONS[letter])
               for letter, value in sizes.items())  # fmt: skip


def unshown(claim: Claim) -> list[dict[str, str]]:
    """The groups of sizes that no command of the claim has."""
    lines = [typed(job.command) for job in commands([claim], deep=True)]
    return [sizes for sizes in groups(claim) if not any(shows(args, sizes) for args in lines)]


def test_every_claim_says_how_far_its_commands_go():
    for claim in CLAIMS:
        is_general = claim.kind not in (Kind.IMPOSSIBLE, Kind.THEOREM) and claim.id not in WHOLE
        assert bool(claim.checked_at) is is_general, claim.id
        assert claim.sentence.endswith(f"proved on paper, checked at {claim.checked_at}") is is_general
        assert not re.search(r"proved on paper|checked at", claim.statement)


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.checked_at], ids=lambda claim: claim.id)
def test_the_sizes_of_the_sentence_are_those_of_the_commands(claim):
    assert not unshown(claim)


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if not claim.checked_at], ids=lambda claim: claim.id)
def test_the_other_commands_can_be_typed(claim):
    for job in commands([claim], deep=True):
        assert typed(job.command).run


@pytest.mark.parametrize("name", ["A-4.1", "W-E4.4", "B-2.1", "D-1", "C-R13", "C-T7", "H-2", "B-3.5", "B-n3"])
def test_a_changed_size_is_found(name):
    claim = next(claim for claim in CLAIMS if claim.id == name)
    for old in some(re.findall(r"(?<= = )[\w:.-]+", claim.checked_at)):
        planted = replace(claim, checked_at=re.sub(rf"(?<= = ){re.escape(old)}\b", f"{old}7", claim.checked_at))
        assert unshown(planted), planted.checked_at
    assert unshown(replace(claim, command="verify parity --T 3 --L 2", deep=(), refutes=()))


def test_a_step_is_shown_in_a_claim_of_the_registry():
    known = {claim.id: claim for claim in CLAIMS}
    steps = {claim.id: claim.shown_in for claim in CLAIMS if claim.shown_in}
    assert all(known[whole].shown_in == "" for whole in steps.values())
    assert steps == {
        "A-B.4": "A-4.2",
        "A-pad": "A-4.2",
        "W-20": "A-C.3.2",
        "B-2.1": "B-2.1+2.2",
        "B-2.2": "B-2.1+2.2",
    }


COUNTERS = [claim for claim in CLAIMS if re.match(r"C-[RT]\d", claim.id) and claim.kind is Kind.BUILT]


@pytest.mark.parametrize("claim", first(6, COUNTERS), ids=lambda claim: claim.id)
def test_the_weights_of_a_counter_are_of_its_claim(claim):
    """Without a proof: what a command would decide says which claim it comes from."""
    from verify.counting.asked import judge_of
    from verify.tasks.inductive.command import parsed as asked_of

    asked = asked_of(typed(claim.command))
    assert judge_of(asked.model)(asked).problem.claim == claim.id
