"""Judges the 500 crafted networks in real arithmetic and three formats, and prints what is decided, wrong and open.

    python -m tests.tools.judge_crafted OUT.jsonl [--workers 16] [--seconds 480] [--looks 2000]

Writes a line of JSON for each network in each arithmetic as soon as it is judged; the same command goes on where OUT
ends. What is wrong is found by oracles that share nothing with the proofs: in real arithmetic the first wrong length of
`models.crafted`, in a format torch's run, the run that keeps every result in closed form, and the checker. The order is
drawn once, so that what is done after some seconds is a fair sample.

At 2,000 looks a network takes .8 CPU s on average and at most 9 (120 of the 2,000, judging among it, on one core of a
server of 2023), so that all take some 1,600 CPU s: two to four minutes on 16 cores. 6,000 looks decided none more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each worker
sys.path.insert(0, str(Path(__file__).parents[1]))  # models and oracles, as pytest finds them

import torch
from models import judged_crafted
from models.crafted import FAMILIES, crafted

from constructions.errors import BadInput
from verify.checker.reading import FAILS

ARITHMETICS = ("real", "float64", "float32", "bfloat16")
OPEN, REFUSED = "UNKNOWN", "overflows"  # a weight, where the format is read


def judged(job):
    """What is said of a network in an arithmetic after so many looks, and all that gainsays it."""
    seed, name, looks = job
    began, case = time.process_time(), crafted(seed)
    row = {"seed": seed, "arithmetic": name, "family": case.family}
    try:
        found = judged_crafted.decided(case, name, looks)
    except BadInput as error:
        is_due = "overflows" in str(error) and case.family == "subnormal"
        return {**row, "verdict": REFUSED, "faults": [] if is_due else [str(error)]}
    decided = time.process_time()
    wrong = case.oracle() if name == "real" else None
    told = (
        judged_crafted.faults_in_real(case, found, wrong)
        if name == "real"
        else judged_crafted.faults(case, name, found)
    )
    faults = [why for is_fault, why in told if is_fault]
    code, not_checked = judged_crafted.said_by_checker(case, found)
    faults += ["refused by the checker"] if code == FAILS else []
    shown = found.counterexample or {}
    return {
        **row, "verdict": found.verdict.value, "faults": faults, "length": shown.get("length"), "known": wrong,
        "is_first": shown.get("is_first"), "right_to": found.extra.get("right_to"),
        "evaluation": shown.get("evaluation"), "reason": found.reason,
        "holds": code == 0, "not_checked": not_checked,
        "cpu_s": round(decided - began, 2), "judging_cpu_s": round(time.process_time() - decided, 2),
    }  # fmt: skip


def rows_of(path):
    """The lines that are whole, without what a killed run left of the last one."""
    lines = path.read_text().splitlines() if path.exists() else []
    whole = [line for line in lines if line.endswith("}")]
    if lines:
        path.write_text("".join(f"{line}\n" for line in whole))
    return [json.loads(line) for line in whole]


def judge(jobs, path, workers, seconds):
    """Appends a line for each job that is done before the seconds are over; whether all are."""
    ends = time.monotonic() + seconds
    with multiprocessing.get_context("spawn").Pool(workers, torch.set_num_threads, (1,)) as pool, path.open("a") as out:
        found = pool.imap_unordered(judged, jobs)
        for _ in jobs:
            try:
                out.write(json.dumps(found.next(max(0.0, ends - time.monotonic()))) + "\n")
            except multiprocessing.TimeoutError:
                return False
            out.flush()
    return True


def table(rows):
    """For each family and arithmetic how many are decided of those that are read, and what is wrong or open."""
    names = [name for name in ARITHMETICS if any(row["arithmetic"] == name for row in rows)]
    yield f"| family | {' | '.join(names)} |"
    yield "|---|" + "---|" * len(names)
    for family in (*FAMILIES, "all"):
        own = [row for row in rows if family in (row["family"], "all")]
        yield f"| {family} | {' | '.join(_cell([row for row in own if row['arithmetic'] == name]) for name in names)} |"


def _cell(rows):
    """As in "20 of 26, 1 WRONG"."""
    read = [row for row in rows if row["verdict"] != REFUSED]
    wrong = sum(bool(row["faults"]) for row in rows)
    said = f"{sum(row['verdict'] != OPEN for row in read)} of {len(read)}"
    return f"{said}, {wrong} WRONG" if wrong else said


def reasons(rows):
    """Why networks are open, numbers left out, the most frequent first."""
    said = Counter(re.sub(r"[\d.]+(e[+-]?\d+)?", "N", row["reason"]) for row in rows if row["verdict"] == OPEN)
    yield from (f"{number:4} {why}" for why, number in said.most_common())


def unchecked(rows):
    """How many certificates hold by `verify check` in each arithmetic, and why the others do not, by family."""
    decided = [row for row in rows if row["verdict"] not in (OPEN, REFUSED)]
    for name in ARITHMETICS:
        own = [row for row in decided if row["arithmetic"] == name]
        if own:
            yield f"{name}: verify check holds for {sum(row.get('holds', False) for row in own)} of {len(own)}"
    said = Counter(
        (row["family"], row["arithmetic"], re.sub(r"[\d.]+(e[+-]?\d+)?", "N", row.get("not_checked") or "not asked"))
        for row in decided
        if not row.get("holds")
    )
    yield from (f"{number:4} {family}, {name}: {why}" for (family, name, why), number in said.most_common())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=480.0, help="after which it stops; default 480")
    parser.add_argument("--looks", type=int, default=judged_crafted.LOOKS, help="at the clock, for each; default 2000")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th network")
    parser.add_argument("--arithmetics", nargs="+", choices=ARITHMETICS, default=ARITHMETICS)
    args = parser.parse_args()
    done = {(row["seed"], row["arithmetic"]) for row in rows_of(args.out)}
    seeds = range(0, judged_crafted.MANY, args.every)
    jobs = [(seed, name, args.looks) for seed, name in product(seeds, args.arithmetics) if (seed, name) not in done]
    random.Random(37).shuffle(jobs)
    is_whole = judge(jobs, args.out, args.workers, args.seconds)
    rows = rows_of(args.out)
    print(*table(rows), "", *reasons(rows), "", *unchecked(rows), "", sep="\n")
    for row in rows:
        if row["faults"]:
            print("WRONG", json.dumps(row))
    seconds = sum(row.get("cpu_s", 0) + row.get("judging_cpu_s", 0) for row in rows)
    print(f"{len(rows)} judged in {seconds:.0f} CPU s{'' if is_whole else '; the same command goes on'}")
    raise SystemExit(any(row["faults"] for row in rows))


if __name__ == "__main__":
    main()
