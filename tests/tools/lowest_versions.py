"""Prints the lowest versions that pyproject allows, as pip's constraints: python -m tests.tools.lowest_versions."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def lowest() -> list[str]:
    """One line a library.

    >>> "numpy==2.1" in lowest()
    True
    """
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = (re.match(r"([\w-]+)[>=]=([\w.]+)", line) for lines in lists for line in lines)
    return sorted({f"{each[1]}=={each[2]}" for each in found if each})


if __name__ == "__main__":
    print("\n".join(lowest()))
