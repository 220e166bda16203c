"""Checkpoints of other layouts as the reference decoder: each tensor once, turned as ours is, nothing guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import signature

import torch
from torch import Tensor

from constructions import layouts
from constructions.decoder_model import Decoder, block_of
from constructions.errors import BadInput
from constructions.layouts import likeness

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Names:
    """A state dict whose tensors are taken out one by one, so that what is left over is known."""

    def __init__(self, weights: Mapping[str, Tensor], layout: str, prefixes: Iterable[str] = ()) -> None:
        self.layout, self.left = layout, {}
        self.dtype: torch.dtype | None = None
        for name, value in weights.items():
            short = str(name)
            for prefix in ("_orig_mod.", "module.", *prefixes):
                short = short.removeprefix(prefix)
            if not isinstance(value, Tensor):
                raise BadInput(f"weights: {name} is no tensor. Give a state dict, as model.state_dict() makes it.")
            self.left[short] = value
        self.taken: list[str] = []

    def take(self, name: str, *shape: int | None) -> Tensor:
        """The tensor of that name; None in `shape` allows any size."""
        if name not in self.left:
            raise BadInput(f"weights: {name} is missing; a {self.layout} checkpoint has it. Is it of another layout?")
        value = self.left.pop(name)
        fits = value.ndim == len(shape) and all(s in (None, n) for s, n in zip(shape, value.shape, strict=True))
        if not fits or not value.numel():
            wanted = ", ".join("any" if s is None else str(s) for s in shape)
            raise BadInput(f"weights: {name} has shape {tuple(value.shape)}, where {self.layout} has ({wanted})")
        if value.dtype not in FLOATS:
            raise BadInput(f"weights: {name} is {value.dtype}, must be a floating point tensor")
        if value.dtype != (self.dtype or value.dtype):
            raise BadInput(f"weights: {name} is {value.dtype}, others are {self.dtype}; all must have one dtype")
        self.dtype = value.dtype
        if not bool(torch.isfinite(value).all()):
            raise BadInput(f"weights: {name} has an infinite or NaN entry; nothing can be proved about it")
        return value.detach()

    def take_or_zero(self, name: str, size: int, like: Tensor) -> Tensor:
        return self.take(name, size) if name in self.left else like.new_zeros(size)

    def layers(self, pattern: str) -> int:
        """How many blocks there are, numbered from 0 without a gap."""
        found = {int(m.group(1)) for name in self.left if (m := re.match(pattern, name))}
        if not found or found != set(range(len(found))):
            raise BadInput(
                f"weights: blocks {sorted(found)} are not 0, 1, 2, ...; a {self.layout} checkpoint numbers them so"
            )
        return len(found)

    def masks(self, pattern: str) -> None:
        """Sets stored causal masks aside, and refuses any other mask."""
        for name in [name for name in self.left if re.fullmatch(pattern, name)]:
            mask = self.left.pop(name)
            square = mask.reshape(mask.shape[-2:]) if mask.ndim >= 2 and mask.numel() else mask
            if square.ndim != 2 or not torch.equal(square.bool(), torch.ones_like(square).tril().bool()):
                raise BadInput(f"weights: {name} is no causal mask, and the reference decoder is causal")
            self.taken.append(name)

    def ignore(self, pattern: str) -> None:
        """Sets names aside that say nothing about what the model computes."""
        for name in [name for name in self.left if re.fullmatch(pattern, name)]:
            del self.left[name]
            self.taken.append(name)

    def finish(self, shaped: Callable[..., Decoder], parts: Mapping[str, Tensor]) -> Decoder:
        """The model with these tensors, which say its sizes; `shaped` says the rest. Unknown names are refused, unused
        ones kept in `model.unused`.
        """
        if self.left:
            names = ", ".join(sorted(self.left)[:5])
            raise BadInput(f"weights: {names}: not part of a {self.layout} checkpoint that this loader knows")
        (vocabulary, d), (_, classes) = parts["W_E"].shape, parts["W_U"].shape
        model = shaped(
            vocabulary=vocabulary, d=d, classes=classes, positions=len(parts["W_pos"]), dtype=parts["W_E"].dtype
        )
        own = model.state_dict()
        assert set(own) == set(parts), set(own) ^ set(parts)
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(parts[name])
        model.unused = tuple(sorted(self.taken))
        return model.eval()


def from_checkpoint(
    weights: Mapping[str, Tensor],
    *,
    n_heads: int | None = None,
    activation: str | None = None,
    normalization: str | None = None,
) -> Decoder:
    """A decoder with the weights of a checkpoint whose layout its names show, and what they do not show.

    nanoGPT and Hugging Face GPT-2 ask for `n_heads`, TransformerLens for `activation`, as their own loaders say.
    Raises: BadInput for names of no such layout, with the first that differs, and an option that it has not or needs.

    >>> from_checkpoint({"tok.weight": torch.zeros(3, 2)})
    Traceback (most recent call last):
    constructions.errors.BadInput: weights: their names are of no layout that is read here.
    """
    found = likeness(weights)
    load = None if found is None or not found.is_exact else LOADERS.get(found.layout.name)
    if load is None:
        said = "their names are of no layout that is read here." if found is None else found.said
        raise BadInput(f"weights: {said}")
    given = {"n_heads": n_heads, "activation": activation, "normalization": normalization}
    options = {name: value for name, value in given.items() if value is not None}
    takes = signature(load).parameters
    for name, value in options.items():
        if name not in takes:
            raise BadInput(f"{name}={value!r}: {load.__name__} takes no such option. Leave it out.")
    if "n_heads" in takes and n_heads is None:
        raise BadInput("n_heads=None: the file does not say it. Name it, as in n_heads=4.")
    return load(weights, **options)


def heads_first(W: Tensor) -> Tensor:
    """(n_heads, d, d_head) as (d, n_heads d_head).

    >>> heads_first(torch.zeros(4, 16, 3)).shape
    torch.Size([16, 12])
    """
    return W.permute(1, 0, 2).flatten(1)


def from_progress_measures(weights: Mapping[str, Tensor], *, activation: str = "relu") -> Decoder:
    """A decoder with the weights of Nanda et al.'s modular addition: no LayerNorm, no attention biases.

    Their mask subtracts 10^10 from the future's scores, ours leaves the future out: in every float dtype the same.
    Shapes: embed.W_E (d, V); pos_embed.W_pos (n, d); blocks.i.attn.W_Q, W_K, W_V (n_heads, d_head, d), W_O (d, d);
        blocks.i.mlp.W_in (d_mlp, d), b_in, W_out (d, d_mlp), b_out; unembed.W_U (d, classes).
    Raises: BadInput for missing, unknown, misshapen or non-finite tensors.
    """
    names = Names(weights, "progress-measures")
    W_E = names.take("embed.W_E", None, None)
    d = len(W_E)
    W_pos = names.take("pos_embed.W_pos", None, d)
    W_U = names.take("unembed.W_U", d, None)
    parts = {"W_E": W_E.T, "W_pos": W_pos, "W_U": W_U}
    n_layers, n_heads, d_head, d_mlp = names.layers(r"blocks\.(\d+)\."), None, None, None
    for i in range(n_layers):
        theirs, ours = f"blocks.{i}.", f"blocks.{i}."
        for W in ("W_Q", "W_K", "W_V"):
            value = names.take(f"{theirs}attn.{W}", n_heads, d_head, d)
            n_heads, d_head = value.shape[:2]
            parts[f"{ours}attention.{W}"] = heads_first(value.permute(0, 2, 1))
        assert n_heads is not None and d_head is not None
        parts[f"{ours}attention.W_O"] = names.take(f"{theirs}attn.W_O", d, n_heads * d_head).T
        W_in = names.take(f"{theirs}mlp.W_in", d_mlp, d)
        d_mlp = W_in.shape[0]
        parts[f"{ours}mlp.W_in"], parts[f"{ours}mlp.b_in"] = W_in.T, names.take(f"{theirs}mlp.b_in", d_mlp)
        parts[f"{ours}mlp.W_out"] = names.take(f"{theirs}mlp.W_out", d, d_mlp).T
        parts[f"{ours}mlp.b_out"] = names.take(f"{theirs}mlp.b_out", d)
    names.masks(r"blocks\.\d+\.attn\.mask")
    shaped = partial(
        Decoder,
        n_heads=n_heads or 1,
        n_layers=n_layers,
        d_mlp=d_mlp,
        d_head=d_head,
        activation=activation,
        layernorm=False,
        attention_bias=False,
    )
    return names.finish(shaped, parts)


def to_progress_measures(model: Decoder) -> dict[str, Tensor]:
    """The tensors of a decoder under the names and in the shapes of that layout, which has neither norms nor d_mlp = 0.

    >>> one = {"vocabulary": 4, "d": 6, "n_heads": 2, "layernorm": False, "attention_bias": False}
    >>> weights = to_progress_measures(Decoder(n_layers=1, **one))
    >>> weights["blocks.0.attn.W_Q"].shape, from_progress_measures(weights).W_E.shape
    (torch.Size([2, 3, 6]), torch.Size([4, 6]))
    """
    own = {name: value.detach() for name, value in model.state_dict().items()}
    d = own["W_E"].shape[1]
    out = {"embed.W_E": own["W_E"].T, "pos_embed.W_pos": own["W_pos"], "unembed.W_U": own["W_U"]}
    for i in range(len(model.blocks)):
        theirs, heads = f"blocks.{i}.", block_of(model, i).attention.n_heads
        for W in ("W_Q", "W_K", "W_V"):
            out[f"{theirs}attn.{W}"] = own[f"{theirs}attention.{W}"].reshape(d, heads, -1).permute(1, 2, 0)
        out[f"{theirs}attn.W_O"] = own[f"{theirs}attention.W_O"].T
        out |= {f"{theirs}mlp.{W}": own[f"{theirs}mlp.{W}"].T for W in ("W_in", "W_out")}
        out |= {f"{theirs}mlp.{b}": own[f"{theirs}mlp.{b}"] for b in ("b_in", "b_out")}
    return {name: value.contiguous() for name, value in out.items()}


def from_transformer_lens(
    weights: Mapping[str, Tensor],
    *,
    activation: str | None = None,
    normalization: str | None = None,
    eps: float = 1e-5,
) -> Decoder:
    """A decoder with the weights of a TransformerLens model with a learned position table.

    The file does not say which activation it was trained with, nor, once LayerNorm is folded into the weights, that
    there is one: name them. `normalization` is "LN", "LNPre" (folded) or "none".
    Shapes: embed.W_E (V, d); pos_embed.W_pos (n, d); blocks.i.attn.W_Q, W_K, W_V (n_heads, d, d_head), b_Q, b_K, b_V
        (n_heads, d_head), W_O (n_heads, d_head, d), b_O (d,); blocks.i.mlp.W_in (d, d_mlp), W_out (d_mlp, d);
        unembed.W_U (d, classes), b_U (classes,).
    Raises: BadInput for missing, unknown, misshapen or non-finite tensors, or where a name above is needed.
    """
    names = Names(weights, "TransformerLens")
    has_norms, has_mlp = "blocks.0.ln1.w" in names.left, "blocks.0.mlp.W_in" in names.left
    normalization = "LN" if has_norms and normalization is None else normalization
    if normalization not in ("LN", "LNPre", "none") or (normalization == "LN") != has_norms:
        raise BadInput(
            f"normalization={normalization!r}: the file has {'' if has_norms else 'no '}LayerNorm weights; "
            + ("leave it out" if has_norms else "say 'LNPre' if they were folded, 'none' if the model has no LayerNorm")
        )
    if has_mlp and activation is None:
        raise BadInput("activation=None: a TransformerLens file does not name it; say 'relu', 'gelu' or 'gelu_tanh'")
    W_E = names.take("embed.W_E", None, None)
    d = W_E.shape[1]
    W_pos = names.take("pos_embed.W_pos", None, d)
    W_U = names.take("unembed.W_U", d, None)
    parts = {"W_E": W_E, "W_pos": W_pos, "W_U": W_U}
    parts["b_U"] = names.take_or_zero("unembed.b_U", W_U.shape[1], W_U)
    n_layers, n_heads, d_head, d_mlp = names.layers(r"blocks\.(\d+)\."), None, None, None
    for i in range(n_layers):
        ours = theirs = f"blocks.{i}."
        for letter in "QKV":
            value = names.take(f"{theirs}attn.W_{letter}", n_heads, d, d_head)
            n_heads, _, d_head = value.shape
            parts[f"{ours}attention.W_{letter}"] = heads_first(value)
            parts[f"{ours}attention.b_{letter}"] = names.take(f"{theirs}attn.b_{letter}", n_heads, d_head).flatten()
        parts[f"{ours}attention.W_O"] = names.take(f"{theirs}attn.W_O", n_heads, d_head, d).flatten(0, 1)
        parts[f"{ours}attention.b_O"] = names.take(f"{theirs}attn.b_O", d)
        if has_mlp:
            W_in = names.take(f"{theirs}mlp.W_in", d, d_mlp)
            d_mlp = W_in.shape[1]
            parts[f"{ours}mlp.W_in"], parts[f"{ours}mlp.b_in"] = W_in, names.take(f"{theirs}mlp.b_in", d_mlp)
            parts[f"{ours}mlp.W_out"] = names.take(f"{theirs}mlp.W_out", d_mlp, d)
            parts[f"{ours}mlp.b_out"] = names.take(f"{theirs}mlp.b_out", d)
        for ln, norm in (("ln1", "norm_1"), ("ln2", "norm_2"))[: 1 + has_mlp]:
            parts |= norm_parts(names, normalization, f"{theirs}{ln}", f"{ours}{norm}", d, W_E)
    parts |= norm_parts(names, normalization, "ln_final", "norm", d, W_E)
    names.masks(r"blocks\.\d+\.attn\.mask")
    names.ignore(r"blocks\.\d+\.attn\.IGNORE")
    shaped = partial(
        Decoder,
        n_heads=n_heads or 1,
        n_layers=n_layers,
        d_mlp=d_mlp or 0,
        d_head=d_head,
        activation=activation or "relu",
        layernorm=normalization != "none",
        eps=eps,
        unembedding_bias=True,
    )
    return names.finish(shaped, parts)


def norm_parts(names: Names, kind: str, theirs: str, ours: str, d: int, like: Tensor) -> dict[str, Tensor]:
    """Weight and bias of one LayerNorm: those of the file, one and zero where they are folded, none without any."""
    if kind == "none":
        return {}
    if kind == "LNPre":
        return {f"{ours}.weight": like.new_ones(d), f"{ours}.bias": like.new_zeros(d)}
    return {f"{ours}.weight": names.take(f"{theirs}.w", d), f"{ours}.bias": names.take(f"{theirs}.b", d)}


def from_nanogpt(weights: Mapping[str, Tensor], *, n_heads: int, activation: str = "gelu") -> Decoder:
    """A decoder with the weights of a nanoGPT checkpoint, whose matrices are (out, in).

    Shapes: transformer.wte.weight (V, d); wpe.weight (n, d); h.i.attn.c_attn.weight (3 d, d), c_proj.weight (d, d);
        h.i.mlp.c_fc.weight (d_mlp, d), c_proj.weight (d, d_mlp); lm_head.weight (V, d).
    Raises: BadInput for missing, unknown, misshapen or non-finite tensors, or n_heads that do not divide d.
    """
    return _gpt2(Names(weights, "nanoGPT", ["transformer."]), n_heads, activation, is_out_in=True)


def from_hf_gpt2(weights: Mapping[str, Tensor], *, n_heads: int, activation: str = "gelu_tanh") -> Decoder:
    """A decoder with the weights of a GPT-2 of Hugging Face transformers, whose matrices are (in, out).

    The unembedding is wte where the file has no lm_head of its own (tied weights).
    Shapes: as `from_nanogpt`, with c_attn, c_proj and c_fc transposed.
    Raises: BadInput for missing, unknown, misshapen or non-finite tensors, or n_heads that do not divide d.
    """
    return _gpt2(Names(weights, "Hugging Face GPT-2", ["transformer."]), n_heads, activation, is_out_in=False)


def _gpt2(names: Names, n_heads: int, activation: str, *, is_out_in: bool) -> Decoder:
    W_E = names.take("wte.weight", None, None)
    d = W_E.shape[1]
    if n_heads < 1 or d % n_heads:
        raise BadInput(f"n_heads={n_heads}: must divide d={d}; the file does not say how many heads there are")
    W_pos = names.take("wpe.weight", None, d)
    W_U = names.take("lm_head.weight", None, d) if "lm_head.weight" in names.left else W_E
    parts = {"W_E": W_E, "W_pos": W_pos, "W_U": W_U.T}

    def matrix(name: str, rows: int | None, columns: int | None) -> Tensor:
        return names.take(name, columns, rows).T if is_out_in else names.take(name, rows, columns)

    def norm(theirs: str, ours: str) -> None:
        parts[f"{ours}.weight"] = names.take(f"{theirs}.weight", d)
        parts[f"{ours}.bias"] = names.take_or_zero(f"{theirs}.bias", d, W_E)

    n_layers, d_mlp = names.layers(r"h\.(\d+)\."), None
    names.masks(r"h\.\d+\.attn\.bias")
    names.ignore(r"h\.\d+\.attn\.masked_bias")
    for i in range(n_layers):
        theirs, ours = f"h.{i}.", f"blocks.{i}."
        norm(f"{theirs}ln_1", f"{ours}norm_1")
        norm(f"{theirs}ln_2", f"{ours}norm_2")
        W, b = matrix(f"{theirs}attn.c_attn.weight", d, 3 * d), f"{theirs}attn.c_attn.bias"
        biases = names.take_or_zero(b, 3 * d, W_E).chunk(3)
        for letter, part, bias in zip("QKV", W.chunk(3, dim=1), biases, strict=True):
            parts[f"{ours}attention.W_{letter}"], parts[f"{ours}attention.b_{letter}"] = part, bias
        parts[f"{ours}attention.W_O"] = matrix(f"{theirs}attn.c_proj.weight", d, d)
        parts[f"{ours}attention.b_O"] = names.take_or_zero(f"{theirs}attn.c_proj.bias", d, W_E)
        W_in = matrix(f"{theirs}mlp.c_fc.weight", d, d_mlp)
        d_mlp = W_in.shape[1]
        parts[f"{ours}mlp.W_in"] = W_in
        parts[f"{ours}mlp.b_in"] = names.take_or_zero(f"{theirs}mlp.c_fc.bias", d_mlp, W_E)
        parts[f"{ours}mlp.W_out"] = matrix(f"{theirs}mlp.c_proj.weight", d_mlp, d)
        parts[f"{ours}mlp.b_out"] = names.take_or_zero(f"{theirs}mlp.c_proj.bias", d, W_E)
    norm("ln_f", "norm")
    shaped = partial(
        Decoder,
        n_heads=n_heads,
        n_layers=n_layers,
        d_mlp=d_mlp,
        activation=activation,
    )
    return names.finish(shaped, parts)


LOADERS: dict[str, Callable[..., Decoder]] = {
    layouts.PROGRESS_MEASURES.name: from_progress_measures,
    layouts.TRANSFORMER_LENS.name: from_transformer_lens,
    layouts.NANOGPT.name: from_nanogpt,
    layouts.HUGGING_FACE.name: from_hf_gpt2,
}
