"""The checker decides the leaves of a search again: what is right is accepted, and every tampered tree is refused."""

import base64
import json
import zlib
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from command import run
from models.certificates_of_kinds import almost_equal, only_split
from models.random_models import random_model, trained_like
from models.selection import first
from oracles.forged import falsehood
from oracles.histogram import all_wrong_pairs

from constructions import checkpoint, inventory_counting
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import splits
from verify.checker.fields import check
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.frame import decide
from verify.tasks.histogram import branch_and_bound, by_cost, judging, record
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.rounded.verdict import certify as certify_rounded

DATA = Path(__file__).parents[1] / "data"
RIGHT, WRONG, OPEN, EACH, PLACES, FIRST = range(6)


@pytest.fixture
def searches(monkeypatch):
    only_split(monkeypatch)


def cancelling(apart=0.003, left=0.01):
    """Pairs of neurons that are on for some multisets only, and cancel almost: right where the rows are close."""
    module = inventory_counting.lin(T=4, L=4, p=8, dtype=torch.float64)
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        module.A += apart * torch.rand(4, 4, generator=g, dtype=torch.float64)
        for i, (size, bias) in enumerate([(4.0, -0.3), (3.0, -0.9)]):
            module.W_1[i, 4 + 2 * i : 6 + 2 * i] = 1.0
            module.b_1[4 + 2 * i : 6 + 2 * i] = bias
            module.W_2[4 + 2 * i], module.W_2[5 + 2 * i] = size * module.W_2[i], -size * (1 - left) * module.W_2[i]
    return module


def saved(module, **options):
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    return weights, certify(module, **options).about(weights).to_dict()


def rounded_once(module, fmt="float32"):
    """The model's bytes and its certificate in a format, in any order."""
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    return weights, certify_rounded(module, fmt=FORMATS[fmt]).about(weights).to_dict()


def outcome(weights, certificate):
    try:
        return 0, check(weights, json.dumps(certificate).encode())
    except Refusal as refusal:
        assert str(refusal) and "\n" not in str(refusal)
        return refusal.exit_code, str(refusal)


def opened(certificate):
    return json.loads(zlib.decompress(base64.b64decode(certificate["tree"]["data"])))


def closed(certificate, tree, more=0):
    """The certificate with another tree, which has so many parts more."""
    data = base64.b64encode(zlib.compress(json.dumps(tree).encode())).decode()
    return certificate | {"tree": {"parts": certificate["tree"]["parts"] + more, "data": data, "reason": None}}


@pytest.mark.parametrize("seeds", first(1, [[0, 1, 2, 138, 148], range(12), range(12, 60), range(60, 240)]), ids=str)
def test_trees_hold_and_say_what_enumeration_says(searches, seeds):
    kinds = set()
    for seed in seeds:
        module = almost_equal(random_model(seed), seed) if seed % 2 else random_model(seed)
        weights, certificate = saved(module)
        code, found = outcome(weights, certificate)
        assert code == 0, (seed, found)
        if "tree" not in certificate:
            continue
        assert found[1] == ["seconds", *["is_smallest", "module_predicts"][: 2 * (found[0] == "REFUTED")]]
        wrong = len(all_wrong_pairs(module))
        assert (certificate["wrong_pairs"], certificate["verdict"] == "PROVED") == (str(wrong), not wrong)
        for _, _, _, trees in opened(certificate)["cells"]:
            kinds |= {min(code, FIRST) for _, codes in trees for code in codes}
    assert {RIGHT, WRONG, FIRST} <= kinds


def test_trees_of_which_a_part_is_open_hold(searches, monkeypatch):
    """A search that is over after a few batches: the bracket is what its tree shows, and no edit of it is."""
    batches = iter(range(10**9))
    monkeypatch.setattr("verify.tasks.histogram.best_first.Queue._is_over", lambda self: next(batches) > 6)
    seen = 0
    for seed in range(0, 40, 5):
        weights, certificate = saved(random_model(seed))
        if certificate["verdict"] != "REFUTED" or certificate["wrong_pairs"] is not None:
            batches = iter(range(10**9))
            continue
        seen, batches = seen + 1, iter(range(10**9))
        assert outcome(weights, certificate)[0] == 0, seed
        low, high = certificate["error_share"]
        for share in ([low, (low + high) / 2], [low + (high - low) / 4, high], [low / 2, high], [low, 1.0]):
            assert share == [low, high] or outcome(weights, certificate | {"error_share": share})[0] == FAILS
    assert seen


def test_a_search_that_goes_on_after_a_comparison_holds(monkeypatch):
    """What waits when the comparison ends has a tree of its own later, and is not said to be open beside it."""
    for name in ("AFFORDABLE", "FOR_A_COMPARISON"):
        monkeypatch.setattr(by_cost, name, 0)
    monkeypatch.setattr(by_cost.ShareBounds, "find", lambda self, *args: None)
    weights, certificate = saved(random_model(28))
    assert certificate["tree"]["parts"] and outcome(weights, certificate)[0] == 0


@pytest.mark.parametrize("name", ["bos_T4_L3_d4_p8"])
def test_trained_models_hold(capsys, tmp_path, name):
    weights = DATA / f"trained_{name}.safetensors"
    assert run(capsys, "histogram", "--weights", str(weights), "--save", str(tmp_path / "proof"))[0] == 0
    said = json.loads((tmp_path / "proof" / "certificate.json").read_text())
    assert said["wrong_pairs"] == "0" and said["tree"]["parts"]
    code, out, _ = run(capsys, "check", str(tmp_path / "proof"))
    assert code == 0 and out.endswith("PROVED; not re-checked: seconds\n")


@pytest.mark.deep
@pytest.mark.parametrize("name", ["lin_T8_L5_d16_p16", "lin_sftm_T8_L5_d32_p32", "bos_sftm_T32_L10_d64_p64"])
def test_larger_trained_models_hold(capsys, tmp_path, name):
    test_trained_models_hold(capsys, tmp_path, name) if "sftm" in name else None
    run(capsys, "histogram", "--weights", str(DATA / f"trained_{name}.safetensors"), "--save", str(tmp_path / "again"))
    assert run(capsys, "check", str(tmp_path / "again"))[0] == 0


@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 40)]), ids=str)
def test_splits_in_a_format_hold_and_are_needed(seeds):
    """Models that only splitting proves in a format: what holds is true, and without its splits nothing is decided."""
    split = 0
    for seed in seeds:
        module = trained_like(seed, ("lin+sftm", "dot+sftm")[seed % 2], 3, 3, 6, 200) if seed else cancelling()
        weights, certificate = rounded_once(module, ("float32", "float64")[seed % 2])
        if certificate["verdict"] != "PROVED" or "tree" not in certificate:
            continue
        assert outcome(weights, certificate)[0] == 0, seed
        assert falsehood(weights, json.dumps(certificate)) is None
        without = {name: value for name, value in certificate.items() if name != "tree"}
        assert outcome(weights, without)[0] == NOT_CHECKABLE, seed
        more = [1.9 * m for m in certificate["margin_per_count"]]
        larger = certificate | {"margin_per_count": more, "margin": min(more)}
        assert outcome(weights, larger)[0] in (FAILS, NOT_CHECKABLE), seed
        split += 1
    assert split


def test_a_search_in_a_format_that_is_wrong_is_refused(monkeypatch):
    """The size of a difference is taken for the difference: the proof is false, and the checker says so."""
    monkeypatch.setattr(decide, "_compared", lambda finding, *_: finding)  # runs would contradict it
    module = cancelling(0.1, 0.2)
    assert rounded_once(module)[1]["verdict"] == "REFUTED"
    with planted(judging, "judge", "= found - errors", "= np.abs(found) - errors"):
        monkeypatch.setattr(branch_and_bound, "judge", judging.judge)
        weights, certificate = rounded_once(module)
    assert certificate["verdict"] == "PROVED" and certificate["tree"]["parts"]
    assert falsehood(weights, json.dumps(certificate)) and outcome(weights, certificate)[0] != 0


def test_a_model_of_one_class_in_a_format_is_left_open():
    """Its only class wins by no number, so its certificate has no margin: not one that fails to hold."""
    module = next(m for m in map(random_model, range(100)) if len(m.b_2) == 1)
    weights, certificate = rounded_once(module)
    assert certificate["verdict"] == "PROVED" and outcome(weights, certificate)[0] == NOT_CHECKABLE


# ---- tampering


@pytest.fixture(scope="module")
def refuted():
    with pytest.MonkeyPatch.context() as patch:
        only_split(patch)
        return saved(random_model(28))


@pytest.fixture(scope="module")
def proved():
    with pytest.MonkeyPatch.context() as patch:
        only_split(patch)
        return saved(cancelling())


@pytest.fixture(scope="module")
def merged():
    with pytest.MonkeyPatch.context() as patch:
        only_split(patch)
        return saved(cancelling(0.1, 0.2))


@pytest.fixture(scope="module")
def computed():
    return rounded_once(cancelling())


def trees(tree):
    """The codes of every own count, in place."""
    return [codes for _, _, _, counts in tree["cells"] for _, codes in counts]


@pytest.mark.parametrize("step", first(1, [4, 1]))
@pytest.mark.parametrize("which", first(1, ["proved", "merged", "computed"]))
def test_any_other_tree_is_refused(request, which, step):
    """Every code of every tree left out, doubled, or replaced by each other kind of part."""
    weights, certificate = request.getfixturevalue(which)
    assert outcome(weights, certificate)[0] == 0
    tried, accepted, number = 0, [], len(trees(opened(certificate)))
    for i in range(0, number, 17 if which == "merged" else step):
        length = len(trees(opened(certificate))[i])
        for at in {i % length} if which == "merged" else {0, length - 1}:
            for new in [[], None, [RIGHT], [WRONG], [OPEN], [FIRST + 1], [FIRST + 10**6]]:
                tree = opened(certificate)
                codes = trees(tree)[i]
                put = codes[at : at + 1] * 2 if new is None else new
                if put == codes[at : at + 1]:
                    continue
                codes[at : at + 1] = put
                tried += 1
                if outcome(weights, closed(certificate, tree, len(put) - 1))[0] == 0:
                    accepted.append((i, at, new))
    assert tried > 20 and not accepted


def widened(tree):
    """The first part that is split becomes a leaf: what it was split into is left out."""
    for codes in trees(tree):
        if len(codes) > 2 and codes[0] >= FIRST:
            del codes[1:]
            codes[0] = RIGHT
            return


def overlapping(tree):
    """The first tree is there twice."""
    tree["cells"][0][3].append(tree["cells"][0][3][0])


def overlapping_cells(tree):
    tree["cells"].append(tree["cells"][0])


def without_a_count(tree):
    del tree["cells"][-1][3][0]


def without_a_cell(tree):
    del tree["cells"][-1]


def another_token(tree):
    tree["cells"][0][1] += 1


def another_count(tree):
    tree["cells"][0][3][0][0] = 99


def a_cluster_twice(tree):
    tree["cells"][0][2][-1] = [0, 0]


def a_cluster_of_nothing(tree):
    tree["cells"][0][2][0] = [0, 999]


def a_position_twice(tree):
    row = tree["rows"][0]
    row[0], row[1] = row[0] * 2, row[1] * 2


def a_slot_less(tree):
    tree["rows"][0][1][0][0].pop()


def a_slot_twice(tree):
    group = tree["rows"][0][1][0][0]
    group[0] = group[-1] if len(group) > 1 else 99


def a_float(tree):
    trees(tree)[0][0] = float(trees(tree)[0][0])


def negative(tree):
    trees(tree)[0][0] = -1


def no_rows(tree):
    tree["rows"] = []


def more_keys(tree):
    tree["note"] = 1


CHANGES = [
    widened, overlapping, overlapping_cells, without_a_count, without_a_cell, another_token, another_count,
    a_cluster_twice, a_cluster_of_nothing, a_position_twice, a_slot_less, a_slot_twice, a_float, negative, no_rows,
    more_keys,
]  # fmt: skip


@pytest.mark.parametrize("which", first(1, ["proved", "merged", "computed"]))
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_tampered_tree_is_refused(request, which, change):
    weights, certificate = request.getfixturevalue(which)
    tree = opened(certificate)
    change(tree)
    assert json.dumps(tree) != json.dumps(opened(certificate))
    for more in (0, len(sum(trees(tree), [])) - len(sum(trees(opened(certificate)), []))):
        assert outcome(weights, closed(certificate, tree, more))[0] in (FAILS, NOT_CHECKABLE)


def test_an_edited_share_is_refused(refuted):
    weights, certificate = refuted
    pairs = 5 * random_model(28).T ** 5
    for wrong in (int(certificate["wrong_pairs"]) + n for n in (-1, 1)):
        share = float(Fraction(wrong, pairs))
        assert outcome(weights, certificate | {"error_share": [share] * 2, "wrong_pairs": str(wrong)})[0] == FAILS
    for said in (None, {}, {"parts": 1}, certificate["tree"] | {"data": "A" * 8}, certificate["tree"] | {"data": 3}):
        assert outcome(weights, certificate | {"tree": said})[0] in (FAILS, NOT_CHECKABLE)


@pytest.mark.deep
def test_a_forged_tree_of_leaves_that_are_right_is_refused(searches):
    """Models that are wrong somewhere, with certificates that say PROVED, and leaves that all say right."""
    refused = 0
    for seed in range(30):
        module = random_model(seed)
        weights, certificate = saved(module)
        if certificate["verdict"] != "REFUTED" or len(module.b_2) == 1:
            continue
        tree = opened(certificate)
        for codes in trees(tree):
            codes[:] = [RIGHT if code in (WRONG, OPEN) else code for code in codes]
        forged = closed(certificate, tree) | {"verdict": "PROVED", "inputs_covered": str(module.T**module.L)}
        forged |= {"margin_per_count": [5e-324] * module.L, "margin": 5e-324, "margin_exact": None, "tightest": None}
        forged |= {"counterexample": None, "error_share": [0.0, 0.0], "wrong_pairs": "0"}
        assert outcome(weights, forged)[0] in (FAILS, NOT_CHECKABLE), seed
        refused += 1
    assert refused > 10


def test_a_margin_that_a_leaf_does_not_have_is_refused(proved):
    weights, certificate = proved
    margins = [2 * m + 1 for m in certificate["margin_per_count"]]
    changed = certificate | {
        "margin_per_count": margins,
        "margin": min(margins),
        "tightest": None,
        "margin_exact": None,
    }
    assert outcome(weights, changed)[0] in (FAILS, NOT_CHECKABLE)


def test_what_is_too_large_is_said(searches, monkeypatch):
    monkeypatch.setattr(record.Record, "__init__", lambda self, most=9, full=record.Record.__init__: full(self, most))
    weights, certificate = saved(random_model(28))
    assert certificate["tree"] == {"parts": None, "data": None, "reason": record.TOO_LARGE}
    assert certificate["tree"] in splits.NOT_KEPT
    code, found = outcome(weights, certificate)
    assert code == 0 and found[1][-2:] == ["wrong_pairs", "error_share"]


def test_a_packed_tree_of_zeros_is_refused(refuted, monkeypatch):
    weights, certificate = refuted
    data = base64.b64encode(zlib.compress(b" " * (splits.MOST_BYTES + 1))).decode()
    code, reason = outcome(weights, certificate | {"tree": certificate["tree"] | {"data": data}})
    assert code == FAILS and "longer" in reason
