"""Docstrings are plain text with lines like "Claim: ..."; here those lines become fields, and the rest is escaped."""

import re
from itertools import groupby

FIELD = re.compile(r"(Claim|Shapes|Units|Raises): (.*)")


def setup(app):
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", without_factories)
    return {"parallel_read_safe": True}


def process(app, what, name, obj, options, lines):
    lines[:] = as_rst(lines)


def without_factories(app, what, name, obj, options, signature, returned):
    """A default that is made anew has no name in Python, and a signature with one is not parsed."""
    return signature and signature.replace("<factory>", "..."), returned


def as_rst(lines):
    """The docstring as reStructuredText: paragraphs, fields, indented formulas as literal blocks, doctests as they are.

    >>> as_rst(["One x_ sentence.", "", "Claim: A-1", "    (page 2).", "Shapes: E (T, d)."])
    ['One x\\\\_ sentence.', '', ':Claim: A-1', '    (page 2).', ':Shapes: E (T, d).', '']
    """
    out = []
    for is_blank, group in groupby(lines, key=lambda line: not line.strip()):
        if not is_blank:
            out += [*paragraph(list(group)), ""]
    return out


def paragraph(lines):
    if lines[0].lstrip().startswith(">>>"):
        return lines
    if all(line.startswith("  ") for line in lines):
        return ["::", "", *lines]
    out, in_field, in_literal = [], False, False
    for line in lines:
        found = FIELD.match(line)
        if found:
            if out and not in_field:
                out.append("")
            out.append(f":{found[1]}: {escaped(found[2])}")
            in_field, in_literal = True, False
        elif in_field and line.startswith(" "):
            out.append("    " + escaped(line.strip()))
        elif line.startswith("  "):
            out += [line] if in_literal else ["", "::", "", line]
            in_literal = True
        else:
            out += ["", escaped(line)] if in_field or in_literal else [escaped(line)]
            in_field = in_literal = False
    return out


def escaped(text):
    """Code in backticks becomes literal; what reStructuredText would read as markup is escaped."""
    parts = re.split(r"`([^`]+)`", text)
    plain = [re.sub(r"([*|\\`])|(?<=\w)_(?!\w)", lambda m: "\\" + m[0], part) for part in parts[::2]]
    return "".join(a + b for a, b in zip(plain, [f"``{code}``" for code in parts[1::2]] + [""], strict=True))
