"""Claims about what no weights can do in inductive counting."""

from verify.frame.claim import Claim, Kind

_WHERE = "this project, on document C"


def _impossible(name: str, statement: str, place: str, bound: str = "-", source: str = _WHERE) -> Claim:
    command = f"verify inductive --impossible {name}"
    return Claim(
        name, statement, source, "-", bound, f"verify.tasks.inductive.ceilings.{place}", command, Kind.IMPOSSIBLE
    )


CLAIMS: tuple[Claim, ...] = (
    _impossible(
        "C-I1",
        "without BOS and with NoPE, RoPE, ALiBi or T5's bias all positions of a^n have one answer, at every depth: "
        "vanilla counting has the ceiling 1/N, modular counting ceil(N/m)/N",
        "homogeneous:no_length",
        "verify.tasks.inductive.ceilings.laws:constant_answer",
    ),
    _impossible(
        "C-I2",
        "without BOS and with NoPE or RoPE selective counting is wrong on every prefix of two equal tokens: ceiling "
        "99.73 % at C's length 50, 99.82 % with answers modulo 4 at 64",
        "homogeneous:equal_start",
        "verify.tasks.inductive.ceilings.laws:equal_prefix",
    ),
    _impossible(
        "C-I3",
        "one layer with NoPE and without BOS sees proportions only: ab and aabb have one answer, and selective "
        "counting has the ceiling 99.39 % at C's length 50",
        "homogeneous:proportions_only",
        "verify.tasks.inductive.ceilings.laws:proportions",
    ),
    _impossible(
        "C-I4",
        "with BOS and NoPE or RoPE, at every depth, the answer on a^n is one from a length on that the weights "
        "bound, unless two logits tie in the limit; no margin stays above a fixed one at all lengths of modular "
        "counting",
        "limits:bos_fades",
        "verify.tasks.inductive.ceilings.fading:fading",
        f"{_WHERE} (its qualitative form: Hahn 2020)",
    ),
    _impossible(
        "C-I5",
        "p ReLU neurons on one monotone scalar count modulo m up to N(m, p + 1) and no further, N(m, s) = m (s + 1)/2 "
        "for odd s and m s/2 + 1 for even s, and reach it",
        "limits:few_neurons",
        "bounds.inductive_limits:longest",
    ),
    _impossible(
        "C-I6",
        "the share of BOS under uniform attention, rounded to p bits, is first equal at the lengths 189 and 190 in "
        "bfloat16, 1463 and 1464 in float16, 11864337 and the next in float32",
        "limits:few_bits",
        "bounds.inductive_limits:first_equal_reciprocals",
    ),
    _impossible(
        "C-I7",
        "with RoPE and BOS one head of d_h dimensions that scores all a alike counts modulo 10, without an MLP, up to "
        "a length near d_h only: with coefficients up to 10 at most to 42 at d_h = 32, 63 at 64, 114 at 128",
        "share:few_waves",
        "bounds.rope_share:is_impossible",
    ),
    _impossible(
        "C-I8",
        "without a causal mask and positions, with BOS or without, at every depth, no weights tell the first token of "
        "a string in which it occurs again: equal tokens get equal answers",
        "homogeneous:no_mask",
    ),
)
