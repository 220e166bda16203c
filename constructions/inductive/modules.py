"""Decoders that count inductively as modules: what the builders of this folder write, made on demand."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from constructions.decoder import Decoder
from constructions.decoder_arrays import arrays_of
from constructions.inductive import curved as steep
from constructions.inductive import first, one_layer, positional, proportions, sinusoidal, successors, two_layers
from constructions.model_arrays import ModelArrays, modules

P = ParamSpec("P")


def changed(change: Callable[Concatenate[ModelArrays, P], ModelArrays]) -> Callable[Concatenate[Decoder, P], Decoder]:
    """The same change, of a module: another one, whose numbers are the changed ones.

    >>> changed(first.alike)(spe(task="vanilla", N=4), 3).vocabulary
    3
    """

    @wraps(change)
    def made(model: Decoder, *args: P.args, **kwargs: P.kwargs) -> Decoder:
        return change(arrays_of(model), *args, **kwargs).made(Decoder)

    return cast("Callable[Concatenate[Decoder, P], Decoder]", made)


alike = changed(first.alike)
ape = modules(positional.ape, Decoder)
beside_bos = modules(first.beside_bos, Decoder)
curved = changed(steep.curved)
positioned = modules(one_layer.positioned, Decoder)
selective = modules(proportions.selective, Decoder)
sine = modules(sinusoidal.sine, Decoder)
spe = modules(positional.spe, Decoder)
started = modules(proportions.started, Decoder)
succession = modules(successors.succession, Decoder)
unmarked = modules(two_layers.unmarked, Decoder)
unmixed = modules(first.unmixed, Decoder)
with_layernorm = changed(positional.with_layernorm)
