"""The report of `verify heads` for people: one table of heads, one of pairs, and what all subsets show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction

from verify.arithmetic.outward import above, below
from verify.report.console import say
from verify.report.tables import render
from verify.tasks.count01.heads.answers import HeadsAnswer, Measures, SubsetsAnswer

MOST_ROWS = 12  # pairs that are listed: the best by learned accuracy


def print_heads(data: HeadsAnswer, seconds: float) -> None:
    """Prints what `verify heads --json` prints, rounded, the law with every share."""
    say(f"law       {data['law']}: {data['law_text']}")
    if data["counts"]:
        wrong = data["counts"]["wrong"]
        share = f"; right with probability {shown(data['accuracy'])} under this law"
        say(f"model     {wrong} of {data['inputs']} triples answered wrongly after ={share}")
    _print_heads_table(data)
    groups = [*(data["pairs"] or []), *data["subsets"]]
    if groups:
        _print_groups_table(data, groups)
    if all_subsets := data.get("all_subsets"):
        _print_subsets(all_subsets, data["law"])
    for cell in data["open"]:
        say(f"open      {cell}")
    say(f"time      {seconds:.1f} s")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    sys.stdout.write(render(columns, rows, "rich"))


def shown(share: str | None) -> str:
    """An exact share as a decimal number that is 0 or 1 only where the share is.

    >>> shown("502451/502500"), shown("1"), shown(None)
    ('0.999902', '1', '-')
    """
    if share is None:
        return "-"
    x = Fraction(share)
    if x in (0, 1):
        return str(x)
    digits = 6
    while float(f"{float(x):.{digits}f}") in (0.0, 1.0) and digits < 17:
        digits += 2
    return f"{float(x):.{digits}f}".rstrip("0") if digits <= 6 else f"{float(x):.{digits}f}"


def answered(is_separable: bool | None) -> str:
    return {True: "yes", False: "no", None: "open"}[is_separable]


def _print_heads_table(data: HeadsAnswer) -> None:
    has_svc = any(head["svc"] for head in data["heads"])
    columns = ["head", "w01", "w02", "l-acc", "AUC", "separates", "on N^3", "EOS", *(["SVC"] if has_svc else [])]
    rows = []
    for head in data["heads"]:
        svc = head["svc"]
        bracket = outwards(svc["low"], svc["high"]) if isinstance(svc, dict) else str(svc)
        rows.append(
            [
                str(head["head"]),
                _ratio(head["w01"]),
                _ratio(head["w02"]),
                shown(head["learned_accuracy"]),
                shown(head["auc"]),
                answered(head["separable"]),
                answered(head["separable_unbounded"]),
                shown(head["syntactic_accuracy"]),
                *([bracket] if has_svc else []),
            ]
        )
    print_table(columns, rows)


def outwards(low: str, high: str) -> str:
    """A bracket of exact shares, rounded to both sides.

    >>> outwards("1/3", "2/3")
    '0.333333..0.666667'
    """
    return f"{below(Fraction(low))}..{above(Fraction(high))}"


def _ratio(x: float | None) -> str:
    return "> 1e308" if x is None else f"{x:.4g}"


def _print_groups_table(data: HeadsAnswer, groups: list[Measures]) -> None:
    say(_title(data, groups))
    rows = []
    alone = {head["head"]: head["separable"] for head in data["heads"]}
    asked = data["subsets"]
    best = sorted(data["pairs"] or [], key=lambda g: -Fraction(g["learned_accuracy"] or 0))[:MOST_ROWS]
    for group in [*best, *asked]:
        is_joint = group["separable"] and not any(alone[h] for h in group["heads"])
        rows.append(
            [
                ",".join(map(str, group["heads"])),
                shown(group["learned_accuracy"]),
                shown(group["auc"]),
                answered(group["separable"]) + (", only together" if is_joint else ""),
                shown(group["syntactic_accuracy"]),
            ]
        )
    print_table(["heads", "l-acc", "AUC", "separate", "EOS"], rows)


def _title(data: HeadsAnswer, groups: list[Measures]) -> str:
    alone = {head["head"]: head["separable"] for head in data["heads"]}
    pairs = data["pairs"] or []
    together = sum(bool(p["separable"]) and not any(alone[h] for h in p["heads"]) for p in pairs)
    if not pairs:
        return "subsets"
    order = "" if data["counts"] is None else "; by learned accuracy"
    return f"{len(pairs)} pairs, {together} of them separate only together{order}"


def _print_subsets(found: SubsetsAnswer, law: str) -> None:
    say(f"subsets   all {found['count']} under {law}; of none {shown(found['accuracy_of_none'])}")
    say(f"perfect   smallest: {found['smallest_perfect'] or 'none'}")
    say(f"separate  {found['separating'] or 'open'} subsets; smallest: {found['smallest_separating'] or 'none'}")
    say(f"hurts     adding a head lowers learned accuracy in {found['additions_that_hurt']} of all cases")
    say("learned accuracy by size")
    sizes = ["least", "median", "largest"]
    print_table(["heads", *sizes], [[row["heads"], *(shown(row[name]) for name in sizes)] for row in found["by_size"]])
    rows = []
    by_accuracy = found["shapley"]["learned_accuracy"] or []
    by_separation: Sequence[str | None] = found["shapley"]["separability"] or [None] * len(by_accuracy)
    for h, (x, y) in enumerate(zip(by_accuracy, by_separation, strict=True)):
        rows.append([str(h), f"{float(Fraction(x)):+.6f}", "-" if y is None else f"{float(Fraction(y)):.6f}"])
    print_table(["head", "Shapley, l-acc", "Shapley, separability"], rows)
    rows = []
    for name, route in found["halving"].items():
        steps = [f"{','.join(map(str, s['heads']))}: {shown(s['learned_accuracy'])}" for s in route[1:]]
        rows.append([name, "; ".join(steps)])
    print_table(["halving by", "heads kept: learned accuracy"], rows)
