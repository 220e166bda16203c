"""Verdicts do not rest on equal bits of rows of a product: the same where every place adds up in its own order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os
if os.environ.get("WEIGHTPROOF_SUMS"):
    from tests import other_sums
    other_sums.install()
import numpy as np, torch
from constructions import inventory_counting, relation_counting
from constructions.decoder import Decoder, initialised
from tests.models.judged import MODELS, NAND
from verify import certify
from verify.arithmetic.balls import Ball
from verify.module import largest, tokens

row, column = np.random.default_rng(0).normal(size=(1, 37)), np.random.default_rng(1).normal(size=(37, 1))
rows = np.tile(row, (6, 1))
found = [(Ball.exact(rows) @ Ball.exact(column)).mid, (torch.from_numpy(rows) @ torch.from_numpy(column)).numpy()]
print([len(np.unique(x)) for x in found])

def decided(name, model, **options):
    found = certify(model, **options)
    print(name, found.verdict.value, found.inputs_covered, found.argument)

OPTIONS = {"count01": {"max_length": 4}, "contextual": {"length": 5}, "circuit": {"circuit": NAND}}
for task, options in OPTIONS.items():
    decided(task, MODELS[task](), **options)
few = None if os.environ["WHOLE"] == "True" else 1
for reading in ("real", "float32")[:few]:
    builders = inventory_counting.lin, relation_counting.dot, relation_counting.bos, inventory_counting.dot_sftm
    for build in builders[:few]:
        decided(build.__name__, build(T=4, L=4, d=4), reading=reading)
        trained = build(T=4, L=4, d=4)
        torch.manual_seed(0)
        for p in trained.parameters():
            p.data += 1e-3 * torch.randn_like(p)
        decided("moved", trained, reading=reading)
for pe in ("ape", "nope")[:few]:
    for heads in (2, 1)[:few]:
        model = Decoder(vocabulary=5, d=8, n_heads=heads, d_mlp=0, positions=8, layernorm=False, pe=pe)
        model = initialised(model, seed=heads).eval()
        decided("decoder", model, inputs=tokens([5] * 5), expected=largest)
"""


def said(whole, **environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, text=True, capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WHOLE": str(whole)} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "whole, lines", [pytest.param(False, 7, marks=pytest.mark.deep), pytest.param(True, 24, marks=pytest.mark.deep)]
)
def test_verdicts_are_the_same_where_sums_are_added_up_in_another_order(whole, lines):
    plain, other = said(whole), said(whole, WEIGHTPROOF_SUMS="other")
    assert min(json.loads(other[0])) >= 3  # six equal rows come out in as many ways as there are orders
    assert plain[1:] == other[1:] and len(other) == lines
    assert any("PROVED" in line for line in other) and any("REFUTED" in line for line in other)
