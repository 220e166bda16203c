"""Which trainer's names the tensors of a checkpoint have, and where a near miss first differs from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.names import near

if TYPE_CHECKING:
    from torch import Tensor

NEAR = 0.5  # of the names that a layout must have, from which a file counts as nearly of it
BLOCK = "{i}"  # stands for the numbers of blocks


@dataclass(frozen=True)
class Layout:
    """The names that every checkpoint of one kind has, those that it may have (all under one that ends in a dot)."""

    name: str
    must: tuple[str, ...]
    may: tuple[str, ...]
    judged_by: str


TASK_FILE = "verify module judges it: in the task file, def model(weights): return "
_MLP = tuple(f"blocks.{{i}}.mlp.{name}" for name in ("W_in", "b_in", "W_out", "b_out"))
_HEADS = tuple(f"blocks.{{i}}.attn.W_{letter}" for letter in "QKVO")
_BIASES = tuple(f"blocks.{{i}}.attn.b_{letter}" for letter in "QKVO")
_NORMS = tuple(f"{norm}.{part}" for norm in ("blocks.{i}.ln1", "blocks.{i}.ln2", "ln_final") for part in "wb")
_GPT2 = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
_GPT2_MUST = ("wte.weight", "wpe.weight", *(f"h.{{i}}.{part}.weight" for part in _GPT2), "ln_f.weight")
_GPT2_MAY = (
    *(f"h.{{i}}.{part}.bias" for part in _GPT2),
    "ln_f.bias",
    "lm_head.weight",
    "h.{i}.attn.bias",
    "h.{i}.attn.masked_bias",
)
_ENCODER = ("self_attn.out_proj", "linear1", "linear2", "norm1", "norm2")

HISTOGRAM = Layout(
    "histogram's",
    ("E", "W_1", "b_1", "W_2", "b_2"),
    ("W_Q", "W_K", "A", "e_BOS"),
    "verify histogram judges it, with --model, --L",
)
DOCUMENT = Layout(
    "the public code's of Counting in Small Transformers",
    ("semantic_emb.weight", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"),
    ("token_mixer.Q", "token_mixer.K", "token_mixer.A", "positional_emb."),
    "verify histogram judges it, with --model, --L",
)
TRANSFORMER_LENS = Layout(
    "TransformerLens'",
    ("embed.W_E", *_HEADS, *_BIASES, "unembed.W_U"),
    ("pos_embed.W_pos", *_MLP, *_NORMS, "unembed.b_U", "blocks.{i}.attn.mask", "blocks.{i}.attn.IGNORE"),
    f'{TASK_FILE}from_transformer_lens(weights, activation="relu"), with the activation that it was trained with',
)
PROGRESS_MEASURES = Layout(
    "progress-measures'",
    ("embed.W_E", "pos_embed.W_pos", *_HEADS, *_MLP, "unembed.W_U"),
    ("blocks.{i}.attn.mask",),
    "verify modular judges it, with --P",
)
NANOGPT = Layout(
    "nanoGPT's", _GPT2_MUST, _GPT2_MAY, f"{TASK_FILE}from_nanogpt(weights, n_heads=4), with the heads that it has"
)
HUGGING_FACE = Layout(
    "Hugging Face GPT-2's",
    _GPT2_MUST,
    _GPT2_MAY,
    f"{TASK_FILE}from_hf_gpt2(weights, n_heads=4), with the heads that it has",
)
ENCODER = Layout(
    "torch's TransformerEncoder's",
    (
        *(f"layers.{{i}}.self_attn.in_proj_{part}" for part in ("weight", "bias")),
        *(f"layers.{{i}}.{name}.{part}" for name in _ENCODER for part in ("weight", "bias")),
    ),
    ("norm.weight", "norm.bias"),
    f"{TASK_FILE}your module, after module.load_state_dict(weights) and module.eval()",
)
LAYOUTS = (HISTOGRAM, DOCUMENT, PROGRESS_MEASURES, TRANSFORMER_LENS, NANOGPT, HUGGING_FACE, ENCODER)
PREFIXES = re.compile(r"^((module|_orig_mod|model|transformer|encoder|transformer_encoder)\.)+")


@dataclass(frozen=True)
class Likeness:
    """How the names of a file compare with those of a layout: what it lacks, and what it has besides."""

    layout: Layout
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    share: float

    @property
    def is_exact(self) -> bool:
        return not self.missing and not self.unknown

    @property
    def differs(self) -> str:
        """The first name that differs, as the end of a sentence."""
        if not self.missing:
            return f"holds {self.unknown[0]}, which such a file has not"
        return f"lacks {self.missing[0]}" + (f" and holds {self.unknown[0]}" if self.unknown else "")

    @property
    def said(self) -> str:
        """What the file is, in a sentence."""
        if self.is_exact:
            return f"Its names are {self.layout.name}: {self.layout.judged_by}."
        return f"Its names are nearly {self.layout.name}, but it {self.differs}."


def likeness(tensors: Mapping[str, Tensor]) -> Likeness | None:
    """The layout whose names come nearest to the file's, None where none comes near.

    >>> import torch
    >>> found = likeness({name: torch.zeros(1) for name in ("E", "W_1", "b_1", "W_2", "b_3", "A")})
    >>> found.layout.name, found.differs
    ("histogram's", 'lacks b_2 and holds b_3')
    """
    named = {PREFIXES.sub("", name): tensor for name, tensor in tensors.items()}
    every = [_compared(layout, named) for layout in LAYOUTS]
    every = [found for found in every if found.share >= NEAR and _fits(found.layout, named)]
    return min(every, key=lambda found: len(found.missing) + len(found.unknown), default=None)


def hint(known: Iterable[str], tensors: Mapping[str, Tensor]) -> str:
    """What a file may be that lacks some of the `known` names, as the end of an error.

    Names that come near are named, or else the layout that the file is of, and what judges it.

    >>> import torch
    >>> hint(["E"], {name: torch.zeros(1) for name in DOCUMENT.must})
    " Its names are the public code's of Counting in Small Transformers: verify histogram judges it, with --model, --L."
    """
    names = set(known)
    found = likeness(tensors)
    is_own = found is None or names.issuperset(found.layout.must) or (found.layout is HISTOGRAM and not found.is_exact)
    if found is None or is_own:
        is_strange = found is None and not names & set(tensors)
        own = " A model of a class of your own is judged by verify module." if is_strange else ""
        return near(names - set(tensors), set(tensors) - names) + own
    return f" {found.said}"


def _compared(layout: Layout, named: Mapping[str, Tensor]) -> Likeness:
    blocks = sorted(
        {int(number) for name in named for number in re.findall(r"^(?:blocks|h|layers)\.(\d{1,4})\.", name)}
    )
    must = [name.replace(BLOCK, str(i)) for name in layout.must for i in (blocks or [0])]
    must = list(dict.fromkeys(must))
    may = {name.replace(BLOCK, str(i)) for name in layout.may for i in (blocks or [0])}
    known = may.union(must)
    beside = layout is ENCODER  # an embedding and a readout of any name lie beside an encoder
    under = tuple(name for name in may if name.endswith("."))
    others = (name for name in named if name not in known and not name.startswith(under))
    unknown = tuple(name for name in others if not beside or name.startswith("layers."))
    missing = tuple(name for name in must if name not in named)
    return Likeness(layout, missing, unknown, 1 - len(missing) / len(must))


def _fits(layout: Layout, named: Mapping[str, Tensor]) -> bool:
    """Whether shapes speak for this layout, of two that share all names: matrices are (out, in), or (in, out)."""
    matrix = named.get("h.0.attn.c_attn.weight")
    if layout not in (NANOGPT, HUGGING_FACE) or matrix is None or matrix.dim() != 2:
        return True
    rows, columns = matrix.shape
    return (rows > columns) == (layout is NANOGPT)
