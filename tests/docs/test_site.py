"""Generated pages say what the registry, the builders and the commands say; KaTeX is complete and local."""

import doctest
import re
import sys
from importlib import import_module
from inspect import isfunction, ismodule
from pathlib import Path

import pytest
import torch
from some import some

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS / "_ext"))
import claim_page  # noqa: E402
import docstrings  # noqa: E402
import drawing  # noqa: E402
import listed_pages  # noqa: E402
import reference_pages  # noqa: E402
import terminal  # noqa: E402

import bounds  # noqa: E402
import constructions  # noqa: E402
import verify  # noqa: E402
import verify.module  # noqa: E402
from constructions import relation_counting  # noqa: E402
from verify.claims import CLAIMS  # noqa: E402
from verify.frame.impossibility import Impossibility  # noqa: E402

PUBLIC = (verify, verify.module, constructions, bounds)


def claim(id):
    return next(claim for claim in CLAIMS if claim.id == id)


@pytest.mark.parametrize("module", [docstrings, drawing, listed_pages, reference_pages])
def test_examples_of_the_generators(module):
    assert doctest.testmod(module).failed == 0


def test_a_claim_page_shows_statement_verdict_bound_errata_and_the_builders_own_numbers():
    text, word = claim_page.page(claim("A-4.1"), {"A-4.1": [("erratum-a-1", "The bias")]})
    assert word == "PROVED" and "PROVED on all 64 inputs" in text
    assert "bos\\+sftm" in text or "bos+sftm solve histogram" in text
    assert "(../errata.md#erratum-a-1)" in text and r"\frac{e \left(T - 1\right)}" in text
    model = relation_counting.bos_sftm(T=4, L=3)
    for name in ("E", "e_BOS", "W_1", "W_2"):
        body = text.split(f"**{name.replace('_', chr(92) + '_')}** (")[1].split(r"\end{array}")[0]
        numbers = re.findall(r"(?<=& )(?:-?\d[\d.]*|\\cdot)(?= &| \\\\$)", body, re.M)
        expected = [drawing.number(x) for x in getattr(model, name).flatten().tolist()]
        assert numbers == expected


def test_a_page_says_its_kind_and_how_it_ends():
    text, word = claim_page.page(claim("W-7"), {})
    assert word == "IMPOSSIBLE" and "**Kind:** impossible. Its commands end IMPOSSIBLE, with exit code 0" in text
    text, word = claim_page.page(claim("E-3.4"), {})
    assert word == "PROVED" and "$ printf 'INPUT(x)" in text


def test_a_page_of_what_cannot_be_run_here_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    text, word = claim_page.page(claim("K-D-1"), {})
    assert word == "not run" and "Not run when this page was built: coqc is not installed." in text


def timeless(text):
    """Without the lines that say how long it took."""
    return re.sub(r"^.*(?:\btime|\d m?s\b).*\n", "", text, flags=re.M)


def test_recorded_runs_are_of_the_commands_that_the_claims_have_now():
    assert len(claim_page.recorded()) > 20
    for name, run in claim_page.recorded().items():
        claim_page.check_ending(claim(name), run)


@pytest.mark.deep
@pytest.mark.parametrize("name", claim_page.recorded())
def test_what_was_recorded_is_what_the_command_prints(name):
    if reason := claim(name).why_not:
        pytest.skip(reason)
    run = claim_page.run_small(claim(name))
    before = claim_page.recorded()[name]
    assert timeless(run.output) == timeless(before.output) and run.weights == before.weights


def test_the_reference_has_every_public_name():
    pages = dict(reference_pages.pages())
    public = [
        thing.__name__ if ismodule(thing := getattr(module, name)) else f"{module.__name__}.{name}"
        for module in PUBLIC
        for name in module.__all__
        if name != "__version__"
    ]
    named = set(re.findall(r"^\.\. auto\w+:: (\S+)", "\n".join(pages.values()), re.M))
    assert set(public) - named == set()
    assert all(f"]({name})" in pages["index.md"] for name in some(pages) if name != "index.md")


def documented_functions():
    """Each function that a page of the reference shows, by its module and name."""
    shown = "\n".join(dict(reference_pages.pages()).values())
    for module in re.findall(r"^\.\. automodule:: (\S+)", shown, re.M):
        for name in reference_pages.public_names(module):
            thing = getattr(import_module(module), name)
            if isfunction(thing) and thing.__module__ == module and thing.__doc__:
                yield f"{module}:{name}", thing
    for place in re.findall(r"^\.\. autofunction:: (\S+)", shown, re.M):
        module, _, name = place.rpartition(".")
        yield f"{module}:{name}", getattr(import_module(module), name)


def test_every_function_of_the_reference_has_an_example_that_runs():
    """Doctests run with the modules; the example of an argument is its claim's command, which `verify claims` runs."""
    commands = {name: claim.command for claim in CLAIMS for name in re.split(", ", claim.verifier)}
    found = dict(documented_functions())
    assert len(found) > 300
    for name, function in found.items():
        if function.__annotations__.get("return") in (Impossibility, "Impossibility"):
            assert "--impossible" in commands[name], name
        else:
            assert doctest.DocTestParser().get_examples(function.__doc__), f"{name} has no example"


@pytest.mark.parametrize("page", ["howto/which-command.md", "module.md"])
def test_a_search_for_the_accuracy_of_my_transformer_finds(page):
    """The site's search wants every word of a query but those of grammar."""
    assert {"accuracy", "transformer"} <= set(re.findall(r"\w+", (DOCS / page).read_text().lower()))


def test_an_unexpected_end_fails_the_build(tmp_path, monkeypatch):
    monkeypatch.setitem(claim_page.SMALL, "A-4.2", "verify histogram --model bos --T 4 --L 3 --as-printed")
    with pytest.raises(terminal.UnexpectedEnd, match="REFUTED"):
        claim_page.page(claim("A-4.2"), {})
    with pytest.raises(terminal.UnexpectedEnd, match="exit code 2"):
        terminal.require("verify figure activation --model dots", tmp_path)


def test_the_building_interpreter_runs_without_an_activated_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for command in ("python -c 'import numpy, verify; print(7)'", "pytest --version", "verify claims W-5"):
        output, code = terminal.run(command, tmp_path)
        assert code == 0, output


def test_what_a_page_writes_by_the_shell_is_written_where_it_runs(tmp_path):
    assert terminal.run("printf 'a\\nb\\n' > made.txt", tmp_path) == ("", 0)
    assert (tmp_path / "made.txt").read_text() == "a\nb\n"


def test_drawn_matrices_keep_their_labels_when_rows_of_zeros_are_left_out():
    matrix = torch.zeros(10, 2)
    matrix[7, 1] = 5
    text = drawing.drawing("W_1", matrix, drawing.by_axis(drawing.AXES))
    assert text.count("\\\\\n") == 1 and "d_{8}" in text and "d_{7}" not in text


def test_every_page_is_in_the_sidebar():
    text = (DOCS / "index.md").read_text()
    assert text.count(listed_pages.LINE) == 1
    named = {line.strip() for line in listed_pages.filled(text, DOCS).splitlines()}
    assert {path.stem for path in DOCS.glob("*.md")} - {"index"} <= named


def test_every_link_to_a_page_leads_somewhere():
    """README's too, which Sphinx does not read; claims and reference are made when the site is built."""
    pages = [page for page in DOCS.rglob("*.md") if page.parts[-2] not in ("claims", "reference")]
    links = [
        (page, target)
        for page in (DOCS.parent / "README.md", *pages)
        for target in re.findall(r"\]\(([^)#:]+\.(?:md|svg))[)#]", page.read_text())
    ]
    assert len({page for page, _ in links}) > 10
    for page, target in links:
        made = {"claims", "reference"} & set(Path(target).parts)
        assert made or (page.parent / target).exists(), (page.name, target)


def test_katex_is_complete_and_local():
    folder = DOCS / "_static" / "katex"
    urls = re.findall(r"url\(([^)]*)\)", (folder / "katex.min.css").read_text())
    assert urls and all((folder / url).is_file() for url in urls)
    assert (folder / "LICENSE").is_file()


def test_pages_name_files_that_exist():
    """Paths in backticks, on every page that is written by hand."""
    root = DOCS.parent
    pages = [root / "README.md", *(p for p in DOCS.rglob("*.md") if p.parts[-2] not in ("claims", "reference"))]
    named = [
        (page, path)
        for page in pages
        for path in re.findall(r"`((?:verify|constructions|bounds|tests)/[\w/.-]*)`", page.read_text())
    ]
    assert len(named) > 50
    assert [(page.name, path) for page, path in named if not (root / path).exists()] == []
