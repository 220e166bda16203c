"""Forgeries of certificates: one or a few changes of an honest one, as whoever wants to be believed would make them."""

import base64
import hashlib
import json
import math
import re
import struct
import zlib

from models.certificates import NAMES, honest
from models.saved_modules import as_proof

VALUES = [None, True, False, 0, 1, -1, 2, 7, 0.0, -0.0, 0.5, -1.5, 5e-324, 1e308, 2**53 + 1, 10**40, -(10**40)]
VALUES += ["", "all", "1", "-1", "+1", "1_000", " 1", "\u0663", "1e3", "infinite", [], [0], [0.0, 1.0], {}, {"a": 1}]
WORDS = {"F64": "d", "F32": "f"}
SELDOM = {  # they take a hundred times as long as others, to check or to enumerate
    "blocks of types, float32",
    "bos+sftm, float16 in float32",
    "count01, heads",
    "count01, heads, float32",
    "module, a block, float64",
    "module, cells, a block",
    "module, cells, gated, wrong",
    "module, float32, wrong",
    "s4, named, wrong, bfloat16",
    "sets",
    "splits",
    "ssm, named, wrong, float32",
    "strings, lstm, float64",
    "strings, trained, float32",
    "swing",
    "transformer, float16",
}
SHARE_LEFT_OUT = 0.85  # of their draws
LITERALS = ["NaN", "Infinity", "-Infinity", "-0", "1e999", "1E3", "01", "+1", "0x1", "1_0", "9" * 5000]


def places(value, path=()):
    """Every path of keys into a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def at(c, path):
    for key in path:
        c = c[key]
    return c


def put(c, path, value):
    at(c, path[:-1])[path[-1]] = value


def otherwise(value, draw):
    """Another value near this one, of the same type or of another."""
    if isinstance(value, bool) or value is None or draw.random() < 0.15:
        return draw.choice(VALUES)
    if isinstance(value, int):
        return draw.choice(
            [value + 1, value - 1, -value, 2 * value, value // 2, value + 10, float(value), str(value), 0]
        )
    if isinstance(value, float):
        moved = [math.nextafter(value, math.inf), value * (1 + 1e-6), 2 * value, value / 2, -value, value + 0.25]
        return draw.choice([*moved, value * 0.999, 5e-324, -5e-324, 0.0, -0.0, int(value), str(value)])
    if isinstance(value, str):
        numbers = [*re.finditer("[0-9]+", value)]
        if not numbers:
            return draw.choice([value.upper(), value + " ", "", *VALUES])
        found = draw.choice(numbers)
        n = int(found[0])
        new = [
            f"-{n}",
            f"+{n}",
            f" {n}",
            f"0{n}",
            f"{n}_0",
            f"{n}e0",
            str(n + 1),
            str(n - 1),
            str(2 * n),
            "0",
            "-0",
            "",
        ]
        new += ["".join(chr(0x660 + int(digit)) for digit in found[0])]
        return value[: found.start()] + draw.choice(new) + value[found.end() :]
    if isinstance(value, list):
        again = draw.choice(value) if value else 0
        changed = [value[1:], value[:-1], value[::-1], [*value, again], value * 2, [], draw.sample(value, len(value))]
        return draw.choice(changed)
    return {k: v for k, v in value.items() if draw.random() < 0.7}


def changed_anywhere(c, draw):
    path = draw.choice([*places(c)])
    if draw.random() < 0.1:
        del at(c, path[:-1])[path[-1]]
    else:
        put(c, path, otherwise(at(c, path), draw))


def exchanged(c, draw):
    """Two values of one type change places."""
    one, other = draw.choices([*places(c)], k=2)
    if one[: len(other)] == other or other[: len(one)] == one or type(at(c, one)) is not type(at(c, other)):
        return changed_anywhere(c, draw)
    a, b = at(c, one), at(c, other)
    put(c, one, b)
    return put(c, other, a)


def with_more(c, draw):
    inner = draw.choice([c, *(x for x in (at(c, path) for path in places(c)) if isinstance(x, dict))])
    inner[draw.choice(["note", "right_to", "states", "invariant", "wrong_pairs", "accumulate"])] = draw.choice(VALUES)


def another_statement(c, draw):
    """Lengths, sizes, readings and counterexamples as a liar would make them: all that must agree does."""
    p, case = c.get("parameters", {}), c.get("counterexample")
    if c["task"] == "module" and "counts" in c and draw.random() < 0.5:
        return c.update(as_proof(c, draw.choice([5e-324, 1e-9, abs(c["margin"] or 1) * draw.choice([0.5, 1.001, 2])])))
    which = draw.randrange(7)
    if which == 0 and "length" in c:
        n = draw.choice([1, 2, 5, 8, 10, 30, 101, 10**6, 10**30, "all"])
        K = p.get("types", 1)
        covered = "infinite" if n == "all" or n > 10**4 else str(K**n if "types" in p else n)
        c["length"] = p["length"] = n
        c["inputs_covered"] = covered if c["verdict"] == "PROVED" else "1"
    elif which == 1 and p:
        sizes = [k for k in ("modulus", "types", "max_count", "vocabulary", "T", "L", "P", "digits", "base") if k in p]
        sizes += [
            k
            for k in ("max_digits", "max_noise", "max_length", "min_digits", "min_noise", "regions", "zeros")
            if p.get(k) is not None
        ]
        sizes += ["length"] * ("regions" in p)
        if sizes:
            p[draw.choice(sizes)] += draw.choice([-1, 1, 2])
    elif which == 2 and "margin" in c and c["margin"]:
        c["margin"] = c["margin"] * draw.choice([0.5, 1.01, 2.0, 10.0]) if draw.random() < 0.5 else 5e-324
        if c.get("margin_per_count"):
            c["margin_per_count"] = [draw.choice([m, c["margin"]]) for m in c["margin_per_count"]]
    elif which == 3 and isinstance(case, dict) and "length" in case:
        n = max(1, case["length"] + draw.choice([-3, -1, 1, 3, 6, 100]))
        case["length"] = n
        c["right_to"] = draw.choice([n - 1, c.get("right_to", 0), 0, n - 2])
        a, b, k, first = draw.choice([0, -2]), 1, draw.choice([-2, 1, 3, 3]), draw.random() < 0.5
        strings = f"token {a} {k} times, token {b} {n - k - 1} times, token {a} 1 times"
        case["input"] = strings if "types" in p else draw.choice([f"token 0, {n} times", [0] * min(n, 30)])
        case.update({"is_first": True} if first else {})
        if "types" in p:
            case.update(expected=k + 1, predicted=draw.choice([k, k, 0, 1]))
        else:
            case.update(expected=(n - 1) % p.get("modulus", 2) + 1, predicted=draw.choice([1, 2, 3]))
        c["margin"] = draw.choice([c["margin"], -0.0, -1e-19])
    elif which == 4 and c.get("verdict") == "PROVED" and c["task"] == "inductive":
        n = draw.choice([2, 3, 6])
        one = f"token 0 {-2 if n == 6 else 1} times, token 1 {7 if n == 6 else n - 2} times, token 0 1 times"
        case = {
            "input": one if "types" in p else [0] * n,
            "length": n,
            "expected": n % 3,
            "predicted": draw.choice([0, 1, 2]),
        }
        case.update({"is_first": True} if draw.random() < 0.5 else {})
        c.update(verdict="REFUTED", inputs_covered="1", margin=-0.001, right_to=draw.choice([0, n - 1]), tightest=None)
        c["counterexample"] = case
        for name in ("repeats", "states", "invariant", "invariant_found"):
            c.pop(name, None)
    elif which == 5 and c.get("verdict") == "REFUTED":
        c.update(verdict="PROVED", counterexample=None, margin=5e-324, inputs_covered=str(p.get("length", 27)))
        c.pop("right_to", None)
    elif which == 6 and c["task"] == "heads":
        found = draw.choice([*c["heads"], *(c["pairs"] or [])])
        other = draw.choice([*c["heads"], *(c["pairs"] or [])])
        found.update(separable=other["separable"], certificate=other["certificate"])
    else:
        changed_anywhere(c, draw)
    return None


def graphs_of(c):
    """The graphs that were traced: of a module, or of one step of a recurrent network."""
    program = c.get("program")
    if not isinstance(program, dict):
        return []
    return program.get("graphs") or ([program["step"]] if isinstance(program.get("step"), dict) else [])


def another_graph(c, draw):
    """One node of a captured graph is another one; the list of operations is often made to fit."""
    nodes = draw.choice(graphs_of(c))["nodes"]
    node, other = draw.choices(nodes, k=2)
    key = draw.choice(["op", "op", "shape", "dtype", "args", "kwargs", "name"])
    if key in node and key in other and draw.random() < 0.7:
        node[key] = other[key]
    else:
        changed_anywhere(node, draw)
    if draw.random() < 0.7 and "operations" in c.get("graph", {}):
        names = [str(x.get("op")) for graph in graphs_of(c) for x in graph["nodes"]]
        names = sorted(name for name in names if name not in ("stored", "tokens", "getitem"))
        c["graph"]["operations"] = {name: names.count(name) for name in names}


def another_tree(c, draw):
    """Numbers of the search, packed again."""
    if graphs_of(c):
        return another_graph(c, draw)
    if not (c.get("tree") or {}).get("data"):
        return another_statement(c, draw)
    tree = json.loads(zlib.decompress(base64.b64decode(c["tree"]["data"])))
    changed_anywhere(tree, draw)
    c["tree"]["data"] = base64.b64encode(zlib.compress(json.dumps(tree).encode())).decode()
    return None


def other_weights(weights, draw):
    """One number of one tensor, or what the header says of it."""
    n = int.from_bytes(weights[:8], "little")
    header, buffer = json.loads(weights[8 : 8 + n]), bytearray(weights[8 + n :])
    names = [name for name in header if name != "__metadata__"]
    name = draw.choice(names)
    if draw.random() < 0.2:
        entry = header[name]
        which = draw.randrange(5)
        if which == 0:
            entry["shape"] = draw.choice([[1, *entry["shape"]], entry["shape"][::-1], [2, *entry["shape"]], []])
        elif which == 1:
            was, entry["dtype"] = entry["dtype"], draw.choice(["F64", "F32", "F16", "BF16", "BOOL", "I8"])
            start, stop = entry["data_offsets"]
            if was in WORDS and entry["dtype"] in WORDS:  # the same numbers, as far as they fit
                numbers = [x for (x,) in struct.iter_unpack(f"<{WORDS[was]}", buffer[start:stop])]
                buffer[start:stop] = struct.pack(f"<{len(numbers)}{WORDS[entry['dtype']]}", *numbers)
                more = len(buffer) - max(header[x]["data_offsets"][1] for x in names)
                for x in names:
                    header[x]["data_offsets"] = [k + more * (k >= stop) for k in header[x]["data_offsets"]]
                entry["data_offsets"] = [start, stop + more]
        elif which == 2:
            other = draw.choice(names)
            header[name], header[other] = header[other], header[name]
        elif which == 3:  # a second row
            start, stop = entry["data_offsets"]
            buffer[stop:stop] = buffer[start:stop]
            entry["shape"] = [2, *entry["shape"]]
            for x in names:
                header[x]["data_offsets"] = [k + (stop - start) * (k >= stop) for k in header[x]["data_offsets"]]
            entry["data_offsets"] = [start, 2 * stop - start]
        else:
            changed_anywhere(header, draw)
    else:
        start, stop = header[name]["data_offsets"]
        word, size = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2)}.get(header[name]["dtype"], ("", 1))
        place = start + size * draw.randrange(max(1, (stop - start) // size))
        if word and draw.random() < 0.8:
            x = struct.unpack_from(f"<{word}", buffer, place)[0]
            new = [-x, 2 * x, x / 2, 0.0, x * (1 + 2.0**-9), x + 0.25, x - 1, 5e-324, 1.0]
            struct.pack_into(f"<{word}", buffer, place, draw.choice(new))
        else:
            buffer[place] ^= 1 << draw.randrange(8)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(buffer)


def forged(draw, names=NAMES):
    """(name, weights, certificate) of one forgery."""
    name = draw.choice(names)
    if name in SELDOM and draw.random() < SHARE_LEFT_OUT:
        name = draw.choice(names)
    weights, text = honest(name)
    c, which = json.loads(text), draw.random()
    if which < 0.3:
        weights = other_weights(weights, draw)
        c["weights_sha256"] = hashlib.sha256(weights).hexdigest()
        if draw.random() < 0.5 and c.get("margin") and c["verdict"] == "PROVED":
            c["margin"] = draw.choice([5e-324, c["margin"] / 4])
            c.update(
                {"margin_per_count": [c["margin"]] * len(c["margin_per_count"])} if c.get("margin_per_count") else {}
            )
            c.update({"tightest": None, "margin_exact": None} if "tree" in c else {})
            if "margin_per_difference" in c:
                c.update(tightest=None, margin_per_difference=[None] * len(c["margin_per_difference"]))
    elif which < 0.55:
        changed_anywhere(c, draw)
    elif which < 0.6:
        exchanged(c, draw)
    elif which < 0.63:
        with_more(c, draw)
    elif which < 0.72:
        another_tree(c, draw)
    else:
        another_statement(c, draw)
        if draw.random() < 0.3:
            changed_anywhere(c, draw)
    out = json.dumps(c)
    if draw.random() < 0.03:
        found = draw.choice([*re.finditer(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", out)])
        out = out[: found.start()] + draw.choice(LITERALS) + out[found.end() :]
    elif draw.random() < 0.02:
        key = draw.choice([*re.finditer(r'"(\w+)": ', out)])
        out = out[: key.start()] + f'"{key[1]}": 1, ' + out[key.start() :]
    return name, weights, out
