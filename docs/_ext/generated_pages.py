"""Writes docs/claims and docs/reference before Sphinx reads the pages; neither is committed."""

import hashlib
import json
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import terminal
from claim_page import page
from formulas import markdown
from sphinx.util.display import status_iterator

from verify.claims import CLAIMS, Claim
from verify.kept import code

ORPHAN = "---\norphan: true\n---\n\n"  # in no toctree: the table of the index lists them all
ROOMS = ("constructions", "bounds", "verify")


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
    for figure in (FIGURE, *PHASES):
        terminal.require(figure, docs / "claims")
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
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


FIGURE = "verify figure activation --model dot --T 32 --L 10 --out activation.svg"  # for the tutorial
PHASES = [f"verify figure phase --T {T} --out phase-{T}.svg" for T in (15, 32, 64)]  # for the page of figures
INTRODUCTION = """# The book of claims

One page per claim of the registry. Every page was made by running the claim's own command, at a small size, when
this site was built; the build fails where one ends otherwise than its kind promises. What was built, or found by search
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
    """One page per package, with its public modules; the modules at the top of a room share a page.

    The pages stand in no toctree: the sidebar of each page lists all that do, and made most of the build's time.
    """
    sections = ["# Reference\n\nFrom the docstrings, by room: weights, formulas, judgement."]
    for room in ROOMS:
        sections += [f"## {room}\n\n{import_module(room).__doc__}"]
        for package, names in sorted(modules_by_package(room).items()):
            title = package if package != room else f"{room}: the modules at its top"
            parts = [f":orphan:\n\n{title}\n{'=' * len(title)}"]
            for name in names:
                parts.append(f"{name}\n{'-' * len(name)}\n\n.. automodule:: {name}\n   :members:")
            yield write(folder / f"{package}.rst", "\n\n".join(parts) + "\n")
            about = (import_module(package).__doc__ or "").strip().split("\n")[0]
            sections += [f"- [{title}]({package}.rst): {markdown(about)}"]
    yield write(folder / "index.md", "\n\n".join(sections) + "\n")


def modules_by_package(room: str) -> dict[str, list[str]]:
    """The names of a room's public modules by the package that they lie in; a package's own comes first."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in pkgutil.walk_packages(import_module(room).__path__, f"{room}."):
        if not module.name.startswith("verify.commands") and not module.name.endswith(".command"):
            found[module.name if module.ispkg else module.name.rpartition(".")[0]].append(module.name)
    return {package: sorted(names) for package, names in found.items()}


def write(path: Path, text: str) -> Path:
    """Unchanged pages keep their date, so that Sphinx does not read them again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path
