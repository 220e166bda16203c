"""One folder a task: each has the parts that the house finds, no task imports another, and nobody else lists them."""

import ast
import shutil
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from command import as_json, run

import verify.tasks
from tests.some import some
from tests.tools.house import files, imports, module_of, nodes, tree
from verify.claims import CLAIMS
from verify.frame import registry
from verify.python.public import certify

ROOT = Path(__file__).parents[2]
HOME = "verify.tasks"
TASKS = sorted(path for path in (ROOT / "verify" / "tasks").iterdir() if (path / "__init__.py").exists())
TOY = ROOT / "tests" / "models" / "toy" / "twice"
TOYS = sorted(path for path in TOY.iterdir() if path.suffix == ".py")
# What a word on a card asks for: the part, and what the part defines.
ASKED = {
    "SUMMARY": {"command": ("add_arguments", "run")},
    "MODEL": {"door": ("posed", "command")},
    "COUNTS": {"models": ("judged",)},
    "IMPOSSIBLE": {"impossible": ("ARGUMENTS",)},
}
EVERY = {"task": (), "claims": ("CLAIMS",)}  # of each task


def tree_of(path):
    return tree(path.read_text())


def defined(path):
    """The names that a file binds at its top."""
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def imported(path):
    """Every module of a task that a file imports, or names in a string: with what is imported from it."""
    return imported_in(path.read_text())


@cache
def imported_in(text):
    found = []
    for node in nodes(text):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HOME):
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names if alias.name.startswith(f"{HOME}.")]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{HOME}."):
            found.append((node.value.split(":")[0], None))
    return found


def is_there(folder, module, name):
    """Whether a module of the folder's task is a file or a package, or such a one lies in it."""
    place = folder.joinpath(*module.split(".")[3:])
    return (
        place.with_suffix(".py").exists()
        or (place / "__init__.py").exists()
        and (name is None or name in {*defined(place / "__init__.py")} or is_there(folder, f"{module}.{name}", None))
    )


def faults(folder, tests):
    """What a task's folder lacks, and which other tasks it knows."""
    tests = list(tests)
    cards = list(folder.rglob("__init__.py"))
    if folder / "__init__.py" not in cards:
        yield "it has no card"
        return
    for part, names in EVERY.items():
        yield from lacking(folder / f"{part}.py", names)
    if not {"SUMMARY", "COUNTS"} & {*defined(folder / "__init__.py")}:
        yield "no command asks for it"
    for card in cards:
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes(card.read_text())):
            yield f"{card.relative_to(folder)} imports something: every command reads it"
        for word, parts in ASKED.items():
            for part, names in parts.items():
                if word in defined(card):
                    yield from lacking(card.parent / f"{part}.py", names)
                elif part == "command" and (card.parent / "command.py").exists():
                    yield f"{card.relative_to(folder)} has a command and no {word}"
    for path in folder.rglob("*.py"):
        for module, name in imported(path):
            if module == HOME or module.split(".")[2] != folder.name:
                yield f"{path.relative_to(folder)} names another task: {module}"
            elif not is_there(folder, module, name):
                yield f"{path.relative_to(folder)} imports what is not there: {module}"
    known = {module.split(".")[2] for path in tests for module, _ in imported(path) if module != HOME}
    if folder.name not in known | {path.parent.name for path in tests}:
        yield "no test lies in a folder of its name, or imports it"


def lacking(path, names):
    if not path.exists():
        yield f"{path.name} is missing"
    else:
        yield from (f"{path.name} does not define {name}" for name in names if name not in defined(path))


@pytest.mark.parametrize("folder", some(TASKS), ids=lambda folder: folder.name)
def test_every_folder_is_whole_and_knows_no_other_task(folder):
    assert list(faults(folder, (ROOT / "tests").rglob("test_*.py"))) == []


def test_nobody_else_names_a_task():
    """But for the public faces, which are named as their tasks are."""
    faces = {f"{folder.name}.py" for folder in TASKS}
    for path in some(files("verify")):
        place = path.relative_to(ROOT / "verify").as_posix()
        if not place.startswith("tasks/"):
            named = {module for module, _ in imported(path) if module != HOME}
            assert not named or place in faces, (place, named)


def test_tasks_are_independent_by_all_their_imports():
    """Imports inside functions and for annotations among them."""
    tasks = {module_of(folder / "__init__.py") for folder in TASKS}
    for a, b in some(imports().edges):
        owner = {name: ".".join(name.split(".")[:3]) for name in (a, b)}
        assert owner[a] == owner[b] or owner[b] not in tasks, (a, b)


@pytest.fixture
def toy(monkeypatch):
    """The house with one task more."""
    monkeypatch.setattr(verify.tasks, "__path__", [*verify.tasks.__path__, str(TOY.parent)])
    yield import_module(f"{HOME}.twice.model")
    for name in [name for name in sys.modules if name.startswith(f"{HOME}.twice")]:
        del sys.modules[name]
    vars(verify.tasks).pop("twice", None)


def test_the_toy_is_one_small_folder():
    assert list(faults(TOY, TOY.glob("test_*.py"))) == []
    page, lines = (ROOT / "docs" / "CONTRIBUTING.md").read_text(), 0
    for path in some(TOYS):
        own = sum(1 for line in path.read_text().splitlines() if line.strip())
        assert f"| `{path.name}` | {own} |" in page
        lines += own
    assert lines <= 250 and f"{lines} lines" in page


def test_a_folder_is_all_that_a_task_needs(toy, capsys, tmp_path):
    """The command, the report, the claim, batch, check, certify by type and methods, for a folder that nobody lists."""
    assert run(capsys, "twice", "--T", "4", "--L", "3", "--save", str(tmp_path / "saved"))[0] == 0
    code, found = as_json(capsys, "twice", "--T", "4", "--L", "3")
    assert (code, found["verdict"], found["margin"], found["inputs_covered"]) == (0, "PROVED", 0.5, "64")
    assert run(capsys, "twice", "--T", "3", "--L", "3", "--method", "exhaustive")[0] == 0
    code, out, _ = run(capsys, "claims")
    assert code == 0 and "TOY-1" in out
    code, out, _ = run(capsys, "twice", "--T", "4", "--L", "3")
    assert code == 0 and "TOY-1: one layer of linear attention" in out.replace("\n", " ")
    assert run(capsys, "batch", str(tmp_path / "saved"), "--task", "twice", "--L", "3")[0] == 0
    assert run(capsys, "check", str(tmp_path / "saved"))[0] == 3  # the independent checker knows what it knows
    module = toy.orthonormal(T=3, L=3)
    assert certify(module) and certify(module, method="sampled").verdict == "UNKNOWN"
    module.b.data[1] = 0
    assert certify(module).counterexample["expected"] == 0
    assert "twice" in registry.commands() and "twice" in run(capsys, "--help")[1]
    import_module(f"{HOME}.twice.test_twice").test_verdicts_are_those_of_enumeration()


def test_the_toy_is_gone_afterwards():
    assert "twice" not in registry.commands() and "TOY-1" not in {claim.id for claim in CLAIMS}


@pytest.mark.parametrize("lost", TOYS, ids=lambda path: path.stem)
def test_a_folder_that_lacks_a_file_is_found(lost, tmp_path):
    shutil.copytree(TOY, tmp_path / "twice")
    (tmp_path / "twice" / lost.name).unlink()
    assert list(faults(tmp_path / "twice", (tmp_path / "twice").glob("test_*.py")))


@pytest.mark.parametrize(
    "line",
    [
        "from verify.tasks.parity import proof as other",
        "import verify.tasks.parity.proof",
        "from verify.tasks import parity",
        "PLACE = 'verify.tasks.parity.proof'",
    ],
)
def test_a_task_that_knows_another_is_found(line, tmp_path):
    shutil.copytree(TOY, tmp_path / "twice")
    with (tmp_path / "twice" / "task.py").open("a") as file:
        file.write(f"\n{line}\n")
    assert any("another task" in said for said in faults(tmp_path / "twice", TOYS))
