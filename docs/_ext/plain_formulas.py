"""Formulas that a page writes as plain text (d >= T > 2, b_1 = -T) are typeset, as the source stays readable so."""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

TYPESET = ("claims/", "all-claims", "errata", "histogram", "exact-laws", "inductive-ceilings", "fewer-dimensions")
OPERATORS = {
    ">=": r"\ge", "<=": r"\le", "!=": r"\ne", "<": "<", ">": ">", "=": "=", "+": "+", "-": "-", "/": "/", "*": r"\cdot",
}  # fmt: skip
NAMES = {"log2": r"\log_2", "log": r"\log", "max": r"\max", "min": r"\min", "exp": r"\exp", "phi": r"\varphi",
         "cos": r"\cos", "sin": r"\sin", "kappa": r"\kappa", "pi": r"\pi", "alpha": r"\alpha", "infinity": r"\infty",
         "eps": r"\varepsilon"}  # fmt: skip
BRACKETS = {"ceil": (r"\lceil ", r" \rceil"), "floor": (r"\lfloor ", r" \rfloor"), "sqrt": (r"\sqrt{", "}")}
NAME = "|".join([*NAMES, *BRACKETS])
NOT_RUNNING = (nodes.literal, nodes.FixedTextElement, nodes.reference, nodes.math, nodes.title, nodes.raw)
# What a formula is made of: numbers, one letter with its subscript, known names, signs and brackets.
PIECE = re.compile(
    rf"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\.\.|(?:{NAME})(?![a-z])|x\*|[A-Za-z](?:_(?:\w+|=)|\d{{1,2}})?(?![A-Za-z])"
    r"|>=|<=|!=|[-+*/<>=^()|]"
)
RAISED = re.compile(
    rf"(?:{'|'.join(BRACKETS)})(?=\()|-?(?:\d+(?:\.\d+)?|(?:{'|'.join(NAMES)})(?![a-z])|[A-Za-z](?:_\w+|\d)?)"
)
NEEDS = re.compile(r"[<>=^_]|[\w)]/[\w(]|\w\(|\) ?[-+]|[\w)] [-+] [\w(]")
NO_FORMULA = re.compile(r"[A-E]-\w|W-\w|H-\w|\w+\.\w+\.|[a-zA-Z]\)|\(\w+\)|\d+-\d+")


def split(text: str) -> list[tuple[bool, str]]:
    """The text in pieces, each with whether it is a formula.

    >>> split("counts for d >= T > 2, as in W-2")
    [(False, 'counts for '), (True, 'd >= T > 2'), (False, ', as in W-2')]
    """
    found, at, start = [], 0, 0
    while start < len(text):
        is_inside = start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_.-^/*]")
        end = start if is_inside or text[start] in " ^/*)" else _end(text, start)
        run = text[start:end]
        if run and NEEDS.search(run) and not NO_FORMULA.fullmatch(run) and re.search(r"\w", run):
            found += [(False, text[at:start]), (True, run)]
            at = start = end
        else:
            start = max(start + 1, end)
    found.append((False, text[at:]))
    return [(is_formula, piece) for is_formula, piece in found if piece]


def _end(text: str, start: int) -> int:
    """The end of the longest formula that begins here: whole pieces, brackets closed, no sign left open."""
    at, depth, end = start, 0, start
    is_open = True  # after a sign or a bracket, something has to follow
    while at < len(text):
        if text[at] == " " or (text[at] == "," and depth and text[at + 1 : at + 2] == " "):
            at += 1
            continue
        if not (piece := PIECE.match(text, at)):
            break
        word = piece[0].rstrip(",")
        if word == "a" and is_open and text[at + 1 : at + 2] == " " and text[at + 2 : at + 3].isalpha():
            break  # the article
        depth += (word == "(") - (word == ")")
        if depth < 0:
            break
        if word == "^" and not (text[at + 1 : at + 2] == "(" or RAISED.match(text, at + 1)):
            break
        at += len(word)
        is_open = word in OPERATORS or word in "(^" or word == ".."
        if not is_open and depth == 0 and (at == len(text) or not text[at].isalnum()):
            end = at
        if not is_open and text[at : at + 2] == ", " and not depth:
            break
    return end


def latex(formula: str) -> str:
    r"""The formula as LaTeX.

    >>> latex("p >= ceil(log2(T+1))")
    'p \\ge \\lceil \\log_2 (T+1) \\rceil'
    >>> latex("e^(N+1)/(1+e)")
    'e^{N+1}/(1+e)'
    >>> latex("n0, n1 >= 0")
    'n_{0}, n_{1} \\ge 0'
    """
    out, closers, at, before = [], [], 0, ""
    while at < len(formula):
        if formula[at] in " ,":
            before = "" if formula[at] == "," else before
            out.append(formula[at])
            at += 1
            continue
        word = PIECE.match(formula, at)[0].rstrip(",")
        at += len(word)
        if word in BRACKETS and formula[at : at + 1] == "(":
            opener, closer = BRACKETS[word]
            out.append(opener)
            closers.append(closer)
            at += 1
        elif word == "^" and formula[at : at + 1] == "(":
            out.append("^{")
            closers.append("}")
            at += 1
        elif word == "^":
            raised = RAISED.match(formula, at)[0]
            at += len(raised)
            if raised in BRACKETS:
                opener, closer = BRACKETS[raised]
                out.append("^{" + opener)
                closers.append(closer + "}")
                at += 1  # its bracket
            else:
                out.append("^{" + raised[: raised.startswith("-")] + _word(raised.removeprefix("-")).strip() + "}")
        elif word == "(":
            out.append("(")
            closers.append(")")
        elif word == ")":
            out.append(closers.pop())
        else:
            if out and out[-1] == " " and before and before not in OPERATORS and word not in OPERATORS:
                out.append(r"\;")  # two factors, or a bracket and what it is said of
            out.append(_word(word))
        before = word
    return "".join(out).strip()


def _word(word: str) -> str:
    if word in OPERATORS:
        return OPERATORS[word]
    if word == "x*":
        return "x^{*}"
    if word in NAMES:
        return NAMES[word] + (" " if word not in ("infinity",) else "")
    if word == "..":
        return r",\dots,"
    if word[0].isdigit():
        return word.replace(",", "{,}")
    if len(word) > 1:
        return word[0] + "_{" + word[1:].lstrip("_") + "}"
    return r"\vert " if word == "|" else word


class TypesetFormulas(SphinxTransform):
    """Puts formulas in place of the plain text of running paragraphs and tables."""

    default_priority = 600

    def apply(self, **_: object) -> None:
        if not self.env.docname.startswith(TYPESET):
            return
        for text in list(self.document.findall(nodes.Text)):
            if not _is_running(text):
                continue
            pieces = split(text.astext())
            if any(is_formula for is_formula, _ in pieces):
                text.parent.replace(text, [nodes.math(latex(p), latex(p)) if f else nodes.Text(p) for f, p in pieces])


def _is_running(text: nodes.Text) -> bool:
    node, is_paragraph = text.parent, False
    while node is not None:
        if isinstance(node, NOT_RUNNING):
            return False
        is_paragraph = is_paragraph or isinstance(node, nodes.paragraph)
        node = node.parent
    return is_paragraph


def setup(app):
    app.add_transform(TypesetFormulas)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
