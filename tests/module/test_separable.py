"""One attention layer by tables: against the generic engine input by input, and against enumeration."""

import itertools
from unittest import mock

import pytest
import torch
from models.selection import first

from constructions.decoder import Decoder, initialised
from tests.clocks import ENDLESS, looks
from tests.planted import planted
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import capture
from verify.engine.margins import Question
from verify.engine.rules.linear import product
from verify.engine.run import enclose
from verify.frame.certificate import Verdict
from verify.module import Task, certify, heads, largest, separable, smallest, tokens

V, N = 6, 4


def layer(seed, n_heads=1, **options):
    options = {"layernorm": False, "attention_bias": False, "pe": "nope"} | options
    model = Decoder(vocabulary=V, d=8, n_heads=n_heads, d_mlp=0, positions=N + 1, **options)
    model = initialised(model, seed=seed, std=0.6)
    generator = torch.Generator().manual_seed(seed + 99)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.rand(parameter.shape, dtype=parameter.dtype, generator=generator))
    return model.eval()


VARIANTS = [{}, {"pe": "ape"}, {"pe": "sine", "bos": True}, {"attention_bias": True}, {"unembedding_bias": True}]


@pytest.mark.parametrize("n_heads", first(1, [4, 1, 2]))
@pytest.mark.parametrize("options", first(3, VARIANTS))
def test_enumeration_by_tables_agrees_with_the_engine(n_heads, options):
    assert agrees(layer(n_heads, n_heads, **options), tokens([V, [0, 2, 5], V, [1, 3]]), largest)


def agrees(model, inputs, expected):
    """Whether the margins of all inputs by tables and by the engine meet."""
    task = Task(inputs, expected)
    part = task.inputs.parts[0]
    found = list(separable.enumerated(separable.Layer(model, N, None), part, lambda t: task.answers(t, V)))
    rows, low, high = (torch.cat(column) for column in zip(*found, strict=True))
    assert len(rows) == part.size == len({tuple(r) for r in rows.tolist()})
    graph = capture(model, N, arguments={"position": N - 1})
    other_low, other_high = enclose(graph, Arithmetic(), Question((N - 1,), None))(rows, task.answers(rows, V))
    assert (high - low).max() < 1e-9
    return bool((low <= other_high).all() and (other_low <= high).all())


@pytest.mark.parametrize("n_heads, right, wrong", [(1, "rest[", "best["), (2, "part[:, -1:]", "part[:, :1]")])
def test_orders_of_the_same_tokens_share_their_logits(n_heads, right, wrong):
    """Tables that are alike at all positions, and an answer that depends on the order."""
    model, inputs = layer(5, n_heads, bos=n_heads == 1), tokens([[0, 2, 3, 5]] * (N - 1) + [[1, 3]])
    with mock.patch.object(separable.Sums, "by_prefix", side_effect=AssertionError("each order alone")):
        assert agrees(model, inputs, lambda t: (t[:, 0] + 2 * t[:, 1]) % V)
    with planted(separable.Sums, "by_multiset", right, wrong):
        assert not agrees(model, inputs, lambda t: (t[:, 0] + 2 * t[:, 1]) % V)


def by_place(at, x, W):
    """A product whose odd rows are one unit in the last place above the even ones, as a kernel's may be."""
    out = product(at, x, W)
    odd = (torch.arange(out.mid.shape[-2]) % 2 == 1).unsqueeze(-1) & (out.radius > 0)
    mid = torch.where(odd, torch.nextafter(out.mid, torch.full_like(out.mid, torch.inf)), out.mid)
    return Ball(mid, (out.radius + 2 * (mid - out.mid)) * 2)


def test_equal_positions_are_told_by_what_is_stored_and_not_by_rows_of_products():
    model, inputs = layer(5, 2), tokens([[0, 2, 3, 5]] * (N - 1) + [[1, 3]])
    placed = layer(5, 2, pe="ape")
    with mock.patch.object(separable, "product", by_place):
        for one, is_alike in ((model, True), (placed, False)):
            tables = separable.Layer(one, N, None).tables(1)
            assert tables.are_alike == is_alike
            assert bool((tables.values.mid == tables.values.mid[:, :1]).all()) == is_alike
        with torch.no_grad():
            placed.W_pos[: N - 1] = placed.W_pos[0]  # the last token's own position may be another
        assert separable.Layer(placed, N, None).tables(1).are_alike
        assert len(heads.essential([(1, ((1,), (2,))), (1, ((2,), (1,)))], tables)) == 2
        with mock.patch.object(separable.Sums, "by_prefix", side_effect=AssertionError("each order alone")):
            assert agrees(model, inputs, lambda t: (t[:, 0] + 2 * t[:, 1]) % V)
            assert agrees(placed, inputs, lambda t: (t[:, 0] + 2 * t[:, 1]) % V)


def pairs(expected, token):
    """Each product of free token sets with its answer and one rival."""
    for answer, cell in expected.cells([range(V)] * (N - 1) + [(token,)]):
        yield from ((answer, rival, cell) for rival in range(V) if rival != answer)


def disagreements(model, expected, last_tokens, shifts=(1e-6, -1e-6), budget=ENDLESS):
    """Products that are proved though their least margin, shifted to a small number, is not positive; or not proved."""
    built = separable.Layer(model, N, None)
    for token in last_tokens:
        tables = built.tables(token)
        gaps = heads.Gaps(tables, built)
        for answer, rival, cell in pairs(expected, token):
            with torch.no_grad():
                logits = model(torch.tensor(list(itertools.product(*cell))), position=-1)
            least = float((logits[:, answer] - logits[:, rival]).min())
            products = heads.Products.of([(answer, cell[:-1])], V, built.tokens)
            products = products[products.rival == rival]
            for shift in shifts:
                gaps.base = tables.base.mid.clone()
                gaps.base[answer] += shift - least
                search = heads.Search(gaps, float("inf"))
                is_proved = search.run(products, budget.deadline())
                if is_proved != (shift > 0) or (is_proved and not shift / 2 - 1e-9 < search.goal < shift + 1e-9):
                    yield answer, rival, cell, shift, search.goal


@pytest.mark.parametrize("seed, n_heads", first(1, [(0, 2), (1, 1), (2, 4), (3, 2), (4, 4), (5, 1)]))
def test_products_are_proved_as_far_as_their_least_margin_is_positive(seed, n_heads):
    model = layer(seed, n_heads, pe=["nope", "ape"][seed % 2], bos=seed == 2)
    for expected in (largest, smallest):
        assert not list(disagreements(model, expected, (seed,)))


@pytest.mark.parametrize(
    "name, right, wrong",
    [
        ("least", "least.sum(-1)", "0.5 * least.sum(-1)"),
        ("least", "- l[..., None, None] * self.weights", "- 0.9 * l[..., None, None] * self.weights"),
        ("quotients", "weights.sum((-2, -1))", "2 * weights.sum((-2, -1))"),
    ],
)
def test_wrong_bounds_of_heads_are_caught(name, right, wrong):
    with planted(heads.Bounds, name, right, wrong):
        assert any(disagreements(layer(2, 2), largest, (3,), budget=looks(60)))


def trained(n, seed=0, steps=300):
    model = initialised(
        Decoder(vocabulary=V, d=16, d_mlp=0, positions=n, pe="nope", layernorm=False, attention_bias=False),
        seed=seed,
        std=0.4,
    )
    optimiser, generator = torch.optim.Adam(model.parameters(), 0.03), torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(0, V, (256, n), generator=generator)
        caps = torch.randint(0, V, (256, 1), generator=generator)
        rows = torch.minimum(rows, caps)
        loss = torch.nn.functional.cross_entropy(model(rows, position=-1), rows.amax(1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.mark.parametrize("steps", first(1, [40, 400]))
def test_both_ways_agree_with_plain_balls(steps):
    """The largest of four by cells, by tables and by balls: one verdict; the counterexample fails in all."""
    model, inputs = trained(4, steps=steps), tokens([V] * 4)
    by_cells = certify(model, inputs=inputs, expected=largest)
    by_balls = certify(model, inputs=inputs, expected=lambda t: t.amax(1))
    with mock.patch.object(separable, "applies", lambda module, task: True):
        by_tables = certify(model, inputs=inputs, expected=lambda t: t.amax(1))
    assert by_cells.verdict is by_balls.verdict is by_tables.verdict
    assert by_tables.extra["counts"] == by_balls.extra["counts"]
    assert by_tables.extra["wrong_inputs"] == by_balls.extra["wrong_inputs"]
    if by_cells.verdict is Verdict.REFUTED:
        assert by_cells.counterexample["input"] in by_balls.extra["wrong_inputs"]
    else:
        assert by_cells.margin <= by_balls.margin and by_cells.inputs_covered == V**4


def test_inputs_beyond_enumeration():
    """6^20 inputs, one head: decided by cells, and a counterexample is run."""
    model = trained(20, steps=60)
    found = certify(model, inputs=tokens([V] * 20), expected=largest, budget=looks(60))
    assert found.verdict in (Verdict.PROVED, Verdict.REFUTED)
    if found.verdict is Verdict.REFUTED:
        wrong = torch.tensor([found.counterexample["input"]])
        with torch.no_grad():
            assert int(model(wrong, position=-1).argmax()) != int(wrong.amax())
    else:
        assert found.inputs_covered == V**20


def counting(n, n_heads, steepness=2.6):
    """A layer that is right about the largest of n: every head weighs tokens by e^steepness, each has its classes."""
    d_head = 2 * V // n_heads
    model = Decoder(
        vocabulary=V, d=2 * V, n_heads=n_heads, d_mlp=0, positions=n, pe="nope", layernorm=False, attention_bias=False
    )
    attention, generator = model.blocks[0].attention, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(1e-3 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator))
        model.W_E[:, :V] += torch.eye(V)
        model.W_U[V:] += torch.eye(V)
        for h in range(n_heads):
            attention.W_Q[:V, h * d_head] += 1
            attention.W_K[:V, h * d_head] += (steepness + 0.3 * h) * d_head**0.5 * torch.arange(V)
            for k, token in enumerate(range(h, V, n_heads)):
                attention.W_V[token, h * d_head + k] += 1
                attention.W_O[h * d_head + k, V + token] += 1
    return model.eval()


@pytest.mark.parametrize("n_heads", first(1, [2, 1, 3]))
def test_several_heads_beyond_enumeration(n_heads):
    """6^12 inputs are proved; a head that is not steep enough is refuted, and the module itself says so."""
    inputs = tokens([V] * 12)
    found = certify(counting(12, n_heads), inputs=inputs, expected=largest)
    assert found.verdict is Verdict.PROVED and found.inputs_covered == V**12
    with torch.no_grad():
        logits = counting(12, n_heads)(torch.tensor([found.tightest["input"]]), position=-1)[0]
    top = logits.topk(2).values
    assert found.margin <= float(top[0] - top[1]) <= 2.1 * found.margin
    wrong = certify(counting(12, n_heads, 2.0), inputs=inputs, expected=largest, budget=looks(60))
    assert wrong.verdict is Verdict.REFUTED and wrong.counterexample["predicted"] != wrong.counterexample["expected"]
    row = torch.tensor([wrong.counterexample["input"]])
    with torch.no_grad():
        assert int(counting(12, n_heads, 2.0)(row, position=-1).argmax()) == wrong.counterexample["predicted"]


@pytest.mark.parametrize("scale", [1e308, 1e155])
def test_logits_beyond_float64_are_not_decided(scale):
    model = counting(12, 2)
    with torch.no_grad():
        model.W_U *= scale
        model.W_E *= scale / 1e150
    found = certify(model, inputs=tokens([V] * 12), expected=largest, budget=1.0)
    assert found.verdict is Verdict.UNKNOWN and found.reason


def test_no_time_is_no_proof():
    found = certify(counting(12, 2), inputs=tokens([V] * 12), expected=largest, budget=0.0)
    assert found.verdict is Verdict.UNKNOWN and "budget" in found.reason and found.extra["counts"]["wrong"] == "0"


def test_cells_that_lie_in_others_are_left_out_where_positions_are_alike():
    cells = list(largest.cells([range(V)] * N))
    for options, is_alike in (({"pe": "nope"}, True), ({"pe": "ape"}, False)):
        model = layer(0, 2, **options)
        tables = separable.Layer(model, N, None).tables(1)
        kept = heads.essential([(answer, cell[:-1]) for answer, cell in cells], tables)
        for answer, cell in cells:
            orders = [order for a, other in kept if a == answer for order in itertools.permutations(other)]
            assert any(all(set(x) <= set(y) for x, y in zip(cell[:-1], order, strict=True)) for order in orders)
        assert (len(kept) < len(cells)) == is_alike


def test_where_it_does_not_apply():
    task = Task(tokens([V] * N), largest)
    assert separable.applies(layer(0), task) and not separable.applies(layer(0, 2), task)
    assert not separable.applies(layer(0, layernorm=True), task)
    assert not separable.applies(layer(0), Task(tokens([V] * N), largest, position=0))
    hooked = layer(0)
    hooked.register_forward_hook(lambda module, arguments, output: -output)
    assert not separable.applies(hooked, task)
