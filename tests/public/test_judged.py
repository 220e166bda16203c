"""A module whose forward pass is not the one that is proved about is refused, in every task and every way."""

import types
from itertools import product
from unittest import mock

import pytest
import torch
from models.selection import every
from torch import nn
from torch.nn.utils import parametrize

from constructions.errors import BadInput
from tests.models.judged import MODELS, WAYS
from verify.frame.certificate import Verdict


def subclassed(module, **members):
    """The module as an instance of a subclass with these members."""
    module.__class__ = type("Mine", (type(module),), members)
    return module


def negated(module):
    return subclassed(module, forward=lambda self, tokens: -super(type(self), self).forward(tokens))


def hooked(module):
    module.register_forward_hook(lambda module, args, output: -output)
    return module


def hooked_before(module):
    module.register_forward_pre_hook(lambda module, args: (args[0].flip(-1),))
    return module


def hooked_behind(module):
    module.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    return module


def on_the_instance(module):
    module.forward = types.MethodType(lambda self, tokens: 0, module)
    return module


def compiled_in_place(module):
    module.compile()
    return module


HELPERS = {"histogram": "mixing", "count01": "attend", "contextual": "decode", "circuit": "both", "modular": "blocks"}
TAMPERED = {
    "overrides forward": negated,
    "forward hook": hooked,
    "forward pre-hook": hooked_before,
    "backward hook": hooked_behind,
    "forward of its own": on_the_instance,
    "compiled in place": compiled_in_place,
    "torch.compile": torch.compile,
    "its .module": nn.DataParallel,
    "overrides __call__": lambda module: subclassed(module, __call__=lambda self, tokens: 0),
    "must be a": lambda module: nn.Linear(2, 2),
    "is 'x'": lambda module: "x",
}


@pytest.mark.parametrize(("found", "way"), every(3, product(TAMPERED, WAYS)), ids=str)
def test_what_runs_otherwise_is_refused(way, found):
    module = TAMPERED[found](MODELS[way[0]]())
    with pytest.raises(BadInput, match=found) as refusal:
        WAYS[way](module)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 250


@pytest.mark.parametrize("way", [way for way in WAYS if way[0] in HELPERS], ids=" ".join)
def test_what_forward_calls_may_not_be_overridden(way):
    helper = HELPERS[way[0]]
    with pytest.raises(BadInput, match=f"overrides {helper}"):
        WAYS[way](subclassed(MODELS[way[0]](), **{helper: lambda self, *args: None}))


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_plain_subclass_is_judged(way):
    module = subclassed(MODELS[way[0]](), training_step=lambda self: 0, extra_repr=lambda self: "mine")
    assert WAYS[way](module).verdict is WAYS[way](MODELS[way[0]]()).verdict


class Doubled(nn.Module):
    def forward(self, weight):
        return weight * 2


class Noisy(nn.Module):
    def forward(self, weight):
        return weight + torch.rand(())


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_parametrized_weights_are_what_they_come_to(way):
    """Twice half of each weight is the weight; of half the weights nothing is proved."""
    module, name = MODELS[way[0]](), "E"
    weight = getattr(module, name)
    with torch.no_grad():
        weight /= 2
    halved = WAYS[way](module).verdict
    parametrize.register_parametrization(module, name, Doubled())
    whole = WAYS[way](MODELS[way[0]]()).verdict
    assert WAYS[way](module).verdict is whole
    assert halved is not whole or way[0] != "histogram"
    assert getattr(module, name).shape == weight.shape  # and the module is still the user's


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_weights_that_change_when_they_are_read(way):
    module = MODELS[way[0]]()
    parametrize.register_parametrization(module, "E", Noisy())
    with pytest.raises(BadInput, match="another value each time"):
        WAYS[way](module)


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_hook_for_all_modules_and_a_replaced_method(way):
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        with pytest.raises(BadInput, match="for all modules"):
            WAYS[way](MODELS[way[0]]())
    finally:
        handle.remove()
    module = MODELS[way[0]]()
    with mock.patch.object(type(module), "forward", lambda self, tokens: 0), pytest.raises(BadInput, match="replaced"):
        WAYS[way](module)
    assert WAYS[way](module).verdict in Verdict


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_replaced_forward_of_one_layer(way):
    if way[0] == "circuit":
        module = MODELS["circuit"]()
        module.layers[1].feed_forward = lambda y: y
        with pytest.raises(BadInput, match="layers.1: has a feed_forward of its own"):
            WAYS[way](module)
        module = MODELS["circuit"]()
        module.layers.append(nn.Linear(2, 2))
        with pytest.raises(BadInput, match="layers.2: is of type Linear"):
            WAYS[way](module)


@pytest.mark.parametrize("name, value", [("is_softmax", True), ("d", 9), ("has_bos", False), ("p", 7)])
def test_a_histogram_module_must_be_what_it_says(name, value):
    module = MODELS["histogram"]()
    setattr(module, name, value)
    with pytest.raises(BadInput, match=f"module.{name}={value}"):
        WAYS["histogram", "real"](module)


@pytest.mark.parametrize("bad", [{"L": "3"}, {"L": True}, {"L": 2.0}, {"L": 0}, {"budget": -1}, {"budget": "1"}])
def test_sizes_and_budgets_that_are_none(bad):
    with pytest.raises(BadInput, match=f"{next(iter(bad))}="):
        WAYS["histogram", "real"](MODELS["histogram"](), **bad)
