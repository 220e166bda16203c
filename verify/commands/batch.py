"""`verify batch`: many checkpoints of one task in one process, one line each."""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path

from constructions.errors import BadInput, ProvedImpossible
from constructions.formats import ENDINGS
from verify.commands import workers
from verify.commands.outcome import Outcome
from verify.commands.parsing import REST, OneLineParser, with_names
from verify.commands.request import check_report
from verify.commands.resumed import KeptResults
from verify.commands.vocabulary import option, translated
from verify.frame import registry
from verify.report.batch import BatchLine, junit, print_annotation, print_line, print_summary, worst
from verify.report.console import say_written

PASSED = "_passed"  # where a namespace keeps the --task that is the command's own
FORBIDDEN = ("save", "quiet", "verbose", "impossible", "input", "table", "best")  # no verdict in JSON on one file


class FirstTask(argparse.Action):
    """Keeps the first --task, the command's, and passes the next one on: inductive has an option of that name, too."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, value: object, option_string: str | None = None
    ) -> None:
        passed = getattr(namespace, PASSED, None)
        if passed is None:
            setattr(namespace, PASSED, ())
            namespace.task = value
        else:
            setattr(namespace, PASSED, (*passed, "--task", value))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "where",
        metavar="DIR_OR_GLOB",
        nargs="+",
        help=f"a folder (all its {', '.join(ENDINGS)} files), a pattern, files",
    )
    tasks = tasks_of_files()
    add(
        "--task",
        action=FirstTask,
        default=tasks[0],
        metavar="T",
        help=f"which command judges each file: {', '.join(tasks)} (default: {tasks[0]}); a second --task is its own",
    )
    workers.add_argument(parser)
    option(parser, "resume", help="keep each file's line in DIR as it ends, and go on from what is there")
    add("--junit", metavar="FILE", help="also write the results as JUnit XML, for CI")
    option(parser, "report")
    option(parser, "json")
    parser.set_defaults(**{REST: []})
    parser.usage = (
        "verify batch DIR_OR_GLOB [--task T] [--workers N | --scheduler ADDRESS]\n"
        "                    [--resume DIR] [--junit FILE] [--report FILE.html] [--json]\n"
        "                    [options of the task]"
    )
    parser.epilog = (
        "All other options are the task's, and come after the folder: --model dot --L 10, --precision bfloat16, "
        "--map mine=theirs. The exit code is the worst of all files: 70, 2, 1, 3, then 0. Under GitHub Actions, "
        "failures are annotations."
    )


@dataclass(frozen=True)
class Job:
    """The task's command and its options, which are asked of every file."""

    task: str
    options: tuple[str, ...]
    command: str = "batch"  # that asks

    @property
    def parser(self) -> argparse.ArgumentParser:
        return _parser(self.task, self.command)

    def arguments(self, path: str) -> argparse.Namespace:
        args = self.parser.parse_args([*self.options, f"--weights={path}", "--json"])
        vars(args).pop("_given", None)
        with_names(args)
        return args

    def check(self) -> None:
        """Raises: BadInput for options that do another job than a verdict on a file."""
        args = self.arguments("weights.safetensors")
        if getattr(args, "task", "") is None:
            raise BadInput(
                f"--task {self.task}: has a --task of its own. Give a second one; verify {self.task} --help lists them."
            )
        for name in FORBIDDEN:
            if getattr(args, name, None) not in (None, False):
                raise BadInput(f"--{name}: is not for verify {self.command}. Leave it out, or use verify {self.task}.")

    @property
    def keeps_itself(self) -> bool:
        """Whether --resume is the task's: of one verdict, not of a table. It also reads Python, which may change."""
        has = self.parser._option_string_actions
        return "--resume" in has and "--table" not in has

    def named(self, path: str) -> str:
        """All that a file's line depends on: the command, and the bytes of the file and of those that options name."""
        words = [part for word in self.options for part in (word, word.partition("=")[2])]
        files = [path, *(word for word in words if os.path.isfile(word))]
        return f"{self} {path} {[hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files]}"

    def run(self, path: str) -> int:
        """Runs the task's command on a file, and returns its exit code."""
        code: int = registry.commands()[self.task].module().run(self.arguments(path))
        return code

    def judge(self, path: str) -> BatchLine:
        """The verdict on one file, or what is wrong with it."""
        started, printed = time.perf_counter(), StringIO()

        def line(code: int, said: dict[str, object] | None, message: str | None) -> BatchLine:
            return BatchLine(path, code, said, message, time.perf_counter() - started)

        try:
            with redirect_stdout(printed):
                code = self.run(path)
            return line(code, json.loads(printed.getvalue()), None)
        except ProvedImpossible as error:
            return line(2, None, f"impossible ({error.claim}): {error}")
        except Exception as error:
            outcome = Outcome.of(error, self.task)
            return line(outcome.code, None, outcome.message)


@cache
def _parser(task: str, command: str = "batch") -> argparse.ArgumentParser:
    parser = OneLineParser(prog=f"verify {command}", allow_abbrev=False)
    registry.commands()[task].module().add_arguments(parser)
    return parser


def tasks_of_files() -> tuple[str, ...]:
    """The commands that judge the weights of a file.

    >>> "parity" in tasks_of_files(), "heads" in tasks_of_files()
    (True, False)
    """
    house = registry.HOUSE
    return tuple(n for n in registry.commands() if n not in house and "--weights" in _parser(n)._option_string_actions)


def run(args: argparse.Namespace) -> int:
    helpers = workers.Workers.of(args)
    job = job_of(args)
    job.check()
    if args.junit is not None:
        from constructions.written_files import check_target

        check_target(args.junit, "junit")
    check_report(args.report)
    paths, started = files_of(args.where), time.perf_counter()
    lines: list[BatchLine] = []
    kept = KeptResults.of(None if job.keeps_itself else args.resume, job.named, BatchLine.kept, BatchLine.of)
    found = workers.results(job.judge, paths, helpers, kept, says_left=False)
    for line in workers.in_order(paths, found):
        lines.append(line)
        if not args.json:
            print_line(line)
        print_annotation(line)
    code = worst(lines)
    if args.junit is not None:
        from constructions.written_files import write_whole

        write_whole(args.junit, junit(job.task, lines), "junit")
    if args.report is not None:
        from constructions.written_files import write_whole
        from verify.report.page import batch_page

        write_whole(args.report, batch_page(job.task, lines), "report")
        say_written(args.report)
    print_summary(job.task, lines, code, time.perf_counter() - started, is_json=args.json)
    return code


def job_of(args: argparse.Namespace) -> Job:
    """The command that is asked for, with its own options, whose words may be those of the release before.

    Raises: BadInput for a command that judges no files.
    """
    if args.task not in tasks_of_files():
        raise BadInput(f"--task {args.task}: must be one of {', '.join(tasks_of_files())}.")
    own = (*getattr(args, REST), *(getattr(args, PASSED, None) or ()))
    renamed = getattr(registry.commands()[args.task].module(), "RENAMED", {})
    job = Job(args.task, tuple(translated(own, renamed).argv), args.command)
    resume = getattr(args, "resume", None)
    return replace(job, options=(*job.options, "--resume", resume)) if resume and job.keeps_itself else job


def files_of(where: list[str]) -> list[str]:
    """The files of folders, patterns and names, each once, in order.

    Raises: BadInput where one names no file.
    """
    found: dict[str, None] = {}
    for text in where:
        paths = _files(text)
        if not paths:
            raise BadInput(
                f"DIR_OR_GLOB {text!r}: no file there that ends in {', '.join(ENDINGS)}. "
                "Name the folder first, then the options."
            )
        found |= dict.fromkeys(paths)
    return list(found)


def _files(text: str) -> list[str]:
    place = Path(text or os.devnull)  # Path("") would be this folder
    if os.path.isdir(place):  # unlike Path's own, False for a name that is too long
        every = (path for path in place.rglob("*") if path.suffix in ENDINGS)
        return sorted(str(path) for path in every if path.is_file() and not path.name.startswith("."))
    if text and os.path.exists(place):
        return [text]
    return sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
