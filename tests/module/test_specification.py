"""Right answers on cells: every answer that occurs is among those found, by enumeration; planted faults are caught."""

import itertools

import numpy as np
import pytest
import torch
from models.one_layer import Plain
from models.selection import every, first

from constructions.errors import BadInput
from tests.module.test_cells import Seen, fitted
from tests.planted import planted
from verify.module import (
    Automaton,
    cells,
    certify,
    compose,
    count_of_last,
    dyck,
    first_repeated,
    largest,
    majority,
    sets,
    smallest,
    sorted_at,
    specification,
    sum_modulo,
    tokens,
)  # fmt: skip
from verify.module.automaton import Chart
from verify.module.specification import NotTraced, Traced, chart_of

TABLE = torch.tensor([3, 1, 0, 2])
S3 = list(itertools.permutations(range(3)))
SETS = [range(4), [0, 2, 3], range(4), range(4)]
ROWS = torch.tensor(list(itertools.product(*SETS)))
FUNCTIONS = {
    "largest": lambda t: t.amax(1),
    "largest by max": lambda t: t.max(1).values,
    "place of the smallest": lambda t: t.min(1).indices,
    "range": lambda t: (t.amax(1) - t.amin(1)) % 3,
    "sum": lambda t: t.sum(1) % 5,
    "count of last": lambda t: (t == t[:, -1:]).sum(1) - 1,
    "majority": lambda t: ((t == 1).sum(1) * 2 > t.shape[1]).long(),
    "gather": lambda t: t.gather(1, t[:, :1] % 4).squeeze(1),
    "argmax": lambda t: t.argmax(1),
    "argmin": lambda t: t.argmin(1, keepdim=True)[:, 0],
    "sorted": sorted_at(1),
    "sorted down": lambda t: t.sort(1, descending=True).values[:, 0] * 2,
    "k-th": lambda t: t.kthvalue(2, 1).values,
    "topk": lambda t: t.topk(2, 1).values[:, 1],
    "median": lambda t: t.median(1).values,
    "where": lambda t: torch.where(t[:, 0] > t[:, 1], t[:, 2], t[:, 3]),
    "a table": lambda t: TABLE[t].sum(1) % 4,
    "any": lambda t: (t == 2).any(1).long(),
    "all": lambda t: (t > 0).all(1).long(),
    "first occurrence": lambda t: (t == 2).long().argmax(1),
    "inversions": lambda t: (t.unsqueeze(2) > t.unsqueeze(1)).triu(1).sum((1, 2)),
    "a mean": lambda t: (t.float().mean(1) > 1.5).long(),
    "halves": lambda t: (t.float() / 2 + 0.5).floor().sum(1).long(),
    "running sums": lambda t: (t.cumsum(1) > 3).long().sum(1),
    "product": lambda t: t.prod(1) % 7,
    "palindrome": lambda t: (t == t.flip(1)).all(1).long(),
    "repeats": lambda t: (t[:, 1:] == t[:, :-1]).sum(1),
    "squares": lambda t: (t**2).sum(1) // 3,
    "a loop": lambda t: sum(t[:, i] * (i + 1) for i in range(4)) % 6,
    "in place": lambda t: t.clone().mul_(2).amax(1),
    "joined": lambda t: torch.cat([t[:, :2], torch.stack([t[:, 3], t[:, 2] + 1], 1)], 1).amax(1),
    "bits": lambda t: (t[:, 0] ^ t[:, 1]) & 3,
}
LOOSE = {
    "range",
    "count of last",
    "gather",
    "running sums",
    "repeats",
    "inversions",
    "joined",
}  # numbers that depend on each other


def missed(function, count=40, seed=0):
    """Answers that occur on a cell and are not found; how often the answers found are those that occur."""
    chart, rng = Traced(function, SETS), np.random.default_rng(seed)
    labels, wrong, exact = function(ROWS).reshape(-1), [], 0
    widths = np.array([len(s) for s in SETS])
    for _ in range(count):
        mask = rng.random((4, 4)) < rng.random()
        mask[np.arange(4), rng.integers(0, widths)] = True
        mask &= np.arange(4) < widths[:, None]
        kept = [torch.tensor(sorted(s))[torch.from_numpy(mask[i, : len(s)])] for i, s in enumerate(SETS)]
        inside = torch.stack([torch.isin(ROWS[:, i], tokens) for i, tokens in enumerate(kept)]).all(0)
        found, true = set(chart.answers(mask)), set(labels[inside].tolist())
        wrong += sorted(true - found)
        exact += true == found
        if mask.sum() > 4:
            place, parts = chart.split(mask)
            if len(parts) < 2 or not (np.stack(parts).sum(0) == mask[place]).all() or not all(p.any() for p in parts):
                wrong.append("split")
    return wrong, exact / count


def test_numbers_without_an_order_have_no_chart():
    rare = torch.tensor([0, 0, 0, 0, 0, 1])  # of which torch gives 0 first, unsorted

    def unsorted_on_one_input(t):
        return torch.where((t == rare).all(1), t.topk(5, 1, sorted=False).values[:, 0], 0)

    assert chart_of(unsorted_on_one_input, [range(8)] * 6) is None


@pytest.mark.parametrize("name", every(9, FUNCTIONS))
def test_every_answer_that_occurs_is_found(name):
    wrong, share = missed(FUNCTIONS[name], 12)
    assert not wrong and (share == 1 or name in LOOSE)


def by_python(t):
    return torch.tensor([max(row) for row in t.tolist()])


def by_shape(t):
    return t.sum(1) if len(t) == 1 else t.amax(1)


UNKNOWN = {
    "python": by_python,
    "a branch": lambda t: t.amax(1) if t[0, 0] > 1 else t.amin(1),
    "numpy": lambda t: torch.from_numpy(t.numpy().max(1)),
    "another answer for many": by_shape,
    "floats": lambda t: t.amax(1).double(),
    "waves": lambda t: (t.double().sin().sum(1) * 10).long(),
    "a float sum": lambda t: ((t.float() / 3).sum(1) > 1).long(),
    "too many values": lambda t: (t * torch.tensor([1, 10, 100, 1000]) * 7).sum(1) ** 2 % 5 + (t**6).sum(1) * 0,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_traced_has_no_chart(name, monkeypatch):
    monkeypatch.setattr(sets, "MOST_VALUES", 60)
    with pytest.raises(NotTraced):
        Traced(UNKNOWN[name], SETS)
    assert chart_of(UNKNOWN[name], SETS) is None


FAULTS = [
    ("largest", "larger", "x.least.amax(axis)", "x.most.amax(axis)"),
    ("range", "smaller", "x.most.amin(axis)", "x.least.amin(axis)"),
    ("sum", "in_turn", "found = pointwise(operation, [found, Sets(x.values, may)])", "found = Sets(x.values, may)"),
    (
        "where",
        "pointwise",
        "joint.unsqueeze(-1) & part.unsqueeze(1)",
        "joint.unsqueeze(-1) & part.flip(1).unsqueeze(1)",
    ),
    ("sum", "pointwise", "index_add_(1, at,", "index_add_(1, at.flip(0),"),
    ("sorted", "ordered", "(below <= k) & (k < upto)", "(below < k) & (k < upto)"),
    ("sorted", "ordered", "(below <= k) & (k < upto)", "(below <= k) & (k + 1 < upto)"),
    ("sorted down", "ordered", "found.flip(-2) if descending", "found.flip(-2) if not descending"),
    ("argmax", "place", "below[..., :i, :]", "upto[..., 1:1, :] & below[..., :i, :]"),
    ("argmax", "place", "upto[..., i + 1 :, :]", "below[..., i + 1 :, :]"),
    ("gather", "gathered", "found | chosen", "found"),
    ("k-th", "ranked", "else k - 1", "else k"),
    ("a mean", "mean", "v / count", "v / (count + 1)"),
    ("running sums", "cumulative", "found[-1], Sets(x.values, may)", "found[0], Sets(x.values, may)"),
    ("all", "all_of", "smaller", "larger"),
    ("any", "any_of", "larger", "smaller"),
    ("inversions", "triangle", "[kept, x,", "[~kept, x,"),
    ("joined", "joined", "dim % n + 1", "0 * dim + 1"),
    ("palindrome", "moved", "torch.vmap(torch.vmap(one, in_dims=-1, out_dims=-1))(x.may)", "x.may"),
]


@pytest.mark.parametrize("name, function, right, wrong", first(3, FAULTS))
def test_faults_are_caught(name, function, right, wrong, monkeypatch):
    monkeypatch.setattr(Traced, "_check", lambda self, whole: None)
    with planted(sets, function, right, wrong):
        if function == "moved":
            monkeypatch.setattr(specification, "moved", sets.moved)
        if function == "pointwise":
            monkeypatch.setattr(specification, "pointwise", sets.pointwise)
        for key, fold in list(sets.FOLDS.items()):
            if getattr(fold, "__name__", "") == function:
                monkeypatch.setitem(sets.FOLDS, key, getattr(sets, function))
        try:
            assert missed(FUNCTIONS[name])[0] or missed(FUNCTIONS[name])[1] < 1 and name not in LOOSE
        except (NotTraced, RuntimeError, IndexError):
            return  # it cannot go unseen


def test_the_graph_is_compared_with_the_function(monkeypatch):
    with planted(sets, "larger", "x.least.amax(axis)", "x.least.amin(axis)"), pytest.raises(NotTraced):
        monkeypatch.setattr(Traced, "_answers", lambda self, masks, of=Traced._answers: of(self, masks[:, ::-1]))
        Traced(FUNCTIONS["a loop"], [range(4)] * 4)


READY = {
    "dyck": (dyck(), lambda row: int(balanced(row))),
    "dyck of two kinds": (dyck(2), lambda row: int(balanced(row, 2))),
    "first repeated": (first_repeated(7), lambda row: next((t for i, t in enumerate(row) if t in row[:i]), 7)),
    "sorted": (sorted_at(-2), lambda row: sorted(row)[-2]),
    "compose": (compose(S3), lambda row: composed(row)),
    "largest": (largest, max),
    "smallest": (smallest, min),
    "sum": (sum_modulo(5), lambda row: sum(row) % 5),
    "count": (count_of_last(), lambda row: row.count(row[-1]) - 1),
    "majority": (majority(2), lambda row: int(2 * row.count(2) > len(row))),
}


def balanced(row, kinds=1):
    text = "".join("()[]"[t] if t < 2 * kinds else "" for t in row)
    while "()" in text or "[]" in text:
        text = text.replace("()", "").replace("[]", "")
    return not text


def composed(row):
    at = (0, 1, 2)
    for token in row:
        at = tuple(S3[token][i] for i in at)
    return S3.index(at)


@pytest.mark.parametrize("name", READY)
def test_what_is_ready_made_is_what_python_says(name):
    expected, plain = READY[name]
    right = expected(ROWS)
    assert right.tolist() == [plain(row) for row in ROWS.tolist()]
    chart = chart_of(expected, SETS)
    whole = np.arange(4) < np.array([[len(s)] for s in SETS])
    assert set(chart.answers(whole)) == set(right.tolist())


def test_an_automaton_of_too_many_states_is_one_line():
    everything = Automaton((), lambda state, token: (*state, token), lambda state: 0)
    with pytest.raises(BadInput, match="more than 65536 states once 5 tokens are read; remember less") as found:
        Chart(everything, [range(16)] * 8)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", first(1, ["range", "largest", "median", "majority"]))
def test_cells_of_a_traced_function_count_what_brute_force_does(name, monkeypatch):
    monkeypatch.setattr(cells, "RUN", 4)
    torch.manual_seed(2)
    expected = FUNCTIONS[name]
    module = fitted(Plain(4, 4, act="relu"), 4, 4, lambda t: expected(t).clamp(max=3), 8)
    counts, left, faults, search = Seen(module, [range(4)] * 4, expected).search()
    assert not faults and left == search.open == 0 and min(counts.values()) > 0


@pytest.mark.deep
def test_a_function_is_decided_by_cells(monkeypatch):
    """An answer that is no class, and does not occur: the last token occurs once at least."""
    monkeypatch.setattr("verify.module.problem.FEW", 1)
    monkeypatch.setattr(cells, "RUN", 4)
    torch.manual_seed(2)
    module = fitted(Plain(4, 4, hidden=0), 4, 4, largest, 40).double()
    task = {"module": module, "inputs": tokens([4] * 4)}
    found, same = (certify(expected=e, **task) for e in (FUNCTIONS["largest"], largest))
    assert found.extra["counts"] == same.extra["counts"] and found.extra["decided_by"]["cells"] > 0
    assert certify(expected=lambda t: (t == t[:, -1:]).sum(1) - 1, **task).extra["counts"]["undecided"] == "0"
    assert certify(expected=by_python, **task).extra["counts"] == found.extra["counts"]
