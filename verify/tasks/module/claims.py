"""Claims about modules of their own: the task files that decide them stand in the table."""

from verify.frame.claim import BEHRENS, Claim


def task_file(V: int, n: int) -> str:
    return f"""'''W-25: the largest of {n} tokens.'''
from constructions.largest import steep
from verify.module import Task, largest, tokens

def model(weights):
    return steep(V={V}, n={n})

task = Task(inputs=tokens([{V}] * {n}), expected=largest)
"""


SIZES = ((64, 8), (64, 4), (12, 30), (12, 4))
FILES = {f"largest-{V}-{n}.py": task_file(V, n) for V, n in SIZES}
COMMAND, *DEEP = (f"verify module {name} --budget 300" for name in FILES)


def two_layers(builder: str, T: int, L: int) -> str:
    module, _, function = builder.partition(":")
    return f"""'''A-E.8: {function}, two layers, T = {T}, L = {L}'''
from constructions.{module} import {function}
from constructions.two_layers import after
from verify.module import Task, tokens

def model(weights):
    return after({function}(T={T}, L={L}, d={T}))

def counts(t):
    return (t[:, :, None] == t[:, None]).sum(1) - 1

task = Task(inputs=tokens([{T}] * {L}), expected=counts, position=None)
"""


BUILDERS = ("relation_counting:dot", "relation_counting:bos", "inventory_counting:lin", "inventory_counting:lin_sftm",
            "inventory_counting:dot_sftm", "inventory_counting:bos_sftm")  # fmt: skip
TWO_LAYERS = {f"two-layers-{name.partition(':')[2]}.py": two_layers(name, 5, 5) for name in BUILDERS}


def distance(T: int) -> str:
    return f"""'''W-26: lin, two layers of one neuron, T = {T}, L = 2'''
from constructions.two_layers import distance
from verify.module import Task, tokens

def model(weights):
    return distance({T})

def counts(t):
    return (t[:, :, None] == t[:, None]).sum(1) - 1

task = Task(inputs=tokens([{T}] * 2), expected=counts, position=None)
"""


DISTANCES = {f"distance-{T}.py": distance(T) for T in (32, 500)}

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "A-E.8",
        "two layers of one d and p count where one layer does: a second one hands on p <= d neurons, without softmax "
        "exactly (all T, L), and with softmax (lin+sftm; dot+sftm, bos+sftm with p >= T) up to a share of e^-40",
        f"{BEHRENS}, App. E.8 (trained there, built here)",
        "constructions.two_layers:after",
        "-",
        "verify.module:certify",
        "verify module two-layers-dot.py",
        deep=(
            *(f"verify module {name}" for name in TWO_LAYERS if name != "two-layers-dot.py"),
            "verify module two-layers-dot.py --precision float32",
            "verify module two-layers-dot_sftm.py --precision float32",
        ),
        reads=tuple(TWO_LAYERS.items()),
        checked_at="; ".join(f"file = {name}" for name in TWO_LAYERS),
    ),
    Claim(
        "W-26",
        "two layers of lin with one neuron each and d = 1 count at L = 2, for every T, with margin 1/2, where one "
        "layer with one neuron does for no d (W-5)",
        f"this project, on {BEHRENS}, App. E.8",
        "constructions.two_layers:distance",
        "-",
        "verify.module:certify",
        "verify module distance-32.py",
        deep=("verify module distance-500.py", "verify module distance-32.py --precision float32"),
        reads=tuple(DISTANCES.items()),
        checked_at="file = distance-32.py; file = distance-500.py",
    ),
    Claim(
        "W-25",
        "one attention head without MLP and LayerNorm that weighs token t by e^(s t) says the largest of n tokens, for "
        "all n >= 2 and vocabularies V >= 2, iff e^s > n - 1; the least margin is (e^s - n + 1) / (e^s + n - 1)",
        "this project",
        "constructions.largest:steep",
        "bounds.largest:least_margin, bounds.largest:steepness",
        "verify.module:certify",
        COMMAND,
        deep=(*DEEP, "verify module largest-12-4.py --precision float32"),
        reads=tuple(FILES.items()),
        checked_at="; ".join(f"file = {name}" for name in FILES),
    ),
)
