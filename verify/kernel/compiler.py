"""Runs coqc: compiles the library once, then theorems, and reads which axioms they rest on."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from constructions.errors import BadInput

SOURCES = Path(__file__).parent / "coq"
# What a theorem about a file needs; the other sources state general theorems.
CHECK_LIBRARY = ("Correct",)
# The real numbers of Coq's library, functional extensionality, and the excluded middle.
ALLOWED_AXIOMS = frozenset(
    {
        "ClassicalDedekindReals.sig_not_dec",
        "ClassicalDedekindReals.sig_forall_dec",
        "FunctionalExtensionality.functional_extensionality_dep",
        "Classical_Prop.classic",
    }
)
INSTALL = "Install it with `apt-get install coq libcoq-interval libcoq-flocq` (Coq 8.16 to 8.18)."


@dataclass(frozen=True)
class CoqOutcome:
    """The outcome of coqc on a file: the axioms of its theorem if accepted, else the reason, and its CPU seconds."""

    axioms: tuple[str, ...] | None
    reason: str | None
    seconds: float

    @property
    def is_proved(self) -> bool:
        return self.axioms is not None and set(self.axioms) <= ALLOWED_AXIOMS


def why_not() -> str | None:
    """The reason why no theorem can be compiled here, None where coqc and its libraries are installed."""
    if shutil.which("coqc") is None:
        return f"coqc is not installed. {INSTALL}"
    return _missing_library()


@cache
def _missing_library() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.v")
        probe.write_text("From Interval Require Interval.Float_full.\nFrom Flocq Require IEEE754.Bits.\n")
        done = _coqc(probe, [])
    return None if done.returncode == 0 else f"coqc lacks coq-interval or Flocq. {INSTALL}"


def sources() -> dict[str, tuple[str, ...]]:
    """Each source file's name and the files of ours that it requires, in an order in which they compile."""
    needs = {}
    for path in sorted(SOURCES.glob("*.v")):
        lines = re.findall(r"From Weightproof Require Import ([\w\s]+)\.", path.read_text(encoding="utf-8"))
        needs[path.stem] = tuple(name for line in lines for name in line.split())
    order: dict[str, tuple[str, ...]] = {}
    while len(order) < len(needs):
        order |= {name: before for name, before in needs.items() if set(before) <= order.keys()}
    return order


def required_by(names: Iterable[str]) -> list[str]:
    """These source files and all that they require, in an order in which they compile."""
    needs, wanted = sources(), set(names)
    for name in reversed(needs):
        if name in wanted:
            wanted.update(needs[name])
    return [name for name in needs if name in wanted]


def library(
    names: Iterable[str] = CHECK_LIBRARY, *, report: Callable[[str], None] = lambda line: None
) -> tuple[Path, float]:
    """The folder with these compiled sources, and the CPU seconds that compiling took, 0 if it was done before.

    Raises: BadInput where coqc is missing or the folder cannot be written.
    """
    if reason := why_not():
        raise BadInput(reason)
    wanted = required_by(names)
    texts = {name: (SOURCES / f"{name}.v").read_bytes() for name in wanted}
    version = subprocess.run(["coqc", "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + b"".join(name.encode() + b"\0" + text for name, text in texts.items()))
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache_home / "weightproof" / f"kernel-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target, 0.0
    start = _seconds_of_children()
    shared = required_by(CHECK_LIBRARY)
    base = library(report=report)[0] if set(shared) < set(wanted) else None  # most other theorems need that as well
    report(f"compiling {len(wanted) - len(shared if base else [])} files of the library once")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _build(Path(folder, "library"), texts, base)
            Path(folder, "library").rename(target)
    except OSError as error:
        if not target.is_dir():  # else another run was faster
            raise BadInput(f"XDG_CACHE_HOME={str(cache_home)!r}: cannot be written ({error.strerror}).") from None
    return target, _seconds_of_children() - start


def _build(folder: Path, texts: dict[str, bytes], base: Path | None) -> None:
    """Compiles the sources that no base holds into a folder, two at a time where they do not need each other."""
    if base is None:
        folder.mkdir()
    else:
        shutil.copytree(base, folder)
    for name, text in texts.items():
        (folder / f"{name}.v").write_bytes(text)
    needs, done = sources(), {compiled.stem for compiled in folder.glob("*.vo")}
    running: dict[Future[subprocess.CompletedProcess[str]], str] = {}
    with ThreadPoolExecutor(2) as pool:
        while len(done) < len(texts):
            for name in texts:
                if name not in done and name not in running.values() and set(needs[name]) <= done:
                    running[pool.submit(_coqc, folder / f"{name}.v", _path(folder))] = name
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                name, run = running.pop(future), future.result()
                if run.returncode:
                    pool.shutdown(cancel_futures=True)
                    raise RuntimeError(f"{name}.v does not compile: {_error(run.stderr)}")
                done.add(name)


def run_coqc(text: str, built: Path) -> subprocess.CompletedProcess[str]:
    """Compiles a file in a temporary folder, against the library at `built`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "theorem.v")
        path.write_text(text, encoding="utf-8")
        return _coqc(path, _path(built))


def compile_theorem(text: str, built: Path) -> CoqOutcome:
    """Compiles a file that ends with `Print Assumptions` of its one theorem."""
    start = _seconds_of_children()
    done = run_coqc(text, built)
    seconds = _seconds_of_children() - start
    if done.returncode:
        return CoqOutcome(None, _error(done.stderr), seconds)
    axioms = read_axioms(done.stdout)
    if axioms is None:
        return CoqOutcome(None, f"coqc printed no list of axioms but {done.stdout.strip()[:200]!r}", seconds)
    if extra := sorted(set(axioms) - ALLOWED_AXIOMS):
        return CoqOutcome(axioms, f"it rests on {', '.join(extra)}, beyond the axioms of Coq's real numbers", seconds)
    return CoqOutcome(axioms, None, seconds)


def read_axioms(printed: str) -> tuple[str, ...] | None:
    """The axioms that one `Print Assumptions` lists, None for anything else that was printed.

    >>> read_axioms("Closed under the global context")
    ()
    >>> read_axioms("Axioms:\\nA.b\\n  : forall x,\\n    x = x\\nc : nat")
    ('A.b', 'c')
    >>> read_axioms("Axioms:\\nc : nat\\nTheory: Set is impredicative")
    """
    lines = printed.strip().splitlines()
    if lines == ["Closed under the global context"]:
        return ()
    if not lines or lines[0] != "Axioms:":
        return None
    names = [line for line in lines[1:] if not line.startswith(" ")]
    found = [re.fullmatch(r"([\w.']+)(?: : .*)?", line) for line in names]
    return tuple(match[1] for match in found if match) if names and all(found) else None


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _path(folder: Path) -> list[str]:
    return ["-R", str(folder), "Weightproof"]


def _coqc(path: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["coqc", "-q", *options, str(path)], capture_output=True, text=True, cwd=path.parent)


def _error(stderr: str) -> str:
    """coqc's error in one line: its last paragraph, cut."""
    text = stderr[stderr.rfind("Error:") :] if "Error:" in stderr else stderr
    return " ".join(text.split())[:300] or "coqc failed without a word"
