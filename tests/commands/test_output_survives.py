"""Whatever standard output and error are, there is one clear line, the verdict's exit code, and never a traceback."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from command import run
from models.selection import every

from constructions.count01 import save, uniform
from verify.commands.cli import main
from verify.commands.guarded import Guarded, encodable
from verify.frame.registry import commands
from verify.report.tables import render

ROOT = Path(__file__).parents[2]
HELD = str(ROOT / "tests/data/frontier/bos+sftm_T16_L5_d3.safetensors")
XOR = "INPUT(x)\nINPUT(y)\nOUTPUT(z)\nz = XOR(x, y)\n"
# One quick call of each command: its arguments, its exit code, and the answer that this code stands for.
JOBS = {
    "histogram": (("--model", "bos", "--T", "4", "--L", "4", "--as-printed"), 1, "REFUTED"),
    "check": ((HELD,), 0, "HOLDS"),
    "kernel": (("proof",), 0, None),
    "figure": (("margin", "--model", "dot", "--T", "3", "--L", "3", "--out", "f.svg"), 0, None),
    "precision": (("histogram", "--model", "dot", "--T", "3", "--L", "3", "--sweep", "d=3", "--bits", "5"), 0, None),
    "frontier": (("histogram", "--model", "bos+sftm", "--T", "4", "--L", "3"), 0, None),
    "bounds": (("--N", "5,200"), 0, None),
    "count01": (("--construction", "uniform"), 0, "PROVED"),
    "heads": (("u.safetensors", "--law", "box:0:3:3"), 0, None),
    "contextual": (("--length", "5", "--regions", "1"), 0, "PROVED"),
    "circuit": (("xor.bench",), 0, "PROVED"),
    "language": (("(0|1)*1", "--length", "2"), 0, "PROVED"),
    "parity": (("--T", "3", "--L", "3"), 0, "PROVED"),
    "modular": (("--P", "5"), 0, "PROVED"),
    "addition": (("--digits", "2"), 0, "PROVED"),
    "batch": (("proof",), 0, None),
    "claims": ((), 0, None),
}
QUICK = ("check", "claims")  # import no torch: the others are deep


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the jobs read."""
    made = tmp_path_factory.mktemp("files")
    (made / "xor.bench").write_text(XOR)
    save(uniform(), str(made / "u.safetensors"))
    with redirect_stdout(io.StringIO()):
        main(["histogram", "--model", "dot", "--T", "4", "--L", "3", "--save", str(made / "proof")])
    return made


@pytest.fixture
def folder(tmp_path, files):
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    return tmp_path


def shell(command, folder, *, python="exec python -m verify", **environment):
    """A command line of sh as its own process: exit code, stdout and stderr."""
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "PYTHONIOENCODING")}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    line = command.replace("verify", python.replace("python", sys.executable), 1)
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


def line_of(name):
    return f"verify {name} " + " ".join(f"'{word}'" for word in JOBS[name][0])


def each(*conditions):
    """Every condition for the quick commands; for all others too, in the deep part."""
    return pytest.mark.parametrize(
        ("name", *conditions[0]),
        [
            pytest.param(name, *values, marks=() if name in QUICK else pytest.mark.deep)
            for name in JOBS
            for values in conditions[1]
        ],
    )


def test_jobs_are_of_commands():
    assert set(JOBS) <= set(commands())


@pytest.mark.parametrize("name", every(3, commands()))
def test_help_of_every_command_survives(name, monkeypatch):
    """On a terminal of any width, in ASCII, and where nothing can be written."""

    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    for columns in ("0", "1", "20", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="ascii")):
            assert main([name, "--help"]) == 0
    with redirect_stdout(Full()), redirect_stderr(io.StringIO()) as err:
        assert main([name, "--help"]) == 2
    assert err.getvalue().count("\n") == 1


@each(("to", "reason"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_stdout_that_cannot_be_written(name, to, reason, folder):
    """The verdict is on stderr, and its exit code stands; a table that is lost is a failure, exit code 2."""
    _, code, answer = JOBS[name]
    got, out, err = shell(f"{line_of(name)} {to}", folder)
    err = re.sub(r"^wrote .*\n", "", err)
    if name == "figure":  # the file is the result
        assert (got, out, err) == (0, b"", "")
        return
    said = f"{answer}, but " if answer else ""
    assert err == f"verify {name}: {said}standard output could not be written ({reason})\n"
    assert out == b"" and got == (code if answer else 2)


@each(("to",), [("2>/dev/full",), ("2>&-",), (">&- 2>&-",), (">/dev/full 2>/dev/full",)])
def test_stderr_that_cannot_be_written(name, to, folder):
    _, code, answer = JOBS[name]
    got, out, err = shell(f"{line_of(name)} {to}", folder)
    is_lost = to.startswith(">") and not answer and name != "figure"
    assert err == "" and got == (2 if is_lost else code)
    assert bool(out) == (not to.startswith(">") and name != "figure")


@pytest.mark.parametrize("to", ["2>/dev/full", "2>&-", ">/dev/full", ">&-"])
def test_bad_usage_is_exit_2_whatever_can_be_written(to, folder):
    got, out, err = shell(f"verify bounds --T x {to}", folder)
    assert got == 2 and out == b"" and err.count("\n") == (0 if "2>" in to else 1)


def test_version_and_help_that_cannot_be_written(folder):
    assert shell("verify --version", folder) == (0, b"weightproof 1.0.0\n", "")
    got, out, err = shell("verify --version >/dev/full", folder)
    assert got == 2 and err == "verify: standard output could not be written (No space left on device)\n"


@each(("encoding",), [("cp1252",), ("latin-1",), ("ascii",)])
def test_an_encoding_that_lacks_characters(name, encoding, folder):
    _, code, _ = JOBS[name]
    got, out, err = shell(line_of(name), folder, PYTHONIOENCODING=encoding)
    assert got == code and "Traceback" not in err and bool(out) == (name != "figure")
    out.decode(encoding)


def test_what_an_encoding_lacks_is_written_in_ascii(monkeypatch):
    for encoding in ("cp1252", "latin-1", "ascii"):
        raw = io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(raw, encoding=encoding)) as out:
            assert main(["histogram", "--model", "dot", "--T", "3", "--L", "2"]) == 0
            out.flush()
            shown = raw.getvalue().decode(encoding)
        assert "####" in shown and "PROVED on all 9 inputs" in shown
    assert encodable("π ≤ \udcff", "utf-8") == "π <= \\udcff"


@pytest.mark.parametrize("name", ["claims", pytest.param("histogram", marks=pytest.mark.deep)])
@pytest.mark.parametrize("columns", ["0", "20", "1", "-3", "x"])
def test_odd_numbers_of_columns(name, columns, folder):
    _, code, _ = JOBS[name]
    got, out, err = shell(line_of(name), folder, COLUMNS=columns)
    assert got == code and err == "" and "…" not in out.decode()
    assert shell(f"verify {name} --help", folder, COLUMNS=columns)[0] == 0


def test_python_m_verify_and_the_script_start_the_same(folder):
    assert shell("verify --version", folder, python="exec python -m verify.commands.cli")[1] == b"weightproof 1.0.0\n"
    text = (ROOT / "pyproject.toml").read_text()
    assert 'verify = "verify.__main__:start"' in text and 'path = "verify/__init__.py"' in text


# ---- tables


class Terminal(io.StringIO):
    def isatty(self):
        return True


COLUMNS = ("model", "formula", "d")
ROWS = [("lin, lin+sftm; p=T", r"$\left\lfloor{\frac{T \left(2 L - 3\right)^{2}}{T - 1}}\right\rfloor + 1$", 12)] * 2


def shown(form="rich", stream=None):
    with redirect_stdout(stream or io.StringIO()):
        return render(COLUMNS, ROWS, form)


def test_a_piped_table_is_whole_lines_without_padding(monkeypatch):
    for columns in ("", "0"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = shown().splitlines()
        assert len(lines) == 3 and all(cell in lines[1] for cell in map(str, ROWS[0]))
        assert not any(line != line.rstrip() for line in lines)
    monkeypatch.setenv("COLUMNS", "60")  # who asks for a width gets it, in a pipe too
    assert max(map(len, shown().splitlines())) <= 60


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_a_terminals_table_folds_and_loses_nothing(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = re.sub(r"\x1b\[[\d;]*m", "", shown(stream=Terminal()))
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    assert not any(line != line.rstrip() for line in text.splitlines())
    if text.startswith("model  "):
        joined = ["", "".join(line.split("  ")[1].strip() for line in text.splitlines()[1:]), ""]
    elif "│" in text:
        cells = [[part.strip() for part in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
        joined = ["".join(column) for column in zip(*cells, strict=True)]
    else:
        blocks = re.findall(r"formula:((?:.|\n)*?)d:", text)
        joined = ["", "".join(blocks), ""]
    assert re.sub(r"\s", "", joined[1]) == re.sub(r"\s", "", ROWS[0][1]) * 2


@pytest.mark.parametrize(
    "argv",
    [
        ("bounds", "--T", "16", "--L", "5", "--formulas"),
        ("claims",),
        pytest.param(("precision", "histogram", "--model", "dot", "--T", "3", "--L", "3"),
                     marks=pytest.mark.deep),
    ],
)  # fmt: skip
def test_commands_cut_nothing_in_a_pipe(argv, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, _ = run(capsys, *argv)
    assert code == 0 and "…" not in out and not any(line != line.rstrip() for line in out.splitlines())
    if argv[0] == "bounds":
        whole = r"\frac{T \left(2 L - 3\right)^{2}}{T + \left(2 L - 3\right)^{2} - 1}"
        assert rf"$\left\lfloor{{{whole}}}\right\rfloor + 1$" in out


# ---- what was written is said


FOLDER = ["w/weights.safetensors", "w/certificate.json"]
SAVING = {
    "histogram": (("--model", "dot", "--T", "3", "--L", "2", "--save", "w"), FOLDER),
    "count01": (("--construction", "uniform", "--save", "w.safetensors"), ["w.safetensors"]),
    "contextual": (("--length", "5", "--regions", "1", "--save", "w.safetensors"), ["w.safetensors"]),
    "circuit": (("xor.bench", "--save", "w"), FOLDER),
    "language": (("(0|1)*1", "--length", "2", "--save", "w"), FOLDER),
    "parity": (("--T", "3", "--L", "3", "--save", "w"), FOLDER),
    "modular": (("--P", "5", "--save", "w"), FOLDER),
    "addition": (("--digits", "2", "--save", "w"), FOLDER),
    "heads": (("u.safetensors", "--law", "box:0:3:3", "--save", "w"), FOLDER),
    "kernel": (("proof", "--out", "t.v"), ["t.v"]),
    "figure": (("attention", "--model", "dot", "--T", "3", "--input", "0,1", "--out", "f.svg"), ["f.svg"]),
}


@pytest.mark.parametrize("name", every(3, SAVING))
def test_every_command_that_writes_says_what(name, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    argv, files = SAVING[name]
    code, out, err = run(capsys, name, *argv)
    said = re.findall(r"^wrote +(.*)$", out + err, re.M)
    assert code == 0 and said == [", ".join(files)] and all(Path(file).is_file() for file in files)
    if name != "figure":
        assert name in ("heads", "kernel") or out.splitlines()[-1].startswith("PROVED")
        code, out, err = run(capsys, name, *argv, "--json")
        assert out.count("\n") == 1 and (err == f"wrote {', '.join(files)}\n" or json.loads(out)["file"] == files[0])


# ---- interruption and crashes


INTERRUPT_AT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["verify", "count01"]
from verify.__main__ import start
sys.exit(start())
"""


def python(code, **options):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env, **options)


@pytest.mark.parametrize(
    "module", ["verify.commands.cli", "argparse", "verify.tasks.count01.command", "numpy", "flint"]
)
def test_interrupted_while_modules_load(module):
    done = python(INTERRUPT_AT.format(module=module))
    assert done.returncode == 130 and done.stdout == ""
    assert re.fullmatch(r"verify[^\n]*interrupted[^\n]*\n", done.stderr)


DROPPED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from verify.commands import cli
from verify.commands import claims
class Dropping:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def run(args):
    {how}
    time.sleep(20)
claims.run = run
sys.argv = ["verify", "claims"]
sys.exit(cli.main())
"""
HOW = {
    "a request to end": "signal.raise_signal(signal.SIGTERM)",
    "a callback drops it": "Dropping()",
    "a library makes another error of it": """try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("a part is missing") from None""",
}


@pytest.mark.parametrize("how", HOW)
def test_an_interrupt_is_not_lost(how):
    done = python(DROPPED.format(how=HOW[how]))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "verify claims: interrupted, nothing was decided or written\n"


def test_interrupted_while_it_prints(monkeypatch, capsys):
    from verify.commands import claims

    def broken(args):
        print("A-4.1")
        raise KeyboardInterrupt

    monkeypatch.setattr(claims, "run", broken)
    assert run(capsys, "claims") == (130, "A-4.1\n", "verify claims: interrupted, its output is not complete\n")


def test_an_interrupt_that_is_ignored_stays_ignored():
    code = DROPPED.format(how="signal.raise_signal(signal.SIGINT); return 0").replace("default_int_handler", "SIG_IGN")
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_crash_is_one_line_and_its_traceback_is_behind_debug(monkeypatch, capsys):
    from verify.commands import claims

    def broken(args):
        raise IndexError("a\nbug")

    monkeypatch.setattr(claims, "run", broken)
    code, out, err = run(capsys, "claims")
    assert code == 70 and out == "" and err.count("\n") == 1
    assert "IndexError: a\\nbug" in err and "report" in err and "`verify --debug claims ...`" in err
    for argv in (("--debug", "claims"), ("claims", "--debug")):
        code, out, err = run(capsys, *argv)
        assert code == 70 and "Traceback" in err and err.splitlines()[-1].startswith("verify claims: a bug of ours")


def test_a_reader_that_goes_away_stops_the_command():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with redirect_stdout(Gone()):
        assert main(["claims"]) == 141


def test_nothing_of_the_process_stays_changed():
    """A command that is called from Python leaves streams and signals as they were."""
    before = sys.stdout, sys.stderr, sys.unraisablehook, signal.getsignal(signal.SIGINT)
    with redirect_stdout(io.StringIO()):
        main(["bounds", "--N", "5"])
    assert before == (sys.stdout, sys.stderr, sys.unraisablehook, signal.getsignal(signal.SIGINT))


def test_a_stream_remembers_its_first_failure():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    stream = Guarded(Full())
    assert stream.write("abc") == 3 and stream.failure == "No space left on device"
    closed = io.StringIO()
    closed.close()
    stream = Guarded(closed)
    stream.write("abc")
    assert stream.failure == "it is closed"
    missing = Guarded(None)
    missing.flush()
    assert missing.failure is None and missing.write("abc") == 3 and missing.failure == "it is closed"


@pytest.mark.parametrize(
    "line",
    [
        ("frontier", "histogram", "--T", "4", "--L", "2", "--save"),
        ("inductive", "--table", "--resume"),
        ("module", "TASK.py", "--resume"),
        ("reproduce", "E-Fig-2", "--out"),
    ],
)
@pytest.mark.parametrize("folder", ["file/x", "\0"])
def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(line, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("TASK.py").write_text("from verify.module import *\nfrom torch import nn\nmodel = nn.Identity\n"
                               "task = Task(inputs=tokens([2, 2]), expected=largest)\n")  # fmt: skip
    code, out, error = run(capsys, *line, folder)
    assert code == 2 and not out and error.count("\n") == 1 and "no folder can be made there" in error
