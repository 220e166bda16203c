"""Claims about histogram models."""

from verify.frame.claim import BEHRENS, Claim, Kind

PLANE_SIZES = (*((3, L) for L in range(2, 11)), *((T, 2) for T in range(4, 9)))  # of W-8
PROOF = "verify.tasks.histogram.proof:certify"


def built(
    id: str, statement: str, source: str, builder: str, bound: str, options: str, *,
    deep: tuple[str, ...] = (), kind: Kind = Kind.BUILT, checked_at: str = "", shown_in: str = "",
) -> Claim:  # fmt: skip
    """A claim of weights: its functions of `constructions` and `bounds`, and options of `verify histogram`."""
    places = (_in("constructions", builder), _in("bounds", bound), PROOF)
    command, *others = (f"verify histogram {each}" for each in (options, *deep))
    return Claim(id, statement, source, *places, command, kind, tuple(others), checked_at=checked_at, shown_in=shown_in)


def impossible(id: str, statement: str, source: str, argument: str, bound: str = "-") -> Claim:
    """A claim of what no weights do, by an argument of this folder."""
    places = ("-", _in("bounds", bound), f"verify.tasks.histogram.{argument}")
    return Claim(id, statement, source, *places, f"verify histogram --impossible {id}", Kind.IMPOSSIBLE)


def _in(package: str, functions: str) -> str:
    return functions if functions == "-" else ", ".join(f"{package}.{each}" for each in functions.split(", "))


CLAIMS: tuple[Claim, ...] = (
    built(
        "A-4.1",
        "bos and bos+sftm solve histogram by relation counting for every L >= 2, d >= T > 2, p >= 1",
        f"{BEHRENS}, Prop. 4.1, App. B.2.2-B.2.3 (bias of B.2.3 corrected)",
        "relation_counting:bos, relation_counting:bos_sftm",
        "relation_counting:bos, relation_counting:bos_sftm",
        "--model bos+sftm --T 32 --L 10",
        deep=("--model bos --T 32 --L 10",),
        checked_at="T = 32, L = 10",
    ),
    built(
        "A-4.1alt",
        "bos with a zero BOS embedding solves histogram by relation counting with tagged embeddings",
        f"{BEHRENS}, App. B.2.3, alternative proof",
        "relation_counting:zero_bos",
        "relation_counting:dot",
        "--model bos --construction zero-bos --T 32 --L 10",
        checked_at="T = 32, L = 10",
    ),
    built(
        "A-4.2",
        "dot solves histogram by relation counting with tagged embeddings for d >= T > 2, p >= 1",
        f"{BEHRENS}, Prop. 4.2, App. B.2.1",
        "relation_counting:dot",
        "relation_counting:dot",
        "--model dot --T 32 --L 10",
        checked_at="T = 32, L = 10",
    ),
    built(
        "A-4.3",
        "lin and lin+sftm solve histogram by inventory counting for d >= T > 2, p >= T",
        f"{BEHRENS}, Prop. 4.3, App. B.3.1-B.3.2",
        "inventory_counting:lin, inventory_counting:lin_sftm",
        "inventory_counting:lin, inventory_counting:lin_sftm",
        "--model lin --T 32 --L 10",
        deep=("--model lin+sftm --T 32 --L 10",),
        checked_at="T = 32, L = 10",
    ),
    built(
        "A-B.1",
        "dot+sftm solves histogram by inventory counting for d >= T > 2, p >= T",
        f"{BEHRENS}, Prop. B.1, App. B.3.3",
        "inventory_counting:dot_sftm",
        "inventory_counting:dot_sftm",
        "--model dot+sftm --T 32 --L 10",
        checked_at="T = 32, L = 10",
    ),
    built(
        "A-B.4",
        "a staircase of L lines with increasing slopes maps L separated values of one scalar to L classes",
        f"{BEHRENS}, App. B.4, eq. 7-8",
        "readout_arrays:staircase",
        "readout:staircase",
        "--model dot --T 32 --L 10",
        checked_at="T = 32, L = 10",
        shown_in="A-4.2",
    ),
    built(
        "A-pad",
        "surplus dimensions and hidden neurons are zero padding: d > T, p > T or p > 1 keep working",
        f"{BEHRENS}, end of App. B.3.3",
        "histogram:HistogramTransformer",
        "relation_counting:dot, inventory_counting:dot_sftm",
        "--model dot --T 32 --L 10 --d 45 --p 7",
        checked_at="T = 32, L = 10, d = 45, p = 7",
        shown_in="A-4.2",
    ),
    Claim(
        "A-D",
        "sequences drawn by recursive partitions are run: a wrong one refutes, and none proves (their law is W-22)",
        f"{BEHRENS}, App. D (step 4 sets K = k; K = k - 1 is meant)",
        "constructions.partition_sampler:sample",
        "-",
        "verify.python.strategies:histogram_sequences",
        "verify histogram --model dot --T 32 --L 10 --method sampled",
        Kind.SAMPLED,
        refutes=("verify histogram --model bos --T 4 --L 3 --as-printed --method sampled",),
    ),
    impossible(
        "A-neg",
        "dot+sftm: along a direction common to all tokens the mixed token's component is constant",
        f"{BEHRENS}, Sec. 4.1.1",
        "impossible:common_direction",
        "relation_counting:dot_sftm_common_direction",
    ),
    built(
        "W-1",
        "dot, bos and bos+sftm also count by inventory with orthonormal tokens, for all T >= 2, L >= 1, d >= T, p >= T",
        f"ours, after {BEHRENS}, Sec. 4.1 and App. B.3",
        "inventory_counting:dot, inventory_counting:bos, inventory_counting:bos_sftm",
        "inventory_counting:dot, inventory_counting:bos_sftm",
        "--model dot --construction inventory --T 32 --L 10",
        deep=(
            "--model bos --construction inventory --T 32 --L 10",
            "--model bos+sftm --construction inventory --T 32 --L 10",
        ),
        checked_at="T = 32, L = 10",
    ),
    Claim(
        "A-4.4",
        "d < T by coherence M: lin, lin+sftm (p = T) M < 1/(2L-3); dot, bos (p = 1) the same in d - 1 dimensions; "
        "dot, bos (p = T) M < 1/sqrt(L-1), the lines with p = T being cases of W-2; with Welch, "
        "d > T x^2/(T - 1 + x^2) where a ceiling is printed",
        f"{BEHRENS}, Prop. 4.4, App. C.2 (strict; evaluated at T=32, L=10 the third d is 8, not 7)",
        "constructions.frames.choice:low_coherence, constructions.fewer_dimensions:coherent",
        "bounds.coherent_counting:lin, bounds.coherent_counting:dot_one_neuron, bounds.coherent_counting:dot_inventory",
        "verify.tasks.histogram.proof:certify, verify.tasks.histogram.coherence:certify_coherence",
        "verify histogram --model dot --construction coherent --T 36 --L 3 --d 16",
        deep=(
            "verify histogram --model bos --construction coherent --T 36 --L 3 --d 16",
            "verify histogram --model lin --construction coherent --T 36 --L 3 --d 15",
            "verify histogram --model lin+sftm --construction coherent --T 36 --L 3 --d 15",
            "verify histogram --model dot --construction coherent --T 28 --L 9 --d 7 --p 28",
            "verify histogram --model bos --construction coherent --T 28 --L 9 --d 7 --p 28",
        ),
        checked_at="T = 36, L = 3, d = 16; T = 36, L = 3, d = 15; T = 28, L = 9, d = 7",
    ),
    built(
        "A-4.5",
        "bos+sftm with one neuron counts on a binary code (digits normalised, or signs): d = ceil(log2(T+1)) + 2, "
        "for every L",
        f"{BEHRENS}, Prop. 4.5, App. C.3.1 (norm of eq. 70 and sign of eq. 69 corrected; d = 8 at T=32, not 7)",
        "fewer_dimensions:binary",
        "coherent_counting:softmax_relation, coherent_counting:kappa_equation",
        "--model bos+sftm --construction binary --T 32 --L 10",
        checked_at="T = 32, L = 10",
    ),
    built(
        "A-C.3.2",
        "dot+sftm with p = T counts at T=32, L=10 with d = 6 = ceil(log2(T+1)), on a searched code",
        f"{BEHRENS}, Prop. 4.5, App. C.3.2 (printed for every L, by an argument that does not carry over; at "
        "L = 15 and 30 the smallest d found is 11 and 23; at T = 7, L = 50 fewer than printed suffice, W-20)",
        "fewer_dimensions:code",
        "coherent_counting:softmax_inventory",
        "--model dot+sftm --T 32 --L 10 --d 6 --p 32",
        kind=Kind.SEARCHED,
    ),
    built(
        "A-rem",
        "bos+sftm with one neuron counts with d = 4 for every T and L, on a quarter circle",
        f"{BEHRENS}, remark in App. C.3.1 (eps shrinks like 1/(2 T^2), not 1/T)",
        "fewer_dimensions:quarter_circle",
        "coherent_counting:epsilon_quarter_circle",
        "--model bos+sftm --construction quarter-circle --T 32 --L 10",
        checked_at="T = 32, L = 10",
    ),
    built(
        "W-2",
        "inventory counting needs even readings, not small ones: for lin and dot, if V_tt > V_st and "
        "0 < max D_ts < (L-1)/(L-2) min D_ts over s != t for each t, scales and biases exist that count",
        "this project",
        "fewer_dimensions:code, coded_inventory:on_code",
        "-",
        "--model dot --T 32 --L 10 --d 8 --p 32",
        deep=(
            "--model dot --T 32 --L 10 --d 12 --p 32",
            "--model lin --T 32 --L 10 --d 29 --construction code",
            "--model lin+sftm --T 32 --L 10 --d 29 --construction code",
        ),
        checked_at="T = 32, L = 10, d = 8; T = 32, L = 10, d = 12; T = 32, L = 10, d = 29",
    ),
    built(
        "W-3",
        "bos+sftm with one neuron counts on any code of distinct unit vectors in R^(d-1), so d = 3 for all T and L",
        "this project",
        "fewer_dimensions:sphere",
        "coherent_counting:epsilon_circle",
        "--model bos+sftm --T 32 --L 10 --d 3",
        checked_at="T = 32, L = 10, d = 3",
    ),
    built(
        "W-4",
        "dot and bos with one neuron count at d = T - 1 for all even T and all L with 2L - 3 < T - 1",
        "this project",
        "fewer_dimensions:simplex",
        "-",
        "--model dot --T 32 --L 10 --d 31",
        deep=("--model bos --T 32 --L 10 --d 31",),
        checked_at="T = 32, L = 10, d = 31",
    ),
    impossible(
        "W-5",
        "lin, lin+sftm and dot+sftm with p = 1 solve histogram for no d, T >= 2, L >= 2",
        "this project (for dot+sftm a sharper A-neg)",
        "impossible:one_neuron",
    ),
    impossible(
        "W-6",
        "counting as in W-2 needs d + 1 >= T/(1 + (T-1)/(2L-3)^2) in lin, and d(d+1)/2 + 1 >= the same in dot",
        "this project",
        "impossible:rank_of_readings",
        "coherent_counting:rank_bound_lin, coherent_counting:rank_bound_dot",
    ),
    impossible(
        "W-7",
        "on T >= 3 tokens e_t = (x_t, 1), no scores e_t X e_s make every token's own key its strict maximum",
        "this project",
        "impossible:tokens_on_a_line",
    ),
    Claim(
        "W-8",
        "bos+sftm with one neuron counts in the plane (d = 2), on searched weights, at T = 3 for 2 <= L <= 10, and at "
        "L = 2 for 3 <= T <= 8",
        "this project (no weights found for T >= 4, L >= 3)",
        "constructions.fewer_dimensions:plane",
        "-",
        "verify.tasks.histogram.proof:certify",
        "verify histogram --model bos+sftm --T 3 --L 3 --d 2",
        Kind.SEARCHED,
        deep=tuple(f"verify histogram --model bos+sftm --T {T} --L {L} --d 2" for T, L in PLANE_SIZES),
    ),
    built(
        "W-13",
        "dot+sftm counts with p = ceil(log2(T+1)) neurons at d = T - 1 and more, for every T >= 2 and L; the document "
        "says that p >= T is required",
        "this project",
        "exact_laws:logarithmic",
        "exact_laws:fewest_neurons",
        "--model dot+sftm --T 32 --L 10 --d 31 --p 6",
        checked_at="T = 32, L = 10, d = 31, p = 6",
    ),
    built(
        "W-14",
        "dot and bos with one neuron count at d = T - 1 for every T >= 2 and every L, by a reading that depends on the "
        "count alone",
        "this project",
        "exact_laws:rational",
        "exact_laws:fewest_dimensions_of_one_neuron",
        "--model dot --T 32 --L 30 --d 31 --p 1",
        checked_at="T = 32, L = 30, d = 31",
    ),
    built(
        "W-15",
        "lin and lin+sftm with p = T count at d = T - floor(T/L) for 2 <= L <= T, on overlaps that are even between "
        "and inside blocks of tokens: d = T - 2 for L <= floor(T/2)",
        "this project",
        "exact_laws:balanced",
        "exact_laws:fewest_dimensions_of_blocks",
        "--model lin --T 32 --L 16 --d 30",
        deep=("--model lin+sftm --T 32 --L 10 --d 29 --construction balanced",),
        checked_at="T = 32, L = 16, d = 30; T = 32, L = 10, d = 29",
    ),
    impossible(
        "W-16",
        "dot+sftm and lin+sftm with 2^p - 1 < T solve histogram for no d and no L >= 2",
        "this project",
        "impossible:few_neurons",
        "exact_laws:fewest_neurons",
    ),
    impossible(
        "W-17",
        "dot and bos with one neuron solve histogram for no d < T - 1 once L >= floor(T/2) + 1",
        "this project",
        "impossible:few_dimensions",
        "exact_laws:fewest_dimensions_of_one_neuron",
    ),
    impossible(
        "W-18",
        "dot and bos with one neuron need d >= T - 1 - m, and so do lin and lin+sftm, with d(d+1)/2 for d in dot and "
        "bos, where neurons keep their sides on counts 1 and 2; m is the largest dimension on which "
        "(2L-2) max|u| < sum|u|: d = 29 and 8 are optimal there at T = 32, L = 10; in lin such a space is also enough",
        "this project",
        "impossible:even_readings",
        "even_readings:widest_kernel, even_readings:fewest_in_the_regime",
    ),
    built(
        "W-20",
        "dot+sftm with p = T counts at T = 7, L = 50 with d = 4, and at T = 5 and L = 10, 30, 50 with d = 3, on "
        "searched codes on which every other token takes the same share times drop; Prop. 4.5 states that "
        "d = ceil(log2(T+1)) + 2 = 5 suffices, its appendix that 3 does",
        "this project",
        "codes.even:search_even, fewer_dimensions:code",
        "-",
        "--model dot+sftm --T 7 --L 50 --d 4 --p 7 --dtype float64",
        deep=(
            "--model dot+sftm --T 5 --L 10 --d 3 --p 5 --dtype float64",
            "--model dot+sftm --T 5 --L 30 --d 3 --p 5 --dtype float64",
            "--model dot+sftm --T 5 --L 50 --d 3 --p 5 --dtype float64",
            "--model dot+sftm --T 7 --L 50 --d 4 --p 7 --precision float64",
            "--model dot+sftm --T 5 --L 10 --d 3 --p 5 --precision float64",
            "--model dot+sftm --T 5 --L 30 --d 3 --p 5 --precision float64",
        ),
        kind=Kind.SEARCHED,
        shown_in="A-C.3.2",
    ),
    Claim(
        "W-21",
        "lin and lin+sftm whose neurons keep their sides on counts 1 and 2 count at d exactly where some space of "
        "T - 1 - d dimensions, of vectors u that sum to 0, has (2L-2) max|u| < sum|u| throughout; for a given space "
        "rationals decide it, by N with N u = -u and |N_ts| < 1/(2L-3) or by a vector u",
        "this project",
        "constructions.exact_laws:on_kernel",
        "verify.tasks.histogram.kernels:decide_kernel",
        "verify.tasks.histogram.proof:certify",
        "verify histogram --model lin+sftm --T 9 --L 3 --kernel 1,1,1,-1,-1,-1,0,0,0:1,1,1,0,0,0,-1,-1,-1",
        deep=("verify histogram --model lin --T 10 --L 2 --kernel 2,1,-1,-2,1,-1,2,-2,1,-1",),
        refutes=(
            "verify histogram --model lin+sftm --T 9 --L 4 --kernel 1,1,1,-1,-1,-1,0,0,0:1,1,1,0,0,0,-1,-1,-1",
            "verify histogram --model lin --T 4 --L 3 --kernel 1,-1,1,-1",
        ),
        checked_at="T = 9, L = 3; T = 10, L = 2",
    ),
    Claim(
        "W-22",
        "under the law of App. D every position's count is uniform on 1..L, for T >= L, as block sizes are the cycle "
        "lengths of a uniform permutation; so accuracies and confusion matrices are exact fractions under it: "
        "a model that answers every count below L one too high is right with probability 1/L",
        f"this project, about {BEHRENS}, App. D and Fig. 5",
        "-",
        "verify.tasks.histogram.laws:partitions",
        "verify.tasks.histogram.confusion:confusion",
        "verify histogram --model bos+sftm --T 32 --L 10 --law partitions",
        refutes=("verify histogram --model bos --T 4 --L 3 --as-printed --law partitions",),
        checked_at="T = 32, L = 10; T = 4, L = 3",
    ),
    built(
        "W-23",
        "bos+sftm with one neuron counts on the digits of tokens in any base b, d = 2 ceil(log_b T) + 1 (in base 2, "
        "of signs, ceil(log2 T) + 1), so that dimensions buy temperature: at T = 32, L = 10 the inverse temperature "
        "falls from 150 (d = 3) to 12 (d = 5) and 7 (d = 6)",
        f"this project, after {BEHRENS}, App. C.3.1, end of the remark",
        "fewer_dimensions:digits",
        "coherent_counting:softmax_relation",
        "--model bos+sftm --construction digits --T 32 --L 10 --d 5",
        deep=("--model bos+sftm --construction digits --T 32 --L 10 --d 6",),
        checked_at="T = 32, L = 10, d = 5; T = 32, L = 10, d = 6",
    ),
    impossible(
        "W-24",
        "lin and lin+sftm with p < T solve histogram for no d at L >= 2 T^8, and with d < T - 1 for no L with "
        "p R C(h, h/2) < 2^h, R = ceil((T+1)/2), h = floor((L-1-R)/(T (T-1)/2)), for all weights: on long sequences "
        "they count iff p >= T and d >= T - 1",
        "this project",
        "long_sequences:long_sequences",
        "exact_laws:lin_needs_dimensions, exact_laws:lin_needs_neurons",
    ),
    impossible(
        "W-27",
        "two layers of lin+sftm with one neuron each count for no d, T >= 2, L >= 2; nor do more layers",
        f"this project, on {BEHRENS}, App. E.8",
        "impossible:one_neuron_twice",
    ),
)
