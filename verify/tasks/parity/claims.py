"""The claim about parity."""

from verify.claims.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "W-12",
        "one layer of linear attention with max(1, L-1) ReLU neurons knows the parity of every token's count, "
        "for all T >= 1 and L >= 1, margin exactly 1",
        "this project",
        "constructions.parity:sawtooth",
        "bounds.parity:difference, bounds.parity:neurons",
        "verify.tasks.parity.task:Parity",
        "verify parity --T 32 --L 10",
        checked_at="T = 32, L = 10",
    ),
)
