"""A command leaves its process as it was: a caller's settings, and the next test, are not its business."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import locale
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from models.selection import every, first

from constructions import relation_counting
from verify.commands.cli import main

BENCH = "INPUT(a)\nINPUT(b)\nOUTPUT(z)\nz = NAND(a, b)\n"
COMMANDS = {
    "proved": "histogram --model dot --T 4 --L 3",
    "refuted": "histogram --model bos --T 4 --L 3 --as-printed",
    "drawn at random": "histogram --model dot --T 4 --L 3 --method sampled --seed 5 --basis random",
    "every sequence": "histogram --model dot --T 4 --L 3 --method exhaustive",
    "rounded": "histogram --model dot --T 4 --L 3 --precision bfloat16",
    "bits": "histogram --model dot --T 3 --L 2 --precision s4",
    "bad size": "histogram --model dot --T 0 --L 3",
    "bad option": "histogram --model dot --T x --L 3",
    "impossible": "histogram --model lin --T 4 --L 3 --p 1",
    "precision": "precision histogram --model bos --T 3 --L 2 --budget 0",
    "frontier": "frontier histogram --T 3 --L 2 --steps 5",
    "bounds": "bounds --T 8 --L 3",
    "count01": "count01 --construction uniform",
    "count01 in a dtype": "count01 --construction uniform --precision float32",
    "contextual": "contextual --length 8 --regions 2",
    "impossible contextual": "contextual --impossible 2.3",
    "circuit": "circuit and.bench",
    "circuit in real arithmetic": "circuit and.bench --precision real",
    "language": "language 0*1 --length 4",
    "figure": "figure margin --model dot --T 4 --L 3 --out margin.svg",
    "claims": "claims",
    "check": "check nothing-there",
}


def state():
    """Everything of the process that a command could change for others."""
    return {
        "integer digits": sys.get_int_max_str_digits(),
        "recursion": sys.getrecursionlimit(),
        "numpy errors": np.geterr(),
        "numpy print": str(np.get_printoptions()),
        "numpy random": str(np.random.get_state()),  # noqa: NPY002 (that nobody touches it)
        "random": random.getstate(),
        "torch random": torch.random.get_rng_state().tolist(),
        "torch threads": torch.get_num_threads(),
        "torch dtype": torch.get_default_dtype(),
        "torch grad": torch.is_grad_enabled(),
        "torch deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch matmul": torch.get_float32_matmul_precision(),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "hooks": (sys.excepthook, sys.displayhook),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "threads": threading.active_count(),
    }


@pytest.mark.parametrize("command", every(8, COMMANDS.values()))
def test_a_command_leaves_the_process_as_it_was(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "and.bench").write_text(BENCH)
    with contextlib.suppress(SystemExit):
        main(["bounds", "--T", "8", "--L", "3"])  # what is imported first may start threads of its own
        main(command.split())
    before = state()
    with contextlib.suppress(SystemExit):
        main(command.split())
    assert state() == before


def run(argv):
    """Exit code and output of one command, without pytest's capture."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(argv)
    return code, out.getvalue()


@pytest.fixture(params=first(2, [640, 0, 4300]))
def digits_limit(request):
    """Python's limit on the digits of an integer that it prints or reads."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield request.param
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    ("argv", "digits"),
    first(1, [
        ("contextual --length 2200 --regions 2", 674),
        ("parity --T 4 --L 1080", 651),
        ("histogram --model dot --T 32 --L 440", 663),
        ("contextual --length 6000 --regions 2", 1819),
        ("language 0*1 --length 2500 --bits 2 --runs 0", 753),
    ]),
)  # fmt: skip
def test_counts_of_any_length_are_printed_under_any_limit(argv, digits, digits_limit):
    code, out = run([*argv.split(), "--json"])
    assert code in (0, 3) and sys.get_int_max_str_digits() == digits_limit
    result = json.loads(out)
    if code == 0:
        assert len(result["inputs_covered"]) == pytest.approx(digits, abs=5)
    assert run(argv.split())[0] == code  # and for people


def test_an_integer_without_end_is_unreadable_under_any_limit(digits_limit, tmp_path):
    """As docs/checker.md promises; it once depended on what else had run in the process."""
    saved = tmp_path / "saved"
    code, _ = run(["histogram", "--model", "dot", "--T", "5", "--L", "3", "--save", str(saved)])
    assert code == 0
    certificate = saved / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"T": 5', '"T": ' + "5" * 10_000, 1))
    code, out = run(["check", str(saved)])
    assert code == 2 and "UNREADABLE" in out and "10000 digits" in out


def test_the_module_that_was_judged_is_as_it_was():
    from verify.histogram import certify

    module = relation_counting.dot(T=4, L=3).train()
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    certify(module)
    assert module.training and all(p.requires_grad and p.grad is None for p in module.parameters())
    assert all(torch.equal(weights[name], tensor) for name, tensor in module.state_dict().items())


def test_a_test_file_names_no_absolute_path():
    """The suite runs wherever it is unpacked."""
    top = Path(__file__).parents[2]
    command = ["git", "ls-files", "*.py", "*.md", "*.toml"]
    listed = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    folders = ["/" + name + "/" for name in ("work", "home", "root", "tmp", "Users")]
    found = [
        name for name in listed.stdout.split() if any(f in (top / name).read_text(encoding="utf-8") for f in folders)
    ]
    assert found == []


TAKEN = """
import resource
from verify.commands.process import keep_freed_memory
def taken():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(12):
        [bytearray(1 << 20) for _ in range(16)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(taken(), keep_freed_memory(), taken())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_what_is_freed_is_kept():
    """16 MiB is 4096 pages: they were taken each time, and are taken once."""
    done = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=True)
    before, _, after = done.stdout.split()
    assert int(before) > 8 * 4096 and int(after) < 2 * 4096


MAPPED = """
import ctypes
from verify.commands.process import keep_freed_memory
class Allocated(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usm fsm uord ford keep".split()]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Allocated
def mapped():
    before = library.mallinfo2().hblks
    batch = b"x" * (1 << 24)
    return library.mallinfo2().hblks - before
print(mapped(), keep_freed_memory(), mapped())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only newer glibc says it"
)
def test_batches_are_not_mapped_anew_each_time():
    """An array of 16 MiB, as batches of tensors are, is taken from what is kept."""
    done = subprocess.run([sys.executable, "-c", MAPPED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "None", "0"]


THREADS = """
import os, sys
from verify.commands.process import one_thread_of_numpy
if "ours" in sys.argv:
    one_thread_of_numpy()
import numpy
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("users", [{}, {"OPENBLAS_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2"}])
def test_numpy_takes_one_thread_unless_the_user_says_more(users):
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")} | users

    def threads(*arguments):
        done = subprocess.run([sys.executable, "-c", THREADS, *arguments], env=env, capture_output=True, check=True)
        return int(done.stdout)

    assert threads("ours") == (threads() if users else 1)
