"""Shared by all tests: the Hypothesis profiles, and one thread so that xdist's workers do not fight."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy are loaded; for the commands in processes, too

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))  # terminal: commands as the site runs them
settings.register_profile("fast", max_examples=40, deadline=None)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
torch.set_num_threads(1)

SHARED_WEIGHTS = Path(__file__).parents[2] / "shared" / "data" / "weights"


@pytest.fixture
def shared_weights() -> Path:
    """State dicts produced by the public code of document A, where they are at hand (not part of this project)."""
    if not SHARED_WEIGHTS.is_dir():
        pytest.skip("the public state dicts are not at hand")
    return SHARED_WEIGHTS
