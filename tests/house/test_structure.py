"""The rules of the house: who imports whom, and a registry that names things that exist."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from verify.claims import CLAIMS

ROOT = Path(__file__).parents[2]
ALLOWED = {"constructions": {"constructions"}, "bounds": {"bounds"}, "verify": {"verify", "constructions", "bounds"}}


@pytest.mark.parametrize("package", ALLOWED)
def test_dependencies_point_one_way(package):
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                assert top not in ALLOWED or top in ALLOWED[package], (path, name)


def test_claim_ids_are_unique():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_the_registry_names_what_exists(claim):
    for entry in (claim.builder, claim.bound, claim.verifier):
        for place in entry.split(", "):
            if place != "-":
                module, name = place.split(":")
                assert callable(getattr(import_module(module), name))
    assert all(command.startswith("verify ") for command in (claim.command, *claim.deep))
