"""A release is one version everywhere, and what it promises to run on is a bound that pyproject states."""

import re
import tomllib
from pathlib import Path

import bounds
import constructions
import verify

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def first(pattern, file):
    return re.search(pattern, (ROOT / file).read_text(), re.M)[1]


def test_one_version():
    said = {verify.__version__, constructions.__version__, bounds.__version__}
    assert said == {first(r"^version: (\S+)$", "CITATION.cff")} == {first(r"^## (\S+)", "CHANGELOG.md")}


def test_every_library_has_a_lowest_version():
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    for line in PROJECT["dependencies"] + extras:
        assert re.search(r"[>=]=\d", line) or line.startswith("weightproof["), line


def test_one_library_has_one_lowest_version():
    lines = PROJECT["dependencies"] + [each for lines in PROJECT["optional-dependencies"].values() for each in lines]
    found = {}
    for line in lines:
        found.setdefault(re.match(r"[\w-]+", line)[0], set()).add(line)
    assert not {name: said for name, said in found.items() if name != "weightproof" and len(said) > 1}
