"""The fields that parts of the checker read, by name and type: `table.walk` refuses others.

Where no field of a record has to be there, its kinds differ in which are. Before the walk they are only compared.
"""

from typing import Literal, NotRequired, TypedDict


class WrongInput(TypedDict, total=False):
    """An input of a recurrent network, and what is said of the answer to it."""

    input: list[int] | str
    length: int
    start: int
    expected: int
    predicted: int | None
    is_first: bool
    evaluation: str


class SavedRun(TypedDict, total=False):
    """The results of a run: those of each step, and the last logits; or what a token keeps of each state."""

    numbers: list[list[float]]
    logits: list[float]
    kept: list[float]


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


class SetsFound(TypedDict):
    """Boxes that hold the states of all strings, each a list of numbers."""

    sets: int
    window: int
    low: list[list[float]]
    high: list[list[float]]


class SetsOfTypes(TypedDict):
    """Boxes of the units of each type."""

    sets: int
    low: list[list[list[float]]]
    high: list[list[list[float]]]


class GraphsFound(TypedDict):
    """Graphs of ellipsoids that hold the states of all strings."""

    sets: int
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
    accumulate: str


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
    sets_found: dict[str, object]
    repeats: list[int] | SavedTurn
    leaps: list[SavedLeap]
    program: object
    states: list[list[float]]


class RunAs(TypedDict):
    """One evaluation in a format: the order of its sums, and which way the named ones go."""

    order: str
    seed: int
    fused: bool
    flush: bool
    reciprocal: bool
    directions: list[list[str]]
    ways: list[list[str | bool]]  # an order, and two flags
    kept: NotRequired[str]  # the format inside matrix products and softmax, wider than that of the reading


class RunInput(TypedDict, total=False):
    """An input, and the evaluation that answers it wrongly."""

    run_as: RunAs


class Margined(TypedDict):
    """How far the right answer leads, or the wrong one does."""

    margin: float | None


class FormatSaid(TypedDict, total=False):
    """The format, and where sums are kept, if not in it."""

    precision: str
    accumulate: str | None


class WrongPair(RunInput):
    """Two numbers that are added modulo P."""

    input: list[int]
    predicted: int | None
    is_smallest: bool


class LeastPair(TypedDict):
    """Where the margin is least."""

    input: list[int]
    margin: float


class PairsCertificate(Margined, total=False):
    """A verdict on addition modulo P: a wrong pair, and those that are listed."""

    parameters: FormatSaid
    counterexample: WrongPair
    wrong_inputs: list[list[int]]
    tightest: LeastPair
    counts: dict[str, str]


class WrongSum(RunInput):
    """Two numbers in digits with "+" and "=", and the digits that are predicted."""

    input: str
    predicted: str


class DigitSizes(FormatSaid):
    """How many digits, and in which base."""

    digits: int
    base: int


class SumsCertificate(Margined, total=False):
    """A verdict on addition: a wrong sum, and how many there are."""

    parameters: DigitSizes
    counterexample: WrongSum
    counts: dict[str, str]
    tightest: dict[str, object]


class WrongCount(RunInput, total=False):
    """A sequence whose token at a position is counted wrongly."""

    input: list[int]
    tokens: list[int]
    position: int
    predicted: int | None


class CountsCertificate(Margined, total=False):
    """A verdict on a histogram model: margins by count, or a wrong count and how many there are; and a search."""

    parameters: FormatSaid
    counterexample: WrongCount
    error_share: list[float] | None
    wrong_pairs: str | None
    verdict: str
    reading: str
    method: str
    argument: str
    seconds: float
    tightest: object
    margin_per_count: list[float | None] | None
    margin_exact: str | None
    tree: dict[str, object] | None


class CountPlace(TypedDict):
    """A token and how often it occurs."""

    token: int
    count: int


class ParityCertificate(Margined, total=False):
    """A verdict on a parity model: where the margin is least, or a wrong count."""

    parameters: FormatSaid
    counterexample: WrongCount
    tightest: CountPlace


class SavedRegions(FormatSaid, total=False):
    """Which prompts are judged, and which answers are right."""

    min_digits: int
    max_digits: int | None
    min_noise: int
    max_noise: int | None
    max_length: int | None
    semantic_only: bool
    labels: str


class WrongPrompt(RunInput):
    """Numbers of 0, 1 and 2 and the last token, the tokens where they are written, and the logits."""

    n0: int
    n1: int
    n2: int
    last: str
    input: list[int | str]
    tokens: list[str] | None
    logits: list[float | None]


class PromptsCertificate(Margined, total=False):
    """A verdict on Count01: a margin, or one over the sum of all weights; a wrong prompt, and how many there are."""

    parameters: SavedRegions
    reading: str
    margin_scaled: float
    counterexample: WrongPrompt
    counts: dict[str, str]
    wrong_share: str


class StringSizes(FormatSaid, total=False):
    """How long strings are, and of how many regions and zeros."""

    length: int
    regions: int
    exactly: bool
    zeros: int | None


class StringCase(RunInput):
    """A string, and the prompt at which it is answered wrongly."""

    input: str
    prompt: int
    regions: list[str]


class StringsCertificate(Margined, total=False):
    """A verdict on strings with regions."""

    parameters: StringSizes
    counterexample: StringCase
    right_lengths: object


class ModuleInput(TypedDict):
    """Tokens, and the answers to them: one, or one for each position."""

    input: list[int]
    margin: float | None
    expected: int | list[int]
    predicted: int | list[int]


class SavedPositions(FormatSaid, total=False):
    """Which positions are judged, null for all; of addition modulo P, which P."""

    positions: list[int] | None
    P: int


class SavedTrace(TypedDict):
    """How often each operation occurs, and the prover's digests of graphs."""

    operations: dict[str, object]
    sha256: list[str]


class TokensVerdict(TypedDict):
    """A verdict on inputs of tokens that are followed one by one."""

    parameters: SavedPositions
    reading: str
    margin: float | None
    tightest: ModuleInput | None
    counterexample: ModuleInput
    counts: dict[str, str]
    wrong_inputs: list[list[int]]


class CellCertificate(TypedDict, total=False):
    """A verdict on a recurrent cell, whose step was traced."""

    verdict: str
    reading: str
    method: str
    parameters: LineParameters
    length: int | Literal["all"]
    inputs_covered: str
    margin: float | None
    program: dict[str, object]
    graph: SavedTrace
    counterexample: WrongInput
    right_to: int


class ModuleCertificate(TokensVerdict):
    """A verdict on a module."""

    program: object
    graph: SavedTrace


class LayoutPairsCertificate(TokensVerdict):
    """A verdict on addition modulo P by a decoder of the grokking layout."""

    frequencies: list[int]
    frequency_shares: dict[str, object]
    margin_per_difference: list[float | None]


class WrongLine(TypedDict):
    """An input of a decoder that counts, and how far into its positions it begins."""

    input: list[int]
    shift: int


class CountingSizes(FormatSaid, total=False):
    """A task of counting and its sizes."""

    name: str
    vocabulary: int
    modulus: int
    types: int
    max_count: int
    distinct_start: bool


class CountingCertificate(Margined, total=False):
    """A verdict on a decoder that counts: a margin, and one times how many positions are seen; or a wrong line."""

    parameters: CountingSizes
    length: int | Literal["all"] | None
    longest: int
    margin_scaled: float
    counterexample: WrongLine
    tables: object
    accuracy: object


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


class HeadAnswer(TypedDict):
    """What is said of one head, each with what shows it."""

    head: int
    separable: bool | None
    certificate: object
    separable_unbounded: bool | None
    certificate_unbounded: object


class SaidOfHeads(TypedDict):
    """What is said of several heads, and what shows it."""

    heads: list[int]
    separable: bool | None
    certificate: object


class HeadsCertificate(TypedDict):
    """Which heads separate, under a law and on all prompts."""

    law: str
    labels: str
    heads: list[HeadAnswer]
    pairs: list[SaidOfHeads] | None
    subsets: list[SaidOfHeads]
    open: list[str]


class StepInput(TypedDict):
    """The bits of an input, and a step from 1 on."""

    input: str
    step: int


class SavedAutomaton(TypedDict):
    """Where each symbol leads from each state, which of them accept, and the nodes that are the states by position."""

    step: list[list[int]]
    accepting: list[int]
    slices: list[list[list[int]]]


class SavedGates(TypedDict, total=False):
    """A file's gates, each its kind and what it reads; the steps, and which of them is which gate's."""

    inputs: int
    gates: list[list[str | int]]
    outputs: list[int]
    steps: list[list[int]]
    node_of: list[int]
    automaton: SavedAutomaton


class CircuitSizes(FormatSaid, total=False):
    """Bits, inputs, steps and widths; of a language its alphabet and length."""

    s: int
    n: int
    T: int
    k: int
    d: int
    length: int
    alphabet: str


class ChainCertificate(Margined, total=False):
    """A verdict on a chain of thought, and the circuit that it follows."""

    reading: str
    counterexample: StepInput
    verdict: str
    task: str
    parameters: CircuitSizes
    program: SavedGates
    harmless_differences: int
    counts: dict[str, str]
    language: str


class ModelSizes(TypedDict, total=False):
    """A model of one layer: its kind, tokens, positions, dimensions, neurons and dtype."""

    model: str
    T: int
    L: int
    d: int
    p: int
    dtype: str


class RepeatedFields(TypedDict, total=False):
    """What is said of a file in its certificate, too."""

    weights_sha256: str
    claim: object
    parameters: ModelSizes


class PromptSizes(TypedDict):
    """What a file of Count01 says of its model."""

    heads: int
    d: int
    d_h: int
    skip: bool
    dtype: str


class Node(TypedDict, total=False):
    """An operation: what it is called with, what comes of it; or a tensor by its name, or as it is."""

    op: str
    args: list[object]
    kwargs: dict[str, object]
    name: str
    at: int
    data: str
    shape: list[int] | None
    dtype: str | None
