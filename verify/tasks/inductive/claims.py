"""Claims about transformers that count inductively."""

from verify.frame.claim import Claim

_WHERE = "this project, on document C"


def _built(name: str, statement: str, builder: str, command: str, *deep: str, checked_at: str) -> Claim:
    return Claim(
        name, statement, _WHERE, f"constructions.inductive.{builder}", "-",
        "verify.tasks.inductive.task:Counting", f"verify inductive {command}",
        deep=tuple(f"verify inductive {line}" for line in deep), checked_at=checked_at,
    )  # fmt: skip


CLAIMS: tuple[Claim, ...] = (
    _built(
        "C-T1",
        "one layer with one head of equal weights and no MLP counts on from a number word at the start: k a^n is "
        "answered k + n for all k + n <= M, with NoPE, RoPE, APE, SPE and SinePE, with and without LayerNorm; "
        "margin 1/(2M) without it",
        "proportions:started",
        "--task shifted --vocabulary 30",
        "--task shifted --vocabulary 1000",
        "--task helper-shifted --pe rope",
        "--task vanilla --bos --pe rope",
        "--task shifted --no-layernorm --precision float32",
        "--task shifted --vocabulary 30 --precision float32",
        checked_at="M = 30; M = 1000",
    ),
    _built(
        "C-T2",
        "one layer with BOS, one head of equal weights and K + 1 ReLU neurons knows each token's count up to C, on "
        "strings of every length, with every embedding, with and without LayerNorm",
        "proportions:selective",
        "--task selective --bos --types 4",
        "--task selective --bos --pe rope",
        "--task selective --bos --no-layernorm",
        "--task selective --bos --pe rope --precision float32",
        "--task selective --bos --types 4 --length 1000 --precision float32",
        checked_at="K = 4",
    ),
    _built(
        "C-T3",
        "the same modulo m with 1 + 2 floor((C-1)/m) neurons a type and one more",
        "proportions:selective",
        "--task selective-modular --bos --types 4",
        "--task selective-modular --bos --types 10 --pe spe",
        "--task selective-modular --bos --types 4 --length 1000 --precision float32",
        checked_at="K = 4; K = 10",
    ),
    _built(
        "C-T4",
        "SPE: one layer counts without neurons, finds the first token of any string without neurons, and counts "
        "modulo m up to length N with the fewest ReLU neurons that do (C-I5), 2 floor((N-1)/m) or one less, at every "
        "shift",
        "positional:spe",
        "--task modular --pe spe --no-layernorm --length 30 --positions 40",
        "--task modular --pe spe --length 100",
        "--task vanilla --pe spe",
        "--task first-homogeneous --pe spe",
        "--task first-heterogeneous --pe spe",
        "--task modular --pe spe --no-layernorm --length 91 --precision float32",
        checked_at="N = 30; N = 100; N = 91",
    ),
    _built(
        "C-T5",
        "APE: one layer finds the first token of any string without neurons, counts modulo m with 2 ReLU neurons, and "
        "counts to N with 4 by residues modulo two coprime numbers, at every shift",
        "positional:ape",
        "--task modular --pe ape --no-layernorm --length 30 --positions 40",
        "--task modular --pe ape",
        "--task vanilla --pe ape --positions 256",
        "--task first-homogeneous --pe ape",
        "--task first-heterogeneous --pe ape --precision float32",
        "--task modular --pe ape --no-layernorm --length 30 --positions 40 --precision float32",
        "--task vanilla --pe ape --vocabulary 110 --positions 256 --no-layernorm --precision bfloat16",
        checked_at="N = 30",
    ),
    _built(
        "C-T6",
        "SinePE: as C-T4, as the slowest sines are lines: with d = 64 up to length 200 at every shift of 1024 "
        "positions, with LayerNorm up to 512 of 512",
        "sinusoidal:sine",
        "--task modular --pe sine --length 40 --positions 50",
        "--task modular --pe sine --length 100",
        "--task modular --pe sine --d 128 --length 100",
        "--task modular --pe sine --d 256 --length 100",
        "--task modular --pe sine --d 8 --no-layernorm",
        "--task modular --pe sine --no-layernorm --precision float32",
        "--task modular --pe sine --d 128 --length 100 --precision float64",
        "--task modular --pe sine --no-layernorm --positions 1024 --length 200",
        "--task modular --pe sine --positions 512",
        "--task vanilla --pe sine",
        "--task first-heterogeneous --pe sine",
        checked_at="N = 40; d = 128; d = 256; N = 200, P = 1024; P = 512",
    ),
    _built(
        "C-T7",
        "without BOS two layers know each token's count, or that modulo m, up to C: with APE, SPE and SinePE on every "
        "string, length and shift of the table, as the first layer marks the first token; with NoPE and RoPE on "
        "strings whose first two tokens differ, up to a length that the weights hold (on others C-I2 rules it out)",
        "two_layers:unmarked",
        "--task selective --pe ape --layers 2 --types 3 --max-count 4 --positions 20",
        "--task selective --pe ape",
        "--task selective-modular --pe spe --positions 160",
        "--task selective --pe nope --distinct-start --length 100",
        "--task selective --pe rope --distinct-start --no-layernorm --precision float32",
        "--task selective --pe ape --no-layernorm --precision float32",
        "--task selective --pe ape --layers 2 --types 3 --max-count 4 --positions 20 --precision float32",
        "--task selective --pe sine --no-layernorm",
        "--task selective-modular --pe sine",
        checked_at="K = 3, C = 4, P = 20; N = 100",
    ),
    _built(
        "C-T8",
        "selective counting with BOS as C-T2 with K + 1 GELU neurons, exact or of the tanh form, at 8 and beyond, "
        "where they are their argument or 0 up to 1e-13: in real arithmetic on strings of up to 2^40 tokens",
        "proportions:selective",
        "--task selective --bos --activation gelu --types 4 --length 1000 --budget 300",
        "--task selective --bos --activation gelu --length 10000",
        "--task selective --bos --activation gelu_tanh --pe rope",
        "--task selective --bos --activation gelu --no-layernorm --length 1000 --precision float32",
        "--task selective --bos --activation gelu --types 4 --length 1000 --precision float32",
        checked_at="K = 4, N = 1000; N = 10000",
    ),
    _built(
        "C-T9",
        "one layer without BOS and MLP does vanilla counting and succession at once, with APE, SPE and SinePE at every "
        "shift of the table: a^n is answered n, and in 1 2 3 .. each number word by the next, for n and words up to M",
        "successors:succession",
        "--task succession --pe ape --vocabulary 20 --positions 30",
        "--task succession --pe ape",
        "--task succession --pe spe --precision float32",
        "--task succession --pe ape --vocabulary 20 --positions 30 --precision float32",
        "--task succession --pe sine",
        "--task succession --pe sine --no-layernorm",
        checked_at="M = 20, P = 30",
    ),
    _built(
        "C-T10",
        "one layer without BOS knows each token's count up to C, with APE, SPE and SinePE, on every string, length and "
        "shift of the table: equal weights, and a neuron for each position, whose broken line makes 1/n of n",
        "one_layer:positioned",
        "--task selective --pe ape --layers 1 --types 3 --max-count 4 --positions 20",
        "--task selective --layers 1 --pe ape",
        "--task selective --layers 1 --pe spe",
        "--task selective --layers 1 --pe spe --no-layernorm --positions 500 --effort 1000",
        "--task selective --layers 1 --pe sine",
        "--task selective --layers 1 --pe ape --precision float64",
        "--task selective --layers 1 --pe spe --precision float64",
        "--task selective --layers 1 --pe sine --no-layernorm --precision float64",
        "--task selective --layers 1 --pe ape --types 3 --max-count 4 --positions 20 --precision float64",
        checked_at="K = 3, C = 4, P = 20; P = 500",
    ),
    _built(
        "C-T11",
        "one layer without BOS (NoPE, RoPE), with one head of equal weights and K + 1 ReLU neurons, tells the first "
        "token of every string over K types whose first two differ, up to N tokens; without LayerNorm it "
        "takes d = 4",
        "first:unmixed",
        "--task first-heterogeneous --distinct-start --types 10 --length 128 --no-layernorm",
        "--task first-heterogeneous --distinct-start --types 10 --length 128",
        "--task first-heterogeneous --distinct-start --types 10 --length 128 --pe rope",
        "--task first-heterogeneous --distinct-start --types 10 --length 128 --no-layernorm --precision float64",
        "--task first-heterogeneous --distinct-start --types 10 --length 128 --pe rope --precision float64",
        checked_at="K = 10, N = 128",
    ),
    _built(
        "C-T12",
        "with BOS one layer with one head of equal weights and no MLP tells the first token of every string over K "
        "types: of every length with NoPE, and with RoPE, APE, SPE and SinePE at every shift and length of the table",
        "first:beside_bos",
        "--task first-heterogeneous --types 10 --bos",
        "--task first-heterogeneous --bos --pe rope",
        "--task first-heterogeneous --bos --pe ape --no-layernorm",
        "--task first-heterogeneous --bos --pe spe",
        "--task first-heterogeneous --bos --pe sine",
        "--task first-homogeneous --bos --pe rope",
        "--task first-heterogeneous --types 10 --bos --length 1000 --precision float32",
        "--task first-heterogeneous --bos --pe rope --precision float32",
        "--task first-heterogeneous --bos --pe sine --precision float32",
        checked_at="K = 10",
    ),
    _built(
        "C-T13",
        "modular, selective modular and, without BOS, selective counting as C-T3 to C-T7 and C-T10 with GELU neurons "
        "in place of ReLUs, exact or of the tanh form: what they read times 128 where it is whole numbers, and times "
        "64 N where it is shares, N being the longest string",
        "curved:curved",
        "--task modular --pe spe --activation gelu --length 30 --positions 40",
        "--task modular --pe ape --activation gelu --length 100",
        "--task modular --pe sine --activation gelu_tanh --length 100",
        "--task modular --pe ape --activation gelu --length 100 --no-layernorm --precision float32",
        "--task modular --pe nope --bos --activation gelu --length 100",
        "--task selective-modular --pe rope --bos --activation gelu --positions 128",
        "--task selective-modular --pe ape --activation gelu --positions 160",
        "--task selective-modular --pe sine --activation gelu --positions 160",
        "--task selective-modular --pe sine --activation gelu --positions 160 --no-layernorm",
        "--task selective --pe spe --activation gelu --layers 1",
        "--task selective --pe nope --distinct-start --activation gelu --length 100",
        "--task selective --pe spe --activation gelu --layers 1 --precision float64 --effort 1000",
        checked_at="N = 30, P = 40; N = 100; P = 128; P = 160",
    ),
)
