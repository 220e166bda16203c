"""A section of docs/benchmarks.md: what one command for each built model costs as a whole, start to end.

python -m tests.benchmarks.startup [--write | --json FILE] [WORD ...] runs the jobs whose line has all of these words.
"""

import argparse
import compileall
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from verify.claims import CLAIMS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = "## Start to end"
ROOMS = "verify", "constructions", "bounds"
VARIANTS = ("--model", "--pe", "--construction", "--task", "--layers", "--dtype")  # what a builder is chosen by
SECONDS, MEGABYTES = 0.5, 100  # what a built main job is asked to take
BESIDE = (  # the commands that prove no built model
    "verify bounds --T 32 --L 10",
    "verify claims",
    "verify precision histogram --model dot --T 32 --L 10",
)
PROBE = """
import json, re, resource, sys
from verify.__main__ import start
code = start()
used = resource.getrusage(resource.RUSAGE_SELF)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
print(json.dumps([code, used.ru_utime + used.ru_stime, peak / 1024, "torch" in sys.modules]), file=sys.stderr)
"""


@dataclass(frozen=True)
class Cost:
    """What a command took: CPU seconds of the user and the system, the most memory that it held, and its exit code."""

    command: str
    seconds: float
    megabytes: float
    has_torch: bool
    code: int

    @property
    def is_within(self):
        return self.seconds <= SECONDS and self.megabytes <= MEGABYTES


def variant(command):
    """The subcommand and what it chooses a builder by."""
    words = shlex.split(command)[1:]
    chosen = {name: value for name, value in zip(words, words[1:], strict=False) if name in VARIANTS}
    return words[0], tuple(sorted(chosen.items()))


def jobs():
    """The first command of the claims for each variant, in real arithmetic, by proof; then those beside them."""
    found = {}
    for claim in CLAIMS:
        if not claim.needs and claim.kind != "impossible":
            for command in (claim.command, *claim.deep):
                command = re.sub(r" --(precision|accumulate) \S+", "", command)
                if "--method" not in command:
                    found.setdefault(variant(command), (command, claim.reads))
    yield from found.values()
    yield from ((command, ()) for command in BESIDE)


def cost(command, reads=()):
    """Runs a command in an empty folder and measures its process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in reads:
            (Path(folder) / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", PROBE, *shlex.split(command)[1:]],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
    code, seconds, megabytes, has_torch = json.loads(done.stderr.splitlines()[-1])
    return Cost(command, seconds, megabytes, has_torch, code)


def section(costs):
    """The section of the page: how many are within what is asked, and a line for each that is not."""
    beyond = [each for each in costs if not each.is_within]
    lines = ["| command | CPU s | MB | torch |", "|---|---|---|---|"]
    for each in sorted(beyond, key=lambda each: -each.seconds):
        said = "yes" if each.has_torch else "no"
        lines.append(f"| `{each.command}` | {each.seconds:.2f} | {each.megabytes:.0f} | {said} |")
    today, load = datetime.datetime.now(datetime.UTC).date(), os.getloadavg()[0]
    within, loading = len(costs) - len(beyond), sum(each.has_torch for each in costs)
    return f"""{HEAD}

Written by `python -m tests.benchmarks.startup --write` on {today}, load average {load:.1f}.
One command of the claims for each builder, and `bounds`, `claims` and `precision`: CPU seconds of the user and the
system, imports and building included, and the most memory held. Modules are bytecode already, as after an install.
{within} of {len(costs)} take at most {SECONDS} s and {MEGABYTES} MB, and torch is loaded by {loading}. The others:

{chr(10).join(lines)}
"""


def write(page, costs):
    """Puts the section at the page's end, or in the place of the last one."""
    before, _, after = page.read_text(encoding="utf-8").partition(f"{HEAD}\n")
    _, mark, rest = after.partition("\n## ")
    page.write_text(f"{before.rstrip()}\n\n{section(costs)}{mark}{rest}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the section of {PAGE.name}")
    parser.add_argument("--json", metavar="FILE", help="write the figures here, anew after each command")
    parser.add_argument("words", nargs="*")
    asked, costs = parser.parse_args(), []
    for room in ROOMS:
        compileall.compile_dir(ROOT / room, quiet=1)
    for command, reads in jobs():
        if all(word in command for word in asked.words):
            costs.append(cost(command, reads))
            line = "{seconds:7.2f} s {megabytes:5.0f} MB torch={has_torch:d} {code} {command}"
            print(line.format(**asdict(costs[-1])), flush=True)
            if asked.json:
                Path(asked.json).write_text(json.dumps([asdict(each) for each in costs]), encoding="utf-8")
    if asked.write:
        write(PAGE, costs)
