"""A claim says no more than its commands show: its sizes are theirs, and it says so where a proof on paper goes on."""

import re
import shlex
from argparse import Namespace
from dataclasses import replace
from functools import cache

import pytest
from models.selection import first

from tests.some import some
from verify.claims import CLAIMS, Ending, Kind
from verify.claims.running import commands
from verify.claims.running import run as run_command
from verify.commands.cli import build_parser, in_new_words
from verify.commands.parsing import parsed
from verify.frame.claim import Claim

# What the commands decide as a whole, so that nothing is left to paper: weights at listed sizes, or a proof for all
# counts. What is impossible has its argument in the command, and a theorem is for all sizes.
WHOLE = {"A-C.3.2", "W-8", "W-20", "A-D", "E-4", "W-E4.6", "W-E4.9", "B-2.1+2.2", "W-10", "D-2", "C-R3",
         "C-R4"}  # fmt: skip
OPTIONS = {  # a letter of a sentence, and the options that it may stand for
    "B": ("base",), "C": ("max_count",), "K": ("types", "K"), "L": ("L",), "M": ("vocabulary",),
    "N": ("length", "built_for", "N"), "P": ("positions", "P"), "R": ("regions",), "T": ("T",),
    "construction": ("construction",), "d": ("d",), "file": ("file", "task_file"), "law": ("law",), "m": ("modulus",),
    "n": ("digits",), "p": ("p",), "pe": ("pe",), "s": ("d",), "best": ("best",), "lookahead": ("lookahead",),
}  # fmt: skip
# What the sentence of a whole claim says of its sizes, and those sizes, each group of one command. The rest names none.
STATED = {
    "A-C.3.2": ("T=32, L=10 with d = 6", "T = 32, L = 10, d = 6"),
    "W-8": (
        "T = 3 for 2 <= L <= 10 ... L = 2 for 3 <= T <= 8",
        "; ".join([*(f"T = 3, L = {L}, d = 2" for L in range(2, 11)), *(f"T = {T}, L = 2" for T in range(3, 9))]),
    ),
    "W-20": (
        "T = 7, L = 50 with d = 4 ... T = 5 and L = 10, 30, 50 with d = 3",
        "T = 7, L = 50, d = 4; " + "; ".join(f"T = 5, L = {L}, d = 3" for L in (10, 30, 50)),
    ),
    "E-4": ("five digits with k = 5", "n = 5, lookahead = 5"),
    "W-E4.6": ("P = 113 and K = 1..6", "best = 4; best = 6"),
    "W-E4.9": ("P = 2 and 3", "P = 2; P = 3"),
    "B-2.1+2.2": (
        "N = 512, R = 4 ... N = 4096, R = 32 ... N = 100000, R = 32",
        "N = 512, R = 4; N = 4096, R = 32; N = 100000, R = 32",
    ),
    "C-R3": ("m = 3..12", "; ".join(f"m = {m}" for m in range(3, 13))),
    "C-R4": ("modulo 110", "m = 110"),
}


@cache
def parser_of(name):
    return build_parser([name])


@cache
def typed(command):
    """The options of a command line, which is in today's words."""
    program, *arguments = shlex.split(command)
    assert program == "verify" and not in_new_words(arguments).told, command
    return parsed(parser_of(arguments[0]), arguments)


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


def as_stated(claim: Claim) -> bool:
    """Whether a whole claim's sentence has the sizes of STATED, and for each group of them there is a command."""
    words, sizes = STATED[claim.id]
    pattern = "(?!\\d).*".join(re.escape(part) for part in words.split(" ... ")) + r"(?!\d)"
    return re.search(pattern, claim.statement) is not None and not unshown(replace(claim, checked_at=sizes))


@pytest.mark.parametrize("name", STATED)
def test_a_changed_size_of_a_whole_claim_is_found(name):
    """Planted: each number of the sentence in turn; and of each group of sizes all commands are left out."""
    claim = next(claim for claim in CLAIMS if claim.id == name)
    assert name in WHOLE and as_stated(claim)
    for part in STATED[name][0].split(" ... "):
        for place in some(re.finditer(r"\d+", part)):
            wrong = f"{part[: place.end()]}7{part[place.end() :]}"
            assert not as_stated(replace(claim, statement=claim.statement.replace(part, wrong))), wrong
    for sizes in some(groups(replace(claim, checked_at=STATED[name][1]))):
        others = [line for line in (claim.command, *claim.deep) if not shows(typed(line), sizes)]
        assert not as_stated(replace(claim, command="verify parity --T 3 --L 2", deep=tuple(others), refutes=())), sizes


PLANTED = {  # of each kind a wrong size, or the command of another sentence, and how it then ends
    Kind.IMPOSSIBLE: ("W-9", "--impossible W-9", "--construction uniform", Ending("PROVED", 0)),
    Kind.SEARCHED: ("W-8", "--d 2", "--d 1", Ending("no verdict", 2)),
    Kind.SAMPLED: ("A-D", "--model dot", "--model bos --as-printed", Ending("REFUTED", 1)),
    Kind.BUILT: ("E-4", "--lookahead 5", "--lookahead 4", Ending("REFUTED", 1)),
    Kind.THEOREM: ("K-W-10", "uniform_solves", "staircase_adds", Ending("PROVED", 0)),
}


@pytest.mark.parametrize("kind", first(1, PLANTED))
def test_a_command_of_a_wrong_size_is_not_as_promised(kind):
    """Of a theorem the ending is the promised one, and the claim's id is not printed."""
    name, right, wrong, ends = PLANTED[kind]
    claim = next(claim for claim in CLAIMS if claim.id == name)
    assert claim.kind is kind and right in claim.command
    if claim.why_not:
        pytest.skip(claim.why_not)
    done = run_command(claim, claim.command.replace(right, wrong))
    assert done.ending == ends and not done.is_as_promised, done


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
