"""One page per claim of the registry: statement, source, weights, bound, verdict now, departures."""

import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import drawing
import terminal
from formulas import bound_section, description, markdown, places, role

from verify.claims import Claim, Ending
from verify.claims.running import NOT_RUN, last_verdict

# The claim's own command at sizes that can be read. Where none is named, T = 4 and L = 3 replace the command's, unless
# it asks for a d, which makes sense at its own sizes only.
SMALL = {
    "A-pad": "verify histogram --model dot --T 4 --L 3 --d 5 --p 2",
    "A-4.4": "verify histogram --model dot --construction coherent --T 6 --L 3 --d 6",
    "W-2": "verify histogram --model lin --T 6 --L 3 --d 5",
    "W-3": "verify histogram --model bos+sftm --T 4 --L 3 --d 3",
    "W-4": "verify histogram --model dot --T 6 --L 3 --d 5",
    "W-8": "verify histogram --model bos+sftm --T 3 --L 2 --d 2",
    "D-1": "verify count01 --N 5",
    "E-5": "verify count01 --N 5 --labels thesis",
    "B-2.1": "verify contextual --keys convex --length 8 --regions 2",
    "B-2.2": "verify contextual --length 8 --regions 2 --dtype float64",
    "B-2.1+2.2": "verify contextual --length 8 --regions 2",
    "E-3.5": "verify language '(0|1)*1' --length 2",
}
RECORDED = Path(__file__).parent / "recorded.json"
SAVES = ("histogram", "count01", "circuit", "language", "contextual")
BUILDS_NOTHING = ("--impossible", "--figure5")


def small_command(claim: Claim) -> str:
    """The command that is run for the page."""
    if claim.id in SMALL:
        return SMALL[claim.id]
    if "--d " in claim.command or "--kernel " in claim.command or claim.id == "B-3.4":
        return claim.command
    return re.sub(r"--L \d+", "--L 3", re.sub(r"--T \d+", "--T 4", claim.command))


class Run(NamedTuple):
    """What a command printed on both streams, its exit code, and the weights that it saved, as drawn."""

    command: str
    output: str
    code: int
    weights: str


@cache
def recorded() -> dict[str, Run]:
    """The runs of commands that take too long for a build; tests/tools/write_recorded.py writes them."""
    return {claim: Run(**run) for claim, run in json.loads(RECORDED.read_text()).items()}


def page(claim: Claim, errata: dict[str, list[str]]) -> tuple[str, str]:
    """The page in markdown, and its verdict for the index.

    Raises: UnexpectedEnd where the command does not end as the claim's kind promises, or another one was recorded.
    """
    if claim.why_not:
        parts = [*stated(claim), *section("Verdict", f"Not run when this page was built: {claim.why_not}.")]
        return "\n\n".join(parts) + "\n", NOT_RUN.verdict
    run = recorded().get(claim.id) or run_small(claim)
    check_ending(claim, run)
    parts = [
        *stated(claim),
        *section("Verdict", verdict(claim, run)),
        *section("Weights", builders(claim), run.weights),
        *section("Bound", *(bound_section(place) for place in places(claim.bound))),
        *section("Departures and errata", departures(claim, errata)),
        *section("Verifier", ", ".join(role(place) for place in places(claim.verifier))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n", claim.promise.verdict


def shown_command(claim: Claim) -> str:
    """The small command, with a place for its weights where it builds some."""
    command = small_command(claim)
    saves = command.split()[1] in SAVES and not any(option in command for option in BUILDS_NOTHING)
    return command + " --save proof" * saves


def run_small(claim: Claim) -> Run:
    command = shown_command(claim)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in claim.reads:
            (Path(folder) / name).write_text(text)
        output, code = terminal.run(command, folder)
        return Run(command, output, code, saved_weights(folder))


def stated(claim: Claim) -> list[str]:
    """What the registry says of a claim."""
    return [
        f"# {claim.id}",
        markdown(claim.sentence) + ".",
        f"**Source:** {markdown(claim.source)}",
        f"**Kind:** {claim.kind}. Its commands end {claim.promise.verdict}, with exit code {claim.promise.exit_code}:",
        "```console\n" + "".join(f"$ {line}\n" for line in (*claim.set_up, claim.command, *claim.deep)) + "```",
    ]


def check_ending(claim: Claim, run: Run) -> None:
    if run.command != shown_command(claim):
        raise terminal.UnexpectedEnd(f"{claim.id}: recorded is {run.command!r}; see tests/tools/write_recorded.py")
    ended = Ending(last_verdict(run.output), run.code)
    if ended != claim.promise:
        promise = f"{claim.id} promises {claim.promise}"
        raise terminal.UnexpectedEnd(f"{promise}; {run.command!r} ended {ended}:\n{run.output}")


def section(title: str, *parts: str) -> list[str]:
    shown = [part for part in parts if part]
    return [f"## {title}", *shown] if shown else []


def verdict(claim: Claim, run: Run) -> str:
    small = "" if run.command.startswith(claim.command) else " at a size that can be read"
    when = "for this release, as it takes long" if claim.id in recorded() else "when this page was built"
    return f"Run{small} {when}; exit code {run.code}.\n\n```console\n$ {run.command}\n{run.output.rstrip()}\n```"


def builders(claim: Claim) -> str:
    return "\n".join(f"- {role(place)}: {description(place)[0]}" for place in places(claim.builder))


def saved_weights(folder: str) -> str:
    """The matrices that `--save proof` left in a folder or a file; a command that builds none has none."""
    names = ("proof/weights.safetensors", "proof.safetensors", "proof")
    saved = [path for name in names if (path := Path(folder) / name).is_file()]
    if not saved:
        return ""
    said = "The stored numbers, four digits shown. A dot is an exact 0; rows of zeros are left out of tall matrices."
    return f"{said}\n\n{drawing.drawings(saved[0])}"


def departures(claim: Claim, errata: dict[str, list[str]]) -> str:
    """What the builders say about where they depart, and the errata that name this claim."""
    said = [f"- {role(place)}: {text}" for place in places(claim.builder) if (text := description(place)[1])]
    said += [f"- [{title}](../errata.md#{anchor})" for anchor, title in errata.get(claim.id, [])]
    return "\n".join(said)
