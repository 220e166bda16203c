"""The rules of the house: who imports whom, and a registry that names things that exist."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.some import some
from tests.tools.house import (
    KINDS,
    NO_BOUNDS,
    arrows,
    circles,
    imports,
    kinds_of_numbers,
    margins_said,
    nodes,
    numbers_with_an_error,
    room_of,
    roots_of_deviations,
    softmax_bounds,
    texts_of_verify,
)
from verify.claims import CLAIMS

ROOT = Path(__file__).parents[2]
ALLOWED = {"constructions": {"constructions"}, "bounds": {"bounds"}, "verify": {"verify", "constructions", "bounds"}}


@pytest.mark.parametrize("package", ALLOWED)
def test_dependencies_point_one_way(package):
    imported = set()
    for path in some((ROOT / package).rglob("*.py")):
        for node in nodes(path.read_text()):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                assert top not in ALLOWED or top in ALLOWED[package], (path, name)
                imported.add(top)
    assert ALLOWED[package] <= imported


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


def test_no_files_import_each_other():
    """Imports inside functions and for annotations count as well."""
    graph = imports()
    assert graph.number_of_edges() > 1000 and circles(graph) == []
    graph.add_edge("verify.arithmetic.formats", "verify.arithmetic.rounding")
    assert circles(graph) == [["verify.arithmetic.formats", "verify.arithmetic.rounding"]]


FIFTH = """
class Fifth:
    mid: float
    rad: float
    def __add__(self, other: Fifth) -> Fifth: ...
    def __mul__(self, other: Fifth) -> Fifth: ...
def power(x: Fifth, n: int) -> Fifth | None: ...
"""


def test_numbers_with_an_error_are_of_four_kinds():
    """Every class that KINDS names is one, and none is of a fifth kind."""
    texts = texts_of_verify()
    numbers = numbers_with_an_error(texts)
    assert numbers == set.union(*KINDS.values()) and len(kinds_of_numbers(numbers)) == len(KINDS) <= 4


def test_a_fifth_kind_is_found():
    texts = {"here": FIFTH}
    assert kinds_of_numbers(numbers_with_an_error(texts)) == {"here.Fifth": ["here.Fifth"]}
    assert (
        numbers_with_an_error({"here": FIFTH.replace("def power", "x = 1\ndef other").replace("x: Fifth", "x")})
        == set()
    )
    elsewhere = {
        "here": FIFTH.partition("def power")[0],
        "there": "from here import Fifth\ndef power(x: Fifth) -> Fifth: ...",
    }
    assert numbers_with_an_error(elsewhere) == {"here.Fifth"}
    assert numbers_with_an_error({"here": FIFTH.replace("rad", "size")}) == set()


NORM = """
class Rows:
    def deviation(self, variance, off):
        def ends(x):
            return x.sqrt()
        return ends(variance - off + self.layer.eps)
def normed(x, layer):
    s = deviation(x, eps=layer.eps)
    return x / s + sqrt(x)
"""


def test_layer_norms_have_two_bounds():
    """One of arrays in arithmetic, and one of tensors in the engine; what NO_BOUNDS names takes such roots, too."""
    found = roots_of_deviations(texts_of_verify())
    bounds = {"verify.arithmetic.layer_norm.deviation", "verify.engine.rules.normalisation.deviation"}
    assert found == set.union(bounds, *NO_BOUNDS.values())


def test_a_third_bound_on_layer_norms_is_found():
    assert roots_of_deviations({"here": NORM}) == set()
    for right, wrong, name in (
        ("return x.sqrt()", "return (x + eps).sqrt()", "ends"),
        ("ends(variance", "sqrt(variance", "deviation"),
        ("deviation(x, eps=", "sqrt(", "normed"),
        ("sqrt(x)", "sqrt(x + eps)", "normed"),
    ):
        assert roots_of_deviations({"here": NORM.replace(right, wrong)}) == {f"here.{name}"}


def test_a_margin_is_said_once():
    assert margins_said(texts_of_verify()) == ["verify.arithmetic.margins.own_and_rival"]


@pytest.mark.parametrize(
    "body",
    [
        "return logits[right] - np.delete(logits, right).max()",
        "return x.gather(-1, due)[..., 0] - x.scatter(-1, due, -torch.inf).amax(-1)",
        "others = x.copy()\n    np.put_along_axis(others, right, -np.inf, -1)\n    return x[right] - others.max(-1)",
        "due = x[i, right].copy()\n    x[i, right] = -np.inf\n    return due > x.max(1)",
        "own = np.arange(n) == right\n    return x[right] - np.where(own, -inf, x).max(1)",
        "return x[right], max(y for j, y in enumerate(x) if j != right)",
        "rest = torch.cat([x[:right], x[right + 1 :]])\n    return x[right] - (rest.max() if len(rest) else 0.0)",
        "others = np.where(np.eye(n, dtype=bool), -math.inf, A).max(axis=1)\n    return np.diag(A) - others",
    ],
)
def test_another_margin_is_found(body):
    assert margins_said({"here": f"def another(x, right):\n    {body}\n"}) == ["here.another"]


@pytest.mark.parametrize(
    "body",
    [
        "top = np.where(there, scores, -np.inf).max(-1)\n    return scores - top",
        "top = np.where(scores == -np.inf, -np.inf, scores).max(-1)\n    return scores - top",
        "return min(x[right] - y for j, y in enumerate(x) if j != right)",
        "return x[right] - x.max()",
    ],
)
def test_what_is_no_margin_is_not_counted(body):
    """The largest score of a softmax, and differences that are bounded one by one."""
    assert margins_said({"here": f"def another(x, right):\n    {body}\n"}) == []


FURTHER = """
def mixed(scores, u):
    return np.exp(scores) * (1 + ULPS * u)
"""


def test_few_files_bound_a_softmax():
    """The engine's rule is kept apart."""
    assert set(softmax_bounds(texts_of_verify())) == {
        "verify.arithmetic.softmax",
        "verify.engine.rules.normalisation",
    }


def test_a_further_softmax_bound_is_found():
    assert softmax_bounds({"here": FURTHER}) == {"here": ["mixed"]}
    assert softmax_bounds({"here": FURTHER.replace("ULPS", "operations.ULPS")}) == {"here": ["mixed"]}
    assert softmax_bounds({"here": FURTHER.replace("scores", "x")}) == {}
    assert softmax_bounds({"here": FURTHER.replace("ULPS * u", "exponential_error(u)")}) == {}


def test_few_rooms_know_each_other():
    """A task is one room, with all that lies below it; so is a folder of verify/, and each other package."""
    graph = imports()
    assert room_of("verify.tasks.count01.heads.command") == "verify.tasks.count01"
    assert room_of("verify.engine.rules.linear") == "verify.engine" and room_of("bounds.parity") == "bounds"
    before = arrows(graph, room_of)
    assert len(before) <= 115 and ("verify.reduction", "verify.frame") not in before
    graph.add_edge("verify.reduction.leaf", "verify.frame.clock")
    assert arrows(graph, room_of) - before == {("verify.reduction", "verify.frame")}
