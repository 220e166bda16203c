"""Reads regular expressions: what Python's re has too means the same here, and what would mean another is refused.

The automaton is automata-lib's. By itself that reads x{0} as x?, [\\]] as two parts, a+? as (a+)? and \\1 as a 1: so it
is given a plain form, with one letter for each symbol, classes written out and no part repeated no times.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from constructions.errors import BadInput, shown

FIRST = 0x20000  # the letter of the first symbol, beyond all that has a meaning in the library's syntax
MOST_SYMBOLS = 100_000
MOST_REPETITIONS = 100_000  # of one part of a regular expression; the library makes a state for each
MOST_DEPTH = 100  # parentheses in parentheses
TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[^{}]*\}|\(\?|.", re.DOTALL)
COUNTS = re.compile(r"\{(?:([0-9]+)|([0-9]+),([0-9]*)|,([0-9]+))\}")
SIGNS = {"|": "union", "&": "intersection", "^": "shuffle"}
LETTERS = "dDsSwWnrtfv"  # that an escape may have


class Plain(NamedTuple):
    """An expression in the library's syntax, and how many states the library makes of it at most.

    A symbol is two states, a repetition its copies, a union the sum, an intersection or a shuffle the product.
    """

    text: str
    states: int

    def repeated(self, least: int, most: int | None) -> Plain:
        """The expression `least` to `most` times, without an end for None."""
        if most == 0:
            return Plain("()", 2)
        copies = max(least + 1, most or 0)
        return Plain(f"({self.text}){{{least},{'' if most is None else most}}}", self.states * copies + 2)


def letters(alphabet: tuple[str, ...]) -> tuple[str, ...]:
    """The letters that stand for the symbols in a plain expression.

    Raises: BadInput for more symbols than there are letters.

    >>> len(letters(("0", "1", "{")))
    3
    """
    if len(alphabet) > MOST_SYMBOLS:
        raise BadInput(f"alphabet of {len(alphabet)} symbols: at most {MOST_SYMBOLS} are read")
    return tuple(chr(FIRST + j) for j in range(len(alphabet)))


def plain(regex: str, alphabet: tuple[str, ...]) -> Plain:
    """The plain form of a regular expression.

    Its syntax: | union, & intersection, ^ shuffle, * + ? {m} {m,} {,n} {m,n} repetition, [01] and . classes, () the
    empty string, and \\ before a sign that is meant itself. Where Python's re has the same, it is the same language;
    what a class names outside the alphabet matches nothing.
    Raises: BadInput that names what is malformed or not supported, and where it stands.

    >>> plain("a{0}", ("a",)).text, plain("a{2,3}", ("a",)).states
    ('()', 8)
    """
    return _Reader(regex, alphabet).whole()


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, regex: str, alphabet: tuple[str, ...]) -> None:
        self.regex, self.alphabet = regex, alphabet
        self.letter = dict(zip(alphabet, letters(alphabet), strict=True))
        self.tokens = [match[0] for match in TOKEN.finditer(regex)]
        self.at = self.depth = 0

    @property
    def token(self) -> str:
        """The next token, empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def refuse(self, why: str) -> NoReturn:
        place = sum(map(len, self.tokens[: self.at])) + 1
        raise BadInput(f"regular expression {shown(self.regex)}, character {place}: {why}")

    def whole(self) -> Plain:
        if not self.tokens:
            return Plain("()", 2)
        found = self.joined()
        if self.token:
            self.refuse("this ) closes nothing. Write \\) for the symbol.")
        return found

    def joined(self) -> Plain:
        """Parts with one kind of infix sign between them, up to a closing parenthesis or the end."""
        total, sign = self.sequence(), self.token
        while self.token and self.token in SIGNS:
            if self.token != sign:
                self.refuse(f"{sign} and {self.token} side by side have no order. Put one of them in parentheses.")
            self.at += 1
            right = self.sequence()
            states = total.states + right.states + 1 if sign == "|" else total.states * right.states
            total = Plain(f"{total.text}{sign}{right.text}", states)
        return total

    def sequence(self) -> Plain:
        """One or more repeated parts, one after another."""
        parts = []
        while self.token and self.token != ")" and self.token not in SIGNS:
            parts.append(self.repeated())
        if not parts:
            before = self.tokens[self.at - 1] if self.at else ""
            sign = next((sign for sign in (self.token, before) if sign in SIGNS), "")
            what = f"{sign} ({SIGNS[sign]}) needs an expression on either side" if sign else "an expression is missing"
            anchors = " Anchors are not supported, as the whole string is always matched." if sign == "^" else ""
            self.refuse(f"{what}; write () for the empty string.{anchors}")
        return Plain("".join(part.text for part in parts), sum(part.states for part in parts))

    def repeated(self) -> Plain:
        part, counts = self.part(), self.counts()
        if counts is None:
            return part
        if self.counts() is not None:
            self.at -= 1
            self.refuse("a repetition of a repetition, or a lazy or possessive one. Use parentheses.")
        return part.repeated(*counts)

    def counts(self) -> tuple[int, int | None] | None:
        """How often the part before is repeated, and the token is then read; None where it is no repetition."""
        token = self.token
        if token in ("*", "+", "?"):
            self.at += 1
            return (int(token == "+"), 1 if token == "?" else None)
        if token[:1] != "{":
            return None
        match = COUNTS.fullmatch(token)
        if match is None:
            self.refuse("{ begins a repetition {m}, {m,}, {,n} or {m,n}. Write \\{ for the symbol.")
        exact, low, high, most = match.groups()
        least = self.number(exact or low or "0")
        bound = exact or high or most
        greatest = None if not bound else self.number(bound)
        if greatest is not None and greatest < least:
            self.refuse(f"repeats at least {least} and at most {greatest} times.")
        self.at += 1
        return least, greatest

    def number(self, digits: str) -> int:
        if len(digits.lstrip("0")) > len(str(MOST_REPETITIONS)) or int(digits[-12:]) > MOST_REPETITIONS:
            self.refuse(f"repeats {digits[:40]} times, more than {MOST_REPETITIONS}")
        return int(digits[-12:])

    def part(self) -> Plain:
        """A group, a class or a symbol."""
        token = self.token
        if token == "(":
            return self.group()
        if token in ("*", "+", "?") or COUNTS.fullmatch(token):
            self.refuse(f"{token} repeats nothing. Write \\{token[0]} for the symbol.")
        if token == "(?":
            self.refuse("(?...) is not supported: a parenthesis groups, and no more.")
        if token == "$":
            self.refuse("anchors are not supported, as the whole string is always matched. Write \\$ for the symbol.")
        if token[0] == "{":
            self.counts()
        if token in ("\\", "["):
            self.refuse(f"{token} is not closed. Write \\{token} for the symbol.")
        is_class = token == "." or token[0] == "[" or token[:1] + token[1:].lower() in ("\\d", "\\s", "\\w")
        if is_class:
            self.check_class(token)
        elif token[0] == "\\" and token[1].isascii() and token[1].isalnum() and token[1] not in LETTERS:
            self.refuse(f"{token} is not supported; \\ stands before {', '.join(LETTERS)} or a sign.")
        members = self.members(token if is_class or token[0] == "\\" else re.escape(token))
        if not members and not is_class:
            self.refuse(f"the symbol {token!r} is not in the alphabet {shown(''.join(self.alphabet))}.")
        self.at += 1
        if not members:  # what is both a symbol and the empty string
            return Plain(f"({chr(FIRST)}&())", 6)
        return Plain(members if len(members) == 1 else f"[{members}]", 2)

    def check_class(self, token: str) -> None:
        """Refuses signs in a class that re itself warns of: other languages have nested classes and operations."""
        bare = re.sub(r"\\.", "", token[1:-1], flags=re.DOTALL)
        if odd := re.search(r"\[|--|&&|~~|\|\|", bare):
            self.refuse(f"{odd[0]} in a class is not supported. Write \\{odd[0][0]} for the symbol.")

    def members(self, one_symbol: str) -> str:
        """The letters of the symbols that re matches with an expression for one symbol."""
        try:
            found = re.compile(one_symbol)
        except re.error as error:
            self.refuse(f"{shown(self.token)}: {shown(error.msg)[1:-1]}.")
        return "".join(self.letter[symbol] for symbol in self.alphabet if found.fullmatch(symbol))

    def group(self) -> Plain:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            self.refuse(f"more than {MOST_DEPTH} parentheses in one another.")
        opened, self.at = self.at, self.at + 1
        if self.token == ")":
            found = Plain("()", 2)
        else:
            found = self.joined()
            found = Plain(f"({found.text})", found.states + 1)
        if self.token != ")":
            self.at = opened
            self.refuse("this ( is not closed. Write \\( for the symbol.")
        self.at += 1
        self.depth -= 1
        return found
