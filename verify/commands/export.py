"""`verify export`: proved and refuted models as ONNX networks with VNN-LIB queries, for other verifiers."""

from __future__ import annotations

import argparse
import csv
import json
from io import StringIO
from pathlib import Path

from constructions.errors import BadInput
from verify.commands.vocabulary import option
from verify.frame.schema import as_json
from verify.report.console import say_written

TIMEOUT = 300  # seconds, as VNN-COMP's instances.csv has one
COLUMNS = ("name", "answer", "inputs", "outputs", "boxes", "alternatives", "onnx_bytes", "vnnlib_bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="DIR", help="a new folder, for onnx/, vnnlib/, vnnlib2/, instances.csv and answers.json")
    option(parser, "T", default=3, help="alphabet size of the histogram models, 2 to 4 (default: 3)")
    option(parser, "L", default=3, help="sequence length (default: 3)")
    add("--no-check", action="store_true", help="do not run the networks by onnxruntime")
    option(parser, "json")


def run(args: argparse.Namespace) -> int:
    from constructions.written_files import check_target_folder
    from verify.export.instances import check_size
    from verify.export.networks import onnx_library

    check_target_folder(args.folder, (), "DIR")
    check_size(args.T, args.L)
    folder = Path(args.folder)
    onnx_library()
    try:
        rows, answers, ran = written(folder, args.T, args.L, is_checked=not args.no_check)
    except OSError as error:
        raise BadInput(f"DIR={args.folder!r}: cannot write there ({error.strerror}). Name another.") from None
    if args.json:
        print(as_json({"instances": rows, "onnxruntime_runs": ran}))
    else:
        from verify.report.tables import render

        print(render(COLUMNS, [[row[name] for name in COLUMNS] for row in rows], "rich"), end="")
        of = {answer: sum(row["answer"] == answer for row in rows) for answer in ("unsat", "sat")}
        checked = "not run" if ran is None else f"{ran} runs by onnxruntime say the same"
        print(f"{len(rows)} instances: {of['unsat']} unsat and {of['sat']} sat, all proved; {checked}")
    say_written(folder)
    return 0


def written(
    folder: Path, T: int, L: int, *, is_checked: bool
) -> tuple[list[dict[str, object]], dict[str, object], int | None]:
    """Writes the set into a folder beside `folder`, which then takes its place. Returns its rows, the answers, and how
    many runs were made.
    """
    import tempfile

    from verify.export.instances import instances
    from verify.export.queries import version_1, version_2
    from verify.export.running import check, sizes

    target, rows, answers = folder.resolve(), list[dict[str, object]](), dict[str, object]()
    ran = 0 if is_checked else None
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as beside:
        made = Path(beside) / "set"
        for name in ("onnx", "vnnlib", "vnnlib2"):
            (made / name).mkdir(parents=True)
        for instance in instances(T, L):
            comment = f"{instance.name}: {instance.answer}\n{instance.why}"
            network = made / "onnx" / f"{instance.name}.onnx"
            network.write_bytes(instance.network)
            text = version_1(instance.query, comment)
            (made / "vnnlib" / f"{instance.name}.vnnlib").write_text(text, encoding="utf-8")
            (made / "vnnlib2" / f"{instance.name}.vnnlib").write_text(
                version_2(instance.query, comment), encoding="utf-8"
            )
            if ran is not None:
                ran += check(instance, network)
            about = {"name": instance.name, "answer": instance.answer, **sizes(instance.query)}
            rows.append(about | {"onnx_bytes": len(instance.network), "vnnlib_bytes": len(text)})
            answers[instance.name] = {
                "answer": instance.answer, "why": instance.why, "float32_runs_differ": instance.is_exact_only,
                **instance.facts,
            }  # fmt: skip
        (made / "instances.csv").write_text(vnn_comp(rows), encoding="utf-8")
        (made / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
        if target.is_dir():
            target.rmdir()  # empty, as `run` has seen
        made.rename(target)
    return rows, answers, ran


def vnn_comp(rows: list[dict[str, object]]) -> str:
    """The list that VNN-COMP's scripts read: network, query, timeout."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows([f"onnx/{row['name']}.onnx", f"vnnlib/{row['name']}.vnnlib", TIMEOUT] for row in rows)
    return text.getvalue()
