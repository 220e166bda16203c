"""The claim about parity."""

from verify.frame.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "W-12",
        "one layer of linear attention with max(1, L-1) ReLU neurons knows the parity of every token's count, "
        "for all T >= 1 and L >= 1, margin exactly 1, and in a format of p bits in any order of evaluation for L up to "
        "isqrt(2^p - 1) + 1: 16 in bfloat16, 4096 in float32",
        "this project",
        "constructions.parity:sawtooth",
        "bounds.parity:difference, bounds.parity:neurons, bounds.parity:longest",
        "verify.tasks.parity.task:Parity",
        "verify parity --T 32 --L 10",
        deep=(
            "verify parity --T 32 --L 10 --precision float64",
            "verify parity --T 32 --L 10 --precision float32",
            "verify parity --T 2 --L 16 --precision bfloat16",
            "verify parity --T 2 --L 4096 --precision float32",
        ),
        refutes=("verify parity --T 2 --L 17 --precision bfloat16",),
        checked_at="T = 32, L = 10; T = 2, L = 16; T = 2, L = 4096; T = 2, L = 17",
    ),
)
