"""Every written network is run by onnxruntime on every point of its query, and must say what was proved."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from constructions.errors import BadInput
from verify.export.instances import UNSAT, Instance
from verify.export.queries import Query


def outputs(path: Path, points: np.ndarray) -> np.ndarray:
    """Runs onnxruntime, one input at a time, and returns its outputs flat, one row for each point.

    Raises: BadInput where it is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise BadInput(
            "export: onnxruntime is not installed, and checks what is written. "
            "Install it with pip install 'weightproof[export]', or add --no-check."
        ) from None
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.array([session.run(["Y"], {"X": point})[0].ravel() for point in points])


def check(instance: Instance, path: Path) -> int:
    """Runs an instance's points and compares with its answer; how many were run.

    On single points a run is the whole query. On an interval it is its ends, where the broken lines are worst.
    Raises: AssertionError where float32 disagrees with the proof, or agrees though it is known not to.
    """
    points = instance.query.points()
    met = instance.query.is_met(outputs(path, points))
    if (bool(met.any()) is (instance.answer != UNSAT)) is instance.is_exact_only:
        raise AssertionError(f"{instance.name}: {instance.answer} is proved, and onnxruntime meets {int(met.sum())}")
    return len(points)


def sizes(query: Query) -> dict[str, int]:
    """How large a query is."""
    return {
        "inputs": query.shape_in[0] * query.shape_in[1],
        "outputs": query.shape_out[0] * query.shape_out[1],
        "boxes": len(query.boxes),
        "alternatives": len(query.boxes) * len(query.others),
    }
