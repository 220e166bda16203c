"""One attention layer by cells: counts equal to brute force, bounds that hold, and planted faults that are caught."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from models.drawn_layers import Drawn
from models.one_layer import Einsum, Encoder, Nano, Plain
from models.selection import first
from torch import nn

from tests.clocks import ENDLESS
from tests.planted import planted
from verify.arithmetic.readings import Real
from verify.engine import dependence
from verify.engine.one_layer import bounds, lines
from verify.engine.one_layer.bounds import Cells
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort
from verify.module import (
    ModuleProblem,
    Task,
    cells,
    certify,
    count_of_last,
    largest,
    majority,
    smallest,
    sum_modulo,
    tokens,
)
from verify.reduction import quotients

SEPARATE = 1e-9  # of a run in float64: margins below it are not compared


def every(sets):
    return torch.tensor(list(itertools.product(*sets)))


def run(module, rows):
    with torch.no_grad():
        return torch.cat([module(part) for part in rows.split(2048)]).double()


def margins_of(module, rows, right):
    """Margins by torch alone."""
    logits = run(module, rows)
    own = logits.gather(1, right.unsqueeze(1)).squeeze(1)
    return own - logits.scatter(1, right.unsqueeze(1), -torch.inf).amax(1)


class Seen:
    """A module's one layer on a small domain, searched with cells as small as they get."""

    def __init__(self, module, sets, expected, is_small=4):
        self.module, self.sets, self.expected = module.double().eval(), [sorted(s) for s in sets], expected
        self.problem = ModuleProblem(self.module, Task(tokens(self.sets), expected))
        self.part = self.problem.given.inputs.parts[0]
        self.graph, self.question = self.problem.graphs[len(sets)], self.problem.given.question(len(sets))
        self.layer = cells.one_layer(self.graph, self.question, self.part)
        self.rows = every(self.sets)
        self.right = self.expected(self.rows)
        self.margins = margins_of(self.module, self.rows, self.right)
        self.is_small = is_small

    def search(self, budget=ENDLESS, aim="accuracy"):
        """What is decided, checked against brute force: right and wrong inputs, and those left over."""
        search = cells.Search(self.layer, self.part, self.expected, lambda length, label: label, aim)
        deadline = budget.deadline()
        search.start(deadline)
        number = {tuple(row): i for i, row in enumerate(self.rows.tolist())}
        counts, open_rows, faults = {"right": 0, "wrong": 0}, 0, []
        for found in itertools.chain.from_iterable(search.run(deadline)):
            counts["right"] += found.right
            counts["wrong"] += found.wrong
            open_rows += len(found.tokens) if found.how == "open" else 0
            at = torch.tensor([number[tuple(row)] for row in found.tokens.tolist()])
            real = self.margins[at]
            faults += found.tokens[(real < found.low - SEPARATE) | (real > found.high + SEPARATE)].tolist()
        total = counts["right"] + counts["wrong"] + open_rows + search.open
        if total != len(self.rows):
            faults.append(total)
        sure_wrong, sure_right = ((self.margins < -SEPARATE).sum(), (self.margins > SEPARATE).sum())
        if counts["right"] > len(self.rows) - int(sure_wrong) or counts["wrong"] > len(self.rows) - int(sure_right):
            faults.append(counts)
        return counts, open_rows + search.open, faults, search


def build(kind, seed, V=4, L=4):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    if kind == "nano":
        module = Nano(V, L, act=["gelu", "silu", "relu"][seed % 3])
    elif kind == "encoder":
        module = Encoder(V, L, norm_first=bool(seed % 2))
    elif kind == "einsum":
        module = Einsum(V, L)
    else:
        norm, act = kind.split("-")
        module = Plain(
            V, L, heads=[1, 2, 4][seed % 3], hidden=0 if act == "none" else 6, norm=norm, act=act.removesuffix("*"),
            positions=["learned", "none"][seed % 2], bos=bool(seed % 5 == 0), gated=act.endswith("*"),
            groups=2 if act.endswith("*") and seed % 3 == 2 else 1,
        )  # fmt: skip
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "n1" not in name and "n2" not in name and "n3" not in name and "ln" not in name and "norm" not in name:
                parameter.mul_(float(rng.choice([1.0, 2.0, 3.0])))
    return module.eval()


def fitted(module, V, L, expected, steps=60):
    """A few steps of training, so that most answers are right by a little."""
    rows = every([range(V)] * L)
    right = expected(rows)
    module.float().train()
    optimiser = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(module(rows), right)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return module.eval()


KINDS = [
    "-relu", "-none", "layer-relu", "layer-gelu", "nano", "encoder", "einsum", "-silu", "-tanh", "-sigmoid",
    "layer-none", "-gelu_tanh", "rms-silu*", "rms-none", "-silu*", "written_rms-silu*", "written_norm-relu",
    "deviation-none", "-softplus", "-elu", "-gelu_written", "-square", "layer-abs", "-leaky_relu", "-relu6",
    "rms-hardswish",
]  # fmt: skip
EXPECTED = {"largest": largest, "smallest": smallest, "sum": sum_modulo(4), "count": count_of_last()}
CASES = [(kind, seed) for seed in range(12) for kind in KINDS]


@pytest.mark.parametrize("kind, seed", first(1, CASES))
def test_counts_are_those_of_brute_force(kind, seed, monkeypatch):
    monkeypatch.setattr(cells, "RUN", [4, 16][seed % 2])
    expected = list(EXPECTED.values())[seed % 4]
    module = build(kind, seed)
    seen = Seen(fitted(module, 4, 4, expected, 30 * (seed % 3 + 1)), [range(4)] * 4, expected)
    counts, left, faults, search = seen.search()
    assert not faults and search.open == 0
    assert left <= int((seen.margins.abs() < 1e-6).sum())


@pytest.mark.parametrize(
    "method, right, wrong",
    first(
        1,
        [
            ("_bounded", "(by_token > 0) & (by_token >= search.goal)", "(by_token > -1)"),
            ("_decided_tokens", "sum(batch[i].size -", "sum(1 + batch[i].size -"),
            ("_decided_tokens", "torch.minimum(bounds.amin(1), beaten)", "bounds.amax(1) + beaten.clamp(max=9)"),
        ],
    ),
)
def test_faults_of_tokens_that_are_decided_alone_are_caught(method, right, wrong, monkeypatch):
    monkeypatch.setattr(cells, "RUN", 2)
    found = []
    with planted(cells.OneToken, method, right, wrong):
        for seed in range(3):
            seen = Seen(fitted(build("-relu", seed), 4, 4, largest, 20), [range(4)] * 4, largest)
            found += seen.search()[2]
    assert found


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_the_aim_verdict_ends_at_a_wrong_input_and_not_before(seed, monkeypatch):
    monkeypatch.setattr(cells, "RUN", 4)
    seen = Seen(fitted(build("-relu", seed), 4, 4, largest, 30 * seed), [range(4)] * 4, largest)
    every_one, left, faults, _ = seen.search()
    some, _, more, search = seen.search(aim="verdict")
    assert not faults and not more and not left
    if every_one["wrong"]:
        assert search.has_wrong and search.open > 0
    else:
        assert some == every_one and search.open == 0


@pytest.mark.deep
def test_threads_change_no_number(monkeypatch):
    monkeypatch.setattr(cells, "RUN", 4)
    seen = Seen(fitted(build("layer-relu", 1), 4, 4, largest, 60), [range(4)] * 4, largest)
    found = []
    with ThreadPoolExecutor(3) as pool:
        for at_once in (map, pool.map):
            search = cells.Search(seen.layer, seen.part, largest, lambda length, label: label)
            search.start(ENDLESS.deadline())
            batches = itertools.chain.from_iterable(search.run(ENDLESS.deadline(), at_once))
            found.append([(one.how, one.right, one.wrong, one.low.tolist(), one.tokens.tolist()) for one in batches])
    assert found[0] == found[1] and len(found[0]) > 3


def test_a_graph_of_too_many_numbers_is_decided_without_following_them(monkeypatch):
    """At 2,000 positions what each number depends on took more memory than there is."""
    monkeypatch.setattr("verify.module.problem.FEW", 1)
    module = fitted(build("-relu", 2), 4, 4, largest, 60)
    problem = ModuleProblem(module, Task(tokens([4] * 4), largest))
    followed = problem.prove(Real(), Effort(ENDLESS)).extra
    monkeypatch.setattr(dependence, "MOST", 100)
    found = ModuleProblem(module, problem.given).prove(Real(), Effort(ENDLESS)).extra
    assert found["counts"] == followed["counts"] and followed["decided_by"]["tables"] == 256
    assert found["decided_by"]["balls"] == 256


@pytest.mark.parametrize("few", first(1, [1, 1 << 16]))  # by cells, and input by input
def test_a_verdict_alone_has_counts_that_add_up(few, monkeypatch):
    monkeypatch.setattr("verify.module.problem.FEW", few)
    monkeypatch.setattr("verify.module.problem.SLOW_PIECE", 64)
    torch.manual_seed(3)
    found = certify(Plain(4, 4, hidden=0).double().eval(), inputs=tokens([4] * 4), expected=largest, aim="verdict")
    counts = {name: int(count) for name, count in found.extra["counts"].items()}
    assert found.verdict is Verdict.REFUTED and counts["undecided"] > 0 and sum(counts.values()) == 4**4


def violations(module, sets, seed, count=24):
    """Cells drawn at random on which a bound does not hold: of the gaps, and of single inputs' logits."""
    seen = Seen(module, sets, largest)
    rng, found = np.random.default_rng(seed), []
    rank = torch.tensor([sorted(s) for s in seen.sets])
    logits = run(seen.module, seen.rows)
    classes = logits.shape[1]
    for own in list(itertools.product(*(range(len(seen.sets[i])) for i in seen.layer.fixed)))[:4]:
        layer = seen.layer.layer([seen.sets[p][r] for p, r in zip(seen.layer.fixed, own, strict=True)])
        masks = rng.random((count, len(layer.places), rank.shape[1])) < rng.random((count, 1, 1))
        masks[..., 0] |= ~masks.any(-1)
        bounded = Cells(layer, cells.entries_of(masks))
        right = torch.from_numpy(rng.integers(0, classes, count))
        rivals = (right.unsqueeze(1) + torch.arange(1, classes)) % classes
        gaps = bounded.gaps(right, rivals)
        least = bounded.least(gaps).low
        low, high = bounded.range(gaps)
        points = cells.Points(layer)
        for i, mask in enumerate(masks):
            inside = torch.ones(len(seen.rows), dtype=torch.bool)
            for column, place in enumerate(layer.places):
                inside &= torch.isin(seen.rows[:, place], rank[place][torch.from_numpy(mask[column])])
            for place, r in zip(seen.layer.fixed, own, strict=True):
                inside &= seen.rows[:, place] == seen.sets[place][r]
            real = logits[inside][:, right[i]].unsqueeze(1) - logits[inside][:, rivals[i]]
            slack = SEPARATE * (1 + real.abs().amax(0))
            if bool(((real.amin(0) < low[i] - slack) | (real.amin(0) < least[i] - slack)).any()):
                found.append("below")
            if bool((real.amax(0) > high[i] + slack).any()):
                found.append("above")
            by_points = points(cells.rows_of(mask[None]))
            if bool(((by_points.mid - logits[inside]).abs() > by_points.radius + SEPARATE * logits.abs().max()).any()):
                found.append("point")
    return found


MODELS = {
    "one head": lambda: build("-none", 3),
    "heads": lambda: build("-none", 5),
    "relu": lambda: build("-relu", 2),
    "gelu": lambda: build("-gelu_tanh", 4),
    "norms": lambda: build("layer-relu", 4),
    "nano": lambda: build("nano", 2),
    "encoder": lambda: build("encoder", 2),
    "einsum": lambda: build("einsum", 1),
    "rms": lambda: build("rms-silu*", 2),
    "gated": lambda: build("-silu*", 4),
    "written rms": lambda: build("written_rms-relu", 3),
    "written norm": lambda: build("written_norm-none", 5),
    "deviation": lambda: build("deviation-none", 4),
    "gelu written": lambda: build("-gelu_written", 4),
    "square": lambda: build("-square", 4),
    "by relu": lambda: build("-relu6", 4),
    "leaky": lambda: build("-leaky_relu", 4),
    "abs": lambda: build("-abs", 4),
    "softplus": lambda: build("-softplus", 4),
    "elu": lambda: build("-elu", 4),
}
DOMAIN = [range(4), [0, 2, 3, 1], range(4), range(4)]


@pytest.mark.parametrize("name", first(1, MODELS))
def test_bounds_hold_on_cells_that_are_drawn(name):
    assert not violations(MODELS[name](), DOMAIN, 0)


FAULTS = [
    ("heads", quotients.Quotients, "_range", "delta * largest", "0 * largest"),
    ("heads", quotients.Quotients, "_range", "constant + mu.sum(0)", "constant + 0.9 * mu.sum(0)"),
    ("heads", quotients.Quotients, "_range", "mul_(zeta.unsqueeze(-1))", "mul_(zeta.unsqueeze(-1) / 2)"),
    ("heads", quotients.Quotients, "less", "torch.sub", "torch.add"),
    ("heads", quotients.Quotients, "__init__", "self.few / 2 + self.many / 2", "self.many"),
    ("heads", quotients.Quotients, "__init__", "(self.many / 2 - self.few / 2)", "0 * self.few"),
    ("one head", quotients.Quotients, "_above_chords", "(mu + b).sum(0)", "b.sum(0)"),
    ("heads", quotients.Quotients, "least_sum", ".amin(-1)", ".mean(-1)"),
    ("norms", quotients.Quotients, "spread", "found + off", "0 * found + off"),
    ("relu", lines, "of_relu", "torch.where(on | off, 0.0, over)", "torch.where(on | off, 0.0, 0 * over)"),
    ("relu", lines, "of_relu", "(high > -low).double()", "2 * (high > -low).double()"),
    ("gelu", lines, "of_curved", "((rest - off).amin(0) - bent)", "((rest - off).amax(0) - bent)"),
    ("gelu", lines, "of_curved", "((rest + off).amax(0) + bent)", "((rest + off).amin(0) + bent)"),
    ("relu", Cells, "_by_lines", "a >= 0", "a < 0"),
    ("relu", Cells, "_by_lines", "f.constant + moved.sum(-1)", "f.constant"),
    ("relu", Cells, "_through", "c @ part.mid", "0.9 * c @ part.mid"),
    ("relu", Cells, "_through", "parts[source] + new", "new"),
    ("relu", Cells, "_through", "f.constant + constant", "f.constant"),
    ("norms", Cells, "_argument", "a - a.mean(-1, keepdim=True)", "a"),
    ("norms", Cells, "_through_root", "(half * largest) * ENLARGE", "0 * (half * largest)"),
    ("norms", Cells, "_root", "(length + distance)", "length"),
    ("norms", Cells, "_root", " - distance)", ")"),
    ("heads", Cells, "gaps", "- part.mid[rivals]", "- 0.9 * part.mid[rivals]"),
    ("heads", Cells, "gaps", "- c[rivals]", "- 0.9 * c[rivals] - 0.1"),
    ("norms", Cells, "_by_root", "torch.minimum(low * root.least, low * root.most)", "low * root.most"),
    ("norms", bounds.Cells, "least", "torch.minimum(low * at(root.least), low * at(root.most))", "low * at(root.most)"),
]


@pytest.mark.parametrize("name, owner, function, right, wrong", first(1, FAULTS))
def test_planted_faults_are_caught(name, owner, function, right, wrong, monkeypatch):
    monkeypatch.setattr(quotients, "is_compiled", lambda: False)
    with planted(owner, function, right, wrong):
        assert any(violations(MODELS[name](), DOMAIN, seed) for seed in range(3))


def scaled(module, k):
    """The same function but for the logits' scale: every layer larger or smaller by powers of two."""
    up, down = 2.0**k, 2.0**-k
    factors = {"v.weight": up, "v.bias": up, "o.weight": down, "U.weight": up, "U.bias": up}
    if module.act == "relu" and module.up is not None:
        factors |= {"up.weight": up, "up.bias": up, "down.weight": down}
    stream = 2.0 ** (k // 4)  # which norms divide out
    if isinstance(module.n3, nn.LayerNorm):
        for name in ("E.weight", "P.weight", "o.weight", "o.bias", "down.weight", "down.bias"):
            factors[name] = factors.get(name, 1.0) * stream
        for norm in (module.n1, module.n2, module.n3):
            norm.eps *= stream**2
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.mul_(factors.get(name, 1.0))
    return module


@pytest.mark.parametrize("k", first(1, [-320, 320, -480, 480, -60, 60]))
@pytest.mark.parametrize("kind", first(1, ["-none", "layer-relu", "-relu", "layer-gelu"]))
@pytest.mark.deep
def test_layers_scaled_by_powers_of_two_have_the_same_counts(kind, k, monkeypatch):
    monkeypatch.setattr(cells, "RUN", 4)
    found = []
    for power in (0, k):
        torch.manual_seed(3)
        norm, act = kind.split("-")
        module = Plain(4, 4, hidden=0 if act == "none" else 6, norm=norm, act=act, bos=True)
        fitted(module, 4, 4, largest, 40).double()
        counts, left, faults, _ = Seen(scaled(module, power), [range(4)] * 4, largest).search()
        assert not faults or power
        found.append((counts, left))
    assert found[0] == found[1]


def test_a_wrong_input_and_all_right_is_a_bug(monkeypatch):
    """Cells that call every input right, where an input was met that is wrong."""
    monkeypatch.setattr("verify.module.problem.FEW", 1)
    monkeypatch.setattr(cells, "RUN", 4)
    monkeypatch.setattr("verify.module.layered.Beside.check", lambda self: None)
    torch.manual_seed(3)
    module = Plain(4, 4, hidden=0).double().eval()
    task = Task(tokens([4] * 4), largest)
    assert ModuleProblem(module, task).prove(Real(), Effort(ENDLESS)).verdict is Verdict.REFUTED
    monkeypatch.setattr(
        "verify.module.decision.Tally.add_cells",
        lambda self, found: setattr(self, "right", self.right + found.right + found.wrong),
    )
    monkeypatch.setattr(
        "verify.module.decision.Tally.add", lambda self, rows, _: setattr(self, "right", self.right + len(rows))
    )
    found = ModuleProblem(module, task).prove(Real(), Effort(ENDLESS))
    assert found.verdict is Verdict.UNKNOWN and "counted as right" in found.reason


@pytest.mark.parametrize("automaton", [largest, smallest, sum_modulo(3), count_of_last(), majority()])
def test_answers_of_no_inputs_are_whole_numbers(automaton):
    """Where tables leave every input of a batch open, none is left to be asked for."""
    found = automaton(torch.zeros(0, 3, dtype=torch.long))
    assert found.dtype == torch.long and found.shape == (0,)


def test_squares_beyond_float64_decide_nothing():
    """A norm's arguments of 2^516, whose squares overflow: 1 / s is not known to be 0."""
    drawn = Drawn(0, [("norm", 3)], scales=(258,), radius=False)
    bounded = Cells(drawn.layer, cells.entries_of(np.ones((1, 2, 1), dtype=bool)))
    assert bool(bounded.roots[0].most.isnan().all())
    with planted(bounds, "deviation", "least - 4 * U * total", "least * (1 - 4 * U)"):
        assert float(Cells(drawn.layer, cells.entries_of(np.ones((1, 2, 1), dtype=bool))).roots[0].most) == 0


def test_weights_that_may_be_zero_decide_nothing():
    """Z between -1 and 1 by its radius: no bound, and none of the wrong sign."""
    one = torch.ones(1, 2, 2, dtype=torch.float64)
    tables = quotients.Tables(one / 2, 2 * one, one, 0 * one, torch.zeros(1, dtype=torch.long), one[0, 0, :1])
    found = quotients.Quotients(tables, cells.entries_of(np.ones((1, 1, 1), dtype=bool)))
    zero = torch.zeros(1, 1, dtype=torch.float64)
    low = found.least(torch.ones(1, 1, 1, dtype=torch.float64), zero - 100, zero).low
    assert not bool((low > -torch.inf).any()) and bool(found.range(zero.unsqueeze(-1), zero, zero)[0].isnan().all())


def listed_apart(seed):
    """Drawn masks whose entries are not their tokens at each place, or whose numbers by place are others."""
    rng, found = np.random.default_rng(seed), 0
    for _ in range(50):
        masks = rng.random((rng.integers(1, 5), rng.integers(1, 5), rng.integers(1, 7))) < rng.random()
        masks[..., -1] |= ~masks.any(-1)
        entries = quotients.Entries.of(masks)
        for mask, at in zip(masks, entries.at.tolist(), strict=True):
            places = [{x // entries.tokens for x in at[slot]} for slot in entries.slots]
            is_one_place_each = sorted(map(sorted, places)) == [[place] for place in range(len(mask))]
            found += not is_one_place_each or sorted(set(at)) != np.flatnonzero(mask).tolist()
        found += entries.at.shape[1] != np.sort(masks.sum(2), 1).max(0).sum()
        places, tokens = entries.rows(100) // 100, entries.rows(100) % 100
        inside = entries.by_place((100 * places + tokens).double(), -1.0)
        numbers = 100.0 * torch.arange(masks.shape[1]).unsqueeze(1) + torch.arange(masks.shape[2])
        found += not torch.equal(inside, torch.where(torch.from_numpy(masks), numbers.double(), -1.0))
    return found


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("of", "np.arange(size.max()) % size", "np.arange(size.max()) % size.min()"),
        ("of", "argsort(-sizes", "argsort(0 * sizes"),
        ("of", "np.argsort(~masks", "np.argsort(masks"),
        ("rows", "// self.tokens * tokens", "// tokens * tokens"),
        ("by_place", "scatter_(1, self.at, x)", "scatter_(1, self.at.flip(1), x)"),
    ],
)
def test_entries_are_the_tokens_of_each_place(name, right, wrong):
    assert not listed_apart(0)
    with planted(quotients.Entries, name, right, wrong):
        try:
            assert listed_apart(0)
        except IndexError:
            assert name == "of"  # a token that there is not


def test_a_fixed_position_may_have_more_tokens_than_the_others(monkeypatch):
    """Masks are as wide as the largest set, tables as wide as the largest of a position that is not fixed."""
    monkeypatch.setattr(cells, "RUN", 1)
    seen = Seen(build("-none", 3), [[0, 1], [1, 2], [0, 2], range(4)], largest)
    _, left, faults, search = seen.search()
    assert seen.layer.fixed == (3,) and search.bounded and not left and not faults
    with planted(quotients.Entries, "rows", "* tokens +", "* self.tokens +"), pytest.raises(IndexError):
        seen.search()


def parted_otherwise(seed):
    """Cells whose halves are no parts of them, or whose inputs are not those of a product, one by one."""
    rng = np.random.default_rng(seed)
    masks = rng.random((60, 4, 5)) < rng.random((60, 1, 1))
    masks[..., 0] |= ~masks.any(-1)
    masks[:, 1] = np.arange(5) == 2
    places, found = [0, 2, 3], 0
    numbers = rng.integers(-2, 3, (60, 3, 5)) * rng.choice([0.0, 1.0, 1e300], (60, 1, 1))
    numbers[::2] += rng.standard_normal((30, 1, 1)) * 3 / 7
    for mask, (one, other) in zip(masks, cells.halves(masks, places, numbers), strict=True):
        is_other = (one != mask).any(1)
        found += not np.array_equal(one | other, mask) or bool((one & other).any(1).all())
        found += is_other.sum() != 1 or not (one.any(1) & other.any(1)).all() if cells.size_of(mask) > 1 else 0
    listed = [itertools.product(*(np.flatnonzero(row).tolist() for row in mask)) for mask in masks]
    return found + (cells.rows_of(masks).tolist() != [list(row) for rows in listed for row in rows])


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("halves", "allowed & ~upper", "~upper"),
        ("halves", "upper[is_alike] =", "upper[is_alike] &="),
        ("halves", "np.array(places)[widest]", "widest"),
        ("rows_of", "total.cumsum() - total", "total.cumsum() - 1"),
        ("rows_of", "reversed(range(places))", "range(places)"),
    ],
)
def test_cells_are_parted_and_listed_whole(name, right, wrong):
    assert not parted_otherwise(0)
    with planted(cells, name, right, wrong):
        assert parted_otherwise(0)
