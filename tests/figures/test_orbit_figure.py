"""The figure of the orbit: its points are margins and states of runs with 120 digits, after wrong answers, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from models.selection import first
from models.whole_blocks import drawn
from oracles.recurrent_digits import margins
from oracles.residual_blocks import wrong_at
from planted import planted

from constructions.errors import NotKnown
from constructions.recurrent import diagonal
from constructions.recurrent.model import load
from constructions.recurrent.residual import BLOCKS
from tests.clocks import looks
from verify.counting.tasks import Task
from verify.module import followed
from verify.tasks.recurrent.orbit_drawing import orbit, step_of
from verify.tasks.recurrent.task import Homogeneous

LATE = Path(__file__).parents[1] / "data" / "recurrent" / "lstm_seed6_stop0.25.safetensors"
TEN = Task.of("modular", modulus=10)


def points(figure):
    """Lengths and margins that the right panel shows, by the word of the legend."""
    lines = figure.axes[1].lines[1:]
    return {n: y for line in lines for n, y in zip(*line.get_data(), strict=True)}


def test_margins_are_those_of_120_digits_and_the_plane_holds_every_state():
    model = load(LATE)
    due = margins(model, 10, 160)
    problem = Homogeneous(model, TEN, 160)
    figure = orbit(problem, 10, 160)
    shown = points(figure)
    assert sorted(shown) == list(range(1, 161))
    for n, x in enumerate(due, 1):
        assert x - 1e-9 < shown[n] <= x if x > 0 else x <= shown[n] < x + 1e-9
    assert any(x <= 0 for x in due) and due[-1] < 0 and "of 160 answers are right" in figure.axes[1].get_title()
    with torch.no_grad():
        out = model.cell(torch.ones(1, 160, 1).to(model.dtype))[0][0].double().numpy()
    known = followed.along(step_of(problem), 160, looks(10**6).deadline())
    states = np.array([[float(x) for x in here.state] for here in known])
    assert np.abs(states[:, : model.hidden] - out).max() < 1e-3  # torch's run is in float32
    with planted(followed, "_along", "found.append(replace(here", "found.append(replace(Margin(1.0, 1.0)"):
        assert list(points(orbit(problem, 10, 160)).values()) == [1.0] * 160


@pytest.mark.parametrize("kind", first(1, BLOCKS))
def test_whole_blocks_are_wrong_where_the_oracle_has_them(kind):
    task, model = Task.of("modular", modulus=3), drawn(kind, 1, types=1, classes=3, layers=1)
    shown = points(orbit(Homogeneous(model, task, 9), 3, 9))
    assert [n for n, y in sorted(shown.items()) if y <= 0] == wrong_at(model, (0,) * 9, task.answers((0,) * 9))


@pytest.mark.parametrize("model", [diagonal.rotation(m=3, dtype=torch.bfloat16), diagonal.decays(m=3, s=3, N=6)])
def test_other_recurrences_are_drawn_as_they_run(model):
    """Against the module's own run in float64."""
    with torch.no_grad():
        rows = model.double()(torch.zeros(1, 6, dtype=torch.long))[0].numpy()
    due = [row[t % 3] - np.delete(row, t % 3).max() for t, row in enumerate(rows)]
    shown = points(orbit(Homogeneous(model, Task.of("modular", modulus=3), 6), 3, 6))
    assert [shown[n + 1] for n in range(6)] == pytest.approx(due, abs=1e-9)


def test_time_and_what_cannot_be_drawn(tmp_path, capsys):
    problem = Homogeneous(load(LATE), TEN, 50)
    assert len(points(orbit(problem, 10, 50, looks(8)))) < 50
    decay = "--model", "decay", "--length", "30"
    for options in (
        ("--length", "0"),
        ("--length", "20000"),
        ("--weights", "none.pt"),
        ("--activation", "gelu"),
        decay,
    ):
        code, out, err = run(capsys, "figure", "orbit", *options, "--out", str(tmp_path / "g.svg"))
        assert code == 2 and out == "" and err.count("\n") == 1 and not (tmp_path / "g.svg").exists()
        assert "--d " not in err  # which the figure lacks
    assert run(capsys, "figure", "orbit", "--modulus", "3", "--length", "5", "--out", str(tmp_path / "f.svg"))[0] == 0
    assert (tmp_path / "f.svg").stat().st_size > 1000


def test_numbers_beyond_what_axes_show_are_not_drawn():
    model = load(LATE).double()
    with torch.no_grad():
        model.readout.weight *= 1e300
    with pytest.raises(NotKnown, match="1e\\+100 or beyond, so no orbit is drawn"):
        orbit(Homogeneous(model, TEN, 3), 10, 3)
