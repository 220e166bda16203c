"""What the errata quote stands in the documents, word for word.

The documents are no part of this project: where they are at hand, WEIGHTPROOF_DOCUMENTS names a folder that holds their
texts, named so that A to E is their order.
"""

import os
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = os.environ.get("WEIGHTPROOF_DOCUMENTS", "")
LETTERS = "ABCDE"
ENTRY = re.compile(r"^\(erratum-([a-e])-(\d+)\)=\n((?:(?!^\(erratum|^## |^### Checked).*\n)*)", re.M)
FENCED = re.compile(r"^```(?:.|\n)*?^```$", re.M)
CODE = re.compile(r"`[^`]*`")  # columns and options of ours
OURS = {("A", "d printed"), ("A", "d if attained")}  # quoted from what our commands print


def spelt(text):
    """The words alone: without markup, spaces, hyphens and quotation marks, which copies of a text spell differently.

    >>> spelt("$d \\\\geq 29$, the \\u2018last\\u2019 fea-\\nture") == spelt("d >= 29, the 'last' feature")
    True
    """
    plain = text.replace("\\geq", ">=").replace("\\leq", "<=").replace("\\sim", "~").replace("\\log", "log")
    plain = re.sub(r"</?(?:sup|b)>|\\[a-z]+\b|[$*`{}\\]", "", plain)
    return re.sub(r"[\s\-\u2013\u2014\"'\u2018\u2019\u201c\u201d]+", "", plain).lower()


def quotes():
    """Every quotation of the errata with its entry: (letter, number, words)."""
    for letter, number, body in ENTRY.findall((DOCS / "errata.md").read_text("utf-8")):
        for words in re.findall(r'"([^"]+)"', FENCED.sub("", body)):
            if (letter.upper(), words) not in OURS:
                yield letter.upper(), number, words


def test_the_errata_quote():
    quoted = {f"{letter}-{number}" for letter, number, _ in quotes()}
    assert quoted >= {"A-16", "B-6", "C-10", "C-11", "C-12", "D-11", "D-14"}


def not_found(texts, found):
    """The quotations that are not where they should be: D and E print one construction, in much the same words."""
    words = {letter: spelt(text) for letter, text in texts.items()}
    own = {"D": "DE", "E": "DE"}
    return [quote for quote in found if not any(spelt(quote[2]) in words[at] for at in own.get(quote[0], quote[0]))]


def test_a_changed_word_is_found():
    texts = dict.fromkeys(LETTERS, "It is a near-\nperfect  score.")
    assert not not_found(texts, [("A", "1", "a near-perfect score")])
    assert not_found(texts, [("A", "1", "a perfect score")])


@pytest.mark.skipif(not FOLDER, reason="the documents are not at hand: WEIGHTPROOF_DOCUMENTS names no folder")
def test_every_quotation_stands_in_its_document():
    files = sorted(Path(FOLDER).glob("*.txt"))
    assert len(files) == len(LETTERS)
    texts = {letter: file.read_text("utf-8") for letter, file in zip(LETTERS, files, strict=True)}
    assert not not_found(texts, quotes())
