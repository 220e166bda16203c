"""`verify module`: is a torch module right on every input of a finite token domain?"""

from __future__ import annotations

import argparse
import gc

from constructions.errors import BadInput
from constructions.uncollected import uncollected
from verify.commands import request, workers
from verify.commands.options import length_or_all
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import HOW, group, option

LONGEST = 10**9 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task_file", metavar="TASK.py", help="your Python file, which is imported: it defines task and model(weights)")
    add_weights(parser, "a state dict for model(weights): .pt or .safetensors, read without unpickling")
    option(
        parser,
        "length",
        type=str,
        help="of a recurrent cell: the longest strings that are judged, or all (default: all)",
    )
    group(parser, HOW).add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where inputs are decided (default: cpu)"
    )
    group(parser, HOW).add_argument(
        "--rounding",
        default="any",
        choices=("any", "once"),
        help="with --accumulate float32: once rounds each result of an operation on tensors once (default: any, kept "
        "wider or rounded)",
    )
    option(parser, "resume", help="keep what a search by cells finds in DIR, and go on from what is there")
    group(parser, HOW).add_argument(
        "--aim",
        default="accuracy",
        choices=("accuracy", "verdict"),
        help="accuracy counts all right and wrong inputs; verdict ends at the first wrong one, and looks first where "
        "one may be (default: accuracy)",
    )
    workers.add_argument(parser)
    request.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with uncollected():
        asked, helpers = request.Request.of(args), workers.Workers.of(args)
        check_of_parts(args, helpers)
        from constructions.written_files import made_folder
        from verify.arithmetic.readings import reading_of
        from verify.frame.decide import decide
        from verify.frame.tracing import load_tracer
        from verify.module.problem import ModuleProblem
        from verify.module.program import of_cell, program
        from verify.module.recurrence import Recurrence
        from verify.module.recurrent import RecurrentProblem
        from verify.report.progress import progress_bar
        from verify.tasks.module import elsewhere
        from verify.tasks.module.task import about, as_bytes, errors_named, look_at, problem_parts

        if args.resume is not None:
            made_folder(args.resume, "resume")
        reading = reading_of(asked.precision, asked.accumulate, args.rounding)
        module, task = problem_parts(args.task_file, args.weights)
        problem: ModuleProblem | RecurrentProblem
        if isinstance(task, Recurrence):
            check_of_a_cell(args)
            problem = RecurrentProblem(module, task, length_or_all(args.length, LONGEST))
        else:
            if args.length is not None:
                raise BadInput(
                    "--length: is for a recurrent cell, whose task is a Recurrence; inputs= says all lengths"
                )
            files = elsewhere.Files.of(args.task_file, args.weights)
            run_parts = elsewhere.runs(files, helpers) if helpers.share_codes else None
            problem = ModuleProblem(module, task, args.device, args.resume, args.aim, run_parts)
        load_tracer()
        asked = asked.begun()
        with errors_named(args.task_file):
            problem.capture()  # while nothing is collected
    gc.freeze()
    with errors_named(args.task_file), progress_bar("deciding", quiet=asked.is_json) as progress:
        effort = asked.effort(lambda share: progress(share, problem.so_far))
        certificate = decide(problem, reading, asked.method, effort)
    facts = [*about(args.task_file), *problem.report(certificate)]
    counts = certificate.extra.get("counts") or {}
    brackets = problem.over_time.brackets(sum(map(int, counts.values()))) if counts else []

    def saved() -> dict[str, object]:
        return of_cell(problem, certificate) if isinstance(problem, RecurrentProblem) else program(problem)

    return request.publish(
        asked,
        certificate,
        as_bytes(problem.module),
        facts,
        look_at=look_at(problem),
        over_time=brackets,
        only_saved=lambda: {"program": said} if (said := saved()) else {},
    )


def check_of_parts(args: argparse.Namespace, helpers: workers.Workers) -> None:
    """Raises: BadInput for steps that would be counted in several processes."""
    if helpers.share_codes and args.effort is not None:
        raise BadInput("--effort: counts the steps of one process; use --budget with --workers or --scheduler")


def check_of_a_cell(args: argparse.Namespace) -> None:
    """Raises: BadInput for options that a recurrent cell does not have."""
    given = {
        "--resume": args.resume is not None,
        "--device": args.device != "cpu",
        "--aim": args.aim != "accuracy",
        "--rounding": args.rounding != "any",
        "--workers": args.workers != 1,
        "--scheduler": args.scheduler is not None,
    }
    for name in (name for name, is_given in given.items() if is_given):
        raise BadInput(f"{name}: is for inputs of a fixed length, not for a recurrent cell; drop it")
