"""Shared by all tests, so that they mean the same everywhere: one thread, fixed examples, and no machine's seconds."""

import doctest
import gc
import os
import sys
import typing
from functools import cache
from itertools import count
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy are loaded; for the commands in processes, too

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what hundreds of processes load is compiled once
sys.dont_write_bytecode = False

gc.disable()  # until all tests are collected: what a thousand modules leave is looked through once, below

import pytest  # noqa: E402
import torch  # noqa: E402
from _pytest.assertion.rewrite import AssertionRewritingHook  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from hypothesis.internal.conjecture import providers  # noqa: E402
from torch._export import utils  # noqa: E402
from torch.export import decomp_utils, exported_program  # noqa: E402

from verify.kernel.compiler import why_not  # noqa: E402

sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))  # terminal: commands as the site runs them
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a busy machine is no failure
settings.register_profile("fast", max_examples=20, derandomize=True, **UNHURRIED)  # the same examples in every run
settings.register_profile("drawn", max_examples=40, print_blob=True, **UNHURRIED)  # .ci/check deep
settings.register_profile("deep", max_examples=2000, **UNHURRIED)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fast")
settings.load_profile(PROFILE)
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
if hasattr(utils, "_collect_all_valid_cia_ops"):  # a third of a capture's time, and the same in every capture
    operations = cache(utils._collect_all_valid_cia_ops)
    for part in (utils, decomp_utils, exported_program):
        part._collect_all_valid_cia_ops = operations
torch._ops.Callable = typing.Callable  # of annotations that a capture makes ten thousand times: this one is cached
doctest._OutputRedirectingPdb.reset = lambda self: None  # of a debugger that no doctest calls: it looks at all files
for finder in sys.meta_path:
    if isinstance(finder, AssertionRewritingHook):  # of our tests, not of the 500 modules beside our plugin for pytest
        finder._must_rewrite.discard("verify")
if PROFILE == "fast" and hasattr(providers, "_get_local_constants"):  # the numbers of all files that are loaded: the
    providers._get_local_constants = lambda: providers._local_constants  # examples change with them, and they take long
DEFAULT_MARKS = "not deep and not benchmark"  # pyproject.toml's
LOOKS = 100  # at its clock, that a search's second holds


def leaves_deep_out(config) -> bool:
    """Whether deep tests are left out by default, and not one test asked for, which is said to be deselected then."""
    return config.option.markexpr == DEFAULT_MARKS and not any("::" in each for each in config.args)


def pytest_pycollect_makeitem(collector, name, obj):
    """Makes no cases of tests that are marked deep where the marks that are asked for leave all of them out."""
    if leaves_deep_out(collector.config) and callable(obj) and not isinstance(obj, type):
        marks = [*getattr(obj, "pytestmark", ()), *collector.iter_markers()]
        return [] if any(mark.name == "deep" for mark in marks) else None
    return None


@pytest.hookimpl(trylast=True)  # when the cases have their names, which are the same under all marks
def pytest_generate_tests(metafunc):
    """Makes no deep cases of a test that has others, either."""
    if leaves_deep_out(metafunc.config):
        others = [each for each in metafunc._calls if not any(mark.name == "deep" for mark in each.marks)]
        metafunc._calls = others or metafunc._calls


def pytest_collection_finish():
    """Thousands of collected tests stay until the end: the garbage collector need not look through them each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def seconds_that_are_looks(monkeypatch):
    """Makes a search's seconds so many looks at the clock, so that no verdict depends on how fast the machine is."""
    looks = count()
    monkeypatch.setattr("verify.frame.clock.wall", lambda: next(looks) / LOOKS)


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def device(request) -> str:
    """Where a model is run whose margins are certified in a dtype: on a graphics card, too, where one is at hand."""
    return request.param


@pytest.fixture(scope="session")
def coqc():
    """Skips what needs coqc and its libraries where they are not installed."""
    if reason := why_not():
        pytest.skip(reason)


SHARED_WEIGHTS = Path(__file__).parents[2] / "shared" / "data" / "weights"


@pytest.fixture
def shared_weights() -> Path:
    """State dicts produced by the public code of document A, where they are at hand (not part of this project)."""
    if not SHARED_WEIGHTS.is_dir():
        pytest.skip("the public state dicts are not at hand")
    return SHARED_WEIGHTS


collect_ignore_glob = [
    "models/toy/*",  # a task in a folder of its own, which tests/house adds to the house
    "benchmarks/lirpa.py",  # runs in an environment of its own, beside auto_LiRPA
]
