"""The registry: every claim that has a builder, a bound and a verifier, as one literal table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One proposition: its statement and source, and where its builder, bound and verifier live.

    The three places are "module:function" strings, so that listing the claims imports none of them.
    """

    id: str
    statement: str
    source: str
    builder: str
    bound: str
    verifier: str
    command: str


BEHRENS = "Behrens, Biggio, Zdeborova: Counting in Small Transformers"
COUNT01 = "Do Attention Heads Compete or Cooperate during Counting?"
GOLKAR = "Golkar et al.: Contextual Counting: A Mechanistic Study of Transformers on a Quantitative Task"
FRAKNOI = "Fraknoi: Solving Mathematical Problems with Transformers"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "A-4.1",
        "bos and bos+sftm solve histogram by relation counting for every L >= 2, d >= T > 2, p >= 1",
        f"{BEHRENS}, Prop. 4.1, App. B.2.2-B.2.3 (bias of B.2.3 corrected)",
        "constructions.relation_counting:bos, constructions.relation_counting:bos_sftm",
        "bounds.relation_counting:bos, bounds.relation_counting:bos_sftm",
        "verify.histogram.verdict:certify",
        "verify histogram --model bos+sftm --T 32 --L 10",
    ),
    Claim(
        "A-4.1alt",
        "bos with a zero BOS embedding solves histogram by relation counting with tagged embeddings",
        f"{BEHRENS}, App. B.2.3, alternative proof",
        "constructions.relation_counting:zero_bos",
        "bounds.relation_counting:dot",
        "verify.histogram.verdict:certify",
        "verify histogram --model bos --construction zero-bos --T 32 --L 10",
    ),
    Claim(
        "A-4.2",
        "dot solves histogram by relation counting with tagged embeddings for d >= T > 2, p >= 1",
        f"{BEHRENS}, Prop. 4.2, App. B.2.1",
        "constructions.relation_counting:dot",
        "bounds.relation_counting:dot",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot --T 32 --L 10",
    ),
    Claim(
        "A-4.3",
        "lin and lin+sftm solve histogram by inventory counting for d >= T > 2, p >= T",
        f"{BEHRENS}, Prop. 4.3, App. B.3.1-B.3.2",
        "constructions.inventory_counting:lin, constructions.inventory_counting:lin_sftm",
        "bounds.inventory_counting:lin, bounds.inventory_counting:lin_sftm",
        "verify.histogram.verdict:certify",
        "verify histogram --model lin --T 32 --L 10",
    ),
    Claim(
        "A-B.1",
        "dot+sftm solves histogram by inventory counting for d >= T > 2, p >= T",
        f"{BEHRENS}, Prop. B.1, App. B.3.3",
        "constructions.inventory_counting:dot_sftm",
        "bounds.inventory_counting:dot_sftm",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot+sftm --T 32 --L 10",
    ),
    Claim(
        "A-B.4",
        "a staircase of L lines with increasing slopes maps L separated values of one scalar to L classes",
        f"{BEHRENS}, App. B.4, eq. 7-8",
        "constructions.readout:staircase",
        "bounds.readout:staircase",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot --T 32 --L 10",
    ),
    Claim(
        "A-pad",
        "surplus dimensions and hidden neurons are zero padding: d > T, p > T or p > 1 keep working",
        f"{BEHRENS}, end of App. B.3.3",
        "constructions.histogram:HistogramTransformer",
        "bounds.relation_counting:dot, bounds.inventory_counting:dot_sftm",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot --T 32 --L 10 --d 45 --p 7",
    ),
    Claim(
        "A-D",
        "sequences by recursive partitions: the first block's size is uniform on 1..L",
        f"{BEHRENS}, App. D (step 4 sets K = k; K = k - 1 is meant)",
        "constructions.partition_sampler:sample",
        "-",
        "verify.strategies:histogram_sequences",
        "verify histogram --model dot --T 32 --L 10 --method sampled",
    ),
    Claim(
        "A-neg",
        "dot+sftm: along a direction common to all tokens the mixed token's component is constant",
        f"{BEHRENS}, Sec. 4.1.1",
        "-",
        "bounds.relation_counting:dot_sftm_common_direction",
        "verify.histogram.exact_forward:ExactForward",
        "pytest tests/histogram/test_relation_counting.py -k common_direction",
    ),
    Claim(
        "W-1",
        "dot, bos and bos+sftm also count by inventory with orthonormal tokens, for all T >= 2, L >= 1, d >= T, p >= T",
        f"ours, after {BEHRENS}, Sec. 4.1 and App. B.3",
        "constructions.inventory_counting:dot, constructions.inventory_counting:bos, "
        "constructions.inventory_counting:bos_sftm",
        "bounds.inventory_counting:dot, bounds.inventory_counting:bos_sftm",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot --construction inventory --T 32 --L 10",
    ),
    Claim(
        "A-4.4",
        "d < T by coherence M: lin, lin+sftm (p = T) M < 1/(2L-3); dot, bos (p = 1) the same in d - 1 dimensions; "
        "dot, bos (p = T) M < 1/sqrt(L-1); with Welch, d > T x^2/(T - 1 + x^2) where a ceiling is printed",
        f"{BEHRENS}, Prop. 4.4, App. C.2 (strict; evaluated at T=32, L=10 the third d is 8, not 7)",
        "constructions.frames.choice:low_coherence, constructions.fewer_dimensions:coherent, "
        "constructions.fewer_dimensions:code",
        "bounds.coherent_counting:lin, bounds.coherent_counting:dot_one_neuron, bounds.coherent_counting:dot_inventory",
        "verify.histogram.verdict:certify, verify.histogram.coherence:certify_coherence",
        "verify histogram --model dot --T 32 --L 10 --d 12 --p 32",
    ),
    Claim(
        "A-4.5",
        "bos+sftm with one neuron counts on a binary code (digits normalised, or signs): d = ceil(log2(T+1)) + 2, "
        "for every L",
        f"{BEHRENS}, Prop. 4.5, App. C.3.1 (norm of eq. 70 and sign of eq. 69 corrected; d = 8 at T=32, not 7)",
        "constructions.fewer_dimensions:binary",
        "bounds.coherent_counting:softmax_relation, bounds.coherent_counting:kappa_equation",
        "verify.histogram.verdict:certify",
        "verify histogram --model bos+sftm --construction binary --T 32 --L 10",
    ),
    Claim(
        "A-C.3.2",
        "dot+sftm with p = T counts at d = ceil(log2(T+1)): at T=32, L=10 this holds (d = 6, proved), "
        "by a searched code, not by the printed argument",
        f"{BEHRENS}, App. C.3.2",
        "constructions.fewer_dimensions:code",
        "bounds.coherent_counting:softmax_inventory",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot+sftm --T 32 --L 10 --d 6 --p 32",
    ),
    Claim(
        "A-rem",
        "bos+sftm with one neuron counts with d = 4 for every T and L, on a quarter circle",
        f"{BEHRENS}, remark in App. C.3.1 (eps shrinks like 1/(2 T^2), not 1/T)",
        "constructions.fewer_dimensions:quarter_circle",
        "bounds.coherent_counting:epsilon_quarter_circle",
        "verify.histogram.verdict:certify",
        "verify histogram --model bos+sftm --construction quarter-circle --T 32 --L 10",
    ),
    Claim(
        "W-2",
        "inventory counting needs even readings, not small ones: for lin and dot, if V_tt > V_st and "
        "0 < max D_ts < (L-1)/(L-2) min D_ts over s != t for each t, scales and biases exist that count",
        "this project",
        "constructions.fewer_dimensions:code, constructions.coded_inventory:on_code",
        "-",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot --T 32 --L 10 --d 8 --p 32",
    ),
    Claim(
        "W-3",
        "bos+sftm with one neuron counts on any code of distinct unit vectors in R^(d-1), so d = 3 for all T and L",
        "this project",
        "constructions.fewer_dimensions:sphere",
        "bounds.coherent_counting:epsilon_circle",
        "verify.histogram.verdict:certify",
        "verify histogram --model bos+sftm --T 32 --L 10 --d 3",
    ),
    Claim(
        "W-4",
        "dot and bos with one neuron count at d = T - 1 for all even T and all L with 2L - 3 < T - 1",
        "this project",
        "constructions.fewer_dimensions:simplex",
        "-",
        "verify.histogram.verdict:certify",
        "verify histogram --model dot --T 32 --L 10 --d 31",
    ),
    Claim(
        "W-5",
        "lin, lin+sftm and dot+sftm with p = 1 solve histogram for no d, T >= 2, L >= 2",
        "this project (for dot+sftm a sharper A-neg)",
        "-",
        "-",
        "verify.histogram.verdict:certify",
        "verify histogram --model lin --T 32 --L 10 --p 1",
    ),
    Claim(
        "W-6",
        "counting as in W-2 needs d + 1 >= T/(1 + (T-1)/(2L-3)^2) in lin, and d(d+1)/2 + 1 >= the same in dot",
        "this project",
        "-",
        "bounds.coherent_counting:rank_bound_lin, bounds.coherent_counting:rank_bound_dot",
        "verify.histogram.frontier:smallest_d",
        "verify frontier histogram --model lin --T 32 --L 10",
    ),
    Claim(
        "W-7",
        "on T >= 3 tokens e_t = (x_t, 1), no scores e_t X e_s make every token's own key its strict maximum",
        "this project",
        "-",
        "-",
        "constructions.fewer_dimensions:sphere",
        "verify histogram --model bos+sftm --T 32 --L 10 --d 2 --p 1",
    ),
    Claim(
        "W-8",
        "bos+sftm with one neuron counts in the plane (d = 2), on searched weights, at T = 3 for 2 <= L <= 10, and at "
        "L = 2 for 3 <= T <= 8",
        "this project (no weights found for T >= 4, L >= 3)",
        "constructions.fewer_dimensions:plane",
        "-",
        "verify.histogram.verdict:certify",
        "verify histogram --model bos+sftm --T 3 --L 10 --d 2",
    ),
    Claim(
        "D-1",
        "Count01 with d = 1 and N >= 5: 4 iff n1 > n0, else 5, then EOS, for all n0, n1 >= 0 and exactly the "
        "n2 < (e^(N+1)/(1+e) + e)/a - 1 - e, a = N + e/(1+e); N=10: 1497, N=15: 151915, N=20: 17108827",
        f"{COUNT01}, App. A (eight readout columns, eps = 0; the bound on n2 is ours)",
        "constructions.count01:documents",
        "bounds.count01:decision, bounds.count01:largest_noise",
        "verify.count01.verdict:certify",
        "verify count01 --N 20",
    ),
    Claim(
        "E-5",
        "noisy majority with d = 1 and N >= 5: 4 iff n0 >= n1, else 5, then EOS, for all n0, n1 >= 0 and the n2 "
        "of D-1, once the readout columns of 4 and 5 are exchanged",
        f"{FRAKNOI}, Sec. 5.3 (as printed it answers the other way round)",
        "constructions.count01:documents",
        "bounds.count01:decision, bounds.count01:largest_noise",
        "verify.count01.verdict:certify",
        "verify count01 --N 20 --labels thesis",
    ),
    Claim(
        "W-10",
        "uniform attention with d = 1, one head, K = Q = V = 1 and the skip connection solves Count01 for all "
        "n0, n1, n2 >= 0, ties included, with dyadic weights and no temperature",
        "this project",
        "constructions.count01:uniform",
        "-",
        "verify.count01.verdict:certify",
        "verify count01 --construction uniform",
    ),
    Claim(
        "E-3.4",
        "two layers of one head, width 3k+6, in constant-bit arithmetic compute any circuit by chain of thought",
        f"{FRAKNOI}, Thm. 3.4 (second input of NOT, inputs' addresses, value vector and score scale corrected)",
        "constructions.circuit_simulation:build",
        "bounds.circuit_simulation:width, bounds.circuit_simulation:required_bits",
        "verify.circuit.verdict:certify",
        "verify circuit FILE",
    ),
    Claim(
        "E-3.5",
        "every regular language, on strings of any one length, is computed by the transformer of E-3.4",
        f"{FRAKNOI}, Cor. 3.5",
        "constructions.regular_language:unroll",
        "bounds.circuit_simulation:width, bounds.circuit_simulation:required_bits",
        "verify.circuit.language:for_strings",
        "verify language REGEX --length 64",
    ),
    Claim(
        "B-2.1",
        "with the region linearly readable from keys in convex position, one cross-attention head counts: the count k "
        "is in the bias token's share 1/(k+1)",
        f"{GOLKAR}, Prop. 2.1, App. C (printed again as 3.1; the share of the bias token instead of both values)",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:share, bounds.contextual_counting:margin",
        "verify.contextual.verdict:certify",
        "verify contextual --keys convex",
    ),
    Claim(
        "B-2.2",
        "one causal head without positions places every token: with BOS and the value -1 for ], y = 1/(2r) in region r "
        "and 0 outside, for any length and number of regions",
        f"{GOLKAR}, Prop. 2.2, App. C (printed again as 3.2, where the latent before any delimiter is 0/0; softmax has "
        "none, and without BOS y = 1/(2r-1))",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:position, bounds.contextual_counting:gap, bounds.contextual_counting:encoder_leak",
        "verify.contextual.verdict:certify",
        "verify contextual --length 4096 --regions 32 --dtype float64",
    ),
    Claim(
        "B-2.1+2.2",
        "encoder and decoder of one head each, with a feed-forward layer between, count the ones of every region on "
        "all valid strings: N = 512, R = 4 in float32 and in 17 bits, N = 4096, R = 32 in float32, N = 100000, R = 32 "
        "in float64",
        f"{GOLKAR}, Sec. 2.2 (the feed-forward layer is needed for R >= 3, see W-11)",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:line, bounds.contextual_counting:largest_length",
        "verify.contextual.verdict:certify, verify.contextual.dtype:certify_in",
        "verify contextual --length 512 --regions 4 --precision float32",
    ),
    Claim(
        "B-2.3",
        "a bidirectional transformer without positions and with a permutation-invariant output cannot count regions: "
        "[1] and 1[] get one answer",
        f"{GOLKAR}, Prop. 2.3, App. C (printed again as 3.3)",
        "-",
        "-",
        "verify.contextual.impossible:no_order",
        "verify contextual --impossible 2.3",
    ),
    Claim(
        "B-2.4",
        "exact causal scores in bidirectional attention with absolute positions need d >= L; up to the row offsets "
        "that softmax ignores, d = L - 1 is needed and enough",
        f"{GOLKAR}, Prop. 2.4, App. C (printed again as 3.4 with d >= L; its proof takes the last row of a causal "
        "profile to be zero before the last entry, where it attends to all)",
        "-",
        "bounds.contextual_counting:causal_rank",
        "verify.contextual.impossible:causal_rank",
        "verify contextual --impossible 2.4",
    ),
    Claim(
        "B-2.5",
        "bidirectional ALiBi cannot tell before from after; bidirectional RoPE can, by the sign of i - j",
        f"{GOLKAR}, Remark 2.5 (which says the same of both)",
        "-",
        "-",
        "verify.contextual.impossible:no_direction",
        "verify contextual --impossible 2.5",
    ),
    Claim(
        "B-3.4",
        "the bias token decides what generalises: with BOS every length and number of regions is right; with ] every "
        "length, but only with R regions; with 0 every length and number of regions, but only with Z zeros",
        f"{GOLKAR}, Sec. 3.4, Fig. 5 (bias 0 is approximate there: the zeros of random strings vary)",
        "constructions.contextual_counting:build",
        "bounds.contextual_counting:confused, bounds.contextual_counting:first_wrong_count",
        "verify.contextual.patterns:figure5",
        "verify contextual --figure5",
    ),
    Claim(
        "W-11",
        "p ReLU neurons between a delimiter-counting head and one cross-attention head select 2p + 2 regions and no "
        "more: attention alone counts 2 regions, and for R >= 3 no fixed weights whose 1s attend to delimiters and BOS "
        "only do it for every length",
        "this project (the gap between Prop. 2.1 and 2.2 of Golkar et al.)",
        "constructions.contextual_fewest_neurons:build",
        "bounds.contextual_counting:neurons",
        "verify.contextual.impossible:no_middle",
        "verify contextual --impossible 2.1+2.2",
    ),
)
