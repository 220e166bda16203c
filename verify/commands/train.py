"""`verify train`: a model from random weights to a proof, or its best version and how much of it is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.parsing import OneLineParser
from verify.commands.vocabulary import HOW, group, option, options
from verify.frame import registry
from verify.frame.schema import as_json
from verify.report.console import say, say_written

if TYPE_CHECKING:
    from verify.changes.until_proved import Lesson, State

PART = "training"  # of a task's folder: how its models are trained
RECORD, STATE = "training.json", "state.safetensors"
BEST, LAST = "best.", "last."  # which model a tensor of the state is of
BUDGET = 600.0
PROVED = "proved"
# what does not change a model
NOT_ASKED = ("save", "resume", "json", "quiet", "budget", "debug", "run", "until", "command")


def courses() -> dict[str, str]:
    """The tasks whose models can be trained, by name, and the modules that say how.

    >>> sorted(courses())
    ['count01', 'histogram', 'modular', 'recurrent']
    """
    places = {place.rpartition(".")[2]: f"{place}.{PART}" for place in registry.cards()}
    return {name: module for name, module in places.items() if find_spec(module) is not None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(
        dest="task", required=True, metavar="TASK", help="what the model is to know", parser_class=OneLineParser
    )
    for name, place in courses().items():
        part = import_module(place)
        kind = kinds.add_parser(name, help=part.SUMMARY, description=f"Trains {part.SUMMARY}.", allow_abbrev=False)
        part.add_arguments(kind)
        group(kind, HOW).add_argument(
            "--until",
            choices=(PROVED,),
            default=PROVED,
            help="what ends the training before --budget (default: proved)",
        )
        option(kind, "budget", default=BUDGET, help=f"time limit of the whole training (default: {BUDGET:g})")
        options(kind, "precision", "accumulate", "seed")
        option(kind, "save", metavar="DIR", help="write the best model and its certificate after every round")
        option(kind, "resume", help="go on in the --save folder of a run that was cut")
        options(kind, "json", "quiet")
    parser.epilog = "Exit codes: 0 PROVED, 1 the best model is REFUTED, 2 bad usage or input, 3 it is UNKNOWN."


@dataclass(frozen=True)
class TrainAsked(request.Wanted):
    """What a command line asks for, besides the model."""

    place: str
    seed: int
    about: Mapping[str, object]
    must_exist: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> TrainAsked:
        """Raises: BadInput for a folder that cannot be written, or that holds another training."""
        if args.resume is not None and args.save is not None:
            raise BadInput(f"--resume {args.resume}: --save {args.save} names a folder, too. Drop one of the two.")
        folder = args.resume or args.save
        if folder is not None and folder.endswith(".safetensors"):
            raise BadInput(f"--save {folder}: names a file, and a training writes several. Name a folder.")
        request.check_printed(args)
        about = {name: value for name, value in sorted(vars(args).items()) if name not in NOT_ASKED}
        place, is_resumed = courses()[args.task], args.resume is not None
        wanted = args.precision, args.accumulate, args.budget, folder, args.json, args.quiet
        asked = cls(*wanted, place, args.seed, about, is_resumed)
        asked.check(RECORD, STATE)
        return asked

    @property
    def folder(self) -> Path | None:
        return None if self.save is None else Path(self.save)


def run(args: argparse.Namespace) -> int:
    asked = TrainAsked.of(args)
    course: Lesson = import_module(asked.place).course(args)
    from verify.changes.until_proved import until_proved
    from verify.frame.decide import Effort
    from verify.report.progress import progress_bar

    state = _found(asked, course)

    def after(state: State) -> None:
        if not asked.is_quiet:
            _say_round(state)
        _write(asked, course, state)

    try:
        with progress_bar("training", quiet=asked.is_json) as progress:
            effort = Effort(asked.budget, asked.seed, progress)
            until_proved(course, effort, asked.reading, state, after)
    except KeyboardInterrupt:
        kept = "" if asked.folder is None else f"{len(state.rounds)} rounds kept in {asked.folder}; --resume goes on"
        raise KeyboardInterrupt(kept) from None
    return _published(asked, state)


def _say_round(state: State) -> None:
    from verify.arithmetic.outward import above

    last, number = state.rounds[-1], len(state.rounds)
    wrong = "" if last.wrong is None else f", at most {above(last.wrong, 3)} of the answers wrong"
    mended = "" if last.repaired is None else f", repair: {last.repaired}"
    print(f"round {number}: loss {last.loss:.3g}, {last.verdict}{wrong}{mended}", file=sys.stderr, flush=True)


def _published(asked: TrainAsked, state: State) -> int:
    certificate = state.certificate
    if certificate is None:
        raise BadInput(f"--budget {asked.budget}: no round of training ends in it. Give more seconds.")
    record = {"verdict": certificate.verdict.value, "rounds": [each.to_dict() for each in state.rounds]}
    if asked.is_json:
        print(as_json(record | {"certificate": certificate.to_dict()}))
    else:
        rounds = "1 round" if len(state.rounds) == 1 else f"{len(state.rounds)} rounds"
        if not asked.is_quiet:
            say(f"{rounds}, {sum(each.steps for each in state.rounds)} steps")
        say(str(certificate))
    if asked.folder is not None:
        say_written(*(str(asked.folder / name) for name in (*request.SAVED, RECORD)))
    return certificate.verdict.exit_code


def _write(asked: TrainAsked, course: Lesson, state: State) -> None:
    """The best model with its certificate, the rounds, and all that the next round starts from."""
    if asked.folder is None or state.best is None or state.certificate is None:
        return
    from safetensors.torch import save

    from constructions.written_files import write_whole_folder

    weights = course.file(state.best)
    tensors = {
        f"{which}{name}": value.contiguous()
        for which, module in ((BEST, state.best), (LAST, course.module))
        for name, value in module.state_dict().items()
    }
    if state.hard is not None:
        tensors["hard"] = state.hard.contiguous()
    record = {"asked": asked.about, "rounds": [each.to_dict() for each in state.rounds]}
    files = {
        **dict(zip(request.SAVED, (weights, f"{state.certificate.about(weights).to_json()}\n".encode()), strict=True)),
        RECORD: as_json(record).encode() + b"\n",
        STATE: save(tensors),
    }
    write_whole_folder(asked.folder, files)


def _found(asked: TrainAsked, course: Lesson) -> State:
    """The state that an earlier run of the same training left in the folder, else a new one.

    Raises: BadInput where a run is to be gone on with that is not there, or is another one.
    """
    from verify.changes.until_proved import State

    folder = asked.folder
    found = None if folder is None else _restored(folder, asked, course)
    if found is None and asked.must_exist:
        said = "holds no training of this model. Name the folder and the options of that run."
        raise BadInput(f"--resume {folder}: {said}")
    if found is None and folder is not None and (folder / RECORD).exists():
        raise BadInput(f"--save {folder}: holds another training, which would be lost. Name a new folder.")
    return found or State()


def _restored(folder: Path, asked: TrainAsked, course: Lesson) -> State | None:
    """What the last round left. The best model is decided anew, so that no file says PROVED."""
    from copy import deepcopy

    from safetensors import SafetensorError
    from safetensors.torch import load

    from verify.changes.until_proved import Round, State
    from verify.frame.decide import Effort

    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, SafetensorError):
        said = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if said["asked"] != json.loads(json.dumps(dict(asked.about))):
            return None
        rounds, tensors = [Round.from_dict(each) for each in said["rounds"]], load((folder / STATE).read_bytes())
        best = deepcopy(course.module)
        for module, name in ((best, BEST), (course.module, LAST)):
            part = {key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}
            module.load_state_dict(part)
        best.requires_grad_(False)
        certificate = course.decided(best, asked.reading, Effort(asked.budget, asked.seed))
        return State(rounds, tensors.get("hard"), best, certificate)
    return None
