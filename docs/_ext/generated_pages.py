"""Writes docs/claims and docs/reference before Sphinx reads the pages; neither is committed."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import reference_pages
import terminal
from claim_page import RECORDED, page
from formulas import markdown
from sphinx.util.display import status_iterator

from verify.claims import CLAIMS, Claim
from verify.frame.program import code

ORPHAN = "---\norphan: true\n---\n\n"  # in no toctree: the table of the index lists them all


def setup(app):
    app.connect("builder-inited", write_all)
    app.connect("source-read", show_figures)
    return {"parallel_read_safe": True}


def write_all(app):
    docs = Path(app.srcdir)
    draw_figures(docs)
    written = [*write_claims(docs), *write_reference(docs / "reference")]
    for folder in (docs / "claims", docs / "reference"):
        for path in {*folder.glob("*.md"), *folder.glob("*.rst")} - set(written):
            path.unlink()  # of an earlier build, which had other pages


BLOCK = re.compile(r"^```console\n((?:.|\n)*?)^```\n", re.M)
DRAWN = "drawn"  # the folder of the figures that docs/figures.md shows


def draw_figures(docs: Path) -> None:
    """Runs the commands of figures.md that draw, unless they have been run by the same sources."""
    text, folder = (docs / "figures.md").read_text(), docs / DRAWN
    commands = re.findall(r"^\$ (.*)$", "".join(BLOCK.findall(text)), re.M)
    about = hashlib.sha256(json.dumps([sources(), commands]).encode()).hexdigest()
    if (folder / "digest").exists() and (folder / "digest").read_text() == about:
        return
    folder.mkdir(exist_ok=True)
    for command in commands:
        if "--out" in command or not command.startswith("verify "):  # a verdict beside it may be REFUTED: see tests
            terminal.require(command, folder)
    write(folder / "digest", about)


def show_figures(app, name, source):
    """Each figure stands below the command of figures.md that draws it."""
    if name == "figures":
        source[0] = BLOCK.sub(lambda block: block[0] + pictures(block[1]), source[0])


def pictures(commands: str) -> str:
    """The figures that the commands write.

    >>> pictures("$ verify figure margin --out margin.svg")
    '\\n![margin.svg](drawn/margin.svg)\\n'
    """
    return "".join(f"\n![{name}]({DRAWN}/{name})\n" for name in re.findall(r"--out (\S+\.svg)", commands))


def write_claims(docs: Path) -> Iterator[Path]:
    """One page per claim, and the table that links them; what was written."""
    (docs / "claims").mkdir(exist_ok=True)
    terminal.require(FIGURE, docs / "claims")
    errata = errata_by_claim((docs / "errata.md").read_text())
    rows = ["| claim | statement | kind | ends |", "|---|---|---|---|"]
    for claim in status_iterator(CLAIMS, "proving... ", length=len(CLAIMS), stringify_func=lambda claim: claim.id):
        text, word = kept(docs / "claims" / ".kept", claim, errata)
        yield write(docs / "claims" / f"{claim.id}.md", ORPHAN + text)
        rows.append(f"| [{claim.id}]({claim.id}.md) | {markdown(claim.sentence)} | {claim.kind} | {word} |")
    yield write(docs / "claims" / "index.md", "\n\n".join([INTRODUCTION, "\n".join(rows)]) + "\n")


def kept(folder: Path, claim: Claim, errata: dict[str, list[tuple[str, str]]]) -> tuple[str, str]:
    """The claim's page and verdict, from an earlier build of the same sources where there was one."""
    about = json.dumps([sources(), claim.id, errata.get(claim.id)])
    place = folder / f"{claim.id} {hashlib.sha256(about.encode()).hexdigest()}.json"
    if not place.exists():
        made = json.dumps(page(claim, errata))
        folder.mkdir(parents=True, exist_ok=True)
        for older in folder.glob(f"{claim.id} *.json"):
            older.unlink()
        place.write_text(made)
    text, word = json.loads(place.read_text())
    return text, word


@cache
def sources() -> str:
    """A digest of all that a page can depend on: the packages, these generators, and what they import."""
    digest = hashlib.sha256(code().encode())
    for path in sorted([*Path(__file__).parent.glob("*.py"), RECORDED]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


FIGURE = "verify figure activation --model dot --T 32 --L 10 --out activation.svg"  # for the tutorial
INTRODUCTION = """# The book of claims

One page per claim of the registry. Every page shows how the claim's own command ended, at a small size: run when this
site was built, or, where that takes long, for this release, as the page says. The build fails where one ends otherwise
than its kind promises; `verify claims --run` runs all of them. What was built, or found by search
at the listed sizes, ends PROVED, and so does a theorem in Coq's kernel, where coqc is installed. What is impossible has
an argument, whose checks are run. A sample never proves."""


def errata_by_claim(text: str) -> dict[str, list[tuple[str, str]]]:
    """(anchor, title) of the errata entries that name a claim, from their lines "Claim: A-4.1, W-1"."""
    found = defaultdict(list)
    for anchor, title, body in re.findall(r"^\(([\w-]+)\)=\n### (.*)\n((?:(?!^### |^\()(?:.|\n))*)", text, re.M):
        for named in re.findall(r"^Claim: (.*)$", body, re.M):
            for claim in named.split(","):
                found[claim.strip()].append((anchor, title))
    return found


def write_reference(folder: Path) -> Iterator[Path]:
    for name, text in reference_pages.pages():
        yield write(folder / name, text)


def write(path: Path, text: str) -> Path:
    """Unchanged pages keep their date, so that Sphinx does not read them again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path
