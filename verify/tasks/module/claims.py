"""The claim about any module: its own task file stands in the table."""

from verify.claims.claim import Claim


def task_file(V: int, n: int) -> str:
    return f"""'''W-25: the largest of {n} tokens.'''
from constructions.largest import steep
from verify.module import Task, largest, tokens

def model(weights):
    return steep(V={V}, n={n})

task = Task(inputs=tokens([{V}] * {n}), expected=largest)
"""


SIZES = ((64, 8), (64, 4), (12, 30))
FILES = {f"largest-{V}-{n}.py": task_file(V, n) for V, n in SIZES}
COMMAND, *DEEP = (f"verify module {name}" for name in FILES)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "W-25",
        "one attention head without MLP and LayerNorm that weighs token t by e^(s t) says the largest of n tokens, for "
        "all n >= 2 and vocabularies V >= 2, iff e^s > n - 1; the least margin is (e^s - n + 1) / (e^s + n - 1)",
        "this project",
        "constructions.largest:steep",
        "bounds.largest:least_margin, bounds.largest:steepness",
        "verify.module:certify",
        COMMAND,
        deep=tuple(DEEP),
        reads=tuple(FILES.items()),
        checked_at="file = largest-64-8.py; file = largest-64-4.py; file = largest-12-30.py",
    ),
)
