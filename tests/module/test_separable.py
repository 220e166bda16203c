"""One attention layer by tables: against the generic engine input by input, and against enumeration."""

import itertools
from unittest import mock

import pytest
import torch
from models.selection import first

from constructions.decoder import Decoder, initialised
from verify.certificate import Verdict
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.engine.margins import Question
from verify.engine.run import enclose
from verify.module import Task, certify, largest, separable, smallest, tokens

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
    model = layer(n_heads, n_heads, **options)
    task = Task(tokens([V, [0, 2, 5], V, [1, 3]]), largest)
    part = task.inputs.parts[0]
    found = list(separable.enumerated(separable.Layer(model, N, None), part, lambda t: task.answers(t, V)))
    rows, low, high = (torch.cat(column) for column in zip(*found, strict=True))
    assert len(rows) == part.size == len({tuple(r) for r in rows.tolist()})
    graph = capture(model, N, arguments={"position": N - 1})
    other_low, other_high = enclose(graph, Arithmetic(), Question((N - 1,), None))(rows, task.answers(rows, V))
    assert (low <= other_high).all() and (other_low <= high).all() and (high - low).max() < 1e-9


def margins_of(model, sets, task):
    rows = torch.tensor(list(itertools.product(*sets)))
    with torch.no_grad():
        logits = model(rows, position=-1)
    right = task.answers(rows, V)
    own = logits.gather(1, right).squeeze(1)
    return rows, own - logits.scatter(1, right, -torch.inf).amax(1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("expected", [largest, smallest])
def test_the_least_margin_over_a_product_is_exact(seed, expected):
    model = layer(seed, pe=["nope", "ape"][seed % 2])
    task = Task(tokens([V] * N), expected)
    built = separable.Layer(model, N, None)
    for token in range(V):
        tables = separable.Scaled.of(built.tables(token), built)
        seen = 0
        for answer, cell in expected.cells([range(V)] * (N - 1) + [(token,)]):
            rows, margins = margins_of(model, cell, task)
            seen += len(rows)
            assert (expected(rows) == answer).all()
            low, worst = separable.least_margin(tables, answer, cell[:-1])
            assert (low > 0) == bool((margins > 1e-12).all())
            if low <= 0:
                _, margin = margins_of(model, [(t,) for t in (*worst, token)], task)
                assert margin[0] <= 1e-12
        assert seen == V ** (N - 1)


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
    found = certify(model, inputs=tokens([V] * 20), expected=largest)
    assert found.verdict in (Verdict.PROVED, Verdict.REFUTED)
    if found.verdict is Verdict.REFUTED:
        wrong = torch.tensor([found.counterexample["input"]])
        with torch.no_grad():
            assert int(model(wrong, position=-1).argmax()) != int(wrong.amax())
    else:
        assert found.inputs_covered == V**20


def test_a_wrong_end_of_the_products_is_caught():
    from tests.planted import planted

    model, task = trained(N, steps=15), Task(tokens([V] * N), largest)
    built = separable.Layer(model, N, None)

    def disagreements():
        for token in range(V):
            tables = separable.Scaled.of(built.tables(token), built)
            for answer, cell in largest.cells([range(V)] * (N - 1) + [(token,)]):
                _, margins = margins_of(model, cell, task)
                low, _ = separable.least_margin(tables, answer, cell[:-1])
                yield (low > 0) != bool((margins > 1e-12).all())

    assert not any(disagreements())
    with planted(separable, "least_margin", ".min(0)", ".max(0)"):
        assert any(disagreements())


def test_where_it_does_not_apply():
    task = Task(tokens([V] * N), largest)
    assert separable.applies(layer(0), task) and not separable.applies(layer(0, 2), task)
    assert not separable.applies(layer(0, layernorm=True), task)
    assert not separable.applies(layer(0), Task(tokens([V] * N), largest, position=0))
    hooked = layer(0)
    hooked.register_forward_hook(lambda module, arguments, output: -output)
    assert not separable.applies(hooked, task)
