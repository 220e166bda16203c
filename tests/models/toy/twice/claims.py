"""The claim about tokens that occur again."""

from verify.frame.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "TOY-1",
        "one layer of linear attention knows which tokens occur at least twice, for all T and L, margin 1/2",
        "this project",
        "verify.tasks.twice.model:orthonormal",
        "-",
        "verify.tasks.twice.task:Twice",
        "verify twice --T 4 --L 3",
    ),
)
