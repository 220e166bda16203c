"""Counts what the house is made of: code lines, `Any`, class names that stand twice, rooms, arrows and circles.

python tests/tools/house.py [--json]

A room is a task's folder, another folder or file directly in verify/, or one of the other two packages, each with all
that lies below it; an arrow leads from a room to one that it imports, wherever in a file the import stands. Folders and
the arrows between them are counted apart. A circle is a set of files that import each other.

A number with an error is a class outside of the checker and the kernel that has a field for an error and three
operations or more that are given it and return it. KINDS says of which kind each is; one that it does not name is a
kind of its own.

A bound on LayerNorms is a function there that bounds sqrt(variance + eps): it takes a root, and adds an eps or takes
the root of one. NO_BOUNDS names those that only compute it; what calls a bound bounds the rest of a LayerNorm. An exact
variance, whose root an interval takes, needs none, and RMSNorm and BatchNorm go by each operation's own rule.

A margin is said by a function of verify/, outside of the same two, that takes the largest of all entries but one and
subtracts it, compares it with an entry, or returns it beside one. What is without an entry has -inf put in its place,
by an index or where two things are equal, is joined of what stands before it and behind, or lists all that are not
equal. The least of differences that are bounded one by one is another lemma: what two logits share cancels there.

A softmax bound is a file, outside of the checker and the kernel as well, with a function that says itself what a
computed exponential of scores is off by: it reads ULPS and speaks of a softmax, of scores or of keys.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import networkx

ROOT = Path(__file__).parents[2]
PACKAGES = ("constructions", "bounds", "verify")
ANY = re.compile(r"\bAny\b")
INDEPENDENT = ("checker", "kernel")  # share nothing with the rest of verify/
ERRORS = (
    {"rad"},
    {"radius"},
    {"error"},
    {"off"},
    {"slope"},
    {"rows"},
    {"lower", "upper"},
    {"low", "high"},
    {"mid", "own"},
)
FEWEST = 3  # operations of a number
LARGEST = {"max", "amax", "nanmax", "fmax", "maximum", "reduce", "topk"}
PUTS = {"scatter", "scatter_", "put_along_axis", "index_fill", "index_fill_", "fill_diagonal"}
CHOOSES = {"where", "masked_fill", "masked_fill_", "putmask"}
MAY_SAY_MARGINS = re.compile(r"(?is)(?=.*(max|topk|reduce))(?=.*(-[\w.(']*inf|delete|==|!=|cat))").match
ENTRIES = {"gather", "take_along_axis", "take_along_dim", "diag", "diagonal", "take"}
SAME = {"float", "abs", "copy", "clone", "squeeze", "unsqueeze", "reshape", "flatten"}  # with respect to entries
ATTENDS = re.compile(r"\b(softmax|scores?|keys?)\b", re.IGNORECASE)
KINDS = {
    "two ends": {"verify.arithmetic.intervals.Interval"},
    "a midpoint and a radius": {"verify.arithmetic.balls.Ball", "verify.engine.balls.Ball"},
    "affine in what numbers share": {
        "verify.engine.one_layer.bounds.Function",
        "verify.engine.one_layer.forms.Form",
        "verify.tasks.inductive.noisy.Noisy",
        "verify.tasks.recurrent.enclosures.Dual",
        "verify.tasks.recurrent.tubes.Sloped",
    },
    "an exact number, and how far computed ones are from it": {
        "verify.tasks.contextual.positional.every_string.SizedNumbers",
        "verify.tasks.inductive.drift.Drift",
        "verify.tasks.recurrent.enclosures.Off",
    },
}
ROOTS = {"sqrt", "rsqrt", "hypot", "hypotenuse"}
EPSILONS = {"eps", "norm_eps", "EPS"}
NO_BOUNDS = {
    "in balls of many bits, which hold what they stand for": {
        "verify.engine.exact.batch_norm",
        "verify.engine.exact.normal",
        "verify.engine.exact.rms_norm",
        "verify.tasks.count01.layer_norm.one_prompt._normed",
        "verify.tasks.inductive.ceilings.fading._deviation",
    },
    "in floats, of a run or a guess that no bound follows from": {
        "verify.engine.one_layer.after.normalised",
        "verify.engine.plain.layer_norm",
        "verify.tasks.count01.runs.sequential_logits",
    },
}


def files(package: str | None = None) -> list[Path]:
    return [
        path for name in (PACKAGES if package is None else (package,)) for path in sorted((ROOT / name).rglob("*.py"))
    ]


@cache
def tree(text: str) -> ast.Module:
    """A file's syntax tree: every rule of the house reads it."""
    return ast.parse(text)


@cache
def nodes(text: str) -> list[ast.AST]:
    return below(tree(text))


@cache
def parts_of(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a node that may hold others; whether a name is read or written is no node to look at."""
    named = {ast.Constant: ("value", "kind"), ast.Name: ("id",), ast.Attribute: ("attr",), ast.alias: ast.alias._fields}
    return tuple(field for field in kind._fields if field not in ("ctx", *named.get(kind, ())))


def below(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, as `ast.walk` lists them, in half of its time: each rule looks at 10^6 of them."""
    found = [node]
    for each in found:
        for name in parts_of(each.__class__):
            value = getattr(each, name)
            if value.__class__ is list:
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def code_lines(path: Path) -> set[int]:
    """The lines that hold code: no comments, no empty lines, no docstrings."""
    text = path.read_text()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(text):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            found.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports() -> networkx.DiGraph:
    """Which file imports which, imports inside functions and for annotations among them."""
    return _imports().copy()


@cache
def _imports() -> networkx.DiGraph:
    modules = {module_of(path): path for path in files()}
    graph = networkx.DiGraph()
    graph.add_nodes_from(modules)
    for name, path in modules.items():
        for node in nodes(path.read_text()):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [entry if entry in modules else node.module for entry in inner]
            graph.add_edges_from((name, target) for target in targets if target in modules and target != name)
    return graph


def circles(graph: networkx.DiGraph) -> list[list[str]]:
    """The sets of files that import each other."""
    return sorted(sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1)


def folder_of(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def room_of(module: str) -> str:
    """The task, the folder or file of verify/, or the package in which a module lies."""
    package, *inner = module.split(".")
    depth = 2 if inner[:1] == ["tasks"] else 1
    return ".".join([package, *inner[:depth]]) if package == "verify" else package


def arrows(graph: networkx.DiGraph, place: Callable[[str], str]) -> set[tuple[str, str]]:
    return {(place(a), place(b)) for a, b in graph.edges if place(a) != place(b)}


def kinds_of_numbers(numbers: set[str]) -> dict[str, list[str]]:
    """Numbers with an error by their kind; one that KINDS does not name is a kind of its own."""
    kind_of = {name: kind for kind, names in KINDS.items() for name in names}
    return {
        kind: sorted(n for n in numbers if kind_of.get(n, n) == kind) for kind in {kind_of.get(n, n) for n in numbers}
    }


def texts_of_verify() -> dict[str, str]:
    """The files of verify/ by module, without those that share nothing with them."""
    paths = (path for path in files("verify") if not {*INDEPENDENT} & {*path.relative_to(ROOT).parts})
    return {module_of(path): path.read_text() for path in paths}


def numbers_with_an_error(texts: dict[str, str]) -> set[str]:
    """Classes that have a field for an error, and FEWEST operations from them to themselves; `texts` by module."""
    found = {
        f"{module}.{node.name}": 0
        for module, text in texts.items()
        for node in nodes(text)
        if isinstance(node, ast.ClassDef) and any(error <= fields_of(node) for error in ERRORS)
    }
    for module, text in texts.items():
        known = {name.rpartition(".")[2]: name for name in found if name.rpartition(".")[0] == module}
        for node in nodes(text):
            if isinstance(node, ast.ImportFrom) and node.module:
                known |= {
                    a.asname or a.name: f"{node.module}.{a.name}"
                    for a in node.names
                    if f"{node.module}.{a.name}" in found
                }
        for name in operations(text) if known else ():
            if name in known:
                found[known[name]] += 1
    return {name for name, times in found.items() if times >= FEWEST}


def roots_of_deviations(texts: dict[str, str]) -> set[str]:
    """Functions that bound s = sqrt(variance + eps), which a LayerNorm divides by, or compute it; `texts` by module."""
    return {
        f"{module}.{node.name}"
        for module, text in texts.items()
        for node in nodes(text)
        if isinstance(node, ast.FunctionDef) and any(name in text for name in EPSILONS) and has_root_of_eps(node)
    }


def has_root_of_eps(function: ast.FunctionDef) -> bool:
    """Whether it calls a root, and an eps is within that or a sum; functions inside of it speak for themselves."""
    inner = below(function)
    nested = {id(x) for node in inner[1:] if isinstance(node, ast.FunctionDef) for x in below(node)}
    own = [node for node in inner if id(node) not in nested]
    roots = [node for node in own if isinstance(node, ast.Call) and name_of(node.func) in ROOTS]
    sums = [node for node in own if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)]
    return bool(roots) and any(name_of(part) in EPSILONS for node in (*roots, *sums) for part in below(node))


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def margins_said(texts: dict[str, str]) -> list[str]:
    """The functions that say a margin, by module."""
    found = []
    for module, text in texts.items():
        lines = text.splitlines()
        for node in nodes(text) if MAY_SAY_MARGINS(text) else ():
            if isinstance(node, ast.FunctionDef) and MAY_SAY_MARGINS(
                "\n".join(lines[node.lineno - 1 : node.end_lineno])
            ):
                found += [f"{module}.{node.name}"] * Body(node).has_margin()
    return sorted(found)


class Body:
    """What the names of a function stand for, those of functions inside of it left out."""

    def __init__(self, function: ast.FunctionDef) -> None:
        inner = {id(x) for node in below(function)[1:] if isinstance(node, ast.FunctionDef) for x in below(node)}
        self.nodes, self.bound = [x for x in below(function) if id(x) not in inner], dict[str, list[ast.expr]]()
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self._bind(node.target, node.value)
            elif isinstance(node, ast.Call) and called(node) in PUTS | CHOOSES:
                for held in parts(node)[-1:] if called(node).endswith("_") else node.args[:1]:
                    self._bind(held, node)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Subscript):
            self._bind(target.value, ast.Call(ast.Name("index_fill"), [target.slice, value], []))
        elif isinstance(target, ast.Tuple):
            each = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            for inner, one in zip(target.elts, each, strict=False):
                self._bind(inner, one.elt if isinstance(one, ast.GeneratorExp) else one)

    def meanings(self, node: ast.expr) -> list[ast.expr]:
        """An expression, and those that it may stand for, as far as entries are concerned."""
        found, seen = [node], set[str]()
        for each in found:
            if isinstance(each, ast.Name) and each.id not in seen:
                seen.add(each.id)
                found += self.bound.get(each.id, ())
            elif isinstance(each, ast.Subscript):
                found.append(each.value)
            elif isinstance(each, ast.IfExp):
                found += [each.body, each.orelse]
            elif isinstance(each, ast.UnaryOp):
                found.append(each.operand)
            elif isinstance(each, ast.Call) and called(each) in SAME:
                found += parts(each)
        return found

    def has_margin(self) -> bool:
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and self._is_rival(node.right):
                return True
            beside: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                beside = [node.left, *node.comparators]
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                beside = node.value.elts
            if any(map(self._is_rival, beside)) and any(map(self._is_entry, beside)):
                return True
        return False

    def _is_rival(self, node: ast.expr) -> bool:
        calls = [x for x in self.meanings(node) if isinstance(x, ast.Call) and called(x) in LARGEST]
        return any(self._lacks_one(part) for call in calls for part in parts(call))

    def _is_entry(self, node: ast.expr) -> bool:
        return any(
            isinstance(x, ast.Subscript) or isinstance(x, ast.Call) and called(x) in ENTRIES
            for x in self.meanings(node)
        )

    def _lacks_one(self, node: ast.expr) -> bool:
        for x in self.meanings(node):
            if isinstance(x, ast.GeneratorExp | ast.ListComp):
                if any(self._asks_for_equals(test) for part in x.generators for test in part.ifs):
                    return True
            elif isinstance(x, ast.Call):
                has_least = any("-inf" in text_of(y) for part in x.args for y in self.meanings(part))
                if called(x) == "delete" or called(x) in PUTS and has_least:
                    return True
                if called(x) in CHOOSES and has_least and any(map(self._asks_for_equals, x.args)):
                    return True
                if called(x) in ("cat", "concatenate", "hstack") and text_of(x).count(":") > 1:
                    return True
        return False

    def _asks_for_equals(self, node: ast.expr) -> bool:
        return any(
            isinstance(x, ast.Compare) and isinstance(x.ops[0], ast.Eq | ast.NotEq) and "inf" not in text_of(x)
            or isinstance(x, ast.Call) and called(x) == "eye"
            for x in self.meanings(node)
        )  # fmt: skip


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def parts(node: ast.Call) -> list[ast.expr]:
    """What a function is given, that whose method it is at last."""
    return [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else ())]


def text_of(node: ast.expr) -> str:
    """An expression, with every infinity by one name."""
    return re.sub(r"(math|np|torch)\.|float\('(?=inf)", "", ast.unparse(node)).lower()


def softmax_bounds(texts: dict[str, str]) -> dict[str, list[str]]:
    """The functions that read ULPS and speak of a softmax, of scores or of keys, by module; `texts` by module."""
    found = {
        module: sorted(
            node.name
            for node in nodes(text)
            if isinstance(node, ast.FunctionDef)
            and any(name_of(part) == "ULPS" for part in below(node))
            and ATTENDS.search(ast.unparse(node))
        )
        for module, text in texts.items()
        if "ULPS" in text
    }
    return {module: names for module, names in found.items() if names}


def fields_of(node: ast.ClassDef) -> set[str]:
    return {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def operations(text: str) -> list[str]:
    """The names of classes that functions of a file are given and return, once for each function."""
    own = {id(item): node.name for node in nodes(text) if isinstance(node, ast.ClassDef) for item in node.body}
    found = []
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            given = (
                {own[id(node)]} if id(node) in own and node.args.args[:1] and node.args.args[0].arg == "self" else set()
            )
            given |= {name for arg in node.args.args if arg.annotation for name in names_in(arg.annotation)}
            found += given & names_in(node.returns)
    return found


def names_in(annotation: ast.expr) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(annotation)))


def counted() -> dict[str, object]:
    """Every figure, by name."""
    verify = files("verify")
    classes = Counter(
        node.name for path in verify for node in nodes(path.read_text()) if isinstance(node, ast.ClassDef)
    )
    graph = imports()
    with_any = sum(
        ANY.search(path.read_text().splitlines()[line - 1]) is not None for path in verify for line in code_lines(path)
    )
    return {
        "code lines of verify/": sum(len(code_lines(path)) for path in verify),
        "lines of verify/ with Any": with_any,
        "class names of verify/ defined twice": sorted(name for name, times in classes.items() if times > 1),
        "kinds of numbers with an error": [
            f"{kind}: {', '.join(names)}"
            for kind, names in sorted(kinds_of_numbers(numbers_with_an_error(texts_of_verify())).items())
        ],
        "bounds on LayerNorms": sorted(roots_of_deviations(texts_of_verify()) - set.union(*NO_BOUNDS.values())),
        "margins": margins_said(texts_of_verify()),
        "softmax bounds": [
            f"{module}: {', '.join(names)}" for module, names in sorted(softmax_bounds(texts_of_verify()).items())
        ],
        "rooms": len({room_of(name) for name in graph.nodes}),
        "arrows between rooms": len(arrows(graph, room_of)),
        "folders": len({folder_of(name) for name in graph.nodes}),
        "arrows between folders": len(arrows(graph, folder_of)),
        "circles of files": circles(graph),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    found = counted()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"{name}: {value if isinstance(value, int) else f'{len(value)} {value}'}")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
