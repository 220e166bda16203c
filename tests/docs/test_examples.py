"""Every example of README and of the pages in docs: Python runs, and a command prints what is shown, up to timings."""

import re
import sys
from doctest import ELLIPSIS, Example, OutputChecker
from pathlib import Path

import pytest
import terminal
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

ROOT = Path(__file__).parents[2]

FENCES = {"python", "console", "sh", "text", "json", "latex", "toml", "yaml"}
WRITTEN = ("claims", "reference", "_build")  # made when the site is built
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.parts[-2] not in WRITTEN)]
LONG = (
    "errata.md",
    "figures.md",
    "inductive-ceilings.md",
    "3-any-module.md",
    "4-is-my-head-any-good.md",
    "5-addition.md",
    "8-refuted-what-now.md",
)  # 3 to 20 s


COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ |```).*\n?)*)", re.M)


def run_console(example):
    """Each "$ command" with the lines below it; a line "..." stands for any lines."""
    for command, shown in COMMAND.findall(example.parsed):
        printed, _ = terminal.run(command, Path.cwd())
        want, got = timeless(shown), timeless(printed)
        if not OutputChecker().check_output(want, got, ELLIPSIS):
            raise AssertionError(command + "\n" + OutputChecker().output_difference(Example("", want), got, ELLIPSIS))


def timeless(text):
    lines = [line.rstrip() for line in text.rstrip().splitlines() if not line.startswith("time ")]
    return re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "TIME", "\n".join(lines)) + "\n"


def check_set_up(example):
    """Set-up commands are README's, which .ci/run runs in a fresh clone."""
    assert set(example.parsed.strip().splitlines()) <= set(set_up())


def set_up():
    (block,) = re.findall(r"```sh\n((?:.|\n)*?)```", (ROOT / "README.md").read_text())
    return block.strip().splitlines()


PARSERS = (PythonCodeBlockParser(), CodeBlockParser("console", run_console), CodeBlockParser("sh", check_set_up))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.deep if page.name in LONG else ()) for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_example_of_the_page(page, tmp_path, monkeypatch):
    """As copied into an empty folder: what a page reads it has made before."""
    monkeypatch.chdir(tmp_path)
    for example in Document.parse(str(page), *PARSERS).examples():
        example.evaluate()  # which fails where what is printed is another


def test_pages_have_examples():
    assert sum(len(list(Document.parse(str(page), *PARSERS).examples())) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_example_hides_in_another_kind_of_block(page):
    """Fences of other languages hold no commands, and an indented block would not be run."""
    outside = re.sub(r"^(`{3,})[^`](?:.|\n)*?^\1$", "", page.read_text(), flags=re.M)
    assert not re.findall(r"^    +(?:\$ |>>> |verify |python |pip ).*", outside, re.M)
    blocks = re.findall(r"^```([\w{}-]*)\n((?:.|\n)*?)^```$", page.read_text(), re.M)
    for language, body in blocks:
        assert language in FENCES or language.startswith("{"), language
        if language not in ("console", "sh", "python"):
            assert not re.search(r"^(\$ |>>> |verify |pip )", body, re.M), body


def test_a_wrong_output_fails(tmp_path):
    page = tmp_path / "page.md"
    right = "```console\n$ verify count01 --N 5 --input '1 ='\nBOS 1 = -> 4 EOS\n...\n```\n"
    for text, is_right in ((right, True), (right.replace("4 EOS", "5 EOS"), False)):
        page.write_text(text)
        (example,) = Document.parse(str(page), *PARSERS).examples()
        if is_right:
            example.evaluate()
        else:
            with pytest.raises(AssertionError):
                example.evaluate()


def mend(page, folder):
    """Writes what commands print now below those that show nothing yet."""
    import os

    os.chdir(folder)
    page.write_text(
        COMMAND.sub(
            lambda m: f"$ {m[1]}\n" + (m[2] if m[2].strip() else terminal.run(m[1], folder)[0]), page.read_text()
        )
    )


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as new:
            mend(Path(name).resolve(), Path(new))
