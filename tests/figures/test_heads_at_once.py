"""The figures of random heads and of checkpoints draw the shares that were counted."""

from pathlib import Path

import numpy as np
import pytest
from command import run

from constructions.count01 import load
from verify.tasks.count01.heads.checkpoints import Checkpoint, checkpoints, correlation
from verify.tasks.count01.heads.fitted import drawn_triples
from verify.tasks.count01.heads.random_heads import Initialisation, RandomHeads, random_heads
from verify.tasks.count01.layer_norm.laws import law_named

DATA = Path(__file__).parents[1] / "data" / "count01"
FILES = [str(DATA / f"a4_s{seed}.safetensors") for seed in range(3)]
LAW = law_named("box:3:9:6")


def test_the_histogram_holds_every_head_and_the_shares_are_said():
    how = Initialisation()
    figure = random_heads(how, 40, "box:3:9:6", 2)
    found = RandomHeads.of(*how.draw(40, 2), LAW, 2)
    axes = figure.axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    edges = [bar.get_x() for bar in axes.patches] + [1.0]
    assert heights == np.histogram([float(share) for share in found.accuracies], edges)[0].tolist()
    assert f"perfect: {found.perfect:.1%} (D: 1.3%)" in axes.texts[0].get_text()
    assert f"{found.share_of(found.separable):.1%}" in axes.texts[0].get_text()


def test_points_and_lines_are_the_checkpoints():
    models = [load(file) for file in FILES]
    sample = drawn_triples(law_named("d-train"), 0)
    found = [Checkpoint.of(model, LAW, "majority-ones", sample) for model in models]
    left, right = checkpoints(models, "box:3:9:6", "majority-ones").axes
    x, y = left.lines[0].get_data()
    assert list(x) == [point.weighted for point in found] and list(y) == [float(p.accuracy) for p in found]
    assert f"{correlation(list(x), list(y)):.2f}" in left.get_title()
    assert [len(lines.get_segments()) for lines in right.collections] == [4, 4]
    assert right.collections[0].get_segments()[2][1].tolist() == [2, float(found[1].separation[2])]
    assert right.collections[1].get_linewidths()[1] == pytest.approx(5 * max(found[2].weights[1], 0.02))


def test_pearson_by_its_definition():
    x, y = [0.2, 0.5, 0.9, 0.4], [1.0, 0.3, 0.8, 0.1]
    a, b = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
    assert correlation(x, y) == pytest.approx((a @ b) / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.deep
def test_the_commands_write_the_same_bytes_and_refuse(capsys, tmp_path):
    def out(name):
        return ("--out", str(tmp_path / name))

    for argv in (
        ("random-heads", "--count", "20", "--law", "box:3:9:6"),
        ("checkpoints", *FILES, "--law", "box:3:9:6"),
    ):
        for name in ("a.svg", "b.svg"):
            assert run(capsys, "figure", *argv, *out(name))[0] == 0
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    for wrong in (
        ("random-heads", "--count", "0"),
        ("random-heads", "--init", "he"),
        ("random-heads", "--d", "33"),
        ("random-heads", "--d", "1", "--heads", "1", "--norm"),
        ("random-heads", "--strength", "0"),
        ("random-heads", "--strength", "nan"),
        ("random-heads", "--seed=-1"),
        ("random-heads", "--law", "e-lengths", "--count", "2"),
        ("random-heads", "--law", "unbounded", "--count", "2"),
        ("checkpoints", FILES[0]),
        ("checkpoints", FILES[0], "nothing.safetensors"),
        ("checkpoints", *FILES, "--law", "unbounded"),
    ):
        code, said, err = run(capsys, "figure", *wrong, *out("c.svg"))
        assert code == 2 and said == "" and err.count("\n") == 1, wrong
