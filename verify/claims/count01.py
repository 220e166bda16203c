"""Claims about Count01 and noisy majority."""

from verify.claims.claim import COUNT01, FRAKNOI, Claim, Kind

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "D-1",
        "Count01 with d = 1 and N >= 5: 4 iff n1 > n0, else 5, then EOS, for all n0, n1 >= 0 and exactly the "
        "n2 < (e^(N+1)/(1+e) + e)/a - 1 - e, a = N + e/(1+e); N=10: 1497, N=15: 151915, N=20: 17108827",
        f"{COUNT01}, App. A (eight readout columns, eps = 0; the bound on n2 is ours)",
        "constructions.count01:documents",
        "bounds.count01:decision, bounds.count01:largest_noise",
        "verify.count01.verdict:certify",
        "verify count01 --N 10",
        deep=("verify count01 --N 15", "verify count01 --N 20"),
    ),
    Claim(
        "E-5",
        "noisy majority with d = 1 and N >= 5: 4 iff n0 >= n1, else 5, then EOS, for all n0, n1 >= 0 and the n2 "
        "of D-1, once the readout columns of 4 and 5 are exchanged",
        f"{FRAKNOI}, Sec. 5.3 (as printed it answers the other way round)",
        "constructions.count01:documents",
        "bounds.count01:decision, bounds.count01:largest_noise",
        "verify.count01.verdict:certify",
        "verify count01 --N 10 --labels thesis",
        deep=("verify count01 --N 15 --labels thesis", "verify count01 --N 20 --labels thesis"),
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
        "W-9",
        "without the skip connection no single Count01 head of any width is right for all n0, n1, even without twos",
        f"this project (the last sentence of App. A in {COUNT01} speaks of modified weights, right for a finite range)",
        "-",
        "-",
        "verify.count01.impossible:no_skip",
        "verify count01 --impossible W-9",
        Kind.IMPOSSIBLE,
    ),
)
