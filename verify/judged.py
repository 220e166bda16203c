"""Is what is judged what runs? A proof reads a module's numbers, so its class's own forward pass must use them so.

A subclass that overrides `forward`, a hook, a compiled or sharded wrapper may compute anything from the same numbers.
Such modules are refused; plain subclasses, and weights with a parametrization of torch, are not.
"""

from __future__ import annotations

from inspect import getattr_static
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module
from torch.nn.utils import parametrize

from constructions.errors import BadInput
from verify.arguments import check_seconds as check_seconds
from verify.arguments import check_whole_number as check_whole_number

Module = TypeVar("Module", bound=nn.Module)

# What a subclass may define anew: nothing of it takes part in a forward pass or in reading the numbers.
HARMLESS = frozenset(
    ("__init__", "__init_subclass__", "__module__", "__qualname__", "__doc__", "__annotations__", "__dict__")
    + ("__weakref__", "__slots__", "__parameters__", "__static_attributes__", "__firstlineno__", "__subclasshook__")
    + ("__repr__", "__str__", "__dir__", "__hash__", "__eq__", "_repr_html_", "extra_repr", "_get_name")
    + ("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
)
HOOKS = {
    "_forward_hooks": "a forward hook",
    "_forward_pre_hooks": "a forward pre-hook",
    "_backward_hooks": "a backward hook",
    "_backward_pre_hooks": "a backward pre-hook",
    "_state_dict_hooks": "a state dict hook",
    "_state_dict_pre_hooks": "a state dict pre-hook",
}
WRAPPERS = {
    "OptimizedModule": "compiled by torch.compile; judge the module that was compiled, its ._orig_mod",
    "DataParallel": "wrapped for several devices; judge its .module",
    "DistributedDataParallel": "wrapped for several processes; judge its .module",
    "FullyShardedDataParallel": "sharded over processes; judge a module with the full state dict",
    "RecursiveScriptModule": "a script of torch.jit; judge the module that it was made from",
    "TopLevelTracedModule": "a trace of torch.jit; judge the module that it was made from",
    "GraphModule": "a graph of torch.fx; judge the module that it was made from",
}
MODULE_CLASS = "a module is judged by its class's own forward pass"


def check_judged(module: object, kind: type[Module], parts: dict[str, type[nn.Module]] | None = None) -> None:
    """Refuses a module whose forward pass is not that of `kind`; `parts` names the submodules that it calls.

    Raises: BadInput, in one line, that names what was found and a way out.

    >>> from constructions.relation_counting import bos
    >>> from constructions.histogram import HistogramTransformer
    >>> model = bos(T=3, L=2)
    >>> check_judged(model, HistogramTransformer)
    >>> handle = model.register_forward_hook(lambda module, args, output: -output)
    >>> check_judged(model, HistogramTransformer)
    Traceback (most recent call last):
        ...
    constructions.errors.BadInput: module: has a forward hook, which may change what it computes. Remove the hook first.
    """
    check_type(module, kind)
    assert isinstance(module, nn.Module)
    _check_own("module", module, kind)
    for path, part in (parts or {}).items():
        found = _part(module, path)
        if not isinstance(found, part):
            raise BadInput(
                f"module.{path}: is {_named(found)}, and {kind.__name__} has {part.__name__} there. "
                f"Build a {kind.__name__}, and load the weights into it."
            )
        _check_own(f"module.{path}", found, part)
    for path, found in module.named_modules():
        _check_hooks(f"module.{path}" if path else "module", found)
    for name, hooks in vars(every_module).items():
        if name.startswith("_global_") and name.endswith("_hooks") and hooks:
            raise BadInput(f"module: a hook for all modules of the process is registered ({name}). Remove it first.")
    _check_tensors(module)


def check_type(module: object, kind: type[nn.Module]) -> None:
    """Raises BadInput for anything that is no `kind`, with what to do about a wrapper of torch."""
    if isinstance(module, kind):
        return
    for cls in type(module).__mro__:
        if cls.__name__ in WRAPPERS:
            raise BadInput(f"module: is {_named(module)}, {WRAPPERS[cls.__name__]}.")
    raise BadInput(f"module: is {_named(module)}, and must be a {kind.__name__}. {how_to_judge(kind)}")


def how_to_judge(kind: type[nn.Module]) -> str:
    return f"Build a {kind.__name__}, and load the weights into it."


def _named(value: object) -> str:
    """A value's type, or the value itself where it is short."""
    if isinstance(value, nn.Module) or len(repr(value)) > 40:
        return f"of type {type(value).__name__}"
    return repr(value)


def _part(module: nn.Module, path: str) -> object:
    found: Any = module
    for name in path.split("."):
        found = found._modules.get(name) if isinstance(found, nn.Module) else None
    return found


def _check_own(what: str, module: nn.Module, kind: type[nn.Module]) -> None:
    """Everything that `kind` defines must be what the module's class, and the module itself, have."""
    own = kind.__mro__
    for cls in type(module).__mro__:
        for name in vars(cls) if cls not in own else ():
            if name not in HARMLESS and _is_overridden(name, type(module), kind):
                raise BadInput(
                    f"{what}: its class {type(module).__name__} overrides {name}, and {MODULE_CLASS}. "
                    f"Judge a {kind.__name__} with the same weights, or leave {name} as it is."
                )
    for name in vars(module):
        if any(name in vars(cls) for cls in own):
            done = "was compiled in place" if name == "_compiled_call_impl" else f"has a {name} of its own"
            raise BadInput(f"{what}: {done}, and {MODULE_CLASS}. Judge a {kind.__name__} with the same weights.")
    for cls in own[: own.index(nn.Module)]:
        for name, value in vars(cls).items():
            if isinstance(value, FunctionType) and name not in HARMLESS and not _is_home(value, cls):
                raise BadInput(f"{what}: {cls.__name__}.{name} was replaced by {value.__qualname__}. Restore it first.")


def _is_overridden(name: str, cls: type, kind: type) -> bool:
    missing = object()
    found = getattr_static(kind, name, missing)
    return found is not missing and getattr_static(cls, name) is not found


def _is_home(function: FunctionType, cls: type) -> bool:
    """Whether a method was written in the class that it is found in."""
    return function.__module__ == cls.__module__ and function.__qualname__.endswith(
        f"{cls.__name__}.{function.__name__}"
    )


def _check_hooks(what: str, module: nn.Module) -> None:
    for name, described in HOOKS.items():
        if vars(module).get(name):
            raise BadInput(f"{what}: has {described}, which may change what it computes. Remove the hook first.")


def _check_tensors(module: nn.Module) -> None:
    """The numbers must be plain tensors that are there, and the same whenever they are read."""
    for path, part in module.named_modules():
        changing = _parametrized(part)
        for name in (*part._parameters, *part._buffers, *changing):
            value = getattr(part, name)
            what = f"{path}.{name}" if path else name
            if value is None:
                continue
            if type(value) not in (Tensor, nn.Parameter):
                raise BadInput(f"{what}: is a {type(value).__name__}, which may compute in its own way. Use a tensor.")
            if value.is_meta or value.layout != torch.strided:
                kind = "on the meta device, without numbers" if value.is_meta else f"stored as {value.layout}"
                raise BadInput(f"{what}: is {kind}. Use a dense tensor with values.")
            if name in changing and not _same(value, getattr(part, name)):
                raise BadInput(f"{what}: its parametrization gives another value each time. Remove it first.")


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def unparametrized(module: Module) -> Module:
    """The module itself, or where weights are parametrized a copy that stores what they come to.

    >>> from constructions.relation_counting import bos
    >>> model = bos(T=3, L=2)
    >>> unparametrized(model) is model
    True
    """
    if not any(parametrize.is_parametrized(part) for part in module.modules()):
        return module
    found: Module = object.__new__(parametrize.type_before_parametrizations(module))
    found.__dict__ = dict(vars(module))  # removing a parametrization would change the class, which copies share
    parts = {name: part for name, part in module._modules.items() if name != "parametrizations"}
    found._modules = {name: None if part is None else unparametrized(part) for name, part in parts.items()}
    found._parameters = dict(module._parameters)
    for name in _parametrized(module):
        found._parameters[name] = nn.Parameter(getattr(module, name).detach().clone(), requires_grad=False)
    return found


def _parametrized(module: nn.Module) -> list[str]:
    return list(module.parametrizations) if parametrize.is_parametrized(module) else []  # type: ignore[arg-type]
