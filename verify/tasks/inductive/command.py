"""`verify inductive`: does a model count right at every length, from every shift and every start?"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown
from verify.commands import request as shared
from verify.commands import workers
from verify.commands.options import check_alone, check_least, flag, length_or_all, stored_dtype
from verify.commands.parsing import add_weights
from verify.commands.resumed import KeptResults
from verify.commands.vocabulary import DTYPES, JUDGED, MODEL, group, option, options, renamed
from verify.frame import registry

if TYPE_CHECKING:
    from verify.counting.asked import Asked
    from verify.counting.tasks import Task
    from verify.frame.impossibility import Impossibility

TASKS = ("vanilla", "succession", "shifted", "helper", "helper-shifted", "modular", "selective", "selective-modular",
         "first-homogeneous", "first-heterogeneous")  # fmt: skip
POSITIONAL = ("nope", "sine", "ape", "rope", "spe")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "tanh")
RENAMED = renamed(n_heads="heads")
OF_TRANSFORMERS = ("pe", "heads", "layers", "positions", "no_layernorm", "bos", "distinct_start")
FOLLOWED = ("rnn", "gru", "lstm", "ssm", "decay", "mamba", "rwkv", "s4")  # by --by-length
LONGEST = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models = [kind for kinds in registry.holders("COUNTS").values() for kind in kinds]
    claims = [claim for place in registry.holders("COUNTS") for claim in registry.cards()[place].IMPOSSIBLE]
    add = group(parser, JUDGED).add_argument
    add("--task", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    option(parser, "length", type=str, help="the largest length to decide, or all (default: all)")
    add("--vocabulary", type=int, metavar="M", help="number words are 0..M (default: 100)")
    option(parser, "modulus", help="of modular tasks (default: 10; 4 in selective-modular)")
    add("--types", type=int, metavar="K", help="different tokens in selective tasks (default: 10)")
    add("--max-count", type=int, metavar="C", help="counts up to C are judged in selective tasks (default: 10)")
    add("--distinct-start", action="store_true", help="only strings whose first two tokens differ")
    option(parser, "impossible", choices=claims, help=f"an argument and its checks: {', '.join(claims)}")
    add(
        "--by-length",
        action="store_true",
        help="also the share of right answers at each length up to --length N, of a recurrent network, exactly",
    )
    add("--table", action="store_true", help="all tasks and embeddings: C's figure, what is proved, what is impossible")
    option(parser, "resume", help="with --table: keep each proof in DIR, and go on from what is there")
    add = group(parser, MODEL).add_argument
    add("--model", choices=models, default="transformer", metavar="MODEL", help=f"{', '.join(models)} "
        "(default: transformer)")  # fmt: skip
    add("--pe", choices=POSITIONAL, help="positional embedding of a transformer (default: nope)")
    add("--bos", action="store_true", help="put a beginning-of-sequence token in front of every string")
    options(parser, "layers", "heads")
    add("--no-layernorm", action="store_true", help="without LayerNorm (default: pre-LayerNorm, eps 1e-5, as GPT-2)")
    add("--activation", choices=ACTIVATIONS, help="of the MLP or the recurrent unit (default: the construction's)")
    option(parser, "d", help="size of the stream, or number of units (default: the construction's)")
    add("--positions", type=int, metavar="P", help="shift + length, BOS counted, is at most P (default: 128)")
    option(parser, "as-printed", help="the document's own recipe, where it prints one")
    option(parser, "dtype")
    add_weights(
        parser,
        "decide a saved model (.safetensors or .pt) instead of building one; with --table a folder of recurrent "
        "networks, TASK-MODEL-LAYERS.safetensors each, as modular-lstm-2",
    )
    option(parser, "format", default=None)
    workers.add_argument(parser)
    shared.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.impossible is not None:
        if args.task is not None:
            raise BadInput("--task: has no effect with --impossible; drop one of the two")
        from verify.report.impossibility import print_argument

        try:
            return print_argument(_argument(args.impossible, args.seed, StoredDecoder.of(args)), is_json=args.json)
        except NotKnown as error:
            return shared.print_unknown(str(error), args.json)
    if args.table:
        check_alone(args, {"table": ("task", "length", "budget", "effort")}, {"table": False, "budget": 30.0})
        if not isinstance(args.weights, str | None):
            raise BadInput("--map: reads one file, and with --table --weights names a folder; drop it")
        form = "json" if args.json else args.format or "rich"
        return _print_table(args.seed, form, workers.Workers.of(args), args.resume, args.weights)
    if args.resume is not None:
        raise BadInput("--resume: keeps the proofs of a table; add --table, or drop it")
    if args.format is not None:
        raise BadInput("--format: is that of a table; add --table, or drop it")
    if args.workers != 1 or args.scheduler is not None:
        raise BadInput("--workers: prove the cells of a table; add --table, or drop it")
    request, asked = shared.Request.of(args), parsed(args)
    from verify.counting.asked import judge_of
    from verify.counting.lengths import in_words, proved_in_words
    from verify.tasks.inductive import document_c

    try:
        judged = judge_of(asked.model)(asked)
    except NotKnown as error:
        return shared.print_unknown(str(error), request.is_json)
    certificate = shared.decided(request, judged.problem)
    of_c = document_c.beside(asked.task, asked.model, certificate)
    certificate = replace(certificate, extra=certificate.extra | ({"document_c": of_c} if of_c else {}))
    extra = certificate.extra
    lengths = [("lengths", proved_in_words(extra, certificate.parameters))] if certificate and "length" in extra else []
    facts = [*judged.facts, *lengths, *in_words(extra), *document_c.in_words(of_c)]
    return shared.publish(request, certificate, judged.weights, facts, only_saved=lambda: judged.saved(certificate))


def parsed(args: argparse.Namespace) -> Asked:
    """The options of the task and the model.

    Raises: BadInput for options that do not go together, or a size out of range.
    """
    if args.task is None:
        raise BadInput("--task: missing. Name one of " + ", ".join(TASKS) + ", or use --table or --impossible.")
    check_least(args, 1, "layers", "heads", "d", "positions")
    if args.model != "transformer":
        for name in OF_TRANSFORMERS:
            if getattr(args, name) not in (None, False):
                raise BadInput(f"{flag(name)}: belongs to transformers; drop it, or --model {args.model}")
    if args.positions is not None and args.positions > LONGEST:
        raise BadInput(f"--positions {args.positions}: must be at most {LONGEST}")
    is_built = args.weights is None
    if not is_built:
        _check_stored(args)
    from verify.counting.asked import Asked
    from verify.counting.tasks import Task

    task = Task.of(
        args.task,
        vocabulary=args.vocabulary,
        modulus=args.modulus,
        types=args.types,
        max_count=args.max_count,
        distinct_start=args.distinct_start,
    )
    length = length_or_all(args.length, LONGEST)
    if args.by_length:
        _check_by_length(args, task, length)
    longest = task.longest(length)
    if length is not None and longest is not None and longest < length:
        raise BadInput(
            f"--length {length}: number words end at M={task.M}, so that n is at most {longest} in {task.name}; "
            "leave it out, or give a larger --vocabulary"
        )
    return Asked(
        task=task,
        model=args.model,
        pe=args.pe or ("nope" if is_built and args.model == "transformer" else None),  # a file says its own
        has_bos=args.bos,
        layers=args.layers,
        has_layernorm=not args.no_layernorm,
        activation=args.activation,
        n_heads=args.heads,
        d=args.d,
        positions=args.positions,
        length=length,
        dtype=stored_dtype(args, DTYPES),
        as_printed=args.as_printed,
        weights=args.weights,
        seed=args.seed,
        by_length=args.by_length,
    )


def _check_by_length(args: argparse.Namespace, task: Task, length: int | None) -> None:
    """Refuses a table of lengths of what is not followed token by token, or has no end."""
    if args.model not in FOLLOWED:
        raise BadInput(f"--by-length: counts answers of --model {', '.join(FOLLOWED)}; drop it")
    if args.method != "certified":
        raise BadInput(f"--by-length: counts what a proof follows; drop it, or --method {args.method}")
    if args.precision not in (None, "real"):
        raise BadInput("--by-length: networks are followed to a length in real arithmetic; drop --precision")
    if task.longest(length) is None:
        raise BadInput("--by-length: a table of lengths has an end. Give --length N.")


def _check_stored(args: argparse.Namespace) -> None:
    """Refuses options of what is built where a file is decided."""
    for name in ("as_printed", "dtype"):
        if getattr(args, name) not in (None, False):
            raise BadInput(
                f"{flag(name)}: is of weights that are built, and --weights names a file; drop one of the two"
            )


@dataclass(frozen=True)
class StoredDecoder:
    """A saved decoder that C-I4 is to be shown of, and what its file may not say."""

    weights: str
    given: dict[str, object]
    modulus: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> StoredDecoder | None:
        """None where no file is named.

        Raises: BadInput for an argument that speaks of no stored model.
        """
        if args.weights is None:
            return None
        if args.impossible != "C-I4":
            raise BadInput(f"--weights: only --impossible C-I4 speaks of a stored model; drop it for {args.impossible}")
        modulus = 10 if args.modulus is None else args.modulus
        if modulus < 2:
            raise BadInput(f"--modulus {modulus}: must be at least 2")
        given = {"pe": args.pe, "bos": args.bos or None, "n_heads": args.heads, "activation": args.activation}
        return cls(args.weights, given, modulus)


def _argument(claim: str, seed: int, decoder: StoredDecoder | None) -> Impossibility:
    """An argument with its checks, about all models or about one that is stored."""
    if decoder is not None:
        from constructions.inductive import load
        from verify.tasks.inductive.impossible import stored_bos_fades

        return stored_bos_fades(load(decoder.weights, decoder.given), decoder.modulus)
    place = next(place for place in registry.holders("COUNTS") if claim in registry.cards()[place].IMPOSSIBLE)
    found: Impossibility = import_module(f"{place}.impossible").ARGUMENTS[claim](seed)
    return found


def _print_table(seed: int, form: str, helpers: workers.Workers, resume: str | None, trained: str | None) -> int:
    """Prints the table; exit code 3 where a cell is open. With a folder each proof is kept there as it ends.

    The networks of the folder `trained` are decided beside the figures.
    """
    from verify.report.tables import render

    module = import_module("verify.tasks.inductive.table")
    jobs = module.jobs(seed)
    files = None if trained is None else module.trained_files(trained, seed)
    kept_words = KeptResults.of(resume, attrgetter("named"), module.if_decided, module.TrainedFile.kept)
    decided = None if files is None else dict(workers.results(module.TrainedFile.run, files, helpers, kept_words))
    kept = KeptResults.of(resume, repr, module.Entry.to_json, module.TableJob.kept)
    table = module.table(dict(workers.results(module.TableJob.run, jobs, helpers, kept)), seed, decided)
    print(render(table.columns, table.rows, form), end="")
    return 0 if table.is_complete else 3
