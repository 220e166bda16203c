"""The fields of certificates about lines and strings, by name and type: `table.walk` refuses others.

None of a record is there in all of its kinds. A field that is read before the walk is compared with what it may be.
"""

from typing import Any, Literal, TypedDict


class WrongInput(TypedDict, total=False):
    """An input of a recurrent network, and what is said of the answer to it."""

    input: list[int] | str
    length: int
    start: int
    expected: int
    predicted: int | None
    is_first: bool
    evaluation: str


class SavedRun(TypedDict):
    """The results of a run: those of each step, and the last logits."""

    numbers: list[list[float]]
    logits: list[float]


class Ellipsoids(TypedDict):
    """Their middles, and the lower triangles L times 2^exponent of {middle + L e : |e| <= 1}."""

    centres: list[list[float]]
    exponents: list[int]
    shapes: list[list[list[float]]]


class Ring(Ellipsoids):
    """Ellipsoids that a line's states pass in turn, from `entry` tokens on, when they are in that at `place`."""

    entry: int
    place: int
    rate: float
    margin: float


class SavedGraph(Ellipsoids):
    """Ellipsoids that hold the states of strings: where each token leads from each, and which types are judged."""

    judged: list[int]
    then: list[list[int]]


class SetsFound(TypedDict, total=False):
    """Boxes or graphs of ellipsoids that hold the states of all strings."""

    sets: int
    window: int
    low: list[Any]  # a box is a list of numbers; boxes of each type are in a list of their own
    high: list[Any]
    graphs: list[SavedGraph]


class SavedBoxes(TypedDict):
    """Boxes that a line's states pass in turn, `turn` of them, from `entry` tokens on."""

    entry: int
    turn: int
    low: list[float]
    high: list[float]


class FoundInBlocks(TypedDict, total=False):
    """How the units of each type were followed by themselves."""

    least_sign: float
    cases: int
    states: int


class Turn(TypedDict):
    """After how many tokens a state stands, and after how many again."""

    state_after: int
    comes_again_after: int


class LineParameters(TypedDict, total=False):
    """The network, the task, and the format."""

    model: str
    dtype: str
    units: int
    layers: int
    neurons: int
    activation: str
    task: str
    length: int | Literal["all"]
    modulus: int
    vocabulary: int
    types: int
    max_count: int
    precision: str


class LineCertificate(TypedDict, total=False):
    """A verdict on the lines or strings of a network, and what shows it."""

    verdict: str
    parameters: LineParameters
    reading: str
    method: str
    argument: str
    length: int | Literal["all"]
    inputs_covered: str
    margin: float
    counterexample: WrongInput
    right_to: int
    run: SavedRun
    invariant: Ring
    invariant_found: FoundInBlocks
    boxes: SavedBoxes
    sets_found: SetsFound
    repeats: list[int] | Turn
    states: list[list[float]]
