"""The figures of a decoder's states draw what the trace of its run holds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from models.selection import first

from constructions.inductive import ape, load, unmarked
from verify.tasks.inductive.states import components, first_token, strongest, variation
from verify.tasks.inductive.traced import principal_components, spread_of_scores, traced

TRAINED = str(Path(__file__).parents[1] / "data" / "inductive" / "modular_rope_l4.safetensors")
LINE = torch.zeros(30, dtype=torch.long)
SMALL = unmarked(K=3, C=3, pe="sine", N=9, positions=9)  # two layers


def test_a_row_for_each_layer():
    model = load(TRAINED)
    layers, axes = traced(model, LINE), first_token(model, LINE).axes
    panels = np.array([panel for panel in axes if panel.get_label() != "<colorbar>"]).reshape(4, 3)
    for layer, (streams, looks, weights) in zip(layers, panels, strict=True):
        points, _ = principal_components(layer.before)
        assert np.allclose(np.stack(streams.lines[0].get_data(), axis=1), points[1:])
        assert [float(x[0]) for x in streams.lines[1].get_data()] == points[0].tolist()
        h = strongest(layer)
        assert np.array_equal(np.asarray(looks.images[0].get_array()), layer.attention[h])
        assert layer.attention[h, 1:, 0].mean() == layer.attention[:, 1:, 0].mean(axis=1).max()
        for line, attention in zip(weights.lines, layer.attention, strict=True):
            assert line.get_ydata().tolist() == attention[1:, 0].tolist()


def test_components_are_coloured_by_position():
    model = ape(task="modular", N=30, m=10, positions=30)
    output, queries, neurons = components(model, LINE, 10).axes[:3]
    layer = traced(model, LINE)[0]
    for panel, states in ((output, layer.after), (queries, layer.queries), (neurons, layer.hidden)):
        dots = panel.collections[0]
        assert np.allclose(dots.get_offsets(), principal_components(states)[0])
        assert np.asarray(dots.get_array()).tolist() == [n % 10 for n in range(1, 31)]


def test_variation_is_the_spread():
    model = load(TRAINED)
    found = spread_of_scores(model)
    for h, panel in enumerate(variation(model).axes[: len(found)]):
        assert np.array_equal(np.asarray(panel.images[0].get_array()), found[h], equal_nan=True)


@pytest.mark.deep
@pytest.mark.parametrize("kind", first(1, ["first-token", "components", "variation"]))
def test_no_words_are_cut_off_and_the_bytes_are_the_same(capsys, tmp_path, kind):
    for name in ("a.svg", "b.svg"):
        argv = (
            "figure",
            kind,
            "--task",
            "selective",
            "--pe",
            "sine",
            "--positions",
            "12",
            "--out",
            str(tmp_path / name),
        )
        assert run(capsys, *argv)[0] == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    figure = {
        "first-token": lambda: first_token(SMALL, LINE[:8]),
        "components": lambda: components(SMALL, LINE[:8], 7),
        "variation": lambda: variation(SMALL),
    }[kind]()
    figure.canvas.draw()
    words = [text for axes in figure.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    extents = [text.get_window_extent() for text in words if text.get_text()]
    assert all(figure.bbox.contains(*at.min) and figure.bbox.contains(*at.max) for at in extents)


def test_what_cannot_be_drawn_is_refused_in_one_line(capsys, tmp_path):
    for wrong in (
        ("first-token",),
        ("first-token", "--task", "modular", "--weights", TRAINED),
        ("first-token", "--weights", "nothing.safetensors"),
        ("first-token", "--weights", TRAINED, "--token", "7"),
        ("first-token", "--weights", TRAINED, "--length", "1"),
        ("first-token", "--weights", TRAINED, "--length", "100000"),
        ("first-token", "--weights", TRAINED, "--types", "3"),
        ("components", "--weights", TRAINED, "--modulus", "1"),
        ("components", "--task", "vanilla", "--pe", "ape"),
        ("variation", "--task", "selective", "--bos"),
        ("variation", "--task", "modular", "--pe", "ape", "--positions", "2000"),
        ("components", "--task", "modular", "--pe", "rope"),
    ):
        code, said, err = run(capsys, "figure", *wrong, "--out", str(tmp_path / "c.svg"))
        assert code == 2 and said == "" and err.count("\n") == 1, wrong
