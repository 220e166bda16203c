"""Builders name every argument they take, and refuse any other."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
import re

import pytest
import torch

import constructions
from constructions import fewer_dimensions, inventory_counting, relation_counting
from constructions.errors import BadInput, shown
from verify.commands.cli import main
from verify.tasks.histogram.catalogue import CONSTRUCTIONS

SIZES = {"T": 4, "L": 2}


def public_functions():
    """Every function of a module of constructions that returns a model, or whatever it builds."""
    for info in pkgutil.walk_packages(constructions.__path__, "constructions."):
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and function.__module__ == info.name:
                yield f"{info.name.removeprefix('constructions.')}.{name}", function


def builders():
    """The builders of the command line: (function, arguments that it must be given)."""
    for (model, construction), (path, _) in CONSTRUCTIONS.items():
        module, name = path.split(".")
        function = getattr(importlib.import_module(f"constructions.{module}"), name)
        fixed = {"model": model} if "model" in inspect.signature(function).parameters else {}
        yield pytest.param(function, fixed, id=f"{model} {construction}")


def test_no_function_takes_what_it_does_not_name():
    functions = dict(public_functions())
    kinds = {name: {part.kind for part in inspect.signature(f).parameters.values()} for name, f in functions.items()}
    assert len(kinds) > 300
    assert [name for name, found in kinds.items() if inspect.Parameter.VAR_KEYWORD in found] == []


@pytest.mark.parametrize(("function", "fixed"), list(builders()))
def test_sizes_are_keywords_that_help_shows(function, fixed):
    parameters = inspect.signature(function).parameters
    named = [name for name in parameters if name != "model"]
    assert {"T", "L", "d", "p", "dtype"} <= set(named)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in named)
    text = pydoc.plaintext.document(function)
    assert all(f"{name}:" in text for name in named)


@pytest.mark.parametrize("wrong", [{"dtyp": torch.float32}, {"as_print": True}, {"D": 4}])
@pytest.mark.parametrize(("function", "fixed"), list(builders()))
def test_an_unknown_argument_is_refused(function, fixed, wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        function(**fixed, **SIZES, **wrong)


WRONG_VALUES = {
    "T": ["4", 4.0, True, 1, -3, 10**9, 10**5000],
    "L": ["3", None, 0, 10**9, 10**5000],
    "d": ["4", 0, 10**12],
    "p": ["4", 0, 10**12],
    "dtype": [torch.int32, torch.complex64, "float32", None],
    "basis": ["stand", None],
    "seed": [-1, 2**63, "0", 0.5, None],
}


CASES = [
    pytest.param(name, value, id=f"{name}={shown(value)}") for name, values in WRONG_VALUES.items() for value in values
]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_wrong_value_is_refused_in_one_short_line(name, value):
    for function, fixed in (builder.values for builder in builders()):
        if name not in inspect.signature(function).parameters:
            continue
        if name == "seed" and function not in SEEDED:
            continue
        with pytest.raises(BadInput) as refusal:
            function(**fixed, **(SIZES | {name: value}))
        message = str(refusal.value)
        assert "\n" not in message and len(message) < 400 and name in message


SEEDED = (
    *(getattr(relation_counting, name) for name in ("dot", "zero_bos", "bos", "bos_sftm")),
    *(getattr(inventory_counting, name) for name in ("lin", "lin_sftm", "dot_sftm", "bos_sftm", "dot", "bos")),
)


@pytest.mark.parametrize(
    ("name", "model"),
    [*((name, "lin") for name in ("simplex", "sphere", "plane", "binary", "quarter_circle")), ("coherent", "dot+sftm")],
)
def test_a_construction_refuses_the_models_it_is_not_for(name, model):
    with pytest.raises(BadInput, match=re.escape(f"model='{model}'")):
        getattr(fewer_dimensions, name)(model, T=4, L=3)


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ("--model lin --T 6 --L 3 --d 5 --as-printed", "--as-printed"),
        ("--model dot --T 6 --L 3 --d 5 --basis random", "--basis"),
        ("--model bos+sftm --T 6 --L 3 --construction binary --basis random", "--basis"),
    ],
)
def test_the_command_refuses_a_choice_that_the_construction_has_not(options, flag, capsys):
    assert main(["histogram", *options.split()]) == 2
    error = capsys.readouterr().err
    assert flag in error and error.count("\n") == 1
