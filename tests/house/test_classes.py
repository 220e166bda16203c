"""Classes are abstract or final, a Namespace ends at the door, and no method leaves an attribute for another."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.some import some
from tests.tools.house import below, tree

ROOT = Path(__file__).parents[2]
FILES = [
    path for package in ("verify", "constructions", "bounds") for path in some(sorted((ROOT / package).rglob("*.py")))
]
DOOR = ("run", "of", "parsed", "draw", "course")  # of a command: what reads a Namespace, and hands on values
PARTS = ("command.py", "figures.py", "chains.py", "grokking.py", "training.py")  # of a task, that read a Namespace
OPTION_READERS = ("options.py", "parsing.py", "workers.py", "batch.py", "cli.py")  # what all doors share


@cache
def trees():
    return {path: tree(path.read_text(encoding="utf-8")) for path in FILES}


@cache
def classes():
    """All classes by file and name: parsed in the one process that asks, and not where tests are collected."""
    return {
        (path, node.name): node
        for path, module in trees().items()
        for node in walked(module)
        if isinstance(node, ast.ClassDef)
    }


@cache
def walked(module):
    """A module and all below it: each rule reads them."""
    return below(module)


def place(path):
    return path.relative_to(ROOT) if path.is_absolute() else path


def methods(node):
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}


def is_abstract(function):
    """Decorated so, or without anything but a docstring, `...` or `raise NotImplementedError`."""
    if any("abstractmethod" in ast.unparse(decorator) for decorator in function.decorator_list):
        return True
    said = [line for line in function.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    return all(isinstance(line, ast.Pass) or "NotImplementedError" in ast.unparse(line) for line in said)


def bases(path, node):
    """The classes of ours that a class derives from: of its file, or imported by name."""
    names = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
    for name in names:
        if (path, name) in classes():
            yield path, classes()[path, name]
        for imported in ast.walk(trees()[path]):
            if isinstance(imported, ast.ImportFrom) and any((a.asname or a.name) == name for a in imported.names):
                where = ROOT / (imported.module.replace(".", "/") + ".py")
                where = where if where.exists() else ROOT / imported.module.replace(".", "/") / "__init__.py"
                if (where, name) in classes():
                    yield where, classes()[where, name]


def overridden(files=None):
    for (path, name), node in classes().items():
        if files is not None and path not in files:
            continue
        for _, base in bases(path, node):
            concrete = {n for n, function in methods(base).items() if not is_abstract(function)}
            for method in concrete & set(methods(node)):
                if method == "__init__" and "super().__init__" in ast.unparse(methods(node)[method]):
                    continue  # which goes on, and replaces nothing
                yield f"{place(path)}: {name}.{method} overrides {base.name}'s"


def test_no_class_overrides_a_concrete_method():
    assert list(overridden()) == []


def casts(module):
    """What a file casts, and into what."""
    for call in walked(module):
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) == "cast":
            yield call.lineno, ast.unparse(call.args[1])


def test_no_none_is_cast_into_something_else():
    assert list(casts(ast.parse("cast(X, None); typing.cast(Y, y)"))) == [(1, "None"), (1, "y")]
    assert [place(path) for path, each in trees().items() for _, what in casts(each) if what == "None"] == []


def takes_a_namespace(function):
    parameters = [*function.args.args, *function.args.kwonlyargs]
    return any("Namespace" in words(p.annotation) for p in parameters if p.annotation is not None)


def words(annotation):
    """The names in an annotation, and in what it quotes."""
    for node in below(annotation):
        for name in ("id", "attr", "value"):
            if isinstance(said := getattr(node, name, None), str):
                yield from re.findall(r"\w+", said)


def given_a_namespace():
    """The functions of ours that take a Namespace, with their files."""
    for path, module in trees().items():
        for function in walked(module):
            if isinstance(function, ast.FunctionDef) and takes_a_namespace(function):
                yield path, function


def test_a_namespace_ends_at_the_door():
    for path, function in some(given_a_namespace()):
        is_door = function.name in DOOR or function.name.startswith(("check", "_check"))
        assert (path.parent.name == "commands" or path.name in PARTS) and is_door or path.name in OPTION_READERS, (
            f"{path.relative_to(ROOT)}: {function.name} is given a Namespace. Parse it in `of`."
        )


def attributes(function):
    """The attributes of self that a method sets."""
    return {
        item.attr
        for item in below(function)
        if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "self"
        and isinstance(item.ctx, ast.Store)
    }  # fmt: skip


def left_behind(files=None):
    for (path, name), node in classes().items():
        if files is not None and path not in files:
            continue
        own = methods(node)
        begun = attributes(own["__init__"]) if "__init__" in own else set()
        declared = {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}
        for method, function in own.items():
            if method not in ("__init__", "__new__", "__post_init__"):
                for attribute in attributes(function) - begun - declared:
                    yield f"{place(path)}: {name}.{method} sets {attribute}, which __init__ does not"


def test_no_method_leaves_an_attribute_that_was_not_there():
    assert list(left_behind()) == []


def test_the_rules_can_fail():
    """A class that breaks each of them is found."""
    path = Path("here.py")
    trees()[path] = ast.parse(
        "class A:\n    def f(self):\n        return 1\n"
        "class B(A):\n    def f(self):\n        self.left = 2\n        return 2\n"
    )
    added = {(path, node.name): node for node in trees()[path].body}
    classes().update(added)
    try:
        assert any("B.f overrides A's" in line for line in overridden([path]))
        assert any("B.f sets left" in line for line in left_behind([path]))
    finally:
        for key in added:
            del classes()[key]
        del trees()[path]
