"""Trained models whose slots have one weight: a whole row of multisets, compiled and by numpy."""

from importlib.util import find_spec

import numpy as np
import pytest
from models.random_models import trained_like

from verify.frame.clock import Deadline
from verify.tasks.histogram import by_prefix, loops
from verify.tasks.histogram.by_prefix import ByPrefix
from verify.tasks.histogram.candidate import Smallest
from verify.tasks.histogram.narrow import Narrow
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import Space, Table

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("loop", ["numpy", "compiled"])
def test_multisets_of_one_count(benchmark, loop, monkeypatch):
    """dot at T = 32, L = 10, p = 32: the 324,632 multisets of one token that occurs five times."""
    if loop == "compiled" and not find_spec("llvmlite"):
        pytest.skip("weightproof[fast]")
    monkeypatch.setattr(loops, "is_compiled", lambda: loop == "compiled")
    monkeypatch.setattr(by_prefix, "threads", lambda: 1)
    reduction = Reduction(StoredModel.of(trained_like(0, "dot", 32, 10, p=32, steps=100)))
    table = Table(reduction, reduction.rows[0], 0, Space(reduction.stored))

    def decide():
        cell = ByPrefix(table, 5, Narrow.of(table, 5), Smallest(), np.inf)
        assert cell.run(Deadline.never(), lambda share: None)
        return cell

    cell = benchmark(decide)
    assert cell.done == 324_632
