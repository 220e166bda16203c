"""Forged certificates of every kind: whatever is said to hold is true by an oracle that shares nothing."""

import ast
import contextlib
import copy
import importlib
import inspect
import json
import pkgutil
import random
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
from models.certificates import ALL, NAMES, honest
from models.certificates_of_modules import MODULES, asked
from models.forgeries import LITERALS, VALUES, at, forged, places, put
from models.selection import every, first
from oracles.forged import falsehood

from tests.planted import planted
from tests.some import some
from verify import checker
from verify.checker import (
    addition,
    boxes,
    columns,
    count01,
    fields,
    gated,
    grokking,
    heads,
    held,
    kinds,
    linear,
    mathematics,
    modular,
    parity,
    reading,
    recurrent,
    selective,
    stored_selective,
    table,
    thermometers,
)
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, Refusal

SLOWLY_MADE = {
    "blocks of types, float32",
    "count01, from 1, wrong, 6 bits",
    "dot, 4 bits",
    "drawn",
    "gru, named askew, wrong, float32",
    "gru, for ever, float64",
    "gru, wrong in a run",
    "lstm, named, wrong, float32",
    "lstm, wrong in a run",
    "parity, wrong by its order, p2",
    "s4, named, wrong, bfloat16",
    "splits",
    "ssm, named, wrong, float32",
    "transformer, drawn, wrong",
    "transformer, drawn, wrong, float64",
    "transformer, strings",
    "transformer, strings, float32",
    "transformer, turned",
    "transformer, turned, float32",
    "transformer, turned, wrong",
    "transformer, turned, wrong, float64",
    "transformer, waves, wrong",
    "whole blocks, mamba, helper, wrong",
    "whole blocks, rwkv, strings, wrong",
    "whole blocks, s4",
    "whole blocks, s4, helper, wrong",
    "whole blocks, s4, wrong",
    "words, held, wrong in a run",
    *({*MODULES} - {"module, some inputs", "module, wrong", "module, float32", "module, float32, wrong"}),
}  # others are of their kinds
CHUNK = 250  # of the 50,000 under -m deep: `pytest tests/checker/test_forgeries.py -m deep`


def outcome(weights, text, name=""):
    """The verdict that holds and what is trusted, or the exit code and why. Nothing but a Refusal is raised."""
    try:
        with asked(name):
            return 0, kinds.check(weights, text.encode())
    except Refusal as refusal:
        assert str(refusal) and "\n" not in str(refusal)
        return refusal.exit_code, str(refusal)


@pytest.mark.parametrize("name", every(18, ALL))
def test_honest_certificates_hold_and_the_oracle_agrees(name):
    weights, text = honest(name)
    code, found = outcome(weights, text, name)
    said = json.loads(text)
    assert (code, found[0]) == (0, said.get("verdict", "SEPARABILITY"))
    assert said["task"] == "heads" or ("wrong" in name) == (said["verdict"] == "REFUTED")
    assert falsehood(weights, text) is None


def lies(seeds, names=NAMES):
    """Of these forgeries: how many hold, and which of them are false."""
    holds, found = 0, []
    for seed in seeds:
        name, weights, text = forged(random.Random(seed), names)
        if outcome(weights, text, name)[0] == 0:
            holds += 1
            what = falsehood(weights, text)
            found += [(seed, name, what)] if what else []
    return holds, found


QUICKLY_MADE = [name for name in NAMES if name not in SLOWLY_MADE]
DRAWN = [(0, 60, QUICKLY_MADE), *((i, CHUNK, NAMES) for i in range(0, 50_000, CHUNK))]


@pytest.mark.parametrize(("start", "number", "names"), first(1, DRAWN))
def test_no_forgery_that_holds_is_false(start, number, names):
    holds, found = lies(range(start, start + number), names)
    assert not found and number / 8 < holds < number / 2


FAULTS = [
    (reading, "tables_of", "len(shape) == rank and", ""),
    (held.HeldUnits, "_refuted", "right_to == length - 1)", "True)"),
    (held, "_parts", "token (0|[1-9][0-9]{0,19}) ([1-9][0-9]{0,19}) times", r"token (-?[0-9]+) (-?[0-9]+) times"),
    (reading, "tables_of", "len({dtype for dtype, _, _ in tensors.values()}) == 1", "True"),
    (linear, "first_wrong", 'c.get("right_to") == n - 1', "True"),
    (fields, "_replay", "require(is_near", "require(True"),
    (thermometers.StoredThermometer, "_wins", "low >= margin", "True"),
    (heads, "_certified", "checks[kind, said]()", "True"),
    (parity, "_refute", '"margin_exact": str(exact)', ""),
    (mathematics.Model, "_is_ahead", "min(0, slope[i] * ranges[i][1])", "0"),
    (modular.Pairs, "wrong", "found += [[a, b]] * is_wrong", "pass"),
    (modular, "_refute", "any(y > row[said] for y in row)", "False"),
    (count01, "_prove", "is_shown = all(", "is_shown = any("),
    (count01, "wrong_prompt", "compare(case, due |", "compare(case, "),
    (boxes, "_bound", "reduce(arb.min, values)", "reduce(arb.max, values)"),
    (columns.DigitColumn, "prove", "require(found >= margin", "require(found > 0"),
    (addition, "_refute", "require(not is_beaten", "require(True"),
    (grokking, "check_differences", "return said[(tokens[0] - tokens[1]) % P]", "return said[0]"),
    (grokking, "check", "check_spectrum(c, tensors, P)", "pass"),
]


OF_FAULTS = ["ssm", "held, wrong", "held, wrong", "ssm", "decay, wrong", "bos, wrong", "thermometer", "pair"]
OF_FAULTS += ["parity, wrong", "parity, undecided", "staircase", "clock, wrong", "count01", "count01, from 1, wrong"]
OF_FAULTS += ["count01, heads", "addition", "addition, wrong", "grokked", "grokked"]


@pytest.mark.parametrize("number", first(1, range(len(FAULTS))))
def test_a_checker_that_forgets_something_is_found(number):
    """Each of these was once so, or leaves out one comparison; forgeries are drawn until one holds and is false."""
    owner, name, right, wrong = FAULTS[number]
    with planted(owner, name, right, wrong):
        users = [module for module in (gated, linear, recurrent, stored_selective) if getattr(module, name, None)]
        with contextlib.ExitStack() as stack:
            for module in users if owner is reading else []:
                stack.enter_context(mock.patch.object(module, name, getattr(reading, name)))
            assert any(lies([seed], [OF_FAULTS[number]])[1] for seed in range(2000))


# ---- the table

PARTS = {x.name: importlib.import_module(f"verify.checker.{x.name}") for x in pkgutil.iter_modules(checker.__path__)}
WALKERS = [part for part in PARTS.values() if getattr(part, "walk", None) is table.walk and part is not table]


def walked(name):
    """The kind of a certificate."""
    met = []

    def walk(found, kind):
        met.append(kind)
        return table.walk(found, kind)

    with contextlib.ExitStack() as stack:
        for module in WALKERS:
            stack.enter_context(mock.patch.object(module, "walk", walk))
        outcome(*honest(name), name)
    return met


@pytest.mark.parametrize("left_out", first(1, [SLOWLY_MADE, set()]), ids=["but the slow ones", "all"])
def test_every_kind_of_certificate_is_tried(left_out):
    assert {kind for name in ALL if name not in left_out for kind in walked(name)} == {*table.TABLES}


OF_OPERATIONS = {"operations", "moves", "lines", "arrays"}  # each of which test_checker_graphs and _layers try
# Functions that no certificate of these kinds enters: a way out where the first one fails, or of what is refused.
UNENTERED = {
    "carries.gaps",
    "columns.DigitColumn._at_most",
    "computed_counts.ComputedCounts._of_form",
    "computed_counts.InputPart.halves",
    "computed_orders.EveryOrder._bounded",
    "computed_regions.one_by_one",
    "graphs._is_wider",
    "graphs_of_states.GraphOfStates._wins_on_box",
    "leaves.Leaf._is_right_exactly",
    "leaves.Leaf._is_wrong_exactly",
    "leaves.Leaf.is_one_input",
    "leaves.QueryCell.is_alike",
    "moved._gap",
    "moved._share_above",
    "moved_decoder.MovedDecoder._active",
    "moved_decoder.MovedDecoder._turned",
    "moved_decoder._rows",
    "netlists.Gates._all_words",
    "netlists.Gates.reaches",
    "one_head.OneHeadCell.terms",
    "one_layer.OneLayerGraph.constant",
    "recurrent._relu.<locals>.slope",
    "region_strings.Strings.are_few",
    "region_strings.Strings.every",
    "region_strings.Strings.shortest_ones",
    "rounded_graphs.RoundedFollower.added",
    "rounded_graphs.RoundedFollower.cast",
    "rounded_graphs.RoundedFollower.leaky_relu",
    "rounded_graphs.RoundedFollower.power",
    "rounded_lines.by_errors",
    "rounded_lines.by_errors.<locals>.follow",
    "rounded_lines.by_errors.<locals>.follow.<locals>.gaps",
    "rounded_results._function",
    "rounded_results._slope_of_gelu",
    "roundoff.Roundoff._rest",
    "splits._listed",
    "stages.StagesAfterAttention._variance",
    "stages._times",
    "steady.SteadyTurns.after",
}
OF_THEIR_OWN = {  # forged in test_checker_computed_turns, _turning and _steps, whose runs are long
    "captured.CapturedStep._gaps",
    "captured.CapturedStep._with_fewer",
    "computed_turns._of_matrix",
    "computed_turns._of_matrix.<locals>.shown",
    "linear.for_ever",
}


def has_a_body(node):
    """Whether a function does something: a line of a Protocol does not."""
    does = [x for x in node.body if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))]
    return bool(does) and not any(isinstance(x, ast.Raise) for x in does)


def functions(node, prefix=""):
    """The names of all functions within functions and classes, as their code says them."""
    for x in ast.iter_child_nodes(node):
        is_function = isinstance(x, ast.FunctionDef)
        name = f"{prefix}{x.name}" if is_function or isinstance(x, ast.ClassDef) else ""
        if is_function and has_a_body(x):
            yield name
        yield from functions(x, f"{name}.<locals>." if is_function else f"{name}." if name else prefix)


def entered(names):
    """The functions of the checker that re-deciding these certificates enters."""
    met, before = set(), sys.gettrace()
    for thing in (thing for part in PARTS.values() for thing in vars(part).values() if hasattr(thing, "cache_clear")):
        thing.cache_clear()  # what is kept would not be entered again
    for name in names:
        files = honest(name)
        sys.settrace(lambda frame, *_: met.add(frame.f_code))
        try:
            outcome(*files, name)
        finally:
            sys.settrace(before)
    folder = Path(checker.__file__).parent
    return {f"{Path(x.co_filename).stem}.{x.co_qualname}" for x in met if Path(x.co_filename).parent == folder}


@pytest.mark.deep
def test_no_way_to_decide_is_left_out():
    """A new way of the checker is a new function: some certificate enters it, and forgeries of that are drawn."""
    parts = {name: ast.parse(inspect.getsource(part)) for name, part in PARTS.items() if part is not table}
    every_one = {f"{name}.{x}" for name, tree in parts.items() for x in functions(tree)}
    assert {x for x in every_one - entered(ALL) if x.split(".")[0] not in OF_OPERATIONS} <= UNENTERED | OF_THEIR_OWN


def test_what_decides_a_field_exists():
    """Every "by module.function" of the table names a function of the checker."""
    missing = []
    for path, field in some(item for fields_of in table.TABLES.values() for item in fields_of.items()):
        assert {*field.types.split(" | ")} <= {*table.TYPES}, path
        assert field.how.startswith("trusted: ") == bool(field.name) or "by " in field.how, path
        for found in re.findall(r"by (\w+)\.(\w+)|or (\w+)\.(\w+)", field.how):
            module, function = filter(None, found)
            if not callable(getattr(importlib.import_module(f"verify.checker.{module}"), function, None)):
                missing.append((path, field.how))
    assert missing == []


def field_of(c, path, kind):
    """The table's entry for a place: its own, or that of the whole that is trusted with it."""
    found = {"schema": table.Field("text", "equals ours")} | table.TABLES[kind]
    for end in range(len(path), 0, -1):
        name = "".join("[]" if isinstance(key, int) else f".{key}" for key in path[:end]).removeprefix(".")
        field = found.get(name) or found.get(f"{name}?")
        within = at(c, path[:end]) if field is not None and "elsewhere" in field.types and end < len(path) else {}
        if "kind" in within:
            return field_of(within, path[end:], f"heads, {within['kind']}")
        if field is not None:
            return field
    raise AssertionError(f"{path} has no place in the table")


NOTHING, MORE = object(), object()


def tries(c):
    """Every place of a certificate, of longer lists the first three, with every value, nothing, and a key more."""
    for path in places(c):
        if all(key < 3 for key in path if isinstance(key, int)):
            yield from ((path, value) for value in [*VALUES, NOTHING, MORE])


def changed_to(c, path, value):
    """The place and the text of a certificate with one change, None where it is as it was."""
    changed = copy.deepcopy(c)
    if value is NOTHING:
        del at(changed, path[:-1])[path[-1]]
    elif value is MORE:
        if not isinstance(at(changed, path), dict):
            return None
        at(changed, path)["note"], path = 1, (*path, "note")
    else:
        put(changed, path, value)
    return None if json.dumps(changed) == json.dumps(c) else (path, json.dumps(changed))


@pytest.mark.parametrize("is_all", first(1, [False, True]))
@pytest.mark.parametrize("name", every(10, NAMES))
def test_any_value_at_any_place_is_refused_or_named(name, is_all):
    """What is accepted is named as trusted, or is a bound, a witness or another statement, and true."""
    weights, text = honest(name)
    kind, said, refused = walked(name)[0], json.loads(text), 0
    listed = [*tries(said)]
    for path, value in listed if is_all else random.Random(name).sample(listed, 5):
        if (found := changed_to(said, path, value)) is None:
            continue
        place, changed = found
        code, answer = outcome(weights, changed, name)
        refused += code != 0
        if code == 0:
            field = field_of(said, place, kind)
            may_differ = value is NOTHING or not field.how.startswith(("equals", "by "))  # earlier releases wrote less
            is_true = may_differ and falsehood(weights, changed) is None
            assert field.name in answer[1] or is_true, (place, changed, field)
    assert refused


@pytest.mark.parametrize("name", ["dot", "bos, wrong", "ssm", "held, wrong", "cycle, bits", "pair"])
def test_numbers_are_written_as_json_writes_them(name):
    """A literal of another kind, or a key that is there twice, at any place: refused or named as trusted."""
    weights, text = honest(name)
    bare = re.sub('"[^"]*"', lambda found: "_" * len(found[0]), text)
    numbers = [*re.finditer(r"(?<=[ \[])-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?(?=[,\]}])", bare)]
    draw = random.Random(name)
    for literal in LITERALS:
        found = draw.choice(numbers)
        changed = text[: found.start()] + literal + text[found.end() :]
        if literal != "1E3":  # which is a number, and no whole one
            assert outcome(weights, changed)[0] == UNREADABLE, literal
    for key in some(re.finditer(r'"(\w+)": ', text)):
        twice = text[: key.start()] + f'"{key[1]}": 1, ' + text[key.start() :]
        assert outcome(weights, twice)[0] == UNREADABLE


@pytest.mark.parametrize("text", ['{"task": []}', '{"a":' * 100_000, "[]", "", '{"task": {"a": 1}}', '{"task": 1e999}'])
def test_a_task_that_is_none_is_no_crash(text):
    assert outcome(honest("dot")[0], text)[0] in (FAILS, UNREADABLE)


MALFORMED = [  # each once raised something within what decides
    ("relu", ("repeats",), [1, 3, 5], "two lengths"),
    ("relu", ("parameters", "model"), ["rnn"], "must have model"),
    ("thermometer", ("parameters", "types"), None, "must have model, types"),
    ("thermometer", ("argument",), None, "malformed"),
    ("thermometer", ("invariant_found", "least_sign"), None, "no least sign"),
    ("ssm, wrong in a run, bfloat16", ("run", "logits"), [0.0], "a logit of each class"),
    ("rwkv, wrong in a run, bfloat16", ("run", "logits"), [0.0], "a logit of each class"),
]


@pytest.mark.parametrize(("name", "path", "value", "why"), MALFORMED)
def test_what_has_another_shape_is_refused_in_words(name, path, value, why):
    weights, text = honest(name)
    c = json.loads(text)
    put(c, path, value)
    if value is None:
        del at(c, path[:-1])[path[-1]]
    code, said = outcome(weights, json.dumps(c), name)
    assert code == FAILS and why in said


DECIDES = {"relu": (linear, "exact"), "thermometer": (selective, "decide"), "uniform": (heads, "separates")}


@pytest.mark.parametrize("error", [TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError])
@pytest.mark.parametrize("name", DECIDES)
def test_a_failure_of_the_checker_is_not_called_false(name, error):
    """Arithmetic that fails says nothing of a statement; all else is a bug, which is not caught."""
    weights, text = honest(name)
    with mock.patch.object(*DECIDES[name], side_effect=error("of ours")):
        if error is ZeroDivisionError:
            assert outcome(weights, text, name)[0] == NOT_CHECKABLE
        else:
            with pytest.raises(error, match="of ours"):
                outcome(weights, text, name)
