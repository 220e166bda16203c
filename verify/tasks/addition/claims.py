"""Claims about adding two numbers digit by digit."""

from verify.frame.claim import FRAKNOI, Claim

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "E-4",
        "base add, make carry, sum 9 and their use on k columns of lookahead add five digits with k = 5; as described "
        "(three heads, k = 2) 135,000,000 of the 10^10 answers are wrong, the first at 00001 + 00999",
        f"{FRAKNOI}, Sec. 4 (after Quirke and Barez; described there without weights, which are ours)",
        "constructions.addition:lookahead",
        "bounds.addition:wrong_answers",
        "verify.tasks.addition.task:DigitAddition",
        "verify addition --digits 5 --lookahead 5",
        refutes=("verify addition --digits 5 --as-printed",),
        dtype="float64",
    ),
    Claim(
        "W-E4.1",
        "one layer with one head, two ReLUs and d = n + 4 adds all pairs of n-digit numbers in base B, most "
        "significant digit first, with margin B^-n/2 up to the rounding of its scores",
        "this project",
        "constructions.addition:one_head",
        "bounds.addition:one_head_margin, bounds.addition:largest_digits",
        "verify.tasks.addition.task:DigitAddition",
        "verify addition --digits 5",
        deep=(
            "verify addition --digits 12",
            "verify addition --base 2 --digits 48",
            "verify addition --digits 5 --precision float64",
            "verify addition --base 2 --digits 16 --precision float64",
        ),
        checked_at="n = 5; n = 12; n = 48, B = 2",
    ),
    Claim(
        "W-E4.2",
        "one layer with two heads, four ReLUs and d = n + 7 adds with margin 1/2 in real arithmetic, and in float32 in "
        "any order at n = 5, B = 10",
        "this project",
        "constructions.addition:two_heads",
        "bounds.addition:largest_digits",
        "verify.tasks.addition.task:DigitAddition",
        "verify addition --digits 5 --heads 2 --precision float32",
        deep=("verify addition --digits 12 --heads 2", "verify addition --digits 12 --heads 2 --precision float64"),
        checked_at="n = 5; n = 12",
    ),
    Claim(
        "W-E4.3",
        "two layers of one head, 3 + 2 neurons and d = n + 8 add n-digit numbers with a margin of about 1/2 that does "
        "not fall with n: all weights are integers and halves, and rounding to float32 or float64 in any order takes "
        "less than 0.001 of it",
        "this project",
        "constructions.addition:two_layers",
        "-",
        "verify.tasks.addition.task:DigitAddition",
        "verify addition --digits 30 --layers 2",
        deep=(
            "verify addition --digits 100 --layers 2",
            "verify addition --digits 30 --layers 2 --precision float32",
            "verify addition --digits 30 --layers 2 --precision float64",
            "verify addition --digits 100 --layers 2 --precision float32",
        ),
        checked_at="n = 30; n = 100",
    ),
)
