"""Recurrent cells and whole blocks whose step was traced: against runs of the program, forgeries, and faults."""

import functools
import json
import random

import pytest
import torch
from flint import arb, ctx
from models import steps
from models.saved_modules import fitting, outcome, with_weights
from models.selection import every, first
from oracles import step_runs
from test_checker_modules import at, leaves, other_values, replaced

from tests.planted import planted
from verify.checker import captured, captured_cells
from verify.checker.captured import CapturedStep, of_program
from verify.checker.captured_cells import FollowedCell
from verify.checker.formats import format_of
from verify.checker.reading import FAILS, NOT_CHECKABLE

CELL = functools.cache(steps.cell)
BLOCKS = [
    (kind, task, seed, precision)
    for kind in ("s4", "mamba", "rwkv")
    for task, seed in ((steps.MODULAR, 0), (steps.MODULAR, 1), (steps.SELECTIVE, 0), (steps.SELECTIVE, 1))
    for precision in ("float32", "float64")
]
STACKED = [
    (kind, task, precision)
    for kind in ("gru", "rnn", "lstm", "mingru")
    for task in (steps.SELECTIVE, steps.MODULAR)
    for precision in ("real", "float32", "bfloat16")
]


@functools.cache
def blocks():
    """A block of Mamba that is right on a line of two tokens in every evaluation."""
    return steps.blocks("mamba", steps.MODULAR, 1, 2, "float32")


@pytest.mark.parametrize("name", every(2, steps.CELLS))
def test_cells_hold_and_runs_agree(name):
    weights, text = CELL(name)
    assert outcome(weights, text) == (0, "REFUTED" if "wrong" in name else "PROVED")
    assert step_runs.falsehood(weights, text) is None


@pytest.mark.parametrize(("kind", "task", "precision"), first(1, STACKED), ids=str)
def test_layers_round_cells_hold(kind, task, precision):
    for seed in range(3):
        weights, text = steps.stack(kind, task, seed, 3, precision)
        verdict = json.loads(text)["verdict"]
        assert outcome(weights, text) == (0, verdict) if verdict != "UNKNOWN" else outcome(weights, text)[0]
        assert verdict == "UNKNOWN" or step_runs.falsehood(weights, text) is None


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "task", "seed", "precision"), BLOCKS, ids=str)
def test_whole_blocks_hold_in_every_evaluation(kind, task, seed, precision):
    weights, text = steps.blocks(kind, task, seed, 2 - (task is steps.SELECTIVE), precision)
    verdict = json.loads(text)["verdict"]
    assert verdict == "UNKNOWN" or outcome(weights, text) == (0, verdict)
    assert verdict != "PROVED" or step_runs.falsehood(weights, text) is None


def test_strings_of_blocks_hold_in_every_evaluation():
    weights, text = steps.blocks("mamba", steps.SELECTIVE, 1, 1, "float32")
    assert outcome(weights, text) == (0, "PROVED") and step_runs.falsehood(weights, text) is None


def test_a_proof_about_blocks_holds_and_without_its_step_it_does_not():
    weights, text = blocks()
    assert outcome(weights, text) == (0, "PROVED") and step_runs.falsehood(weights, text) is None
    c = json.loads(text)
    assert outcome(weights, json.dumps({k: v for k, v in c.items() if k != "program"}))[0] == NOT_CHECKABLE
    assert outcome(weights, json.dumps(c | {"margin": 2.1 * c["margin"]}))[0] in (FAILS, NOT_CHECKABLE)
    assert outcome(weights, json.dumps(c | {"length": 3, "inputs_covered": "3"}))[0] in (FAILS, NOT_CHECKABLE)


def of_another_step(c, seed):
    """A program that reads or does something else."""
    draw, nodes = random.Random(seed), c["program"]["step"]["nodes"]
    names = [i for i, node in enumerate(nodes) if "name" in node]
    one = draw.choice(names)
    others = [i for i in names if nodes[i]["shape"] == nodes[one]["shape"] and nodes[i]["name"] != nodes[one]["name"]]
    if others and draw.random() < 0.5:
        other = {**nodes[one], "name": nodes[draw.choice(others)]["name"]}
        return replaced(c, ("program", "step", "nodes", one), other)
    others = {"add.Tensor": "sub.Tensor", "sub.Tensor": "add.Tensor", "exp.default": "neg.default"}
    ops = {f"aten.{one}": f"aten.{other}" for one, other in others.items()}
    i = draw.choice([i for i, node in enumerate(nodes) if node["op"] in ops])
    return replaced(c, ("program", "step", "nodes", i), {**nodes[i], "op": ops[nodes[i]["op"]]})


def test_another_step_is_not_that_of_the_blocks_in_the_file():
    weights, text = blocks()
    c = json.loads(text)
    forged = [of_another_step(c, seed) for seed in range(8)]
    assert all(outcome(weights, json.dumps(x))[0] in (FAILS, NOT_CHECKABLE) for x in forged if x != c)
    with planted(captured, "beside", "not (high < least or most < low)", "True"):
        assert any(outcome(weights, json.dumps(x))[0] == 0 for x in forged if x != c)


# ---- drawn evaluations


def outside(weights, c, precision, string, seeds, are_kept=False):
    """Which drawn evaluations leave the numbers that the checker follows along a string."""
    fmt, left = format_of(precision), []
    graph, numbers = of_program(weights, c["program"], captured_cells.OWN)
    with ctx.workprec(128):
        step = CapturedStep(graph, numbers, 128, fmt, are_kept=are_kept)
        known, state = [], step.start(c["program"]["start"])
        for token in string:
            gaps, state = step.after(state, token)
            known.append((step.followed.found.hull.balls[0], gaps))
    for seed in seeds:
        cell = step_runs.Cell(weights, {**c, "parameters": {"precision": precision}})
        at_first = torch.tensor(c["program"]["start"], dtype=torch.float64)
        state = at_first
        for i, token in enumerate(string):
            out = cell.after(state, token, 1000 * seed + i)
            state, logits = out[:numbers], out[numbers:]
            balls, gaps = known[i]
            left += [
                (seed, i, j)
                for j, x in enumerate(state)
                if balls[j].is_finite() and not balls[j].contains(arb(float(x)))
            ]
            apart = {k: arb(float(logits[0] - logits[k])) for k in gaps(0)}
            left += [(seed, i, k) for k, (low, high) in gaps(0).items() if apart[k] < low or apart[k] > high]
    return left


@pytest.mark.parametrize(("name", "precision", "runs"), first(2, [
    ("cell, float32", "bfloat16", 4), ("cell, two parts, wrong", "bfloat16", 2),
    *((name, p, 40) for name in steps.CELLS for p in ("float64", "float32", "bfloat16", "float16", "p12")),
]), ids=str)  # fmt: skip
def test_evaluations_lie_within_what_is_followed(name, precision, runs):
    weights, text = CELL(name)
    c = json.loads(text)
    tokens = c["program"]["tokens"]
    string = [tokens[i % len(tokens)] for i in range(4)]
    assert not any(outside(weights, c, precision, string, range(runs), are_kept) for are_kept in (False, True))


def test_errors_that_are_left_out_move_each_number(monkeypatch):
    """A state carries on few errors: what the others move it by is in its hull, and with a fault it is not."""
    weights, text = CELL("cell, two parts, wrong")
    graph, numbers = of_program(weights, json.loads(text)["program"], captured_cells.OWN)
    monkeypatch.setattr(captured, "MOST_ERRORS", 2)

    def reaches():
        with ctx.workprec(128):
            step = CapturedStep(graph, numbers, 128, format_of("p12"), are_kept=True)
            state = step.after(step.start([0.5, 0.25, 0.125, 1.0, 1.0, 1.0]), 1)[1]
            return [*zip(step.whole.reach.balls[0][:numbers], state.reach.balls[0], strict=True)]

    assert all(after * (1 + 2.0**-40) >= before for before, after in reaches())
    with planted(CapturedStep, "_with_fewer", "return self.at", "return fewer or self.at"):
        assert not all(after * (1 + 2.0**-40) >= before for before, after in reaches())


def test_what_no_token_decides_is_rounded_anew_after_each():
    """Errors of a function of the weights are others at each token."""
    weights, text = steps.blocks("mamba", steps.MODULAR, 1, 2, "float32")
    graph, numbers = of_program(weights, json.loads(text)["program"])

    def shared():
        with ctx.workprec(128):
            step = CapturedStep(graph, numbers, 128, format_of("float32"), are_kept=True)
            step.after(step.start([0.0] * numbers), 0)
            first = step.whole.moved.keys()
            step.after(step.start([0.0] * numbers), 0)
            return first & step.whole.moved.keys()

    assert not shared()
    with planted(CapturedStep, "after", "self.followed.fixed.clear()", "pass"):
        assert shared()


# ---- one evaluation


def test_factors_are_rounded_in_the_run_that_keeps_results():
    weights, text = CELL("cell, two parts, wrong, float32")
    graph, numbers = of_program(weights, json.loads(text)["program"], captured_cells.OWN)
    found = []
    for fault in ("values | {", "values and {**values} or {"):
        with ctx.workprec(128), planted(CapturedStep, "_factors", "values | {", fault):
            step = CapturedStep(graph, numbers, 128, format_of("bfloat16"), as_run=True)
            found.append(step.after(step.start([0.1] * numbers), 1)[0](0)[1])
    assert abs(found[0][0] - found[1][0]) > 0


# ---- forgeries


def forged(draw, name):
    """Another weights file and certificate."""
    weights, text = CELL(name)
    c = json.loads(text)
    kind = draw.choice(["weights", "margin", "claim", "program", "proof", "format"])
    if kind == "weights":
        weights = with_weights(weights, draw)
    if kind == "margin" and c["margin"]:
        c["margin"] *= draw.choice([0.5, 0.999, 1.001, 1.5, 1.9, 4.0, -1.0])
    if kind in ("claim", "program"):
        path = draw.choice([path for path in leaves(c) if path and (path[0] == "program") == (kind == "program")])
        c = replaced(c, path, draw.choice(other_values(at(c, path))))
    if kind == "proof" and c["verdict"] == "REFUTED":
        n, K = draw.choice([1, len(c["counterexample"]["input"])]), len(c["program"]["tokens"])
        covered = str(n if K == 1 else (K ** (n + 1) - K) // (K - 1))
        c = c | {"verdict": "PROVED", "counterexample": None, "length": n, "inputs_covered": covered}
        c = c | {"parameters": c["parameters"] | {"length": n}, "margin": draw.choice([1e-9, 0.1, 1.0])}
        c = {key: x for key, x in c.items() if key != "right_to"}
    if kind == "format" and "precision" in c["parameters"]:
        c["parameters"]["precision"] = draw.choice(
            ["p3", "p4", "p6", "p8", "bfloat16", "float16", "float32", "float64"]
        )
    return weights, fitting(c, weights)


def lies(name, seeds):
    """How many forgeries hold, and which of them are false."""
    held, found = 0, []
    for seed in seeds:
        weights, text = forged(random.Random(f"{name} {seed}"), name)
        code = outcome(weights, text)[0]
        assert code in (0, 1, 2, 3)
        if code == 0:
            held += 1
            what = step_runs.falsehood(weights, text)
            found += [(seed, what)] if what else []
    return held, found


@pytest.mark.parametrize(("name", "number"), first(2, [
    ("cell", 12), ("cell, wrong, bfloat16", 12), *((name, 400) for name in steps.CELLS),
]), ids=str)  # fmt: skip
def test_no_forgery_that_holds_is_false(name, number):
    held, found = lies(name, range(number))
    assert not found and held


def of_three(c):
    """A wrong string that is not the first, said to be."""
    case = c["counterexample"] | {"input": [1] * 3, "length": 3, "expected": 1, "predicted": 0}
    program = c["program"] | {"steps": [[1], [2], [3], []], "answers": [0, 1, 0, 1]}
    return c | {"counterexample": case, "right_to": 2, "margin": -1e-9, "program": program}


FAULTS = [
    ("cell", (FollowedCell, "_all_right", "gaps(right).values() if right is not None else ()", "()"),
     lambda c: c | {"program": c["program"] | {"answers": [1, 0]}}),
    ("cell", (captured_cells, "_checked", '"inputs_covered": cell.covered(length), ', ""),
     lambda c: c | {"inputs_covered": "15"}),
    ("cell, wrong", (FollowedCell, "wrong", 'case["expected"] == right', "True"),
     lambda c: replaced(c, ("counterexample", "expected"), 0)),
    ("cell, wrong", (FollowedCell, "wrong", "if is_first:", "if False:"), of_three),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_each_comparison_is_needed(number):
    name, fault, change = FAULTS[number]
    weights, text = CELL(name)
    said = json.dumps(change(json.loads(text)))
    assert outcome(weights, said)[0] == FAILS and step_runs.falsehood(weights, said)
    with planted(*fault):
        assert outcome(weights, said)[0] == 0


# ---- what is refused


@pytest.mark.parametrize(("path", "value"), [
    (("program", "numbers"), 2), (("program", "numbers"), 0), (("program", "numbers"), True),
    (("program", "start"), [float("1e400")]), (("program", "start"), [1.0, 2.0]), (("program", "tokens"), [0, 0]),
    (("program", "steps"), [[0, 1]]), (("program", "steps"), [[0, 2], [1, 0]]), (("program", "answers"), [0, 2]),
    (("program", "answers"), [0, 1, 0]), (("parameters", "state"), 3), (("parameters", "tokens"), 1),
    (("length",), 4), (("inputs_covered",), "15"), (("graph", "operations"), {}), (("program",), {}),
])  # fmt: skip
def test_what_does_not_fit_is_refused(path, value):
    weights, text = CELL("cell")
    c = json.loads(text)
    try:
        said = json.dumps(replaced(c, path, value), allow_nan=True)
    except ValueError:
        return
    assert outcome(weights, said)[0] in (FAILS, NOT_CHECKABLE, 2)


def test_a_first_state_that_is_none_of_the_format_is_not_judged():
    """It would be rounded, and the run that keeps every result began at it as it is."""
    weights, text = CELL("cell, wrong, bfloat16")
    c = json.loads(text) | {"margin": -1e-9}
    for start, code in ((0.1, NOT_CHECKABLE), (0.10009765625, 0)):
        said = json.dumps(replaced(c, ("program", "start"), [start]))
        assert outcome(weights, said)[0] == code


def test_a_task_has_some_types_and_not_too_many():
    """Of none no string is wrong, by any margin; very many once took all memory."""
    weights, text = steps.stack("gru", steps.SELECTIVE, 0, 3, "real")
    c = json.loads(text)
    assert outcome(weights, text) == (0, "PROVED")
    none = replaced(c, ("parameters", "types"), 0) | {"inputs_covered": "0", "margin": 1e9}
    assert outcome(weights, json.dumps(none))[0] == FAILS
    many = replaced(c, ("parameters", "types"), 10**15)
    assert outcome(weights, json.dumps(many))[0] == NOT_CHECKABLE


def test_a_state_that_is_not_there_is_refused():
    weights, text = CELL("cell")
    c = json.loads(text)
    nodes = c["program"]["step"]["nodes"]
    (i,) = [i for i, node in enumerate(nodes) if node["op"] == "state"]
    for change in ({"at": 1}, {"at": -1}, {"at": True}, {"shape": [1, 2]}):
        said = replaced(c, ("program", "step", "nodes", i), nodes[i] | change)
        assert outcome(weights, json.dumps(said))[0] in (FAILS, NOT_CHECKABLE)
    module = json.loads(text) | {"program": c["program"]["step"]}
    assert outcome(weights, json.dumps(module))[0] == FAILS
