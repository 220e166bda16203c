"""What `verify repair`, `radius` and `quantise` share: the model of a file, and where a changed one is written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.options import flag
from verify.commands.parsing import add_map
from verify.commands.vocabulary import JUDGED, group, option, options
from verify.frame import registry
from verify.frame.schema import as_json
from verify.report.console import say_written

if TYPE_CHECKING:
    from verify.changes.changeable import Changeable
    from verify.frame.certificate import Certificate
    from verify.frame.decide import Effort

PART = "changing"  # of a task's folder: how the numbers of its models are changed
OPTIONS = ("model", "L", "weights", "max_digits", "max_noise", "labels", "modulus", "length")  # that a part may take


def tasks() -> list[str]:
    """The tasks whose models can be changed.

    >>> sorted(tasks())
    ['addition', 'contextual', 'count01', 'histogram', 'inductive', 'modular', 'module', 'parity', 'recurrent']
    """
    return [place.rpartition(".")[2] for place in registry.cards() if find_spec(f"{place}.{PART}") is not None]


def add_arguments(parser: argparse.ArgumentParser, *, precision: bool = True) -> None:
    """FILE, --task, --model, --L, the reading, --budget, --effort, --save and --json."""
    names = tasks()
    add_file(parser)
    add_map(parser, of="file")
    help = f"what they are to know: {', '.join(names)} (default: {names[0]})"
    parser.add_argument("--task", choices=names, default=names[0], metavar="TASK", help=help)
    add_options(parser, precision=precision)
    add = group(parser, JUDGED).add_argument
    add("--max-digits", type=int, metavar="A", help="of count01: n0 and n1 up to A each")
    add("--max-noise", type=int, metavar="B", help="of count01: n2 up to B")
    option(parser, "labels", default=None, help="of count01: 4 iff n1 > n0 (default), or 4 iff n0 >= n1")
    option(parser, "modulus", help="of recurrent: what is counted modulo (default: 10)")
    option(parser, "length", help="of contextual, inductive, recurrent: the largest length (default: all)")


def add_file(parser: argparse.ArgumentParser) -> None:
    """FILE."""
    help = "weights (.safetensors or .pt state dict); with --task module your TASK.py"
    parser.add_argument("file", metavar="FILE", help=help)


def add_options(parser: argparse.ArgumentParser, *, precision: bool = True) -> None:
    """What `add_arguments` adds besides FILE and --task."""
    parser.add_argument("--model", metavar="M", help="the kind of model, where the file does not say it")
    option(parser, "weights", metavar="W", help="with --task module: a state dict for model(weights)")
    option(parser, "L", help="sequence length, where the file does not say it")
    options(parser, *(("precision", "accumulate") if precision else ()), "budget", "effort", "save", "json", "quiet")


def tensors_in(text: str | None) -> tuple[str, ...] | None:
    """The names of tensors with commas between them, None for all.

    >>> tensors_in("W_1, b_1"), tensors_in(None)
    (('W_1', 'b_1'), None)
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


@dataclass(frozen=True)
class ChangeAsked(request.Wanted):
    """What a command line asks for, besides what is special about the change."""

    file: str
    place: str
    options: Mapping[str, object]
    record: str

    @classmethod
    def of(cls, args: argparse.Namespace, record: str) -> ChangeAsked:
        """Parses the shared options, and refuses a target that cannot be written before anything is computed.

        `record` is the file, beside weights and certificate, that says what was changed.
        """
        place = next(place for place in registry.cards() if place.endswith(f".{args.task}"))
        reading = getattr(args, "precision", None), getattr(args, "accumulate", None)
        request.check_printed(args)
        wanted = *reading, request.budget_of(args.budget, args.effort), args.save, args.json, args.quiet
        options = {name: getattr(args, name) for name in OPTIONS if getattr(args, name, None) is not None}
        asked = cls(*wanted, args.file, place, options, record)
        asked.check(record)
        return asked

    def effort(self, progress: object = None) -> Effort:
        from verify.frame.decide import Effort, silent

        return Effort(self.budget, 0, progress or silent)  # type: ignore[arg-type]

    def changeable(self) -> Changeable:
        """The model of the file.

        Raises: BadInput for an option that says nothing about models of this task.
        """
        part = import_module(f"{self.place}.{PART}")
        known = signature(part.load).parameters.keys() | signature(part.changeable).parameters.keys()
        for name, value in self.options.items():
            if name not in known:
                task = self.place.rpartition(".")[2]
                raise BadInput(f"{flag(name)} {value}: says nothing about --task {task}. Drop it.")
        given = {name: value for name, value in self.options.items() if name in signature(part.load).parameters}
        loaded = part.load(self.file, **given)
        parts = loaded if isinstance(loaded, tuple) else (loaded,)
        also = {name: value for name, value in self.options.items() if name in signature(part.changeable).parameters}
        found: Changeable = part.changeable(*parts, **also)
        return found

    def written(
        self, record: dict[str, object], weights: bytes | None, certificate: Certificate | None, alone: bytes | None
    ) -> list[str]:
        """Writes what was asked for, a folder or the weights alone where there are any; returns the files' names.

        `alone` are the same weights in another layout, where they are written so without a certificate.
        """
        if self.save is None or (self.is_weights_file and weights is None):
            return []
        from constructions import written_files

        if self.is_weights_file:
            assert weights is not None
            written_files.write_whole(self.save, alone or weights)
            return [self.save]
        files = {self.record: as_json(record).encode() + b"\n"}
        if weights is not None and certificate is not None:
            text = certificate.about(weights).to_json() + "\n"
            files |= dict(zip(request.SAVED, (weights, text.encode()), strict=True))
        written_files.write_whole_folder(self.save, files)
        return [str(Path(self.save) / name) for name in files]

    def published(
        self,
        record: dict[str, object],
        lines: list[str],
        weights: bytes | None,
        certificate: Certificate | None,
        alone: bytes | None = None,
    ) -> None:
        """Writes what was asked for, as `written` says, and prints the record as one object, or its lines.

        Of the lines the last is the verdict, which stands alone where --quiet asks for it.
        """
        written = self.written(record, weights, certificate, alone)
        if self.is_json:
            print(as_json(record))
        else:
            from verify.report.console import say

            for line in lines[-1:] if self.is_quiet else lines:
                say(line)
        if written:
            say_written(*written)
        elif self.save is not None:
            print(f"wrote nothing to {self.save}: there are no other weights", file=sys.stderr)
