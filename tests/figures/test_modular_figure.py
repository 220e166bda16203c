"""The figure of addition modulo P draws proved margins and a pair's logits."""

import numpy as np
import torch
from command import run

from constructions.modular import clock
from verify.tasks.addition.modular.best import best
from verify.tasks.addition.modular.drawing import logits_of, margins_by_K, modular


def test_margins_are_below_every_pair_and_logits_those_of_the_pair():
    found = margins_by_K(7, 2)
    for k, margin in enumerate(found["clock"], start=1):
        model = clock(P=7, frequencies=best(7, k).frequencies)
        pairs = torch.cartesian_prod(torch.arange(7), torch.arange(7))
        logits = model(torch.cat([pairs, torch.full((49, 1), 7)], dim=1))[:, -1].numpy()
        right = pairs.sum(1).numpy() % 7
        own = logits[np.arange(49), right].copy()
        logits[np.arange(49), right] = -np.inf
        least = (own - logits.max(axis=1)).min()
        assert least - 1e-9 <= margin <= least + 1e-12
    figure = modular(7, (3, 6), 2)
    circle, drawn, margins = figure.axes
    assert np.array_equal(drawn.lines[1].get_ydata(), logits_of(clock(P=7, frequencies=(1, 2)), 7, (3, 6)))
    assert drawn.lines[2].get_xdata()[0] == 2
    assert list(margins.lines[1].get_ydata()) == found["clock"] and min(found["pizza"]) > 0


def test_the_command_draws_and_refuses(capsys, tmp_path):
    out = str(tmp_path / "a.svg")
    assert run(capsys, "figure", "modular", "--P", "5", "--K", "1", "--input", "2,4", "--out", out)[0] == 0
    for extra in (("--P", "8"), ("--P", "4"), ("--input", "1"), ("--input", "1,113"), ("--K", "0"), ("--K", "5")):
        code, printed, err = run(capsys, "figure", "modular", *extra, "--out", out)
        assert code == 2 and printed == "" and err.count("\n") == 1
