"""What torch.save wrote: a state dict, alone or in a checkpoint; a pickle with anything else in it is not loaded."""

from __future__ import annotations

import re
import textwrap
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from constructions.errors import BadInput, shown
from constructions.names import flattened

COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # in messages of torch
TOLD = "WeightsUnpickler error: "  # what torch's unpickler says stands behind it, and advice before
ENTRIES = ("model", "state_dict", "model_state_dict")  # where training loops put the state dict


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a state dict; torch's own unpickler refuses whatever is not numbers and plain containers.

    Raises: BadInput for any other file; of one that holds other objects, it names one and says how to convert it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says all there is to say
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle make the unpickler fail anyhow
        raise _refused(path, what, error) from None
    for entry in ENTRIES:  # a checkpoint with more in it than the weights
        if isinstance(state, dict) and isinstance(state.get(entry), dict):
            state = state[entry]
    tensors = flattened(state, Tensor) if isinstance(state, dict) else {}
    if not tensors:
        raise BadInput(f"{what}: holds no state dict (a non-empty dict of tensors). Save module.state_dict().")
    return tensors, {}


def _refused(path: Path, what: str, error: Exception) -> BadInput:
    others: list[str] = []
    with suppress(Exception):  # it reads the pickle's opcodes, and runs none
        others = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    if others:
        listed = ", ".join(shown(name, 60)[1:-1] for name in others[:2]) + (", ..." if len(others) > 2 else "")
        return BadInput(
            f"{what}: a pickle that holds {listed}, not a state dict that can be read safely: loading it runs code. "
            f'Convert it where you trust it: found = torch.load("{path.name}", weights_only=False); '
            'torch.save(found.state_dict() if hasattr(found, "state_dict") else found["state_dict"], "state.pt")'
        )
    return BadInput(
        f"{what}: not a state dict that can be read safely ({_reason(error)}). "
        "Save it with torch.save(module.state_dict(), path) or as .safetensors."
    )


def _reason(error: Exception) -> str:
    """What torch says, in a line, without its advice on how to read what is not safe.

    >>> _reason(ValueError("Weights only load failed. In PyTorch 2.6 ... WeightsUnpickler error: no such op"))
    'no such op'
    """
    said = COLOUR.sub("", str(error)).partition(TOLD)
    reason = (said[2] or said[0]).strip().splitlines()
    return textwrap.shorten(reason[0], 120, placeholder=" ...") if reason else type(error).__name__
