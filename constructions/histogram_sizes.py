"""Which histogram models there are, and sizes that make sense; nothing here loads torch."""

from __future__ import annotations

from constructions.errors import BadInput, shown

LONGEST = 1 << 15  # L counts against L classes: 2^30 comparisons
MOST_PARAMETERS = 1 << 28  # 2 GiB in float64; a proof needs a few times that
MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")
# What carries the code: lin+sftm mixes like lin with A = 0, and bos with a zero BOS embedding is dot.
CARRIER = {"lin": "lin", "lin+sftm": "lin", "dot": "dot", "bos": "dot", "dot+sftm": "dot+sftm"}


def check_sizes(model: str, *, T: int, L: int, d: int, p: int) -> None:
    """Raises BadInput when the model is unknown or a size makes no sense."""
    if model not in MODELS:
        raise BadInput(f"model={model!r}: must be one of {', '.join(MODELS)}")
    for name, value, least, why in (
        ("T", T, 2, "counting needs at least two different tokens"),
        ("L", L, 1, "a sequence has at least one token"),
        ("d", d, 1, "an embedding has at least one dimension"),
        ("p", p, 1, "the feed-forward layer has at least one neuron"),
    ):
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadInput(f"{name}={shown(value)}: must be an integer")
        if value < least:
            raise BadInput(f"{name}={shown(value)}: must be at least {least} ({why})")
    if L > LONGEST:
        raise BadInput(
            f"L={shown(L)}: at most {LONGEST} (every count is compared with every other). Use a smaller --L."
        )


def check_memory(parameters: int) -> None:
    """Raises BadInput for a model that would not fit into an ordinary machine's memory."""
    if parameters > MOST_PARAMETERS:
        raise BadInput(
            f"T, L, d, p: these sizes mean {shown(parameters)} parameters, and at most {MOST_PARAMETERS} are built. "
            "Choose smaller ones."
        )
