"""Keeps what `verify reproduce ... --out DIR` found, and writes its pages.

python -m tests.tools.write_experiments [DIR]; without DIR the pages are written again from what docs/experiments keeps.
A folder without a table adds the checkpoint of a model of which docs/experiments keeps the same result.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from verify.commands.reproduce import every
from verify.frame.experiment import Experiment, GridSize, Result
from verify.report.experiment_table import case_in_words, columns, in_a_heading, news, rows, wrong_in_words
from verify.report.tables import render

DOCS = Path(__file__).parents[2] / "docs" / "experiments"
FOLDER = re.compile(r"(.+)-(laptop|paper)")
INTRODUCTION = """# Experiments, done again

Documents end in figures of trained models whose accuracy is sampled. `verify reproduce ID` trains these models, decides
each of them, and sets the exact share of right answers beside the sampled one.

```console
$ verify reproduce --format csv
experiment,reproduces,models,"about, on one core"
...
```

`verify reproduce A-Fig-1 --out runs` begins, and the same command with `--resume` goes on. Each model is written as
soon as it is decided, weights and record, so that a run that is cut goes on where it was. `--workers 2` and
`--scheduler tcp://...` find the same tables: a model is trained in one thread from its seed, and its numbers depend on
the machine's arithmetic alone (C-Table-A1's 36 models were trained on two days: 3 of them differ). `--grid
paper` has all sizes of the document and, where it gives them, its own hyperparameters.

What is exact: the share of all inputs of a law that the stored numbers answer rightly in real arithmetic, a bracket
where the time for a verdict ended. What is sampled: answers of the module as torch runs it, on inputs drawn as the
document draws them.

"""


FINDINGS = """
## All samples right, and wrong

{said}. The input is the first wrong one of its task: the
shortest string, at its least shift (C), the first string in the order of tokens (B), the first counts (n0, n1, n2) in
their order (D, E). Shares are of the inputs that the experiment's page names.

"""


def keep(folder: Path) -> None:
    """Copies the table and the figure of one experiment, with the date, the versions and the time that it took."""
    found = FOLDER.fullmatch(folder.name)
    assert found is not None, folder
    records = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json") if path.name != "table.json"]
    (versions,) = {json.dumps(record["training"]["versions"], sort_keys=True) for record in records}
    said = json.loads((folder / "table.json").read_text("utf-8"))
    about = {
        "grid": found[2],
        "date": date.today().isoformat(),
        "versions": json.loads(versions),
        "cpu_seconds": round(sum(record["seconds"] for record in records))
        if all("seconds" in r for r in records)
        else None,
    }
    (DOCS / f"{found[1]}.json").write_text(json.dumps(said | {"kept": about}, indent=1) + "\n", "utf-8")
    shutil.copy(folder / "figure.svg", DOCS / f"{found[1]}.svg")


def keep_checkpoint(folder: Path) -> None:
    """Copies the weights of a model of one experiment that is wrong where no sample was, beside its kept result; of
    several those that are wrong most often."""
    found = FOLDER.fullmatch(folder.name)
    assert found is not None, folder
    wrong: dict[Path, Fraction] = {}
    for path in folder.glob("*_*.json"):
        result = Result.from_dict(json.loads(path.read_text("utf-8"))["result"])
        if result.is_news:
            wrong[path] = sum((1 - high for _, high in result.exact.values()), Fraction(0))
    if not wrong:
        return
    path = max(sorted(wrong), key=lambda each: wrong[each])
    record, place = json.loads(path.read_text("utf-8")), DOCS / f"{found[1]}.json"
    weights, said = path.with_suffix(".safetensors").read_bytes(), json.loads(place.read_text("utf-8"))
    assert record["result"] in said["results"], f"{path}: another result is kept of this model"
    assert hashlib.sha256(weights).hexdigest() == record["weights_sha256"], path
    (DOCS / f"{found[1]}.safetensors").write_bytes(weights)
    said["kept"]["checkpoint"] = {"settings": record["result"]["settings"], "sha256": record["weights_sha256"]}
    place.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def kept() -> Iterator[tuple[Experiment, list[Result], dict[str, Any]]]:
    """Every experiment of which results are kept, its results, and when and with what they were found."""
    for experiment in every():
        path = DOCS / f"{experiment.id}.json"
        if path.exists():
            said = json.loads(path.read_text("utf-8"))
            yield experiment, [Result.from_dict(result) for result in said["results"]], said["kept"]


def page(experiment: Experiment, results: list[Result], about: dict[str, Any]) -> str:
    """The page of one experiment."""
    grid, versions = GridSize(about["grid"]), about["versions"]
    seeds = len({result.settings["seed"] for result in results})
    command = f"verify reproduce {experiment.id} --grid {grid} --seeds {seeds}"
    seconds = about["cpu_seconds"]  # None: some of its models were kept without their time
    took = "" if seconds is None else f", {seconds} seconds of CPU for training and deciding"
    of_what = f"torch {versions['torch']}, numpy {versions['numpy']} and Python {versions['python']}"
    laws = "; ".join(f"*exact, {name}*: {in_a_heading(law)}" for name, law in experiment.laws.items())
    found = "\n".join(f"* {line.rstrip('.')}." for line in news(experiment, results))
    found += checkpoint(experiment, results, about)
    of = experiment.summary(results) if experiment.summary is not None else None
    summary = "" if of is None else f"\n{render(of.columns, of.rows, 'markdown')}"
    return f"""# {experiment.id}: {experiment.question}

Reproduces {experiment.source}. `{command}`, run on {about["date"]} with {of_what}: {len(results)} models{took}.

**Printed.** {experiment.printed}

**Trained by** {experiment.recipes[grid]}.

**Shares** are in per cent. *sampled*: {experiment.sampling}; {laws}.

![{experiment.question}]({experiment.id}.svg)

**What sampling did not see.**

{found}
{summary}
{render(columns(experiment, results), rows(experiment, results), "markdown")}"""


def checkpoint(experiment: Experiment, results: list[Result], about: dict[str, Any]) -> str:
    """The line of the model whose weights are kept, if there is one."""
    if "checkpoint" not in about:
        return ""
    settings = ", ".join(f"{name} {value}" for name, value in about["checkpoint"]["settings"].items())
    (result,) = [each for each in results if dict(each.settings) == about["checkpoint"]["settings"]]
    name = f"{experiment.id}.safetensors"
    return f"\n* The weights of {settings} are kept as `docs/experiments/{name}`: {case_in_words(result.wrong or {})}."


def index(found: list[tuple[Experiment, list[Result], dict[str, Any]]]) -> str:
    """The table of all experiments, and the pages that there are."""
    head = ("experiment", "reproduces", "models", "all samples right", "of these PROVED", "wrong somewhere")
    lines = []
    for experiment, results, _ in found:
        perfect = [result for result in results if result.sampled[0] == result.sampled[1]]
        proved, wrong = sum(each.is_proved for each in perfect), sum(each.is_news for each in perfect)
        name = f"[{experiment.id}]({experiment.id}.md)"
        lines.append((name, experiment.source, len(results), len(perfect), proved, wrong))
    tree = "\n".join(experiment.id for experiment, *_ in found)
    return (
        f"{INTRODUCTION}{render(head, lines, 'markdown')}\n{findings(found)}\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )


def findings(found: list[tuple[Experiment, list[Result], dict[str, Any]]]) -> str:
    """What no sample showed: every model whose samples are all right, and that is wrong on an input of its task."""
    head = ("experiment", "model", "samples, all right", "wrong", "a wrong input")
    lines = [
        (
            f"[{experiment.id}]({experiment.id}.md)",
            ", ".join(f"{name} {value}" for name, value in result.settings.items()),
            result.sampled[1],
            wrong_in_words(result),
            case_in_words(result.wrong or {}),
        )
        for experiment, results, _ in found
        for result in results
        if result.is_news
    ]
    models = sum(len(results) for _, results, _ in found)
    said = f"Of {models} models {len(lines)} have all samples right, and are wrong on an input of their task"
    return f"{FINDINGS.format(said=said)}{render(head, lines, 'markdown')}"


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    found = list(kept())
    return {"index.md": index(found)} | {f"{each[0].id}.md": page(*each) for each in found}


def main(out: str | None = None) -> None:
    DOCS.mkdir(exist_ok=True)
    for folder in sorted(Path(out).iterdir()) if out is not None else ():
        if (folder / "table.json").exists():
            keep(folder)
        keep_checkpoint(folder)
    for name, text in pages().items():
        (DOCS / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
