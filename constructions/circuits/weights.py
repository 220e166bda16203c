"""A circuit transformer on disk: safetensors, with its sizes as one sorted JSON value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save

from constructions.circuit_simulation import CircuitTransformer
from constructions.circuits.circuit import MAX_NODES
from constructions.errors import BadInput
from constructions.files import read_tensors
from constructions.layouts import hint
from constructions.written_files import write_whole

KEY = "weightproof.circuit"


def save_weights(model: CircuitTransformer, path: str | Path) -> None:
    """Writes the stored weights; the file is complete or absent.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(CircuitTransformer(n=2, T=3, s=2), f"{folder}/m.safetensors")
    ...     load_weights(f"{folder}/m.safetensors").T
    3
    """
    write_whole(path, as_bytes(model))


def as_bytes(model: CircuitTransformer) -> bytes:
    """The stored weights as a safetensors file, the same bytes each time.

    >>> as_bytes(CircuitTransformer(n=2, T=3, s=2)) == as_bytes(CircuitTransformer(n=2, T=3, s=2))
    True
    """
    sizes = json.dumps({"T": model.T, "n": model.n, "s": model.s}, sort_keys=True)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    return save(tensors, metadata={KEY: sizes})


def load_weights(path: str | Path) -> CircuitTransformer:
    """The stored weights as a module, whatever they are: what they compute is for the verifier to say.

    Raises: BadInput when the file is not safetensors, or its tensors do not have the shapes of its sizes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(CircuitTransformer(n=2, T=3, s=2), f"{folder}/weights.safetensors")
    ...     load_weights(f"{folder}/weights.safetensors").s
    2
    """
    state, header = read_tensors(path, KEY, ("E",))
    n, T, s = _sizes(path, header)
    model = CircuitTransformer(n=n, T=T, s=s)
    wanted = model.state_dict()
    if odd := sorted(set(state) ^ set(wanted)):
        said = hint(wanted, state)
        raise BadInput(f"{path}: tensor {odd[0]} is missing or not one of a circuit transformer's.{said}")
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape or not tensor.is_floating_point():
            raise BadInput(
                f"{path}: {name} is {tensor.dtype} {tuple(tensor.shape)}; n={n}, T={T} need floating point "
                f"{tuple(wanted[name].shape)}"
            )
    model.load_state_dict(state, assign=True)
    return model


def _sizes(path: str | Path, header: dict[str, Any]) -> tuple[int, int, int]:
    n, T, s = (header.get(name) for name in ("n", "T", "s"))
    if type(n) is int and type(T) is int and type(s) is int and n >= 0 and T >= 0 and 0 < n + T <= MAX_NODES:
        return n, T, s
    raise BadInput(
        f"{path}: the metadata {KEY} must be the JSON sizes n >= 1, T >= 0 and s; "
        "save one with verify circuit FILE --save DIR"
    )
