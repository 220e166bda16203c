"""The figure of a Count01 model's heads draws what was decided."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from command import run
from models.selection import first

from bounds.count01_heads import least_w02
from constructions.count01 import load
from verify.tasks.count01.heads.dissect import HeadsQuestion, dissect
from verify.tasks.count01.heads.drawing import heads, pair_matrix
from verify.tasks.count01.heads.phase import decided
from verify.tasks.count01.heads.ratios import boundary, ratios
from verify.tasks.count01.layer_norm.laws import law_named

MODEL = str(Path(__file__).parents[1] / "data" / "count01" / "a4_s1.safetensors")


def test_the_panels_hold_the_shares_and_the_line():
    law = law_named("box:3:9:6")
    data = dissect(load(MODEL), HeadsQuestion(law)).data
    figure = heads(load(MODEL), law, "majority-ones", 1)
    learned, auc, separable, ratios, outputs, values = figure.axes[:6]
    for axes, measure in ((learned, "learned_accuracy"), (auc, "auc"), (separable, "separable")):
        matrix = pair_matrix(data, measure)
        assert matrix.shape == (4, 4) and np.array_equal(matrix, matrix.T) and not np.isnan(matrix).any()
        assert np.array_equal(np.asarray(axes.images[0].get_array()), matrix)
    assert {len(marks.get_offsets()) for marks in ratios.collections} <= {1, 2, 3}
    assert sum(len(marks.get_offsets()) for marks in ratios.collections) == 4
    assert any(line.get_label() == "separator" for line in outputs.lines)
    assert [text.get_text() for text in values.texts] == ["0", "1", "2"]
    figure.canvas.draw()
    extents = [axes.title.get_window_extent() for axes in (learned, auc, separable, ratios, outputs, values)]
    assert all(figure.bbox.contains(*at.min) and figure.bbox.contains(*at.max) for at in extents)


@pytest.mark.deep
def test_the_phase_diagram_is_the_closed_form_and_its_curves_the_best_thresholds():
    law, values = law_named("box:2:6:5"), [Fraction(-1), Fraction(1), Fraction(1, 3)]
    for w01, least in boundary(values, law):
        near = Fraction(w01).limit_denominator(2500)
        if 0 < least < 1e4:
            assert not decided(near, Fraction(least) * Fraction(999, 1000), values, law)
            assert decided(near, Fraction(least) * Fraction(1001, 1000), values, law)
    left, right = ratios(values, law).axes[1:]
    assert set(left.lines[0].get_ydata()) == {1.0}
    at, shares = right.lines[0].get_data()
    limit = float(least_w02(1, tuple(values), (2, 6, 5)))
    assert all((share == 1) is (w02 > limit) for w02, share in zip(at, shares, strict=True))


@pytest.mark.parametrize("drawn", first(1, ["box:1:2:1", "box:2:3:1", "box:3:4:1", "box:3:6:3"]))
@pytest.mark.deep
def test_the_command_writes_the_same_bytes_and_refuses(capsys, tmp_path, drawn):
    for name in ("a.svg", "b.svg"):
        argv = ("figure", "heads", MODEL, "--law", drawn, "--out", str(tmp_path / name))
        assert run(capsys, *argv)[0] == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    for extra in (("--head", "4"), ("--law", "unbounded")):
        code, out, err = run(capsys, "figure", "heads", MODEL, *extra, "--out", str(tmp_path / "c.svg"))
        assert code == 2 and out == "" and err.count("\n") == 1
    for values, law in (
        ("1,2", "box:0:5:5"),
        ("1,2,x", "box:0:5:5"),
        ("1,2,1e999", "box:0:5:5"),
        ("0,1,2", "box:3:3:1"),
    ):
        argv = ("figure", "ratios", f"--values={values}", "--law", law, "--out", str(tmp_path / "c.svg"))
        code, out, err = run(capsys, *argv)
        assert code == 2 and out == "" and err.count("\n") == 1
    argv = ("figure", "ratios", "--values=-1,1,0", "--law", "box:1:3:2", "--out", str(tmp_path / "c.svg"))
    assert run(capsys, *argv)[0] == 0 and (tmp_path / "c.svg").exists()
