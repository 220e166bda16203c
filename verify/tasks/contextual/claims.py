"""Claims about contextual counting."""

from verify.frame.claim import GOLKAR, Claim, Kind

PE = ("ape", "rope", "alibi")
TWO_BLOCKS = """'''B-n3: two blocks without positions, T = 3, L = 6'''
import torch
from constructions.nope_positions import token_before
from verify.module import Task, tokens

def model(weights):
    return token_before(3, 6)

def before(t):
    return torch.cat([0 * t[:, :1], t[:, :-1]], 1)

task = Task(inputs=tokens([3] * 6), expected=before, position=None)
"""

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "B-2.1",
        "with the region linearly readable from keys in convex position, one cross-attention head counts: the count k "
        "is in the bias token's share 1/(k+1)",
        f"{GOLKAR}, Prop. 2.1, App. C (printed again as 3.1; the share of the bias token instead of both values)",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:share, bounds.contextual_counting:margin",
        "verify.tasks.contextual.verdict:certify",
        "verify contextual --keys convex --length 512 --regions 4",
        checked_at="N = 512, R = 4",
        shown_in="B-2.1+2.2",
    ),
    Claim(
        "B-2.2",
        "one causal head without positions places every token: with BOS and the value -1 for ], y = 1/(2r) in region r "
        "and 0 outside, on all strings up to the N and R built for",
        f"{GOLKAR}, Prop. 2.2, App. C (printed again as 3.2, where the latent before any delimiter is 0/0; softmax has "
        "none, and without BOS y = 1/(2r-1))",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:position, bounds.contextual_counting:gap, bounds.contextual_counting:encoder_leak",
        "verify.tasks.contextual.verdict:certify",
        "verify contextual --length 512 --regions 4 --dtype float64",
        deep=("verify contextual --length 4096 --regions 32 --dtype float64",),
        checked_at="N = 512, R = 4; N = 4096, R = 32",
        shown_in="B-2.1+2.2",
        dtype="float64",
    ),
    Claim(
        "B-2.1+2.2",
        "encoder and decoder of one head each, with a feed-forward layer between, count the ones of every region on "
        "all valid strings: N = 512, R = 4 in float32 and in 17 bits, N = 4096, R = 32 in float32, N = 100000, R = 32 "
        "in float64",
        f"{GOLKAR}, Sec. 2.2 (the feed-forward layer is needed for R >= 3, see W-11)",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:line, bounds.contextual_counting:largest_length",
        "verify.tasks.contextual.verdict:certify",
        "verify contextual --length 512 --regions 4 --precision float32",
        deep=(
            "verify contextual --length 512 --regions 4 --precision p17",
            "verify contextual --length 4096 --regions 32 --precision float32",
            "verify contextual --length 100000 --regions 32 --precision float64",
        ),
    ),
    Claim(
        "B-2.3",
        "a bidirectional transformer without positions and with a permutation-invariant output cannot count regions: "
        "[1] and 1[] get one answer",
        f"{GOLKAR}, Prop. 2.3, App. C (printed again as 3.3)",
        "-",
        "-",
        "verify.tasks.contextual.impossible:no_order",
        "verify contextual --impossible B-2.3",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "B-2.4",
        "exact causal scores in bidirectional attention with absolute positions need d >= L; up to the row offsets "
        "that softmax ignores, d = L - 1 is needed and enough",
        f"{GOLKAR}, Prop. 2.4, App. C (printed again as 3.4 with d >= L; its proof takes the last row of a causal "
        "profile to be zero before the last entry, where it attends to all)",
        "-",
        "bounds.contextual_counting:causal_rank",
        "verify.tasks.contextual.impossible:causal_rank",
        "verify contextual --impossible B-2.4",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "B-2.5",
        "bidirectional ALiBi cannot tell before from after; bidirectional RoPE can, by the sign of i - j, and on equal "
        "tokens emulates a causal profile with d >= 2L - 1, not with d < L - 1",
        f"{GOLKAR}, Remark 2.5 (which says the same of both, for every d)",
        "-",
        "-",
        "verify.tasks.contextual.impossible:no_direction",
        "verify contextual --impossible B-2.5",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "B-D.3",
        "no causal transformer whose heads all have ALiBi with slopes above 0, of any depth, and a decoder that pools "
        "by attention count regions with margins above any delta > 0 at all lengths",
        f"{GOLKAR}, Sec. 3.5, App. D.3 (which says it of a single head and large slopes, from training)",
        "-",
        "-",
        "verify.tasks.contextual.impossible:far_context",
        "verify contextual --impossible B-D.3",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "B-3.4",
        "the bias token decides what generalises, up to the N and R built for: with BOS every length and number of "
        "regions is right; with ] every length, but only with R regions; with 0 every length and number of regions, "
        "but only with Z zeros",
        f"{GOLKAR}, Sec. 3.4, Fig. 5 (bias 0 is approximate there: the zeros of random strings vary)",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:confused, bounds.contextual_counting:first_wrong_count",
        "verify.tasks.contextual.patterns:figure5",
        "verify contextual --figure5 --length 64",
        deep=(
            "verify contextual --figure5 --length 512",
            "verify contextual --bias ] --length 512 --regions 4 --exactly --precision float32",
            "verify contextual --bias 0 --length 512 --regions 4 --zeros 252 --precision float32",
        ),
        checked_at="N = 64; N = 512",
    ),
    Claim(
        "B-3.5",
        "one causal head that is given positions counts R >= 2 regions on all strings up to the N built for, with or "
        "without an MLP in the decoder: absolute ones in a lane that nothing reads, rotations of which the slowest "
        "turns by at most pi/3, and ALiBi's distances with every slope below ln((2R-1)/(2R-3))/N",
        f"{GOLKAR}, Sec. 3.5, App. D.1 to D.4 (trained there, built here)",
        "constructions.contextual_with_positions:build",
        "constructions.contextual_with_positions:largest_slope",
        "verify.tasks.contextual.positional.task:Positional",
        "verify contextual --pe alibi --length 64 --regions 4",
        deep=(
            *(f"verify contextual --pe {pe} --length 64 --regions 4 --precision float32" for pe in PE),
            *(f"verify contextual --pe {pe} --decoder-mlp --length 64 --regions 4 --precision float32" for pe in PE),
            *(f"verify contextual --pe {pe} --length 512 --regions 4 --precision float64" for pe in PE),
            "verify contextual --pe alibi --slope 0.000656 --length 512 --regions 4",
        ),
        checked_at="; ".join(f"pe = {pe}, N = {N}, R = 4" for pe in PE for N in (64, 512)),
    ),
    Claim(
        "B-n3",
        "two causal blocks without positions, of which the first writes any code of up to L places from BOS's share, "
        "with L neurons, do what one block with absolute positions does: say which token stands before each",
        f"{GOLKAR}, Sec. 3.5, footnote 3 (for l = 1)",
        "constructions.nope_positions:token_before",
        "-",
        "verify.module:certify",
        "verify module two-blocks.py",
        deep=("verify module two-blocks.py --precision float32",),
        reads=(("two-blocks.py", TWO_BLOCKS),),
        checked_at="file = two-blocks.py",
    ),
    Claim(
        "W-19",
        "a bidirectional transformer with absolute positions counts regions with scores of rank one in the positions "
        "(one coordinate for up to 127 tokens in float64, one for every 16 positions in float32): a causal profile up "
        "to a tolerance, and the hidden neurons restore exact zeros",
        "this project (Prop. 2.4 of Golkar et al. asks for as many dimensions as positions, which exact profiles need)",
        "constructions.contextual_positions:build",
        "-",
        "verify.tasks.contextual.bidirectional.task:Bidirectional",
        "verify bidirectional --length 64 --regions 3",
        deep=("verify bidirectional --length 64 --regions 3 --precision float32",),
        checked_at="N = 64, R = 3",
    ),
    Claim(
        "W-11",
        "p ReLU neurons between a delimiter-counting head and one cross-attention head select 2p + 2 regions and no "
        "more: attention alone counts 2 regions, and for R >= 3 no fixed weights whose 1s attend to delimiters and BOS "
        "only do it for every length",
        "this project (the gap between Prop. 2.1 and 2.2 of Golkar et al.)",
        "constructions.contextual_fewest_neurons:build",
        "bounds.contextual_counting:neurons",
        "verify.tasks.contextual.impossible:no_middle",
        "verify contextual --impossible W-11",
        Kind.IMPOSSIBLE,
    ),
)
