"""Inductive decoders on disk: a safetensors file whose metadata says what the numbers alone do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from constructions import files
from constructions.decoder import Decoder
from constructions.decoder_arrays import KEY
from constructions.decoder_loaders import FLOATS
from constructions.decoder_positions import EPS
from constructions.errors import BadInput, shown
from constructions.layouts import hint

SHAPE = ("pe", "bos", "n_heads", "activation", "layernorm", "positions", "eps")


def as_bytes(model: Decoder, about: Mapping[str, Any]) -> bytes:
    """The weights as a .safetensors file, with the shape that they do not show and what else is said about them.

    Raises: BadInput for LayerNorms of several eps.
    """
    return files.state_bytes(model, KEY, shape_of(model) | dict(about))


def shape_of(model: Decoder) -> dict[str, Any]:
    """What the tensors of a decoder do not show of its shape: the values of SHAPE.

    Raises: BadInput for LayerNorms of several eps.
    """
    block: Any = model.blocks[0]
    eps = {part.eps for part in model.modules() if isinstance(part, torch.nn.LayerNorm)}
    if len(eps) > 1:
        raise BadInput(f"eps={sorted(eps)}: a file has one eps for all LayerNorms")
    return {
        "pe": model.pe,
        "bos": model.has_bos,
        "n_heads": block.attention.n_heads,
        "activation": "relu" if block.mlp is None else block.mlp.activation,
        "layernorm": isinstance(model.norm, torch.nn.LayerNorm),
        "positions": model.positions,
        **({"eps": eps.pop()} if eps else {}),
    }


def load(path: str, given: Mapping[str, Any] = MappingProxyType({})) -> Decoder:
    """The decoder in a file, and what the file does not say as it is `given`.

    Raises: BadInput for a file that is no decoder of this layout, or whose metadata says otherwise.
    """
    weights, header = files.read_tensors(path, KEY)
    shape = {name: header.get(name) for name in SHAPE}
    for name, value in given.items():
        if value is not None and shape.get(name) not in (None, value):
            raise BadInput(f"{name}={value}: the file says {name}={shape[name]}; leave the option out")
        shape[name] = value if shape.get(name) is None else shape[name]
    with files.naming(path):
        return from_state(weights, shape)


def from_state(weights: Mapping[str, Tensor], shape: Mapping[str, Any]) -> Decoder:
    """A decoder of this shape with these tensors.

    Raises: BadInput for tensors that are missing, unknown, misshapen, not finite, or of several dtypes.
    """
    weights = {re.sub(r"^(_orig_mod[.]|module[.])", "", name): value for name, value in weights.items()}

    def sizes(name: str) -> tuple[int, int]:
        if name not in weights or weights[name].ndim != 2 or not weights[name].numel():
            said = hint(("W_E", "W_U", "blocks.0.attention.W_Q"), weights)
            raise BadInput(f"weights: {name} is missing or no matrix; a decoder of constructions.decoder has it.{said}")
        rows, columns = weights[name].shape
        return int(rows), int(columns)

    tokens, width = sizes("W_E")
    d, classes = sizes("W_U")
    pe, bos = shape.get("pe") or "nope", bool(shape.get("bos"))
    _check_kinds(shape)
    n_layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    _, inner = sizes("blocks.0.attention.W_Q")
    n_heads = shape.get("n_heads") or 1
    if inner % n_heads:
        raise BadInput(f"n_heads={n_heads}: must divide the {inner} columns of W_Q")
    if width != d - (pe == "spe"):
        raise BadInput(f"weights: W_E has {width} columns and W_U {d} rows, which is not pe={pe}")
    sizes_and_kinds: dict[str, Any] = {
        "vocabulary": max(tokens - bos, 1),
        "d": d,
        "n_heads": n_heads,
        "n_layers": max(n_layers, 1),
        "d_head": inner // n_heads,
        "d_mlp": sizes("blocks.0.mlp.W_in")[1] if "blocks.0.mlp.W_in" in weights else 0,
        "classes": classes,
        "positions": sizes("W_pos")[0] if pe == "ape" and "W_pos" in weights else shape.get("positions") or 128,
        "pe": pe,
        "activation": shape.get("activation") or "gelu",
        "layernorm": "norm.weight" in weights,
        "eps": EPS if shape.get("eps") is None else shape["eps"],
        "bos": bos,
        "attention_bias": "blocks.0.attention.b_Q" in weights,
        "unembedding_bias": "b_U" in weights,
        "dtype": weights["W_E"].dtype if weights["W_E"].dtype in FLOATS else torch.float64,
    }
    with torch.device("meta"):  # shapes alone, as those of a file that lies may need any amount of memory
        _check_tensors(weights, Decoder(**sizes_and_kinds).state_dict())
    model = Decoder(**sizes_and_kinds)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(weights[name])
    return model.eval()


def _check_tensors(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuses tensors that are not those of the decoder with these names, shapes and dtypes, or not finite."""
    if odd := sorted(set(own) ^ set(weights)):
        raise BadInput(f"weights: {shown(odd[0])} is {'missing' if odd[0] in own else 'not part of this decoder'}")
    for name, value in own.items():
        found = weights[name]
        if found.shape != value.shape or found.dtype != value.dtype:
            kind = f"{tuple(value.shape)} of {value.dtype}"
            raise BadInput(f"weights: {name} is {tuple(found.shape)} of {found.dtype}, must be {kind}")
        if not bool(torch.isfinite(found).all()):
            raise BadInput(f"weights: {name} has an infinite or NaN entry; nothing can be proved about it")


def _check_kinds(shape: Mapping[str, Any]) -> None:
    """Refuses metadata of another type than the decoder's."""
    eps = shape.get("eps")
    if eps is not None and not (isinstance(eps, float) and 0 < eps < 1):
        raise BadInput(f"weights: the metadata has eps={shown(eps)}; save the file again")
    kinds = {"pe": str, "bos": bool, "n_heads": int, "activation": str, "layernorm": bool, "positions": int}
    for name, kind in kinds.items():
        value = shape.get(name)
        if value is None:
            continue
        if not isinstance(value, kind) or (isinstance(value, int) and not 0 <= value <= 10**6):
            raise BadInput(f"weights: the metadata has {name}={shown(value)}; save the file again")
