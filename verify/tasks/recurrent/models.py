"""From what was asked to a recurrent network and the problem that the house decides."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bounds.recurrent import decays, one_unit
from constructions.errors import BadInput, NotKnown, ProvedImpossible
from constructions.model_arrays import ModelArrays
from constructions.recurrent import counters_arrays as counters
from constructions.recurrent import diagonal_arrays as diagonal
from constructions.recurrent import gated_arrays as gated
from constructions.recurrent import holding_arrays as holding
from constructions.recurrent import selective_arrays as selective
from constructions.recurrent.arrays import ACTIVATIONS, KINDS, TABLES, as_bytes
from verify.counting.asked import Asked, Judged
from verify.counting.tasks import SELECTIVE, Task
from verify.tasks.recurrent import shares, traced

if TYPE_CHECKING:
    from constructions.recurrent.stacked import StackedModel
    from verify.frame.decide import Decidable
    from verify.module.recurrent import RecurrentProblem
    from verify.tasks.recurrent.kinds import AnyModule

NEURONS = "Add --activation relu, for neurons after the recurrence."
GATED = ("mamba", "rwkv")
CELLS = (*KINDS, "mingru")  # which may have layers round them


def judged(asked: Asked) -> Judged:
    """The network that was asked for, built or loaded, with its task.

    Raises: ProvedImpossible where no weights can do it, NotKnown where no construction is known, BadInput otherwise.
    """
    is_stacked = asked.weights is not None and asked.model in CELLS and is_stacked_file(asked.weights)
    has = ACTIVATIONS if asked.model == "rnn" else ("relu",) if asked.model in TABLES else ()
    if asked.activation not in (None, *has) and not is_stacked:
        raise BadInput(
            f"--activation {asked.activation}: --model rnn has tanh or relu, s4, mamba, rwkv may have neurons (relu), "
            "others have none; drop it"
        )
    if asked.weights is None and asked.model in ("rnn", "lstm", *TABLES) and asked.task.name in SELECTIVE:
        return selective_counter(asked)
    if asked.weights is None:
        from verify.tasks.recurrent.task import Homogeneous

        model, claim = built(asked)
        return Judged(Homogeneous(model, asked.task, asked.length, claim, by_length=asked.by_length), as_bytes(model))
    return loaded(asked, is_stacked)


def is_stacked_file(path: str) -> bool:
    """Whether a file holds a network with layers round its cells."""
    from constructions.recurrent import stacked

    return stacked.is_stacked_file(path)


def loaded(asked: Asked, is_stacked: bool) -> Judged:
    """The network in a file, which may have layers round its cells, with its task.

    Raises: NotKnown where no proof is known, BadInput for another file or for options of what is built.
    """
    assert asked.weights is not None
    if asked.model not in (*KINDS, *TABLES) and not is_stacked:
        how = "has a key to_hidden_and_gate.weight" if asked.model == "mingru" else "is built only"
        raise BadInput(f"--weights: reads {', '.join((*CELLS, *TABLES))}; --model {asked.model} {how}")
    if asked.d is not None or asked.layers is not None:
        raise BadInput("--weights: the file holds the numbers; drop --d and --layers")
    if asked.activation is not None and asked.model in TABLES:
        raise BadInput("--weights: the file says whether there are neurons; drop --activation")
    from constructions.recurrent import gated as gated_modules
    from constructions.recurrent import model as cells
    from constructions.recurrent import residual, stacked
    from verify.frame.tracing import load_tracer
    from verify.tasks.recurrent.selective import Selective
    from verify.tasks.recurrent.task import Homogeneous

    model: cells.RecurrentModel | gated_modules.GatedModel | residual.ResidualModel
    if is_stacked:
        whole = stacked.load(asked.weights, kind=asked.model, activation=asked.activation)
        return _traced(as_a_cell(whole, asked.task, asked.length, asked.by_length), stacked.as_bytes(whole))
    if asked.model in TABLES and residual.is_residual_file(asked.weights, asked.model):
        model = residual.load(asked.weights, kind=asked.model)
        load_tracer()
    elif asked.model in TABLES:
        model = gated_modules.load(asked.weights, kind=asked.model)
    else:
        model = cells.load(asked.weights, kind=asked.model, activation=asked.activation)
    if asked.task.name in SELECTIVE:
        return _traced(Selective(model, asked.task, asked.length, by_length=asked.by_length), bytes_of(model))
    if not asked.task.is_homogeneous:
        raise NotKnown(f"task={asked.task.name}: no proof is known for trained networks on all strings")
    return _traced(Homogeneous(model, asked.task, asked.length, by_length=asked.by_length), bytes_of(model))


def _traced(problem: Decidable, weights: bytes) -> Judged:
    return Judged(problem, weights, saved=partial(traced.program, problem))


def as_a_cell(model: StackedModel, task: Task, length: int | None, has_counts: bool = False) -> RecurrentProblem:
    """A network with a projection, LayerNorm or a head of several layers, as a cell on all strings of a task.

    `has_counts` asks how many answers are right at each length, too.

    Raises: NotKnown for a task whose inputs are not all strings over its tokens, BadInput for other sizes.
    """
    from constructions.recurrent.stacked import EPS
    from verify.frame.tracing import load_tracer
    from verify.module.recurrence import Recurrence
    from verify.module.recurrent import RecurrentProblem
    from verify.tasks.recurrent.automata import expected

    if task.name not in ("modular", "vanilla", "first-homogeneous", *SELECTIVE) or task.has_distinct_start:
        raise NotKnown(f"task={task.name}: no proof is known for networks with a projection, LayerNorm or an MLP head")
    if model.vocabulary not in ({1, task.vocabulary} if task.vocabulary == 1 else {task.vocabulary}):
        raise BadInput(f"weights: reads {model.vocabulary} tokens, and {task.name} has {task.vocabulary}.")
    if model.classes < task.classes:
        raise BadInput(f"weights: the head has {model.classes} classes, and {task.name} has {task.classes} answers.")
    said = {
        "task": task.name,
        **task.parameters(),
        "model": f"stacked {model.kind}",
        "units": model.hidden,
        "layers": model.layers,
        "activation": model.activation,
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    kind = "minGRU" if model.kind == "mingru" else f"torch's {model.kind.upper()}"
    unit = ", tanh units" if model.kind == "rnn" else ""
    assumed = f"{kind} from the state 0{unit}; an input is a string of tokens"
    eps = f"; LayerNorm's eps is {EPS:g}" if model.norm is not None else ""
    given = Recurrence(model.start, expected(task), task.vocabulary)
    longest = task.longest(length)
    besides = None
    if has_counts:
        assert longest is not None, "a table of lengths has an end"
        besides = partial(shares.of_a_cell, task, longest)
    load_tracer()
    return RecurrentProblem(
        model, given, longest, task="inductive", said=said, assumed=(assumed + eps,), besides=besides
    )


def bytes_of(model: AnyModule) -> bytes:
    """The safetensors file of a module."""
    from constructions.recurrent import gated as gated_modules
    from constructions.recurrent import linear, residual
    from constructions.recurrent import model as cells

    if isinstance(model, residual.ResidualModel):
        return residual.as_bytes(model)
    if isinstance(model, cells.RecurrentModel):
        return cells.as_bytes(model)
    return gated_modules.as_bytes(model) if isinstance(model, gated_modules.GatedModel) else linear.as_bytes(model)


def built(asked: Asked) -> tuple[ModelArrays, str]:
    """A construction and the claim that it comes from."""
    m, d, dtype = asked.task.m, asked.d, asked.dtype
    if asked.model == "lstm" and asked.task.name == "vanilla" and asked.task.M is not None:
        return holding.counter(N=asked.task.M, dtype=dtype), "C-R11"
    if asked.model == "lstm" and asked.task.name in holding.STARTED:
        return holding.starting(asked.task.name, M=asked.task.M or 0, dtype=dtype), "C-R19"
    if asked.model == "rnn" and asked.activation in ("relu", None) and asked.task.name in counters.ADDED:
        return counters.adder(asked.task.name, M=asked.task.M or 0, dtype=dtype), "C-R12"
    if asked.model in TABLES and asked.activation is not None and asked.task.name == "modular":
        return layered(asked), "C-R22"
    if asked.model in TABLES and asked.activation is not None:
        raise NotKnown(f"task={asked.task.name}: no construction is known with neurons; drop --activation")
    if asked.model in TABLES and asked.task.name in counters.ADDED:
        return gated.starting(kind=asked.model, task=asked.task.name, M=asked.task.M or 0, dtype=dtype), "C-R21"
    if asked.task.name != "modular" or m is None:
        raise NotKnown(f"task={asked.task.name}: no construction is known for --model {asked.model}; give --weights")
    counters.check(m)
    if asked.model == "ssm":
        found = counters.cyclotomic(m=m, dtype=dtype)
        claim = "C-R7"
    elif asked.model == "rnn" and asked.activation == "relu":
        found, claim = counters.ring(m=m, dtype=dtype), "C-R5"
    elif asked.model == "rnn":
        found, claim = tanh_counter(m, d, asked.length, dtype)
    elif asked.model == "decay":
        s = states(m, d, asked.length)
        return diagonal.decays(m=m, s=s, N=decays(m, s), dtype=dtype), "C-R13"
    elif asked.model in GATED:
        s = states(m, d, asked.length)
        if d is None and (m, s) not in diagonal.stored_rates():
            raise NotKnown(f"--length {asked.length}: no rates of {s} states are known for modulus={m}. {NEURONS}")
        return gated.decays(kind=asked.model, m=m, s=s, N=decays(m, s), dtype=dtype), "C-R16"
    elif asked.model == "lstm":
        found, claim = holding.rings(types=1, m=m, dtype=dtype), "C-R20"
    elif asked.model == "s4":
        found, claim = diagonal.rotation(m=m, dtype=dtype), "C-R14"
    else:
        raise NotKnown(f"task=modular: no construction is known for --model {asked.model}; give --weights")
    if d is not None and found.hidden != d:
        raise NotKnown(f"--d {d}: the construction for m={m} has {found.hidden} units; leave --d out")
    return found, claim


def states(m: int, d: int | None, length: int | None) -> int:
    """As few positive decays as reach the length, or so many as are asked for."""
    if length is None:
        raise ProvedImpossible(
            "C-R2", f"d positive decays count modulo {m} to m(d+1)/2 at most (d odd). Give --length."
        )
    s = next(s for s in range(1, length + 2) if decays(m, s) >= length) if d is None else d
    if length > decays(m, s):
        raise ProvedImpossible(
            "C-R2", f"{s} positive decays count modulo {m} to {decays(m, s)} at most. Give --length {decays(m, s)}."
        )
    return s


def layered(asked: Asked) -> ModelArrays:
    """One state a type, and neurons after the recurrence, which count up to a length."""
    task = asked.task
    if asked.length is None and asked.model in GATED and task.name == "modular":
        limit = "s positive decays and p neurons after them count modulo m no further than s(ps + 1) decays"
        raise ProvedImpossible("C-R23", f"{limit}. Give --length.")
    if asked.length is None:
        raise NotKnown(f"--model {asked.model}: neurons after its recurrence count up to a length. Give --length.")
    most = asked.length if task.C is None else min(task.C, asked.length)
    found = gated.layered(
        kind=asked.model, types=task.K or 1, length=asked.length, max_count=task.C or most, m=task.m,
        dtype=asked.dtype,
    )  # fmt: skip
    if asked.d not in (None, found.hidden):
        raise NotKnown(f"--d {asked.d}: the construction has {found.hidden} states; leave --d out")
    return found


def decays_of_types(asked: Asked) -> ModelArrays:
    """As few positive decays a type as count it modulo m up to C, with a linear readout."""
    task, s = asked.task, 1
    assert task.m is not None and task.C is not None and task.K is not None
    if asked.length is None:
        raise NotKnown(f"--model {asked.model}: its states count in all strings up to a length. Give --length.")
    while decays(task.m, s) < task.C:
        s += 1
    if (task.m, s) not in diagonal.stored_rates():
        raise NotKnown(f"--max-count {task.C}: no rates of {s} states are known for modulus={task.m}. {NEURONS}")
    selective.check(task.K, task.K * s)
    return gated.decays(kind=asked.model, m=task.m, s=s, N=task.C, types=task.K, dtype=asked.dtype)


def selective_counter(asked: Asked) -> Judged:
    """Thermometers of tanh units, rings of ReLUs for counts modulo m, units that add and hold, or decays."""
    from verify.tasks.recurrent.selective import Selective

    task, dtype = asked.task, asked.dtype
    assert task.K is not None
    wanted: str | None = None
    if asked.model == "lstm" and task.m is not None:
        model, claim = holding.rings(types=task.K, m=task.m, dtype=dtype), "C-R20"
    elif asked.model == "lstm":
        assert task.C is not None
        claim, model = "C-R10", holding.counters(types=task.K, max_count=task.C, dtype=dtype)
    elif asked.model == "s4" or (asked.model in GATED and asked.activation is not None):
        wanted, model, claim = "relu", layered(asked), "C-R22"
    elif asked.model in GATED and task.m is not None:
        model, claim = decays_of_types(asked), "C-R25"
    elif asked.model in GATED:
        assert task.C is not None
        model, claim = gated.counters(kind=asked.model, types=task.K, max_count=task.C, dtype=dtype), "C-R17"
    elif task.m is not None:
        wanted, model, claim = "relu", selective.rings(types=task.K, m=task.m, dtype=dtype), "C-R9"
    elif asked.activation == "relu":
        assert task.C is not None
        if asked.length is None:
            raise NotKnown("--activation relu: 2K units count up to a length, which they store. Give --length.")
        model = selective.adders(types=task.K, max_count=task.C, length=asked.length, dtype=dtype)
        wanted, claim = "relu", "C-R18"
    else:
        assert task.C is not None
        wanted, claim = "tanh", "C-R8"
        model = selective.thermometer(types=task.K, max_count=task.C, dtype=dtype)
    if asked.activation not in (None, wanted):
        raise NotKnown(f"task={task.name}: no construction is known with {asked.activation}; use --activation {wanted}")
    if asked.d not in (None, model.hidden) or asked.layers not in (None, 1):
        raise NotKnown(
            f"task={task.name}: the construction has one layer of {model.hidden} units; drop --d and --layers"
        )
    return Judged(Selective(model, task, asked.length, claim, by_length=asked.by_length), as_bytes(model))


def tanh_counter(m: int, d: int | None, length: int | None, dtype: str) -> tuple[ModelArrays, str]:
    """Cycles of two units, or a Johnson counter where so many units are asked for."""
    most = one_unit(m)
    if d == 1 and most is not None:
        if length is None or length > most:
            raise ProvedImpossible(
                "C-R1", f"one unit with a monotone activation counts modulo {m} to {most} at most. Give --d 2."
            )
        raise NotKnown(f"--d 1: no construction is known that counts modulo {m} to {length}. Give --d 2.")
    if m % 2 == 0 and m >= 4 and d == m // 2 + 1:
        return counters.johnson(m=m, dtype=dtype), "C-R6"
    found = counters.chinese(m=m, dtype=dtype)
    return found, "C-R3" if m in counters.stored_cycles() else "C-R4"
