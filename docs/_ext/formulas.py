"""A bound's function as markdown: what it says, its formulas in LaTeX, their values, and its own example."""

import re
from dataclasses import fields, is_dataclass
from doctest import DocTestParser
from importlib import import_module
from inspect import getdoc, isclass, signature

import sympy

VALUES = {"T": 32, "L": 10, "k": 3, "N": 10, "s": 2, "n": 2, "d": 5, "alpha": 0}


def places(text: str) -> list[str]:
    """The "module:function" entries of one cell of the registry; a dash means that there is none."""
    return [place.strip() for place in text.split(",") if ":" in place]


def look_up(place: str):
    module, name = place.split(":")
    return getattr(import_module(module), name)


def role(place: str) -> str:
    """A link to the reference."""
    target = place.replace(":", ".")
    return f"{{py:obj}}`{target}`"


def description(place: str) -> tuple[str, str]:
    """The first paragraph of the docstring, and its Claim lines without the identifier's repetition."""
    text = getdoc(look_up(place)) or ""
    summary = text.split("\n\n")[0].replace("\n", " ")
    claim = re.search(r"^Claim: ((?:.|\n)*?)(?=^\S+:|^\S|\n\n|\Z)", text, re.M)
    return markdown(summary), markdown(re.sub(r"\s+", " ", claim[1]).strip()) if claim else ""


def markdown(text: str) -> str:
    """Plain text, with the characters that markdown would read as markup escaped outside backticks."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([*_$<>|\[\]])", r"\\\1", part) for i, part in enumerate(parts))


def bound_section(place: str) -> str:
    summary, claim = description(place)
    lines = [f"{role(place)}: {summary}", ""]
    lines += formula_table(place)
    examples = DocTestParser().get_examples(getdoc(look_up(place)) or "")
    if examples:
        lines += ["```pycon", *map(as_typed, examples), "```", ""]
    if claim:
        lines += [f"Source and departures: {claim}", ""]
    return "\n".join(lines)


def as_typed(example) -> str:
    typed = ">>> " + example.source.rstrip().replace("\n", "\n... ")
    return f"{typed}\n{example.want}".rstrip()


def formula_table(place: str) -> list[str]:
    function = look_up(place)
    if isclass(function) or any(p.default is p.empty for p in signature(function).parameters.values()):
        return []
    result = function()
    named = {f.name: getattr(result, f.name) for f in fields(result)} if is_dataclass(result) else {"value": result}
    formulas = {name: value for name, value in named.items() if isinstance(value, sympy.Basic)}
    if not formulas:
        return []
    rows = ["| quantity | formula | evaluated |", "|---|---|---|"]
    rows += [f"| {name} | ${latex(value)}$ | {evaluated(value)} |" for name, value in formulas.items()]
    return [*rows, ""]


def latex(expression) -> str:
    return sympy.latex(expression).replace("|", r"\vert ")


def evaluated(expression) -> str:
    """The value at T = 32, L = 10, k = 3, ..., as far as all symbols have one; exact, and as a decimal."""
    if not expression.free_symbols:
        return "constant"
    used = {symbol: VALUES[symbol.name] for symbol in expression.free_symbols if symbol.name in VALUES}
    if len(used) < len(expression.free_symbols):
        return "-"
    value = expression.subs(used)
    at = ", ".join(f"{symbol.name} = {used[symbol]}" for symbol in sorted(used, key=str))
    shown = f"${latex(value)}$"
    if isinstance(value, sympy.Expr) and not value.is_Integer:
        shown += rf" $\approx {latex(sympy.Float(value.evalf(6), 6))}$"
    return f"{at}: {shown}"
