"""Figures: what they draw is compared with enumeration, and their files are the same from run to run."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from models.random_models import random_model
from models.selection import every, first
from oracles.histogram import weights_of

from constructions import inventory_counting, relation_counting
from constructions.circuits.files import read_circuit
from constructions.contextual_counting import build
from constructions.errors import BadInput
from constructions.histogram import MODELS, HistogramTransformer
from verify.frame.certificate import Verdict
from verify.report.style import rendered
from verify.tasks.circuit.drawing import tape
from verify.tasks.contextual.drawing import contextual_quantities
from verify.tasks.contextual.task import parse
from verify.tasks.histogram import look
from verify.tasks.histogram.activations import activation_ranges, thresholds
from verify.tasks.histogram.drawings import histogram as figures
from verify.tasks.histogram.drawings.phase import PANELS, phase
from verify.tasks.histogram.phase import corners, excluded
from verify.tasks.histogram.precision.drawing import COLOURS, precision
from verify.tasks.histogram.proof import certify

CIRCUITS = Path(__file__).parents[1] / "data" / "circuits"


# ---- what is drawn is true


def enumerated_activations(module):
    """Least and greatest value of each neuron per token and count, from every sequence, in numpy."""
    w, T, L = weights_of(module), module.T, module.L
    sequences = np.array(np.meshgrid(*[range(T)] * L)).reshape(L, -1).T
    x = w["E"][sequences]
    context = x
    if module.model.startswith("bos"):
        context = np.concatenate([np.broadcast_to(w["e_BOS"], (len(x), 1, x.shape[-1])), x], axis=1)
    scores = w.get("A")
    if scores is None:
        scores = (x @ w["W_Q"]) @ (context @ w["W_K"]).transpose(0, 2, 1) / np.sqrt(module.d)
    if module.model.endswith("+sftm"):
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores = scores / scores.sum(-1, keepdims=True)
    hidden = np.maximum((x + scores @ context) @ w["W_1"] + w["b_1"], 0)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    low, high = np.full((T, L, module.p), np.inf), np.full((T, L, module.p), -np.inf)
    for t in range(T):
        for k in range(1, L + 1):
            cell = hidden[(sequences == t) & (counts == k)]
            low[t, k - 1], high[t, k - 1] = cell.min(0), cell.max(0)
    return low, high


def test_the_ranges_are_those_of_enumeration():
    kinds = set()
    for seed in range(90):
        module = random_model(seed)
        kinds.add(module.model)
        low, high = activation_ranges(module)
        least, most = enumerated_activations(module)
        scale = 1 + np.abs(most).max()
        assert (low <= least + 1e-12 * scale).all() and (high >= most - 1e-12 * scale).all(), seed
        if not module.is_linear or len(torch.unique(module.A)) == 1:
            assert np.abs(low - least).max() < 1e-9 * scale and np.abs(high - most).max() < 1e-9 * scale, seed
    assert kinds == set(MODELS)


def test_thresholds_against_the_lines():
    g = np.random.default_rng(0)
    for _ in range(50):
        slopes, intercepts = g.integers(-3, 4, 6).astype(float), g.integers(-3, 4, 6).astype(float)
        winners, crossings = thresholds(slopes, intercepts)
        assert crossings == sorted(crossings) and len(winners) == len(crossings) + 1
        ends = [0.0, *crossings, max([0.0, *crossings]) + 10]
        for c, a, b in zip(winners, ends, ends[1:], strict=False):
            x = (Fraction(a) + Fraction(b)) / 2
            values = [Fraction(s) * x + Fraction(i) for s, i in zip(slopes, intercepts, strict=True)]
            assert values[c] == max(values)


def test_the_construction_reads_between_its_thresholds():
    """Every range of the construction lies between the thresholds of its own count."""
    for module in (inventory_counting.dot_sftm(T=5, L=6), relation_counting.bos_sftm(T=5, L=6)):
        low, high = activation_ranges(module)
        slopes, intercepts = (getattr(module, name).detach().double().numpy() for name in ("W_2", "b_2"))
        winners, crossings = thresholds(slopes[0], intercepts)
        ends = [-np.inf, *crossings, np.inf]
        for place, c in enumerate(winners):
            assert ends[place] < low[0, c, 0] <= high[0, c, 0] < ends[place + 1]


@pytest.mark.parametrize("kind", MODELS)
def test_the_attention_matrix_is_the_module_s(kind):
    module = HistogramTransformer(kind, T=4, L=5, d=3, p=2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    tokens = [3, 1, 1, 0, 2]
    x = module.E[torch.tensor(tokens)]
    context = torch.cat([module.e_BOS[None], x]) if module.has_bos else x
    assert np.allclose(look.mixing_matrix(module, tokens), module.mixing(x, context).detach().numpy(), atol=1e-5)
    axes = figures.attention(module, tokens).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [str(t) for t in tokens]
    numbers = np.reshape([float(text.get_text().replace("~", "")) for text in axes.texts], (5, -1))
    exact = look.mixing_matrix(module, tokens)
    assert np.allclose(numbers[numbers != 0], exact[numbers != 0], rtol=0.06)
    assert (np.abs(exact[numbers == 0]) < 0.005).all()


@pytest.mark.parametrize(("T", "L"), first(1, [(8, 4), (15, 10)]))
def test_nothing_that_is_proved_lies_in_a_region_that_is_called_impossible(T, L):
    for model in MODELS:
        for region in excluded(model, T, L):
            within = [c for c in corners(model, T, L) if (region.d or c.d) >= c.d and (region.p or c.p) >= c.p]
            assert not within, (model, region)


def test_the_corners_are_proved():
    """Each corner, and one that is larger by zero padding, is PROVED; nothing smaller is drawn as proved."""
    found = {model: corners(model, 8, 4) for model in ("dot", "bos+sftm")}
    assert {(c.d, c.p) for c in found["dot"]} == {(7, 1)} and {(c.d, c.p) for c in found["bos+sftm"]} == {(3, 1)}
    assert certify(relation_counting.dot(T=8, L=4, d=11, p=5)).verdict is Verdict.PROVED


@pytest.mark.deep
def test_the_corners_of_the_page():
    assert all(c.d < 32 for model in MODELS for c in corners(model, 32, 10))  # docs/figures.md says so
    assert {(c.d, c.p) for c in corners("lin", 32, 10)} == {(29, 32)}
    assert {(c.d, c.p) for c in corners("dot", 32, 10)} == {(31, 1), (8, 32)}


def test_the_phase_diagram_draws_the_corners():
    figure = phase(8, 4)
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert set(panels) == {model for row in PANELS for model in row} == set(MODELS)
    for model, axes in panels.items():
        drawn = {
            (float(line.get_ydata()[0]), float(line.get_xdata()[0])) for line in axes.lines if line.get_marker() == "o"
        }
        assert drawn == {(c.d, c.p) for c in corners(model, 8, 4)}


@pytest.mark.parametrize(
    ("name", "bits"), [("aiger/halfadder.aag", "11"), ("aiger/halfadder.aag", "01"), ("iscas85/c17.bench", "10110")]
)
def test_the_tape_holds_the_circuit_s_values(name, bits):
    circuit = read_circuit(CIRCUITS / name)
    axes = tape(circuit, [int(b) for b in bits]).axes[0]
    tokens = [text.get_text() for text in axes.texts]
    assert tokens[: len(bits)] == list(bits)
    outputs = circuit.outputs_of([int(b) for b in bits])
    assert axes.get_title().endswith(
        ", ".join(f"{n} = {v}" for (n, _), v in zip(circuit.outputs, outputs, strict=True))
    )
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    for (output, _), value in zip(circuit.outputs, outputs, strict=True):
        (place,) = (i for i, text in enumerate(names) if text.split()[-1] == output)
        assert tokens[place] == str(value)


@pytest.mark.parametrize("bias", ["BOS", "]", "0"])
@pytest.mark.parametrize("keys", ["onehot", "convex"])
def test_contextual_positions_and_attention_are_those_of_the_string(bias, keys):
    """Counted by hand: the position from the delimiters so far, the attention from the ones and the bias tokens."""
    string = "01[0110][101]0[1]1[]0"
    tokens = parse(string)
    positions, attention, counts = contextual_quantities(
        build(len(tokens), 4, bias=bias, keys=keys, zeros=string.count("0") if bias == "0" else None), tokens
    )
    has_bos = bias == "BOS"
    assert counts == [2, 2, 1, 0]
    for i, _ in enumerate(string):
        opened, closed = string[: i + 1].count("["), string[: i + 1].count("]")
        exact = (opened - closed) / (has_bos + opened + closed) if has_bos + opened + closed else 0.0
        assert positions[i + has_bos] == pytest.approx(exact, abs=1e-9)
    shown = ["B"] * has_bos + list(string)
    for r in range(4):
        read = [i for i, t in enumerate(shown) if t == ("B" if has_bos else bias)]
        read += [i for i, t in enumerate(shown) if t == "1" and shown[:i].count("[") == r + 1 > shown[:i].count("]")]
        assert attention[r, read] == pytest.approx(1 / len(read), abs=0.02)


def test_the_diagram_of_d_and_bits_draws_every_verdict():
    verdicts = [["REFUTED", "UNKNOWN", None], ["PROVED", "PROVED", "PROVED"]]
    axes = precision("p", [4, 5], [3, 4, 5], verdicts).axes[0]
    (image,) = axes.images
    names = list(COLOURS)
    drawn = [[names[int(value)] for value in row] for row in np.asarray(image.get_array()).T]
    assert drawn == [["REFUTED", "UNKNOWN", "not built"], ["PROVED", "PROVED", "PROVED"]]
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_the_margins_are_the_certificate_s():
    certificate = certify(relation_counting.bos_sftm(T=6, L=5))
    axes = figures.margins(certificate).axes[0]
    assert tuple(axes.lines[0].get_ydata()) == certificate.margin_per_count


# ---- files


JOBS = {
    "attention": ["--model", "bos", "--T", "4", "--input", "0,1,0,2"],
    "activation": ["--model", "dot+sftm", "--T", "4", "--L", "5"],
    "margin": ["--model", "lin", "--T", "4", "--L", "5"],
    "contextual": ["--input", "01[0110][101]0[1]1[]0"],
    "lines": ["--length", "16", "--regions", "2"],
    "encoder": ["--length", "16", "--pe", "rope"],
    "phase": ["--T", "4", "--L", "3"],
    "tape": [str(CIRCUITS / "aiger/halfadder.aag"), "--input", "10"],
}


@pytest.mark.parametrize("kind", first(1, ["margin", *sorted(JOBS.keys() - {"margin"})]))
def test_every_kind_writes_svg_and_png(capsys, tmp_path, kind):
    contents = []
    for name in ("a.svg", "b.svg", "c.png", "d.pdf", "e.pdf"):
        done = run(capsys, "figure", kind, *JOBS[kind], "--out", str(tmp_path / name))
        assert done == (0, "", f"wrote {tmp_path / name}\n")
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1] and b"<dc:date>" not in contents[0]
    assert ET.fromstring(contents[0]).tag.endswith("svg")
    assert contents[2].startswith(b"\x89PNG") and len(contents[2]) > 5000
    assert contents[3] == contents[4] and contents[3].startswith(b"%PDF") and b"/CreationDate" not in contents[3]
    assert b"/FontFile2" in contents[3] and b"/Type3" not in contents[3]  # fonts are embedded, as TrueType
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svg", "b.svg", "c.png", "d.pdf", "e.pdf"]


def test_size_resolution_and_title_are_as_asked(capsys, tmp_path):
    from matplotlib.image import imread

    plain = ("figure", "margin", *JOBS["margin"], "--out")
    run(capsys, *plain, str(tmp_path / "a.png"), "--size", "3.25x2.4in", "--dpi", "200")
    assert imread(tmp_path / "a.png").shape[:2] == (480, 650)
    run(capsys, *plain, str(tmp_path / "b.svg"), "--size", "80x60mm", "--no-title")
    root = ET.parse(tmp_path / "b.svg").getroot()
    assert [float(root.get(side).removesuffix("pt")) for side in ("width", "height")] == pytest.approx(
        [226.77, 170.08], 1e-4
    )
    run(capsys, *plain, str(tmp_path / "c.svg"), "--size", "80x60mm")
    assert len((tmp_path / "b.svg").read_bytes()) < len((tmp_path / "c.svg").read_bytes())


@pytest.mark.parametrize("size", first(1, ["3.25x2.4in", "80x60mm"]))
@pytest.mark.parametrize("kind", ["activation", "margin"])
def test_titles_and_names_fit_into_the_column_of_a_paper(kind, size):
    from verify.commands.cli import build_parser
    from verify.commands.figure import draw
    from verify.report.style import Look, style

    with style():
        figure = draw(build_parser().parse_args(["figure", kind, *JOBS[kind], "--out", "x.svg"]))
        rendered(figure, "png", Look.of(size, None, False))
        page = figure.bbox
        for axes in figure.axes:
            for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
                box = text.get_window_extent()
                assert not text.get_text() or (box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1), text.get_text()


@pytest.mark.deep
def test_another_process_writes_the_same_bytes(capsys, tmp_path):
    """Sets of strings come in another order there."""
    options = ["figure", "margin", *JOBS["margin"], "--out"]
    command = [sys.executable, "-m", "verify.commands.cli", *options, "there.svg"]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": "1"})
    assert run(capsys, *options, str(tmp_path / "here.svg"))[0] == 0
    assert (tmp_path / "there.svg").read_bytes() == (tmp_path / "here.svg").read_bytes()


@pytest.mark.parametrize("kind", every(4, JOBS))
def test_axes_are_named_and_no_names_overlap(kind):
    from argparse import Namespace

    from verify.commands.cli import build_parser
    from verify.commands.figure import draw
    from verify.report.style import style

    args: Namespace = build_parser().parse_args(["figure", kind, *JOBS[kind], "--out", "x.svg"])
    with style():
        figure = draw(args)
        rendered(figure, "png")
        named = [axes for axes in figure.axes if axes.get_xlabel() or axes.get_ylabel()]
        assert named and any(axes.get_xlabel() for axes in named)
        assert kind == "tape" or any(axes.get_ylabel() for axes in named)
        for axes in figure.axes:
            boxes = [t.get_window_extent() for t in axes.get_xticklabels() if t.get_text() and not t.get_rotation()]
            assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]), kind


@pytest.mark.parametrize(
    "argv",
    every(3, [
        ["margin", *JOBS["margin"], "--out", "figure.jpg"],
        ["margin", *JOBS["margin"], "--out", "x.png", "--size", "3.25"],
        ["margin", *JOBS["margin"], "--out", "x.png", "--size", "3x2"],
        ["margin", *JOBS["margin"], "--out", "x.png", "--size", "0x2in"],
        ["margin", *JOBS["margin"], "--out", "x.png", "--size", "nanxinfin"],
        ["margin", *JOBS["margin"], "--out", "x.png", "--dpi", "0"],
        ["margin", *JOBS["margin"], "--out", "x.png", "--dpi", "99999"],
        ["margin", *JOBS["margin"], "--out", "no/where.svg"],
        ["margin", "--model", "bos", "--T", "4", "--L", "3", "--as-printed", "--out", "x.svg"],
        ["margin", "--out", "x.svg"],
        ["attention", "--model", "bos", "--T", "4", "--input", "0,4", "--out", "x.svg"],
        ["attention", "--model", "bos", "--T", "4", "--input", "0,-1", "--out", "x.svg"],
        ["attention", "--model", "lin", "--T", "4", "--L", "3", "--input", "0,1", "--out", "x.svg"],
        ["attention", "--model", "bos", "--T", "4", "--input", "", "--out", "x.svg"],
        ["activation", *JOBS["activation"], "--neuron", "4", "--out", "x.svg"],
        ["contextual", "--input", "[1", "--out", "x.svg"],
        ["contextual", "--input", "", "--out", "x.svg"],
        ["contextual", "--input", "0" * 81, "--out", "x.svg"],
        ["contextual", "--input", "[1]", "--regions", "0", "--out", "x.svg"],
        ["lines", "--length", "8", "--regions", "4", "--out", "x.svg"],
        ["lines", "--length", "600", "--out", "x.svg"],
        ["encoder", "--length", "9999", "--pe", "rope", "--out", "x.svg"],
        ["phase", "--T", "1", "--out", "x.svg"],
        ["phase", "--L", "0", "--out", "x.svg"],
        ["tape", str(CIRCUITS / "aiger/halfadder.aag"), "--input", "1", "--out", "x.svg"],
        ["tape", str(CIRCUITS / "iscas85/c432.bench"), "--input", "0" * 36, "--out", "x.svg"],
        ["tape", "nowhere.bench", "--input", "0", "--out", "x.svg"],
    ]),
)  # fmt: skip
def test_bad_input_is_one_line(capsys, tmp_path, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "figure", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1 and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_line_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(capsys, "figure", "phase", "--out", str(tmp_path / "x.svg"))
    assert code == 2 and "weightproof[figures]" in err and err.count("\n") == 1


# ---- notebooks


class Tags(HTMLParser):
    """Every element is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def well_formed(html):
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    return tags.seen


def test_notebooks_show_certificates_models_and_circuits():
    module = relation_counting.bos(T=4, L=3)
    certificate = certify(module, claim="A-4.1")
    html = certificate._repr_html_()
    assert "PROVED" in html and "A-4.1" in html and str(certificate.inputs_covered) in html
    assert well_formed(html).count("div") == 3  # a bar for each count
    html = module._repr_html_()
    entries = sum(parameter.numel() for parameter in module.parameters())
    assert well_formed(html).count("rect") == entries and "W_2" in html
    refuted = certify(relation_counting.bos(T=4, L=3, as_printed=True))._repr_html_()
    assert "REFUTED" in refuted and "tokens = " in refuted and well_formed(refuted)
    circuit = read_circuit(CIRCUITS / "iscas85/c17.bench")
    html = circuit._repr_html_()
    assert well_formed(html).count("tr") == 1 + len(circuit.gates) and "NAND" in html
    with torch.no_grad():
        module.E[0, 0] = float("nan")
    assert "#999999" in module._repr_html_()
    assert json.loads(certificate.to_json())["verdict"] == "PROVED"


def test_notebooks_show_figures():
    figure = figures.margins(certify(relation_counting.bos(T=4, L=3)))
    assert ET.fromstring(figure._repr_svg_()).tag.endswith("svg")


def test_large_matrices_are_named_only():
    html = HistogramTransformer("dot", T=100, L=3, d=100, p=1)._repr_html_()
    assert "100 x 100" in html and well_formed(html).count("rect") < 1000


def test_a_refuted_model_has_no_margins_to_draw():
    with pytest.raises(BadInput, match="REFUTED"):
        figures.margins(certify(relation_counting.bos(T=4, L=3, as_printed=True)))
