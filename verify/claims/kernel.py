"""Claims that are theorems in Coq's kernel: for all sizes, from real square roots and exponentials (docs/kernel.md)."""

from verify.frame.claim import COUNT01, Claim, Kind


def theorem(id: str, statement: str, source: str, *names: str) -> Claim:
    """The claim of theorems of verify/kernel/coq, the first of which its command compiles."""
    command, *deep = (f"verify kernel --theorem {name}" for name in names)
    return Claim(
        id,
        statement,
        source,
        "-",
        "-",
        "verify.kernel.general:source_of",
        command,
        Kind.THEOREM,
        deep=tuple(deep),
        needs="coqc",
    )


CLAIMS: tuple[Claim, ...] = (
    theorem(
        "K-A-4.2",
        "for all T, L and d >= max(T, 1) there is a dot model with one neuron that counts with margin 1, in real "
        "arithmetic",
        "this project (the weights of A-4.2 without tags)",
        "relation_counting",
    ),
    theorem(
        "K-W-14",
        "for all T >= 3 and L >= 1 a dot model with one neuron and d = T - 1 counts with margin 1; its numbers are "
        "rational but for a factor sqrt(d) in W_Q",
        "this project",
        "one_dimension_less",
    ),
    theorem(
        "K-W-16",
        "a dot model with softmax that counts in real arithmetic has T < 2^p, whatever its weights, for all T, L >= 2",
        "this project",
        "neurons_for_counting",
    ),
    theorem(
        "K-float",
        "with sqrt(d) rounded in W_Q the dot model of K-A-4.2 counts with margin 1, for all T and d >= max(T, 1), in "
        "every binary format of p bits with 3 L^2 < 2^p in which 1 is normal and nothing overflows: sums in any "
        "order, fused or not, rounded in any direction, scores divided by the rounded root; so it does where they may "
        "be multiplied by its rounded reciprocal instead, for d = 4^j with 2^-j normal, and with margin 1/2 where 512 "
        "(L + d + 2) L^2 <= 2^(p-1) and 12 d times the least normal number is at most 2^(1-p)",
        "this project",
        "floats_count",
        "floats_count_by_reciprocals",
        "floats_count_rounded",
        "float32_counts",
        "some_evaluation",
    ),
    theorem(
        "K-W-10",
        "uniform attention solves Count01 on every string of digits, and then says EOS, in real arithmetic",
        "this project",
        "uniform_solves",
    ),
    theorem(
        "K-D-1",
        "in real arithmetic the documents' weights, with the exact separating value and an integer N >= 5, solve "
        "Count01 for all n0, n1 where n2 is at most k, and at n1 = n0 + 1 for no other n2; k is 1497 at N = 10, "
        "151915 at 15, 17108827 at 20",
        f"{COUNT01}, App. A (eight readout columns, eps = 0; the bound on n2 is ours)",
        "documents_solve",
        "last_right_10",
        "last_right_15",
        "last_right_20",
    ),
    theorem(
        "K-W-E4.4",
        "in real arithmetic one dimension, one softmax head and two neurons add a, b < P modulo P with margin 1/2, for "
        "every P >= 2",
        "this project",
        "staircase_adds",
    ),
    theorem(
        "K-W-E4.1",
        "a softmax over keys with exact logarithms as scores, and two neurons, find every digit of every sum of two "
        "n-digit numbers in base B, for all n >= 1 and B >= 2, with margin (1/2 - 2^-12) B^-n, where the other keys, "
        "at most m, have values from 0 to B - 1 and scores of at most -(n + 2) ln B - ln m - 12 (queries and keys "
        "that give such scores are not in the theorem)",
        "this project",
        "columns_add",
    ),
)
