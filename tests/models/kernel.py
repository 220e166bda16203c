"""Coq's check run on many stored models at once, where coqc is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from verify.kernel.compiler import CHECK_LIBRARY, library, run_coqc
from verify.kernel.theorem import OF_RUNS, PREAMBLE, CheckInputs

needs_coqc = pytest.mark.usefixtures("coqc")  # asked where a test runs: the answer takes a run of coqc


def mutated(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module with one weight changed, by a little, by much or in sign, or with all of them moved a little."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if seed % 6 == 5:
            for weights in module.parameters():
                weights += torch.randint(-8, 9, weights.shape, generator=g) * 2.0 ** -(9 + seed % 4)
            return module
        weights = list(module.parameters())[seed % 7].view(-1)
        i = int(torch.randint(len(weights), (1,), generator=g))
        weights[i] = [weights[i] + 2.0**-8, weights[i] * 1.02 - 0.01, weights[i] + 1, -weights[i], 0.3][seed % 5]
    return module


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
