"""Every task, embedding and depth of document C: its accuracy, what our weights are proved to do, and the ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from hashlib import sha256
from pathlib import Path

from constructions.errors import BadInput, NotKnown, ProvedImpossible
from verify.arithmetic.outward import above
from verify.arithmetic.readings import Real
from verify.counting.asked import Asked, judge_of
from verify.counting.tasks import FIRST, SELECTIVE, Task
from verify.frame.certificate import Certificate, Verdict
from verify.frame.decide import Effort, decide
from verify.tasks.inductive.ceilings.laws import constant_answer, equal_prefix, proportions
from verify.tasks.inductive.document_c import EMBEDDINGS, RECURRENT, Reported, reported

COLUMNS = (
    "task", "model", "BOS", "layers", "C, in distribution", "C, out of distribution", "proved up to", "with",
    "impossible",
)  # fmt: skip
POSITIONS = {"selective": 128, "selective-modular": 160}  # C's longest strings and BOS; 128 elsewhere
LENGTHS = {"modular": 100}  # of C's tests, for transformers; all lengths elsewhere
# Of C's tests; weights for a distinct start hold a length.
DISTINCT = {"selective": 100, "selective-modular": 128, "first-heterogeneous": 128}
FINITE = {  # recurrent networks that have a last right length
    **{("modular", model): 100 for model in ("s4", "mamba", "rwkv")},
    **{("selective", model): 100 for model in ("lstm", "s4", "mamba", "rwkv")},
    **{("selective-modular", model): 128 for model in ("s4", "mamba", "rwkv")},
}  # fmt: skip
NEURONS = {("modular", "mamba"), ("modular", "rwkv")}  # after the recurrence: a linear readout reaches no 100
SECOND = {"mamba"}  # whose block has nothing after its scan, so that the neurons are a second block's
ONE_LAYER = {("modular", "mamba"): "C-R2: not at every length"}  # of what those of a second block do
TRAINED = "a trained file"  # the column of networks that a folder has
BUDGET = 300.0  # seconds of a cell; most take less than ten
BUDGET_OF_A_FILE = 30.0
SHALLOW = {("selective", pe) for pe in ("sine", "ape", "spe")}  # without BOS one layer does what two do, C-T10
NOTHING = "-"
OPEN = "open"


@dataclass(frozen=True)
class CellTable:
    """Columns and rows; `open_cells` are those that are neither proved nor impossible."""

    columns: tuple[str, ...]
    rows: list[list[int | str | None]]
    open_cells: int

    @property
    def is_complete(self) -> bool:
        return self.open_cells == 0


@dataclass(frozen=True)
class Entry:
    """What weights are proved to do: up to a length, with so many layers; or nothing, and why.

    `claim` is of the weights, or of the argument that there are none.
    """

    length: str | None
    layers: int
    claim: str
    is_impossible: bool = False

    def to_json(self) -> dict[str, object] | None:
        """Its fields, or None where nothing is known, which more time may change."""
        return None if self.claim == NOTHING else asdict(self)


@dataclass(frozen=True)
class TableJob:
    """What cells of one task and model share, whatever their depth: the proof of the house's own weights."""

    task: str
    model: str
    has_bos: bool
    seed: int = 0

    def run(self) -> Entry:
        return proved(self.task, self.model, self.has_bos, self.seed)

    def kept(self, said: object) -> Entry:
        """What was proved, of its fields as a folder keeps them.

        Raises: TypeError for those of anything else.
        """
        if not isinstance(said, dict):
            raise TypeError("no fields of a cell")
        return Entry(**said)


@dataclass(frozen=True)
class TrainedFile:
    """A trained recurrent network of a cell, TASK-MODEL-LAYERS.safetensors or .pt in a folder."""

    task: str
    model: str
    layers: int
    path: str
    seed: int = 0

    def run(self) -> str:
        """What is decided of it, at every length that the task has.

        Raises: BadInput for a network that is none of the cell's.
        """
        asked = Asked(Task.of(self.task), self.model, weights=self.path, seed=self.seed)
        try:
            problem = judge_of(asked.model)(asked).problem
        except NotKnown:
            return OPEN
        found: Certificate = decide(problem, Real(), "certified", Effort(BUDGET_OF_A_FILE, self.seed))
        layers = found.parameters.get("layers", 1)
        if layers != self.layers:
            raise BadInput(f"weights: {self.path!r} has another number of layers: {layers}. Rename it.")
        return said_of_a_file(found)

    @property
    def named(self) -> str:
        """All that its answer depends on."""
        return f"{self} {sha256(Path(self.path).read_bytes()).hexdigest()}"

    def kept(self, said: object) -> str:
        """What was decided, as a folder keeps it.

        Raises: ValueError where it is no answer in words.
        """
        if not isinstance(said, str):
            raise ValueError("not a verdict in words")
        return said


def if_decided(said: str) -> str | None:
    """What is said of a file, or None where it is open, which more time may change."""
    return None if said.startswith(OPEN) else said


def said_of_a_file(found: Certificate) -> str:
    """A verdict in a few words."""
    case, right = found.counterexample, found.extra.get("right_to")
    if case is not None:
        return f"wrong {'first ' if case.get('is_first') else ''}at length {case['length']}"
    if found.verdict is Verdict.UNKNOWN:
        return OPEN if right is None else f"{OPEN}, right to length {right}"
    return "right at every length"


def trained_files(folder: str, seed: int = 0) -> list[TrainedFile]:
    """The files of a folder, each of a cell of Table A1.

    Raises: BadInput where there is no such folder, for a folder without files, and for a file that is no cell's.
    """
    place = Path(folder)
    if not place.is_dir():
        raise BadInput(f"weights={folder!r}: with --table, a folder of files TASK-MODEL-LAYERS.safetensors")
    cells = {f"{x.task}-{x.model}-{x.layers}": x for x in reported() if x.model in RECURRENT}
    paths = sorted(path for path in place.iterdir() if path.suffix in (".safetensors", ".pt"))
    unknown = next((path for path in paths if path.stem not in cells), None)
    if unknown is not None or not paths:
        what = "has no .safetensors and no .pt file" if unknown is None else f"{unknown.name!r} is of no cell"
        raise BadInput(f"weights={folder!r}: {what}. Names are TASK-MODEL-LAYERS.safetensors, as modular-lstm-2.")
    return [
        TrainedFile(cell.task, cell.model, cell.layers, str(path), seed)
        for path, cell in ((path, cells[path.stem]) for path in paths)
    ]


def jobs(seed: int = 0) -> list[TableJob]:
    """Every proof that the table takes, once."""
    return list(dict.fromkeys(TableJob(cell.task, cell.model, cell.has_bos, seed) for cell in reported()))


def table(
    entries: Mapping[TableJob, Entry] | None = None, seed: int = 0, files: Mapping[TrainedFile, str] | None = None
) -> CellTable:
    """Document C's tables with what is proved and what is impossible beside each figure, in the reading real.

    A construction of fewer layers than a row has is one of that depth too: further layers may be zero. `entries` are
    of all jobs; without them they are made here. What is decided of `files` is a column of its own.
    """
    rows, missing = [], 0
    if entries is None:
        entries = {job: job.run() for job in jobs(seed)}
    for cell in reported():
        found = entries[TableJob(cell.task, cell.model, cell.has_bos, seed)]
        bound = ceiling(cell)
        is_built = found.length is not None and found.layers <= cell.layers
        law = (
            found.claim if found.is_impossible else ONE_LAYER.get((cell.task, cell.model)) if cell.layers == 1 else None
        )
        missing += not is_built and bound is None and law is None
        rows.append([
            cell.task, cell.model, "yes" if cell.has_bos else "no", cell.layers,
            f"{cell.inside:g}", f"{cell.outside:g}",
            found.length if is_built else None, found.claim if is_built else None,
            bound or law,
        ])  # fmt: skip
        if files is not None:
            key = (cell.task, cell.model, cell.layers)
            rows[-1].append(next((x for f, x in files.items() if (f.task, f.model, f.layers) == key), None))
    return CellTable(COLUMNS if files is None else (*COLUMNS, TRAINED), rows, missing)


@cache
def proved(task: str, model: str, has_bos: bool, seed: int = 0) -> Entry:
    """The longest length that the house's own weights are proved for, by running the proof.

    Where an equal prefix rules all strings out (C-I1, C-I2) those whose first two tokens differ are proved instead.
    """
    found = _with_or_without_layernorm(task, model, has_bos, seed)
    if found.is_impossible and found.claim in ("C-I1", "C-I2") and task in DISTINCT:
        distinct = _with_or_without_layernorm(task, model, has_bos, seed, distinct_start=True)
        return found if distinct.length is None else distinct
    return found


def _with_or_without_layernorm(
    task: str, model: str, has_bos: bool, seed: int, *, distinct_start: bool = False
) -> Entry:
    is_transformer, lengths = model in EMBEDDINGS, DISTINCT if distinct_start else LENGTHS
    for has_layernorm in (True, False):
        asked = Asked(
            Task.of(task, distinct_start=distinct_start),
            "transformer" if is_transformer else model,
            pe=model if is_transformer else None,
            has_bos=has_bos,
            layers=1 if (task, model) in SHALLOW and not has_bos else None,
            has_layernorm=has_layernorm,
            activation="relu" if (task, model) in NEURONS else None,
            positions=POSITIONS.get(task, 128),
            length=lengths.get(task) if is_transformer else FINITE.get((task, model)),
            seed=seed,
        )
        found = _decided(asked)
        if found.length is not None or found.is_impossible:
            return found
    return found


def _decided(asked: Asked) -> Entry:
    try:
        problem = judge_of(asked.model)(asked).problem
        found: Certificate = decide(problem, Real(), "certified", Effort(BUDGET, asked.seed))
    except ProvedImpossible as error:
        return Entry(None, 0, error.claim, is_impossible=True)
    except (NotKnown, BadInput):
        return Entry(None, 0, NOTHING)
    if not found:
        return Entry(None, 0, NOTHING)
    name, layers = found.claim or "weights", int(found.parameters.get("layers", 1))
    if not asked.has_layernorm and asked.model == "transformer":
        name += ", no LayerNorm"
    if asked.model != "transformer" and "neurons" in found.parameters:
        name, layers = f"{name}, neurons", layers + (asked.model in SECOND)
    return Entry(said(found), layers, name)


def said(found: Certificate) -> str:
    """The length that is proved, and of which strings: a table of positions ends all of them, and some start alike."""
    length = str(found.extra["length"])
    if "longest" in found.extra:
        length = f"all at {found.parameters['positions']} positions"
    return f"{length}, first two tokens different" if found.parameters.get("distinct_start") else length


@cache
def ceiling(cell: Reported) -> str | None:
    """The claim, and the exact ceiling in percent, of what no weights exceed; None where nothing is known.

    >>> ceiling(next(c for c in reported() if c.task == "modular"))
    'C-I1: in and out of distribution at most 11.77 %'
    """
    if cell.has_bos or cell.model not in ("nope", "rope"):
        return None
    if cell.task in FIRST:
        equal = "not beyond length 1" if cell.task == "first-homogeneous" else "not where two equal tokens begin"
        return f"C-I1: {equal}"
    if cell.task == "succession":
        return f"C-I1: in and out of distribution at most {_either_half(None)} of a^n"
    if cell.task == "modular":
        return f"C-I1: in and out of distribution at most {_either_half(10)}"
    if cell.task not in SELECTIVE:
        return None
    m = 4 if cell.task == "selective-modular" else None
    n = 64 if m else 50
    claim, share = "C-I2", equal_prefix(10, 10, n, m)
    if cell.model == "nope" and cell.layers == 1:
        claim, share = "C-I3", proportions(10, 10, n, 1, m)
    return f"{claim}: in distribution at most {_percent(share)}"


def _either_half(modulus: int | None) -> str:
    """The best constant answer's largest share, in percent, from length 1 on or from 51 on, of 50 lengths, as C states,
    or of 51, as its figures say (erratum C-6).

    >>> _either_half(10), _either_half(None)
    ('11.77 %', '2 %')
    """
    halves = (range(first, first + number) for first in (1, 51) for number in (50, 51))
    return _percent(max(constant_answer(n % modulus if modulus else n for n in half) for half in halves))


def _percent(share: Fraction) -> str:
    return f"{above(100 * share, 4)} %"
