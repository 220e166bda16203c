"""From what was asked to a decoder and the problem that the house decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from constructions.decoder_arrays import as_bytes
from constructions.errors import BadInput, NotKnown, ProvedImpossible
from constructions.inductive.curved import GELUS, STEEP, curved, steep_for
from constructions.inductive.first import alike, beside_bos, unmixed
from constructions.inductive.one_layer import positioned
from constructions.inductive.positional import ape, spe, with_layernorm
from constructions.inductive.proportions import selective, started
from constructions.inductive.sinusoidal import sine
from constructions.inductive.successors import succession
from constructions.inductive.two_layers import unmarked
from constructions.model_arrays import ModelArrays
from verify.counting.asked import Asked, Judged
from verify.counting.tasks import FIRST, NUMBER_WORDS, SELECTIVE, STARTED
from verify.tasks.inductive.task import Counting

if TYPE_CHECKING:
    from constructions.decoder import Decoder

BY_POSITION = ("vanilla", "succession", "modular", *FIRST)


def judged(asked: Asked) -> Judged:
    """The decoder that was asked for, built or loaded, with its task.

    Raises: ProvedImpossible where no weights can do it, NotKnown where no construction is known, BadInput otherwise.
    """
    about = {"task": asked.task.name, **asked.task.parameters()}
    if asked.weights is not None:
        from constructions.inductive.files import as_bytes as module_bytes

        module = loaded(asked)
        problem, file = Counting(module, asked.task, asked.length), module_bytes(module, about)
    else:
        check_possible(asked)
        model, claim = built(asked)
        problem, file = Counting(model, asked.task, asked.length, claim), as_bytes(model, about)
    if asked.length is not None and problem.longest is not None and problem.longest < asked.length:
        raise BadInput(
            f"--length {asked.length}: P={problem.room} positions leave room for n={problem.longest} at most; leave it "
            "out, or give more --positions"
        )
    return Judged(problem, file, saved=lambda _: problem.made_tables)


def loaded(asked: Asked) -> Decoder:
    """The decoder in the file; options say what a file of another program does not.

    Raises: BadInput for an option that says otherwise than the file.
    """
    from torch import nn

    from constructions.inductive.files import load

    assert asked.weights is not None
    given = {
        "pe": asked.pe,
        "bos": asked.has_bos or None,
        "n_heads": asked.n_heads,
        "activation": asked.activation,
        "positions": asked.positions,
    }
    model = load(asked.weights, given)
    for name, said, own in (("layers", asked.layers, len(model.blocks)), ("d", asked.d, model.W_U.shape[0])):
        if said not in (None, own):
            raise BadInput(f"--{name} {said}: the file has {own}; leave the option out")
    if not asked.has_layernorm and isinstance(model.norm, nn.LayerNorm):
        raise BadInput("--no-layernorm: the file has LayerNorm weights; leave the option out")
    return model


def check_possible(asked: Asked) -> None:
    """Refuses what no weights can do, with the claim that proves it.

    At length 1 there is one answer to give, and where counts above 1 are not judged, one answer is always right.
    Raises: ProvedImpossible.
    """
    name, pe, longest = asked.task.name, asked.pe, asked.task.longest(asked.length)
    if asked.has_bos or pe not in ("nope", "rope") or longest == 1 or (pe == "rope" and asked.room == 1):
        return
    if name in BY_POSITION and not asked.task.has_distinct_start:
        way = "Add --bos, or --distinct-start to leave such strings out." if asked.task.K else "Add --bos."
        raise ProvedImpossible(
            "C-I1", f"{name} with pe={pe} and no BOS: on a^n all streams are equal, so that all answers are. {way}"
        )
    if name in SELECTIVE and asked.task.C != 1 and not asked.task.has_distinct_start:
        raise ProvedImpossible(
            "C-I2",
            f"{name} with pe={pe} and no BOS: the first two of a string a a are told the same, and are due 1 and 2. "
            "Add --bos, or --distinct-start to leave such strings out.",
        )


def built(asked: Asked) -> tuple[ModelArrays, str | None]:
    """The decoder and the claim that it comes from, None where it is as printed.

    GELU neurons are those of ReLU made steep, where no construction has GELU for itself.
    Raises: NotKnown, BadInput.
    """
    if asked.activation not in GELUS or has_own_gelu(asked):
        return of_relus(asked)
    if asked.as_printed:
        raise BadInput("--as-printed: the document's recipe is of ReLU neurons; leave --activation out")
    model, _ = of_relus(replace(asked, activation=None))
    if not model.arguments["d_mlp"]:
        raise BadInput(f"--activation {asked.activation}: this construction has no neurons; leave it out")
    return curved(model, asked.activation, steepness(asked)), "C-T13"


def has_own_gelu(asked: Asked) -> bool:
    """Whether what was asked for is selective counting with BOS: C-T8, at any length."""
    return asked.task.name == "selective" and asked.has_bos


def steepness(asked: Asked) -> int:
    """How steep GELU neurons have to be: by the length where they read shares of it.

    Raises: NotKnown without an end of the length.
    """
    if is_by_position(asked):
        return STEEP
    ends = [n for n in (asked.length, None if asked.pe == "nope" else asked.room) if n is not None]
    if not ends:
        raise NotKnown(f"{asked.task.name} with GELU neurons: the weights hold the largest length. Give --length N.")
    return steep_for(min(ends))


def of_relus(asked: Asked) -> tuple[ModelArrays, str | None]:
    """The decoder of ReLU neurons, or of GELU neurons where a construction has them, and its claim.

    Raises: NotKnown, BadInput.
    """
    task, name = asked.task, asked.task.name
    shape: dict[str, Any] = {
        "pe": asked.pe,
        "layernorm": asked.has_layernorm,
        "positions": asked.room,
        "dtype": asked.dtype,
    }
    check_options(asked)
    if asked.as_printed:
        return as_printed(asked), None
    if name in STARTED or (name in NUMBER_WORDS and asked.has_bos):
        assert task.M is not None
        return started(task=name, M=task.M, bos=asked.has_bos, n_heads=asked.n_heads or 1, **shape), "C-T1"
    if is_by_position(asked):
        return by_position(asked)
    if name == "modular" and asked.has_bos:  # selective counting of one type, of counts up to the length
        room = None if asked.pe == "nope" else asked.room - 1
        ends = tuple(n for n in (asked.length, room) if n is not None)
        if not ends:
            raise NotKnown("modular with BOS: constructions are known up to a length only (C-I4). Give --length N.")
        return selective(K=1, C=min(ends), m=task.m, n_heads=asked.n_heads or 1, **shape), "C-T3"
    if name in SELECTIVE and asked.has_bos:
        assert task.K is not None and task.C is not None
        shape["activation"] = asked.activation or "relu"
        model = selective(K=task.K, C=task.C, m=task.m, n_heads=asked.n_heads or 1, **shape)
        by_gate = "C-T2" if shape["activation"] == "relu" else "C-T8"
        return model, by_gate if task.m is None else "C-T3"
    if name in FIRST and asked.has_bos:
        return beside_bos(K=task.K or 1, **shape), "C-T12"
    if name in FIRST:
        return among_types(asked), "C-T11"
    if is_of_one_layer(asked):
        return in_one_layer(asked), "C-T10"
    if is_of_two_layers(asked):
        return without_bos(asked), "C-T7"
    raise NotKnown(f"task={name}: no construction is known for pe={asked.pe}{' and BOS' if asked.has_bos else ''}")


def is_by_position(asked: Asked) -> bool:
    """Whether what was asked for is counting without BOS by positions in the stream: C-T4, C-T5, C-T6, C-T9."""
    return asked.task.name in BY_POSITION and not asked.has_bos and asked.pe in ("spe", "ape", "sine")


def _check_one_head(asked: Asked) -> None:
    if asked.n_heads not in (None, 1):
        raise BadInput(f"--heads {asked.n_heads}: this construction has 1; leave it out")


def by_position(asked: Asked) -> tuple[ModelArrays, str]:
    """The decoder that counts by positions, with its claim.

    Raises: NotKnown for positions that sinusoids of so few dimensions do not tell, BadInput.
    """
    _check_one_head(asked)
    task, dtype = asked.task, asked.dtype
    if task.name == "succession":
        assert task.M is not None
        model = succession(
            M=task.M, pe=str(asked.pe), d=asked.d, layernorm=asked.has_layernorm, positions=asked.room, dtype=dtype
        )
        return model, "C-T9"
    limits = (asked.length, task.M, asked.room)
    model, claim = _of_one_token(asked, min(n for n in limits if n is not None))
    return model if task.K is None else alike(model, task.K), claim


def _of_one_token(asked: Asked, N: int) -> tuple[ModelArrays, str]:
    """The decoder that tells a^n by positions up to N, with its claim."""
    task, dtype = asked.task, asked.dtype
    sizes: dict[str, Any] = {"task": task.name, "N": N, "m": task.m, "positions": asked.room, "dtype": dtype}
    if asked.pe == "sine":
        sizes |= {} if asked.d is None else {"d": asked.d}
        return sine(**sizes, layernorm=asked.has_layernorm), "C-T6"
    model = spe(**sizes) if asked.pe == "spe" else ape(**sizes)
    return with_layernorm(model) if asked.has_layernorm else model, "C-T4" if asked.pe == "spe" else "C-T5"


def among_types(asked: Asked) -> ModelArrays:
    """The decoder that tells the first token by what it is mixed with.

    Raises: NotKnown without an end of the length, which the weights hold; BadInput for several heads.
    """
    _check_one_head(asked)
    ends = [n for n in (asked.length, asked.room if asked.pe == "rope" else None) if n is not None]
    if not ends:
        raise NotKnown("first-heterogeneous without BOS: weights are known up to a length only. Give --length N.")
    assert asked.task.K is not None
    return unmixed(
        K=asked.task.K, N=min(ends), pe=str(asked.pe), layernorm=asked.has_layernorm, positions=asked.room,
        dtype=asked.dtype,
    )  # fmt: skip


def is_of_one_layer(asked: Asked) -> bool:
    """Whether what was asked for is selective counting without BOS in one layer: C-T10."""
    is_placed = asked.pe in ("ape", "spe", "sine") and not asked.has_bos
    return asked.task.name == "selective" and asked.layers == 1 and is_placed


def in_one_layer(asked: Asked) -> ModelArrays:
    """The decoder of one layer.

    Raises: NotKnown where sinusoids of so few dimensions do not tell positions; BadInput for several heads.
    """
    _check_one_head(asked)
    task = asked.task
    assert task.K is not None and task.C is not None
    return positioned(
        K=task.K, C=task.C, pe=str(asked.pe), layernorm=asked.has_layernorm, positions=asked.room,
        dtype=asked.dtype,
    )  # fmt: skip


def is_of_two_layers(asked: Asked) -> bool:
    """Whether what was asked for is selective counting without BOS, by marking the first token: C-T7."""
    is_told_apart = asked.pe in ("ape", "spe", "sine") or (
        asked.pe in ("nope", "rope") and asked.task.has_distinct_start
    )
    return asked.task.name in SELECTIVE and not asked.has_bos and is_told_apart


def without_bos(asked: Asked) -> ModelArrays:
    """The decoder of two layers.

    Raises: NotKnown without an end of the length where the weights hold it; BadInput for several heads.
    """
    task = asked.task
    _check_one_head(asked)
    if asked.pe == "nope" and asked.length is None:
        raise NotKnown(f"{task.name} without BOS and positions: the weights hold the largest length. Give --length N.")
    assert task.K is not None and task.C is not None
    return unmarked(
        K=task.K, C=task.C, m=task.m, pe=str(asked.pe), N=asked.length or asked.room, layernorm=asked.has_layernorm,
        positions=asked.room, dtype=asked.dtype,
    )  # fmt: skip


def as_printed(asked: Asked) -> ModelArrays:
    """C's own recipe: eq. 2, where positions have residues.

    C's other one, (1/n, k/n) -> k "by LayerNorm and MLP" (Sec. 5), is to be learned: it prints no map.
    Raises: BadInput where C prints no recipe.
    """
    if asked.task.name in SELECTIVE:
        raise BadInput(
            f"--as-printed: for {asked.task.name} the document prints that LayerNorm and MLP will learn the map of "
            "(1/n, k/n) to k, and no map; leave it out, or decide a trained one with --weights"
        )
    if asked.task.name != "modular" or asked.pe != "ape" or asked.has_bos:
        raise BadInput(
            f"--as-printed: the document prints no recipe for {asked.task.name} with pe={asked.pe}; leave it out, or "
            "use --task modular --pe ape (eq. 2)"
        )
    ends = [n for n in (asked.length, asked.room) if n is not None]
    model = ape(task="modular", N=min(ends), m=asked.task.m, positions=asked.room, as_printed=True,
                dtype=asked.dtype)  # fmt: skip
    return with_layernorm(model) if asked.has_layernorm else model


def check_options(asked: Asked) -> None:
    """Refuses what no construction has.

    Raises: BadInput, NotKnown.
    """
    layers = 2 if is_of_two_layers(asked) and not is_of_one_layer(asked) else 1
    if asked.layers is not None and asked.layers < layers:
        raise NotKnown(
            f"layers={asked.layers}: {asked.task.name} without BOS is known to be possible with 2; leave it out"
        )
    if asked.layers not in (None, layers):
        enough = "one layer is" if layers == 1 else "two layers are"
        raise BadInput(f"--layers {asked.layers}: {enough} enough here, and further ones would add 0; leave it out")
    if asked.activation not in (None, "relu", *GELUS):
        raise BadInput(f"--activation {asked.activation}: must be relu, gelu or gelu_tanh with --model transformer")
    has_d = asked.pe == "sine" and is_by_position(asked)
    if asked.d is not None and not has_d:
        raise BadInput(f"--d {asked.d}: this construction chooses its size; leave it out")
