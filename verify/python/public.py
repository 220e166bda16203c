"""The public face: `certify` any model of the project by its type, and `assert_proved` for other projects' tests;
`repair`, `radius` and `quantise` change its numbers."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from constructions.errors import BadInput
from verify.arithmetic.readings import Reading, reading_of
from verify.frame import registry
from verify.frame.certificate import CERTIFIED, Certificate, in_words
from verify.frame.clock import Budget
from verify.frame.decide import Effort, How, decide
from verify.frame.judged import check_type

if TYPE_CHECKING:
    from verify.changes.changeable import Changeable
    from verify.changes.quantise import FewestBits, Quantised, Roundable
    from verify.changes.radius import Radius
    from verify.changes.repair import Repair

T = TypeVar("T")
ANY_MODULE = {"inputs", "expected"}  # what says that a module of any type is to be judged


def certify(module: nn.Module, **options: object) -> Certificate:
    """Decides a model on its whole domain: by the task of its type, or any module by `inputs` and `expected`.

    Options for every task: `reading` ("real", "bfloat16", "s6", ..., or `verify.reading_of("bfloat16", "float32")`),
    `method` (certified, exhaustive or sampled), and mostly `budget` in seconds, `seed`, `claim`. Further ones by task:
    histogram L; count01 labels, max_digits, max_noise, max_length; contextual length, regions, exactly, zeros; circuit
    circuit; any other module inputs and expected (verify.module.certify).
    Raises: BadInput for another object, a module whose forward pass is not its class's own, or an unknown option.

    >>> from constructions import relation_counting
    >>> bool(certify(relation_counting.bos(T=3, L=2))), bool(certify(relation_counting.bos(T=3, L=2), reading="p2"))
    (True, False)
    """
    found: Certificate
    if ANY_MODULE & options.keys():
        found = import_module("verify.module").certify(module, **options)
    else:
        found = _decided(module, **_known(module, options))
    return found


def _decided(
    module: nn.Module,
    *,
    reading: Reading | None = None,
    method: str = CERTIFIED,
    budget: float | Budget = 30.0,
    seed: int = 0,
    **options: object,
) -> Certificate:
    """Decides a model of one of the tasks, whose own options are `options`."""
    problem, how = _door(module).posed(module, How(reading, method), **options)
    return decide(problem, how.reading, how.method, Effort(budget, seed))


def assert_proved(module: nn.Module, *, judge: Callable[..., Certificate] = certify, **options: object) -> Certificate:
    """Asserts that a model is proved right, and returns the certificate; options as `certify` takes them.

    `judge` decides in place of `certify`, as the fixture of the pytest plugin does, which reads kept certificates. On
    REFUTED the weights are written to a temporary folder, so that the command in the message runs as it stands.
    Raises: AssertionError with the counterexample, what is expected and predicted, and the command that replays it.

    >>> from constructions import relation_counting
    >>> assert_proved(relation_counting.bos(T=3, L=2)).verdict.value
    'PROVED'
    """
    __tracebackhide__ = True  # pytest shows the message below the line of the test, and not this function
    certificate = judge(module, **options)
    if certificate:
        return certificate
    found = certificate.counterexample
    if found is None:
        raise AssertionError(str(certificate))
    replay = f"module(torch.tensor([{found['input']}]))"
    if not ANY_MODULE & options.keys():
        folder = tempfile.mkdtemp(prefix="weightproof-")
        replay = shlex.join(_door(module).command(module, folder, certificate, **_known(module, options)))
    raise AssertionError(f"REFUTED {certificate.task}: {in_words(found)}\ncounterexample: {found}\nreplay: {replay}")


def repair(
    module: nn.Module,
    *,
    layers: Collection[str] | None = (),
    reading: str = "real",
    budget: float | Budget = 30.0,
    **options: object,
) -> Repair:
    """The least change of a model's readout with which it is proved, or why no readout can be right.

    `layers` are tensors that change besides, None for all of them; no lower bound on such a change is known.
    `options` say what is right, as `certify` takes them: L for a histogram model; `inputs`, `expected` and `position`
    for any module that ends in a linear layer.
    Raises: BadInput for a model whose task has no readout to change, or a domain of too many questions to be listed.

    >>> from constructions import relation_counting
    >>> wrong = relation_counting.bos(T=3, L=2, as_printed=True)
    >>> found = repair(wrong)
    >>> found.outcome.value, bool(certify(found.module)), 0 < found.at_least <= found.change
    ('PROVED', True, True)
    """
    from verify.changes.layers import repair_layers

    found = repair_layers(_changeable(module, options), layers, reading_of(reading), Effort(budget))
    return replace(found, module=_as_given(found.module, module))


def radius(
    module: nn.Module,
    *,
    tensors: Collection[str] | None = None,
    is_relative: bool = True,
    budget: float | Budget = 30.0,
    **options: object,
) -> Radius:
    """How far the stored numbers of a proved model may move before one answer is wrong, from both sides.

    `options` say what is right, as for `repair`.
    Raises: BadInput as `repair`, and for a name that is no tensor of the model.

    >>> from constructions import relation_counting
    >>> found = radius(relation_counting.dot(T=3, L=2), tensors=["W_2", "b_2"])
    >>> found.at_least < found.at_most < 1.001 * found.at_least, found.certificate.verdict.value
    (True, 'REFUTED')
    """
    from verify.changes.radius import radius as bounded

    found = bounded(_changeable(module, options), Effort(budget), tensors=tensors, is_relative=is_relative)
    return replace(found, wrong=_as_given(found.wrong, module))


def quantise(
    module: nn.Module,
    *,
    scheme: str = "per-tensor",
    bits: int | None = None,
    tensors: Collection[str] | None = None,
    reading: str = "real",
    budget: float | Budget = 30.0,
    **options: object,
) -> Quantised[nn.Module] | FewestBits[nn.Module]:
    """A model with fewer bits, decided as it is then stored; without `bits`, the fewest at which it stays proved.

    Every model that `certify` decides, `options` as it takes them. Schemes: per-tensor, per-channel; fp8, e4m3, e5m2,
    bf16 and fp16 have their own bits.
    Raises: BadInput as `certify`, and for a scheme, bits or a tensor that there are not.

    >>> from constructions import relation_counting
    >>> found = quantise(relation_counting.dot(T=3, L=2))
    >>> found.found.grid.bits, bool(certify(found.found.module))
    (2, True)
    """
    from verify.changes import quantise as room

    def decide(changed: nn.Module, effort: Effort) -> Certificate:
        return certify(changed, reading=reading, budget=effort.budget, **options)

    model: Roundable[nn.Module] = room.Roundable.of(module, decide)
    if bits is None and scheme not in room.FORMATS:
        return room.fewest_bits(model, scheme, Effort(budget), tensors=tensors)
    return room.quantise(model, room.NumberGrid(scheme, bits), Effort(budget), tensors=tensors)


def _as_given(changed: nn.Module | None, module: nn.Module) -> nn.Module | None:
    """The changed numbers in a module of the type that was given."""
    if changed is None or type(changed) is type(module):
        return changed
    own = deepcopy(module)
    own.load_state_dict(changed.state_dict())
    return own


def _changeable(module: nn.Module, options: Mapping[str, object]) -> Changeable:
    """The model with what its task says of changing it; any module by `inputs` and `expected`.

    Raises: BadInput for a model of a task that says nothing, or an option that it does not have.
    """
    if ANY_MODULE & options.keys():
        from verify.module.task import Task

        place = next(place for place in registry.cards() if place.endswith(".module"))
        part, given = import_module(f"{place}.changing"), [_with_known(Task, options)]
    else:
        place = _door(module).__name__.rpartition(".")[0]
        if find_spec(f"{place}.changing") is None:
            raise BadInput(
                f"module: nobody has said how a {type(module).__name__} is changed. Say what is right by inputs= and "
                "expected=, as verify.certify takes them."
            )
        part, given = import_module(f"{place}.changing"), []
    found: Changeable = _with_known(partial(part.changeable, module, *given), {} if given else options)
    return found


def _with_known(function: Callable[..., T], options: Mapping[str, object]) -> T:
    """What a function returns with these options; BadInput for one that it does not take, or lacks."""
    from inspect import signature

    known = [name for name in signature(function).parameters]
    for name in options:
        if name not in known:
            raise BadInput(f"{name}={options[name]!r}: is no option here. There are {', '.join(known) or 'none'}.")
    try:
        signature(function).bind(**options)
    except TypeError as error:
        raise BadInput(f"options: {error}") from None
    return function(**options)


def _door(module: object) -> ModuleType:
    """The door of a model's task: `posed(module, how, **options)` is the problem to decide, with how, and `command`
    writes the weights and decides them again.

    Raises: BadInput for an object of another type.
    """
    classes = {place: _class(name) for place, name in registry.holders("MODEL").items()}
    for place, kind in classes.items():
        if isinstance(module, kind):
            return import_module(f"{place}.door")
    kinds = list(classes.values())
    try:
        check_type(module, kinds[0])
    except BadInput as error:
        others = ", ".join(kind.__name__ for kind in kinds[1:])
        raise BadInput(f"{error} Other models that are judged: {others}.") from None
    raise AssertionError("unreachable")


def _class(name: str) -> type[nn.Module]:
    module, cls = name.split(":")
    found: type[nn.Module] = getattr(import_module(module), cls)
    return found


def _known(module: object, options: dict[str, object]) -> dict[str, Any]:
    """The options; BadInput for one that the task does not have."""
    from inspect import signature

    own = [name for name in signature(_door(module).posed).parameters if name not in ("module", "how", "claim")]
    claim = ["claim"] if "claim" in signature(_door(module).posed).parameters else []
    known = [*own, "reading", "method", "budget", "seed", *claim]
    for name in options:
        if name not in known:
            raise BadInput(f"{name}={options[name]!r}: is no option for this model. It takes {', '.join(known)}.")
    reading = options.get("reading")
    if isinstance(reading, str):
        options = options | {"reading": reading_of(reading)}
    elif not (reading is None or isinstance(reading, Reading)):
        raise BadInput(f"reading={reading!r}: must be a name such as 'bfloat16', or what verify.reading_of returns.")
    return options
