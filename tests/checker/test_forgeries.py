"""Forged certificates of every kind: whatever is said to hold is true by an oracle that shares nothing."""

import contextlib
import copy
import importlib
import json
import random
import re
from unittest import mock

import pytest
from models.certificates import ALL, NAMES, honest
from models.forgeries import LITERALS, VALUES, at, forged, places, put
from models.selection import every, first
from oracles.forged import falsehood

from tests.planted import planted
from tests.some import some
from verify.checker import (
    addition,
    any_order,
    boxes,
    captured_cells,
    circuits,
    columns,
    constant_bits,
    count01,
    fields,
    gated,
    grokking,
    heads,
    held,
    inductive,
    kinds,
    linear,
    mathematics,
    modular,
    parity,
    reading,
    recurrent,
    selective,
    table,
)  # fmt: skip
from verify.checker.reading import FAILS, UNREADABLE, Refusal

SLOWLY_MADE = {
    "dot, 4 bits",
    "drawn",
    "parity, wrong by its order, p2",
    "transformer, drawn, wrong",
    "transformer, drawn, wrong, float64",
    "transformer, turned",
    "transformer, turned, float32",
    "transformer, turned, wrong",
    "transformer, turned, wrong, float64",
    "transformer, waves, wrong",
}  # others are of their kinds
CHUNK = 250  # of the 50,000 under -m deep: `pytest tests/checker/test_forgeries.py -m deep`


def outcome(weights, text):
    """The verdict that holds and what is trusted, or the exit code and why. Nothing but a Refusal is raised."""
    try:
        return 0, kinds.check(weights, text.encode())
    except Refusal as refusal:
        assert str(refusal) and "\n" not in str(refusal)
        return refusal.exit_code, str(refusal)


@pytest.mark.parametrize("name", every(12, ALL))
def test_honest_certificates_hold_and_the_oracle_agrees(name):
    weights, text = honest(name)
    code, found = outcome(weights, text)
    said = json.loads(text)
    assert (code, found[0]) == (0, said.get("verdict", "SEPARABILITY"))
    assert said["task"] == "heads" or ("wrong" in name) == (said["verdict"] == "REFUTED")
    assert falsehood(weights, text) is None


def lies(seeds, names=NAMES):
    """Of these forgeries: how many hold, and which of them are false."""
    holds, found = 0, []
    for seed in seeds:
        name, weights, text = forged(random.Random(seed), names)
        if outcome(weights, text)[0] == 0:
            holds += 1
            what = falsehood(weights, text)
            found += [(seed, name, what)] if what else []
    return holds, found


QUICKLY_MADE = [name for name in NAMES if name not in SLOWLY_MADE]
DRAWN = [(0, 100, QUICKLY_MADE), *((i, CHUNK, NAMES) for i in range(0, 50_000, CHUNK))]


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
    (selective._Thermometer, "_wins", "low >= margin", "True"),
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
        users = [module for module in (gated, linear, recurrent, selective) if getattr(module, name, None)]
        with contextlib.ExitStack() as stack:
            for module in users if owner is reading else []:
                stack.enter_context(mock.patch.object(module, name, getattr(reading, name)))
            assert any(lies([seed], [OF_FAULTS[number]])[1] for seed in range(2000))


# ---- the table

WALKERS = (circuits, captured_cells, constant_bits, fields, grokking, heads, inductive, any_order)


def walked(weights, text):
    """The kind of a certificate."""
    met = []

    def walk(found, kind):
        met.append(kind)
        return table.walk(found, kind)

    with contextlib.ExitStack() as stack:
        for module in WALKERS:
            stack.enter_context(mock.patch.object(module, "walk", walk))
        outcome(weights, text)
    return met


@pytest.mark.parametrize("left_out", first(1, [SLOWLY_MADE, set()]), ids=["but the slow ones", "all"])
def test_every_kind_of_certificate_is_tried(left_out):
    met = {kind for name in ALL if name not in left_out for kind in walked(*honest(name))}
    lines = [f"{kind}, {how}" for kind in ("line", "words", "strings") for how in ("wrong in an eval", "by its step")]
    of_their_own = ("module", "cell, ", "network, ", *lines)  # test_checker_modules, _blocks_in_formats, _steps
    assert {kind for kind in table.TABLES if kind not in met} == {
        kind for kind in table.TABLES if kind.startswith(of_their_own) and kind not in met
    }


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
@pytest.mark.parametrize("name", every(6, NAMES))
def test_any_value_at_any_place_is_refused_or_named(name, is_all):
    """What is accepted is named as trusted, or is a bound, a witness or another statement, and true."""
    weights, text = honest(name)
    kind, said, refused = walked(weights, text)[0], json.loads(text), 0
    listed = [*tries(said)]
    for path, value in listed if is_all else random.Random(name).sample(listed, 5):
        if (found := changed_to(said, path, value)) is None:
            continue
        place, changed = found
        code, answer = outcome(weights, changed)
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
