"""Separability certificates of `verify heads`, re-checked from the stored numbers (docs/checker.md)."""

import re
from collections.abc import Callable

from verify.checker.joint_heads import all_excluded, all_right, all_touch
from verify.checker.lone_heads import excludes, separates, touches
from verify.checker.prompts import read_count01
from verify.checker.rational_heads import NUMBER, Law, RationalHead
from verify.checker.reading import MOST_DIGITS, NOT_CHECKABLE, Refusal, recorded, require
from verify.checker.records import (
    HeadsCertificate,
    JointCombination,
    JointRays,
    JointSeparator,
    Rays,
    SavedCombination,
    Separator,
)
from verify.checker.statement import certificate_of, compare
from verify.checker.table import OF_HEADS, walk

LABELS = ("majority-ones", "thesis")
BOXES = {"d-train": (0, 100, 100), "d-val": (101, 150, 150), "d-test": (151, 200, 200)}


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("heads", weights, certificate, HeadsCertificate)
    heads, parameters = _heads(weights)
    trusted, law = walk(c, "heads"), _law(c["law"])
    due: dict[str, object] = {
        "task": "heads",
        "reading": "real",
        "parameters": parameters,
        "empty_prompt": "counts as n1 <= n0",
    }
    due |= _of_law(law) | {"complete": not c["open"]}
    compare(c, due)
    require(c["labels"] in LABELS, f"labels: must be one of {', '.join(LABELS)}")
    require(len(c["heads"]) == len(heads), f"heads: the file has {len(heads)}")
    for h, found in enumerate(c["heads"]):
        require(found["head"] == h, f"head {h}: is missing")
        trusted += _certified(heads, (h,), law, found["separable"], found["certificate"])
        trusted += _certified(heads, (h,), None, found["separable_unbounded"], found["certificate_unbounded"])
    for several in [*(c["pairs"] or []), *c["subsets"]]:
        trusted += _certified(heads, tuple(several["heads"]), law, several["separable"], several["certificate"])
    return "SEPARABILITY", list(dict.fromkeys(trusted))


def _of_law(law: Law) -> dict[str, str]:
    """How many triples a law has, and the law in words."""
    if law is None:
        return {"inputs": "infinite", "law_text": "all n0, n1, n2 >= 0"}
    lo, hi, M = law
    text = f"n0, n1 uniform in [{lo}, {hi}], n2 uniform in [0, {M}], independent"
    return {"inputs": str((hi - lo + 1) ** 2 * (M + 1)), "law_text": text}


def _law(name: str) -> Law:
    """The box (lo, hi, M), None for all of N^3."""
    if name == "unbounded":
        return None
    found = re.fullmatch(f"box:({NUMBER}):({NUMBER}):({NUMBER})", name)
    is_short = len(name) <= MOST_DIGITS
    box = BOXES.get(name) or (found and is_short and tuple(int(x) for x in found.groups()))
    require(bool(box), f"law: {name!r} is no box; only boxes and unbounded are re-checked", NOT_CHECKABLE)
    lo, hi, M = box  # type: ignore[misc]
    require(lo <= hi, f"law: {name!r} is empty")
    return lo, hi, M


def _certified(heads: list[RationalHead], named: tuple[int, ...], law: Law, said: object, c: object) -> list[str]:
    """Accepts one answer with its certificate, and returns what of it is trusted. Raises: Refusal."""
    where = f"heads {list(named)}, {'all of N^3' if law is None else f'box {law}'}"
    is_named = len(named) > 0 and all(type(h) is int and 0 <= h < len(heads) for h in named)
    require(is_named and len(set(named)) == len(named), f"{where}: must be different heads of the file")
    require(type(said) is bool, f"{where}: is open", NOT_CHECKABLE)
    if not isinstance(c, dict) or c.get("kind") not in [*OF_HEADS]:
        raise Refusal(f"{where}: has no certificate")
    kind, trusted = c["kind"], walk(c, f"heads, {c['kind']}")
    if kind == "one head":
        require(said is True and c["head"] in named, f"{where}: one head separates only where it does")
        return trusted + _certified(heads, (c["head"],), law, True, c["certificate"])
    checks: dict[tuple[str, object], Callable[[], bool]] = {
        ("separator", True): lambda: separates(heads[named[0]], law, recorded(c, Separator)),
        ("tight", True): lambda: touches(heads[named[0]], law, recorded(c, Rays)),
        ("gordan", False): lambda: excludes(heads[named[0]], law, recorded(c, SavedCombination)),
        ("joint separator", True): lambda: all_right(heads, named, law, recorded(c, JointSeparator)),
        ("joint gordan", False): lambda: all_excluded(heads, named, law, recorded(c, JointCombination)),
        ("joint tight", True): lambda: all_touch([heads[h] for h in named], law, recorded(c, JointRays)),
    }
    require((kind, said) in checks, f"{where}: separable={said} is not shown by {kind!r}")
    require(kind[:5] == "joint" or len(named) == 1, f"{where}: {kind!r} speaks of one head")
    require(kind[:5] != "joint" or c["heads"] == list(named), f"{where}: the certificate is of other heads")
    require(checks[kind, said](), f"{where}: the certificate {kind!r} does not hold")
    return trusted


def _heads(data: bytes) -> tuple[list[RationalHead], dict[str, object]]:
    """The heads of a file, and what its certificate says of them."""
    numbers, sizes = read_count01(data)
    require("norm" not in numbers, "weights: layer norm is beyond plain Count01 models", NOT_CHECKABLE)
    E, parts = numbers["E"][0], zip(*(numbers[name] for name in ("W_Q", "W_K", "W_V")), strict=True)
    return [RationalHead(E, *part) for part in parts], sizes | {"norm": False}
