"""The figure of the cycle: what it draws are the ellipsoids of the proof, and every image is within the next one."""

from pathlib import Path

import numpy as np
import pytest
from command import run
from models.selection import first

from constructions.recurrent import counters
from constructions.recurrent.model import load
from verify.counting.tasks import Task
from verify.frame.decide import certify
from verify.tasks.recurrent.drawing import cycle, ellipsoids, in_next, outline, plane
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.task import Homogeneous

TRAINED = Path(__file__).parents[1] / "data" / "recurrent" / "gru_seed0_stop0.5.safetensors"


@pytest.mark.parametrize("trained", first(1, [False, True]))
def test_every_image_is_in_the_next_ellipsoid(trained):
    model = load(TRAINED) if trained else counters.cycle(m=10)
    found = certify(Homogeneous(model, Task.of("modular", modulus=10), None))
    centres, shapes = ellipsoids(found.extra["invariant"])
    net = Network.of(model)
    for i in range(len(centres)):
        assert np.linalg.norm(in_next(net, centres, shapes, i), axis=1).max() <= 1
    directions, _ = plane(centres)
    border = outline(shapes[0], directions)
    e = np.random.default_rng(0).normal(size=(500, net.size))
    inside = (e / np.linalg.norm(e, axis=1)[:, None]) @ shapes[0].T @ directions.T
    for v in (np.array([1.0, 0.0]), np.array([0.6, -0.8])):  # the shadow's border is as far out as any point, no less
        assert (inside @ v).max() <= (border @ v).max() * 1.001
    figure = cycle(model, 10)
    left, right = figure.axes
    assert [text.get_text() for text in left.texts] != sorted(text.get_text() for text in left.texts)
    assert {text.get_text() for text in left.texts} == {str(n) for n in range(1, 11)} and len(right.patches) == 10


def test_the_command_and_what_has_no_cycle(tmp_path, capsys):
    assert run(capsys, "figure", "cycle", "--modulus", "3", "--out", str(tmp_path / "f.svg"))[0] == 0
    for options in (("--modulus", "2"), ("--weights", str(TRAINED).replace("seed0", "seed2")), ("--modulus", "1")):
        code, out, err = run(capsys, "figure", "cycle", *options, "--out", str(tmp_path / "g.svg"))
        assert code in (2, 3) and out == "" and err.count("\n") == 1 and not (tmp_path / "g.svg").exists()
