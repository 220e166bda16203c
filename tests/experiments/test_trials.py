"""What an experiment says of its models is what enumeration says of the weights that it keeps."""

import dataclasses
import hashlib
import json
import re
from fractions import Fraction

import pytest
import torch
from command import run

from constructions.errors import BadInput
from constructions.training import Recipe, train
from verify.frame.experiment import GridSize, Result, Verdict
from verify.tasks.addition.modular import experiments as modular
from verify.tasks.contextual import experiments as contextual
from verify.tasks.count01 import halving
from verify.tasks.count01 import noisy_majority as count01
from verify.tasks.histogram import trained_models as histogram
from verify.tasks.recurrent import experiments as recurrent


def shorter(monkeypatch, room, **fields):
    """Trials of a room are trained by a recipe with other fields."""
    usual = room.recipe
    monkeypatch.setattr(room, "recipe", lambda *of: dataclasses.replace(usual(*of), **fields))


def kept(tmp_path, trained):
    place = tmp_path / "weights.safetensors"
    place.write_bytes(trained.weights)
    return str(place)


@pytest.mark.parametrize(
    ("model", "steps"), [pytest.param("dot", 60, marks=pytest.mark.deep), ("lin", 60), ("bos+sftm", 200)]
)
def test_histogram_shares_are_those_of_all_sequences(tmp_path, monkeypatch, model, steps):
    from constructions import checkpoint

    shorter(monkeypatch, histogram, steps=steps)
    trained = histogram.HistogramTrial(GridSize.LAPTOP, model, 4, 4, 1).run()
    module = checkpoint.load(kept(tmp_path, trained)).double()
    T, L = histogram.ALPHABET[GridSize.LAPTOP]
    x = torch.cartesian_prod(*[torch.arange(T)] * L)
    due = (x[:, :, None] == x[:, None, :]).sum(-1) - 1
    right = module(x).argmax(-1) == due
    low, high = trained.result.exact[histogram.UNIFORM]
    assert low == high == Fraction(int(right.sum()), right.numel())
    case = trained.result.wrong
    at = case["position"]
    assert module(torch.tensor([case["input"]]))[0, at].argmax() + 1 == case["predicted"] != case["expected"]
    if model != "lin":
        own = trained.result.exact[histogram.OWN]
        drawn, classes = histogram.drawn(T, L, 40_000, torch.Generator().manual_seed(5))
        seen = float((module(drawn).argmax(-1) == classes).double().mean())
        assert float(own[0]) - 0.02 < seen < float(own[1]) + 0.02
    else:
        assert histogram.OWN not in trained.result.exact
    assert trained.training["steps"] == steps and "torch" in trained.training["versions"]


def test_frozen_embeddings_stay(tmp_path, monkeypatch):
    from constructions import checkpoint

    shorter(monkeypatch, histogram, steps=5)
    trial = histogram.HistogramTrial(GridSize.LAPTOP, "bos", 3, 2, 0, is_frozen=True)
    before, after = histogram.initialised(trial), checkpoint.load(kept(tmp_path, trial.run()))
    assert torch.equal(before.E, after.E) and torch.equal(before.e_BOS, after.e_BOS)
    assert not torch.equal(before.W_1, after.W_1)


@pytest.mark.deep
def test_modular_shares_are_those_of_all_pairs(tmp_path, monkeypatch, capsys):
    shorter(monkeypatch, modular, steps=150)
    trial = modular.ModularTrial(GridSize.LAPTOP, 60, 0)
    trained = trial.run()
    code, out, _ = run(capsys, "modular", "--P", "23", "--weights", kept(tmp_path, trained), "--json")
    said = json.loads(out)
    low, high = trained.result.exact[modular.PAIRS]
    assert low == high == Fraction(int(said["counts"]["right"]), 23**2) and 0 < low < 1
    from constructions.decoder import from_progress_measures
    from constructions.files import read_tensors

    module = from_progress_measures(read_tensors(kept(tmp_path, trained), "weightproof")[0]).double()
    tokens, due, order = modular.pairs(trial)
    answers = module(tokens)[:, -1].argmax(-1)
    assert int((answers == due).sum()) == low * 23**2 and code == 1
    held_out = order[23**2 * 60 // 100 :]
    assert trained.result.sampled == (int((answers == due)[held_out].sum()), len(held_out))


@pytest.mark.deep
@pytest.mark.parametrize(
    "trial",
    [
        count01.NoisyMajorityTrial(GridSize.LAPTOP, 4, 2, 1e-2, 0),
        halving.HalvingTrial(GridSize.LAPTOP, "masked", 8, 4, 1),
        halving.HalvingTrial(GridSize.LAPTOP, "svc", 8, 4, 1),
    ],
    ids=lambda trial: trial.name,
)
def test_the_share_of_strings_is_that_of_all_counts(tmp_path, monkeypatch, trial):
    """Every count of every length is run in float64; its strings are counted by factorials."""
    from math import factorial

    from constructions import count01 as models

    shorter(monkeypatch, count01, steps=60)
    monkeypatch.setattr(halving, "LEARNT", 0.6)
    trained = trial.run()
    module = models.load(kept(tmp_path, trained)).double()
    missed, ways = Fraction(0), [factorial(k) for k in range(201)]
    for length in range(151, 201):
        n = torch.tensor([(a, b, length - a - b) for a in range(length + 1) for b in range(length + 1 - a)])
        said = module.logits_at_counts(count01.counts_of(n, models.EQUALS).double(), models.EQUALS).argmax(-1)
        wrong = n[said != count01.due_of(n)].tolist()
        strings = sum(ways[length] // (ways[a] * ways[b] * ways[c]) for a, b, c in wrong)
        missed += Fraction(strings, 3**length) / 50
    low, high = trained.result.exact[count01.LAW]
    assert low == high == 1 - missed < 1 and trained.result.verdict is Verdict.REFUTED
    case = trained.result.wrong
    n = torch.tensor([[int(count) for count in re.findall(r"= (\d+)", case["input"])]])
    assert case["input"] == "with n0 = {}, n1 = {}, n2 = {}".format(*n[0].tolist()) and 151 <= n.sum() <= 200
    said = module.logits_at_counts(count01.counts_of(n, models.EQUALS).double(), models.EQUALS).argmax()
    assert models.TOKENS[int(said)] == case["predicted"] != case["expected"] == models.TOKENS[int(count01.due_of(n))]


@pytest.mark.parametrize(("pe", "slope"), [("alibi", 0.5), pytest.param("ape", 0.0, marks=pytest.mark.deep)])
def test_shares_of_position_codes_are_those_of_all_strings(tmp_path, monkeypatch, pe, slope):
    """Every valid string is written in plain Python and run in float64, whole."""
    from oracles.contextual import counts, valid_strings

    from constructions.contextual import positional

    shorter(monkeypatch, contextual, steps=40, batch=16)
    monkeypatch.setattr(contextual, "SIZES", {GridSize.LAPTOP: (6, 2)})
    monkeypatch.setattr(contextual, "SHORT", {GridSize.LAPTOP: 5})
    trained = contextual.PositionTrial(GridSize.LAPTOP, pe, slope, 0).run()
    module = positional.load(kept(tmp_path, trained)).double()
    for law, N, M in (("both regions", 6, 2), (contextual.SHORTER, 5, 2), (contextual.FEWER, 6, 1)):
        texts = [text for text in valid_strings(N, M, N) if text.count("[") == M]
        said = module(torch.tensor([["01[]".index(c) for c in text] for text in texts])).argmax(-1)[:, :M]
        share = Fraction(int((said == torch.tensor([counts(text, M) for text in texts])).sum()), len(texts) * M)
        assert trained.result.exact[law] == (share, share) and (N != 6 or 0 < share < 1)
    case = trained.result.wrong
    assert trained.result.verdict is Verdict.REFUTED and case["expected"] != case["predicted"]
    assert bool(module.slope == slope) and bool(module.positions.any()) is (pe == "ape") and not module.W_3.any()


@pytest.mark.parametrize(("kind", "stop"), [("lstm", 2.0), pytest.param("rnn", 0.5, marks=pytest.mark.deep)])
def test_networks_are_judged_as_the_command_judges_their_files(tmp_path, capsys, kind, stop):
    trained = recurrent.CounterTrial(GridSize.LAPTOP, kind, 16, stop, 0).run()
    argv = ("inductive", "--task", "modular", "--model", kind, "--weights", kept(tmp_path, trained), "--json")
    said = json.loads(run(capsys, *argv)[1])
    assert said["verdict"] == trained.result.verdict.value != "UNKNOWN"
    assert said["counterexample"] == trained.result.wrong
    assert trained.result.sampled[1] == 100 and (trained.result.sampled[0] == 100) == bool(trained.result.exact)


def test_a_training_is_the_same_again_and_its_best_state_is_kept():
    def trained(score=None):
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 1)
        seen = []

        def loss(g):
            x = torch.randn(8, 3, generator=g)
            return (module(x) - x.sum(1, keepdim=True)).square().mean()

        def noted():
            seen.append(module.weight.detach().clone())
            return float(len(seen) == 2)

        record = train(module, loss, Recipe("Adam", 0.05, 50, 8), 3, score=noted if score else None, every=10)
        return hashlib.sha256(module.weight.detach().numpy().tobytes()).hexdigest(), record, seen, module

    first, again = trained(), trained()
    assert first[0] == again[0] and first[1] == again[1] and first[1].best_step is None
    _, record, seen, module = trained(score=True)
    assert record.best_step == 20 and len(seen) == 5 and torch.equal(module.weight, seen[1])


def test_a_training_ends_below_its_loss_and_refuses_what_makes_no_sense():
    line = torch.nn.Linear(1, 1, bias=False)
    recipe = Recipe("AdamW", 0.1, 1000, 1, schedule="cosine", clip=1.0, stop=1e-3)
    record = train(line, lambda g: (line(torch.ones(1, 1)) - 2).square().sum(), recipe, 0)
    assert record.loss < 1e-3 and record.steps < 1000
    for wrong in ({"optimizer": "LBFGS"}, {"schedule": "linear"}, {"steps": 0}, {"batch": 0}):
        with pytest.raises(BadInput):
            Recipe(**({"optimizer": "Adam", "lr": 1e-3, "steps": 1, "batch": 1} | wrong))


@pytest.mark.parametrize(
    ("strategy", "left"),
    [("svc", 1), *(pytest.param(*each, marks=pytest.mark.deep) for each in (("normal", 4), ("masked", 1)))],
)
@pytest.mark.deep
def test_masked_heads_stay_masked(tmp_path, monkeypatch, strategy, left):
    """Halved as soon as it is validated, a model of four heads ends with one; what it adds is all that is added."""
    from constructions.count01 import EQUALS, load, with_heads

    shorter(monkeypatch, count01, steps=90)
    monkeypatch.setattr(halving, "LEARNT", 0.0)
    trained = halving.HalvingTrial(GridSize.LAPTOP, strategy, 8, 4, 3).run()
    module = load(kept(tmp_path, trained))
    acting = [h for h in range(4) if module.W_O[h].any()]
    assert len(acting) == trained.training["heads left"] == left
    n = count01.drawn(1, 20, 50, torch.Generator().manual_seed(0))
    logits = [
        each.logits_at_counts(count01.counts_of(n, EQUALS), EQUALS) for each in (module, with_heads(module, acting))
    ]
    assert torch.allclose(*logits, atol=1e-5)


def test_longer_training_is_more_steps_and_another_trial():
    usual = contextual.PositionTrial(GridSize.LAPTOP, "rope", 0.0, 0)
    longer = next(each for each in contextual.longer_trials(GridSize.LAPTOP, 1) if each.pe == "rope")
    assert longer.how == dataclasses.replace(usual.how, steps=6000) and longer.described != usual.described
    assert {each.pe for each in contextual.longer_trials(GridSize.LAPTOP, 1)} == {"nope", "ape", "rope", "alibi"}
    whole, first, second, shorter, fewer = contextual.numbers(GridSize.LAPTOP).values()
    assert whole == first + second == 2 * 126_720 and shorter == 2 * 70 * 2**4 and fewer == 66 * 2**10


def test_codes_of_which_one_seed_keeps_what_it_learnt_are_named():
    def model(code, seed, own, shorter):
        shares = {"both regions": own, "shorter": shorter, "fewer regions": Fraction(1, 3)}
        exact = {law: (share, share) for law, share in shares.items()}
        return Result({"positions": code, "seed": seed}, (1, 1), Verdict.REFUTED, exact)

    half, less = Fraction(1, 2), Fraction(1, 4)
    found = [model("nope", 0, half, half), model("rope", 0, half, less)]
    shorter, fewer = contextual.remarks([*found, model("nope", 1, half, less), model("rope", 1, half, less)])
    assert shorter.startswith("On shorter strings 1 of 4") and shorter.endswith("not by another with nope")
    assert fewer.startswith("On fewer regions 0 of 4") and "seed" not in fewer
