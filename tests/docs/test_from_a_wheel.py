"""Tutorials, how-tos, README and the notebook after a plain install: from a wheel, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from constructions import trained

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
CHOSEN = "README or tutorial or howto or notebook"
PAGES = ("tests/docs/test_examples.py", "tests/docs/test_notebook.py")


def test_models_in_the_package_are_those_of_the_tests():
    for name, file in ((trained.COUNT01, "count01/a4_s1"), (trained.MODULAR, "modular/p13_some_pairs")):
        assert trained.path(name).read_bytes() == (DATA / f"{file}.safetensors").read_bytes()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what a wheel installs, which is nothing of the repository's besides."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


@pytest.mark.deep
def test_readme_on_an_index_has_no_link_into_the_repository(installed):
    """There, a link to a file of the repository leads nowhere."""
    (about,) = installed.glob("weightproof-*.dist-info/METADATA")
    text = about.read_text()
    assert "## Two commands" in text and "](https://" in text
    assert not re.findall(r"\]\((?!https?:)", text)


@pytest.mark.deep
def test_a_wheel_is_reproducible(installed, tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,), (before,) = tmp_path.glob("*.whl"), installed.parent.glob("*.whl")
    assert wheel.read_bytes() == before.read_bytes()


@pytest.mark.deep
def test_pages_run_after_a_plain_install(installed, tmp_path):
    """The pages' own tests, of which this project's packages are the installed ones."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    said = "import constructions, verify; print(constructions.__file__, verify.__file__)"
    found = subprocess.run([sys.executable, "-c", said], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.stdout.count(str(installed)) == 2
    tests = [str(ROOT / page) for page in PAGES]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=append", "-m", "deep or not deep", "-k", CHOSEN]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
