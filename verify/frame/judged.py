"""Is what is judged what runs? The one door for all code that reads a module's numbers by name.

A proof reads numbers and says what the class's own forward pass makes of them. A subclass that overrides `forward`, a
hook, an attribute in front of a method, a replaced function of torch, a compiled or sharded wrapper may compute
anything from the same numbers. Such modules are refused; plain subclasses of the model's own class, and weights with a
parametrization of torch, are not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from inspect import getattr_static, isclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as every_module
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from constructions.errors import BadInput
from verify.frame.arguments import check_seconds as check_seconds
from verify.frame.arguments import check_whole_number as check_whole_number

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
# The submodules of each model, and the classes that each may have: exactly these, not their subclasses.
NORM = ("LayerNorm", "Identity")
LAYERS: dict[str, tuple[str, ...]] = {"layers": ("ModuleList",), "layers.*": ("Layer",)}
LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "HistogramTransformer": {},
    "Count01Transformer": {},
    "ContextualCountingTransformer": {},
    "BidirectionalContextualTransformer": {},
    "PositionalContextualTransformer": {},
    "ParityTransformer": {},
    "CircuitTransformer": LAYERS,
    "AdderTransformer": LAYERS,
    "Decoder": {
        "blocks": ("ModuleList",),
        "blocks.*": ("Block",),
        "blocks.*.norm_1": NORM,
        "blocks.*.attention": ("Attention",),
        "blocks.*.attention.rotation": ("Rotation",),
        "blocks.*.norm_2": NORM,
        "blocks.*.mlp": ("MLP",),
        "norm": NORM,
    },
    "RecurrentModel": {"cell": ("RNN", "LSTM", "GRU"), "embedding": ("Embedding",), "readout": ("Linear",)},
    "LinearModel": {"cell": ("LinearCell",), "readout": ("Linear",)},
    "RotationModel": {"cell": ("RotationCell",), "readout": ("Linear",)},
    "GatedModel": {
        "cell": ("MambaCell", "RwkvCell", "DiagonalCell"),
        "layer": ("PositionWise",),
        "readout": ("Linear",),
    },
    "ResidualModel": {
        "embedding": ("Embedding",),
        "first": ("LayerNorm",),
        "blocks": ("ModuleList",),
        "blocks.*": ("S4Block", "MambaBlock", "RwkvBlock"),
        "blocks.*.kernel": ("ParameterDict",),
        "blocks.*.output_linear": ("Sequential",),
        "blocks.*.output_linear.*": ("Conv1d",),
        "blocks.*.norm": ("LayerNorm", "RootMeanSquare"),
        "blocks.*.mixer": ("MambaMixer",),
        **{f"blocks.*.mixer.{name}": ("Linear",) for name in ("in_proj", "x_proj", "dt_proj", "out_proj")},
        "blocks.*.mixer.conv1d": ("Conv1d",),
        **{f"blocks.*.{name}": ("LayerNorm",) for name in ("ln1", "ln2")},
        "blocks.*.att": ("RwkvTimeMix",),
        **{f"blocks.*.att.{name}": ("Linear",) for name in ("receptance", "key", "value", "gate", "output")},
        "blocks.*.att.ln_x": ("GroupNorm",),
        "blocks.*.ffn": ("RwkvChannelMix",),
        **{f"blocks.*.ffn.{name}": ("Linear",) for name in ("key", "receptance", "value")},
        "norm": ("LayerNorm", "RootMeanSquare"),
        "head": ("Linear",),
    },
}
HOME = ("constructions.", "torch.nn.modules.")
MODULE_CLASS = "a module is judged by its class's own forward pass"
REGISTERED = ("_parameters", "_buffers", "_modules")


def check_judged(module: object, kind: type[Module], *, anywhere: bool = False) -> None:
    """Refuses a module whose forward pass is not that of `kind`, or whose numbers are not those that it uses.

    `anywhere`: it may lie on a graphics card, as whoever asks runs it where it lies.

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
    _check_layout(module, kind)
    for path, found in module.named_modules(remove_duplicate=False):
        _check_hooks(f"module.{path}" if path else "module", found)
    for name, hooks in vars(every_module).items():
        if name.startswith("_global_") and name.endswith("_hooks") and hooks:
            raise BadInput(f"module: a hook for all modules of the process is registered ({name}). Remove it first.")
    _check_tensors(module)
    if not anywhere:
        check_on_cpu(module)
    _check_process()


def is_judged(module: object, kind: type[nn.Module]) -> bool:
    """Whether the door lets the module in, and its class is `kind` itself: its numbers may be read for its forward."""
    try:
        check_judged(module, kind)
    except BadInput:
        return False
    return type(module) is kind


def check_type(module: object, kind: type[nn.Module]) -> None:
    """Raises BadInput for anything that is no `kind`, with what to do about a wrapper of torch."""
    if issubclass(type(module), kind):
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


def _check_layout(module: nn.Module, kind: type[nn.Module]) -> None:
    """Every submodule that the forward pass can reach must be of exactly the class that the model has there."""
    layout = LAYOUTS.get(kind.__name__, {})
    known = {pattern.split(".")[0] for pattern in layout}
    for path, part in module.named_modules(remove_duplicate=False):
        names = path.split(".")
        if names[0] not in known or "parametrizations" in names:
            continue
        allowed = layout.get(".".join("*" if name.isdigit() else name for name in names), ())
        if type(part).__name__ not in allowed or not _is_at_home(type(part)):
            has = f"has {' or '.join(allowed)} there" if allowed else "has nothing there"
            raise BadInput(
                f"module.{path}: is {_named(part)}, and {kind.__name__} {has}. "
                f"Build a {kind.__name__}, and load the weights into it."
            )
        _check_own(f"module.{path}", part, type(part))
        _check_leaf(f"module.{path}", part)


def _is_at_home(cls: type) -> bool:
    """Whether a class is the one of its name in a module of this project or of torch.nn."""
    home = sys.modules.get(cls.__module__)
    return cls.__module__.startswith(HOME) and getattr(home, cls.__name__, None) is cls


def _check_leaf(what: str, part: nn.Module) -> None:
    """A layer of torch must do what its class and its numbers say: some of its attributes choose another operation."""
    facts: dict[str, tuple[object, object]] = {}
    if isinstance(part, nn.ModuleList):
        facts["its names"] = (list(part._modules), [str(i) for i in range(len(part._modules))])
    elif isinstance(part, nn.LayerNorm):
        facts["normalized_shape"] = (tuple(part.normalized_shape), (part.normalized_shape[-1],))
        facts["weight.shape"] = (_shape(part.weight), tuple(part.normalized_shape))
        facts["bias.shape"] = (_shape(part.bias), tuple(part.normalized_shape))
        facts["type(eps)"] = (type(part.eps), float)
    elif isinstance(part, nn.Embedding):
        facts["max_norm"] = (part.max_norm, None)
    elif isinstance(part, nn.RNNBase):
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        names = [f"{kind}_l{i}" for i in range(part.num_layers) for kind in kinds]
        modes = {"RNN": f"RNN_{str(getattr(part, 'nonlinearity', '')).upper()}"}
        facts["bidirectional"] = (part.bidirectional, False)
        facts["proj_size"] = (part.proj_size, 0)
        facts["dropout"] = (part.dropout, 0.0)
        facts["batch_first"] = (part.batch_first, True)
        facts["mode"] = (part.mode, modes.get(type(part).__name__, type(part).__name__))
        facts["its weights' names"] = (list(part._flat_weights_names), names)
        own = [id(getattr(part, name, None)) for name in names]
        facts["its flat weights"] = ([id(w) for w in part._flat_weights] == own, True)
    for name, (found, due) in facts.items():
        if found != due or type(found) is not type(due):
            raise BadInput(f"{what}: {name} is {found}, and must be {due}, for {MODULE_CLASS}. Build it anew.")


def _shape(value: Tensor | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(value.shape)


def _check_own(what: str, module: nn.Module, kind: type[nn.Module]) -> None:
    """Everything that `kind` defines must be what the module's class, and the module itself, have."""
    own = kind.__mro__
    registered = {name for place in REGISTERED for name in vars(module)[place]}
    for cls in type(module).__mro__:
        for name in vars(cls) if cls not in own else ():
            hides = name in registered or name in vars(module)
            if name not in HARMLESS and (hides or _is_overridden(name, type(module), kind)):
                if name in _parametrized(module):
                    continue
                raise BadInput(
                    f"{what}: its class {type(module).__name__} overrides {name}, and {MODULE_CLASS}. "
                    f"Judge a {kind.__name__} with the same weights, or leave {name} as it is."
                )
    for name, value in vars(module).items():
        hides = name in registered or any(name in vars(cls) for cls in own)
        if hides or name not in REGISTERED and isinstance(value, nn.Module | Tensor):
            done = "was compiled in place" if name == "_compiled_call_impl" else f"has a {name} of its own"
            raise BadInput(f"{what}: {done}, and {MODULE_CLASS}. Judge a {kind.__name__} with the same weights.")
        is_flag = name.startswith(("is_", "has_"))
        if is_flag and type(value) is not bool or isinstance(value, int | float | str) and type(value) not in PLAIN:
            raise BadInput(f"{what}: {name} is of type {type(value).__name__}. Give it a plain number, text or bool.")
    for place in REGISTERED:
        if type(vars(module)[place]) is not dict:
            raise BadInput(f"{what}: its {place} are no plain dict, and may change when they are read. Build it anew.")
    for cls in own[: own.index(nn.Module)]:
        _check_class(what, cls)


PLAIN = (int, float, str, bool)


def _is_overridden(name: str, cls: type, kind: type) -> bool:
    missing = object()
    found = getattr_static(kind, name, missing)
    return found is not missing and getattr_static(cls, name) is not found


def _check_class(what: str, cls: type) -> None:
    """The class's methods, and the functions that they call, must be those that were written in its file."""
    if cls in AS_IMPORTED:
        _check_as_imported(what, cls.__name__, cls)
        return
    for name, value in vars(cls).items():
        if name in HARMLESS:
            continue
        for function in _functions(value):
            if not _is_home(function, cls):
                raise BadInput(f"{what}: {cls.__name__}.{name} was replaced by {_called(function)}. Restore it first.")
            if isinstance(function, FunctionType):
                _check_calls(what, function, {function})


def _functions(value: object) -> Iterator[object]:
    """What runs where a member of a class is used: a method, a property's parts, or something else that is called."""
    if isinstance(value, property):
        yield from (part for part in (value.fget, value.fset, value.fdel) if part is not None)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif callable(value) and not isclass(value):
        yield value


def _called(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _is_home(function: object, cls: type) -> bool:
    """Whether a method was written in the class, and in the file, that it is found in."""
    if not isinstance(function, FunctionType):
        return False
    name = f"{cls.__qualname__}.{function.__name__}"
    while hasattr(function, "__wrapped__") and _is_torchs(function):  # torch.no_grad() about a method
        function = function.__wrapped__
        if not isinstance(function, FunctionType):
            return False
    return _is_in(function, cls.__module__) and function.__qualname__ == name == function.__code__.co_qualname


def _is_in(function: FunctionType, module: str) -> bool:
    """Whether a function was written in the file of a module."""
    home = getattr(sys.modules.get(module), "__file__", None)
    return home is not None and function.__code__.co_filename == home


def _is_ours(module: str) -> bool:
    """Whether a module is of this project, or of Python's own library."""
    return module.startswith(HOME) or module.split(".")[0] in sys.stdlib_module_names


def _is_torchs(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(TORCH)


def _check_calls(what: str, function: FunctionType, seen: set[FunctionType]) -> None:
    """The functions that a method finds in its file must have been written in this project or in torch.

    The search ends in torch, whose functions `_check_process` looks at.
    """
    for name in set(_names(function.__code__)):
        value = function.__globals__.get(name)
        for called in value.values() if isinstance(value, dict) else (value,):
            if isinstance(called, ModuleType):
                is_right = sys.modules.get(called.__name__) is called
            elif isinstance(called, FunctionType):
                is_right = _is_torchs(called) or _is_ours(called.__module__) and _is_in(called, called.__module__)
            else:
                is_right = not callable(called) or isinstance(called, type | BuiltinFunctionType | TypeVar)
            if not is_right:
                raise BadInput(
                    f"{what}: {name}, which {_called(function)} uses, was replaced by {_called(called)}. Restore it."
                )
            if isinstance(called, FunctionType) and called not in seen and not _is_torchs(called):
                seen.add(called)
                _check_calls(what, called, seen)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _layers_of_torch() -> list[type]:
    """The classes of torch.nn."""
    found = {base for cls in vars(nn).values() if isclass(cls) and issubclass(cls, nn.Module) for base in cls.__mro__}
    return [cls for cls in found if issubclass(cls, nn.Module)]


TORCH = str(Path(str(torch.__file__)).parent)
SPACES: dict[str, object] = {
    "nn.Module": nn.Module,
    "torch": torch,
    "torch.nn.functional": functional,
    "Tensor": Tensor,
    "Tensor's base": torch._C.TensorBase,
}
# What torch was when this file was imported: a function of it that is replaced changes what every module computes.
AS_IMPORTED: dict[object, dict[str, object]] = {
    space: dict(vars(space)) for space in (*SPACES.values(), *_layers_of_torch())
}
# functions that take no part in a forward pass, and that other packages replace
ASIDE = ("load", "save", "compile", "seed", "manual_seed", "get_rng_state", "set_rng_state")
AUTHORS = ("builtins", "torch", "typing", "typing_extensions", "pybind11_builtins", "abc", "enum", "functools")


def _is_foreign(name: str, value: object) -> bool:
    """Whether something was put into torch before this file was imported."""
    if name.startswith("_") and not name.endswith("__") or name in ASIDE:
        return False
    if isinstance(value, FunctionType):
        return not _is_torchs(value)
    return callable(value) and not isclass(value) and type(value).__module__.split(".")[0] not in AUTHORS


FOREIGN = {
    space: {name for name, value in known.items() if _is_foreign(name, value)} for space, known in AS_IMPORTED.items()
}


def _check_as_imported(what: str, named: str, space: object) -> None:
    """Nothing in a module or class of torch may have been replaced, nor may a member of a class's bases be hidden."""
    before, now, replaced = AS_IMPORTED[space], vars(space), set(FOREIGN[space])
    for name, value in before.items():
        found = now.get(name)
        if found is not value and (callable(value) or callable(found)) and name not in ASIDE:
            replaced.add(name)
    if isclass(space):
        replaced |= {name for name in now.keys() - before.keys() if any(name in vars(b) for b in space.__mro__[1:])}
    for name in sorted(replaced):
        raise BadInput(f"{what}: {named}.{name} was replaced by {_called(now.get(name))}. Restore it first.")


def _check_process() -> None:
    """Torch's own functions must be its own, and nothing may stand between them and their callers."""
    for named, space in SPACES.items():
        _check_as_imported("module", named, space)
    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    modes = [type(mode).__name__ for mode in stack if type(mode) is not DeviceContext]
    if modes or torch._C._len_torch_dispatch_stack():
        raise BadInput(f"module: {modes[0] if modes else 'a dispatch mode'} changes what torch does. Leave it first.")
    if torch.is_autocast_enabled("cpu"):
        raise BadInput("module: autocast changes dtypes by its own rules. Leave it first, or convert the module.")


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
            _check_members(what, value)
            if value.is_meta or value.layout != torch.strided:
                kind = "on the meta device, without numbers" if value.is_meta else f"stored as {value.layout}"
                raise BadInput(f"{what}: is {kind}. Use a dense tensor with values.")
            if name in changing and not _same(value, getattr(part, name)):
                raise BadInput(f"{what}: its parametrization gives another value each time. Remove it first.")


def check_on_cpu(module: nn.Module) -> None:
    """Raises BadInput for a module that lies on a graphics card, with a way out."""
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.device.type != "cpu":
            raise BadInput(f"{name}: lies on {value.device}; runs beside a proof are on the CPU. Pass module.cpu().")


def _check_members(what: str, value: Tensor) -> None:
    """A tensor's attributes must be the class's: one of its own in front of them may read as other numbers."""
    for name in vars(value):
        if hasattr(Tensor, name) and name not in ("requires_grad", "grad"):
            raise BadInput(f"{what}: has a {name} of its own in front of the tensor's. Use a plain tensor.")


def check_read(module: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Refuses a module whose tensors, by their names in the state dict, are not those that were read there.

    A hook on the state dict, a property or an attribute in front of a parameter shows other numbers than what runs.
    """
    for name, read in stored.items():
        path, _, last = name.rpartition(".")
        try:
            value = getattr(module.get_submodule(path), last)
        except AttributeError:
            continue  # a constant of the code
        if isinstance(value, Tensor):
            _check_members(name, value)
            value = torch.view_as_real(value) if value.is_complex() else value  # read as pairs of real numbers
            if value is not read and not (value.dtype == read.dtype and _same(value, read)):
                raise BadInput(f"{name}: reads otherwise in the state dict than in the module. Remove what changes it.")


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
