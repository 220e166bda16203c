"""The figure of lengths: its curves are the shares that the drawn weights score, beside C's points."""

import pytest
import torch
from command import run

from constructions.errors import BadInput
from constructions.inductive_waves import build
from verify.tasks.inductive.drawing import beyond, inductive


def test_the_curve_is_the_share_right_among_the_positions_so_far():
    model = build(54, d_head=128, largest=10.0, positions=101)
    with torch.no_grad():
        right = [int(model(torch.zeros(n, dtype=torch.long))[-1].argmax()) == (n - 1) % 10 for n in range(51, 101)]
    assert beyond(model) == pytest.approx([100 * sum(right[:i]) / i for i in range(1, 51)])
    assert beyond(model)[:4] == [100.0] * 4


def test_the_figure_is_written_and_has_both_panels(tmp_path, capsys):
    path = tmp_path / "f.svg"
    code, *_ = run(capsys, "figure", "inductive", "--d", "16", "--d-head", "64", "--out", str(path))
    assert code == 0 and path.read_text(encoding="utf-8").startswith("<?xml")
    figure = inductive(64, 16)
    left, right = figure.axes
    assert {text.get_text() for text in left.texts} >= {"C, 4L: 41.6", "C, 1L: 27.8"}
    assert len(right.collections) == 3
    curves = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert curves["SinePE, 18 neurons"] == [100.0] * 50
    assert curves["SinePE, 14 neurons"][:30] == [100.0] * 30 and curves["SinePE, 14 neurons"][30] < 100


def test_sizes_that_cannot_be_drawn_are_refused():
    with pytest.raises(BadInput, match="d=15"):
        inductive(64, 15)
    with pytest.raises(BadInput, match="d_head=2"):
        inductive(2, 16)
