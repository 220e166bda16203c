"""A causal decoder before its module is made: weights by their names in Decoder's state dict, and one way to read them.

Without loading torch: builders fill `blank` models, and proofs read `DecoderArrays`, of arrays or of a module alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from constructions.decoder_positions import EPS, waves
from constructions.errors import BadInput
from constructions.model_arrays import Array, ModelArrays, file_of, name_of, rounded_to

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from constructions.decoder import Decoder

DType: TypeAlias = "torch.dtype | str"
MADE_BY = "constructions.decoder:Decoder"
KEY = "decoder"  # of what a file says besides its tensors


def blank(
    *,
    vocabulary: int,
    d: int,
    d_head: int,
    d_mlp: int,
    classes: int,
    positions: int,
    pe: str,
    dtype: DType,
    n_heads: int = 1,
    n_layers: int = 1,
    activation: str = "relu",
    layernorm: bool = True,
    eps: float = EPS,
    bos: bool = False,
) -> ModelArrays:
    """A decoder whose matrices and biases are 0, for a builder to fill; the arguments are Decoder's.

    >>> blank(vocabulary=3, d=2, d_head=2, d_mlp=0, classes=3, positions=8, pe="nope", dtype="float32").W_E.shape
    (3, 2)
    """
    arguments = {
        "vocabulary": vocabulary, "d": d, "n_heads": n_heads, "n_layers": n_layers, "d_mlp": d_mlp, "d_head": d_head,
        "classes": classes, "positions": positions, "pe": pe, "activation": activation, "layernorm": layernorm,
        "eps": eps, "bos": bos,
    }  # fmt: skip
    model = ModelArrays.zeros(MADE_BY, name_of(dtype), arguments, shapes(arguments))
    for name, x in model.weights.items():
        x[...] = name.endswith(".weight")  # of LayerNorm
    return model


def shapes(sizes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a decoder's arrays, made with these arguments, by their names.

    >>> sizes = {"vocabulary": 3, "bos": True, "n_heads": 1, "n_layers": 0, "d": 2, "d_head": 2, "d_mlp": 0,
    ...          "classes": 5, "positions": 8, "pe": "ape", "layernorm": False}
    >>> shapes(sizes)
    {'W_E': (4, 2), 'W_pos': (8, 2), 'W_U': (2, 5)}
    """
    d, inner, d_mlp, pe = sizes["d"], sizes["n_heads"] * sizes["d_head"], sizes["d_mlp"], sizes["pe"]
    norm = {"weight": (d,), "bias": (d,)} if sizes["layernorm"] else {}
    found: dict[str, tuple[int, ...]] = {"W_E": (sizes["vocabulary"] + sizes["bos"], d - (pe == "spe"))}
    found |= {"W_pos": (sizes["positions"], d)} if pe == "ape" else {}
    attention: dict[str, tuple[int, ...]] = {f"W_{name}": (d, inner) for name in "QKV"} | {"W_O": (inner, d)}
    attention |= {f"b_{name}": (inner,) for name in "QKV"} | {"b_O": (d,)}
    mlp = {"W_in": (d, d_mlp), "b_in": (d_mlp,), "W_out": (d_mlp, d), "b_out": (d,)} if d_mlp else {}
    parts: dict[str, Any] = {"norm_1": norm, "attention": attention, "norm_2": norm if d_mlp else {}, "mlp": mlp}
    for i in range(sizes["n_layers"]):
        found |= {f"blocks.{i}.{part}.{name}": shape for part, named in parts.items() for name, shape in named.items()}
    return found | {f"norm.{name}": shape for name, shape in norm.items()} | {"W_U": (d, sizes["classes"])}


def has_bos(model: Decoder | ModelArrays) -> bool:
    """Whether a token of the model's own comes first.

    >>> has_bos(blank(vocabulary=1, d=2, d_head=2, d_mlp=0, classes=1, positions=8, pe="ape", dtype="float32"))
    False
    """
    return bool(model.arguments["bos"] if isinstance(model, ModelArrays) else model.has_bos)


def filled(model: ModelArrays, weights: Mapping[str, Array], layer: int = 0) -> ModelArrays:
    """The decoder itself with these matrices, rounded to its dtype, in the one place of a layer or of none that has it.

    A smaller matrix fills the first rows and columns.

    >>> model = blank(vocabulary=1, d=2, d_head=2, d_mlp=0, classes=1, positions=8, pe="nope", dtype="float32")
    >>> filled(model, {"W_U": np.full((2, 1), 0.1)}).W_U.tolist()
    [[0.10000000149011612], [0.10000000149011612]]
    """
    for name, value in weights.items():
        for path in (name, f"blocks.{layer}.attention.{name}", f"blocks.{layer}.mlp.{name}"):
            if path in model.weights:
                model.weights[path][tuple(map(slice, value.shape))] = rounded_to(model.dtype, value)
    return model


def arrays_of(model: Decoder) -> ModelArrays:
    """A module's stored numbers as arrays; as many biases, heads and layers as `blank` ones have.

    >>> model = blank(vocabulary=1, d=2, d_head=2, d_mlp=0, classes=1, positions=8, pe="ape", dtype="float32")
    >>> arrays_of(model.module).arguments == model.arguments
    True
    """
    found = DecoderArrays.of(model)
    heads, mlp = found.blocks[0].attention, found.blocks[0].mlp
    arguments = {
        "vocabulary": found.vocabulary, "d": len(found.W_U), "n_heads": heads.n_heads, "n_layers": len(found.blocks),
        "d_mlp": 0 if mlp is None else len(mlp.b_in), "d_head": heads.d_head, "classes": found.W_U.shape[1],
        "positions": found.positions, "pe": found.pe, "activation": "relu" if mlp is None else mlp.activation,
        "layernorm": found.norm is not None, "eps": EPS if found.norm is None else found.norm.eps,
        "bos": found.has_bos,
    }  # fmt: skip
    return ModelArrays(MADE_BY, found.dtype, arguments, found.stored)


def as_bytes(model: ModelArrays, about: Mapping[str, Any]) -> bytes:
    """The safetensors file of a decoder, as constructions.inductive.files writes that of its module.

    >>> from constructions.inductive import files
    >>> model = blank(vocabulary=1, d=2, d_head=2, d_mlp=0, classes=1, positions=8, pe="ape", dtype="float32")
    >>> as_bytes(model, {"task": "vanilla"}) == files.as_bytes(model.module, {"task": "vanilla"})
    True
    """
    sizes = model.arguments
    shape = {name: sizes[name] for name in ("pe", "bos", "n_heads", "activation", "layernorm", "positions")}
    shape |= {"activation": sizes["activation"] if sizes["d_mlp"] else "relu"}
    shape |= {"eps": sizes["eps"]} if sizes["layernorm"] else {}
    return file_of(model, {}, {KEY: json.dumps(shape | dict(about))})


@dataclass(frozen=True)
class NormArrays:
    """A LayerNorm: weight and bias (d,)."""

    weight: Array
    bias: Array
    eps: float


@dataclass(frozen=True)
class AttentionArrays:
    """Attention's matrices, as `constructions.decoder_model.Attention` has them; biases may be None."""

    n_heads: int
    d_head: int
    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array
    b_Q: Array | None
    b_K: Array | None
    b_V: Array | None
    b_O: Array | None


@dataclass(frozen=True)
class NeuronArrays:
    """The neurons of a block: W_in (d, p), b_in (p,), W_out (p, d), b_out (d,)."""

    activation: str
    W_in: Array
    b_in: Array
    W_out: Array
    b_out: Array


@dataclass(frozen=True)
class BlockArrays:
    """A block: its attention, its neurons and their LayerNorms, None where there are none."""

    norm_1: NormArrays | None
    attention: AttentionArrays
    norm_2: NormArrays | None
    mlp: NeuronArrays | None


@dataclass(frozen=True)
class DecoderArrays:
    """A decoder's stored numbers in float64. `W_pos` is the table of positions that is in the stream, or None.

    `stored` are the arrays that its file has.
    """

    dtype: str
    pe: str
    has_bos: bool
    positions: int
    W_E: Array
    W_pos: Array | None
    blocks: tuple[BlockArrays, ...]
    norm: NormArrays | None
    W_U: Array
    b_U: Array | None
    stored: Mapping[str, Array]

    @classmethod
    def of(cls, model: Decoder | ModelArrays) -> DecoderArrays:
        """The numbers of a module, or of arrays.

        >>> DecoderArrays.of(blank(vocabulary=1, d=2, d_head=2, d_mlp=0, classes=1, positions=8, pe="sine",
        ...                        dtype="float32")).table.shape
        (8, 2)
        """
        return _of_arrays(model) if isinstance(model, ModelArrays) else _of_module(model)

    def each(self, change: Callable[[Array], Array]) -> DecoderArrays:
        """The same decoder with all of its arrays changed.

        >>> model = blank(vocabulary=1, d=2, d_head=2, d_mlp=0, classes=1, positions=8, pe="nope", dtype="float32")
        >>> DecoderArrays.of(model).each(lambda x: x + 1).blocks[0].attention.W_Q.tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """

        def of(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                return change(part)
            if isinstance(part, tuple):
                return tuple(of(x) for x in part)
            if isinstance(part, Mapping):
                return {name: of(x) for name, x in part.items()}
            if not is_dataclass(part) or isinstance(part, type):
                return part
            return replace(part, **{f.name: of(getattr(part, f.name)) for f in fields(part)})

        found: DecoderArrays = of(self)
        return found

    @property
    def vocabulary(self) -> int:
        """How many tokens there are, BOS not counted."""
        return len(self.W_E) - self.has_bos

    @property
    def table(self) -> Array:
        """The table of positions, where there is one."""
        assert self.W_pos is not None
        return self.W_pos


def _of_arrays(model: ModelArrays) -> DecoderArrays:
    w, sizes = model.weights, model.arguments
    if {name: x.shape for name, x in w.items()} != shapes(sizes):
        raise BadInput("weights: their names or shapes are not those of a decoder of these sizes. Build it anew.")
    pe, d = sizes["pe"], sizes["d"]
    table = w.get("W_pos")
    if pe in ("sine", "spe"):
        made = waves(sizes["positions"], d) if pe == "sine" else np.arange(1.0, sizes["positions"] + 1)[:, None]
        table = rounded_to(model.dtype, made)

    def norm(path: str) -> NormArrays | None:
        weight = w.get(f"{path}.weight")
        return None if weight is None else NormArrays(weight, w[f"{path}.bias"], sizes["eps"])

    def block(path: str) -> BlockArrays:
        names = [f"{kind}_{of}" for kind in "Wb" for of in "QKVO"]
        attention = AttentionArrays(
            sizes["n_heads"],
            sizes["d_head"],
            *(w.get(f"{path}.attention.{name}") for name in names),  # type: ignore[arg-type]
        )
        names = ["W_in", "b_in", "W_out", "b_out"]
        mlp = (
            NeuronArrays(sizes["activation"], *(w[f"{path}.mlp.{name}"] for name in names)) if sizes["d_mlp"] else None
        )
        return BlockArrays(norm(f"{path}.norm_1"), attention, norm(f"{path}.norm_2"), mlp)

    blocks = tuple(block(f"blocks.{i}") for i in range(sizes["n_layers"]))
    return DecoderArrays(
        model.dtype, pe, sizes["bos"], sizes["positions"], w["W_E"], table, blocks, norm("norm"), w["W_U"], None, w
    )


def _of_module(model: Decoder) -> DecoderArrays:
    from torch import nn

    def array(x: Tensor | None) -> Any:
        return None if x is None else np.asarray(x.detach().cpu().double().numpy())

    def norm(layer: nn.Module) -> NormArrays | None:
        if not isinstance(layer, nn.LayerNorm):
            return None
        return NormArrays(array(layer.weight), array(layer.bias), layer.eps)

    def block(found: Any) -> BlockArrays:
        heads, mlp = found.attention, found.mlp
        parts = [array(getattr(heads, f"{kind}_{of}")) for kind in "Wb" for of in "QKVO"]
        neurons = None
        if mlp is not None:
            neurons = NeuronArrays(mlp.activation, *map(array, (mlp.W_in, mlp.b_in, mlp.W_out, mlp.b_out)))
        attention = AttentionArrays(heads.n_heads, heads.d_head, *parts)
        return BlockArrays(norm(found.norm_1), attention, norm(found.norm_2), neurons)

    table = array(model.W_pos) if model.pe in ("ape", "sine", "spe") else None
    return DecoderArrays(
        name_of(model.W_E.dtype), model.pe, model.has_bos, model.positions, array(model.W_E), table,
        tuple(block(found) for found in model.blocks), norm(model.norm), array(model.W_U), array(model.b_U),
        {name: array(value) for name, value in model.state_dict().items()},
    )  # fmt: skip
