"""What cannot count regions: the arguments of B-2.3, B-2.4, B-2.5, B-D.3, of the gap between 2.1 and 2.2; witnesses.

Each function returns the argument in words, a witness, and checks that were run; `holds` says whether all of them came
out as the argument says.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from flint import fmpz_mat
from torch import Tensor

from constructions import contextual_fewest_neurons
from constructions.contextual.transformer import BOS, ContextualCountingTransformer
from verify.frame.certificate import Verdict
from verify.frame.impossibility import Impossibility, seeds
from verify.tasks.contextual.task import answers, parse
from verify.tasks.contextual.verdict import certify, domain_of

MODELS = 100  # random ones per property
MASKS = 20  # random masked values
LEAST_SLOPE, SCORES, FADING = 4.0, 2.0, 40  # slopes and scores of random ALiBi models with a mask, and their number
TOLERANCE = 1e-9  # of two float64 runs that real arithmetic makes equal: about 10^4 operations on numbers of size 10


def random_logits(tokens: Tensor, seed: int, kind: str) -> Tensor:
    """Logits of a random transformer: 1 to 3 layers of 1 to 3 heads with MLPs, half of them with layer norm, and a
    mean or a cross-attention at the end. Kinds: nope, causal, alibi (both without and with a mask as their names say),
    and causal alibi, with scores within SCORES and slopes of at least LEAST_SLOPE.

    >>> random_logits(torch.tensor([0, 1]), 0, "nope").shape
    torch.Size([7])
    """
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        result: Tensor = torch.randn(*shape, generator=g, dtype=torch.float64) / shape[0] ** 0.5
        return result

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=g))

    d, n = 6, len(tokens)
    x = (normal(5, d) * 2)[tokens]
    distance = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs().double()
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    has_norm = integer(0, 1)
    for _ in range(integer(1, 3)):
        y = torch.zeros_like(x)
        for _ in range(integer(1, 3)):
            scores = x @ normal(d, d) * 2 @ (x @ normal(d, d)).T
            slope = float(normal(1).abs())
            if kind == "alibi":
                scores = scores - slope * distance
            if kind == "causal alibi":
                scores = SCORES * torch.tanh(scores / SCORES) - (LEAST_SLOPE + slope) * distance
            if kind.startswith("causal"):
                scores = scores.masked_fill(future, -torch.inf)
            y = y + torch.softmax(scores, dim=-1) @ x @ normal(d, d)
        x = x + y
        x = x + torch.relu(x @ normal(d, 2 * d) + normal(1, 2 * d)) @ normal(2 * d, d)
        if has_norm:
            x = torch.nn.functional.layer_norm(x, (d,))
    weights = torch.softmax(x @ normal(d) * integer(0, 1), dim=0)  # a zero query takes the mean
    return weights @ x @ normal(d, 7)


def largest_difference(pairs: list[tuple[Tensor, Tensor]]) -> float:
    return max(float((a - b).abs().max()) for a, b in pairs)


def no_order(seed: int = 0) -> Impossibility:
    """B-2.3: without positions and without a mask, permuted strings get one answer.

    Claim: B-2.3 (Prop. 2.3, printed again as 3.3).
    """
    first, second = "[1]", "1[]"
    right = [answers(parse(text), 1)[0] for text in (first, second)]
    runs = {}
    for kind in ("nope", "causal"):
        strings = [torch.tensor([BOS, *parse(text)]) for text in (first, second)]
        runs[kind] = [tuple(random_logits(s, own, kind) for s in strings) for own in seeds(seed, MODELS)]
    same, causal = largest_difference(runs["nope"]), largest_difference(runs["causal"])  # type: ignore[arg-type]
    return Impossibility(
        "B-2.3",
        "a bidirectional transformer without positions and with a permutation-invariant output cannot count regions",
        (
            "each layer maps permuted inputs to outputs permuted alike: attention sums over all positions, the rest "
            "acts position by position",
            "a mean or a cross-attention over positions is then the same for both orders",
            f"{first} and {second} hold the same tokens and need the answers {right[0]} and {right[1]}",
        ),
        {"strings": [first, second], "right": right},
        {"random models": MODELS, "largest difference, bidirectional": same, "largest difference, causal": causal},
        sorted(parse(first)) == sorted(parse(second)) and right[0] != right[1] and same < TOLERANCE < causal,
    )


def causal_rank(L: int, seed: int = 0) -> Impossibility:
    """B-2.4: the rank of a causal profile, exactly, whatever stands at the masked places.

    Claim: B-2.4 (Prop. 2.4, printed again as 3.4). Departure: the printed proof sets k_T q_T = 1 and k_t q_T = 0, but
        the last row of a causal profile attends to all; and softmax needs one dimension less than printed.
    """
    masked = fmpz_mat(L, L, [-int(j > i) for i in range(L) for j in range(L)])
    # row i < L of the mask is minus the sum of unit vectors beyond i: queries and keys of L - 1 dimensions
    queries = fmpz_mat(L, max(L - 1, 1), [-int(c >= i) for i in range(L) for c in range(max(L - 1, 1))])
    keys = fmpz_mat(max(L - 1, 1), L, [int(j == c + 1) for c in range(max(L - 1, 1)) for j in range(L)])
    exact, offset = set(), set()
    for own in seeds(seed, MASKS):
        g = torch.Generator().manual_seed(own)
        below = torch.randint(1, 100, (L, L), generator=g).tolist()
        rows = torch.randint(-100, 100, (L,), generator=g).tolist()
        exact.add(int(causal_scores([1] * L, below).rank()))
        offset.add(int(causal_scores([*rows[:-1], 0], below).rank()))
    is_reached = queries * keys == masked and int(masked.rank()) == L - 1
    return Impossibility(
        "B-2.4",
        "bidirectional attention with absolute positions needs d >= L for exact causal scores, d >= L - 1 for softmax",
        (
            "let row i of the scores be c_i on j <= i, and below c_i, otherwise anything, on j > i; softmax sees the "
            "differences only",
            "minus the first column, which is c, the other columns are zero on j <= i and not zero just above the "
            "diagonal: rank L - 1, so d >= L - 1 whatever the masked values are",
            "all of them are zero in the last row: if c_L is not, as for scores that are exactly 1 on j <= i, c adds "
            "one to the rank, so d >= L",
            "L - 1 suffices: the row that attends to all may be 0, and -kappa [j > i] has rank L - 1",
            "exact zeros are out of reach for every d: softmax is positive; it leaks (L - i) e^-kappa into row i",
        ),
        {"L": L, "queries": "-kappa [c >= i]", "keys": "[j = c + 1]"},
        {
            "random masked values": MASKS,
            "ranks at c = 1": sorted(exact),
            "ranks at c_L = 0": sorted(offset),
            "factors of the mask are right": is_reached,
        },
        exact == {L} and offset == {L - 1} and is_reached,
    )


def causal_scores(rows: list[int], below: list[list[int]]) -> fmpz_mat:
    """The matrix that is rows[i] on j <= i and rows[i] - below[i][j] on j > i."""
    L = len(rows)
    return fmpz_mat(L, L, [rows[i] - (below[i][j] if j > i else 0) for i in range(L) for j in range(L)])


def no_direction(seed: int = 0) -> Impossibility:
    """Shows B-2.5: ALiBi without a mask cannot tell before from after; RoPE can, and emulates a mask with enough
    numbers.

    Claim: B-2.5 (Remark 2.5). Departure: the remark holds for ALiBi, whose scores depend on |i - j|, and fails for
        RoPE, whose scores depend on the signed i - j; its conclusion holds for RoPE below d = L - 1 only.
    """
    text = "0[011]10[1]"
    tokens = torch.tensor([BOS, *parse(text)])
    pairs = []
    for own in seeds(seed, MODELS):
        pairs.append(tuple(random_logits(s, own, "alibi") for s in (tokens, tokens.flip(0))))
    same = largest_difference(pairs)  # type: ignore[arg-type]
    L = 64
    before_after = rope_scores(L)
    is_ordered = bool((before_after.tril(-1)[before_after.tril(-1) != 0] > 0).all()) and bool(
        (before_after.triu(1)[before_after.triu(1) != 0] < 0).all()
    )
    off = float((rope_mask(L) + torch.ones(L, L, dtype=torch.float64).triu(1)).abs().max())
    return Impossibility(
        "B-2.5",
        "bidirectional ALiBi cannot tell a key before the query from one after it; bidirectional RoPE can",
        (
            "ALiBi adds -m |i - j|: a reversed string gives the reversed profile, so a key at distance n before the "
            "query and the same key at n after it have one score",
            "so an ALiBi encoder with an invariant output answers a string and its reversal alike",
            "RoPE rotates queries and keys: q R(theta (j - i)) k keeps the sign of j - i. With q = (1, 0) and "
            "k = (0, 1) the score is sin(theta (i - j)), positive before and negative after for theta L < pi",
            "on equal tokens RoPE emulates a causal profile from d = 2L - 1 on: frequencies 2 pi f / (2L - 1), "
            "f = 0..L-1, span all functions of i - j; by the rank bound of B-2.4 it does not for d < L - 1",
        ),
        {"string": text, "RoPE": "q = (1, 0), k = (0, 1), theta = pi / L", "L": L},
        {
            "random ALiBi models": MODELS,
            "largest difference to the reversal": same,
            "RoPE tells the order": is_ordered,
            "RoPE's largest difference to -[j > i] at d = 2L - 1": off,
        },
        same < TOLERANCE and is_ordered and off < TOLERANCE,
    )


def swapped(gap: int, ones: tuple[int, int] = (2, 5)) -> tuple[str, str]:
    """Two strings of two regions with `gap` zeros round everything, whose numbers of ones are exchanged.

    >>> swapped(1, (0, 2))
    ('0[00]0[0110]', '0[0110]0[00]')
    """
    zeros = "0" * gap
    first, second = (f"{zeros}[{zeros}{'1' * n}{zeros}]" for n in ones)
    return first + second, second + first


def far_context(seed: int = 0) -> Impossibility:
    """B-D.3: with ALiBi what is far away fades, so that in long strings no region knows its number.

    Claim: B-D.3 (App. D.3). Departure: the sentence is of one head and large slopes, and of training; it holds of any
        heads and layers, and of every slope above 0 at lengths beyond a multiple of its reciprocal.
    """
    gaps, differences = (1, 4, 16), {}
    for kind, measured in (("causal alibi", gaps), ("causal", gaps[-1:])):
        for gap in measured:
            strings = [torch.tensor([BOS, *parse(text)]) for text in swapped(gap)]
            pairs = [tuple(random_logits(s, own, kind) for s in strings) for own in seeds(seed, FADING)]
            differences[kind, gap] = largest_difference(pairs)  # type: ignore[arg-type]
    with_slope = [differences["causal alibi", gap] for gap in gaps]
    without = differences["causal", gaps[-1]]
    right = [answers(parse(text), 2) for text in swapped(gaps[0])]
    fades = with_slope[-1] < TOLERANCE < with_slope[0]
    return Impossibility(
        "B-D.3",
        "no causal transformer whose heads all have ALiBi with slopes above 0, and a pooling decoder, counts regions "
        "with margins above any delta > 0 at all lengths",
        (
            "a head with slope m and scores within S gives all keys at distances above w together a share of at most "
            "e^S e^(-m w) / (1 - e^-m) of its own one's",
            "so two positions with the same w tokens before them have streams within C e^(-m w) after one layer, and, "
            "as a key within w/2 has w/2 tokens in common, within C e^(-m w / 2^(l-1)) after l layers",
            "exchange the ones of two regions that have w zeros round all parts: each position of one string has one "
            "in the other with the same w tokens before it",
            "a decoder that pools positions by attention then gives every prompt nearly the same logits, and prompt 1 "
            "is due another count",
            "without a slope (NoPE, m = 0) nothing fades: B-2.2 counts at every length",
        ),
        {"strings": list(swapped(2)), "right": right},
        {
            "random causal ALiBi models": FADING,
            "least slope, largest score": [LEAST_SLOPE, SCORES],
            "largest difference by zeros between": {str(gap): differences["causal alibi", gap] for gap in gaps},
            "largest difference without slopes": without,
        },
        right[0] == right[1][::-1] and right[0] != right[1] and fades and without > TOLERANCE,
    )


def rope_mask(L: int) -> Tensor:
    """Scores (L, L) of a RoPE head on equal tokens whose queries are the Fourier coefficients of -[n > 0], n = j - i.

    Keys are (1, 0) at each of the frequencies 2 pi f / (2L - 1), f = 0..L-1; at f = 0 one number suffices.
    """
    M = 2 * L - 1
    n = torch.arange(1 - L, L, dtype=torch.float64)
    angles = 2 * torch.pi / M * torch.arange(L, dtype=torch.float64)
    wanted = -(n > 0).double()
    weight = torch.full((L,), 2.0 / M, dtype=torch.float64)
    weight[0] = 1.0 / M
    a, b = (weight * (f(angles[:, None] * n) @ wanted) for f in (torch.cos, torch.sin))
    phase = (torch.arange(L)[None, :] - torch.arange(L)[:, None])[..., None] * angles  # rotation by theta (j - i)
    return phase.cos() @ a + phase.sin() @ b


def rope_scores(L: int) -> Tensor:
    """Scores (L, L) of the RoPE head q = (1, 0), k = (0, 1), theta = pi / L, by rotating queries and keys."""
    angle = torch.arange(L, dtype=torch.float64) * torch.pi / L
    rotate = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).reshape(L, 2, 2)
    queries, keys = rotate @ torch.tensor([1.0, 0.0]).double(), rotate @ torch.tensor([0.0, 1.0]).double()
    return queries @ keys.T


def no_middle(seed: int = 0) -> Impossibility:
    """W-11: Prop. 2.1 and 2.2 do not compose by themselves: p ReLU neurons select 2p + 2 regions and no more.

    Claim: W-11 (ours), settling B-2.1 + B-2.2.
    """
    between = all(is_between(middle_weights(own)) for own in seeds(seed, MODELS))
    proved = {}
    for R in (2, 3, 4, 6):
        module = contextual_fewest_neurons.build(64, R)
        is_proved = certify(module, domain_of(module, 64)).verdict is Verdict.PROVED
        proved[R] = (contextual_fewest_neurons.neurons(R), is_proved)
    return Impossibility(
        "W-11",
        "attention alone counts 2 regions and not 3; p ReLU neurons between encoder and decoder count 2p + 2, not more",
        (
            "a 1 in region j has seen j '[' and j - 1 ']': its latent is (A + B j) / (a + b j), a point on a line that "
            "moves one way with t = 1 / (a + b j), whatever the values and the scores by token type",
            "p neurons cut the line into p + 1 pieces; if R > 2p + 2, three regions a < b < c lie on one of them, "
            "where keys and values are affine in t",
            "selection: log w_b lies between log w_a and log w_c, so no prompt gives the 1s of b more weight than both",
            "counting: softmax's total times logit k - logit l is sum of n_j w_j L(t_j) + C with L affine. Any number "
            "of 1s in a and in c must change no answer, so L(t_a) = L(t_c) = 0, hence L(t_b) = 0: then n_b is not "
            "seen. No fixed weights do it for every length (1s attending to delimiters and BOS only, as in Prop. 2.2)",
            "the construction reaches the bound: a polygon of p + 1 edges has 2p + 2 vertices",
        ),
        {"string": "[1][1][1]", "prompt": 2},
        {
            "random attention-only encoders": MODELS,
            "middle weight never largest": between,
            "proved at N = 64 (regions: neurons)": {R: p for R, (p, is_proved) in proved.items() if is_proved},
        },
        between and all(is_proved for _, is_proved in proved.values()),
    )


def middle_weights(seed: int) -> Tensor:
    """Scores of the 1s of "[1][1][1]" under a random encoder without feed-forward layer and a random prompt."""
    g = torch.Generator().manual_seed(seed)
    model = ContextualCountingTransformer(d=5, p=1, R=1, classes=2, d_h=3, e=3, bos=seed % 2 == 0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name not in ("W_1", "b_1", "W_2", "b_2"):
                weight.copy_(torch.randn(weight.shape, generator=g, dtype=torch.float64) * 1.5)
        stream = model.encode(torch.tensor(parse("[1][1][1]")))[int(model.has_bos) :][1::3]
        return (model.P @ model.U_Q @ (stream @ model.U_K).T)[0]


def is_between(scores: Tensor) -> bool:
    """Whether the middle one of three scores is between the others, up to rounding."""
    low, high = float(scores[[0, 2]].min()), float(scores[[0, 2]].max())
    return low - TOLERANCE <= float(scores[1]) <= high + TOLERANCE


ARGUMENTS: dict[str, Callable[[int], Impossibility]] = {
    "B-2.3": no_order,
    "B-2.4": lambda seed: causal_rank(64, seed),
    "B-2.5": no_direction,
    "B-D.3": far_context,
    "W-11": no_middle,
}
