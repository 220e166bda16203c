"""The fields that parts of the checker read, by name and type: `table.walk` refuses others.

Where no field of a record has to be there, its kinds differ in which are. Before the walk they are only compared.
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


class SavedEllipsoids(TypedDict):
    """Their middles, and the lower triangles L times 2^exponent of {middle + L e : |e| <= 1}."""

    centres: list[list[float]]
    exponents: list[int]
    shapes: list[list[list[float]]]


class SavedRing(SavedEllipsoids):
    """Ellipsoids that a line's states pass in turn, from `entry` tokens on, when they are in that at `place`."""

    entry: int
    place: int
    rate: float
    margin: float


class SavedGraph(SavedEllipsoids):
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


class SavedTurn(TypedDict):
    """After how many tokens a state stands, and after how many again."""

    state_after: int
    comes_again_after: int


class SavedLeap(TypedDict):
    """Turns that are taken at once: after how many tokens, of how many, and how many turns, null to the end."""

    after: int
    turn: int
    turns: int | None


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
    invariant: SavedRing
    invariant_found: FoundInBlocks
    boxes: SavedBoxes
    sets_found: SetsFound
    repeats: list[int] | SavedTurn
    leaps: list[SavedLeap]
    states: list[list[float]]


class RunAs(TypedDict):
    """One evaluation in a format: the order of its sums, and which way the named ones go."""

    order: str
    seed: int
    fused: bool
    flush: bool
    reciprocal: bool
    directions: list[list[str]]
    ways: list[list[Any]]  # an order, and two flags


class RunInput(TypedDict, total=False):
    """An input, and the evaluation that answers it wrongly."""

    run_as: RunAs


class FormatSaid(TypedDict, total=False):
    """Where sums are kept, if not in the format."""

    accumulate: str | None


class WrongPair(RunInput):
    """Two numbers that are added modulo P."""

    input: list[int]
    predicted: int | None
    is_smallest: bool


class WrongPairs(TypedDict):
    """A wrong pair, and those that are listed."""

    margin: float
    counterexample: WrongPair
    wrong_inputs: list[list[int]]


class WrongSum(RunInput):
    """Two numbers in digits with "+" and "=", and the digits that are predicted."""

    input: str
    predicted: str


class WrongSums(TypedDict):
    """A wrong sum, and how many there are."""

    parameters: FormatSaid
    margin: float | None
    counterexample: WrongSum
    counts: dict[str, str]


class WrongCount(RunInput, total=False):
    """A sequence whose token at a position is counted wrongly."""

    input: list[int]
    tokens: list[int]
    position: int
    predicted: int | None


class WrongCounts(TypedDict):
    """A wrong count, and how many there are."""

    parameters: FormatSaid
    margin: float | None
    counterexample: WrongCount
    error_share: list[float] | None
    wrong_pairs: str | None


class CountPlace(TypedDict):
    """A token and how often it occurs."""

    token: int
    count: int


class ParityProved(TypedDict):
    """A margin, and where it is least."""

    margin: float
    tightest: CountPlace


class SavedRegions(TypedDict, total=False):
    """Which prompts are judged, and which answers are right."""

    min_digits: int
    max_digits: int | None
    min_noise: int
    max_noise: int | None
    max_length: int | None
    semantic_only: bool
    labels: str


class PromptsProved(TypedDict, total=False):
    """A margin, or one over the sum of all weights."""

    margin: float | None
    margin_scaled: float


class WrongPrompt(RunInput):
    """Numbers of 0, 1 and 2 and the last token, the tokens where they are written, and the logits."""

    n0: int
    n1: int
    n2: int
    last: str
    input: list[int | str]
    tokens: list[str] | None
    logits: list[float | None]


class WrongPrompts(TypedDict):
    """A wrong prompt."""

    reading: str
    margin: float | None
    counterexample: WrongPrompt


class ModuleInput(TypedDict):
    """Tokens, and the answers to them: one, or one for each position."""

    input: list[int]
    margin: float | None
    expected: int | list[int]
    predicted: int | list[int]


class SavedPositions(TypedDict):
    """Which positions are judged, null for all."""

    positions: list[int] | None


class SavedTrace(TypedDict):
    """How often each operation occurs, and the prover's digests of graphs."""

    operations: dict[str, int]
    sha256: list[str]


class ModuleCertificate(TypedDict):
    """A verdict on a module."""

    parameters: SavedPositions
    graph: SavedTrace
    margin: float | None
    tightest: ModuleInput | None
    counterexample: ModuleInput
    counts: dict[str, str]
    wrong_inputs: list[list[int]]


class CountingProved(TypedDict, total=False):
    """A margin, and one times the number of positions that are seen."""

    margin: float
    margin_scaled: float


class WrongLine(TypedDict):
    """An input of a decoder that counts, and how far into its positions it begins."""

    input: list[int]
    shift: int


class CountingWrong(TypedDict):
    """A wrong line or string."""

    margin: float | None
    counterexample: WrongLine


class Separator(TypedDict):
    """Fractions (w, b) of one head."""

    w: list[str]
    b: str


class JointSeparator(TypedDict):
    """Fractions of several heads, and one b."""

    w: list[list[str]]
    b: str


class SavedCombination(TypedDict):
    """Entries of (w, b), and one constraint more, each with its side."""

    columns: list[int]
    rows: list[list[int]]
    more_ones: list[bool]


class JointCombination(TypedDict):
    """Triples, each with its side."""

    rows: list[list[int]]
    more_ones: list[bool]


class Ray(TypedDict):
    """Constraints at which a form is zero, and which way it points."""

    sign: int
    rows: list[list[int]]
    more_ones: list[bool]


class Rays(TypedDict):
    """Entries of (w, b), and rays of them."""

    columns: list[int]
    rays: list[Ray]


class JointRay(TypedDict):
    """Coefficients that are zero, and which way it points."""

    sign: int
    rows: list[int]


class JointRays(TypedDict):
    """Rays of several heads."""

    rays: list[JointRay]


class StepInput(TypedDict):
    """The bits of an input, and a step from 1 on."""

    input: str
    step: int


class SavedStep(TypedDict):
    """A wrong step of a chain of thought."""

    reading: str
    margin: float | None
    counterexample: StepInput
