"""docs/experiments is made from the results that it keeps; these are those of experiments that there are."""

import hashlib
import json
import re

import pytest
import torch

from tests.tools import write_experiments
from tests.tools.write_experiments import DOCS, kept, pages
from verify.commands.reproduce import every
from verify.frame.experiment import GridSize

MOST = 10 * 2**20  # bytes of everything that is kept
# Shares of something else than the inputs that the verdict is about: parts of them, other ones, or heads.
NOT_OF_ALL = {"lengths 1 to 100", "region 1", "region 2", "shorter", "fewer regions", "separable", "successful",
              "perfect", "classifiers", "trained", "tested", "first token", "trained, as drawn", "tested, as drawn",
              "first token, as drawn", "too many", "too few"}  # fmt: skip


def test_the_pages_are_what_the_results_say():
    for name, text in pages().items():
        assert (DOCS / name).read_text("utf-8") == text, "run: python -m tests.tools.write_experiments"
    made = {f"{experiment.id}.{ending}" for experiment, *_ in kept() for ending in ("md", "json", "svg")}
    made |= {f"{experiment.id}.safetensors" for experiment, _, about in kept() if "checkpoint" in about}
    assert {path.name for path in DOCS.iterdir()} == made | {"index.md"}


def test_kept_results_are_of_the_trials_that_there_are():
    """A grid that has changed since is run again, or its results go."""
    for experiment, results, about in kept():
        seeds = len({result.settings["seed"] for result in results})
        trials = experiment.trials(GridSize(about["grid"]), seeds)
        assert [dict(trial.settings) for trial in trials] == [dict(result.settings) for result in results]
        assert about["versions"]["torch"] and about["date"]


def test_every_experiment_is_kept_and_little_space_is_taken():
    missing = {experiment.id for experiment in every()} - {experiment.id for experiment, *_ in kept()}
    assert missing == set()
    assert sum(path.stat().st_size for path in DOCS.iterdir()) < MOST


def test_a_kept_result_says_no_more_than_its_verdict(monkeypatch, tmp_path):
    """Planted: a model that is wrong beside a share of 1 is seen by the page's own numbers."""
    for experiment, results, _ in kept():
        for result in results:
            shares = {law: ends for law, ends in result.exact.items() if law not in NOT_OF_ALL}
            full = [low == high == 1 for low, high in shares.values()]
            assert all(full) if result.is_proved else not any(full), (experiment.id, result)
            assert (result.wrong is None) == (result.verdict.value != "REFUTED")
    monkeypatch.setattr(write_experiments, "DOCS", tmp_path)
    said = json.loads((DOCS / "E-Fig-2.json").read_text("utf-8"))
    said["results"][0]["verdict"] = "PROVED"
    (tmp_path / "E-Fig-2.json").write_text(json.dumps(said), "utf-8")
    assert pages()["E-Fig-2.md"] != (DOCS / "E-Fig-2.md").read_text("utf-8")


def of_document_c(path, case):
    """The answer of a decoder to a counterexample, as torch runs it."""
    from constructions.inductive import load

    said = load(str(path))(torch.tensor([case["input"]]), shift=case["shift"])[0, case["position"]].argmax()
    return int(said)


def of_document_e(path, case):
    """The answer of a Count01 model to one string with these counts, and '=' last."""
    from constructions.count01 import BOS, EQUALS, ONE, TOKENS, TWO, ZERO, load

    n0, n1, n2 = map(int, re.findall(r"= (\d+)", case["input"]))
    said = load(str(path))(torch.tensor([[BOS] + [ZERO] * n0 + [ONE] * n1 + [TWO] * n2 + [EQUALS]]))[0, -1]
    return TOKENS[int(said.argmax())]


@pytest.mark.parametrize(
    ("name", "answer"), [("C-Table-2", of_document_c), ("C-Table-A5", of_document_c), ("E-Fig-3", of_document_e)]
)
def test_a_finding_is_found_again_in_the_weights_that_are_kept(name, answer):
    """Every sample was right; torch answers the counterexample wrongly, as the table says."""
    (found,) = [each for each in kept() if each[0].id == name]
    about, path = found[2]["checkpoint"], DOCS / f"{name}.safetensors"
    (result,) = [each for each in found[1] if dict(each.settings) == about["settings"]]
    assert result.is_news and hashlib.sha256(path.read_bytes()).hexdigest() == about["sha256"]
    with torch.no_grad():
        assert answer(path, result.wrong) == result.wrong["predicted"] != result.wrong["expected"]
