"""docs/coverage.md is made from the lists of docs/documents, in which every item has a claim, a command or a reason."""

import doctest
import re
import shlex
import tomllib

import pytest

from tests.tools import write_coverage
from tests.tools.write_coverage import DOCS, LETTERS, PAGE, Document, counts, documents, faults, page
from verify.claims import CLAIMS
from verify.commands.cli import build_parser, in_new_words
from verify.commands.parsing import parsed

ERRATA = [name.upper() for name in re.findall(r"^\(erratum-([\w-]+)\)=", (DOCS / "errata.md").read_text(), re.M)]
ROOT = DOCS.parent


def data(letter):
    return tomllib.loads((DOCS / "documents" / f"{letter.lower()}.toml").read_text("utf-8"))


def test_the_page_is_that_of_the_lists_and_the_registry():
    assert PAGE.read_text("utf-8") == page(documents(), CLAIMS), "run: python -m tests.tools.write_coverage"
    assert doctest.testmod(write_coverage).failed == 0


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.letter)
def test_every_item_is_covered_or_says_why_not(document):
    assert not list(faults(document, CLAIMS, ERRATA))
    numbers = counts(document.items)
    assert numbers["items"] == sum(numbers.values()) - numbers["items"] > 20


def test_every_claim_of_a_document_has_its_list():
    assert {claim.id[0] for claim in CLAIMS if claim.id[1] == "-"} <= {*LETTERS.upper(), "W", "H", "K"}
    listed = {claim for document in documents() for item in document.items for claim in item.claims}
    assert {claim.id for claim in CLAIMS if claim.id.startswith("H-")} <= listed


def without_a_number(planted):
    planted["item"][5]["at"] = ["Sec. 9"]


def without_anything(planted):
    del planted["item"][5]["claims"]


def with_a_claim_that_is_not(planted):
    planted["item"][5]["claims"].append("A-4.9")


def with_an_erratum_that_is_not(planted):
    planted["item"][5]["errata"] = ["A-99"]


def with_a_number_too_many(planted):
    planted["item"][5]["at"].append("Prop. 4.6")


def without_a_claim(planted):
    planted["item"][5]["claims"].remove("A-4.1alt")


PLANTED = {
    without_a_number: "A: Prop. 4.1 is in no item",
    without_anything: "A, Prop. 4.1: has no claim, no command and no reason",
    with_a_claim_that_is_not: "A, Prop. 4.1: no claim is A-4.9",
    with_an_erratum_that_is_not: "A, Prop. 4.1: no erratum is A-99",
    with_a_number_too_many: "A: there is no Prop. 4.6",
    without_a_claim: "A: claim A-4.1alt is in no item",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_wrong_entry_is_found(plant):
    planted = data("A")
    assert planted["item"][5]["at"][0] == "Prop. 4.1"
    plant(planted)
    assert PLANTED[plant] in list(faults(Document.of("A", planted), CLAIMS, ERRATA))


def test_a_field_that_is_not_known_is_refused():
    planted = data("B")
    planted["item"][0]["uncovered"] = "a misspelt field"
    with pytest.raises(TypeError, match="uncovered"):
        Document.of("B", planted)


def named_commands():
    return sorted({command for document in documents() for item in document.items for command in item.commands})


@pytest.mark.parametrize("command", named_commands())
def test_every_command_can_be_typed(command):
    """Its options are those of today and its files are there; the pages and tests of each kind run it."""
    program, *arguments = shlex.split(command)
    assert program == "verify" and not in_new_words(arguments).told
    assert parsed(build_parser(arguments[:1]), arguments).run
    assert all((ROOT / word).exists() for word in arguments if word.startswith("tests/"))
