"""Claims about addition modulo P."""

from verify.frame.claim import FRAKNOI, Claim, Kind

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "E-4.1",
        "a clock with frequencies w_1..w_K adds modulo P: 2P - 3 neurons interpolate cos and sin of w_k (a + b), and "
        "the logits are the sums of cos(w_k (a + b - c))",
        f"{FRAKNOI}, Sec. 4 (after Nanda et al.; described there without weights, which are ours)",
        "constructions.modular:clock",
        "bounds.modular:average_margin",
        "verify.tasks.addition.modular.task:ModularAddition",
        "verify modular --P 113 --construction clock --K 3",
        checked_at="P = 113, K = 3",
        dtype="float64",
    ),
    Claim(
        "W-E4.4",
        "one dimension, one head and two ReLUs add modulo P with margin 1/2, for every P",
        "this project",
        "constructions.modular:staircase",
        "-",
        "verify.tasks.addition.modular.task:ModularAddition",
        "verify modular --P 113",
        deep=("verify modular --P 10000", "verify modular --P 113 --precision float32"),
        checked_at="P = 113; P = 10000",
    ),
    Claim(
        "W-E4.5",
        "a pizza of one frequency and odd m >= 5 neurons in two dimensions adds modulo P for odd P with P e(m) < pi: "
        "up to 117, 341, 743 for m = 5, 7, 9",
        "this project",
        "constructions.modular:pizza",
        "bounds.modular:largest_modulus",
        "verify.tasks.addition.modular.task:ModularAddition",
        "verify modular --P 113 --construction pizza",
        deep=(
            "verify modular --construction pizza --precision float32",
            "verify modular --construction pizza --K 4 --neurons-per-frequency 5 --precision float16",
            "verify modular --construction pizza --K 9 --neurons-per-frequency 5 --precision bfloat16",
        ),
        checked_at="P = 113",
    ),
    Claim(
        "W-E4.6",
        "no K frequencies have a clock margin above K P/(P-1); the best sets for P = 113 and K = 1..6 are found by a "
        "complete search, K = 5 and 6 in minutes",
        "this project",
        "-",
        "bounds.modular:average_margin",
        "verify.tasks.addition.modular.best:best",
        "verify modular --best 4",
        Kind.SEARCHED,
        deep=("verify modular --best 6",),
    ),
    Claim(
        "W-E4.7",
        "one softmax head and a linear readout, without neurons, add modulo no P >= 2, with or without positions and "
        "skip connection",
        "this project",
        "-",
        "-",
        "verify.tasks.addition.modular.impossible:no_mlp",
        "verify modular --impossible W-E4.7",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "W-E4.8",
        "a pizza adds modulo no even P, whatever its frequencies",
        "this project",
        "-",
        "-",
        "verify.tasks.addition.modular.impossible:even_pizza",
        "verify modular --impossible W-E4.8",
        Kind.IMPOSSIBLE,
    ),
    Claim(
        "W-E4.9",
        "one head, one neuron and P + 1 dimensions add modulo P = 2 and 3, with margin 2",
        "this project",
        "constructions.modular:one_neuron",
        "-",
        "verify.tasks.addition.modular.task:ModularAddition",
        "verify modular --P 3 --construction one-neuron",
        deep=("verify modular --P 2 --construction one-neuron",),
    ),
)
