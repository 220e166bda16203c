"""Writes docs/claims and docs/reference before Sphinx reads the pages; neither is committed."""

import pkgutil
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import terminal
from claim_page import page
from formulas import markdown
from sphinx.util.display import status_iterator

ROOMS = ("constructions", "bounds", "verify")


def setup(app):
    app.connect("builder-inited", write_all)
    return {"parallel_read_safe": True}


def write_all(app):
    write_claims(Path(app.srcdir))
    write_reference(Path(app.srcdir) / "reference")


def write_claims(docs: Path) -> None:
    """One page per claim, and the table that links them."""
    from verify.claims import CLAIMS

    (docs / "claims").mkdir(exist_ok=True)
    terminal.require(FIGURE, docs / "claims")
    errata = errata_by_claim((docs / "errata.md").read_text())
    rows = ["| claim | statement | kind | ends |", "|---|---|---|---|"]
    for claim in status_iterator(CLAIMS, "proving... ", length=len(CLAIMS), stringify_func=lambda claim: claim.id):
        text, word = page(claim, errata)
        write(docs / "claims" / f"{claim.id}.md", text)
        rows.append(f"| [{claim.id}]({claim.id}.md) | {markdown(claim.statement)} | {claim.kind} | {word} |")
    write(docs / "claims" / "index.md", "\n\n".join([INTRODUCTION, "\n".join(rows), toctree([c.id for c in CLAIMS])]))


FIGURE = "verify figure activation --model dot --T 32 --L 10 --output activation.svg"  # for the tutorial
INTRODUCTION = """# The book of claims

One page per claim of the registry. Every page was made by running the claim's own command, at a small size, when
this site was built; the build fails where one ends otherwise than its kind promises. What was built, or found by search
at the listed sizes, ends PROVED. What is impossible has an argument, whose checks are run. A sample never proves."""


def errata_by_claim(text: str) -> dict[str, list[tuple[str, str]]]:
    """(anchor, title) of the errata entries that name a claim, from their lines "Claim: A-4.1, W-1"."""
    found = defaultdict(list)
    for anchor, title, body in re.findall(r"^\(([\w-]+)\)=\n### (.*)\n((?:(?!^### |^\()(?:.|\n))*)", text, re.M):
        for named in re.findall(r"^Claim: (.*)$", body, re.M):
            for claim in named.split(","):
                found[claim.strip()].append((anchor, title))
    return found


def write_reference(folder: Path) -> None:
    """One page per public module, by room."""
    sections = ["# Reference\n\nFrom the docstrings, by room: weights, formulas, judgement."]
    for room in ROOMS:
        package = import_module(room)
        modules = pkgutil.walk_packages(package.__path__, f"{room}.")
        names = sorted(m.name for m in modules if not m.name.startswith("verify.commands"))
        for name in names:
            write(folder / f"{name}.rst", f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n   :members:\n")
        sections += [f"## {room}\n\n{package.__doc__}", toctree(names)]
    write(folder / "index.md", "\n\n".join(sections))


def toctree(names) -> str:
    return "\n".join(["```{toctree}", ":maxdepth: 1", "", *names, "```", ""])


def write(path: Path, text: str) -> None:
    """Unchanged pages keep their date, so that Sphinx does not read them again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
