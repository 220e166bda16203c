"""What no Count01 head can do: the argument of W-9, that one head needs the skip connection, with checks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from constructions.count01 import Count01Transformer, documents
from verify.frame.impossibility import Impossibility, seeds
from verify.tasks.count01.real import exact_model, holds
from verify.tasks.count01.task import PromptDomain

MODELS = 24  # random ones
FAR_OUT = 10**12
LABELS = ("majority-ones", "thesis")


def no_skip(seed: int = 0) -> Impossibility:
    """W-9: without the skip connection no single head of any width is right for all n0 and n1.

    Claim: W-9 (ours; docs/count01.md).
    """
    random_ones = [_random_head(own) for own in seeds(seed, MODELS)]
    built = [documents(5, labels=labels, skip=False) for labels in LABELS]
    right = sum(_is_right_everywhere(model, labels) for model in random_ones + built for labels in LABELS)
    is_right_far_out = holds(exact_model(documents(5, skip=False)), "majority-ones", PromptDomain(FAR_OUT, 15))
    return Impossibility(
        "W-9",
        "without the skip connection no single Count01 head of any width is right for all n0 and n1, even at n2 = 0",
        (
            "without a residual the logits after =, 4 and 5 are the same affine functions l of the attended mean; "
            "its weights are positive, so with n1 large it tends to the value v_1 of 1, with n0 large to v_0",
            "at v_1 the answer needs l_4 >= l_EOS, the end after 4 needs l_EOS >= l_4: equal; and l_5 = l_EOS at v_0",
            "n0 = n1 and n1 = n0 + 1 growing together tend to one point m = r v_0 + (1 - r) v_1, 0 < r < 1, where "
            "l_4 = l_5 >= l_EOS = r l_5(v_0) + (1 - r) l_4(v_1)",
            "so l_4(v_0) >= l_5(v_0) and l_5(v_1) >= l_4(v_1); the answers there say the opposite: l_4 = l_5 at both",
            "then (softmax normaliser) (l_4 - l_5) does not depend on n0 and n1, and cannot change its sign with them",
        ),
        {"documents' weights without it, N = 5": f"right for n0, n1 <= {FAR_OUT} and n2 <= 15, not for all n0, n1"},
        {"random and built heads, both labels": 2 * len(random_ones + built), "right for all n0, n1": right},
        right == 0 and is_right_far_out,
    )


def _is_right_everywhere(model: Count01Transformer, labels: str) -> bool:
    return holds(exact_model(model), labels, PromptDomain(None, 0))


def _random_head(seed: int) -> Count01Transformer:
    """One head of width up to 3 without the skip connection, Gaussian weights, half of them whole numbers."""
    g = torch.Generator().manual_seed(seed)
    model = Count01Transformer(d=1 + seed % 3, heads=1, d_h=1 + seed % 2, classes=8, skip=False, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=g, dtype=torch.float64) * 2
            parameter.copy_(drawn.round() if seed % 2 else drawn)
    return model


ARGUMENTS: dict[str, Callable[[int], Impossibility]] = {"W-9": no_skip}
