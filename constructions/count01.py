"""Count01: a causal, attention-only decoder that says whether a string has more 1s than 0s, then stops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from constructions import count01_arrays
from constructions.count01_arrays import BOS as BOS
from constructions.count01_arrays import EOS as EOS
from constructions.count01_arrays import EQUALS as EQUALS
from constructions.count01_arrays import FIVE as FIVE
from constructions.count01_arrays import FOUR as FOUR
from constructions.count01_arrays import LABELS as LABELS
from constructions.count01_arrays import NORM_EPSILON
from constructions.count01_arrays import ONE as ONE
from constructions.count01_arrays import TOKENS as TOKENS
from constructions.count01_arrays import TWO as TWO
from constructions.count01_arrays import ZERO as ZERO
from constructions.count01_arrays import check_labels as check_labels
from constructions.errors import BadInput
from constructions.files import naming, read_tensors
from constructions.layouts import hint
from constructions.model_arrays import name_of
from constructions.written_files import write_whole

MARKS = ("E", "embed.W_E")  # one of which every layout that is read has, torch's own apart
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Count01Transformer(nn.Module):
    """One layer of causal softmax attention without positions, an optional skip connection, a linear readout.

    Claim: D, Sec. 4 and App. A; E, Sec. 5.3. A zero model; the builders fill in the weights. Scores are divided
    by sqrt(scale), 1 in the documents. With `norm` the attention reads layer_norm(x), the skip connection x
    itself (D, Sec. 4: "with or without layer norm").
    Shapes: E (8, d); W_Q, W_K, W_V (heads, d, d_h); W_O (heads, d_h, d); W_out (d, classes);
        b_out (classes,); skip () bool; with norm: norm_weight, norm_bias (d,), norm_eps () float64.
    Raises: BadInput for a size below one or fewer classes than tokens.

    >>> Count01Transformer(d=4, heads=2, d_h=2)(torch.tensor([[BOS, ONE, EQUALS]])).shape
    torch.Size([1, 3, 8])
    """

    skip: Tensor
    norm_eps: Tensor

    def __init__(
        self,
        *,
        d: int = 1,
        heads: int = 1,
        d_h: int = 1,
        classes: int = len(TOKENS),
        skip: bool = True,
        norm: bool = False,
        scale: int = 1,
        norm_eps: float = NORM_EPSILON,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("scale", scale, 1),
            ("d", d, 1),
            ("heads", heads, 1),
            ("d_h", d_h, 1),
            ("classes", classes, 8),
        ):
            if value < least:
                raise BadInput(f"{name}={value}: must be at least {least}")

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)

        self.E = zeros(len(TOKENS), d)
        self.W_Q, self.W_K, self.W_V = zeros(heads, d, d_h), zeros(heads, d, d_h), zeros(heads, d, d_h)
        self.W_O = zeros(heads, d_h, d)
        self.W_out, self.b_out = zeros(d, classes), zeros(classes)
        self.register_buffer("skip", torch.tensor(skip))
        self.scale, self.has_norm = scale, norm
        if scale != 1:  # files of models without it stay as they are
            self.register_buffer("score_divisor", torch.tensor(scale))
        if norm:
            self.norm_weight, self.norm_bias = zeros(d), zeros(d)
            self.register_buffer("norm_eps", torch.tensor(norm_eps, dtype=torch.float64))

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    @property
    def heads(self) -> int:
        return self.W_Q.shape[0]

    @property
    def has_skip(self) -> bool:
        return bool(self.skip)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., n, classes) for the token after every position of tokens (..., n)."""
        n = tokens.shape[-1]
        future = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.E[tokens]
        seen = self.normed(x)
        return self.readout(x, self.attend(seen, seen, future))

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Logits (..., classes) for the token after the last one: one query, so linear in the length."""
        x = self.E[tokens]
        seen = self.normed(x)
        return self.readout(x[..., -1:, :], self.attend(seen[..., -1:, :], seen, None))[..., 0, :]

    def normed(self, x: Tensor) -> Tensor:
        """What the attention reads: x, or its layer norm."""
        if not self.has_norm:
            return x
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias, float(self.norm_eps))

    def logits_at_counts(self, counts: Tensor, last: int) -> Tensor:
        """Logits (..., classes) after the token `last` of any string with these token counts (..., 8).

        One attention weight per token kind, times its count: for strings too long to write down.
        """
        return self.readout(self.E[last], torch.einsum("...he,hed->...d", self.mixed_at_counts(counts, last), self.W_O))

    def mixed_at_counts(self, counts: Tensor, last: int) -> Tensor:
        """What each head reads after the token `last` of a string with these counts: (..., heads, d_h)."""
        seen, counts = self.normed(self.E), counts.to(self.dtype)
        q = torch.einsum("d,hde->he", seen[last], self.W_Q)
        k, v = torch.einsum("td,hde->hte", seen, self.W_K), torch.einsum("td,hde->hte", seen, self.W_V)
        scores = self.scaled(torch.einsum("he,hte->ht", q, k))
        present = (counts > 0).unsqueeze(-2)
        scores = scores.masked_fill(~present, -torch.inf)
        weights = counts.unsqueeze(-2) * (scores - scores.amax(-1, keepdim=True)).exp()
        return torch.einsum("...ht,hte->...he", weights / weights.sum(-1, keepdim=True), v)

    def attend(self, queries: Tensor, context: Tensor, hidden: Tensor | None) -> Tensor:
        """The heads' outputs, summed: (..., queries, d)."""
        q = torch.einsum("...qd,hde->...hqe", queries, self.W_Q)
        k = torch.einsum("...nd,hde->...hne", context, self.W_K)
        v = torch.einsum("...nd,hde->...hne", context, self.W_V)
        scores = self.scaled(q @ k.transpose(-2, -1))
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        mixed = torch.softmax(scores, dim=-1) @ v
        return torch.einsum("...hqe,hed->...qd", mixed, self.W_O)

    def scaled(self, scores: Tensor) -> Tensor:
        """The scores over sqrt(scale)."""
        return scores if self.scale == 1 else scores / math.sqrt(self.scale)

    def readout(self, x: Tensor, attended: Tensor) -> Tensor:
        """Logits from the residual stream, or from the attention alone without the skip connection."""
        stream = x + attended if self.has_skip else attended
        return stream @ self.W_out + self.b_out

    def generate(self, prompt: list[int], limit: int = 4) -> list[tuple[int, list[float]]]:
        """Greedy continuation up to EOS: each new token with its logits.

        >>> [TOKENS[t] for t, _ in uniform().generate([BOS, ZERO, ONE, ONE, TWO, EQUALS])]
        ['4', 'EOS']
        """
        tokens = list(prompt)
        out: list[tuple[int, list[float]]] = []
        while len(out) < limit:
            logits = self.next_logits(torch.tensor(tokens))
            token = int(logits.argmax())
            out.append((token, logits.double().tolist()))
            if token == EOS or token >= len(TOKENS):
                break
            tokens.append(token)
        return out

    def extra_repr(self) -> str:
        d, d_h = self.W_O.shape[2], self.W_O.shape[1]
        return f"d={d}, heads={self.heads}, d_h={d_h}, skip={self.has_skip}, dtype={self.dtype}"


def documents(
    N: int,
    *,
    labels: str = "majority-ones",
    skip: bool = True,
    eps: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> Count01Transformer:
    """The documents' minimal transformer: "=" weighs a 1 e times a 0, and y is compared with a.

    Claim: D, App. A; E, Sec. 5.3; constructions.count01_arrays.documents says what departs, and why it is right.
    Shapes: d = d_h = heads = 1.
    Raises: BadInput for N < 1, unknown labels, or N^2 beyond the dtype.

    >>> float(documents(10).b_out[FOUR])  # -(a + 1)
    -11.731058578630005
    """
    return count01_arrays.documents(N, labels=labels, skip=skip, eps=eps, dtype=name_of(dtype)).made(Count01Transformer)


def as_printed(
    N: int, *, eps: float = 0.0, aligned: bool = False, dtype: torch.dtype = torch.float64
) -> Count01Transformer:
    """The readout exactly as both documents print it: nine entries for eight tokens.

    Claim: D, App. A; E, Sec. 5.3; constructions.count01_arrays.as_printed says what departs, and why it is right.
    Shapes: classes = 9, or 8 when aligned.
    Raises: BadInput as `documents`.

    >>> as_printed(10).W_out.tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0, 4.0]]
    """
    return count01_arrays.as_printed(N, eps=eps, aligned=aligned, dtype=name_of(dtype)).made(Count01Transformer)


def uniform(
    *, labels: str = "majority-ones", skip: bool = True, dtype: torch.dtype = torch.float64
) -> Count01Transformer:
    """Uniform attention: "=" has embedding 0, so y = (n1 - n0 - 1/2) / (n0 + n1 + n2 + 2) has the right sign.

    Claim: W-10 (ours); constructions.count01_arrays.uniform says what departs, and why it is right.
    Shapes: d = d_h = heads = 1.
    Raises: BadInput for unknown labels; ProvedImpossible without the skip connection.

    >>> uniform().next_logits(torch.tensor([BOS, ZERO, TWO, ONE, EQUALS])).argmax().item() == FIVE
    True
    """
    return count01_arrays.uniform(labels=labels, skip=skip, dtype=name_of(dtype)).made(Count01Transformer)


def normed(*, labels: str = "majority-ones", dtype: torch.dtype = torch.float64) -> Count01Transformer:
    """Uniform attention behind LayerNorm: 1s and 0s are read as 33 and -33, BOS as -16, 2 and "=" as 0.

    Claim: D-2 (ours); constructions.count01_arrays.normed says what departs, and why it is right.
    Shapes: d = 4, d_h = heads = 1; norm_weight 1, norm_bias 0, norm_eps 1e-5.
    Raises: BadInput for unknown labels.

    >>> normed().next_logits(torch.tensor([BOS, ZERO, TWO, ONE, EQUALS])).argmax().item() == FIVE
    True
    """
    return count01_arrays.normed(labels=labels, dtype=name_of(dtype)).made(Count01Transformer)


def from_state_dict(weights: Mapping[str, Tensor], skip: bool | None = None) -> Count01Transformer:
    """A model of whatever width and number of heads the tensors have; `skip` overrides the stored flag.

    Other trainers' names are known too (constructions/count01_layouts.py).
    Raises: BadInput for a missing, unknown, misshapen, non-float or non-finite tensor.

    >>> from_state_dict(uniform().state_dict()).heads
    1
    """
    from constructions.count01_layouts import translated

    weights = translated(weights)
    has_norm = "norm_weight" in weights or "norm_bias" in weights
    names: tuple[str, ...] = ("E", "W_Q", "W_K", "W_V", "W_O", "W_out", "b_out")
    names += ("norm_weight", "norm_bias") if has_norm else ()
    for name in names:
        if not isinstance(weights.get(name), Tensor):
            said = hint(names, weights)
            raise BadInput(f"weights: {name} is missing; a Count01 file has {', '.join(names)} and skip.{said}")
        if not weights[name].dtype.is_floating_point or weights[name].dtype != weights["E"].dtype:
            raise BadInput(
                f"weights: {name} is {weights[name].dtype}, E is {weights['E'].dtype}; "
                "all must be one floating point dtype"
            )
        if not bool(torch.isfinite(weights[name].double()).all()):
            raise BadInput(f"weights: {name} has an infinite or NaN entry; nothing can be proved about it")
    flags = {"skip", "score_divisor", *(["norm_eps"] if has_norm else [])}
    unknown = sorted(set(weights) - {*names, *flags})
    if unknown:
        raise BadInput(f"weights: {unknown[0]} is not part of this model, which has {', '.join(names)}, skip")
    if weights["E"].dtype not in DTYPES.values():
        raise BadInput(f"weights: dtype {weights['E'].dtype} must be one of {', '.join(DTYPES)}")
    if weights["W_Q"].ndim != 3 or weights["W_out"].ndim != 2:
        raise BadInput("weights: W_Q must be (heads, d, d_h) and W_out (d, classes)")
    heads, d, d_h = weights["W_Q"].shape
    if min(heads, d, d_h) < 1:
        raise BadInput(f"weights: W_Q has shape {(heads, d, d_h)}; every size must be at least 1")
    stored = weights.get("skip")
    if stored is not None and (not isinstance(stored, Tensor) or stored.numel() != 1 or stored.item() not in (0, 1)):
        raise BadInput("weights: skip must be one boolean")
    has_skip = skip if skip is not None else True if stored is None else bool(stored)
    model = Count01Transformer(
        d=d,
        heads=heads,
        d_h=d_h,
        classes=weights["W_out"].shape[1],
        skip=has_skip,
        norm=has_norm,
        scale=stored_scale(weights),
        norm_eps=stored_epsilon(weights) if has_norm else NORM_EPSILON,
        dtype=weights["E"].dtype,
    )
    for name in names:
        expected = tuple(getattr(model, name).shape)
        if tuple(weights[name].shape) != expected:
            raise BadInput(f"weights: {name} has shape {tuple(weights[name].shape)}, W_Q and W_out ask {expected}")
    model.load_state_dict({**model.state_dict(), **{n: weights[n] for n in names}})
    return model


def stored_scale(weights: Mapping[str, Tensor]) -> int:
    """The integer under the root that divides the scores; 1 where none is stored.

    >>> stored_scale({"score_divisor": torch.tensor(8)}), stored_scale({})
    (8, 1)
    """
    stored = weights.get("score_divisor")
    if stored is None:
        return 1
    if not isinstance(stored, Tensor) or stored.numel() != 1 or stored.is_floating_point() or int(stored) < 1:
        raise BadInput("weights: score_divisor must be one integer of at least 1; scores are divided by its root")
    return int(stored)


def stored_epsilon(weights: Mapping[str, Tensor]) -> float:
    """The layer norm's epsilon; 1e-5, torch's own, where none is stored.

    >>> stored_epsilon({"norm_eps": torch.tensor(0.0)}), stored_epsilon({})
    (0.0, 1e-05)
    """
    stored = weights.get("norm_eps")
    if stored is None:
        return NORM_EPSILON
    if not isinstance(stored, Tensor) or stored.numel() != 1 or not 0 <= float(stored) < 1:
        raise BadInput("weights: norm_eps must be one number from 0 to below 1")
    return float(stored)


def with_heads(model: Count01Transformer, heads: Sequence[int]) -> Count01Transformer:
    """The model with these heads alone, in this order: all others are zeroed, biases and the residual stay.

    Raises: BadInput for a head that is not there, is named twice, or for none.

    >>> with_heads(uniform(), [0]).heads
    1
    """
    if not heads or len(set(heads)) != len(heads) or not all(0 <= h < model.heads for h in heads):
        named = ",".join(map(str, heads))
        raise BadInput(f"heads={named}: must be different heads of 0 to {model.heads - 1}, at least one")
    weights = dict(model.state_dict())
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        weights[name] = weights[name][list(heads)]
    return from_state_dict(weights)


def load(path: str, skip: bool | None = None) -> Count01Transformer:
    """A model from a .safetensors file or a .pt state_dict (read without running code).

    Raises: BadInput when the file cannot be read or is no Count01 model.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(documents(5), f"{folder}/model.safetensors")
    ...     load(f"{folder}/model.safetensors").heads
    1
    """
    with naming(path):
        return from_state_dict(read_tensors(path, "weightproof.count01", MARKS)[0], skip)


def save(model: Count01Transformer, path: str) -> None:
    """Writes the state_dict as safetensors; the file appears whole or not at all.

    Raises: BadInput when the folder does not exist or cannot be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(documents(5), f"{folder}/model.safetensors")
    ...     os.listdir(folder)
    ['model.safetensors']
    """
    write_whole(path, as_bytes(model))


def as_bytes(model: Count01Transformer) -> bytes:
    """The safetensors file that `save` writes.

    >>> as_bytes(documents(5)) == as_bytes(documents(5))
    True
    """
    from safetensors.torch import save as to_bytes

    return to_bytes({n: t.detach().contiguous() for n, t in model.state_dict().items()})
