"""Claims about recurrent networks that count."""

from verify.frame.claim import Claim, Kind

_WHERE = "this project, on document C"
_VERIFIER = "verify.tasks.recurrent.task:Homogeneous"
_SELECTIVE = "verify inductive --model rnn --types 10 --task"
_HOLDING = "verify inductive --task selective --types 10 --max-count 10 --model"
_RNN = "verify inductive --task modular --model rnn"


def _built(
    name: str, statement: str, builder: str, command: str, *deep: str, bound: str = "-", checked_at: str = ""
) -> Claim:
    place = f"constructions.recurrent.counters:{builder}"
    return Claim(name, statement, _WHERE, place, bound, _VERIFIER, command, deep=deep, checked_at=checked_at)


def _selective(name: str, statement: str, builder: str, command: str, *deep: str, checked_at: str) -> Claim:
    place, verifier = f"constructions.recurrent.selective:{builder}", "verify.tasks.recurrent.selective:Selective"
    return Claim(name, statement, _WHERE, place, "-", verifier, command, deep=deep, checked_at=checked_at)


def _beside(
    name: str,
    statement: str,
    builder: str,
    command: str,
    *deep: str,
    checked_at: str,
    refutes: tuple[str, ...] = (),
    dtype: str = "float32",
) -> Claim:
    place, selective = f"constructions.recurrent.{builder}", "verify.tasks.recurrent.selective:Selective"
    verifier = selective if "selective" in command else _VERIFIER
    return Claim(
        name, statement, _WHERE, place, "-", verifier, command, deep=deep, checked_at=checked_at, refutes=refutes,
        dtype=dtype,
    )  # fmt: skip


def _impossible(name: str, statement: str, bound: str, place: str) -> Claim:
    command = f"verify inductive --impossible {name}"
    verifier = f"verify.tasks.recurrent.impossible:{place}"
    return Claim(name, statement, _WHERE, "-", f"bounds.recurrent:{bound}", verifier, command, Kind.IMPOSSIBLE)


CLAIMS: tuple[Claim, ...] = (
    _impossible(
        "C-R1",
        "one unit with a monotone activation counts modulo m to m at most for even m >= 4, to 2m for odd m",
        "one_unit",
        "one_monotone_unit",
    ),
    _impossible(
        "C-R2",
        "s positive decays and a linear readout count modulo m to m(s+1)/2 at most for odd s, to ms/2 + 1 for even s",
        "decays",
        "few_decays",
    ),
    _built(
        "C-R3",
        "two tanh units count modulo m at every length, for m = 3..12",
        "cycle",
        f"{_RNN} --modulus 10",
        *(f"{_RNN} --modulus {m}" for m in (3, 4, 5, 6, 7, 8, 9, 11, 12)),
        f"{_RNN} --modulus 10 --precision float32",
        f"{_RNN} --modulus 10 --dtype bfloat16 --method exhaustive",
    ),
    _built(
        "C-R4",
        "four tanh units count modulo 110 at every length: one cycle for each of some coprime factors, logits added",
        "chinese",
        f"{_RNN} --modulus 110",
    ),
    _built(
        "C-R5",
        "m ReLU units count modulo m at every length, exactly",
        "ring",
        f"{_RNN} --modulus 10 --activation relu",
        checked_at="m = 10",
    ),
    _built(
        "C-R6",
        "a Johnson counter of m/2 + 1 tanh units counts modulo m at every length, for even m >= 4",
        "johnson",
        f"{_RNN} --modulus 10 --d 6",
        f"{_RNN} --modulus 10 --d 6 --precision p12",
        checked_at="m = 10",
    ),
    _built(
        "C-R7",
        "a dense integer state space of width phi(m) counts modulo m at every length, exactly",
        "cyclotomic",
        "verify inductive --task modular --modulus 10 --model ssm",
        bound="bounds.recurrent:totient",
        checked_at="m = 10",
    ),
    _selective(
        "C-R8",
        "2KC + 1 tanh units count each of K types up to C in every string of every length",
        "thermometer",
        f"{_SELECTIVE} selective --max-count 10",
        f"{_SELECTIVE} selective --max-count 10 --precision p8",
        f"{_SELECTIVE} selective --max-count 10 --precision float32",
        checked_at="K = 10, C = 10",
    ),
    _selective(
        "C-R9",
        "2m - 1 ReLU units a type count each type modulo m in every string of every length, exactly",
        "rings",
        f"{_SELECTIVE} selective-modular --modulus 4",
        f"{_SELECTIVE} selective-modular --modulus 4 --precision float32",
        checked_at="K = 10, m = 4",
    ),
    _beside(
        "C-R10",
        "one LSTM unit a type counts K types up to C in every string of every length bit by bit, where sigma(B) rounds "
        "to 1; in real arithmetic the same weights forget a count of 10 after 26,983,199 tokens of another type",
        "holding:counters",
        f"{_HOLDING} lstm --dtype float32 --method exhaustive",
        f"{_HOLDING} lstm --length 1000",
        checked_at="K = 10, C = 10",
        refutes=(f"{_HOLDING} lstm --dtype float32",),
    ),
    _beside(
        "C-R11",
        "one LSTM unit counts a single token up to M",
        "holding:counter",
        "verify inductive --task vanilla --vocabulary 100 --model lstm",
        checked_at="M = 100",
    ),
    _beside(
        "C-R12",
        "one ReLU unit counts vanilla, from a shifted start and after a helper token, exactly",
        "counters:adder",
        "verify inductive --task vanilla --vocabulary 100 --model rnn",
        "verify inductive --task helper-shifted --model rnn --vocabulary 30",
        checked_at="M = 100; M = 30",
    ),
    _beside(
        "C-R13",
        "s positive decays reach the bound of C-R2 exactly",
        "diagonal:decays",
        "verify inductive --task modular --modulus 10 --model decay --length 20",
        "verify inductive --task modular --modulus 10 --model decay --d 4 --length 21",
        "verify inductive --task modular --modulus 7 --model decay --d 3 --length 14",
        "verify inductive --task modular --modulus 7 --model decay --d 4 --length 15",
        checked_at="m = 10, N = 20; m = 10, s = 4, N = 21; m = 7, s = 3, N = 14; m = 7, s = 4, N = 15",
        dtype="float64",
    ),
    _beside(
        "C-R14",
        "one rotation by the stored angle nearest to 2 pi/m counts modulo m = 2..10 to at least 0.9 times the bound of "
        "C-R15, whose command prints the share; modulo 10 in float32 to 34,812,632 tokens and no further",
        "diagonal:rotation",
        "verify inductive --task modular --modulus 10 --model s4 --dtype float32 --length 1000000",
        "verify inductive --task modular --modulus 7 --model s4 --dtype float32 --length 1000000",
        "verify inductive --task modular --modulus 10 --model s4 --dtype float32 --length 1000 --method exhaustive",
        checked_at="m = 10, N = 1000000; m = 7, N = 1000000",
        refutes=("verify inductive --task modular --modulus 10 --model s4 --dtype float32",),
    ),
    _impossible(
        "C-R15",
        "one rotation by a stored angle omega counts modulo m to (2 pi/m)/|omega - 2 pi/m| + 2m + 1 at most",
        "rotation_limit",
        "stored_rotation",
    ),
    _beside(
        "C-R16",
        "Mamba-like and RWKV-like cells with s states reach the bound of C-R2 on one repeated token",
        "gated:decays",
        "verify inductive --task modular --modulus 10 --model mamba --length 20",
        "verify inductive --task modular --modulus 10 --model rwkv --d 4 --length 21",
        checked_at="m = 10, N = 20; m = 10, s = 4, N = 21",
        dtype="float64",
    ),
    _beside(
        "C-R17",
        "one state a type of a Mamba-like or RWKV-like cell counts K types up to C in every string of every length bit "
        "by bit, where the decay rounds to 1; in real arithmetic the same weights forget",
        "gated:counters",
        f"{_HOLDING} mamba --dtype float32 --method exhaustive",
        f"{_HOLDING} rwkv --dtype float32 --method exhaustive",
        f"{_HOLDING} rwkv --length 1000",
        checked_at="K = 10, C = 10",
        refutes=(f"{_HOLDING} mamba --dtype float32", f"{_HOLDING} rwkv --dtype float32"),
    ),
    _selective(
        "C-R18",
        "2K ReLU units count each of K types in all strings of up to N tokens, N being stored, and not beyond",
        "adders",
        f"{_SELECTIVE} selective --max-count 10 --activation relu --length 100",
        checked_at="K = 10, C = 10, N = 100",
    ),
    _beside(
        "C-R19",
        "one LSTM unit counts on from a number word and after a helper token, up to M",
        "holding:starting",
        "verify inductive --task helper --vocabulary 100 --model lstm",
        "verify inductive --task shifted --model lstm --vocabulary 30",
        "verify inductive --task helper-shifted --model lstm --vocabulary 20",
        checked_at="M = 100; M = 30; M = 20",
    ),
    _beside(
        "C-R20",
        "2mK + 1 LSTM units count each of K types modulo m in every string of every length",
        "holding:rings",
        "verify inductive --task selective-modular --model lstm --types 10 --modulus 4",
        "verify inductive --task selective-modular --model lstm --types 10 --modulus 4 --precision float32",
        "verify inductive --task modular --model lstm --modulus 10",
        "verify inductive --task modular --model lstm --modulus 10 --precision float32",
        checked_at="K = 10, m = 4; m = 10",
    ),
    _beside(
        "C-R21",
        "one state h' = a h + b(token) with one decay 0 < a < 1, as one layer of S4, Mamba and RWKV has it, counts a "
        "single token, on from a number word and after a helper token, up to M",
        "gated:starting",
        "verify inductive --task helper-shifted --vocabulary 100 --model s4",
        "verify inductive --task shifted --vocabulary 100 --model mamba",
        "verify inductive --task helper --vocabulary 100 --model rwkv",
        "verify inductive --task vanilla --vocabulary 100 --model s4",
        "verify inductive --task helper-shifted --vocabulary 100 --model mamba --dtype float32 --method exhaustive",
        checked_at="M = 100",
    ),
    _beside(
        "C-R22",
        "one state a type of S4, whose decay is the same at all tokens, and one ReLU neuron a type after it count K "
        "types up to C in all strings of up to N tokens; with 2 ceil(C/m) - 1 neurons a type they count modulo m, as "
        "one state of Mamba and RWKV with 2 ceil(N/m) - 1 neurons does on one repeated token",
        "gated:layered",
        "verify inductive --task selective --types 10 --max-count 10 --model s4 --length 100",
        "verify inductive --task selective --types 10 --max-count 10 --model s4 --length 100 --precision float32",
        "verify inductive --task selective-modular --types 10 --max-count 10 --modulus 4 --model s4 --length 128",
        "verify inductive --task selective-modular --types 10 --max-count 10 --modulus 4 --model s4 --length 128 "
        "--precision float32",
        "verify inductive --task modular --modulus 10 --model mamba --activation relu --length 100",
        "verify inductive --task modular --modulus 10 --model rwkv --activation relu --length 100",
        "verify inductive --task modular --modulus 10 --model rwkv --activation relu --length 100 --dtype float32 "
        "--method exhaustive",
        checked_at="K = 10, C = 10, N = 100; K = 10, C = 10, m = 4, N = 128; m = 10, N = 100",
    ),
    _impossible(
        "C-R23",
        "s positive decays, p ReLU neurons that see them, and a linear readout count modulo m no further than "
        "s(ps + 1) decays without neurons",
        "decays_and_neurons",
        "decays_with_neurons",
    ),
    Claim(
        "C-R24",
        "a linear state space whose decay is the same at all tokens, with a linear readout, does not count two types "
        "in all strings of two tokens",
        _WHERE,
        "-",
        "-",
        "verify.tasks.recurrent.impossible:linear_in_the_past",
        "verify inductive --impossible C-R24",
        Kind.IMPOSSIBLE,
    ),
    _beside(
        "C-R25",
        "as many states a type of Mamba and RWKV as C-R2 asks for, held at the tokens of other types, and a linear "
        "readout count K types modulo m up to C in all strings of up to N tokens",
        "gated:decays",
        "verify inductive --task selective-modular --types 10 --max-count 10 --modulus 4 --model mamba --length 128",
        "verify inductive --task selective-modular --types 10 --max-count 10 --modulus 4 --model rwkv --length 128",
        "verify inductive --task selective-modular --types 10 --max-count 10 --modulus 4 --model mamba --length 128 "
        "--precision float32",
        "verify inductive --task selective-modular --types 10 --max-count 10 --modulus 4 --model rwkv --length 128 "
        "--precision float32",
        checked_at="K = 10, C = 10, m = 4, N = 128",
    ),
)
