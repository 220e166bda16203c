"""The command as a user meets it: verdicts, exit codes, JSON, bad input, pipes and interruption."""

import json
import os
import subprocess
import sys

import pytest
import torch
from command import as_json, run
from models.selection import first

from constructions.histogram import HistogramTransformer
from verify.tasks.histogram.frontier import search

KEYS = {
    "verdict", "claim", "task", "parameters", "reading", "method", "inputs_covered", "margin", "margin_exact",
    "tightest", "counterexample", "assumptions", "error_share", "seconds",
}  # fmt: skip


def test_the_main_job(capsys):
    code, out, err = run(capsys, "histogram", "--model", "dot", "--T", "32", "--L", "10", "--d", "32")
    assert code == 0 and err == ""
    assert "PROVED on all 1125899906842624 inputs" in out
    assert "A-4.2" in out and "reading" in out and "float32" in out


@pytest.mark.parametrize("model", ["lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm"])
def test_json_has_the_promised_keys(capsys, model):
    code, result = as_json(capsys, "histogram", "--model", model, "--T", "8", "--L", "5")
    assert code == 0 and result.keys() >= KEYS
    assert result["verdict"] == "PROVED" and result["inputs_covered"] == str(8**5)
    assert result["reading"] == "real" and result["counterexample"] is None
    assert result["parameters"] == {
        "model": model, "T": 8, "L": 5, "d": 8, "p": result["parameters"]["p"], "dtype": "float32",
    }  # fmt: skip


def test_as_printed_is_refuted(capsys):
    code, result = as_json(capsys, "histogram", "--model", "bos", "--T", "8", "--L", "5", "--as-printed")
    assert code == 1 and result["verdict"] == "REFUTED"
    found = result["counterexample"]
    assert found["tokens"] == [0] * 4 + [1] and (found["expected"], found["predicted"]) == (4, 5)
    assert result["error_share"][0] == result["error_share"][1]


@pytest.mark.parametrize(("T", "L"), first(1, [(3, 3), (5, 4)]))
def test_sampling_never_proves(capsys, T, L):
    code, result = as_json(capsys, "histogram", "--model", "dot", "--T", str(T), "--L", str(L), "--method", "sampled")
    assert code == 3 and result["verdict"] == "UNKNOWN" and "never proves" in result["reason"]
    printed = ("histogram", "--model", "bos", "--T", "4", "--L", "3", "--as-printed", "--method", "sampled")
    code, first = as_json(capsys, *printed, "--seed", "3")
    again = as_json(capsys, *printed, "--seed", "3")[1]
    assert code == 1 and first["counterexample"] == again["counterexample"]


def test_exhaustive(capsys):
    code, result = as_json(capsys, "histogram", "--model", "bos", "--T", "4", "--L", "4", "--method", "exhaustive")
    assert code == 0 and result["inputs_covered"] == "256" and result["reading"] == "bit-exact"
    code, _, err = run(capsys, "histogram", "--model", "bos", "--T", "32", "--L", "10", "--method", "exhaustive")
    assert code == 2 and "years" in err and err.count("\n") == 1


def test_save_and_judge_again(capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    code, out, err = run(capsys, "histogram", "--model", "bos+sftm", "--T", "8", "--L", "5", "--save", path)
    assert code == 0
    code, result = as_json(capsys, "histogram", "--weights", path)
    assert code == 0 and result["parameters"]["model"] == "bos+sftm" and result["parameters"]["T"] == 8


BAD_COMMANDS = [
    ("--model", "dot", "--T", "32", "--L", "10", "--d", "16"),
    ("--model", "dot", "--T", "1", "--L", "10"),
    ("--model", "dot", "--T", "-5", "--L", "10"),
    ("--model", "dot", "--T", "4", "--L", "0"),
    ("--model", "dot", "--T", "4", "--L", "3", "--d", "0"),
    ("--model", "lin", "--T", "4", "--L", "3", "--p", "3"),
    ("--model", "lin", "--T", "4", "--L", "3", "--p", "0"),
    ("--model", "dots", "--T", "4", "--L", "3"),
    ("--model", "dot", "--T", "four", "--L", "3"),
    ("--model", "dot", "--T", "4"),
    ("--T", "4", "--L", "3"),
    ("--model", "dot+sftm", "--construction", "relation", "--T", "4", "--L", "3"),
    ("--model", "dot", "--T", "4", "--L", "3", "--budget", "nan"),
    ("--model", "dot", "--T", "4", "--L", "3", "--dtype", "float8"),
    ("--model", "dot", "--T", "4", "--L", "3", "--save", "/nowhere/m.safetensors"),
    ("--weights", "missing.pt"),
    ("--weights", "."),
    ("--weights", "missing.pt", "--T", "4"),
    ("--model", "dot", "--T", "1000000", "--L", "10"),
    ("--model", "dot", "--T", "3", "--L", "99999999"),
    ("--weights", ""),
]


@pytest.mark.parametrize("argv", BAD_COMMANDS, ids=" ".join)
def test_bad_input_is_one_line_and_exit_2(capsys, argv):
    code, out, err = run(capsys, "histogram", *argv)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and "Traceback" not in err


def test_claims(capsys):
    code, out, _ = run(capsys, "claims", "--json")
    claims = json.loads(out)
    assert code == 0 and {"A-4.1", "A-4.2", "A-4.3", "A-B.1", "A-B.4"} <= {claim["id"] for claim in claims}
    assert run(capsys, "claims")[0] == 0


def python(*argv, **options):
    return subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize("argv", [["--help"], ["histogram", "--help"], ["claims", "--help"]])
def test_help_imports_no_torch(argv):
    code = f"import sys; sys.argv = ['verify', *{argv}]\nfrom verify.commands.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass"
    result = python("-c", code + "\nassert not {'torch', 'numpy', 'sympy'} & set(sys.modules), 'heavy import'")
    assert result.returncode == 0, result.stderr
    assert "usage: verify" in result.stdout


def test_sixty_columns_and_a_pipe():
    env = {**os.environ, "COLUMNS": "60"}
    result = python("-m", "verify.commands.cli", "histogram", "--model", "bos", "--T", "32", "--L", "10", env=env)
    assert result.returncode == 0 and result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 60
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("argv", first(1, [(["claims"],), (["count01"],)]))
def test_a_reader_that_goes_away_is_no_verdict(argv):
    """`| head -1` must not turn PROVED into the exit code of REFUTED."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [sys.executable, "-m", "verify.commands.cli", *argv]
        result = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=120)
    assert result.returncode == 141 and result.stderr == ""


def test_interrupted(tmp_path):
    """Ctrl-C in the middle of a search: one line, exit 130, no half-written file."""
    module = HistogramTransformer("dot+sftm", T=24, L=20, d=24, p=24)
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    torch.save(module.state_dict(), tmp_path / "hard.pt")
    argv = ["histogram", "--weights", "hard.pt", "--model", "dot+sftm", "--save", "out.safetensors", "--budget", "300"]
    code = (
        "import signal, sys, threading, time, torch\n"
        "from verify.commands import cli\n"
        "from verify.tasks.histogram import branch_and_bound\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the tests run in the background
        "def interrupt():\n"
        "    while True:\n"  # Python ignores a Ctrl-C that comes during an import's callbacks: press it again
        "        time.sleep(1.0)\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        f"sys.exit(cli.main({argv}))"
    )
    result = python("-c", code, cwd=tmp_path)
    assert result.returncode == 130 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "interrupted" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["hard.pt"]


@pytest.mark.parametrize("hits", [0, 1, 2])
def test_an_interrupted_frontier_says_what_it_wrote(tmp_path, monkeypatch, capsys, hits):
    found = []

    def interrupted(*sizes, **options):
        if len(found) == hits:
            raise KeyboardInterrupt
        found.append(sizes)
        return smallest_d(*sizes, **options)

    smallest_d = search.smallest_d
    monkeypatch.setattr(search, "smallest_d", interrupted)
    argv = ("frontier", "histogram", "--model", "bos+sftm", "--T", "4,5,6", "--L", "3", "--save", str(tmp_path / "out"))
    code, out, err = run(capsys, *argv)
    written = list((tmp_path / "out").iterdir())
    files = 2 * hits + bool(hits)
    assert code == 130 and out == "" and len(written) == files
    said = f"{files} files written to {tmp_path / 'out'}" if hits else "nothing was decided or written"
    assert err == f"verify frontier: interrupted, {said}\n"


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), 2, 1),
        (MemoryError(), 2, 1),
        (RuntimeError("something else"), 70, 1),
        (IndexError("a bug"), 70, 1),
    ],
)
def test_an_unexpected_error_is_no_verdict(monkeypatch, capsys, error, code, lines):
    """Python's own exit code after a traceback is 1, which says REFUTED."""

    def broken(*args, **options):
        raise error

    monkeypatch.setattr(search, "smallest_d", broken)
    found, out, err = run(capsys, "frontier", "histogram", "--T", "4", "--L", "3")
    assert found == code and out == "" and (len(err.splitlines()) == 1) == (lines == 1)


def test_a_wrong_size_in_a_list_is_found_before_the_first_hit(tmp_path, capsys):
    argv = ("frontier", "histogram", "--model", "bos+sftm", "--T", "4,1", "--L", "3", "--save", str(tmp_path / "out"))
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == "" and "T=1" in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sizes", ["1:999999999999", "2:10001,2", "1:5:0", "9:4", "1:2:3:4", "1:", "x", "1:2:-1"])
def test_a_range_of_sizes_that_is_none_or_absurd(capsys, sizes):
    """A range is counted before it is listed."""
    code, out, err = run(capsys, "bounds", "--T", sizes, "--L", "10")
    assert code == 2 and out == "" and err.count("\n") == 1 and sizes in err


def test_bounds_of_count01(capsys):
    code, out, _ = run(capsys, "bounds", "--N", "10,60", "--json")
    rows = json.loads(out)
    assert code == 0 and [row["N"] for row in rows] == [10, 60] and rows[0]["largest n2"] == 1497
    for words in (("--N", "10", "--T", "32"), ("--N", "0"), ("--N", "501"), ("--T", "32")):
        code, out, err = run(capsys, "bounds", *words)
        assert code == 2 and not out and len(err.splitlines()) == 1
