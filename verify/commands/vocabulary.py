"""The words of the command line: every option that several commands have, declared once, and last release's spellings.

| meaning | spelling |
|---|---|
| the length that is judged | `--length N`, `--length all`; the document's `--L` in histogram and parity |
| the length that is built for | `--built-for N` |
| the modulus | `--modulus m`; also the document's `--P` in modular |
| the number of heads; some heads by number | `--heads a`; `--subset 2,4` |
| one input | `--input X` |
| where results go | `--save DIR` (weights and certificate), `--out FILE` (one file that is made) |
| for machines; tables | `--json`; `--format markdown`, `csv` or `latex` |
| work | `--budget SECONDS`, `--effort N` (steps instead of seconds), `--seed S` |
| work in parts | `--workers N`, `--scheduler ADDRESS`, `--resume DIR` |
| the reading | `--precision D`, `--accumulate float32` |
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from verify.frame.certificate import METHODS
from verify.report.tables import FORMS

DTYPES = ("float64", "float32", "bfloat16", "float16")

TITLES = MODEL, JUDGED, HOW, OUTPUT = (
    "the model",
    "what is judged",
    "how it is decided",
    "what is printed and written",
)


class Word(NamedTuple):
    """An option: the group of the help page that it stands in, and what argparse is told of it."""

    group: str
    said: Mapping[str, object]


def _flag(group: str, help: str) -> Word:
    return Word(group, {"action": "store_true", "help": help})


def _whole(group: str, metavar: str, help: str) -> Word:
    return Word(group, {"type": int, "metavar": metavar, "help": help})


OPTIONS: Mapping[str, Word] = {
    "T": _whole(MODEL, "T", "alphabet size"),
    "L": _whole(MODEL, "L", "sequence length"),
    "d": _whole(MODEL, "d", "embedding size (default: T)"),
    "p": _whole(MODEL, "p", "hidden neurons (default: the fewest that the construction needs)"),
    "heads": _whole(MODEL, "a", "attention heads"),
    "layers": _whole(MODEL, "n", "(default: as many as the construction takes)"),
    "modulus": _whole(MODEL, "m", "what is counted modulo"),
    "built-for": _whole(MODEL, "N", "longest input that the model is built for (default: --length)"),
    "dtype": Word(
        MODEL, {"choices": DTYPES, "help": "dtype of the stored weights (default: float64, or that of --precision)"}
    ),
    "as-printed": _flag(MODEL, "the document's own numbers, misprints included"),
    "weights": Word(MODEL, {"metavar": "FILE", "help": "judge these weights (.safetensors or .pt state dict) instead"}),
    "subset": Word(MODEL, {"metavar": "HEADS", "help": "these heads alone, such as 2,4, the others zeroed"}),
    "length": _whole(JUDGED, "N", "longest input that is judged"),
    "labels": Word(
        JUDGED,
        {
            "choices": ("majority-ones", "thesis"),
            "default": "majority-ones",
            "help": "4 iff n1 > n0, or 4 iff n0 >= n1 (default: majority-ones)",
        },
    ),
    "input": Word(JUDGED, {"metavar": "X", "help": "run one input instead"}),
    "impossible": Word(JUDGED, {"metavar": "ID", "help": "an argument of impossibility and its checks instead"}),
    "precision": Word(
        HOW,
        {
            "metavar": "D",
            "help": "round every operation to float64, float32, tf32, bfloat16, float16, e4m3, e5m2 or pN (N bits), in "
            "any order, or to sN: constant-bit arithmetic of N bits either side of the point (default: real)",
        },
    ),
    "accumulate": Word(HOW, {"choices": ("float32",), "help": "with --precision: sum matrix products in float32"}),
    "method": Word(
        HOW,
        {
            "choices": METHODS,
            "default": METHODS[0],
            "help": "proof, or running the module on every or sampled inputs (default: certified)",
        },
    ),
    "budget": Word(
        HOW, {"type": float, "default": 30.0, "metavar": "SECONDS", "help": "time limit of a search (default: 30)"}
    ),
    "effort": Word(
        HOW,
        {
            "type": int,
            "metavar": "N",
            "help": "end a search after N steps, the same on every machine, instead of after --budget seconds",
        },
    ),
    "seed": Word(HOW, {"type": int, "default": 0, "metavar": "S", "help": "for what is drawn at random (default: 0)"}),
    "workers": Word(
        HOW, {"type": int, "default": 1, "metavar": "N", "help": "processes; each takes seconds to start (default: 1)"}
    ),
    "scheduler": Word(
        HOW, {"metavar": "ADDRESS", "help": "of dask.distributed: its workers do the jobs (extra: cluster)"}
    ),
    "resume": Word(HOW, {"metavar": "DIR", "help": "keep each part in DIR as it ends, and go on from what is there"}),
    "save": Word(
        OUTPUT,
        {"metavar": "DIR", "help": "also write weights and certificate; a FILE.safetensors gets the weights alone"},
    ),
    "report": Word(OUTPUT, {"metavar": "FILE.html", "help": "also write one page to look at"}),
    "out": Word(OUTPUT, {"metavar": "FILE", "help": "the file that is made"}),
    "format": Word(OUTPUT, {"choices": FORMS[:-1], "default": FORMS[0], "help": "of a table (default: rich)"}),
    "json": _flag(OUTPUT, "print one JSON object and nothing else"),
    "quiet": _flag(OUTPUT, "print the verdict in one line"),
    "verbose": _flag(OUTPUT, "print every field of the certificate"),
}


def option(parser: argparse.ArgumentParser, name: str, *other: str, **said: Any) -> None:
    """Adds an option of the vocabulary, with what is other about it in a command, and other spellings of it."""
    word = OPTIONS[name]
    group(parser, word.group).add_argument(f"--{name}", *other, **{**word.said, **said})


def options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds options of the vocabulary as they are."""
    for name in names:
        option(parser, name)


def table_options(parser: argparse.ArgumentParser) -> None:
    """--format of a table, and --json for its rows: `args.format` says which."""
    option(parser, "format")
    option(parser, "json", action="store_const", dest="format", const="json")


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The options of a help page under one of TITLES, which stand in that order; one without options is not shown."""
    made = {str(group.title): group for group in parser._action_groups}
    if title not in made:
        made |= {each: parser.add_argument_group(each) for each in TITLES}
    return made[title]


# spellings of the release before

Renamed = Mapping[str, Mapping[str, str]]  # an old spelling, and what stands for each option of a line that has it

JSON = ("--format", "json")


def renamed(**spellings: str) -> dict[str, Mapping[str, str]]:
    """Old spellings that stand for one new one each.

    >>> renamed(on_regions="regions")
    {'--on-regions': {'--on-regions': '--regions'}}
    """
    pairs = [(f"--{old.replace('_', '-')}", f"--{new.replace('_', '-')}") for old, new in spellings.items()]
    return {old: {old: new} for old, new in pairs}


class Translated(NamedTuple):
    """A command line in this release's words, and what to say of each word that was another's."""

    argv: list[str]
    told: list[str]


def translated(argv: Sequence[str], old: Renamed) -> Translated:
    """Reads a command line that may be spelt as in the release before.

    >>> translated(["--say", "1=", "--format=json"], renamed(say="input"))
    Translated(argv=['--input', '1=', '--json'], told=['--say is now --input', '--format json is now --json'])
    """
    given = {word.partition("=")[0] for word in argv if word.startswith("--")}
    pairs = {word: now for marker in old if marker in given for word, now in old[marker].items() if word in given}
    told = [f"{word} is now {now}" for word, now in pairs.items()]
    words = [_spelt(word, pairs) for word in argv]
    spelt = list(_with_json(words))
    return Translated(spelt, told + ["--format json is now --json"] * (spelt != words))


def _spelt(word: str, pairs: Mapping[str, str]) -> str:
    name, sign, value = word.partition("=")
    return pairs.get(name, name) + sign + value


def _with_json(words: Sequence[str]) -> Iterator[str]:
    left = iter(range(len(words)))
    for i in left:
        if tuple(words[i : i + 2]) == JSON:
            next(left)
            yield "--json"
        else:
            yield "--json" if words[i] == "=".join(JSON) else words[i]
