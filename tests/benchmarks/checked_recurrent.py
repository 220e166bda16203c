"""Certificates of recurrent networks, checked again: python -m tests.benchmarks.checked_recurrent

The recurrent commands of `verify claims`, the trained files of tests/data, those of Table A1, and the trained files in
formats: the verdict, the CPU seconds of the proof and of `verify check`, and what the check says. --json FILE keeps the
rows, and goes on from those that are there; --only WORDS takes the commands that have these words.
"""

import argparse
import collections
import json
import shlex
import tempfile
from pathlib import Path

from tests.benchmarks.checked import NUMBER, ROOT, judged
from verify.claims import CLAIMS
from verify.tasks.inductive.document_c import RECURRENT
from verify.tasks.inductive.table import trained_files

DATA = ROOT / "tests/data"
FORMATS = ("float64", "float32", "bfloat16")


def commands():
    """Each command without `verify`."""
    for claim in CLAIMS:
        for command in (claim.command, *claim.deep):
            words = command.split()
            if (
                {*words} & {"inductive"}
                and {*words} & {*RECURRENT, "ssm", "decay", "gru"}
                and "--impossible" not in words
            ):
                yield command.removeprefix("verify ")
    trained = [
        f"inductive --task modular --modulus 10 --model {file.stem.split('_')[0]} --weights {file.relative_to(ROOT)}"
        for file in sorted((DATA / "recurrent").glob("*.safetensors"))
    ]
    yield from trained
    for file in sorted((DATA / "recurrent_selective").glob("*.safetensors")):
        kinds, most = (part[1:] for part in file.stem.split("_")[1:3])
        task = f"--task selective --types {kinds} --max-count {most}"
        yield f"inductive {task} --model {file.stem.split('_')[0]} --weights {file.relative_to(ROOT)}"
    for file in trained_files(str(DATA / "table_a1")):
        yield f"inductive --task {file.task} --model {file.model} --weights {Path(file.path).relative_to(ROOT)}"
    yield from (f"{command} --precision {name}" for command in trained for name in FORMATS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for command in commands():
        if command in rows or args.only not in command:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[command] = judged(shlex.split(command), Path(folder, "saved"))
        print(json.dumps({"command": command, **rows[command]}), flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))
    decided = [row for row in rows.values() if row["verdict"] in ("PROVED", "REFUTED")]
    held = sum(row["outcome"] == "HOLDS" for row in decided)
    print(f"{held} of {len(decided)} hold; {len(rows) - len(decided)} are UNKNOWN or refused")
    others = collections.Counter(
        f"{row['outcome']}: {NUMBER.sub('x', row['reason'])}" for row in decided if row["outcome"] != "HOLDS"
    )
    for why, n in others.most_common():
        print(n, why)


if __name__ == "__main__":
    main()
