"""Addition modulo P by decoders of the grokking layout: every pair followed again, by operations written anew."""

import json
import math
from pathlib import Path

import pytest
import torch
from models.certificates import honest
from models.grokked import certified, hats
from models.selection import first
from oracles.forged import falsehood, grokked_logits, read
from safetensors.torch import load, load_file, save
from test_checker_dtypes import sha
from test_checker_real import outcome

from constructions.decoder_loaders import from_progress_measures
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import grokking
from verify.checker.layout_program import LayoutProgram, layout_of
from verify.checker.questions import Statement
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE

DATA = Path(__file__).parents[1] / "data/modular"
KINDS = [{}, {"heads": 2, "spare": 1}, {"layers": 2}, {"layers": 3, "heads": 3}, {"noise": 0.25}]


def logits(weights, P, bits=200):
    """What the checker follows on every pair, as floats."""
    tensors = layout_of(weights)
    statement = Statement(LayoutProgram(tensors).of_pairs(P), tensors)
    with grokking.ctx.workprec(bits):
        return {
            tokens[:2]: [*map(float, found.logits[0].values())] for _, tokens, found in statement.decided(bits, None)
        }


@pytest.mark.parametrize("options", first(2, KINDS))
def test_the_layouts_operations_are_those_of_the_model(options):
    """By an oracle that writes them out in plain Python, and by torch in float64."""
    tensors = hats(3, **options)
    found, model = logits(save(tensors), 3), from_progress_measures(tensors)
    plain = grokked_logits(read(save(tensors))[0], 3)
    assert len(found) == 9
    for (a, b), row in found.items():
        by_torch = model(torch.tensor([[a, b, 3]]))[0, -1, :3].detach()
        assert [*map(float, plain[a, b])] == pytest.approx(row, rel=1e-12)
        assert by_torch.tolist() == pytest.approx(row, rel=1e-9)


FAULTS = [  # what one operation of the program leaves out, or does elsewhere; seen with two layers and two heads
    ("graph", "x, 1, n - rows, n)", "x, 1, 0, rows)"),
    ("graph", "[1, rows, d], own, self.attention", "[1, rows, d], own, own) if rows == 1 else (self.attention"),
    ("attention", "math.sqrt(self.d_head)", "math.sqrt(self.d_head + 1)"),
    ("attention", "j <= i for i", "True for i"),
    ("attention", "zip((own, x, x)", "zip((own, self.node('neg', [1, n, self.d], x), x)"),
    ("attention", "side, [1, rows, inner])", "self.node('neg', [rows, H, self.d_head], side), [1, rows, inner])"),
    ("mlp", 'self.node("relu", wide, ', 'self.node("neg", wide, '),
    ("mlp", 'self.stored(f"{block}b_in")', "read"),
    ("mlp", 'self.stored(f"{block}b_out")', "written"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), first(1, FAULTS))
def test_a_fault_in_an_operation_is_seen(name, right, wrong):
    weights = save(hats(3, layers=2, heads=2))
    due = logits(weights, 3)
    with planted(LayoutProgram, name, right, wrong):
        found = logits(weights, 3)
    assert any(row != pytest.approx(due[pair], rel=1e-6) for pair, row in found.items())


def with_digest(weights, text, **changes):
    return json.dumps(json.loads(text) | {"weights_sha256": sha(weights)} | changes)


def test_a_proof_of_other_weights_is_refused():
    """Each pair with the answer 0 is wrong then."""
    _, text = honest("grokked")
    weights = save(hats(3, push=2.0))
    said = with_digest(weights, text, margin=5e-324, tightest=None, margin_per_difference=[None] * 3)
    assert falsehood(weights, said) and outcome(weights, said)[0] == 1


def test_one_input_is_covered_by_a_wrong_one():
    """In a format nothing compared it once."""
    weights, text = honest("grokked, wrong, float32")
    assert outcome(weights, text)[0] == 0
    assert outcome(weights, with_digest(weights, text, inputs_covered="2"))[0] == 1


def test_masks_are_causal_and_wrappers_are_no_names():
    weights, text = honest("grokked")
    tensors, ones = load(weights), torch.ones(3, 3)
    found = {f"_orig_mod.module.{name}": x for name, x in tensors.items()}
    for mask, code in (
        (ones.tril().bool(), 0),
        (ones.tril()[None], 0),
        (ones, NOT_CHECKABLE),
        (ones[0], NOT_CHECKABLE),
    ):
        named = save({**found, "blocks.0.attn.mask": mask})
        assert outcome(named, with_digest(named, text))[0] == code
    twice = save({**tensors, "module.embed.W_E": tensors["embed.W_E"].clone()})
    assert outcome(twice, with_digest(twice, text))[0] == UNREADABLE


def test_weights_that_are_infinite_are_refused():
    """Twice infinity in the readout put every right class infinitely far ahead."""
    weights, text = honest("grokked")
    for name, x in load(weights).items():
        for value in (math.inf, -math.inf):
            for place in {0, x.numel() // 3, x.numel() - 1}:
                other = x.flatten().index_fill(0, torch.tensor([place]), value).reshape(x.shape)
                changed = save({**load(weights), name: other})
                assert outcome(changed, with_digest(changed, text))[0] == 1, (name, place)


def test_tensors_that_do_not_fit_are_refused():
    weights, text = honest("grokked")
    tensors = load(weights)
    for name, x in tensors.items():
        others = [x[..., :-1], x[None], x.flatten()[: 0 if x.ndim == 1 else None], x.long(), x.float()]
        for other in others:
            changed = save({**tensors, name: other.contiguous()})
            assert outcome(changed, with_digest(changed, text))[0] in (1, UNREADABLE, NOT_CHECKABLE), name
        left = save({key: y for key, y in tensors.items() if key != name})
        assert outcome(left, with_digest(left, text))[0] != 0


def test_a_large_mean_of_the_embedding_hides_no_shares():
    """In 53 bits it did: what is true did not hold."""
    tensors = hats(3)
    tensors["embed.W_E"] += torch.tensor([0.0] * 4 + [2.0**38])[:, None]  # which the readout does not see
    for name in ("blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.W_V", "blocks.0.mlp.W_in"):
        tensors[name][..., 4] = 0
    tensors["unembed.W_U"][4] = 0
    weights, text = certified(tensors, 3)
    assert outcome(weights, text) == (0, json.loads(text)["verdict"])


OF_LEAST = [("margin_per_difference", lambda c: [x + 1e-9 for x in c]), ("frequencies", lambda c: c[::-1] + [2])]


@pytest.mark.deep
@pytest.mark.parametrize("file", ["p13_some_pairs", "p13"])
@pytest.mark.parametrize("reading", ["real", "float64", "float32"])
def test_trained_models_hold(file, reading):
    tensors = load_file(DATA / f"{file}.safetensors")
    weights, text = certified(tensors, 13, reading_of(reading))
    c, verdict = json.loads(text), "PROVED" if file == "p13" else "REFUTED"
    assert outcome(weights, text) == (0, verdict)
    for name, change in OF_LEAST:
        assert outcome(weights, json.dumps(c | {name: change(c[name])}))[0] == 1
    shares = {name: x + 1e-8 for name, x in c["frequency_shares"].items()}
    assert outcome(weights, json.dumps(c | {"frequency_shares": shares}))[0] == 1


@pytest.mark.deep
def test_errors_are_kept_of_few_pairs_alone():
    """Balls leave pairs open in 12 bits, and their errors by themselves none; that they are followed has an end."""
    weights, text = honest("grokked, float32")
    c = json.loads(text)
    said = json.dumps(c | {"parameters": c["parameters"] | {"precision": "p12"}, "margin": 2.0**-6, "tightest": None})
    assert outcome(weights, said)[0] == 0
    with planted(grokking, "check", "MOST_KEPT // program.computed**2", "0"):
        assert outcome(weights, said)[0] == NOT_CHECKABLE
