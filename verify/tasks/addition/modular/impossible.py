"""What cannot add modulo P: attention alone (W-E4.7), and a pizza of an even modulus (W-E4.8), with checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from constructions.adder.transformer import AdderTransformer
from verify.frame.impossibility import Impossibility
from verify.tasks.addition.modular.proof import pair_by_pair

MODULI = range(2, 24)
MODELS = 12  # random ones


def no_mlp(seed: int = 0) -> Impossibility:
    """W-E4.7: one softmax head and a linear readout, without neurons, add modulo no P >= 2.

    Claim: W-E4.7 (ours; docs/modular.md).
    """
    left = {P: _uncancelled(P) for P in MODULI}
    right = sum(_is_right_everywhere(seed * MODELS + i) for i in range(MODELS))
    return Impossibility(
        "W-E4.7",
        "one softmax head and a linear readout, without neurons, add modulo no P >= 2, with or without positions and "
        "skip connection (several heads: open)",
        (
            "read at =, the softmax normaliser is Z = e(a) + f(b) + g > 0, and Z times the head's output is a function "
            "of a plus a function of b; Z times the skip connection's constant is one too",
            "so Z (logit of c) = Phi_c(a) + Psi_c(b) + k_c",
            "with c = a + b the right answer, Z (logit of c - logit of c + 1) is to be positive on all pairs",
            "summed over all pairs, every Phi_c(a) occurs once as the right answer's (b = c - a) and once as that of "
            "the rival (b = c - 1 - a), with opposite signs; so do Psi_c(b), and k_c P times: the sum is 0",
        ),
        {"terms left of the sum, for P from 2 to 23": sum(left.values())},
        {"random heads, P = 3": MODELS, "right on all pairs": right},
        right == 0 and not any(left.values()),
    )


def even_pizza(seed: int = 0) -> Impossibility:
    """W-E4.8: whatever its frequencies, a pizza adds modulo no even P.

    Claim: W-E4.8 (ours; docs/modular.md).
    """
    wrong = [(P, w) for P in range(2, 201, 2) for w in range(1, P // 2 + 1) if not _is_lost(P, w)]
    return Impossibility(
        "W-E4.8",
        "logits sum_k |2 cos(pi w_k (a-b)/P)| g_k(w_k (a+b-c)), with any g_k of period P, add modulo no even P",
        (
            "take a - b = P/2: the factor of an odd frequency is |2 cos(pi w/2)| = 0",
            "an even frequency has w P/2 = 0 mod P, so it gives c and c + P/2 the same logit",
            "so c and c + P/2 tie, and one of them may be the right answer",
        ),
        {},
        {"moduli, frequencies checked": f"{100}, {sum(P // 2 for P in range(2, 201, 2))}", "exceptions": len(wrong)},
        not wrong,
    )


def _uncancelled(P: int) -> int:
    """How many of the symbols Phi_c(a), Psi_c(b), k_c are left in the sum of right minus rival over all pairs."""
    total: Counter[tuple[object, ...]] = Counter()
    for a in range(P):
        for b in range(P):
            for c, sign in (((a + b) % P, 1), ((a + b + 1) % P, -1)):
                for symbol in (("Phi", c, a), ("Psi", c, b), ("k", c)):
                    total[symbol] += sign
    return sum(count != 0 for count in total.values())


def _is_lost(P: int, w: int) -> bool:
    """Whether frequency w says nothing at a - b = P/2 that tells c from c + P/2: by the angle in quarter turns."""
    quarter_turns = 2 * w * (P // 2) / P  # of w (a - b)/2, against pi/2
    return bool(quarter_turns % 2 == 1 if w % 2 else w * (P // 2) % P == 0)


def _is_right_everywhere(seed: int) -> bool:
    g = torch.Generator().manual_seed(seed)
    P, d = 3, 2 + seed % 3
    model = AdderTransformer(tokens=P + 1, length=3, classes=P, d=d, d_h=2, d_v=d, skip=bool(seed % 2))
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.randn(W.shape, generator=g, dtype=torch.float64))
        model.blocks[0].W_1.zero_()
        model.skip.fill_(True)  # without neurons their skip connection stays
    return pair_by_pair(model, P).wrong_count == 0


ARGUMENTS: dict[str, Callable[[int], Impossibility]] = {"W-E4.7": no_mlp, "W-E4.8": even_pizza}
