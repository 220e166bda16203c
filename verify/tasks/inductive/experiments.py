"""Document C's decoders: trained in small, and decided on every input at its two lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from verify.experiments.experiment import DecidedModel, Experiment, GridSize, Result, Setting
from verify.frame.certificate import Certificate
from verify.tasks.inductive.document_c import EMBEDDINGS, FIRST_TOKEN, IN, OUT, as_drawn, reported, reported_again

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from constructions.decoder import Decoder
    from constructions.training import Recipe
    from verify.tasks.inductive.trained import Course

LEARNT = Fraction(99, 100)  # of a share: that a model has learnt
STRINGS = 200  # of each length that are sampled
EVERY = 100  # steps between two states of which the better one is kept
MOST = 20_000  # strings of one length that are all run
BUDGET = 60.0  # seconds for a verdict where strings are too many
ROWS = (
    ("succession", (2, 4)), ("helper", (2, 4)), ("helper-shifted", (1, 2, 4)), ("shifted", (1, 2, 4)),
    ("modular", (1, 2, 4)), ("selective", (1, 2, 4)), ("selective-modular", (2, 4)),
)  # fmt: skip
SMALL_ROWS = tuple((task, tuple(n for n in layers if n < 4)) for task, layers in ROWS)


@dataclass(frozen=True)
class Sizes:
    """Of one kind of strings: the lengths of training and test, positions, and the task's own sizes."""

    trained: int
    tested: int
    positions: int
    of: Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """Of one grid's decoders."""

    d: int
    heads: int
    neurons: int


SHAPES = {GridSize.LAPTOP: Shape(64, 4, 128), GridSize.PAPER: Shape(1024, 8, 4096)}
BY_COUNT, TYPES = ("modular", "succession"), ("selective", "selective-modular")


def sizes_of(grid: GridSize, task: str, is_brief: bool = False) -> Sizes:
    """C's, or on a laptop those that are decided in seconds: C's where a shift has one line or two, and shorter ones
    where it has one for each start, or all strings over types. `is_brief` has those shorter, too."""
    if grid is GridSize.PAPER:
        tested = 128 if task in ("first-homogeneous", "first-heterogeneous", "selective-modular") else 100
        return Sizes(64 if task == "selective-modular" else 50, tested, 160, {})
    if task in TYPES:
        return Sizes(5, 10, 13, {"types": 2, "max_count": 10, **({"modulus": 3} if task != "selective" else {})})
    if task == "first-heterogeneous":
        return Sizes(4, 8, 13, {"types": 3})
    if task == "first-homogeneous":
        return Sizes(50, 128, 132, {})
    if task in BY_COUNT and not is_brief:
        return Sizes(50, 100, 105, {})
    if task == "modular":
        return Sizes(20, 40, 44, {"modulus": 4})
    return Sizes(10, 20, 22, {"vocabulary": 20})


@dataclass(frozen=True)
class DecoderTrial:
    """One decoder of one table; `shown` are the settings that its table tells apart."""

    grid: GridSize
    task: str
    pe: str
    layers: int
    bos: bool
    d: int
    heads: int
    neurons: int
    seed: int
    shown: tuple[str, ...]
    is_brief: bool = False

    @property
    def name(self) -> str:
        return f"{self.task}_{self.pe}{'_bos' if self.bos else ''}_l{self.layers}_d{self.d}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        sizes, how = asdict(sizes_of(*self.lesson)), str(recipe(*self.lesson))
        return {**asdict(self), "shown": list(self.shown), "sizes": sizes, "recipe": how}

    @property
    def lesson(self) -> tuple[GridSize, str, bool]:
        """What sizes and recipe depend on."""
        return self.grid, self.task, self.is_brief

    @property
    def settings(self) -> dict[str, Setting]:
        every: dict[str, Setting] = {
            "task": self.task,
            "BOS": "yes" if self.bos else "no",
            "layers": self.layers,
            "d": self.d,
            "positions": self.pe,
            "C prints": self.printed,
            "seed": self.seed,
        }
        return {name: value for name, value in every.items() if name in self.shown}

    @property
    def printed(self) -> str:
        """C's accuracies, trained / tested, in per cent."""
        of = (self.task, self.pe, self.layers, self.bos)
        cells = (*reported(), *reported_again())
        found = (c for c in cells if (c.task, c.model, c.layers, c.has_bos) == of)
        return next((f"{cell.inside:g}/{cell.outside:g}" for cell in found), "-")

    @property
    def course(self) -> Course:
        from verify.counting.tasks import Task
        from verify.tasks.inductive.trained import Course

        sizes = sizes_of(*self.lesson)
        return Course(Task.of(self.task, **sizes.of), sizes.trained, sizes.tested, sizes.positions)

    def run(self) -> DecidedModel:
        from constructions.inductive import as_bytes
        from verify.tasks.inductive.trained import trained

        course, model = self.course, blank(self)
        training = trained(model, course, recipe(*self.lesson), self.seed, EVERY)
        about = {"task": course.task.name, **course.task.parameters()}
        return DecidedModel(judged(self, model), as_bytes(model, about), training.to_dict())


def recipe(grid: GridSize, task: str, is_brief: bool = False) -> Recipe:
    """C's rate, warmup, batch and steps (footnote 1, Sec. 3.3), or ours, which learns in seconds."""
    from constructions.training import Recipe

    if grid is GridSize.PAPER:
        return Recipe("AdamW", lr=1e-4, steps=312_500, batch=32, warmup=3000)
    brief = {"succession": (3e-3, 1000, 8), "modular": (3e-3, 1500, 8), "selective": (3e-3, 500, 32)}
    lr, steps, batch = {
        "first-homogeneous": (1e-2, 1500, 4), "first-heterogeneous": (3e-2, 6000, 16), "selective": (3e-3, 1500, 32),
        "selective-modular": (3e-3, 500, 32), "helper": (3e-3, 1000, 16), "helper-shifted": (3e-3, 2000, 16),
        "shifted": (3e-3, 600, 16), **(brief if is_brief else {}),
    }.get(task, (3e-3, 1000, 4))  # fmt: skip
    return Recipe("AdamW", lr=lr, steps=steps, batch=batch, schedule="one-cycle", clip=1.0)


def blank(trial: DecoderTrial) -> Decoder:
    """The decoder of a trial, with weights of 0."""
    import torch

    from constructions.decoder import Decoder

    task = trial.course.task
    return Decoder(
        vocabulary=task.vocabulary, d=trial.d, n_heads=trial.heads, n_layers=trial.layers, d_mlp=trial.neurons,
        classes=task.classes, positions=trial.course.positions, pe=trial.pe, bos=trial.bos, dtype=torch.float32,
    )  # fmt: skip


def judged(trial: DecoderTrial, model: Decoder) -> Result:
    """What is found of a trained decoder: samples, and the verdict on every input up to the length of the test."""
    import torch

    course = trial.course
    sampled = course.answered(model, STRINGS, torch.Generator().manual_seed(trial.seed + 1000))
    if course.task.is_homogeneous:
        return by_lines(trial, model, sampled)
    assert course.task.K is not None
    if course.task.K**course.tested <= MOST:
        return by_strings(trial, model, sampled)
    found = certified(model, course)
    return Result(trial.settings, sampled, found.verdict, {}, found.counterexample)


def certified(model: Decoder, course: Course) -> Certificate:
    """The verdict of `verify inductive` on every input up to the length of the test, at every shift."""
    from verify.frame.decide import Effort, certify
    from verify.tasks.inductive.task import Counting

    return certify(Counting(model, course.task, course.tested), effort=Effort(BUDGET))


def by_lines(trial: DecoderTrial, model: Decoder, sampled: tuple[int, int]) -> Result:
    """The result where all inputs are prefixes of few lines; shares are of strings of the token that is counted."""
    from verify.frame.decide import Effort, certify
    from verify.tasks.inductive.tested import number_of_inputs, parts, taught

    problem = taught(model, trial.course)
    found = certify(problem, effort=Effort(BUDGET))
    exact, inputs = {}, {}
    for name, part in parts(model, trial.course).items():
        low, high = found.extra["accuracy"][str(part)]
        exact[name] = Fraction(low), Fraction(high)
        inputs[name] = number_of_inputs(problem, part)
    return Result(trial.settings, sampled, found.verdict, exact, found.counterexample, inputs)


def by_strings(trial: DecoderTrial, model: Decoder, sampled: tuple[int, int]) -> Result:
    """The result where inputs are all strings over types, each run once at every shift."""
    from verify.tasks.inductive.tested import every_string

    found = every_string(model, trial.course)
    exact, inputs = {}, {}
    for name, part in (*trial.course.ranges.items(), (FIRST_TOKEN, range(1, 2))):
        of = slice(part.start - 1, part.stop - 1)
        right, wrong, total = (sum(counts[of]) for counts in (found.right, found.wrong, found.total))
        exact[name] = Fraction(right, total), 1 - Fraction(wrong, total)
        inputs[name] = total
    if trial.task != "first-heterogeneous":
        del exact[FIRST_TOKEN], inputs[FIRST_TOKEN]
    return Result(trial.settings, sampled, found.verdict, exact, found.counterexample, inputs)


def decoders(grid: GridSize, seeds: int, rows: Sequence[tuple[str, tuple[int, ...]]], embeddings: Sequence[str],
             shown: tuple[str, ...], bos: Sequence[bool] = (False,)) -> list[DecoderTrial]:  # fmt: skip
    """Every task, depth and embedding, and every seed of it."""
    shape = SHAPES[grid]
    return [
        DecoderTrial(grid, task, pe, n, has_bos, shape.d, shape.heads, shape.neurons, seed, shown)
        for task, layers in rows
        for has_bos, n, pe, seed in product(bos, layers, embeddings, range(seeds))
    ]


SHOWN = ("task", "layers", "positions", "C prints", "seed")
SHOWN_OF_FIRST = ("d", "positions", "C prints", "seed")


def trials(grid: GridSize, seeds: int) -> list[DecoderTrial]:
    """Table 2."""
    rows = ROWS if grid is GridSize.PAPER else SMALL_ROWS
    return [replace(trial, is_brief=True) for trial in decoders(grid, seeds, rows, EMBEDDINGS, SHOWN)]


def trials_with_bos(grid: GridSize, seeds: int) -> list[DecoderTrial]:
    """Table A4: with BOS and without."""
    layers = (1, 2, 4) if grid is GridSize.PAPER else (1,)
    rows = [(task, layers) for task in ("succession", "modular")]
    return decoders(grid, seeds, rows, ("nope", "rope"), ("BOS", *SHOWN), (False, True))


def trials_of_first_tokens(grid: GridSize, seeds: int) -> list[DecoderTrial]:
    """Table A5: one layer and one head; d = 32, and C's other size, 4, where there is time for it."""
    sizes = (32, 4) if grid is GridSize.PAPER else (32,)
    of = decoders(grid, seeds, [("first-homogeneous", (1,))], EMBEDDINGS, SHOWN_OF_FIRST)
    return [replace(trial, d=d, heads=1, neurons=4 * d) for d in sizes for trial in of]


def trials_of_strings(grid: GridSize, seeds: int) -> list[DecoderTrial]:
    """Table A6: one layer, one head, d = 4 and no positions, on both grids."""
    of = decoders(grid, seeds, [("first-heterogeneous", (1,))], ("nope",), SHOWN_OF_FIRST)
    return [replace(trial, d=4, heads=1, neurons=16) for trial in of]


def trials_of_selective(grid: GridSize, seeds: int) -> list[DecoderTrial]:
    """Table A7, its rows with BOS; those without are Table 2's."""
    rows = [("selective", (1, 2) if grid is GridSize.PAPER else (1,))]
    return decoders(grid, seeds, rows, EMBEDDINGS, SHOWN, (True,))


def grids(law: str, results: Sequence[Result], *, panel: str, y: str) -> Figure:
    from verify.experiments.figures import heat_maps

    return heat_maps(results, panel=panel, x="positions", y=y, law=law)


def grids_of_drawn(results: Sequence[Result]) -> Figure:
    """What C prints of the lengths beyond those trained on, exactly."""
    of = [replace(found, exact={OUT: drawn_share(found, OUT)}) for found in results if found.exact]
    return grids(OUT, of, panel="task", y="layers")


def points(results: Sequence[Result], *, laws: Sequence[str]) -> Figure:
    from verify.experiments.figures import accuracies

    return accuracies(results, by="positions", laws=laws)


def in_words(grid: GridSize, tasks: Sequence[str], shape: str = "", is_brief: bool = False) -> str:
    """What is trained, and with what of that C prints."""
    parts = []
    for task in tasks:
        sizes = sizes_of(grid, task, is_brief)
        own = "".join(f", {name.replace('_', ' ')} {size}" for name, size in sizes.of.items())
        length = f"lengths to {sizes.trained}, tested to {sizes.tested}, {sizes.positions} positions{own}"
        parts.append(f"{task}: {length}; {recipe(grid, task, is_brief)}")
    of, how = SHAPES[GridSize.PAPER], recipe(GridSize.PAPER, tasks[0])
    theirs = "" if shape else f"{of.d} coordinates, {of.heads} heads, {of.neurons} neurons a layer and "
    of = SHAPES[grid]
    shape = shape or f"{of.d} coordinates, {of.heads} heads, {of.neurons} neurons a layer"
    whose = (
        "C's block, rate, warmup, batch, steps and lengths (footnote 1, Sec. 3); the optimizer is ours"
        if grid is GridSize.PAPER
        else f"ours, in C's block with GELU and LayerNorm (C's have {theirs}{how.steps:,} steps of {how.batch})"
    )
    kept = f"of every {EVERY} steps those weights are kept that answer most samples of both lengths"
    return f"{whose}: {shape}, each string at a random shift; {'. '.join(parts)}. As C does, {kept}"


SAMPLING = (
    f"{STRINGS} strings of the length trained on, and {STRINGS} of that of the test, of which answers beyond the "
    "length trained on are counted; each at a random shift at which it fits, as C tests, so that shorter "
    "strings at larger shifts are never drawn"
)
LAWS = {
    IN: "all strings, starts and shifts of the lengths trained on, their last answer",
    OUT: "all of the lengths beyond them, to that of the test",
}
OF_DRAWN = {
    as_drawn(IN): "the answers to all strings of the length trained on, at every start and at the shifts at which they "
    "fit, as C draws them",
    as_drawn(OUT): "the answers beyond that length to all strings of that of the test, likewise",
}
OVER_TYPES = {
    IN: "all answers at lengths trained on, to strings of the length of the test at every shift at which they fit",
    OUT: "all answers beyond them, to the same strings",
}


def experiments() -> tuple[Experiment, ...]:
    """Tables 2 and A4 to A7."""
    return table_2(), table_a4(), table_a5(), table_a6(), table_a7()


def table_2() -> Experiment:
    return Experiment(
        "C-Table-2",
        "C, Table 2, one and two layers",
        "Which decoders count beyond the lengths that they were trained on, by task and position code?",
        "Trained / tested, in per cent, the best of five seeds: the column *C prints*. With two layers shifted start "
        "is generalised best by RoPE, modular by SinePE and APE.",
        SAMPLING,
        {
            IN: f"{LAWS[IN]} (of selective tasks: as in C-Table-A7)",
            OUT: f"{LAWS[OUT]} (of selective tasks: as in C-Table-A7)",
            **OF_DRAWN,
        },
        {grid: in_words(grid, [task for task, _ in ROWS], is_brief=True) for grid in GridSize},
        {GridSize.LAPTOP: 10.0, GridSize.PAPER: 500_000.0},
        trials,
        grids_of_drawn,
        lambda results: [*generalised(results), CHOSEN],
    )


def table_a4() -> Experiment:
    tasks = ("succession", "modular")
    return Experiment(
        "C-Table-A4",
        "C, Table A4, one layer",
        "What does BOS add to decoders without positions in the stream?",
        "Trained / tested, in per cent: without BOS 2.0/0.0 (succession) and 11.8/11.8 (modular) for NoPE and RoPE; "
        "with it 100/0.0, and 100/10.1 (NoPE) and 100/27.8 (RoPE).",
        SAMPLING,
        {IN: f"{LAWS[IN]}, in succession those of equal tokens alone", OUT: LAWS[OUT]},
        {grid: in_words(grid, tasks) for grid in GridSize},
        {GridSize.LAPTOP: 10.0, GridSize.PAPER: 500_000.0},
        trials_with_bos,
        partial(grids, IN, panel="task", y="BOS"),
        remarks,
    )


def table_a5() -> Experiment:
    of = "one layer, one head, 32 coordinates (or 4, --grid paper) and four times as many neurons"
    return Experiment(
        "C-Table-A5",
        "C, Table A5",
        "Which position codes tell the first of equal tokens?",
        "The first token's answer alone, with 32 and with 4 coordinates: 100 % for SinePE, APE and SPE, 0 % for NoPE "
        "and RoPE, in and out of distribution.",
        f"{SAMPLING}; all answers are counted, as the first one alone is right where every answer is *first*",
        {
            **LAWS,
            FIRST_TOKEN: "the first tokens' answers alone, at every shift",
            as_drawn(
                FIRST_TOKEN
            ): "these at the shifts at which strings of the length trained on fit, as C scores them",
        },
        {grid: in_words(grid, ["first-homogeneous"], of) for grid in GridSize},
        {GridSize.LAPTOP: 8.0, GridSize.PAPER: 50_000.0},
        trials_of_first_tokens,
        partial(points, laws=(IN, OUT, FIRST_TOKEN, as_drawn(FIRST_TOKEN))),
        partial(generalised, laws=(FIRST_TOKEN,)),
    )


def table_a6() -> Experiment:
    of = "one layer, one head, 4 coordinates and 16 neurons"
    return Experiment(
        "C-Table-A6",
        "C, Table A6, with causal masking",
        "Does a decoder without positions tell the first token of any string?",
        "The first token's answer alone: 100 % in and out of distribution.",
        f"{SAMPLING}; all answers are counted, as the first one alone is right where every answer is *first*",
        {**OVER_TYPES, FIRST_TOKEN: "the first answers alone, as C scores them"},
        {grid: in_words(grid, ["first-heterogeneous"], of) for grid in GridSize},
        {GridSize.LAPTOP: 20.0, GridSize.PAPER: 50_000.0},
        trials_of_strings,
        partial(points, laws=(IN, OUT, FIRST_TOKEN)),
        remarks,
    )


def table_a7() -> Experiment:
    return Experiment(
        "C-Table-A7",
        "C, Table A7, rows with BOS",
        "Do decoders with BOS count each type of token in every string?",
        "Trained / tested, in per cent, the best of five seeds: the column *C prints*. All but RoPE generalise, with "
        "one layer and with two.",
        SAMPLING,
        OVER_TYPES,
        {grid: in_words(grid, ["selective"]) for grid in GridSize},
        {GridSize.LAPTOP: 12.0, GridSize.PAPER: 500_000.0},
        trials_of_selective,
        partial(grids, OUT, panel="task", y="layers"),
        remarks,
    )


CHOSEN = "steps and sizes of the laptop grid were chosen with seed 0, and the other seeds trained afterwards"


def remarks(results: Sequence[Result]) -> list[str]:
    """How many models learnt what they were shown."""
    learnt = sum(result.exact[IN][0] >= LEARNT for result in results if IN in result.exact)
    return [
        f"{learnt} of {len(results)} models are right on {100 * LEARNT} % or more of the lengths trained on, where C "
        "trains for 312,500 steps or twice as many"
    ]


def generalised(results: Sequence[Result], *, laws: Sequence[str] = (IN, OUT)) -> list[str]:
    """How many models are right on every answer that C scores, where C prints 100 % and where it does not."""
    parts = []
    for where, is_printed in (("where C prints 100/100", True), ("elsewhere", False)):
        of = [found for found in results if (found.settings["C prints"] == "100/100") == is_printed]
        right = [found for found in of if found.exact and all(drawn_share(found, law)[0] == 1 for law in laws)]
        proved = sum(found.is_proved for found in right)
        parts.append(
            f"{where} {len(right)} of {len(of)} models are right on every answer that C scores, {proved} PROVED"
        )
    beyond = "what is never drawn: other shifts and, where there are any, helpers alone, and the last number word alone"
    return [*remarks(results), f"exactly, {'; '.join(parts)}. A verdict is also of {beyond}"]


def drawn_share(found: Result, law: str) -> tuple[Fraction, Fraction]:
    """The share of a law's answers to the strings that C draws; those over types are of such shifts anyway."""
    return found.exact[as_drawn(law) if as_drawn(law) in found.exact else law]
