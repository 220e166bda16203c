"""Writes the table of docs/module.md from the rules: python -m tests.tools.write_operations."""

from pathlib import Path

from verify.engine.rules import RULES, statement

PAGE = Path(__file__).parents[2] / "docs" / "module.md"
START, END = "| operation | rule |", "## What cannot be judged"


def table() -> str:
    """One row for each statement, with the operations that have it."""
    by_statement: dict[str, list[str]] = {}
    for name, rule in sorted(RULES.items()):
        by_statement.setdefault(statement(rule).replace("|", "\\|"), []).append(name.removeprefix("aten."))
    rows = [f"| {', '.join(f'`{name}`' for name in names)} | {text} |" for text, names in by_statement.items()]
    return "\n".join([START, "|---|---|", *sorted(rows)])


def written(text: str) -> str:
    """The page with its table made anew."""
    head, rest = text.split(START, 1)
    return f"{head}{table()}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
