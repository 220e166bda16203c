"""Document B's models by position code: trained as it trains them, and decided on every string of three laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from verify.experiments.experiment import DecidedModel, Experiment, GridSize, Result, Setting
from verify.frame.certificate import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Generator, Tensor

    from constructions.contextual.positional import PositionalContextualTransformer
    from constructions.training import Recipe
    from verify.tasks.contextual.positional.every_string import PromptShares

CODES = (("nope", 0.0), ("ape", 0.0), ("rope", 0.0), ("alibi", 0.05), ("alibi", 0.5), ("alibi", 2.0))
SIZES = {GridSize.LAPTOP: (12, 2), GridSize.PAPER: (512, 4)}  # B's own are 512 tokens and 4 regions
SHORT = {GridSize.LAPTOP: 8, GridSize.PAPER: 300}  # B's Fig. 3
WIDTHS = {GridSize.LAPTOP: (16, 16, 32), GridSize.PAPER: (64, 64, 256)}  # of the stream, the heads, the hidden layer
LEAST_SLOPE = 0.05
LONGER = {GridSize.LAPTOP: 6000, GridSize.PAPER: 100_000}  # steps
SAMPLES = 4000
BUDGET = 60.0  # seconds for a verdict where strings are too many
LEARNT = ("both regions", "region 1", "region 2")
SHORTER, FEWER = "shorter", "fewer regions"


@dataclass(frozen=True)
class PositionTrial:
    """One model of one position code; `slope` is ALiBi's, for a distance of one place."""

    grid: GridSize
    pe: str
    slope: float
    seed: int
    is_longer: bool = False

    @property
    def name(self) -> str:
        return f"{self.pe}{f'_m{self.slope:g}' if self.slope else ''}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return {**asdict(self), "recipe": str(self.how)}

    @property
    def how(self) -> Recipe:
        return longer_recipe(self.grid) if self.is_longer else recipe(self.grid)

    @property
    def settings(self) -> dict[str, Setting]:
        code = f"alibi {self.slope:g}" if self.slope else self.pe
        return {"positions": code, "seed": self.seed}

    def run(self) -> DecidedModel:
        from constructions.contextual.positional import as_bytes
        from constructions.training import train

        module, (N, M) = initialised(self), SIZES[self.grid]
        training = train(module, partial(loss, module, N, M, self.how.batch), self.how, self.seed)
        result = judged(self, module.requires_grad_(False), N, M)
        return DecidedModel(result, as_bytes(module), training.to_dict())


def recipe(grid: GridSize) -> Recipe:
    """Ours: B prints no optimiser, rate, batch or number of steps."""
    from constructions.training import Recipe

    if grid is GridSize.PAPER:
        return Recipe("Adam", lr=1e-3, steps=20_000, batch=32, schedule="one-cycle", clip=1.0)
    return Recipe("Adam", lr=1e-2, steps=2500, batch=128, schedule="one-cycle", clip=1.0)


def initialised(trial: PositionTrial) -> PositionalContextualTransformer:
    """Gaussian weights in float32: of variance 1 for what is looked up, else 1 over the number of inputs.

    Positions, rotations and slope that a code does not have are 0, 1 and 0, and so is the decoder's MLP: these stay.
    """
    import torch

    from constructions.contextual.positional import PositionalContextualTransformer
    from constructions.contextual_with_positions import BASE

    (N, R), (d, e, p), g = SIZES[trial.grid], WIDTHS[trial.grid], torch.Generator().manual_seed(trial.seed)
    pairs = e // 2
    module = PositionalContextualTransformer(
        tokens=5, places=N + 1, pairs=pairs, d=d, e=e, h=e, p=p, R=R, f=e, g=e, q=1, classes=N + 1, dtype=torch.float32
    )
    still = {"cosines", "sines", "slope", "W_3", "b_3", "W_4", "b_4"} | ({"positions"} if trial.pe != "ape" else set())
    with torch.no_grad():
        for name, W in module.named_parameters():
            if W.ndim == 2 and name not in still:
                scale = 1.0 if name in ("E", "P", "positions") else len(W) ** -0.5
                scale *= e**-0.25 if name in ("W_Q", "W_K", "U_Q", "U_K") else 1.0  # of scores: 1 over the root of e
                W.copy_(scale * torch.randn(W.shape, generator=g))
            W.requires_grad_(name not in still)
        module.slope.fill_(trial.slope)
        turns = BASE ** (-torch.arange(pairs) / pairs) if trial.pe == "rope" else torch.zeros(pairs)
        angles = torch.arange(N + 1)[:, None] * turns
        module.cosines.copy_(angles.cos())
        module.sines.copy_(angles.sin())
    return module


def drawn(number: int, N: int, M: int, g: Generator) -> Tensor:
    """Strings of N tokens with M regions: fair digits, as B draws them, and places of delimiters that are uniform."""
    import torch

    tokens = torch.randint(2, (number, N), generator=g)
    places = torch.rand(number, N, generator=g).argsort(1)[:, : 2 * M].sort(1).values
    return tokens.scatter_(1, places, (2 + torch.arange(2 * M) % 2).expand(number, -1))


def loss(module: PositionalContextualTransformer, N: int, M: int, batch: int, g: Generator) -> Tensor:
    """Cross-entropy of the counts of all regions."""
    import torch

    from verify.tasks.contextual.positional.every_string import counts

    tokens = drawn(batch, N, M, g)
    return torch.nn.functional.cross_entropy(module(tokens).flatten(0, 1), counts(tokens, M).flatten())


def judged(trial: PositionTrial, module: PositionalContextualTransformer, N: int, M: int) -> Result:
    """What is found of a trained model: samples, and where strings can all be run, every one of them."""
    import torch

    from verify.tasks.contextual.accuracy import RandomStrings
    from verify.tasks.contextual.positional.every_string import MOST_STRINGS, counts, decide

    tokens = drawn(SAMPLES, N, M, torch.Generator().manual_seed(trial.seed + 1000))
    with torch.no_grad():
        said = torch.cat([module(part).argmax(-1) for part in torch.split(tokens, 64)])
    is_right = said == counts(tokens, M)
    sampled = int(is_right.sum()), is_right.numel()
    if RandomStrings(N, M).number() > MOST_STRINGS:
        return Result(trial.settings, sampled, proved_or_unknown(module))
    found = decide(module, N, M)
    shorter, fewer = decide(module, SHORT[trial.grid], M), decide(module, N, M - 1)
    exact = {law: (s.right, s.right + s.open) for law, s in zip(LEARNT, (found.whole, *found.shares), strict=True)}
    exact |= {law: (s.right, s.right + s.open) for law, s in ((SHORTER, shorter.whole), (FEWER, fewer.whole))}
    return Result(trial.settings, sampled, verdict(found), exact, wrong_string(module, found), numbers(trial.grid))


def numbers(grid: GridSize) -> dict[str, int]:
    """How many answers each law has: of every string, those of its regions that are asked for."""
    from verify.tasks.contextual.accuracy import RandomStrings

    N, M = SIZES[grid]
    whole, shorter, fewer = (RandomStrings(*of).number() for of in ((N, M), (SHORT[grid], M), (N, M - 1)))
    return {**dict(zip(LEARNT, (M * whole, whole, whole), strict=True)), SHORTER: M * shorter, FEWER: (M - 1) * fewer}


def proved_or_unknown(module: PositionalContextualTransformer) -> Verdict:
    """PROVED of every valid string, or UNKNOWN: a wrong string may be of another length or number of regions."""
    from verify.frame.decide import Effort, certify
    from verify.tasks.contextual.positional.task import Positional

    return Verdict.PROVED if certify(Positional.of(module), effort=Effort(BUDGET)) else Verdict.UNKNOWN


def verdict(found: PromptShares) -> Verdict:
    """Of all strings of the length and number of regions that a model was trained on."""
    if found.wrong is not None:
        return Verdict.REFUTED
    return Verdict.PROVED if found.whole.right == 1 else Verdict.UNKNOWN


def wrong_string(module: PositionalContextualTransformer, found: PromptShares) -> Mapping[str, object] | None:
    """The first string that is answered wrongly, the prompt, and what the module says as it runs."""
    if found.wrong is None:
        return None
    import torch

    from verify.tasks.contextual.task import answers, written

    tokens, prompt = found.wrong
    with torch.no_grad():
        said = int(module(torch.tensor(tokens))[prompt].argmax())
    due = answers(tokens, module.R)[prompt]
    return {"input": f"{written(tokens)} (region {prompt + 1})", "expected": due, "predicted": said}


def longer_recipe(grid: GridSize) -> Recipe:
    """The other one with more steps."""
    return replace(recipe(grid), steps=LONGER[grid])


def longer_trials(grid: GridSize, seeds: int) -> list[PositionTrial]:
    """B's four codes, ALiBi with the least slope, and every seed of each."""
    codes = (each for each in CODES if each[1] in (0.0, LEAST_SLOPE))
    return [PositionTrial(grid, pe, slope, seed, is_longer=True) for pe, slope in codes for seed in range(seeds)]


def remarks(results: Sequence[Result]) -> list[str]:
    """Which models keep what they learnt on other strings, as the three solutions of Fig. 5 do or do not."""
    found = []
    for name, other in (("shorter strings", SHORTER), ("fewer regions", FEWER)):
        pairs = [(r.settings["positions"], r.exact[LEARNT[0]][0], r.exact[other][1]) for r in results if r.exact]
        is_kept = [(code, after >= before) for code, before, after in pairs]
        parted = [str(code) for code in dict.fromkeys(code for code, _ in is_kept) if len(of_code(is_kept, code)) > 1]
        words = f"; by one seed and not by another with {', '.join(parted)}" if parted else ""
        kept = sum(kept for _, kept in is_kept)
        found.append(f"On {name} {kept} of {len(pairs)} models are right on no smaller share than on those trained on"
                     f"{words}")  # fmt: skip
    return found


def of_code(is_kept: Sequence[tuple[Setting, bool]], code: Setting) -> set[bool]:
    """Whether models of one code keep what they learnt: both where seeds differ."""
    return {kept for other, kept in is_kept if other == code}


def trials(grid: GridSize, seeds: int) -> list[PositionTrial]:
    """Every code, and every seed of it."""
    return [PositionTrial(grid, pe, slope, seed) for pe, slope in CODES for seed in range(seeds)]


def drawing(results: Sequence[Result]) -> Figure:
    from verify.experiments.figures import accuracies

    return accuracies(results, by="positions", laws=("region 1", "region 2", SHORTER, FEWER))


def laws() -> dict[str, str]:
    """What the exact shares are shares of."""
    N, M = SIZES[GridSize.LAPTOP]
    of = f"strings of {N} tokens with {M} regions"
    return {
        "both regions": f"all pairs of a region and one of the {of}",
        "region 1": f"all {of}, the first region",
        "region 2": f"all {of}, the second region",
        SHORTER: f"all pairs of a region and a string of {SHORT[GridSize.LAPTOP]} tokens with {M} regions",
        FEWER: f"all strings of {N} tokens with {M - 1} region, that region",
    }


def recipes(by: Mapping[GridSize, Recipe]) -> dict[GridSize, str]:
    """What is trained, in words."""
    whose = {
        GridSize.LAPTOP: "ours, as B prints no hyperparameters",
        GridSize.PAPER: "B's length and regions, the rest ours, as B prints no hyperparameters",
    }
    return {
        grid: f"{whose[grid]}: {by[grid]}; {SIZES[grid][0]} tokens, {SIZES[grid][1]} regions, {WIDTHS[grid][0]} "
        f"coordinates, heads of {WIDTHS[grid][1]} and {WIDTHS[grid][2]} neurons without LayerNorm"
        for grid in GridSize
    }


SAMPLING = (
    f"{SAMPLES} strings of the length and number of regions trained on, digits from fair coins, as B draws them, and "
    "delimiters at uniform places, as B does not say; answers of all regions are counted"
)


def experiments() -> tuple[Experiment, ...]:
    """Fig. 2 and what the same models do on other strings, Fig. 3, 4 and 22 to 24; and models trained for longer."""
    return (
        Experiment(
            "B-Fig-2",
            "B, Fig. 2, causal models (and Fig. 3, 4 and 22 to 24: the same models on shorter strings, on fewer "
            "regions, and with ALiBi)",
            "Which position codes learn to count regions, and what do they do on other strings?",
            "Points between chance and almost 100 % for each region: NoPE and RoPE best, AbsPE below, ALiBi better as "
            "its exponent gets smaller; on shorter strings or fewer regions some stay, others drop to chance.",
            SAMPLING,
            laws(),
            recipes({grid: recipe(grid) for grid in GridSize}),
            {GridSize.LAPTOP: 15.0, GridSize.PAPER: 7200.0},
            trials,
            drawing,
        ),
        longer_trained(),
    )


def longer_trained() -> Experiment:
    """Fig. 5: solutions that are alike on the strings they learn from, and not on others."""
    return Experiment(
        "B-Fig-5",
        "B, Fig. 5 (models of close to 100 % accuracy, on their own strings, shorter ones, and fewer regions)",
        "Which strings are wrong where all samples are right, and which other ones?",
        "Three models with good predictions on their own strings: one keeps them on shorter strings and on fewer "
        "regions, one on shorter strings alone, one on fewer regions alone.",
        SAMPLING,
        laws(),
        recipes({grid: longer_recipe(grid) for grid in GridSize}),
        {GridSize.LAPTOP: 35.0, GridSize.PAPER: 36_000.0},
        longer_trials,
        drawing,
        remarks,
    )
