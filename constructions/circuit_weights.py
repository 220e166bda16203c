"""A circuit transformer on disk: safetensors, with its sizes as one sorted JSON value."""

from __future__ import annotations

import json
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from constructions.circuit import MAX_NODES
from constructions.circuit_simulation import CircuitTransformer
from constructions.errors import BadInput

KEY = "weightproof.circuit"


def save_weights(model: CircuitTransformer, path: str | Path) -> None:
    """Writes the stored weights; the file is complete or absent.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(CircuitTransformer(n=2, T=3, s=2), f"{folder}/m.safetensors")
    ...     load_weights(f"{folder}/m.safetensors").T
    3
    """
    sizes = json.dumps({"T": model.T, "n": model.n, "s": model.s}, sort_keys=True)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_whole(path, save(tensors, metadata={KEY: sizes}))


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes beside the file, then renames, so that no half-written file is ever seen.

    Raises: BadInput when the place cannot be written to.
    """
    beside = Path(f"{path}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        beside.unlink(missing_ok=True)


def load_weights(path: str | Path) -> CircuitTransformer:
    """The stored weights as a module, whatever they are: what they compute is for the verifier to say.

    Raises: BadInput when the file is not safetensors, or its tensors do not have the shapes of its sizes.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            n, T, s = _sizes(path, (file.metadata() or {}).get(KEY))
            model = CircuitTransformer(n=n, T=T, s=s)
            wanted = model.state_dict()
            if set(file.keys()) != set(wanted):
                odd = sorted(set(file.keys()) ^ set(wanted))[0]
                raise BadInput(f"{path}: tensor {odd} is missing or not one of a circuit transformer's")
            state = {name: file.get_tensor(name) for name in wanted}
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path}: not a readable safetensors file ({str(error).splitlines()[0]})") from None
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape or not tensor.is_floating_point():
            raise BadInput(
                f"{path}: {name} is {tensor.dtype} {tuple(tensor.shape)}; n={n}, T={T} need floating point "
                f"{tuple(wanted[name].shape)}"
            )
    model.load_state_dict(state, assign=True)
    return model


def _sizes(path: str | Path, text: str | None) -> tuple[int, int, int]:
    rule = f"{path}: the metadata {KEY} must be the JSON sizes n >= 1, T >= 0 and s"
    try:
        sizes = json.loads(text or "")
        n, T, s = (sizes[name] for name in ("n", "T", "s"))
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{rule}; save one with verify circuit FILE --save") from None
    if not all(type(size) is int for size in (n, T, s)) or not 0 < n + T <= MAX_NODES:
        raise BadInput(rule)
    return n, T, s
