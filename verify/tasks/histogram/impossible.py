"""What no histogram model of a kind can do: arguments (A-neg, W-5 to W-7, W-16 to W-18, W-24, W-27) and run checks.

Checks are exact: integers, rationals, or sums of exponentials. They do not make the argument; they would show a slip.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from flint import fmpq

from bounds.coherent_counting import rank_bound_dot, rank_bound_lin
from bounds.even_readings import Quartic, fewest_in_the_regime, quartic, widest_kernel
from constructions.exact_laws import logarithmic, rational
from constructions.fewer_dimensions import code
from constructions.histogram import HistogramTransformer
from constructions.two_layers import TwoLayerTransformer
from verify.arithmetic.exact_reals import Combination
from verify.arithmetic.outward import above
from verify.arithmetic.stored import Numbers, fractions, matrix
from verify.frame.certificate import Verdict
from verify.frame.impossibility import Impossibility, seeds
from verify.tasks.histogram.attack import tried
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.handed_on import exact_logits
from verify.tasks.histogram.kernels import Even, free_vectors, is_certificate
from verify.tasks.histogram.long_sequences import long_sequences
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.small_cases import Searched, kernel_signs, largest_family, orders_of_counts
from verify.tasks.histogram.stored import StoredModel

MODELS = 36  # random ones per property
ONE_NEURON = ("lin", "lin+sftm", "dot+sftm")


def random_model(kind: str, seed: int, *, T: int, L: int, d: int, p: int) -> HistogramTransformer:
    """Gaussian weights, half of them rounded to whole numbers, so that ties and equal readings occur."""
    g = torch.Generator().manual_seed(seed)
    module = HistogramTransformer(kind, T=T, L=L, d=d, p=p, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = torch.randn(parameter.shape, generator=g, dtype=torch.float64) * 2
            parameter.copy_(drawn.round() if seed % 2 else drawn)
    return module


def common_direction(seed: int = 0) -> Impossibility:
    """A-neg: in dot+sftm a direction that all tokens share carries no count.

    Claim: A-neg (Sec. 4.1.1).
    """
    constant = sum(_is_constant_along_the_common_direction(own) for own in seeds(seed, MODELS))
    return Impossibility(
        "A-neg",
        "dot+sftm cannot count along a direction common to all tokens: the mixed token's component there is constant",
        (
            "let <e_t, w> = c for every token t; the attention weights of a position are positive and sum to 1",
            "the mixed token is e_t plus their weighted mean, so its component along w is c + c, whatever the sequence",
        ),
        {"component": "2 c, times the softmax normaliser D an exponential sum that is exactly 2 c D"},
        {"random models": MODELS, "constant on 5 random sequences each": constant},
        constant == MODELS,
    )


def _is_constant_along_the_common_direction(seed: int) -> bool:
    T, L, c = 5, 6, Fraction(3, 2)
    module = random_model("dot+sftm", seed, T=T, L=L, d=4, p=1)
    with torch.no_grad():
        module.E[:, 0] = float(c)
        module.W_1.copy_(torch.tensor([[1.0], [0.0], [0.0], [0.0]]))  # reads the direction w
    exact = ExactForward(StoredModel.of(module))
    g = torch.Generator().manual_seed(seed)
    sequences = torch.randint(0, T, (5, L), generator=g).tolist()
    return all(_component_minus(exact, tokens, 2 * c).sign() == 0 for tokens in sequences)


def _component_minus(exact: ExactForward, tokens: list[int], value: Fraction) -> Combination:
    """D times ((component of the mixed token of position 0 along W_1) - value)."""
    pooled = D = Combination(exact.basis, {})
    for m, token in enumerate(tokens):
        weight = exact.mixing_weight(tokens, 0, m)
        D = D + weight
        pooled = pooled + weight.scaled(exact.features.entry(token, 0))
    own = exact.features.entry(tokens[0], 0)
    return pooled + D.scaled(own - fmpq(value.numerator, value.denominator))


def one_neuron(seed: int = 0) -> Impossibility:
    """W-5: without BOS, where the mixing weights do not grow with the sequence, one neuron cannot count.

    Claim: W-5 (ours; docs/fewer-dimensions.md).
    """
    sizes = [(2, 2), (3, 2), (2, 4), (4, 3)]
    refuted = 0
    for i, own in enumerate(seeds(seed, MODELS)):
        T, L = sizes[i % len(sizes)]
        module = random_model(ONE_NEURON[i % 3], own, T=T, L=L, d=1 + i % 4, p=1)
        refuted += certify(module).verdict is Verdict.REFUTED
    told, found_none = tried("W-5", seed)
    return Impossibility(
        "W-5",
        "lin, lin+sftm and dot+sftm with one neuron solve histogram for no d, T >= 2, L >= 2",
        (
            "take tokens 0, 1 with <e_0, W_1> > <e_1, W_1>; were all equal, the neuron would see no difference",
            "on sequences of these two, let one neighbour become the own token: a sum with fixed weights (lin, "
            "lin+sftm) or a mean with positive weights (dot+sftm) moves in opposite directions for the two, or for "
            "neither where a fixed weight is 0",
            "so count 2 reads above count 1 for one token and below it for the other, or both read alike",
            "logits are affine in the neuron's value h >= 0, so each class wins on an interval of h, and two classes "
            "on disjoint ones: count 2 cannot lie on both sides of count 1",
        ),
        {"tokens": "any two with different readings", "counts": [1, 2]},
        {"random models": MODELS, "refuted by the verifier": refuted, **told},
        refuted == MODELS and found_none,
    )


def one_neuron_twice(seed: int = 0) -> Impossibility:
    """W-27: where all mixing weights are positive, a second layer of one neuron adds nothing.

    Claim: W-27 (ours; docs/histogram.md).
    """
    between = sum(_is_between(_random_layers(own, is_positive=True)) for own in seeds(seed, MODELS))
    outside = sum(not _is_between(_random_layers(own, is_positive=False)) for own in seeds(seed, MODELS))
    return Impossibility(
        "W-27",
        "two layers of lin+sftm with one neuron each count for no d, T >= 2, L >= 2; nor do more layers",
        (
            "a neuron of layer 1 reads one number of each token, u_0 <= u_1 of two of them, and all entries of I + A "
            "are positive: at every position it does not fall where 0s become 1s, or it does not rise at any",
            "layer 2 reads one number of such a neuron at each position, again by I + A: so its neuron is monotone, "
            "too, and so is that of every later layer",
            "at the first position of 0..0, 0..01 and 1..1 the second value lies between the others; the logit of L "
            "less that of L - 1 is affine in it, and so it lies between as well",
            "it is to be above 0 on the first and the last string, where all are equal, and below 0 on the second",
        ),
        {"inputs": ["0..0", "0..01", "1..1"], "position": 0},
        {
            "random mixing weights above 0, the second value between the others": between,
            "mixing weights of any sign, outside": outside,
            "random models of each": MODELS,
        },
        between == MODELS and outside > 0,
    )


def _random_layers(seed: int, *, is_positive: bool) -> TwoLayerTransformer:
    """Two layers of one neuron and d = 1 or 2 with whole numbers, so that runs are exact."""
    g = torch.Generator().manual_seed(seed)
    two = TwoLayerTransformer("lin", T=2, L=2 + seed % 3, d=1 + seed % 2, p=1, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in two.named_parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape, generator=g))
            if name.endswith("A") and is_positive:
                parameter.abs_().add_(1)
    return two


def _is_between(two: TwoLayerTransformer) -> bool:
    """Whether the logit of L less that of L - 1 is on 0..01 between what it is on 0..0 and 1..1."""
    E, L = fractions(two.E), two.L
    strings = ([0] * L, [0] * (L - 1) + [1], [1] * L)
    first, second, third = (
        logits[-1] - logits[-2] for logits in (exact_logits(two, E[string])[0] for string in strings)
    )
    return bool(min(first, third) <= second <= max(first, third))


def rank_of_readings(seed: int = 0) -> Impossibility:
    """W-6: counting as in W-2 asks for a rank, and so for dimensions.

    Claim: W-6 (ours; docs/fewer-dimensions.md).
    """
    T, L = 32, 10
    spread = Fraction(1, 2 * L - 3)
    checks: dict[str, object] = {}
    holds = True
    for model, d, least, most in (("lin", 29, rank_bound_lin(L, T), 29), ("dot", 8, rank_bound_dot(L, T), 8 * 9 // 2)):
        noise = relative_spread(code(model, T=T, L=L, d=d))
        largest = max(abs(x) for row in noise for x in row)
        rank = rank_of_identity_plus(noise)
        needed = -(-Fraction(T) // (1 + (T - 1) * spread**2))
        checks[f"kept code of {model}"] = (
            f"d = {d} >= {least}, spread {float(largest * (2 * L - 3)):.3f} of what is allowed, "
            f"rank of I + N {rank}, at least {needed}, at most {most + 1}"
        )
        holds &= largest < spread and needed <= rank <= most + 1 and d >= least
    return Impossibility(
        "W-6",
        "counting as in W-2 needs d + 1 >= T/(1 + (T-1)/(2L-3)^2) in lin, and d(d+1)/2 + 1 >= the same in dot",
        (
            "scale neuron t so that (max D_ts + min D_ts)/2 = 1; max/min < (L-1)/(L-2) says |D_ts - 1| < 1/(2L-3)",
            "the readings are then I + 1 c^T + N with N zero on the diagonal and below 1/(2L-3) off it",
            "their rank is at most d in lin (V = E W_1), d(d+1)/2 in dot (quadratic forms at e_s); 1 c^T adds one",
            "rank(I + N) >= (trace)^2/(Frobenius norm)^2, as the sum of the singular values is at least the trace",
        ),
        {"T": T, "L": L, "lin needs d >=": rank_bound_lin(L, T), "dot needs d >=": rank_bound_dot(L, T)},
        checks,
        holds,
    )


def relative_spread(module: HistogramTransformer) -> Numbers:
    """N of a counting code: 1 - D_ts over the middle of the range of neuron t's D_ts; zero at s = t. Shape (T, T).

    D_ts is by how much the reading of neuron t falls when one of its own tokens is replaced by s.
    """
    E, W_1 = fractions(module.E), fractions(module.W_1)
    values = (E @ W_1).T
    if not module.is_linear:
        values = E @ fractions(module.W_Q) @ (E @ fractions(module.W_K)).T * values
    out = []
    for t, row in enumerate(values):
        falls = [row[t] - x for s, x in enumerate(row) if s != t]
        middle = (max(falls) + min(falls)) / 2
        out.append([Fraction(0) if s == t else 1 - (row[t] - x) / middle for s, x in enumerate(row)])
    return np.array(out)


def rank_of_identity_plus(noise: Numbers) -> int:
    """The exact rank of I + N."""
    return int(matrix(noise + np.eye(len(noise), dtype=int)).rank())


def tokens_on_a_line(seed: int = 0) -> Impossibility:
    """W-7: on tokens that lie on a line, no scores let every token attend most to itself.

    Claim: W-7 (ours; docs/fewer-dimensions.md).
    """
    between = sum(_is_beaten_in_the_middle(own) for own in seeds(seed, MODELS))
    return Impossibility(
        "W-7",
        "on T >= 3 tokens e_t = (x_t, 1), no scores e_t X e_s make every token's own key its strict maximum",
        (
            "the score e_t X e_s is affine in x_s, so over the alphabet it is largest at an end of the line",
            "a token t between two others has a score with one of them that is at least its own",
        ),
        {"tokens": "any three with x_0 <= x_1 <= x_2", "query": "the one in the middle"},
        {"random integer scores": MODELS, "a middle token is not its own strict maximum": between},
        between == MODELS,
    )


def _is_beaten_in_the_middle(seed: int) -> bool:
    """Whether no token strictly inside the line has its own key as the strict maximum, in integers."""
    g = torch.Generator().manual_seed(seed)
    x = sorted(torch.randint(-50, 51, (3 + seed % 6,), generator=g).tolist())
    (a, b), (c, d) = torch.randint(-50, 51, (2, 2), generator=g).tolist()
    scores = [[t * (a * s + b) + c * s + d for s in x] for t in x]
    return all(row[t] <= max(row[0], row[-1]) for t, row in enumerate(scores) if 0 < t < len(x) - 1)


def few_neurons(seed: int = 0) -> Impossibility:
    """W-16: with softmax and without BOS, tokens need different nonempty sets of neurons.

    Claim: W-16 (ours; docs/exact-laws.md).
    """
    sizes = [(4, 3, 2), (5, 2, 2), (4, 2, 2), (8, 2, 3)]
    refuted = 0
    for i, own in enumerate(seeds(seed, MODELS)):
        T, L, p = sizes[i % len(sizes)]
        module = random_model(("dot+sftm", "lin+sftm")[i % 2], own, T=T, L=L, d=1 + i % 5, p=p)
        refuted += certify(module).verdict is Verdict.REFUTED
    proved = [T for T in (3, 7, 15) if certify(logarithmic(T=T, L=5)).verdict is Verdict.PROVED]
    families = {p: largest_family(p) for p in (1, 2)}
    told, found_none = tried("W-16", seed)
    return Impossibility(
        "W-16",
        "dot+sftm and lin+sftm with 2^p - 1 < T solve histogram for no d and no L >= 2",
        (
            "on t^L the mixed token is 2 e_t: let a_t be the pre-activations there, and S_t the neurons above 0",
            "where the other slots of a position that holds t hold s, they are a_t + x (a_s - a_t), 0 < x < 1/2",
            "if S_t = S_s, every neuron is affine on the segment from a_t to a_s, and so are the logits; class L is "
            "strictly highest at both ends, hence between, and a t that occurs once is answered L: all S_t differ",
            "if T = 2^p, the empty set and some {i} occur; on that segment only neuron i is ever on, the logits are "
            "b_2 + h (W_2)_i, class L is highest for both ends' h, hence between: T <= 2^p - 1",
        ),
        {"input": "t once, all other positions s"},
        {
            "random models": MODELS,
            "refuted by the verifier": refuted,
            "T = 2^p - 1 built and proved": proved,
            "all patterns of p neurons, most tokens": {p: _searched(one) for p, one in families.items()},
        }
        | told,
        refuted == MODELS
        and proved == [3, 7, 15]
        and all(one.found == 2**p - 1 for p, one in families.items())
        and found_none,
    )


def few_dimensions(seed: int = 0) -> Impossibility:
    """W-17: one neuron in dot and bos needs d = T - 1 for long sequences.

    Claim: W-17 (ours; docs/exact-laws.md).
    """
    sizes = [(4, 3, 2), (5, 3, 3), (6, 4, 4), (4, 5, 1)]
    refuted = 0
    for i, own in enumerate(seeds(seed, MODELS)):
        T, L, d = sizes[i % len(sizes)]
        refuted += certify(random_model(("dot", "bos")[i % 2], own, T=T, L=L, d=d, p=1)).verdict is Verdict.REFUTED
    proved = [T for T in (2, 4, 5, 6) if certify(rational("dot", T=T, L=9)).verdict is Verdict.PROVED]
    small = [(T, L) for T in (3, 4) for L in (2, 3)]
    orders = [orders_of_counts(T, L) for T, L in small]
    are_two = all(one.found == _two_orders(L) for (_, L), one in zip(small, orders, strict=True))
    signs_agree = _signs_agree(4)
    told, found_none = tried("W-17", seed)
    return Impossibility(
        "W-17",
        "dot and bos with one neuron solve histogram for no d < T - 1 once L >= floor(T/2) + 1",
        (
            "logits are affine in the neuron's value, so each class wins on an interval of it, and these are disjoint",
            "a position of t reads c_t - sum over the others of D_ts, D_ts = M_tt - M_ts, where M = G diag(E W_1) has "
            "rank at most d; counts 1 and L apart: for fixed t all D_ts have one sign and none is 0",
            "counts 1 and 2 apart: D_ts = D_t (1 - n_ts) with |n_ts| < 1/(2L - 3)",
            "let u sum to 0 and M u = 0: then u_t = -sum over s != t of n_ts u_s, so (2L - 2) max|u| < sum|u|",
            "a vector that sums to 0 has sum|u| <= 2 floor(T/2) max|u|, so L - 1 < floor(T/2) unless u = 0",
            "for L >= floor(T/2) + 1 hence 0 = dim >= T - 1 - d",
        ),
        {"vector": "any u != 0 with sum 0 in the kernel of M"},
        {
            "random models": MODELS,
            "refuted by the verifier": refuted,
            "d = T - 1 built and proved at T": proved,
            "all orders of the counts, T and L": small,
            "allow only 1..L and L..1, with even D": are_two,
            "all signs of u, T up to 4, agree": signs_agree,
        }
        | told,
        refuted == MODELS and proved == [2, 4, 5, 6] and are_two and signs_agree and found_none,
    )


def _searched(one: Searched) -> str:
    return f"{one.found}, from {one.patterns} patterns"


def _two_orders(L: int) -> tuple[tuple[int, ...], ...]:
    return tuple(range(1, L + 1)), tuple(range(L, 0, -1))


def _signs_agree(most: int) -> bool:
    """Whether search over all signs of u finds one exactly where L - 1 < floor(T/2), for T <= most and L <= 4."""
    sizes = [(T, L) for T in range(2, most + 1) for L in (2, 3, 4)]
    return all(bool(kernel_signs(T, L).found) == (L - 1 < T // 2) for T, L in sizes)


def even_readings(seed: int = 0) -> Impossibility:
    """W-18: even readings leave a kernel of few dimensions, so d = 29 and 8 are optimal at T = 32, L = 10.

    Claim: W-18 (ours; docs/exact-laws.md).
    """
    T, L, m = 32, 10, widest_kernel(32, 10) + 1
    found = quartic(T, L, m)
    largest = max(_sum_of_projection(own, T, m) for own in seeds(seed, MODELS))
    most, needed = float(found.largest_sum(T, m)), (2 * L - 2) * m
    lin, dot = (fewest_in_the_regime(model, T, L) for model in ("lin", "dot"))
    is_above, signs_agree = found.is_above and _is_the_product(found), _signs_agree(8)
    told, found_none = tried("W-18", seed)
    checks: dict[str, object] = {
        "the quartic is above y": is_above,
        "largest sum of a random projection": f"{largest:.2f}",
        "all signs of u, T up to 8, agree": signs_agree,
        **told,
    }
    holds = is_above and found.largest_sum(T, m) <= needed and largest <= most and signs_agree and found_none
    for model, d in (("lin", lin), ("dot", dot)):
        module = code(model, T=T, L=L, d=d)
        kernel, noise = free_vectors(module), relative_spread(module).tolist()
        is_even = is_certificate(kernel, L, Even(tuple(map(tuple, noise))))
        checks[f"kept code of {model}"] = f"d = {d}, kernel of {len(kernel[0])}, reproduced by its spread: {is_even}"
        holds &= is_even and len(kernel[0]) <= widest_kernel(T, L)
    return Impossibility(
        "W-18",
        "where neurons keep their sides on counts 1 and 2, lin needs d >= T - 1 - m, dot and bos d(d+1)/2 >= the same; "
        "with one neuron dot and bos need d >= T - 1 - m for all weights",
        (
            "counts 1 and 2 of token t are then told apart by a sum over the other slots: one more own token in place "
            "of s takes D_ts, all of one sign, and max D_ts/min D_ts < (L-1)/(L-2): D_ts = D_t (1 - n_ts), "
            "|n_ts| < 1/(2L-3)",
            "U: the u that sum to 0 with sum u_s e_s = 0 (lin), sum u_s e_s e_s^T = 0 (dot, bos), or in the kernel of "
            "the readings (one neuron); on it sum over s != t of (1 - n_ts) u_s = 0, so u_t = -sum n_ts u_s and "
            "(2L-2) max|u| < sum|u|",
            "R, the projection onto U of dimension m: the rows say sum|R_ts| > (2L-2) m, and R_tt is below "
            "(T-1)/(T-1 + (2L-3)^2), hence all |R_ts| are",
            "there |y| <= a + b y^2 - c y^4; squares sum to m, fourth powers to at least 3 (sum R_tt^2)^2/(m (m+2))",
            f"T={T}, L={L}, m={m}: sum|R_ts| <= {above(most, digits=6)} < {needed}; so m <= {m - 1}, d >= {lin} in "
            f"lin, d >= {dot} in dot",
        ),
        {"T": T, "L": L, "a": str(found.a), "b": str(found.b), "c": str(found.c), "y up to": str(found.most)},
        checks,
        holds,
    )


def _is_the_product(found: Quartic) -> bool:
    """Whether a + b y^2 - c y^4 - y is the product that shows its sign: five points decide for degree four."""
    return all(
        found.a + found.b * y**2 - found.c * y**4 - y
        == (y - found.contact) ** 2 * (found.e - 2 * found.c * found.contact * y - found.c * y**2)
        for y in range(5)
    )


def _sum_of_projection(seed: int, T: int, m: int) -> float:
    """The sum of |R_ts| for a random m-dimensional space of vectors that sum to 0."""
    g = torch.Generator().manual_seed(seed)
    drawn = torch.randn(T, m, generator=g, dtype=torch.float64)
    Q = torch.linalg.qr(drawn - drawn.mean(0)).Q
    return float((Q @ Q.T).abs().sum())


ARGUMENTS: dict[str, Callable[[int], Impossibility]] = {
    "A-neg": common_direction,
    "W-5": one_neuron,
    "W-6": rank_of_readings,
    "W-7": tokens_on_a_line,
    "W-16": few_neurons,
    "W-17": few_dimensions,
    "W-18": even_readings,
    "W-24": long_sequences,
    "W-27": one_neuron_twice,
}
