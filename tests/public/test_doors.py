"""An adversary of every door: ways to change what runs without changing what is read.

Each is refused in one line, or what is judged is the changed behaviour: the verdict is that of enumeration.
"""

import ast
import itertools
import sys
import types
from pathlib import Path

import pytest
import torch
from models.selection import every
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from constructions.errors import BadInput
from tests.models.doors import DOORS, LAST
from verify.frame.certificate import Verdict
from verify.frame.judged import LAYOUTS

ROOT = Path(__file__).parents[2] / "verify"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_model_on_a_graphics_card_is_judged_there_or_refused_in_one_line():
    surprises = {}
    for name, (_, model, decide) in DOORS.items():
        here = decide(model())
        try:
            there = decide(model().to("cuda"))
            if getattr(there, "verdict", None) is not getattr(here, "verdict", None):
                surprises[name] = there
        except BadInput as refusal:
            if "\n" in str(refusal) or "cpu()" not in str(refusal):
                surprises[name] = str(refusal)
        except Exception as error:  # every other end is a surprise, whatever it is
            surprises[name] = repr(error)[:300]
    assert surprises == {}


def name_of(module):
    """The name of a parameter that the forward pass uses."""
    return next(name for part in module.modules() for name in part._parameters if part._parameters[name] is not None)


def holder(module):
    """The module that holds it."""
    return next(part for part in module.modules() if part._parameters)


def subclassed(module, **members):
    module.__class__ = type("Mine", (type(module),), members)
    return module


def overridden(module, patch):
    return subclassed(module, forward=lambda self, *args, **options: -super(type(self), self).forward(*args, **options))


def called_otherwise(module, patch):
    return subclassed(module, __call__=lambda self, *args, **options: -self.forward(*args, **options))


def attributes_otherwise(module, patch):
    return subclassed(module, __getattr__=lambda self, name: nn.Module.__getattr__(self, name))


def attributes_first(module, patch):
    return subclassed(module, __getattribute__=lambda self, name: object.__getattribute__(self, name))


def a_property_for_a_parameter(module, patch):
    part, name = holder(module), name_of(module)
    subclassed(part, **{name: property(lambda self: -self._parameters[name])})
    return module


def of_its_own(module, patch):
    forward = module.forward
    module.forward = types.MethodType(lambda self, *args, **options: -forward(*args, **options), module)
    return module


def compiled_in_place(module, patch):
    module._compiled_call_impl = lambda *args, **options: -module.forward(*args, **options)
    return module


def hooked(module, patch):
    module.register_forward_hook(lambda module, args, output: -output)
    return module


def hooked_before(module, patch):
    module.register_forward_pre_hook(lambda module, args: (args[0].flip(-1), *args[1:]))
    return module


def hooked_at_the_innermost(module, patch):
    innermost = list(module.modules())[-1]
    innermost.register_forward_hook(lambda module, args, output: output)
    return module


def hooked_everywhere(module, patch):
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    patch.undone.append(handle.remove)
    return module


def hooked_at_the_state_dict(module, patch):
    def negated(module, state, prefix, local):
        return type(state)({name: -value for name, value in state.items()})

    module._register_state_dict_hook(negated)
    return module


def patched_class(module, patch):
    forward = type(module).forward
    patch.setattr(type(module), "forward", lambda self, *args, **options: -forward(self, *args, **options))
    return module


def patched_call(module, patch):
    call = nn.Module.__call__
    patch.setattr(type(module), "__call__", lambda *args, **options: -call(*args, **options), raising=False)
    return module


def patched_base(module, patch):
    call = nn.Module._call_impl
    patch.setattr(nn.Module, "_call_impl", lambda *args, **options: call(*args, **options))
    return module


def patched_property(module, patch):
    cls, name = type(module), name_of(module)
    patch.setattr(cls, name, property(lambda self: -self._parameters[name]), raising=False)
    return module


def another_torch(module, patch):
    fake = types.ModuleType("torch")
    fake.__dict__.update(vars(torch))
    fake.relu = fake.softmax = lambda x, *args, **options: x
    homes = (sys.modules[cls.__module__] for cls in type(module).__mro__)
    used = next(home for home in homes if "torch" in vars(home))  # where the run's own functions are called
    patch.setattr(used, "torch", fake)
    return module


def softmax_otherwise(module, patch):
    patch.setattr(torch, "softmax", lambda x, dim: torch.zeros_like(x))
    patch.setattr(torch, "relu", lambda x: x)
    return module


def products_otherwise(module, patch):
    patch.setattr(Tensor, "__matmul__", lambda x, y: torch.matmul(x, y) * -1, raising=False)
    return module


def layers_otherwise(module, patch):
    patch.setattr(functional, "linear", lambda x, W, b=None: x @ W.T)
    patch.setattr(functional, "relu", lambda x: x)
    return module


class Negating(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        return -found if function is torch.relu else found


def in_a_mode(module, patch):
    mode = Negating()
    mode.__enter__()
    patch.undone.append(lambda: mode.__exit__(None, None, None))
    return module


def in_autocast(module, patch):
    cast = torch.autocast("cpu", torch.bfloat16)
    cast.__enter__()
    patch.undone.append(lambda: cast.__exit__(None, None, None))
    return module


class Doubling(Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        return super().__torch_function__(function, kinds, args, kwargs or {})


def tensors_of_a_subclass(module, patch):
    part, name = holder(module), name_of(module)
    part._parameters[name] = part._parameters[name].detach().as_subclass(Doubling)
    return module


def tensors_that_read_otherwise(module, patch):
    part, name = holder(module), name_of(module)
    value = part._parameters[name]
    value.detach = lambda: torch.zeros_like(value.data)
    return module


def another_number_in_front(module, patch):
    part, name = holder(module), name_of(module)
    part.__dict__[name] = -part._parameters[name].data
    return module


class Strange(dict):
    def __getitem__(self, name):
        return super().__getitem__(name)


def strange_parameters(module, patch):
    part = holder(module)
    part.__dict__["_parameters"] = Strange(part._parameters)
    return module


class Noisy(nn.Module):
    def forward(self, weight):
        return weight + torch.rand(())


def noisy(module, patch):
    parametrize.register_parametrization(holder(module), name_of(module), Noisy(), unsafe=True)
    return module


def without_numbers(module, patch):
    part, name = holder(module), name_of(module)
    part._parameters[name] = nn.Parameter(part._parameters[name].detach().to("meta"), requires_grad=False)
    return module


WAYS = [
    overridden, called_otherwise, attributes_otherwise, attributes_first, a_property_for_a_parameter, of_its_own,
    compiled_in_place, hooked, hooked_before, hooked_at_the_innermost, hooked_everywhere, hooked_at_the_state_dict,
    patched_class, patched_call, patched_base, patched_property, another_torch, softmax_otherwise, products_otherwise,
    layers_otherwise, in_a_mode, in_autocast, tensors_of_a_subclass, tensors_that_read_otherwise,
    another_number_in_front, strange_parameters, noisy, without_numbers,
]  # fmt: skip


@pytest.fixture
def patch(monkeypatch):
    """Monkeypatch, and a list of what else is undone first."""
    monkeypatch.undone = []
    yield monkeypatch
    for undo in monkeypatch.undone:
        undo()


def refusal(module, decide):
    with pytest.raises(BadInput) as found:
        decide(module)
    said = str(found.value)
    assert "\n" not in said and len(said) < 300, said


@pytest.mark.parametrize(
    ("door", "way"),
    every(3, itertools.product([door for door in DOORS if door != "module"], WAYS)),
    ids=lambda x: getattr(x, "__name__", x),
)
def test_every_way_to_change_what_runs_is_refused_at_every_door(door, way, patch):
    _, build, decide = DOORS[door]
    refusal(way(build(), patch), decide)


PARTS = [(door, path) for door, (_, build, _) in DOORS.items() for path, _ in build().named_modules() if path]


@pytest.mark.parametrize("door, path", [(d, p) for d, p in PARTS if d != "module"])
def test_every_part_is_exactly_what_the_model_has_there(door, path, patch):
    """A part of a subclass that adds nothing, one with a forward of its own, another class, and a hidden one."""
    _, build, decide = DOORS[door]
    module = build()
    subclassed(module.get_submodule(path))
    refusal(module, decide)
    module = build()
    module.get_submodule(path).forward = lambda *args: args[0]
    refusal(module, decide)
    parent, _, last = path.rpartition(".")
    module = build()
    module.get_submodule(parent)._modules[last] = nn.Dropout()
    refusal(module, decide)
    module = build()
    owner = module.get_submodule(parent)
    owner.__dict__[last] = owner._modules.pop(last)
    with pytest.raises((BadInput, AttributeError)):  # a list that has lost a layer is another model
        decide(module)


def test_layers_of_torch_that_do_something_else(patch):
    _, build, decide = DOORS["inductive recurrent"]
    for name, value in {"nonlinearity": "relu", "mode": "RNN_RELU", "bidirectional": True, "proj_size": 1}.items():
        module = build()
        setattr(module.cell, name, value)
        refusal(module, decide)
    module = build()
    module.cell._flat_weights = [-w for w in module.cell._flat_weights]
    refusal(module, decide)
    module = build()
    module.activation = "relu"
    refusal(module, decide)
    _, build, decide = DOORS["inductive transformer"]
    module = build()
    module.has_bos = 2
    refusal(module, decide)
    module = build()
    module.blocks._modules = {"1": module.blocks[0]}
    refusal(module, decide)


JUDGED = [way for way in WAYS if way not in (in_autocast, without_numbers, noisy, attributes_first)]


@pytest.mark.parametrize("way", every(12, JUDGED), ids=lambda way: way.__name__)
def test_any_module_is_refused_or_judged_as_it_runs(way, patch):
    """The tables read a decoder's numbers; a decoder that runs something else is traced, and its verdict is its own."""
    _, build, decide = DOORS["module"]
    module = way(build(), patch)
    inputs = torch.tensor(list(itertools.product(range(4), repeat=3)))
    assert len(inputs) == LAST.size
    with torch.no_grad():
        said = torch.cat([module(row.unsqueeze(0))[:, -1] for row in inputs])
    own = said.gather(1, inputs[:, -1:]).squeeze(1)
    is_right = bool((own > said.scatter(1, inputs[:, -1:], -torch.inf).amax(1)).all())
    try:
        found = decide(module).verdict
    except BadInput as error:
        assert "\n" not in str(error)
        return
    assert found is (Verdict.PROVED if is_right else Verdict.REFUTED) or found is Verdict.UNKNOWN


def test_every_door_is_listed():
    """Each file that asks whether a module is judged stands in DOORS, and each kind of model has a layout."""
    asking = set()
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "_judged" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("check_judged", "is_judged"):
                asking.add(str(path.relative_to(ROOT)))
    # these ask of what the doors judge
    others = {
        "frame/judged.py",
        "frame/kept.py",
        "tasks/histogram/figures.py",
        "tasks/histogram/handed_on.py",
        "module/problem.py",
    }
    assert asking - others == {file for file, _, _ in DOORS.values() if file is not None}
    assert {type(build()).__name__ for _, build, _ in DOORS.values()} | {"LinearModel", "RotationModel", "GatedModel"} \
        == set(LAYOUTS)  # fmt: skip
    assert len(WAYS) >= 12
