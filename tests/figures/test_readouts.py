"""Figures of tokens, readouts and shares: what is drawn is what the weights say."""

from __future__ import annotations

import pytest
import torch
from command import run
from planted import planted

from constructions.errors import BadInput
from constructions.inventory_counting import dot_sftm, lin
from constructions.relation_counting import bos, bos_sftm
from verify.tasks.histogram.confusion import confusion
from verify.tasks.histogram.drawings import mixtures as drawings
from verify.tasks.histogram.drawings.confusion import confusion_matrix
from verify.tasks.histogram.drawings.mixtures import mixtures
from verify.tasks.histogram.drawings.readouts import class_map, cosines, logits_over_counts, singular_values
from verify.tasks.histogram.parameters import fewest_parameters, number_of_parameters
from verify.tasks.histogram.stored import StoredModel


def test_orthonormal_tokens_have_cosine_zero():
    upper, lower = cosines(lin(T=4, L=3)).axes
    drawn = [segment for c in upper.collections for segment in c.get_segments()]
    assert len(drawn) == 4 and all(abs(y) < 1e-9 for segment in drawn for _, y in segment)
    assert lower.collections


def test_the_cosine_with_bos_is_drawn_where_there_is_one():
    upper = cosines(bos(T=4, L=3)).axes[0]
    (drawn,) = [line.get_ydata() for line in upper.get_lines() if line.get_label() == "with BOS"]
    assert drawn.tolist() == pytest.approx([0.5] * 4)  # BOS is the sum of four orthonormal tokens
    assert not [line for line in cosines(lin(T=4, L=3)).axes[0].get_lines() if line.get_label() == "with BOS"]


def test_singular_values_are_those_of_the_first_matrix():
    module = lin(T=4, L=3, d=6, p=5)
    with torch.no_grad():
        module.W_1.zero_()
        module.W_1[[0, 1, 2], [1, 0, 2]] = torch.tensor([3.0, 1.0, 2.0], dtype=module.W_1.dtype)
    axes = singular_values(module).axes[0]
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([3, 2, 1, 0, 0])
    assert axes.get_lines()[1].get_xdata()[0] == 4.5


def test_the_class_map_shows_the_winner():
    module = lin(T=4, L=4)
    axes = class_map(module, (0, 1)).axes[0]
    shown = axes.collections[0].get_array().reshape(241, 241)
    with torch.no_grad():
        logits = torch.tensor([0.0, 0.55, 0, 0]).double() @ module.W_2.double() + module.b_2.double()
    top = axes.get_ylim()[1]
    assert shown[round(0.55 / (top or 1) * 240), 0] == int(logits.argmax()) + 1
    with pytest.raises(BadInput, match="neurons=0,0"):
        class_map(module, (0, 0))


def test_the_right_logit_is_the_highest_of_a_proved_model():
    axes = logits_over_counts(bos_sftm(T=5, L=4), 2).axes[0]
    lines = [line.get_ydata() for line in axes.get_lines()]
    assert all(max(range(4), key=lambda c: lines[c][k]) == k for k in range(4))
    with pytest.raises(BadInput, match="token=5"):
        logits_over_counts(bos_sftm(T=5, L=4), 5)


def test_a_proved_model_has_the_unit_matrix():
    found = confusion(StoredModel.of(bos_sftm(T=5, L=4), None), "partitions")
    axes = confusion_matrix(found, "").axes[0]
    assert axes.images[0].get_array().tolist() == torch.eye(4).tolist()


def test_mixtures_of_inventory_show_the_share_of_the_residuals_token():
    """In each corner the answer of the module itself, where a string has one token beside the residual's."""
    module = dot_sftm(T=4, L=4)
    panels = [axes for axes in mixtures(module, [3, 0, 2]).axes if axes.collections]
    assert [panel.get_title() for panel in panels[:3]] == ["$R = e_{3}$", "$R = e_{0}$", "$R = e_{2}$"]
    for place, panel in enumerate(panels[:3]):
        drawn = panel.collections[0]
        points, counts = drawn.get_offsets().data, drawn.get_array()
        corners = [int(counts[abs(points - corner).sum(1).argmin()]) for corner in ([0, 0], [1, 0], [0.5, 3**0.5 / 2])]
        assert corners == [4 if i == place else 1 for i in range(3)]  # all of one token: its count is L
    with planted(drawings, "_over_triangle", "E[place]", "E[0]"):
        third = mixtures(module, [3, 0, 2]).axes[2].collections[0]
        assert int(third.get_array()[0]) == 4


def test_mixtures_with_bos_depend_on_its_share_alone():
    module = bos_sftm(T=5, L=4)
    lines = mixtures(module, [1, 4, 2]).axes[0].get_lines()
    assert len(lines) == 6 and all(line.get_ydata().tolist() == lines[0].get_ydata().tolist() for line in lines)
    assert sorted(set(lines[0].get_ydata())) == [1, 2, 3, 4] and lines[0].get_ydata()[-1] == 1
    string = torch.tensor([[1, 4, 1, 4]])
    x = module.E[string]
    context = torch.cat([module.e_BOS.expand(1, 1, module.d), x], dim=1)
    share = float(module.mixing(x, context)[0, 0, 0].detach())
    assert lines[0].get_ydata()[round(share * 400)] == int(module.predict(string)[0, 0]) == 2
    for model, tokens in ((module, [1]), (module, [1, 9]), (lin(T=4, L=3), [0, 1]), (lin(T=4, L=3), [0, 0, 1])):
        with pytest.raises(BadInput, match="all different"):
            mixtures(model, tokens)


def test_parameters_are_those_of_the_module():
    assert number_of_parameters("lin", T=5, L=3, d=2, p=4) == 10 + 9 + 8 + 4 + 12 + 3
    by_model = {one.model: one for one in fewest_parameters(6, 3)}
    assert by_model["dot"].parameters <= number_of_parameters("dot", T=6, L=3, d=5, p=1)


@pytest.mark.deep
def test_the_commands_draw(tmp_path, capsys):
    for kind, *rest in (("classes", "--neurons", "1,0"), ("mixtures",)):
        path = tmp_path / f"{kind}.svg"
        code, *_ = run(capsys, "figure", kind, "--model", "lin", "--T", "3", "--L", "3", *rest, "--out", str(path))
        assert code == 0 and path.read_text().count("<svg") == 1
    code, _, err = run(capsys, "figure", "classes", "--model", "dot", "--T", "3", "--L", "3", "--out", str(path))
    assert code == 2 and "p >= 2" in err
