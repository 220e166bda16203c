"""Writes the table of docs/module.md from the rules: python -m tests.tools.write_operations."""

from pathlib import Path

from verify.engine.dtypes import FLOATS, TRUTHS, WHOLES
from verify.engine.rules import COVERS, statement

PAGE = Path(__file__).parents[2] / "docs" / "module.md"
START, END = "| operation | of | rule |", "## What cannot be judged"
KINDS = {"floats": FLOATS, "whole numbers": WHOLES, "truth values": TRUTHS}


def table() -> str:
    """One row for each statement and the kinds of dtypes that it covers, with the operations that have it."""
    by_statement: dict[tuple[str, str], list[str]] = {}
    for name, covers in sorted(COVERS.items()):
        for cover in covers:
            kinds = ", ".join(kind for kind, dtypes in KINDS.items() if dtypes <= cover.dtypes)
            says = statement(cover.rule).replace("|", "\\|")
            by_statement.setdefault((kinds, says), []).append(name.removeprefix("aten."))
    rows = [
        f"| {', '.join(f'`{name}`' for name in names)} | {kinds} | {says} |"
        for (kinds, says), names in by_statement.items()
    ]
    return "\n".join([START, "|---|---|---|", *sorted(rows)])


def written(text: str) -> str:
    """The page with its table made anew."""
    head, rest = text.split(START, 1)
    return f"{head}{table()}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
