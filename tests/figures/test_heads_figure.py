"""The figure of a Count01 model's heads draws what was decided."""

from pathlib import Path

import numpy as np
from command import run

from constructions.count01 import load
from verify.count01.heads.dissect import Question, dissect
from verify.count01.heads.laws import law_named
from verify.figures.heads import heads, pair_matrix

MODEL = str(Path(__file__).parents[1] / "data" / "count01" / "a4_s1.safetensors")


def test_the_panels_hold_the_shares_and_the_line():
    law = law_named("box:3:9:6")
    data = dissect(load(MODEL), Question(law)).data
    matrix = pair_matrix(data)
    assert matrix.shape == (4, 4) and np.array_equal(matrix, matrix.T) and not np.isnan(matrix).any()
    figure = heads(load(MODEL), law, "majority-ones", 1)
    drawn = figure.axes[0].images[0].get_array()
    assert np.array_equal(np.asarray(drawn), matrix)
    points = sum(
        len(line.get_xdata()) for line in figure.axes[1].lines if line.get_label() in ("separates", "does not")
    )
    assert points == 4
    assert any(line.get_label() == "separator" for line in figure.axes[2].lines)


def test_the_command_writes_the_same_bytes_and_refuses(capsys, tmp_path):
    for name in ("a.svg", "b.svg"):
        argv = ("figure", "heads", MODEL, "--law", "box:3:6:3", "--output", str(tmp_path / name))
        assert run(capsys, *argv)[0] == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    for extra in (("--head", "4"), ("--law", "unbounded")):
        code, out, err = run(capsys, "figure", "heads", MODEL, *extra, "--output", str(tmp_path / "c.svg"))
        assert code == 2 and out == "" and err.count("\n") == 1
