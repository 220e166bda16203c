"""The types of certificates say of each field no less than the table that a certificate is walked along."""

import types
import typing

import pytest

from verify.checker import records, table
from verify.checker.table import IN_BITS, IN_DTYPE, TABLES, WRONG_STEP

LINES = """
    by a.check = [[whole | null]]: a?; text: b.(c,d[],e?)
    trusted name: a = b, or not = flag: f
        g.h
    trusted: it is so: or not = anything: i.(j?,k[])
"""
READ = {
    "a?": ("list", "by a.check", ""), "a[]": ("list", "by a.check", ""), "a[][]": ("whole | null", "by a.check", ""),
    "b.c": ("text", "by a.check", ""), "b.d[]": ("text", "by a.check", ""), "b.e?": ("text", "by a.check", ""),
    "f": ("flag", "trusted: a = b, or not", "name"), "g.h": ("flag", "trusted: a = b, or not", "name"),
    "i.j?": ("anything", "trusted: it is so: or not", "j"), "i.k[]": ("anything", "trusted: it is so: or not", "k"),
}  # fmt: skip


def test_a_table_is_read_from_its_lines():
    assert table._fields(LINES) == READ


JSON = {"null": type(None), "flag": bool, "whole": int, "integer": int, "number": float, "text": str}
JSON |= {"list": list, "object": dict, "elsewhere": dict}
KINDS = {
    records.PairsCertificate: ["modular, "],
    records.SumsCertificate: ["addition, "],
    records.CountsCertificate: ["histogram, "],
    records.ParityCertificate: ["parity, "],
    records.PromptsCertificate: ["count01, "],
    records.StringsCertificate: ["contextual, ", "placed, "],
    records.ModuleCertificate: ["module, "],
    records.LayoutPairsCertificate: ["grokking, "],
    records.CountingCertificate: ["transformer, "],
    records.ChainCertificate: ["circuit", "language"],
    records.LineCertificate: ["line", "words", "strings"],
    records.CellCertificate: ["cell, ", "network, "],
}
CASES = [(record, kind) for record, starts in KINDS.items() for kind in TABLES if kind.startswith(tuple(starts))]
CASES = [(record, kind, "") for record, kind in CASES] + [
    (records.HeadsCertificate, "heads", ""),
    (records.SetsFound, "strings, sets of states", "sets_found."),
    (records.SetsOfTypes, "strings, sets of states of each type", "sets_found."),
    (records.GraphsFound, "strings, ellipsoids", "sets_found."),
    (records.Separator, "heads, separator", ""),
    (records.Rays, "heads, tight", ""),
    (records.SavedCombination, "heads, gordan", ""),
    (records.JointSeparator, "heads, joint separator", ""),
    (records.JointCombination, "heads, joint gordan", ""),
    (records.JointRays, "heads, joint tight", ""),
]


def parts(said):
    """The types of a union, and what a list or a dict holds; words are texts."""
    if isinstance(said, types.UnionType) or typing.get_origin(said) is typing.Union:
        return [part for each in typing.get_args(said) for part in parts(each)]
    return [str if typing.get_origin(said) is typing.Literal else said]


def plain(said):
    """The JSON type that a part stands for."""
    return dict if typing.is_typeddict(said) else typing.get_origin(said) or said


def contradictions(record, table, prefix=""):
    """The paths below a prefix at which a table lets something stand that a record's type does not have."""
    return [path for name, said in typing.get_type_hints(record).items() for path in at(f"{prefix}{name}", said, table)]


def at(path, said, table):
    field = table.get(path) or table.get(f"{path}?")
    is_unread = field is None or field.types == "null" or field.types == "anything" and "trusted" in field.how
    if is_unread or said is object:
        return []
    kept = {plain(part) for part in parts(said)}
    found = [path for name in field.types.split(" | ") if JSON.get(name) not in kept]
    for part in parts(said):
        if typing.is_typeddict(part):
            found += contradictions(part, table, f"{path}.")
        elif plain(part) is list:
            (inner,) = typing.get_args(part)
            found += at(f"{path}[]", inner, table)
    return found


@pytest.mark.parametrize(("record", "kind", "prefix"), CASES, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_a_type_says_what_the_walk_lets_through(record, kind, prefix):
    assert contradictions(record, TABLES[kind], prefix) == []


def test_every_kind_has_a_type_and_every_field_of_one_is_walked():
    assert {*TABLES} - {kind for _, kind, _ in CASES} == {"heads, one head"}  # which names a head, and no numbers
    assert {IN_BITS, IN_DTYPE, WRONG_STEP} <= {kind[kind.rindex(", ") :] for kind in TABLES if ", " in kind}
    for record, starts in KINDS.items():
        walked = {
            path.rstrip("?") for kind, table in TABLES.items() if kind.startswith(tuple(starts)) for path in table
        }
        assert {*typing.get_type_hints(record)} <= walked


@pytest.mark.parametrize(
    ("record", "kind", "path"),
    [
        (typing.TypedDict("Whole", {"margin": int}), "modular, proved", "margin"),
        (typing.TypedDict("NeverNull", {"margin": float}), "histogram, proved", "margin"),
        (
            typing.TypedDict("Flat", {"program": typing.TypedDict("G", {"steps": list[int]})}),
            "circuit",
            "program.steps[]",
        ),
    ],
)
def test_a_type_that_says_too_much_is_seen(record, kind, path):
    assert path in contradictions(record, TABLES[kind])
