"""Weights on disk: safetensors with the parameters in the metadata, and the layout of the document's public code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from constructions.errors import BadInput
from constructions.files import check_stated, read_tensors, stated_length
from constructions.histogram import DTYPES, MODELS, HistogramTransformer
from constructions.layouts import hint
from constructions.written_files import write_whole

METADATA_KEY = "weightproof"


def save(
    module: HistogramTransformer, path: str | os.PathLike[str], *, claim: str | None, construction: str | None
) -> None:
    """Writes the state dict and what is needed to rebuild the module; beside the target first, then renamed.

    Raises: BadInput when the folder does not exist or the path is a folder.

    >>> import tempfile
    >>> from constructions import relation_counting
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(relation_counting.dot(T=4, L=3), f"{folder}/m.safetensors", claim="A-4.2", construction=None)
    ...     load(f"{folder}/m.safetensors")
    HistogramTransformer(dot, T=4, L=3, d=4, p=1, dtype=torch.float32)
    """
    write_whole(path, as_bytes(module, claim=claim, construction=construction))


def as_bytes(module: HistogramTransformer, *, claim: str | None, construction: str | None) -> bytes:
    """The safetensors file that `save` writes.

    >>> from constructions import relation_counting
    >>> model = relation_counting.dot(T=4, L=3)
    >>> as_bytes(model, claim="A-4.2", construction=None) == as_bytes(model, claim="A-4.2", construction=None)
    True
    """
    header = {
        "model": module.model,
        "T": module.T,
        "L": module.L,
        "d": module.d,
        "p": module.p,
        "first_count": module.first_count,
        "claim": claim,
        "construction": construction,
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    # one sorted value under one key keeps the bytes the same from process to process
    return to_bytes(tensors, metadata={METADATA_KEY: json.dumps(header, sort_keys=True)})


def load(path: str | os.PathLike[str], *, model: str | None = None, L: int | None = None) -> HistogramTransformer:
    """Reads a model from safetensors, or from a .pt state dict without unpickling anything but tensors.

    Claim: the names are ours (E, W_Q, ...) or those of the document's public code (semantic_emb.weight,
        token_mixer.Q and .K or .A, fc1, fc2), where class 0 stands for the count 0 and is never right, the
        last embedding belongs to BOS, and positional_emb is there but unused.
    Raises: BadInput for anything that is not such a file, and where `model` or `L` is needed and missing.

    >>> import tempfile
    >>> from constructions import relation_counting
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(relation_counting.dot(T=4, L=3).state_dict(), f"{folder}/state.pt")
    ...     load(f"{folder}/state.pt", model="dot", L=3).d
    4
    """
    tensors, header = read_tensors(path, METADATA_KEY, ("E", "semantic_emb.weight"))
    what = f"weights={str(path)!r}"
    if "semantic_emb.weight" in tensors:
        weights, first_count = _from_public_layout(tensors, model, what), 0
    else:
        weights, first_count = _from_our_layout(tensors, what), header.get("first_count", 1)
    model = _consistent(what, "model", model, header.get("model"))
    if model is None:
        choices = "lin or lin+sftm" if "A" in weights else "dot, dot+sftm, bos or bos+sftm"
        raise BadInput(f"{what}: the file does not say which model it holds. Add --model {choices}.")
    module = _assemble(what, model, weights, first_count, L, stated_length(header, what))
    stated = {name: getattr(module, name) for name in ("T", "d", "p", "first_count")}
    check_stated(header, stated | ({"L": module.L} if L is None else {}), what)
    return module


def _from_our_layout(tensors: dict[str, Tensor], what: str) -> dict[str, Tensor]:
    names = {"E", "W_1", "b_1", "W_2", "b_2"} | ({"A"} if "A" in tensors else {"W_Q", "W_K"})
    _check_names(what, tensors, names, {"e_BOS"})
    return dict(tensors)


def _from_public_layout(tensors: dict[str, Tensor], model: str | None, what: str) -> dict[str, Tensor]:
    mixer = {"token_mixer.A"} if "token_mixer.A" in tensors else {"token_mixer.Q", "token_mixer.K"}
    required = {"semantic_emb.weight", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"} | mixer
    unused = {name for name in tensors if name.startswith("positional_emb.")}
    _check_names(what, tensors, required, unused)
    E, p = tensors["semantic_emb.weight"], tensors["fc1.weight"].shape[0]
    weights = {
        "W_1": tensors["fc1.weight"].T,
        "b_1": tensors["fc1.bias"].expand(p) if tensors["fc1.bias"].dim() == 0 else tensors["fc1.bias"],
        "W_2": tensors["fc2.weight"].T,
        "b_2": tensors["fc2.bias"],
        **{name.removeprefix("token_mixer.").replace("Q", "W_Q").replace("K", "W_K"): tensors[name] for name in mixer},
    }
    if model is not None and model.startswith("bos"):
        return {"E": E[:-1], "e_BOS": E[-1], **weights}
    return {"E": E, **weights}


def _check_names(what: str, tensors: Mapping[str, Tensor], required: set[str], optional: set[str]) -> None:
    present = set(tensors)
    if missing := required - present:
        if of_layers := next((name for name in sorted(missing) if _times(name, present) > 1), None):
            raise BadInput(
                f"{what}: holds {_times(of_layers, present)} layers with a {of_layers} each, and histogram models have "
                "one. Write a task file for verify module, which decides any module: docs/histogram.md has one."
            )
        said = hint(required | optional, tensors)
        raise BadInput(f"{what}: lacks {', '.join(sorted(missing))}. It must hold {', '.join(sorted(required))}.{said}")
    if unknown := present - required - optional:
        raise BadInput(
            f"{what}: holds {', '.join(sorted(unknown))}, which no histogram model has. "
            f"It must hold just {', '.join(sorted(required))}."
        )


def _times(name: str, present: set[str]) -> int:
    """How many layers of a file have a tensor of this name."""
    return sum(other.endswith(f".{name}") for other in present)


def _consistent(what: str, name: str, asked: Any, stored: Any) -> Any:
    if asked is not None and stored is not None and asked != stored:
        raise BadInput(f"{name}={asked}: {what} says {name}={stored}. Leave --{name} out.")
    return stored if asked is None else asked


def _assemble(
    what: str, model: str, weights: dict[str, Tensor], first_count: Any, L: int | None, stored_L: int | None
) -> HistogramTransformer:
    if model not in MODELS:
        raise BadInput(f"model={model!r}: must be one of {', '.join(MODELS)}")
    if type(first_count) is not int or first_count not in (0, 1):
        raise BadInput(f"{what}: first_count={first_count!r} must be 0 or 1. Save it again.")
    _check_mixing(what, model, weights)
    for name, value in weights.items():
        if value.dtype not in DTYPES.values():
            raise BadInput(f"{what}: {name} has dtype {value.dtype}. Use {', '.join(DTYPES)}.")
        if not torch.isfinite(value).all():
            raise BadInput(
                f"{what}: {name} holds NaN or infinity, and such weights compute nothing. Check the training."
            )
        if value.dim() != (1 if name in ("e_BOS", "b_1", "b_2") else 2):
            raise BadInput(f"{what}: {name} has shape {tuple(value.shape)}, which is not a {name}. Check the file.")
    T, d = weights["E"].shape
    p, classes = weights["W_2"].shape
    if "A" in weights:
        inferred = weights["A"].shape[0]
        if L is not None and inferred != L:
            raise BadInput(f"L={L}: {what} mixes positions by a {inferred} x {inferred} matrix. Use --L {inferred}.")
    else:
        inferred = classes + first_count - 1 if stored_L is None else stored_L
        inferred = inferred if L is None else L
    dtype = weights["E"].dtype
    for value in weights.values():
        dtype = torch.promote_types(dtype, value.dtype)  # exact for every pair of these formats
    module = HistogramTransformer(
        model, T=T, L=inferred, d=d, p=p, classes=classes, first_count=first_count, dtype=dtype
    )
    for name, parameter in module.named_parameters():
        if weights[name].shape != parameter.shape:
            raise BadInput(
                f"{what}: {name} has shape {tuple(weights[name].shape)}, but T={T}, d={d}, p={p}, L={inferred} "
                f"need {tuple(parameter.shape)}. Check the file and --L."
            )
    return module.fill(**weights)


def _check_mixing(what: str, model: str, weights: dict[str, Tensor]) -> None:
    if model.startswith("lin") != ("A" in weights):
        mixer = "a mixing matrix A" if "A" in weights else "W_Q and W_K"
        raise BadInput(f"model={model}: {what} holds {mixer}, so it is another model. Change --model.")
    if model.startswith("bos") != ("e_BOS" in weights):
        raise BadInput(f"model={model}: {what} {'holds' if 'e_BOS' in weights else 'lacks'} e_BOS. Change --model.")
