"""Certificates about recurrent networks with one field changed, each that is not taken on trust."""

import copy

TRUSTED = ("seconds", "claim", "argument", "assumptions", "tightest", "float64_predicts", "evaluation", "sets_found")


def values(x):
    """Others of the same type."""
    if type(x) is bool:
        return [not x]
    if type(x) is int:
        return [x + 1, max(0, x - 1) if x else x + 2]
    if type(x) is float:
        return [9 * x + 1e-3 if x > 0 else 2 * x - 1e-3, -x or 1.0]
    if type(x) is str:
        return [x + "x", "7"]
    return [[*x, 0], x[1:]] if type(x) is list and x and type(x[0]) is int else [None if x is not None else 1.0]


def places(c, path=()):
    """Every place of a certificate whose value is not trusted, with other values; the numbers of a run left out."""
    for key, value in c.items():
        if key in TRUSTED or key == "run" or (key == "right_to" and not c["counterexample"].get("is_first")):
            continue
        if type(value) is dict:
            yield from places(value, (*path, key))
        else:
            yield from (((*path, key), new) for new in values(value))


def put(c, path, new):
    """The certificate with something else at a place."""
    changed = copy.deepcopy(c)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed
