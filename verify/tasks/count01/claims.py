"""Claims about Count01 and noisy majority."""

from verify.frame.claim import COUNT01, FRAKNOI, Claim, Kind

_PAIRS = "verify count01 --construction"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "D-1",
        "Count01 with d = 1 and N >= 5: 4 iff n1 > n0, else 5, then EOS, for all n0, n1 >= 0 and exactly the "
        "n2 < (e^(N+1)/(1+e) + e)/a - 1 - e, a = N + e/(1+e); N=10: 1497, N=15: 151915, N=20: 17108827",
        f"{COUNT01}, App. A (eight readout columns, eps = 0; the bound on n2 is ours)",
        "constructions.count01:documents",
        "bounds.count01:decision, bounds.count01:largest_noise",
        "verify.tasks.count01.verdict:certify",
        "verify count01 --N 10",
        deep=("verify count01 --N 15", "verify count01 --N 20"),
        checked_at="N = 10; N = 15; N = 20",
        dtype="float64",
    ),
    Claim(
        "E-5",
        "noisy majority with d = 1 and N >= 5: 4 iff n0 >= n1, else 5, then EOS, for all n0, n1 >= 0 and the n2 "
        "of D-1, once the readout columns of 4 and 5 are exchanged",
        f"{FRAKNOI}, Sec. 5.3 (as printed it answers the other way round)",
        "constructions.count01:documents",
        "bounds.count01:decision, bounds.count01:largest_noise",
        "verify.tasks.count01.verdict:certify",
        "verify count01 --N 10 --labels thesis",
        deep=("verify count01 --N 15 --labels thesis", "verify count01 --N 20 --labels thesis"),
        checked_at="N = 10; N = 15; N = 20",
        dtype="float64",
    ),
    Claim(
        "D-2",
        "with layer norm (torch's, eps 1e-5) one head with d = 4, d_h = 1 and equal weights solves Count01 for all "
        "n0, n1, n2 >= 0, ties included, with numbers of 7 bits",
        f'{COUNT01}, Sec. 4 and 4.1 ("with or without layer norm"; weights are printed for d = 1 without it)',
        "constructions.count01:normed",
        "-",
        "verify.tasks.count01.layer_norm.common_root:exact_model",
        "verify count01 --construction layer-norm",
        deep=(
            "verify count01 --construction layer-norm --labels thesis",
            "verify count01 --construction layer-norm --max-digits 12 --max-noise 6 --precision float32",
            "verify count01 --construction layer-norm --max-digits 12 --max-noise 6 --method exhaustive "
            "--dtype float32",
        ),
    ),
    Claim(
        "W-10",
        "uniform attention with d = 1, one head, K = Q = V = 1 and the skip connection solves Count01 for all "
        "n0, n1, n2 >= 0, ties included, with dyadic weights and no temperature",
        "this project",
        "constructions.count01:uniform",
        "-",
        "verify.tasks.count01.verdict:certify",
        "verify count01 --construction uniform",
    ),
    Claim(
        "W-9",
        "without the skip connection no single Count01 head of any width is right for all n0, n1, even without twos",
        f"this project (the last sentence of App. A in {COUNT01} speaks of modified weights, right for a finite range)",
        "-",
        "-",
        "verify.tasks.count01.impossible:no_skip",
        "verify count01 --impossible W-9",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "H-1",
        "one head separates n1 > n0 from n1 <= n0 on all of N^3 if and only if some (w, b) has w_1 s_1 = -w_0 s_0 = 1, "
        "s_2 = 0 and -1 < w_BOS s_BOS + w_= s_= <= 0, s_t = w . v_t + b: for d_h = 1 only if v_2 is the balance point, "
        "for d_h = 2 with affinely independent values iff -1 < kappa <= 0, for d_h >= 3 with an independent "
        "normaliser always",
        "this project",
        "constructions.count01_heads:uniform_head",
        "bounds.count01_heads:separates_everything",
        "verify.tasks.count01.heads.separability:separability",
        "verify heads --values=-1:1:0:-1/2:0 --law unbounded",
        deep=(
            "verify heads --values=-1,0:1,0:0,1:-1/2,0:0,0 --law unbounded",
            "verify heads --values=-1,0,0:1,0,0:0,1,0:0,0,1:1,1,1 --law unbounded",
        ),
        refutes=(
            "verify heads --values=-1:1:1:0:0 --law unbounded",
            "verify heads --values=-1,0:1,0:0,1:-1,0:0,0 --law unbounded",
            "verify heads --values=-1,0:1,0:0,1:1/2,0:0,0 --law unbounded",
        ),
        checked_at="law = unbounded",
        exact="which values can be separated, by any numbers; W-10 has weights, and H-4 and H-6 weights of two heads",
    ),
    Claim(
        "H-2",
        "with BOS and = zeroed and v_1 > v_0, a one-dimensional head separates [lo, hi]^2 x [0, M] iff v_2 = x* = "
        "(w01 v_0 + v_1)/(1 + w01), or v_2 < x* and w02 > M (w01 (v_0 - v_2) + v_1 - v_2)/(v_1 - v_0), or v_2 > x* and "
        "lo w02 > M [(v_2 - x*)((1 + w01)(hi - 1) + 1)/(v_1 - v_0) - w01/(1 + w01)]",
        f"this project; {COUNT01}, Fig. 8 and {FRAKNOI}, Fig. 7 and 8 show it by samples",
        "-",
        "bounds.count01_heads:separates",
        "verify.tasks.count01.heads.phase:decided",
        "verify heads --ratios 1,11 --values=-1,1,3 --law box:10:20:1",
        deep=(
            "verify heads --ratios 1,201 --values=-1,1,-1 --law d-test",
            "verify heads --ratios 3,1/1000 --values=-1,1,-1/2 --law d-test",
        ),
        checked_at="law = box:10:20:1; law = d-test",
    ),
    Claim(
        "H-3",
        "where 2s get no attention (w02 infinite; BOS and = zeroed) a head separates all n0 + n1 > 0 for every "
        "0 < w01 < infinity if and only if v_0 != v_1",
        f"{FRAKNOI}, Sec. 5.4 (its point lacks a division by w0 + w1); {COUNT01}, Fig. 8 shows a drop, the SVC's",
        "-",
        "bounds.count01_heads:balance",
        "verify.tasks.count01.heads.phase:decided",
        "verify heads --ratios 1000000,inf --values=-1,1,3 --law d-test",
        deep=("verify heads --ratios 1/1000000,inf --values=1,-1,3 --law box:0:200:200",),
        checked_at="law = d-test; law = box:0:200:200",
    ),
    Claim(
        "H-4",
        "two heads, one saying the share of 0s and one that of 1s, solve Count01 for all n0, n1, n2 together, and "
        "neither separates any box with lo < hi alone",
        f"{COUNT01}, Sec. 6.1 (named there, built here)",
        "constructions.count01_heads:counting_pair",
        "-",
        "verify.tasks.count01.heads.joint:joint",
        "verify heads --construction counting-pair --law box:0:60:60 --extract 0,1",
        deep=(f"{_PAIRS} counting-pair --max-digits 60 --max-noise 60 --precision float32",),
        checked_at="law = box:0:60:60",
    ),
    Claim(
        "H-5",
        "whether one head separates a box [lo, hi]^2 x [0, M] is a linear programme with 12 rows, three corners of "
        "each side times n2 in {0, M}; a separator, or at most d_h + 2 rows with a nonnegative combination to zero, "
        "certifies the answer",
        "this project",
        "-",
        "-",
        "verify.tasks.count01.heads.separability:separability",
        "verify heads --construction uniform --law d-test --extract 0",
        deep=("verify heads --values=-1,0:1,0:0,1:-1,0:0,0 --law d-test",),
        refutes=("verify heads --values=-1:1:1:0:0 --law d-test",),
        checked_at="law = d-test",
    ),
    Claim(
        "H-6",
        "two heads, one of which separates n0, n1 and n2 <= M - 1 and the other M - 1 <= n2 <= 2M - 2, solve Count01 "
        "for all n0, n1, n2 together, for M a power of two; neither separates a box with n2 <= 2M - 2 alone",
        f"{COUNT01}, Sec. 6.1 (named there, built here)",
        "constructions.count01_heads:interval_pair",
        "-",
        "verify.tasks.count01.heads.joint:joint",
        "verify heads --construction interval-pair --law box:0:60:14 --extract 0,1",
        deep=(
            "verify heads --construction interval-pair --law box:0:60:60 --extract 0,1",
            "verify heads --construction interval-pair --law box:0:60:7 --extract 0,1",
            f"{_PAIRS} interval-pair --max-digits 60 --max-noise 60 --precision float32",
        ),
        checked_at="law = box:0:60:7; law = box:0:60:14; law = box:0:60:60",
    ),
)
