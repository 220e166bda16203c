"""A disk that is full and Ctrl-C: one line, and what was there before stays as it was."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import run
from models.selection import first

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
FULL = """
import resource, signal, sys
sys.dont_write_bytecode = True
from verify.__main__ import start
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
sys.argv = ["verify", *sys.argv[1:]]
sys.exit(start())
"""
BOS = f"{DATA}/trained_bos_T4_L3_d4_p8.safetensors --model bos --L 3"
WRITING = [  # each writes `out`, a file or a folder
    "parity --T 3 --L 3 --save out.safetensors",
    "parity --T 3 --L 3 --save out",
    "parity --T 3 --L 3 --report out.html",
    f"quantise {BOS} --bits 12 --save out",  # writes to a folder for a while first
    f"repair {BOS} --save out",
    "train modular --P 5 --budget 3 --save out",
    "frontier histogram --model bos+sftm --T 4 --L 3 --save out",
    "figure margin --model dot --T 3 --L 3 --out out.svg",
    "precision histogram --model dot --T 4 --L 3 --sweep d=3 --bits 4,24 --json --out out.svg",
    f"batch {BOS} --json --junit out.xml",
    f"batch {BOS} --json --report out.html",
]
IN_PARTS = [  # each keeps its parts in `out`
    "bounds --T 4,5 --L 3 --json --resume out",
    f"batch {BOS} --effort 20 --json --resume out",
    "precision histogram --model dot --T 4 --L 3 --sweep d=3 --bits 4,24 --json --resume out",
    "claims --run W-7 --json --resume out",
    "frontier histogram --model bos+sftm --T 4 --L 3 --steps 20 --json --save out",
    "bounds --T 4,5 --L 3 --json --workers 2 --resume out",
]
LOOP = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from verify.tasks.histogram import loops
compiled = loops._compiled
def told(*shape):
    loop = compiled(*shape)
    def run(asked):
        print("in the loop", file=sys.stderr, flush=True)
        return loop(asked)
    return run
loops._compiled = told
from verify.__main__ import start
sys.argv = ["verify", *sys.argv[1:]]
sys.exit(start())
"""


def started(code, line, folder):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code, *line.split()]
    return subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("line", first(1, WRITING))
def test_a_disk_that_takes_64_bytes_is_one_line_and_the_file_before_stays(line, tmp_path):
    old = tmp_path / line.split()[-1]
    if old.suffix:
        old.write_text("before")
    out, err = (running := started(FULL, line, tmp_path)).communicate(timeout=120)
    assert (running.returncode, out) == (2, "") and "cannot write" in err and "File too large" in err, err
    assert [line for line in err.splitlines() if "File too large" in line] == err.splitlines()[-1:]
    assert not old.suffix or old.read_text() == "before"
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path != old]
    assert left == [], "half a file is not left"


@pytest.mark.deep
@pytest.mark.parametrize("line", IN_PARTS)
def test_parts_go_on_when_the_disk_has_space_again(line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, err = (running := started(FULL, line, tmp_path)).communicate(timeout=120)
    assert (running.returncode, out) == (2, "") and "File too large" in err.splitlines()[-1], err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "half a file is not left"
    code, resumed, _ = run(capsys, *line.split())
    assert code == 0 and [*(tmp_path / "out").iterdir()]
    *words, _, _ = line.split()
    assert timeless(resumed) == timeless(run(capsys, *words)[1])


def timeless(said):
    return re.sub(r'"seconds": [^,}]*', "", said)


@pytest.mark.deep
@pytest.mark.skipif(not find_spec("llvmlite"), reason="weightproof[fast]")
def test_an_interrupt_in_a_compiled_loop_is_answered_in_two_seconds(tmp_path):
    """A drawn dot model of 8.75e9 multisets, a minute of compiled loops."""
    from constructions.checkpoint import save
    from tests.tools.counts_on_device import drawn

    save(drawn(0, 32, 10, 32), tmp_path / "dot.safetensors", claim=None, construction=None)
    line = "histogram --model dot --L 10 --weights dot.safetensors --budget 600 --save out"
    running = started(LOOP, line, tmp_path)
    while running.stderr.readline().strip() != "in the loop":
        assert running.poll() is None
    time.sleep(1)
    asked = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    took = time.monotonic() - asked
    said = [each for each in err.splitlines() if each != "in the loop"]
    assert (running.returncode, out, len(said)) == (130, "", 1) and "interrupted" in said[0]
    assert took < 2 and [path.name for path in tmp_path.iterdir()] == ["dot.safetensors"]
