"""The reference by task: what is public (docs/versions.md), and what the claims name, from the docstrings.

Pages stand in no toctree: the sidebar of each page lists all that do, and made most of the build's time.
"""

import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from inspect import isfunction, ismodule

from formulas import places

from verify.claims import CLAIMS
from verify.frame import registry

BESIDE = {"heads": "count01", "bidirectional": "contextual", "language": "circuit", "kernel": "histogram"}
SHARED = "shared"
JUDGE = ("verify", "verify.module", "verify.frame.kept", "verify.python.pytest_plugin")
INTRODUCTION = """# Reference

From the docstrings, by task: what is [public](../versions.md), and the functions that build, bound or decide a
[claim](../claims/index.md). Every function has an example, which the tests run; that of an argument why something is
impossible is the command of its claim.

- [judge](judge.rst): prove, repair, round or bound any model from Python; domains, automata, strategies, a fixture"""


def pages() -> Iterator[tuple[str, str]]:
    """The name of each file and its text."""
    tasks = by_task()
    named = {module for found in tasks.values() for module in found}
    tasks[SHARED] = {module: [] for module in public_modules() if module not in named}
    yield "judge.rst", page("Judge a model", {module: public_names(module) for module in JUDGE})
    for task, found in tasks.items():
        yield f"{task}.rst", page(task, found)
    listed = [f"- [{task}]({task}.rst): {about(task)}" for task in tasks]
    yield "index.md", "\n".join([INTRODUCTION, *listed]) + "\n"


def about(task: str) -> str:
    is_shared = task == SHARED
    return "files, codes, frames and formulas for several tasks" if is_shared else registry.commands()[task].summary


def public_modules() -> list[str]:
    """What `constructions` and `bounds` name, packages as the modules in them."""
    found = []
    for room in ("constructions", "bounds"):
        for name in import_module(room).__all__:
            if not name.startswith("_"):
                module = import_module(f"{room}.{name}")
                inside = getattr(module, "__path__", [])
                found += [f"{room}.{name}", *(part.name for part in pkgutil.walk_packages(inside, f"{room}.{name}."))]
    return found


def public_names(module: str) -> list[str]:
    """What a module names in `__all__`, else its own functions.

    >>> public_names("verify.frame.kept")[0]
    'keep'
    """
    stated = import_module(module)
    own = [name for name, thing in vars(stated).items() if isfunction(thing) and thing.__module__ == module]
    names = getattr(stated, "__all__", None) or own
    return [name for name in names if not name.startswith(("_", "pytest_"))]


def by_task() -> dict[str, dict[str, list[str]]]:
    """By task, the modules that its claims name, with the names of what decides; weights and formulas stand whole.

    >>> by_task()["parity"]
    {'constructions.parity': [], 'bounds.parity': [], 'verify.tasks.parity.task': ['Parity']}
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    seen = set()
    for room in ("constructions", "bounds", "verify."):
        for claim in CLAIMS:
            task = claim.command.split()[1]
            for place in places(f"{claim.builder}, {claim.bound}, {claim.verifier}"):
                module, name = place.split(":")
                what = place if room == "verify." else module
                if not module.startswith(room) or what in seen or module in (*JUDGE, "verify.python.strategies"):
                    continue
                seen.add(what)
                names = found[BESIDE.get(task, task)].setdefault(module, [])
                names += [name] * (room == "verify.")
    return dict(found)


def page(title: str, modules: dict[str, list[str]]) -> str:
    """Whole modules where no names are given."""
    parts = [":orphan:", heading(title, "=")]
    for module, names in modules.items():
        parts.append(heading(module, "-"))
        parts += [directive(module, name) for name in names] or [f".. automodule:: {module}\n   :members:"]
    return "\n\n".join(parts) + "\n"


def heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}"


def directive(module: str, name: str) -> str:
    thing = getattr(import_module(module), name)
    if ismodule(thing):
        return f".. automodule:: {thing.__name__}\n   :members:"
    kind = "class" if isinstance(thing, type) else "function" if isfunction(thing) else "data"
    return f".. auto{kind}:: {module}.{name}" + "\n   :members:" * (kind == "class")
