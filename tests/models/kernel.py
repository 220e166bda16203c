"""Coq's check run on many stored models at once, where coqc is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from verify.kernel.compiler import CHECK_LIBRARY, library, run_coqc
from verify.kernel.theorem import OF_RUNS, PREAMBLE, CheckInputs

needs_coqc = pytest.mark.usefixtures("coqc")  # asked where a test runs: the answer takes a run of coqc


def accepted(inputs: Iterable[CheckInputs], *, in_a_format: bool = False) -> list[bool]:
    """For each model whether the check says true, from one run of coqc."""
    checks = [f"{x.check} {x.weights} ({x.scale}) {x.how} {x.margins} {x.shift}" for x in inputs]
    preamble = [*PREAMBLE, OF_RUNS] if in_a_format else PREAMBLE
    return answered(checks, preamble, library(("RunsCorrect",) if in_a_format else CHECK_LIBRARY)[0])


def answered(calls: list[str], preamble: Iterable[str], compiled: Path) -> list[bool]:
    """What these calls of the library say, true or false, from one run of coqc."""
    done = run_coqc("\n".join([*preamble, f"Eval vm_compute in [{';'.join(calls)}].", ""]), compiled)
    assert done.returncode == 0, done.stderr
    answers = re.fullmatch(r"\s*= \[([\s\w;]*)\]\s*: list bool\s*", done.stdout)
    assert answers, done.stdout
    found = [word.strip() == "true" for word in answers[1].split(";")]
    assert len(found) == len(calls)
    return found
