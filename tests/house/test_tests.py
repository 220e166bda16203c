"""Tests that cannot fail are none: loops over what may be empty, chains of `is`, reasons that are true, no assert."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.some import some
from tests.tools.house import below

TESTS = Path(__file__).parents[1]
FILES = some(sorted(TESTS.rglob("test_*.py")))
LISTED = {"glob", "rglob", "iterdir", "listdir", "scandir", "findall", "finditer"}  # all may find nothing
SAME = {"sorted", "list", "tuple", "set", "enumerate", "zip", "reversed", "filter", "map", "chain"}  # empty of nothing
ALLOWED = {
    ("docs/test_examples.py", "test_every_example_of_the_page"): "an example fails where what is printed is another",
    ("docs/test_examples.py", "test_no_example_hides_in_another_kind_of_block"): "a page without a block hides none",
}
EXPECTED = {"raises", "warns", "importorskip", "fail"}  # of pytest


@cache
def walked(node):
    """A node and all below it: every rule reads them."""
    return below(node)


def functions(tree):
    return [node for node in walked(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def those_of(tree):
    return [node for node in functions(tree) if node.name.startswith("test_")]


def called(node):
    """The last names of all that is called, and of the functions that are handed on."""
    for part in walked(node):
        if isinstance(part, ast.Call):
            yield part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")


def asserting(trees):
    """The names of functions that assert, themselves or through others, in any file of the tests."""
    bodies = {}
    for tree in trees:
        for function in functions(tree):
            if not function.name.startswith("test_"):
                bodies.setdefault(function.name, []).append(function)
    found = {name for name, nodes in bodies.items() if any(map(has_assert, nodes))}
    calls = {name: {other for node in nodes for other in called(node)} for name, nodes in bodies.items()}
    while True:
        more = {name for name, others in calls.items() if others & found}
        if more <= found:
            return found
        found |= more


def has_assert(node):
    return any(isinstance(part, ast.Assert | ast.Raise) for part in walked(node)) or any(
        name in EXPECTED or name.startswith("assert_") for name in called(node)
    )


def without_an_assert(tree, helpers):
    for test in those_of(tree):
        if not has_assert(test) and not set(called(test)) & helpers:
            yield test.lineno, f"{test.name} asserts nothing"


def names_of(tree):
    """What each name is bound to, anywhere in a file."""
    found = {}
    for node in walked(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in walked(target):
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, []).append(node.value)
    return found


def may_be_empty(node, names):
    """Whether an iterable is listed from what is there: directly, sorted or filtered, or under a name."""
    if isinstance(node, ast.Name):
        values = names.get(node.id, [])
        return any(may_be_empty(x, {**names, node.id: []}) for x in values)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):  # one element makes it a list of something
        parts = node.elts
        return bool(parts) and all(isinstance(x, ast.Starred) and may_be_empty(x.value, names) for x in parts)
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return any(may_be_empty(part.iter, names) for part in node.generators)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in LISTED:
            return True
        if name in SAME:
            return any(may_be_empty(part, names) for part in node.args)
        if name in ("items", "keys", "values"):
            return may_be_empty(node.func.value, names)
    return isinstance(node, ast.Subscript) and may_be_empty(node.value, names)


def asserted(function, but):
    """The names that asserts of a function speak of, those within a node left out."""
    inside = set(walked(but))
    for node in walked(function):
        if isinstance(node, ast.Assert) and node not in inside:
            yield from (name.id for name in walked(node.test) if isinstance(name, ast.Name))


def loops_over_nothing(tree):
    """Loops that assert, and asserts of `all`, over what is listed and of which no other assert says anything."""
    names = names_of(tree)
    for function in functions(tree):
        for node in walked(function):
            over = []
            if isinstance(node, ast.For) and any(isinstance(part, ast.Assert) for part in walked(node)):
                over = [node.iter]
            if isinstance(node, ast.Assert):
                over = [loop.iter for part in walked(node.test) if is_all(part) for loop in loops_of(part)]
                spoken = {ast.unparse(x) for x in getattr(node.test, "values", [])}  # assert found and all(...)
                over = [x for x in over if ast.unparse(x) not in spoken]
            for x in over:
                is_asserted = isinstance(x, ast.Name) and x.id in asserted(function, node)
                if may_be_empty(x, names) and not is_asserted:
                    yield node.lineno, f"{function.name} asserts for each of {ast.unparse(x)}: say some(...)"


def is_all(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "all"


def loops_of(call):
    return getattr(call.args[0], "generators", [])


def chains(tree):
    for node in walked(tree):
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            is_odd = not all(isinstance(op, ast.Is) for op in node.ops)
            if is_odd and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
                yield node.lineno, f"{ast.unparse(node)} says less than it seems to: compare twice"


def always_true(tree):
    for node in walked(tree):
        if isinstance(node, ast.Assert):
            test = node.test
            ends = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
            if any(isinstance(x, ast.Constant | ast.JoinedStr | ast.Tuple) and not is_false(x) for x in ends):
                yield node.lineno, f"assert {ast.unparse(test)} is always true"


def is_false(node):
    return isinstance(node, ast.Constant) and node.value in (False, None, 0)


def faults(tree, helpers=frozenset()):
    yield from without_an_assert(tree, helpers)
    for rule in (loops_over_nothing, chains, always_true):
        yield from rule(tree)


def test_every_test_can_fail():
    trees = {path: ast.parse(path.read_text()) for path in some(sorted(TESTS.rglob("*.py")))}
    helpers = asserting(trees.values())
    found = [(path.relative_to(TESTS).as_posix(), *fault) for path in FILES for fault in faults(trees[path], helpers)]
    assert [f"{path}:{line}: {said}" for path, line, said in found if (path, said.split()[0]) not in ALLOWED] == []
    assert {(path, said.split()[0]) for path, _, said in found} == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("def test_x():\n    decide()", 1),
        ("def test_x():\n    helper()", 0),
        ("def test_x():\n    for p in ROOT.glob('*'):\n        assert p", 1),
        ("def test_x():\n    for p in some(ROOT.glob('*')):\n        assert p", 0),
        (
            "A = sorted(ROOT.rglob('*'))\nB = {p: 1 for p in A}\n"
            "def test_x():\n    for p, n in B.items():\n        assert p",
            1,
        ),
        ("def test_x():\n    found = ROOT.rglob('*')\n    assert found\n    for p in found:\n        assert p", 0),
        ("def test_x():\n    for p in [1, *ROOT.rglob('*')]:\n        assert p", 0),
        ("def test_x():\n    assert all(f(x) for x in re.findall('a', text))", 1),
        ("def test_x():\n    assert key(1) != key(2) is not None", 1),
        ("def test_x():\n    assert a is b is None", 0),
        ("def test_x():\n    assert a < b or 'no time was left'", 1),
        ("def test_x():\n    assert (a < b, 'no time was left')", 1),
    ],
)
def test_faults_that_are_planted_in_tests_are_found(source, number):
    assert len(list(faults(ast.parse(source), {"helper"}))) == number
