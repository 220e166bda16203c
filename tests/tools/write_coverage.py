"""Writes docs/coverage.md from docs/documents and the registry of claims: python -m tests.tools.write_coverage."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.claims import CLAIMS, Claim, Kind

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "coverage.md"
LETTERS = "abcde"
TITLE = "# The documents, item by item"
INTRODUCTION = """{covered} of the {items} items of the five documents are covered: a claim is proved or its argument
checked, or a command draws or prints it. {partly} more are covered in part, and {open} are not. A reason stands at
each. An item is what a document numbers or states: propositions, equations that define something, architectures,
figures, tables, appendices.

Each document was read from its first page to its last for `docs/documents/*.toml`, from which this page is made; the
tests fail where an item has neither a claim nor a command nor a reason, where a number of the document is in no item,
and where a claim of the document is in none. Claims end as the [last table](#the-claims-and-how-their-commands-end)
says, which also names the dtypes in which their weights are proved: in any order of evaluation, or of some recurrent
networks as torch runs them."""
NO_CLAIM = "-"


@dataclass(frozen=True)
class Item:
    """One thing that a document says: where it stands, and by what it is covered, or why not."""

    at: tuple[str, ...]
    says: str
    claims: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    errata: tuple[str, ...] = ()
    not_covered: str = ""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Item:
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})

    @property
    def has_evidence(self) -> bool:
        return bool(self.claims or self.commands)


@dataclass(frozen=True)
class Document:
    """The items of a document, and what it numbers."""

    letter: str
    title: str
    numbered: dict[str, set[str]]
    items: tuple[Item, ...]

    @classmethod
    def read(cls, letter: str) -> Document:
        return cls.of(letter.upper(), tomllib.loads((DOCS / "documents" / f"{letter}.toml").read_text("utf-8")))

    @classmethod
    def of(cls, letter: str, data: dict[str, Any]) -> Document:
        numbered = {kind: set().union(*map(numbers, ranges)) for kind, ranges in data["numbered"].items()}
        return cls(letter, data["title"], numbered, tuple(Item.of(entry) for entry in data["item"]))


def documents() -> tuple[Document, ...]:
    return tuple(Document.read(letter) for letter in LETTERS)


def numbers(text: str) -> set[str]:
    """The numbers of a range, whose ends differ in their last part.

    >>> sorted(numbers("4.1-4.3")), sorted(numbers("A2-A3")), numbers("7")
    (['4.1', '4.2', '4.3'], ['A2', 'A3'], {'7'})
    """
    first, _, last = text.partition("-")
    start, end = (re.fullmatch(r"(.*?)(\d+)", part) for part in (first, last or first))
    if start is None or end is None or start[1] != end[1]:
        raise ValueError(f"{text!r} is no number and no range of numbers")
    return {f"{start[1]}{i}" for i in range(int(start[2]), int(end[2]) + 1)}


def located(item: Item, kind: str) -> set[str]:
    """The numbers of a kind that an item's places name; what follows a comma is a part of the thing.

    >>> sorted(located(Item(("Table 2, rows 1-3", "Fig. 6-7", "Sec. 4"), "-"), "Fig."))
    ['6', '7']
    """
    places = (place.split(",")[0].removeprefix(f"{kind} ") for place in item.at if place.startswith(f"{kind} "))
    return set().union(*map(numbers, places))


def faults(document: Document, claims: Iterable[Claim], errata: Iterable[str]) -> Iterator[str]:
    """What is wrong with a document's list: one line for each."""
    known, entries, names = {claim.id for claim in claims}, set(errata), document.letter
    for item in document.items:
        if not item.has_evidence and not item.not_covered:
            yield f"{names}, {item.at[0]}: has no claim, no command and no reason"
        yield from (f"{names}, {item.at[0]}: no claim is {claim}" for claim in item.claims if claim not in known)
        yield from (f"{names}, {item.at[0]}: no erratum is {entry}" for entry in item.errata if entry not in entries)
    for kind, expected in document.numbered.items():
        found = set().union(*(located(item, kind) for item in document.items))
        yield from (f"{names}: {kind} {number} is in no item" for number in sorted(expected - found))
        yield from (f"{names}: there is no {kind} {number}" for number in sorted(found - expected))
    listed = {claim for item in document.items for claim in item.claims}
    own = {claim for claim in known if claim.startswith(f"{names}-")}
    yield from (f"{names}: claim {claim} is in no item" for claim in sorted(own - listed))


def page(found: Iterable[Document], claims: tuple[Claim, ...]) -> str:
    """The page: a summary, a table for each document, and the claims with their commands."""
    found = tuple(found)
    ends = {claim.id: ending(claim) for claim in claims}
    all_items = [item for document in found for item in document.items]
    parts = [TITLE, INTRODUCTION.format(**counts(all_items)), summary(found)]
    for document in found:
        parts += [f"## {document.letter}: {document.title}", items(document, ends)]
    named = {claim for item in all_items for claim in item.claims}
    rows = ["| claim | command | ends | in a dtype |", "|---|---|---|---|"]
    rows += [
        f"| {linked(claim.id)} | `{cell(claim.command)}` | {ends[claim.id]} | {in_dtype(claim)} |" for claim in claims
    ]
    parts += ["## The claims, and how their commands end", "\n".join(rows)]
    beyond = ", ".join(linked(claim.id) for claim in claims if claim.id not in named)
    parts += [f"Claims of this project that go beyond what the documents say: {beyond}."]
    return "\n\n".join(parts) + "\n"


def counts(found: Iterable[Item]) -> dict[str, int]:
    """How many items there are, and how many are covered, covered in part, and not."""
    found = tuple(found)
    shown = [item for item in found if item.has_evidence]
    partly = sum(bool(item.not_covered) for item in shown)
    return {
        "items": len(found), "covered": len(shown) - partly, "partly": partly, "open": len(found) - len(shown)
    }  # fmt: skip


def summary(found: Iterable[Document]) -> str:
    rows = ["| document | items | covered | in part | not covered |", "|---|---|---|---|---|"]
    for document in found:
        n = counts(document.items)
        rows.append(f"| {document.letter} | {n['items']} | {n['covered']} | {n['partly']} | {n['open']} |")
    return "\n".join(rows)


def items(document: Document, ends: dict[str, str]) -> str:
    """One row for each item."""
    rows = ["| where | what it says | claims and commands | verdict |", "|---|---|---|---|"]
    for item in document.items:
        shown = [linked(claim) for claim in item.claims] + [f"`{cell(command)}`" for command in item.commands]
        where = [*item.at, *(f"[erratum {entry}](errata.md#erratum-{entry.lower()})" for entry in item.errata)]
        rows.append(
            f"| {'; '.join(where)} | {cell(item.says)} | {', '.join(shown) or NO_CLAIM} | {verdict(item, ends)} |"
        )
    return "\n".join(rows)


def verdict(item: Item, ends: dict[str, str]) -> str:
    """How the item's claims end, and what is left."""
    words = dict.fromkeys(ends[claim] for claim in item.claims)
    said = ", ".join(words) or ("shown by the command" if item.commands else "")
    left = f"not covered: {cell(item.not_covered)}" if item.not_covered else ""
    return "; ".join(filter(None, (said, left)))


def ending(claim: Claim) -> str:
    return "PROVED in Coq" if claim.kind is Kind.THEOREM else claim.promise.verdict


def in_dtype(claim: Claim) -> str:
    """The dtypes in which a claim's weights are proved, or why they are in none; nothing where it has no weights.

    >>> from dataclasses import replace
    >>> weights = Claim("X", "s", "s", "m:f", "-", "-", "verify parity --T 3 --L 2", dtype="float64")
    >>> in_dtype(weights), in_dtype(replace(weights, deep=("verify parity --T 3 --L 2 --precision p9",)))
    ('float64', 'p9')
    """
    return ", ".join(claim.dtypes) or (f"no: {claim.exact}" if claim.exact else "")


def linked(claim: str) -> str:
    return f"[{claim}](claims/{claim}.md)"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(documents(), CLAIMS), "utf-8")
