"""Weights on disk, whichever model they belong to, read without running code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from constructions import formats, regular_files
from constructions.errors import BadInput, shown
from constructions.names import WeightsFile, under_root

StrPath = str | os.PathLike[str]
WEIGHTS = "weights: "  # how errors about tensors begin, wherever these come from
MOST_NUMBERS = 1 << 28  # in it: 2 GiB in float64
UNUSABLE = (
    (lambda tensor: tensor.is_meta, "is on the device meta, without numbers"),
    (lambda tensor: tensor.is_nested, "is nested"),
    (lambda tensor: tensor.is_quantized, "is quantised"),
    (lambda tensor: tensor.layout is not torch.strided, "is sparse"),
    (lambda tensor: tensor.is_complex(), "is complex"),
)


@contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """Where weights of a file are read: what is said of them names the file.

    >>> with naming("mine.pt"):
    ...     raise BadInput("weights: E is missing")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='mine.pt': E is missing
    """
    try:
        yield
    except BadInput as error:
        if not str(error).startswith(WEIGHTS):
            raise
        raise type(error)(f"weights={shown(os.fspath(path), 200)}: {str(error).removeprefix(WEIGHTS)}") from None


def read_tensors(path: StrPath, key: str, marks: Iterable[str] = ()) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file in any format that is read (constructions/formats), and the JSON object in its metadata.

    The object is what stands under `key`. A state dict may lie in dicts of a checkpoint, as Lightning's do. `marks` are
    names one of which every model of the kind has: a wrapper's prefix in front of it (module., _orig_mod., model.) is
    taken off all names. A path that is a `WeightsFile` brings its own names.
    Raises: BadInput, in one line, for whatever is not such a file; the object is empty where there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"module.E": torch.zeros(4, 2)}, f"{folder}/state.pt")
    ...     read_tensors(f"{folder}/state.pt", "weightproof.histogram", ["E"])[0]["E"].shape
    torch.Size([4, 2])
    """
    what = f"weights={shown(os.fspath(path), 200)}"
    formats.check_no_folder(path, what)
    tensors, header = formats.read(regular_files.checked(path, "weights", regular_files.MOST_BYTES), what, key)
    check_tensors(tensors, what)
    if isinstance(path, WeightsFile):
        tensors = path.renamed(tensors, what)
    return under_root(tensors, marks, what), header


def check_stated(header: Mapping[str, Any], found: Mapping[str, Any], what: str) -> None:
    """Refuses metadata that say anything else than what was found in the file, where they say it.

    Raises: BadInput, naming the first such entry; true is not 1, and 1.0 is not either.

    >>> check_stated({"T": 99}, {"T": 4}, "weights='m.safetensors'")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='m.safetensors': the metadata say T=99, and the tensors T=4. Save it again.
    """
    for name, value in found.items():
        said = header.get(name)
        if said is not None and (type(said) is not type(value) or said != value):
            raise BadInput(
                f"{what}: the metadata say {name}={shown(said)}, and the tensors {name}={value}. Save it again."
            )


def stated_length(header: Mapping[str, Any], what: str) -> int | None:
    """The sequence length L that the metadata state, None where they do not.

    Raises: BadInput for anything but a whole number, at least 1.

    >>> stated_length({"L": 10}, "weights"), stated_length({}, "weights")
    (10, None)
    """
    L = header.get("L")
    if L is None or (type(L) is int and L >= 1):
        return L
    raise BadInput(f"{what}: the metadata say L={shown(L)}, which must be a whole number, at least 1. Save it again.")


def state_bytes(model: torch.nn.Module, key: str, header: Mapping[str, Any]) -> bytes:
    """The state dict as a safetensors file, with the JSON object `header` in its metadata under `key`.

    >>> layer = torch.nn.Linear(2, 2)
    >>> state_bytes(layer, "mine", {"L": 3}) == state_bytes(layer, "mine", {"L": 3})
    True
    """
    from safetensors.torch import save

    tensors = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    return save(tensors, metadata={key: json.dumps(header)})


def check_tensors(tensors: Mapping[str, Tensor], what: str) -> None:
    """Refuses tensors that are not all there as plain numbers, or too many of them together.

    Raises: BadInput, naming the first such tensor.

    >>> check_tensors({"E": torch.zeros(2, 2, device="meta")}, "weights='m.pt'")
    Traceback (most recent call last):
    constructions.errors.BadInput: weights='m.pt': E is on the device meta, without numbers. Save dense tensors.
    """
    for name, tensor in tensors.items():
        kind = next((kind for is_kind, kind in UNUSABLE if is_kind(tensor)), None)
        if kind is not None:
            raise BadInput(f"{what}: {shown_name(name)} {kind}. Save dense tensors.")
    numbers = sum(tensor.numel() for tensor in tensors.values())  # an expanded one has more than are stored
    if numbers > MOST_NUMBERS:
        raise BadInput(f"{what}: holds {numbers} numbers, and at most {MOST_NUMBERS} are read. Save a smaller model.")


def shown_name(name: str) -> str:
    """The name of a tensor, cut where it is long.

    >>> shown_name("W_1"), len(shown_name("W" * 1000))
    ('W_1', 61)
    """
    return name if len(name) <= 60 else f"{name[:40]}... ({len(name)} characters)"
