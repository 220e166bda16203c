"""How well each search keeps `--budget`: a table of CPU seconds, and of the longest time without a look at the clock.

python -m tests.benchmarks.budgets [--budget SECONDS] [NAME...] runs the jobs of these names (all of them by default),
one after the other. A second of the budget is here a CPU second of the search, so that other work on the machine does
not count. The models lie where a search would go on far beyond its budget: trained, moved at random, or very large.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
VERDICTS = {0: "PROVED", 1: "REFUTED", 2: "bad input", 3: "UNKNOWN"}
KILLED_AFTER = 20  # budgets
COLUMNS = "{:<34} {:>9} {:>7} {:>7} {:>7} {:>6}  {}"

# name: a command line after `verify`; the budget is put behind it
JOBS = {
    "line, nope": "inductive --task vanilla --weights {vanilla}",
    "line, nope in float32": "inductive --task vanilla --weights {vanilla} --precision float32",
    "line, rope": "inductive --task modular --modulus 10 --pe rope --weights {rope}",
    "line, built large": "inductive --task vanilla --bos --vocabulary 3000 --length 3000",
    "line, shifted": "inductive --task shifted --weights {shifted} --length 60",
    "line, moved": "inductive --task helper --weights {helper}",
    "selective, built": "inductive --task selective --bos --types 40 --max-count 40",
    "selective, moved": "inductive --task selective --bos --types 6 --max-count 6 --weights {selective}",
    "first token, large": "inductive --task first-heterogeneous --bos --length 4000",
    **{
        f"recurrent {path.stem}": f"inductive --task modular --model {path.stem.split('_')[0]} --weights {path}"
        for path in sorted((DATA / "recurrent").glob("*.safetensors"))
    },
    **{
        f"selective {path.stem}": f"inductive --task selective --types {path.stem.split('_')[1][1:]} "
        f"--max-count {path.stem.split('_')[2][1:]} --model {path.stem.split('_')[0]} --weights {path}"
        for path in sorted((DATA / "recurrent_selective").glob("*.safetensors"))
    },
    "recurrent in bfloat16": f"inductive --task modular --model gru --precision bfloat16 "
    f"--weights {DATA}/recurrent/gru_seed2_stop0.5.safetensors",
    "recurrent in float32": f"inductive --task modular --model lstm --precision float32 "
    f"--weights {DATA}/recurrent/lstm_seed6_stop0.25.safetensors",
    "recurrent large": "inductive --task modular --modulus 200 --model rnn",
    "recurrent far": f"inductive --task modular --model gru --length 1000000 "
    f"--weights {DATA}/recurrent/gru_seed20_stop0.5.safetensors",
    "recurrent by length": f"inductive --task modular --model rnn --length 100000 --by-length "
    f"--weights {DATA}/recurrent/rnn_seed3_stop0.5.safetensors",
    "language long": 'language "0*1" --length 100000',
    "language middling": 'language "0*1" --length 3000',
    "language of many states": 'language "(0|1)*1(0|1)(0|1)(0|1)(0|1)(0|1)(0|1)(0|1)" --length 40',
    "language majority": "language --majority --length 1000",
    "repair histogram": f"repair {DATA}/trained_lin_T16_L8_d32_p32.safetensors --model lin --L 8",
    "repair histogram, layers": f"repair {DATA}/trained_bos_T4_L3_d4_p8.safetensors --model bos --L 3 --layers all",
    "repair recurrent": f"repair {DATA}/recurrent/gru_seed2_stop0.5.safetensors --task recurrent --length 200",
    "repair count01": f"repair {DATA}/count01/a16_s0.safetensors --task count01 --max-digits 40 --max-noise 20",
    "repair modular": f"repair {DATA}/modular/p13_some_pairs.safetensors --task modular --layers all",
    "repair inductive": "repair {vanilla} --task inductive --length 40",
    "radius histogram": "radius {small_dot} --model dot --L 6",
    "radius histogram by tensor": "radius {small_dot} --model dot --L 6 --by-tensor",
    "radius histogram of too many": "radius {dot} --model dot --L 10",
    "radius count01": "radius {count01} --task count01 --max-digits 40 --max-noise 20",
    "radius modular": f"radius {DATA}/modular/p13.safetensors --task modular",
    "radius modular by tensor": f"radius {DATA}/modular/p13.safetensors --task modular --by-tensor",
    "radius contextual": "radius {contextual_small} --task contextual --length 40",
    "radius inductive": "radius {vanilla} --task inductive --length 40",
    "radius addition": "radius {addition_right} --task addition",
    "radius parity": "radius {parity} --task parity",
    "quantise histogram": f"quantise {DATA}/trained_lin_T32_L10_d64_p64.safetensors --model lin --L 10 --bits 12",
    "quantise fewest": f"quantise {DATA}/frontier/dot_T32_L30_d12.safetensors --model dot --L 30 --fewest",
    "quantise fewest by tensor": f"quantise {DATA}/frontier/dot_T32_L30_d12.safetensors --model dot --L 30 --fewest "
    "--by-tensor",
    "precision": "precision histogram --model lin --T 64 --L 60",
    "precision code": "precision histogram --model lin --T 40 --L 16 --d 39 --construction code",
    "precision sweep": "precision histogram --model dot --T 32 --L 10 --sweep d=32:40",
    "precision sweep of codes": "precision histogram --model lin --T 32 --L 10 --sweep d=27:31 --construction code",
    "precision table": "precision histogram --T 32 --L 16 --table",
    "frontier": "frontier histogram --T 32,64 --L 10 --steps 2000",
    "coded": "histogram --model lin --T 40 --L 16 --d 39 --construction code",
    "coded, even shares": "histogram --model dot+sftm --T 8 --L 60 --d 5 --construction code",
    "packing": "histogram --model dot --T 32 --L 3 --d 12 --construction coherent",
    "sphere": "histogram --model bos+sftm --T 200 --L 10 --d 5",
    "plane": "histogram --model bos+sftm --T 20 --L 10 --d 2",
    "modular clock": "modular --P 1999 --construction clock --frequencies 1,38,46",
    "modular pizza": "modular --P 1009 --construction pizza --K 5",
    "modular best": "modular --P 211 --best 4",
    "modular trained in float32": f"modular --P 13 --weights {DATA}/modular/p13.safetensors --precision bfloat16",
    "parity large": "parity --T 300 --L 300",
    "parity in float32": "parity --T 60 --L 60 --precision float32",
    "count01 trained": f"count01 --weights {DATA}/count01/a16_s1.safetensors --max-digits 200 --max-noise 200",
    "count01 norm": f"count01 --weights {DATA}/count01/norm_s0.safetensors --max-digits 200 --max-noise 200",
    "count01 trained in float32": f"count01 --weights {DATA}/count01/a16_s1.safetensors --precision float32 "
    "--max-digits 200 --max-noise 200",
    "count01 far": "count01 --N 60 --precision float32",
    "contextual long": "contextual --length 10000 --regions 2000",
    "contextual moved": "contextual --length 300 --weights {contextual}",
    "contextual in float32": "contextual --length 3000 --regions 60 --precision float32",
    "contextual ape": "contextual --length 1024 --regions 60 --pe ape",
    "bidirectional": "bidirectional --length 1000",
    "addition long": "addition --digits 400",
    "addition in float32": "addition --digits 30 --precision float32",
    "addition moved": "addition --digits 8 --weights {addition}",
    "addition two layers": "addition --digits 200 --layers 2",
    "histogram moved dot": "histogram --model dot --L 10 --weights {moved_dot}",
    "histogram moved lin": "histogram --model lin --L 10 --weights {moved_lin}",
    "histogram moved softmax": "histogram --model dot+sftm --L 10 --weights {moved_softmax}",
    "histogram moved in float32": "histogram --model lin --L 10 --weights {moved_lin} --precision float32",
    "histogram moved, constant bits": "histogram --model dot --L 10 --weights {moved_dot} --precision s8",
    "histogram large": "histogram --model lin+sftm --T 316 --L 316",
    "circuit": f"circuit {DATA}/circuits/epfl/i2c.aig",
    "circuit in float32": f"circuit {DATA}/circuits/epfl/i2c.aig --precision float32",
    "module of many inputs": "module {module}",
    "module in float32": "module {module} --precision float32",
    "figure margin": "figure margin --model lin --L 10 --weights {moved_lin} --out {folder}/margin.svg",
    "figure confusion": "figure confusion --model dot --L 10 --weights {moved_dot} --out {folder}/confusion.svg",
    "train histogram": "train histogram --model lin --T 16 --L 8 --d 16 --p 16",
    "train modular": "train modular --P 23",
    "train count01": "train count01",
    "train recurrent": "train recurrent --modulus 9",
    "sampled": "histogram --model dot --T 32 --L 30 --method sampled",
    "exhaustive": "modular --P 997 --method exhaustive",
    "repair recurrent, long": f"repair {DATA}/recurrent/gru_seed2_stop0.5.safetensors --task recurrent --length 400",
    "language that is built in time": 'language "0*1" --length 20000',
    "addition two layers in float32": "addition --digits 60 --layers 2 --precision float32",
}  # fmt: skip

# file: the command line that makes a model, and how much of each number is moved at random
MADE = {
    "vanilla": (f"{DATA}/inductive/vanilla_nope_l4.safetensors", 0.0),
    "rope": (f"{DATA}/inductive/modular_rope_l4.safetensors", 0.0),
    "shifted": ("inductive --task shifted --pe sine --length 60 --save", 1e-4),
    "helper": ("inductive --task helper --save", 1e-3),
    "selective": ("inductive --task selective --bos --types 6 --max-count 6 --save", 1e-3),
    "dot": ("histogram --model dot --T 32 --L 10 --save", 0.0),
    "small_dot": ("histogram --model dot --T 12 --L 6 --save", 0.0),
    "count01": ("count01 --construction uniform --save", 0.0),
    "contextual_small": ("contextual --length 40 --regions 10 --save", 0.0),
    "addition_right": ("addition --digits 3 --save", 0.0),
    "parity": ("parity --T 12 --L 12 --save", 0.0),
    "contextual": ("contextual --length 300 --regions 40 --save", 1e-3),
    "addition": ("addition --digits 8 --save", 1e-2),
    "moved_dot": ("histogram --model dot --T 32 --L 10 --save", 0.05),
    "moved_lin": ("histogram --model lin --T 32 --L 10 --save", 0.05),
    "moved_softmax": ("histogram --model dot+sftm --T 32 --L 10 --save", 0.05),
}

# a module that is not trained: the largest of eight numbers below 24
MODULE = """
import torch
from torch import nn

from verify.module import Task, tokens

task = Task(tokens([24] * 8), lambda t: t.amax(1), -1, range(24))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        drawn = torch.Generator().manual_seed(0)
        shapes = {"E": (24, 16), "Q": (16, 16), "K": (16, 16), "W": (16, 24)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape, generator=drawn, dtype=torch.float64)))

    def forward(self, tokens):
        x = self.E[tokens]
        weights = (x @ self.Q @ (x @ self.K).mT / 4).softmax(-1)
        return (weights @ x) @ self.W


def model(weights=None):
    return Attention().eval()
"""


def verify(*argv: str) -> list[str]:
    return [sys.executable, "-m", "verify", *argv]


def made(name: str, folder: Path) -> Path:
    """The weights of a job: a file of tests/data, or what a command saves, with its numbers moved."""
    import torch
    from safetensors.torch import load_file, save_file

    if name == "folder":
        return folder
    if name == "module":
        path = folder / "largest.py"
        path.write_text(MODULE)
        return path
    line, share = MADE[name]
    if line.startswith("/"):
        return Path(line)
    path = folder / f"{name}.safetensors"
    if not path.exists():
        subprocess.run([*verify(*shlex.split(line)), str(path)], cwd=ROOT, check=True, capture_output=True)
        drawn = torch.Generator().manual_seed(1)
        state = load_file(path)
        for key, weights in state.items():
            if weights.is_floating_point():
                state[key] = weights * (1 + share * torch.randn(weights.shape, generator=drawn, dtype=weights.dtype))
        save_file(state, path)
    return path


def watch(argv: list[str]) -> int:
    """Runs a command whose budget is in CPU seconds of this process, and writes what its clock saw as the last line."""
    from verify.frame import clock

    looks: list[float] = []
    longest, where, is_begun = 0.0, "", False

    def look() -> float:
        nonlocal longest, where
        now = time.process_time()
        if not is_begun:  # a measurement of start-up
            return now
        if looks and now - looks[-1] > longest:
            calls = [
                f"{Path(c.filename).stem}:{c.lineno}"
                for c in traceback.extract_stack()[:-2]
                if "/verify/" in c.filename
            ]
            longest, where = now - looks[-1], " ".join(call for call in calls if not call.startswith("clock:"))
        looks.append(now)
        return now

    def deadline(budget: clock.Budget, share: float = 1.0) -> clock.Deadline:
        nonlocal is_begun
        is_begun = True
        return honest(budget, share)

    def begun(budget: clock.Budget) -> clock.Budget:
        nonlocal is_begun
        is_begun = True
        return honestly_begun(budget)

    honest, clock.Budget.deadline = clock.Budget.deadline, deadline  # type: ignore[method-assign]
    honestly_begun, clock.Budget.begun = clock.Budget.begun, begun  # type: ignore[method-assign]
    clock.time = argparse.Namespace(perf_counter=look)  # type: ignore[assignment]
    from verify.commands.cli import main as run

    try:
        return run(argv)
    finally:
        ended = time.process_time()
        first = looks[0] if looks else ended
        after = ended - looks[-1] if looks else 0.0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            json.dumps(
                {
                    "before": first,
                    "searched": ended - first,
                    "longest": longest,
                    "after": after,
                    "where": where,
                    "MB": peak,
                }
            ),
            file=sys.stderr,
        )


def row(name: str, budget: float, folder: Path) -> str:
    """One line of the table: verdict, CPU seconds before the first deadline, since then, and the longest without a
    look at the clock."""
    files = {key: made(key, folder) for key in (*MADE, "folder", "module") if f"{{{key}}}" in JOBS[name]}
    argv = [*shlex.split(JOBS[name].format_map(files)), "--budget", str(budget)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.budgets", "--watch", *argv],
            cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
            timeout=10 * KILLED_AFTER * budget,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(KILLED_AFTER * budget),) * 2),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return COLUMNS.format(name, "no end", "", "", "", "", "")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = done.stderr.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return COLUMNS.format(name, f"exit {done.returncode}", "", f"{took:.1f}", "", "", " ".join(lines[-1:])[:90])
    seen = json.loads(lines[-1])
    verdict = VERDICTS.get(done.returncode, f"exit {done.returncode}")
    said = seen["where"] if seen["searched"] > budget / 2 else " ".join(lines[-2:-1])[:90]
    figures = (
        f"{seen['before']:.1f}",
        f"{seen['searched']:.1f}",
        f"{max(seen['longest'], seen['after']):.1f}",
        seen["MB"],
    )
    return COLUMNS.format(name, verdict, *figures, ("end: " if seen["after"] > seen["longest"] else "") + said)


def main() -> None:
    """The table of the jobs that are named."""
    if sys.argv[1:2] == ["--watch"]:
        sys.exit(watch(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=3.0)
    parser.add_argument("names", nargs="*", help="how the names of the jobs begin")
    given = parser.parse_args()
    print(
        COLUMNS.format(
            "job", "verdict", "before", "search", "longest", "MB", "where the longest time without a look ended"
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in JOBS:
            if not given.names or any(name.startswith(begin) for begin in given.names):
                print(row(name, given.budget, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
