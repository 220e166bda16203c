"""Models with weights from 2^-1074 to 2^1023 at every door: what is said of them is what enumeration says.

The default run draws a few models of each door. All of them (21,360) with

    python -m pytest tests/hunt/test_every_size.py -m deep -s
"""

from __future__ import annotations

import json
import time
from collections import Counter
from fractions import Fraction

import pytest
from models.every_size import DOORS, REFUSED, Answer, Case, drawn, traced_once
from models.selection import every
from oracles.exact_sizes import is_right, margin, number

from verify.module import problem
from verify.tasks.inductive import engine_runs as runs

LEAST, FEW, MANY = 4, 12, 1780
MAY_REFUSE = ("count01",)  # scores above 2^50, and layer norm of an embedding without variance where eps is 0


@pytest.fixture(autouse=True)
def traced_few_times(monkeypatch):
    for room in (runs, problem):
        monkeypatch.setattr(room, "capture", traced_once(room.capture))


def complaints(case: Case, certificate: dict, answers: list[Answer]) -> list[str]:
    """What a certificate says that the oracle does not, in words."""
    wrong = [a for a in answers if is_right(a.differences) is False]
    unknown = [a for a in answers if is_right(a.differences) is None]
    said = certificate["verdict"]
    found = []
    if said == "PROVED":
        found += [f"PROVED, and wrong on {a.input} at {a.place}: {margin(a.differences)}" for a in wrong[:1]]
        found += margins_too_large(certificate, answers)
    if said == "REFUTED":
        found += unfounded(case, certificate, answers)
    return found + miscounted(case, certificate, answers, wrong, unknown)


def margins_too_large(certificate: dict, answers: list[Answer]) -> list[str]:
    """Margins that an answer does not have, or that no number has."""
    least = certificate["margin"]
    by_count = certificate.get("margin_per_count")
    found = []
    for a in answers:
        true = margin(a.differences)
        if least is not None and not number(least) <= true and not number(least).overlaps(true):
            found.append(f"margin {least}, and {a.input} at {a.place} has {true}")
        if least is not None and true.is_nan():
            found.append(f"PROVED, and {a.input} at {a.place} has no logit that is a number, or none is known")
        if by_count is not None and by_count[a.input.count(a.input[a.place]) - 1] is not None:
            own = by_count[a.input.count(a.input[a.place]) - 1]
            if number(own) > true:
                found.append(f"margin {own} of its count, and {a.input} at {a.place} has {true}")
    return found[:1]


def unfounded(case: Case, certificate: dict, answers: list[Answer]) -> list[str]:
    """A counterexample that is right, or a smaller one where it is said to be the smallest."""
    told, place = case.found(certificate["counterexample"])
    here = [a for a in answers if a.input == told and (place is None or a.place == place)]
    if not here:
        return [f"REFUTED by {told} at {place}, which is no input"]
    if all(is_right(a.differences) for a in here):
        return [f"REFUTED by {told} at {place}, which is right by {margin(here[0].differences)}"]
    if certificate["counterexample"].get("is_smallest") and case.order is not None:
        own = case.order(here[0])
        smaller = [a for a in answers if is_right(a.differences) is False and case.order(a) < own]
        return [f"{told} is said to be the smallest, and {a.input} is wrong" for a in smaller[:1]]
    return []


def miscounted(case: Case, certificate: dict, answers: list[Answer], wrong: list, unknown: list) -> list[str]:
    """Counts and brackets that do not hold the truth."""
    found = []
    total = sum(a.number for a in answers)
    least, most = sum(a.number for a in wrong), sum(a.number for a in wrong + unknown)
    share = certificate.get("error_share")  # of floats: each is the nearest to a fraction with a small denominator
    if share is not None and not (Fraction(share[0]) * total <= most and Fraction(share[1]) * total >= least):
        found.append(f"share of wrong answers in {share}, and it is {least}..{most} of {total}")
    pairs = certificate.get("wrong_pairs")
    if pairs is not None and not least <= int(pairs) <= most:
        found.append(f"{pairs} wrong pairs, and there are {least}..{most}")
    counts = certificate.get("counts")
    if counts is not None:
        if not case.counts_answers:
            total = len({a.input for a in answers})
            least, most = len({a.input for a in wrong}), len({a.input for a in wrong + unknown})
        share_of_wrong = certificate.get("wrong_share")
        if share_of_wrong is not None and not least <= Fraction(share_of_wrong) * total <= most:
            found.append(f"share {share_of_wrong} of wrong inputs, and {least}..{most} of {total} are wrong")
        if int(counts["wrong"]) > most or int(counts["right"]) > total - least:
            found.append(f"counts {counts}, and {least}..{most} of {total} are wrong")
    has_length_0 = case.notes.get("task") == "shifted"  # which no range of lengths counts
    for name, (low, high) in ({} if has_length_0 else certificate.get("accuracy", {})).items():
        if not (Fraction(low) * total <= total - least and Fraction(high) * total >= total - most):
            found.append(f"accuracy {low}..{high} at {name}, and {least}..{most} of {total} are wrong")
    return found


def judged(door: str, seed: int) -> tuple[str, list[str], dict]:
    """The verdict on one model, and what is wrong with it."""
    try:
        case = drawn(door, seed)
    except REFUSED as error:
        return "not built", [], {"reason": str(error)}
    try:
        certificate = json.loads(case.ask().to_json())
    except REFUSED as error:
        return "refused", [], {"reason": str(error), **case.notes}
    except Exception as error:
        return "crashed", [f"crashes: {type(error).__name__}: {str(error)[:200]}"], case.notes
    if certificate["verdict"] == "UNKNOWN" and "counts" not in certificate and not certificate.get("error_share"):
        return "UNKNOWN", [], {"reason": certificate["reason"], **case.notes}
    return certificate["verdict"], complaints(case, certificate, case.truth()), case.notes


@pytest.mark.parametrize("door", every(16, DOORS))
def test_what_is_said_of_models_of_every_size_is_true(door):
    verdicts = Counter()
    for seed in range(FEW):
        verdict, found, notes = judged(door, seed)
        verdicts[verdict] += 1
        assert not found and (verdict != "refused" or door in MAY_REFUSE), (door, seed, notes, found)
        if seed >= LEAST and verdicts["PROVED"] + verdicts["REFUTED"] >= 3:
            break
    assert verdicts["PROVED"] + verdicts["REFUTED"] >= 3, verdicts


@pytest.mark.deep
@pytest.mark.parametrize("door", DOORS)
def test_what_is_said_of_many_models_of_every_size_is_true(door):
    started, verdicts, wrong = time.process_time(), Counter(), []
    for seed in range(MANY):
        verdict, found, _ = judged(door, seed)
        verdicts[verdict] += 1
        wrong += [(seed, line) for line in found]
    summary = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
    print(f"\n{door}: {MANY} drawn, {summary}; {time.process_time() - started:.0f} s")
    assert not wrong and verdicts["PROVED"], (door, verdicts, len(wrong), wrong[:10])
    assert not verdicts["refused"] or door in MAY_REFUSE, verdicts
