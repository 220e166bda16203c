"""Other trainers' names for the tensors of a Count01 model, turned into ours without changing a number."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from constructions.errors import BadInput
from constructions.layouts import hint

LAYOUTS = (
    "ours (E, W_Q, ...), TransformerLens (embed.W_E, ...), or torch's (embedding.weight, attention.in_proj_weight, ...)"
)
PREFIXES = ("module.", "model.", "_orig_mod.", "transformer.")


def translated(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under our names: E, W_Q, W_K, W_V, W_O, W_out, b_out, skip, score_divisor, norm_*.

    Known: TransformerLens (one block without positions or MLP, scores over sqrt(d_head)) and torch's
    nn.Embedding, nn.MultiheadAttention, nn.LayerNorm, nn.Linear as embedding, attention, norm, output.
    Raises: BadInput for a bias inside the attention that is not zero: fold it into the embedding.
    """
    found = {_stripped(name): W for name, W in weights.items()}
    if "embed.W_E" in found:
        return _from_transformer_lens(found)
    if any(name.endswith("in_proj_weight") for name in found):
        return _from_torch(found)
    return found


def _stripped(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _from_transformer_lens(found: dict[str, Tensor]) -> dict[str, Tensor]:
    block = "blocks.0."
    if any(name.startswith("blocks.1.") for name in found):
        raise BadInput("weights: has several blocks; Count01 models have one")
    for name, W in found.items():
        is_known = name in (block + "attn.mask", block + "attn.IGNORE")
        if name.startswith((block + "mlp", "pos_embed", "ln_final")) or (
            name.endswith(("b_Q", "b_K", "b_V", "b_O")) and not is_known
        ):
            _must_vanish(name, W)
    heads = {f"W_{k}": found[f"{block}attn.W_{k}"] for k in "QKV" if f"{block}attn.W_{k}" in found}
    out = {
        "E": found["embed.W_E"],
        **heads,
        "W_O": _named(found, block + "attn.W_O"),
        "W_out": _named(found, "unembed.W_U"),
        "b_out": found.get("unembed.b_U", torch.zeros(found["unembed.W_U"].shape[1], dtype=found["embed.W_E"].dtype)),
        "skip": torch.tensor(True),
    }
    if "W_Q" in heads and heads["W_Q"].ndim == 3:
        out["score_divisor"] = torch.tensor(heads["W_Q"].shape[2])
    if block + "ln1.w" in found:
        out |= {"norm_weight": found[block + "ln1.w"], "norm_bias": _named(found, block + "ln1.b")}
    return out


def _from_torch(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """nn.MultiheadAttention stacks Q, K, V and transposes all; the number of heads is in `heads` or d_h = 1."""
    place = next(name for name in found if name.endswith("in_proj_weight")).removesuffix("in_proj_weight")
    stacked, mixed = found[place + "in_proj_weight"], _named(found, place + "out_proj.weight")
    for name in ("in_proj_bias", "out_proj.bias"):
        if place + name in found:
            _must_vanish(place + name, found[place + name])
    d = stacked.shape[1]
    if "heads" not in found:
        raise BadInput("weights: nn.MultiheadAttention does not store its number of heads; add an integer `heads`")
    heads = int(found["heads"])
    if heads < 1 or d % heads or stacked.shape[0] != 3 * d:
        raise BadInput(f"weights: heads={heads} does not divide d={d}, or in_proj_weight is not (3 d, d)")
    d_h = d // heads
    parts = [W.T.reshape(d, heads, d_h).permute(1, 0, 2) for W in stacked.chunk(3)]
    embedding = next((name for name in found if name in ("embedding.weight", "embed.weight", "emb.weight")), None)
    output = next(
        (name for name in found if name in ("output.weight", "out.weight", "head.weight", "linear.weight")), None
    )
    if embedding is None or output is None:
        raise BadInput("weights: embedding.weight and output.weight are missing beside the attention")
    bias = output.removesuffix("weight") + "bias"
    out = {
        "E": found[embedding],
        **dict(zip(("W_Q", "W_K", "W_V"), parts, strict=True)),
        "W_O": mixed.T.reshape(heads, d_h, d),
        "W_out": found[output].T,
        "b_out": found.get(bias, torch.zeros(found[output].shape[0], dtype=stacked.dtype)),
        "skip": found.get("skip", torch.tensor(True)),
        "score_divisor": torch.tensor(d_h),
    }
    for norm in ("norm", "ln", "ln1", "layer_norm"):
        if norm + ".weight" in found:
            out |= {"norm_weight": found[norm + ".weight"], "norm_bias": _named(found, norm + ".bias")}
    return out


def _named(found: dict[str, Tensor], name: str) -> Tensor:
    if name not in found:
        raise BadInput(f"weights: {name} is missing; a Count01 file has {LAYOUTS}.{hint((name,), found)}")
    return found[name]


def _must_vanish(name: str, W: Tensor) -> None:
    if bool((W != 0).any()):
        raise BadInput(
            f"weights: {name} is not zero; Count01 models have no such part (fold a bias into the embedding)"
        )
